"""The routing tables on runs whose answers and costs are made up: what is resampled, what is merged, what is shared."""

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outlay.record import Ended
from outlay.report.agent.routing import PolicyRow, routing, routing_rows


def run(
    folder: Path,
    router: str,
    right: Sequence[int],
    cost: Sequence[float],
    ids: Sequence[str] = (),
    tokens: Sequence[int] = (),
    checks: int = 0,
    tier: str = "t",
    generator: str = "lab",
    metrics: dict[str, float] | None = None,
    **config: Any,
) -> Ended:
    """A finished run with its files: one attempt a query, and one check of `checks` tokens."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    names = ids or [f"q{at}" for at in range(len(right))]
    spent = tokens or [10] * len(right)
    with (folder / "predictions.jsonl").open("w") as file:
        for name, correct, paid in zip(names, right, spent, strict=True):
            one = {"id": name, "correct": bool(correct), "tier": tier, "tokens": paid + checks, "usd": 0.0}
            kept = {"context_tokens": 0, "metrics": {"accuracy": float(correct)}}
            file.write(json.dumps(one | kept) + "\n")
    n = len(names)
    lines = {
        "example_id": [*names, *names],
        "kind": ["attempt"] * n + ["verify"] * n,
        "cost_units": [*map(float, cost), *[0.0] * n],
        "prompt_tokens": [*spent, *[checks] * n],
        "completion_tokens": [0] * 2 * n,
    }
    pq.write_table(pa.table(lines), folder / "ledger.parquet")
    known = {"quality/accuracy": sum(right) / n, "data/examples": float(n), **(metrics or {})}
    choices = {"dataset": "chains", "router": router, "retry": "none", "generator": generator}
    groups: dict[str, Any] = {"seed": 0}
    for key, value in config.items():
        group, _, option = key.partition("__")
        if option:
            groups.setdefault(group, {})[option] = value
        else:
            groups[group] = value
    return Ended(
        folder.name, "FINISHED", groups, choices, known, str(folder), f"{folder.parent.name}/{folder.name}"
    )


def policy(points: Sequence[Ended], name: str) -> PolicyRow:
    return next(row for row in routing_rows(points)[1] if row.policy == name)


N = 40
WEAK = [1] * 16 + [0] * 24
STRONG = [1] * 36 + [0] * 4
COSTS = [1.0 + at % 7 for at in range(N)]


def two_tiers(folder: Path, **config: Any) -> list[Ended]:
    """The second costs ten times the first."""
    return [
        run(folder / "weak", "static", WEAK, COSTS, router__tier="weak", **config),
        run(
            folder / "strong", "static", STRONG, [10 * one for one in COSTS], router__tier="strong", **config
        ),
    ]


def test_the_ends_of_a_curve_are_resampled_with_it(tmp_path: Path) -> None:
    """The tiers alone recover half of their gap in every resample; a range held fixed would make that uncertain."""
    points = [*two_tiers(tmp_path), run(tmp_path / "other", "random", WEAK, COSTS, router__shares=[1, 0])]
    row = policy(points, "static")
    assert (row.apgr, row.apgr_lo, row.apgr_hi) == pytest.approx((0.5, 0.5, 0.5), abs=1e-9)


def test_a_range_is_resampled_with_its_curve(tmp_path: Path) -> None:
    """Nothing right for the cheap price, all right for the dear one: half over the range, whatever the queries cost."""
    points = [
        run(tmp_path / "weak", "static", [0] * N, COSTS, router__tier="weak"),
        run(tmp_path / "strong", "static", [1] * N, [3 * one * one for one in COSTS], router__tier="strong"),
        run(tmp_path / "other", "random", [0] * N, COSTS, router__shares=[1, 0]),
    ]
    row = policy(points, "static")
    assert (row.aiq, row.aiq_lo, row.aiq_hi) == pytest.approx((0.5, 0.5, 0.5), abs=1e-9)


def test_a_price_of_what_is_not_always_bought_reaches_to_infinity(tmp_path: Path) -> None:
    same = [1] * 36 + [0] * 4
    other = [0] * 4 + [1] * 36  # as many right answers, to other queries
    less = [1] * 30 + [0] * 10
    half = [5 * one for one in COSTS]
    points = [
        *two_tiers(tmp_path),
        run(tmp_path / "same", "frugalgpt", same, half, router__cost_share=0.5),
        run(tmp_path / "other", "cascade", other, half, router__cost_share=0.5),
        run(tmp_path / "less", "hybrid", less, half, router__cost_share=0.5),
    ]
    static, equal, unsure, never = (
        policy(points, name) for name in ("static", "frugalgpt", "cascade", "hybrid")
    )
    assert math.isfinite(static.cost_at_best) and math.isfinite(static.cost_at_best_hi)
    assert math.isfinite(equal.cost_at_best_hi) and equal.cost_at_best < static.cost_at_best
    # It loses to the best tier in about half of the resamples, so no finite price covers it.
    assert math.isfinite(unsure.cost_at_best) and unsure.cost_at_best_hi == math.inf
    assert math.isfinite(unsure.cost_over_reference) and unsure.cost_over_reference_hi == math.inf
    assert never.cost_at_best == never.cost_at_best_lo == math.inf
    written = {path.name: path for path in routing(points, tmp_path)}
    text = written["routing.md"].read_text()
    (line,) = (one for one in text.splitlines() if one.startswith("| hybrid") and "∞" in one)
    assert "inf" not in line and "nan" not in line


def test_what_varies_and_is_no_budget_makes_curves_of_its_own(tmp_path: Path) -> None:
    points = [
        one
        for name in ("lab", "smollm2")
        for one in (
            *two_tiers(tmp_path / name, generator=name),
            run(tmp_path / name / "f1", "frugalgpt", WEAK, COSTS, generator=name, router__cost_share=0.1),
            run(tmp_path / name / "f2", "frugalgpt", STRONG, COSTS, generator=name, router__cost_share=0.9),
        )
    ]
    rows, policies, _, _ = routing_rows(points)
    assert {(row.setting, row.policy, row.points) for row in policies} == {
        (name, router, 2) for name in ("lab", "smollm2") for router in ("static", "frugalgpt")
    }
    assert len(rows) == len({row.run_id for row in rows}) == 8
    text = routing(points, tmp_path)
    assert (
        "## chains, smollm2: policies (40 queries)"
        in next(path for path in text if path.name == "routing.md").read_text()
    )


def test_seeds_are_averaged_and_counted(tmp_path: Path) -> None:
    points = []
    for seed in (0, 1):
        for one in two_tiers(tmp_path / str(seed), seed=seed, dataset={"seed": seed}):
            points.append(one)
        right = STRONG if seed else WEAK
        points.append(
            run(tmp_path / str(seed) / "r", "random", right, COSTS, seed=seed, dataset={"seed": seed})
        )
    points.append(run(tmp_path / "more", "random", WEAK, COSTS, seed=7, dataset={"seed": 7}))
    rows, policies, _, left_out = routing_rows(points)
    (row,) = (one for one in rows if one.policy == "random")
    assert (row.seeds, row.queries, row.run_ids) == (2, 2 * N, "0/r 1/r")
    assert row.accuracy == pytest.approx((sum(WEAK) + sum(STRONG)) / (2 * N))
    assert {one.setting for one in policies} == {""}
    assert left_out == ["chains: seeds 7 are left out, not every policy ran with them"]


def test_a_query_of_two_seeds_is_drawn_once(tmp_path: Path) -> None:
    """The same answers under a second seed are no new queries: the interval must not shrink."""
    once = [*two_tiers(tmp_path / "once"), run(tmp_path / "once" / "r", "random", WEAK, COSTS)]
    twice = [
        one
        for seed in (0, 1)
        for one in (
            *two_tiers(tmp_path / str(seed), seed=seed),
            run(tmp_path / str(seed) / "r", "random", WEAK, COSTS, seed=seed),
        )
    ]
    widths = [
        row.accuracy_hi - row.accuracy_lo
        for points in (once, twice)
        for row in routing_rows(points)[0]
        if row.policy == "random"
    ]
    assert widths[0] == pytest.approx(widths[1], rel=0.02)


def test_seeds_that_do_not_meet_stand_apart(tmp_path: Path) -> None:
    points = [
        run(tmp_path / f"{router}{seed}", router, WEAK, COSTS, seed=seed, router__tier=tier)
        for seed in (0, 1)
        for router, tier in (("static", f"tier {seed}"), ("random", None))
    ]
    assert {row.setting for row in routing_rows(points)[0]} == {"seed 0", "seed 1"}


def test_every_column_is_of_the_shared_queries(tmp_path: Path) -> None:
    ids = [f"q{at}" for at in range(N)]
    more = run(
        tmp_path / "more", "random", [*WEAK, 1], [*COSTS, 9e6], [*ids, "alone"], [10] * N + [10**6], checks=3
    )
    rows = routing_rows([*two_tiers(tmp_path), more])[0]
    (row,) = (one for one in rows if one.policy == "random")
    assert (row.queries, row.tokens, row.check_tokens, row.cost_max) == (N, 13, 3, 7)


def test_rows_name_their_runs_and_the_bill_of_checks_has_a_column(tmp_path: Path) -> None:
    points = [*two_tiers(tmp_path), run(tmp_path / "judged", "cascade", STRONG, COSTS, checks=25)]
    written = {path.name: path for path in routing(points, tmp_path)}
    with written["routing.csv"].open() as file:
        for row in csv.DictReader(file):
            assert {"weak", "strong"} <= {one.rpartition("/")[2] for one in row["run_ids"].split()}
    text = written["routing.md"].read_text()
    assert "… for checks" in text
    assert text.count("an instrument; what holds") == 1
    without = {
        path.name: path
        for path in routing([*points[:2], run(tmp_path / "r", "random", WEAK, COSTS)], tmp_path)
    }
    assert "… for checks" not in without["routing.md"].read_text()


def test_options_are_named_where_their_value_says_nothing(tmp_path: Path) -> None:
    points = [
        *two_tiers(tmp_path),
        *(
            run(tmp_path / f"c{k}", "cascade", WEAK, COSTS, router__samples=k, router__cost_share=0.5)
            for k in (1, 5)
        ),
    ]
    assert {row.policy for row in routing_rows(points)[1]} == {
        "static",
        "cascade · samples 1",
        "cascade · samples 5",
    }


def test_no_ratio_is_made_of_a_reference_that_costs_nothing(tmp_path: Path) -> None:
    """As where the cheapest tier runs on one's own machine: it is also the best that the reference has."""
    free = [0.0] * N
    points = [
        run(tmp_path / "weak", "static", WEAK, free, router__tier="weak"),
        run(tmp_path / "strong", "static", STRONG, COSTS, router__tier="strong"),
        run(tmp_path / "f", "frugalgpt", WEAK, free, router__cost_share=0.1),
        run(tmp_path / "r", "random", STRONG, COSTS, router__shares=[0, 1]),
    ]
    row = policy(points, "random")
    assert math.isnan(row.cost_over_reference) and math.isnan(row.cost_over_reference_hi)
    assert math.isfinite(row.over_reference)


def test_gold_is_compared_with_each_way_to_stop_without_it(tmp_path: Path) -> None:
    points = [
        *two_tiers(tmp_path, retry__stop="none"),
        *(
            replace(run(tmp_path / stop, "cascade", right, COSTS, retry__stop=stop), oracle=stop == "gold")
            for stop, right in (("vote", WEAK), ("verifier", [1] * 26 + [0] * 14), ("gold", STRONG))
        ),
    ]
    premiums = routing_rows(points)[2]
    assert {row.policy: row.accuracy_points for row in premiums} == pytest.approx(
        {"cascade · gold against cascade · vote": 0.5, "cascade · gold against cascade · verifier": 0.25}
    )


def test_single_tiers_are_named_points_and_only_the_best_have_bands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib import pyplot as plt

    points = two_tiers(tmp_path)
    for at, router in enumerate(("lagrangian", "cascade", "hybrid", "routellm", "frugalgpt")):
        for share, part in ((0.3, 1), (0.6, 2)):
            right = [1] * (18 + 8 * part - 2 * at) + [0] * (N - 18 - 8 * part + 2 * at)
            costs = [(3 * part + 0.1 * at) * one for one in COSTS]
            points.append(run(tmp_path / f"{router}{part}", router, right, costs, router__cost_share=share))
    monkeypatch.setattr(plt, "close", lambda *_: None)
    routing(points, tmp_path)
    (axis,) = plt.gcf().axes
    assert {text.get_text() for text in axis.texts} == {"weak", "strong"}
    styles = {line.get_label(): line for line in axis.lines}
    assert styles["a single tier"].get_linestyle() == "None"
    bands = sum(
        type(one).__name__ in ("PolyCollection", "FillBetweenPolyCollection") for one in axis.collections
    )
    assert bands == 4  # the best three, and what the paper compares with
    mixed = styles["what mixing single tiers buys"]
    x, y = (np.asarray(one, float) for one in mixed.get_data())
    chord = 40 + (90 - 40) * (x - x[0]) / (x[-1] - x[0])
    assert abs(y - chord).max() < 1e-6
    assert 3 <= len(axis.get_xticks()) <= 7
    monkeypatch.undo()
    plt.close("all")
