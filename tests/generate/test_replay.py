"""A replay serves each recorded sample at most once, the same to every policy, at what it cost then."""

import json
import re
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.agent.ledger import Line, ledger_table, read_ledger
from outlay.compose import checked, compose
from outlay.errors import ConfigError, GenerationError
from outlay.generate import Completion, Earlier, Failure, Prompt, Request, Sampling
from outlay.generate.replay import Replay
from outlay.generate.spend import UNLIMITED
from outlay.runner import _run
from outlay.schema import component

FREE = {"price": {"input": 0.0, "output": 0.0, "units": 1.0}}


def line(number: int, text: str, **given: object) -> Line:
    fields = {
        "kind": "attempt",
        "tier": "big",
        "attempt": number + 1,
        "prompt_tokens": 10,
        "completion_tokens": 5,
    }
    return Line(
        **{"example_id": "q", "line": number, "text": text, "finish_reason": "stop", **fields, **given}
    )


def ledger(folder: Path, lines: list[Line], name: str = "log.parquet") -> Path:
    pq.write_table(ledger_table(lines), folder / name)
    return folder / name


def replay(path: Path, **options: object) -> Replay:
    built: Replay = component("generator", "replay", path=str(path), **{**FREE, **options})
    return built


def ask(
    generator: Replay,
    sample: int,
    stream: str = "attempt",
    shows: str = "fresh",
    seed: int = 0,
    heat: float = 0.7,
    step: int = 0,
) -> Completion:
    text = generator.render(Prompt((("user", "?"),), example_id="q", shows=shows, step=step), "big")
    request = Request("big", text, Sampling(heat, 8), stream, sample, seed)
    (((_, found),),) = list(generator.generate([request], UNLIMITED))
    return found


@settings(deadline=None)
@given(
    number=st.integers(1, 9),
    probes=st.integers(0, 9),
    seed=st.integers(0, 99),
    order=st.sampled_from(["seed", "recorded"]),
)
def test_no_sample_is_served_twice(
    number: int, probes: int, seed: int, order: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = ledger(tmp_path_factory.mktemp("replay"), [line(at, f"reply {at}") for at in range(number)])
    generator = replay(path, probes=probes, order=order)
    kept = min(probes, number)
    probed = [ask(generator, at, "probe", seed=seed).text for at in range(kept)]
    tried = [ask(generator, at, seed=seed).text for at in range(number - kept)]
    assert sorted(probed + tried) == [f"reply {at}" for at in range(number)]
    for stream, served in (("probe", probed), ("attempt", tried)):
        # whatever else was asked before, and in whatever order, the k-th sample is the same
        again = [
            ask(replay(path, probes=probes, order=order), at, stream, seed=seed).text
            for at in reversed(range(len(served)))
        ]
        assert again[::-1] == served
        with pytest.raises(GenerationError):
            ask(generator, len(served), stream, seed=seed)


def test_the_order_is_the_seeds_or_the_logs(tmp_path: Path) -> None:
    path = ledger(tmp_path, [line(at, f"reply {at}") for at in range(6)])
    orders = {tuple(ask(replay(path), at, seed=seed).text for at in range(6)) for seed in range(8)}
    assert len(orders) == 8
    recorded = replay(path, order="recorded")
    assert [ask(recorded, at, seed=5).text for at in range(6)] == [f"reply {at}" for at in range(6)]


def test_retries_that_saw_the_one_before_keep_their_order(tmp_path: Path) -> None:
    path = ledger(
        tmp_path, [line(0, "first"), *(line(at, f"carried {at}", context="carry") for at in (1, 2, 3))]
    )
    assert [ask(replay(path), at, shows="carry", seed=3).text for at in range(3)] == [
        "carried 1",
        "carried 2",
        "carried 3",
    ]
    assert ask(replay(path), 0).text == "first"


def test_a_missing_sample_says_which_or_fails_and_is_counted(tmp_path: Path) -> None:
    path = ledger(tmp_path, [line(0, "only")])
    with pytest.raises(
        GenerationError,
        match=r"example q, tier big: a fresh sample number 2 .* 1 recorded\. generator\.missing=skip",
    ):
        ask(replay(path), 1)
    with pytest.raises(GenerationError, match=r"a carry sample number 1 .* 0 recorded"):
        ask(replay(path), 0, shows="carry")
    with pytest.raises(GenerationError, match=r"raise generator\.probes to probe\.k"):
        ask(replay(path), 0, "probe")
    with pytest.raises(GenerationError, match="a verifier's or a reflection's call"):
        ask(replay(path), 0, "verify")
    skipped = ask(replay(path, missing="skip"), 1)
    assert (
        skipped.finish_reason == "error"
        and "not recorded: example q" in skipped.error
        and not skipped.completion_tokens
    )
    assert ask(replay(path, reuse=True), 7).text == "only"


def test_a_sample_answers_the_context_that_it_was_given(tmp_path: Path) -> None:
    path = ledger(
        tmp_path,
        [
            line(0, "on little", score=0.0),
            line(1, "", finish_reason="retried", error="busy", attempt=0, step=1),
            line(2, "on more", step=1, prompt_tokens=20, score=1.0),
            line(3, "on more again", step=1, sample=1, prompt_tokens=0),
        ],
    )
    generator = replay(path, order="recorded", probes=1)
    more = ask(generator, 0, step=1)
    assert (more.text, more.prompt_tokens, [one.error for one in more.failures]) == ("on more", 20, ["busy"])
    assert ask(generator, 1, step=1).prompt_tokens == 20
    little = ask(replay(path), 0)
    assert (little.text, little.prompt_tokens, little.failures) == ("on little", 10, ())
    recorded = replay(path, order="recorded").recorded
    assert [recorded(line(0, "", step=step), 0) for step in (0, 1)] == [0.0, 1.0]
    with pytest.raises(
        GenerationError, match=r"a fresh sample on the context of step 2 number 1 .* 0 recorded"
    ):
        ask(generator, 0, step=2)


def test_samples_may_be_held_to_their_temperature(tmp_path: Path) -> None:
    path = ledger(tmp_path, [line(0, "cold", temperature=0.0), line(1, "hot", temperature=1.0)])
    generator = replay(path, match_temperature=True)
    assert (ask(generator, 0, heat=0.0).text, ask(generator, 0, heat=1.0).text) == ("cold", "hot")
    with pytest.raises(GenerationError, match=r"at temperature 0\.7"):
        ask(generator, 0, heat=0.7)


def test_a_sample_alone_is_billed_the_prompt_that_its_request_shared(tmp_path: Path) -> None:
    path = ledger(
        tmp_path,
        [line(0, "a", prompt_tokens=12), line(1, "b", prompt_tokens=0), line(2, "c", prompt_tokens=0)],
    )
    assert [ask(replay(path), at).prompt_tokens for at in range(3)] == [12, 12, 12]
    generator = replay(path)
    prompt = generator.render(Prompt((("user", "not what was asked then"),), example_id="q"), "big")
    assert generator.count([prompt], "big") == [12]


def test_failures_and_failed_calls_are_served_as_such(tmp_path: Path) -> None:
    path = ledger(
        tmp_path,
        [
            line(0, "", finish_reason="retried", error="busy", prompt_tokens=4, cached_tokens=3, attempt=0),
            line(1, "fine"),
            line(2, "", finish_reason="error", error="gone", sample=1, prompt_tokens=0),
        ],
    )
    fine, gone = (ask(replay(path, order="recorded"), at) for at in range(2))
    assert fine.text == "fine"
    assert fine.failures == (Failure("busy", prompt_tokens=4, completion_tokens=5, cached_tokens=3),)
    assert gone.error == "gone" and gone.prompt_tokens == 0


def test_probes_and_verifiers_calls_of_a_ledger_are_served_from_their_own_lines(tmp_path: Path) -> None:
    path = ledger(
        tmp_path,
        [
            *(line(at, f"probe {at}", kind="probe", attempt=0) for at in range(3)),
            line(3, "tried", attempt=1),
            line(4, "Yes", kind="verify", attempt=1, verifier="judge"),
            line(5, "", kind="verify", attempt=1, verifier="gold", finish_reason="", oracle=True),
        ],
    )
    generator = replay(path, order="recorded", probes=2)
    assert [ask(generator, at, "probe").text for at in range(3)] == ["probe 0", "probe 1", "probe 2"]
    assert ask(generator, 0).text == "tried" and ask(generator, 0, "verify").text == "Yes"
    with pytest.raises(GenerationError):
        ask(generator, 1, "verify")  # gold's verdict was no call


def test_a_reflection_that_the_log_does_not_hold_costs_nothing(tmp_path: Path) -> None:
    path = ledger(tmp_path, [line(0, "first"), line(1, "after a reflection", context="reflect")])
    written = ask(replay(path), 0, "verify", shows="verify")
    assert (written.text, written.prompt_tokens, written.completion_tokens) == ("", 0, 0)
    assert ask(replay(path), 0, shows="reflect").text == "after a reflection"


# --- whole runs


def log(folder: Path, samples: int = 6, flags: bool = True, short: int = 0) -> list[str]:
    """Overrides that replay 12 queries whose replies are numbers; the log's flag is its own. short: of the last's samples."""
    lines, queries = [], []
    for query in range(12):
        queries.append(
            {"id": f"q{query}", "question": f"What is {query} + 1?", "references": [str(query + 1)]}
        )
        for at in range(samples - short * (query == 11)):
            right = (query + at) % 3 == 0
            text = f"It is {query + 1 if right else 100 + at}. Sample {at}, said to be {'right' if at % 2 else 'wrong'}."
            said = float(at % 2) if flags else None
            lines.append(line(at, text, example_id=f"q{query}", score=said, prompt_tokens=9 + query))
    path = ledger(folder, lines)
    rows = [json.dumps({**one, "kind": "number", "choices": [], "longest": 20}) for one in queries]
    (folder / "log.examples.jsonl").write_text("\n".join(rows))
    words = [
        "dataset=recorded",
        f"dataset.path='{folder / 'log.examples.jsonl'}'",
        "generator=replay",
        f"generator.path='{path}'",
    ]
    pattern = r"prompt.answer_pattern='It is (\d+)'"
    return [*words, pattern, "generator.price={input:1,output:2,units:3}", "verbose=false"]


def run(folder: Path, *words: str) -> dict[str, float]:
    folder.mkdir(exist_ok=True)
    metrics = _run(checked(compose(words)), folder, "replay", {}, "account").metrics
    return metrics


def test_the_recorded_scorer_gives_each_line_the_flag_of_the_sample_that_it_was(
    tmp_path: Path, own_cache: Path
) -> None:
    words = [
        *log(tmp_path),
        "metrics.scorer=recorded",
        "retry=fixed",
        "retry.stop=gold",
        "retry.max_attempts=3",
        "probe=cbe",
        "probe.k=2",
    ]
    metrics = run(tmp_path / "run", *words)
    lines = [one for one in read_ledger(tmp_path / "run" / "ledger.parquet").lines if one.kind != "verify"]
    assert {one.kind for one in lines} == {"probe", "attempt"}
    for one in lines:
        assert one.score == float("said to be right" in one.text)
    solved = {one.example_id for one in lines if one.kind == "attempt" and one.score}
    assert metrics["quality/accuracy"] == len(solved) / 12  # the flags stopped it, and graded it
    rows = (tmp_path / "run" / "predictions.jsonl").read_text().splitlines()
    assert {row["id"] for row in map(json.loads, rows) if row["correct"]} == solved


def test_a_runs_own_ledger_replays_to_the_same_bill_and_answers(tmp_path: Path, own_cache: Path) -> None:
    words = [
        *log(tmp_path),
        "retry=fixed",
        "retry.stop=vote",
        "retry.max_attempts=4",
        "probe=cbe",
        "probe.k=2",
    ]
    first = run(tmp_path / "first", *words, "seed=3")
    again = [*words, f"generator.path='{tmp_path / 'first' / 'ledger.parquet'}'", "generator.order=recorded"]
    second = run(tmp_path / "second", *again, "seed=4")
    assert first["cost/tokens_probe"] > 0 and first["inflation/mean"] > 1
    kept = [
        name
        for name in first
        if name.split("/")[0] in ("quality", "cost", "inflation") and name[-3:] not in ("_lo", "_hi")
    ]
    assert {name: second[name] for name in kept} == {name: first[name] for name in kept}
    texts = [
        [one.text for one in read_ledger(tmp_path / part / "ledger.parquet").lines]
        for part in ("first", "second")
    ]
    assert texts[0] == texts[1]


def test_what_is_missing_fails_its_query_and_is_counted(tmp_path: Path, own_cache: Path) -> None:
    words = [*log(tmp_path, samples=3, short=1), "retry=fixed", "retry.stop=none", "retry.max_attempts=3"]
    with pytest.raises(GenerationError, match="example q11, tier big"):
        run(tmp_path / "a", *words)
    metrics = run(tmp_path / "b", *words, "generator.missing=skip")
    assert metrics["data/failed_calls"] == 1 and metrics["data/examples"] == 12
    with pytest.raises(GenerationError, match=r"example q0 is not in it.*dataset=recorded"):
        other = ledger(tmp_path, [line(0, "x", example_id="another")], "other.parquet")
        run(tmp_path / "c", *log(tmp_path), f"generator.path='{other}'")


def test_a_log_without_flags_has_no_recorded_scorer(tmp_path: Path, own_cache: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"metrics\.scorer=recorded: the log does not say.*q0.*scorer=outlay"
    ):
        run(tmp_path / "run", *log(tmp_path, flags=False), "metrics.scorer=recorded")


# --- refused before anything is read


def test_a_config_that_cannot_be_replayed_is_refused(tmp_path: Path) -> None:
    words = log(tmp_path)
    for override, message in {
        "generator.path=null": "generator.path is null.*outlay import",
        f"generator.path='{tmp_path / 'lag.parquet'}'": "Did you mean 'log.parquet'.*outlay import",
        f"generator.path='{tmp_path / 'log.examples.jsonl'}'": "not readable as Parquet",
        "generator.price.units=null": r"price of tier big is not known.*generator\.prices={big:{units:…}}",
        "generator.prices={bog:{input:1}}": "no tier 'bog'. Did you mean 'big'",
        "generator.prices={big:{inptu:1}}": "Did you mean 'input'",
        "generator.prices={big:{input:-1}}": "at least 0",
        "generator.prices={big:{input:dear}}": "at least 0",
        "generator.prices={big:3}": "name its prices",
        "generator.missing=ignore": r"generator\.missing",
        "router.tier=bog": "Did you mean 'big'",
    }.items():
        with pytest.raises(ConfigError, match=message):
            checked(compose([*words, override]))
    pq.write_table(pa.table({"kind": ["attempt"], "model": ["big"]}), tmp_path / "other.parquet")
    with pytest.raises(ConfigError, match=r"other\.parquet: no ledger: it has no column 'tier'"):
        checked(compose([*words, f"generator.path='{tmp_path / 'other.parquet'}'"]))


def test_every_tier_without_a_price_is_named_with_what_it_lacks_as_an_option_that_can_be_given(
    tmp_path: Path,
) -> None:
    words = log(tmp_path)
    words.remove("generator.price={input:1,output:2,units:3}")
    names = ["mine", "a model (v2): big", "mistralai/Mixtral-8x7B-Instruct-v0.1", "gpt-4o"]
    path = ledger(tmp_path, [line(0, "x", tier=name) for name in names])
    with pytest.raises(ConfigError, match=re.escape(f"tiers {', '.join(names[:3])} are not known")) as caught:
        checked(compose(words))
    given = shlex.split(str(caught.value).partition("Say ")[2])[0].rstrip(",")
    assert given.startswith("generator.prices={mine:{input:…,output:…,units:…},")
    assert given.endswith(":{input:…,output:…}}")  # the table has units of this one
    parts = checked(compose([*words, given.replace("…", "2"), f"generator.path='{path}'"]))
    assert [tier.price.input for tier in parts.generator.tiers[:3]] == [2, 2, 2]


def test_prices_are_the_tiers_own_then_all_tiers_then_the_tables(tmp_path: Path) -> None:
    names = ("big", "small", "gpt-4o-mini/bm25")
    path = ledger(tmp_path, [line(0, "x", tier=name) for name in names])
    generator = component(
        "generator",
        "replay",
        path=str(path),
        price={"units": 2.0},
        prices={"big": {"input": 7.0, "output": 8.0}, "small": {"input": 0.0, "output": 0.0, "units": 1.0}},
    )
    prices = {tier.name: tier.price for tier in generator.tiers}
    assert (prices["big"].input, prices["big"].units, prices["small"].units) == (7.0, 2.0, 1.0)
    listed = prices["gpt-4o-mini/bm25"]
    assert listed.units == 2.0 and listed.output and listed.input  # the table's


def test_a_prompt_is_named_not_rendered() -> None:
    shown = Prompt((("user", Earlier().chain or "secret"),), example_id="q", shows="carry")
    assert json.loads(Replay().render(shown, "big")) == {"replay": "q", "shows": "carry", "step": 0}
