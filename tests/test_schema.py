"""Combinations that are refused before anything is paid for: what was fitted on gold, free tiers, logs that are too short."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

from outlay import schema
from outlay.agent.ledger import Line, ledger_table
from outlay.compose import checked, compose, points_of
from outlay.errors import ConfigError
from outlay.routers.explore import Explore
from outlay.runner import _explorer, asks

LAB = ["dataset=chains", "dataset.count=60", "generator=lab"]


def check(*words: str) -> schema.Parts:
    return checked(compose(words))


# --- nothing is judged on the queries that it was fitted on


@pytest.mark.parametrize("split", ["train", "tune", "all"])
@pytest.mark.parametrize(
    "words",
    [
        *(["router=" + one] for one in ("ser", "ser_x", "lagrangian", "frugalgpt", "routellm", "hybrid")),
        ["router=automix", "generator=ladder"],
        ["router=cascade"],
        ["retry=fixed", "retry.stop=verifier", "retry.verifier=scorer", "retry.verifier_samples=1"],
    ],
    ids=lambda one: one[-2] if len(one) > 1 else one[0],
)
def test_what_is_fitted_is_judged_on_the_test_split_alone(words: list[str], split: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"dataset\.split={split}: .*fitted on the gold.*dataset\.split=test"
    ):
        check(*LAB, "retry.temperature=0.7", *words, f"dataset.split={split}")
    assert check(*LAB, "retry.temperature=0.7", *words).dataset.split == "test"


def test_a_learned_selector_and_worked_examples_do_not_see_their_own_queries() -> None:
    with pytest.raises(ConfigError, match=r"split=all: selector=learned .*split=test"):
        check("generator=extract", "selector=learned", "dataset.split=all")
    with pytest.raises(ConfigError, match=r"split=train: prompt\.shots=2 .*split=test"):
        check("prompt=few_shot", "dataset.split=train")
    for words in (["generator=extract", "selector=learned"], ["prompt=few_shot"]):
        assert check(*words, "dataset.split=tune").dataset.split == "tune"  # they learn from train alone


def test_what_learns_nothing_is_judged_on_any_split() -> None:
    for words in (["router=static"], ["router=random"], ["router=oracle"], ["router=mot"]):
        assert check(*LAB, "dataset.split=all", *words).dataset.split == "all"


def test_a_router_of_ones_own_that_does_not_say_that_it_learns_is_found_out() -> None:
    policy = SimpleNamespace(explore=lambda: Explore(["small"], 1, 0.7))
    parts = check(*LAB)
    assert isinstance(_explorer(policy, parts), Explore)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"dataset\.split=test"):
        _explorer(policy, replace(parts, dataset=replace(parts.dataset, split="tune")))  # type: ignore[arg-type]


def test_the_presets_keep_the_rules(tmp_path: Path) -> None:
    """All of them, the recorded one on a log of one sample a tier."""
    path = log(tmp_path, {"weak": 1, "strong": 1})
    here = [f"dataset.path='{path.with_suffix('.examples.jsonl')}'", f"generator.path='{path}'"]
    prices = ["generator.price.input=1", "generator.price.output=1", "generator.price.units=1"]
    for preset in sorted((schema.conf_dir() / "experiment").glob("*.yaml")):
        if preset.stem == "tune":  # a search: it has no list of points
            continue
        more = [*here, *prices] if preset.name == "routing_recorded.yaml" else []
        points = points_of([f"experiment={preset.stem}", *more])
        for point in points[:: max(1, len(points) // 12)]:
            check(*point)


# --- budgets and prices


@pytest.mark.parametrize(
    ("words", "way_out"),
    [
        (["retry=fixed", "retry.stop=verifier", "retry.verifier=self_verify"], "agreement, parse, logprob"),
        (["retry=escalate", "retry.stop=verifier", "retry.verifier=judge"], "agreement, parse, logprob"),
        (["router=automix"], "router=frugalgpt"),
    ],
    ids=lambda one: str(one[0])[:12],
)
def test_the_lab_is_asked_for_no_judgement(words: list[str], way_out: str) -> None:
    with pytest.raises(ConfigError, match=f"answer no such question.*{way_out}"):
        check(*LAB, "retry.temperature=0.7", *words)
    check(*LAB, "retry=fixed", "retry.verifier=self_verify")  # retry.stop=vote asks no verifier


def test_tiers_that_are_free_in_the_routers_cost_are_refused() -> None:
    free = [*LAB, "generator.usd_per_unit=0", "router.cost=usd"]
    for router in ("ser", "lagrangian", "frugalgpt", "cascade"):
        with pytest.raises(ConfigError, match=r"router\.cost=usd: every tier.*is free.*router\.cost=units"):
            check(*free, f"router={router}")
        check(*free, f"router={router}", "router.cost=units")
    check(*free, "router=hybrid")  # by a share of calls: no cost is weighed
    with pytest.raises(ConfigError, match=r"router\.cost=usd"):
        check(*free, "router=hybrid", "router.mean_cost=1")


def test_what_a_fitted_policy_asks_first_is_not_cut_by_the_token_budget() -> None:
    """As the run itself explores: the union of a sweep and its plan would else lack these calls."""
    parts = check(*LAB, "router=ser", "router.token_budget=5", "retry=fixed")
    assert {(one.fits, one.limits.tokens_per_query) for one in asks(parts)} == {(True, None)}
    parts = check(*LAB, "router.token_budget=5")
    assert {(one.fits, one.limits.tokens_per_query) for one in asks(parts)} == {(False, 5)}


# --- logs that are too short


def log(folder: Path, samples: Mapping[str, int], queries: int = 4, probes: int = 0) -> Path:
    """A ledger of so many fresh samples a query and tier (the first query has them all, others one less), its queries."""
    import json

    lines = []
    for at in range(queries):
        for tier, count in samples.items():
            for k in range(max(1, count - (at > 0))):
                lines.append(Line(f"q{at}", len(lines), "attempt", tier, k + 1, k, finish_reason="stop"))
            for k in range(probes):
                lines.append(Line(f"q{at}", len(lines), "probe", tier, 0, k, finish_reason="stop"))
        lines.append(Line(f"q{at}", len(lines), "verify", tier, 1))
        lines.append(Line(f"q{at}", len(lines), "attempt", tier, 0, 0, finish_reason="retried", error="x"))
        lines.append(Line(f"q{at}", len(lines), "attempt", tier, 9, 0, "carry", finish_reason="stop"))
    path = folder / "log.parquet"
    pq.write_table(ledger_table(lines), path)
    rows = [
        {"id": f"q{at}", "question": "1 + 1", "references": ["2"], "kind": "number", "longest": 9}
        for at in range(queries)
    ]
    path.with_suffix(".examples.jsonl").write_text("\n".join(json.dumps(one) for one in rows))
    return path


def replayed(path: Path, *words: str) -> schema.Parts:
    data = ["dataset=recorded", f"dataset.path='{path.with_suffix('.examples.jsonl')}'", "dataset.split=test"]
    prices = [f"generator.price.{one}=1" for one in ("input", "output", "units")]
    return check(*data, "generator=replay", f"generator.path='{path}'", *prices, *words)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            "retry=vote retry.max_attempts=4",
            r"retry\.max_attempts=4: .*the most is 3.*Use retry\.max_attempts=3",
        ),
        ("retry=fixed retry.stop=none", r"retry\.max_attempts=5: .*missing=skip"),
        ("retry=contaminate", r"retry\.samples=8"),
        ("router=ser retry=fixed", r"router\.samples=5: .*Use router\.samples=2"),  # strong has two
        ("router=mot", r"router\.k=5"),
        ("probe=cbe probe.k=3 retry=fixed", r"probe\.k=3: .*Use probe\.k=2"),
        ("probe=cbe probe.k=2 retry=vote retry.max_attempts=2", r"beside the 2 of the probe.*max_attempts=1"),
    ],
)
def test_a_log_that_cannot_serve_says_so_before_the_run(tmp_path: Path, words: str, told: str) -> None:
    path = log(tmp_path, {"weak": 3, "strong": 2})
    with pytest.raises(ConfigError, match=told):
        replayed(path, *words.split())
    for way_out in ("generator.reuse=true", "generator.missing=skip"):
        replayed(path, *words.split(), way_out)


@pytest.mark.parametrize(
    "words",
    [
        "retry=vote retry.max_attempts=3",
        "retry=fixed retry.max_attempts=9 retry.stop=gold",  # it may be right before: only the run can tell
        "retry=fixed retry.max_attempts=9 retry.stop=none retry.context=carry",
        "router=ser router.samples=2 retry=fixed",
        "router=cascade router.samples=2",
        "router=static",
    ],
)
def test_a_log_that_may_serve_is_let_through(tmp_path: Path, words: str) -> None:
    replayed(log(tmp_path, {"weak": 3, "strong": 2}), *words.split())


def test_probes_that_were_recorded_apart_take_nothing_from_the_attempts(tmp_path: Path) -> None:
    path = log(tmp_path, {"weak": 2}, probes=3)
    replayed(path, "probe=cbe", "probe.k=3", "retry=vote", "retry.max_attempts=2")
