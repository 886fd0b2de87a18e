"""The flow on embedded notes without a model: budgets hold on the text as sent, gold is where it should be."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from simulated import Simulated

from outlay.agent.ledger import read_ledger
from outlay.compose import checked, compose
from outlay.context.stage import Stage, queries
from outlay.data import Example
from outlay.errors import ConfigError, DataError, GenerationError, OutlayError
from outlay.runner import _budget_warnings, _over_budget, _run, _stage, run_name


def run(tmp_path: Path, *words: str) -> tuple[dict[str, float], list[dict[str, object]]]:
    parts = checked(compose([*words, "generator=extract", "verbose=false"]))
    tmp_path.mkdir(exist_ok=True)
    metrics = _run(parts, tmp_path, run_name(parts), {}).metrics
    return metrics, [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]


def stage(*words: str) -> Stage:
    found = _stage(checked(compose([*words, "generator=extract"])))
    assert found is not None
    return found


@pytest.mark.parametrize(
    "selector", ["lead", "mmr", "rcd", "sliding", "hierarchical", "graphcluster", "routed", "shuffled"]
)
def test_the_budget_holds_and_every_span_maps_back(selector: str, tmp_path: Path, own_cache: Path) -> None:
    metrics, predictions = run(tmp_path, "dataset.limit=5", f"selector={selector}", "budget.tokens=100")
    assert metrics["context/tokens_max"] <= 100
    examples = {one.id: one for one in stage("dataset.limit=5").dataset.examples()}
    found = checked(
        compose(["dataset.limit=5", f"selector={selector}", "budget.tokens=100", "generator=extract"])
    )
    for prediction in predictions:
        document = examples[str(prediction["id"])].document
        (sent,) = _stage(found).contexts(examples[str(prediction["id"])])  # type: ignore[union-attr]
        pieces = [document[start:end] for start, end in prediction["context_spans"]]  # type: ignore[attr-defined]
        assert "".join("".join(pieces).split()) == "".join(sent.context.text.split())
        assert prediction["context_tokens"] == sent.context.tokens


def test_full_sends_the_whole_document_and_none_sends_nothing(tmp_path: Path, own_cache: Path) -> None:
    metrics, predictions = run(tmp_path / "full", "dataset.limit=3", "selector=full")
    assert metrics["quality/fact_recall"] == 1
    for one, example in zip(predictions, stage("dataset.limit=3").dataset.examples(), strict=True):
        start, end = one["context_spans"][0][0], one["context_spans"][-1][1]  # type: ignore[index]
        assert (
            example.document[start:end].strip() == example.document.strip()
        )  # white space at the end is not sent
    metrics, predictions = run(tmp_path / "none", "dataset.limit=3", "selector=none")
    assert metrics["context/tokens_max"] == 0 and all(one["prediction"] is None for one in predictions)


def test_pins_are_kept_and_prepaid(own_cache: Path) -> None:
    words = ["dataset.limit=4", "selector=mmr", "budget.tokens=200"]
    for example in stage(*words).dataset.examples():
        (sent,) = stage(*words, "selector.pin=[allergies]", "selector.pin_mode=best_effort").contexts(example)
        assert "llerg" in sent.context.text and sent.context.tokens <= 200
    with pytest.raises(OutlayError, match=r"selector\.pin.*best_effort"):
        for example in stage(*words).dataset.examples():
            stage(*words[:2], "selector.pin=[doses]", "budget.tokens=20").contexts(example)


def test_a_unit_that_does_not_fit_is_cut_only_under_truncate(own_cache: Path) -> None:
    words = ["selector=lead", "unitizer=section", "budget.tokens=16"]
    example = next(iter(stage(*words).dataset.examples()))
    whole, cut = (
        stage(*words).contexts(example)[0],
        stage(*words, "budget.truncate=true").contexts(example)[0],
    )
    assert whole.context.tokens < cut.context.tokens <= 16


def test_what_relevance_is_measured_against(own_cache: Path) -> None:
    dataset = stage("dataset.query=template").dataset
    example = Example("e", question="Which drug?", document="d", references=("gold",))
    assert queries(example, dataset) == dataset.aspects
    assert queries(example, stage("dataset.query=centroid").dataset) == ()
    assert queries(example, stage("dataset.query=reference").dataset) == ("gold",)
    with pytest.raises(ConfigError, match="query=template or centroid"):
        queries(Example("e", document="d"), stage().dataset)


def test_an_empty_split_says_so(tmp_path: Path, own_cache: Path) -> None:
    with pytest.raises(DataError, match=r"split 'test'.*dataset\.split=all"):
        run(tmp_path, "dataset.count=1", "dataset.seed=3", "dataset.split=test")


@pytest.mark.parametrize("text", ["", "   \n\t ", "a NUL \0 here", "a lone \ud800 surrogate"])
def test_an_unusable_document_names_file_and_example_or_is_counted(
    text: str, tmp_path: Path, own_cache: Path
) -> None:
    rows = [
        {"document": text, "question": "Which?", "reference": "x"},
        {"document": "Fine. Yes.", "question": "Which?", "reference": "x"},
    ]
    (tmp_path / "notes.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    words = [
        "dataset=table",
        f"dataset.path='{tmp_path / 'notes.jsonl'}'",
        "dataset.split=all",
        "dataset.answer=span",
    ]
    columns = [
        "dataset.columns.document=document",
        "dataset.columns.question=question",
        "dataset.columns.reference=reference",
    ]
    with pytest.raises(DataError, match=r"notes\.jsonl.*on_bad_row=skip"):
        run(tmp_path / "a", *words, *columns)
    metrics, predictions = run(tmp_path / "b", *words, *columns, "dataset.on_bad_row=skip")
    assert len(predictions) == 1 and metrics["data/skipped_rows"] == 1


def test_a_run_reads_like_what_it_did() -> None:
    names = {
        run_name(checked(compose(words)))
        for words in (
            ["selector=rcd"],
            ["dataset=arithmetic", "retry=fixed", "retry.stop=gold"],
            ["selector=full"],
        )
    }
    assert names == {
        "rcd · 256 · smollm2 · notes",
        "smollm2 · fixed to gold · arithmetic",
        "full · smollm2 · notes",
    }


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("selector=rcd retry=vote", "rcd · 256 · smollm2 · vote · notes"),
        (
            "selector=rcd unitizer=window budget.truncate=true",
            "rcd · 256 truncate=True · window · smollm2 · notes",
        ),
        ("selector=mmr selector.weight=0.9 dataset.limit=3", "mmr weight=0.9 · 256 · smollm2 · notes"),
        ("dataset=chains generator=lab", "lab small · chains"),
        ("dataset=chains generator=lab router.tier=large seed=3", "lab large · chains · seed 3"),
        (
            "dataset=chains generator=lab retry=fixed retry.max_attempts=3 retry.context=carry dataset.split=all",
            "lab small · fixed to vote max_attempts=3 context=carry · chains split=all",
        ),
        ("dataset=chains generator=lab retry.temperature=0.7", "lab small · none temperature=0.7 · chains"),
        (
            "dataset=chains generator=lab router=ser router.escalate.rule=index probe=cbe probe.k=5",
            "lab · ser escalate.rule=index · cbe k=5 · chains",
        ),
        (
            "dataset=chains generator=lab router=random router.shares=[0.5,0.25,0.25]",
            "lab · random shares=[0.5, 0.25, 0.25] · chains",
        ),
        (
            "dataset=arithmetic prompt=cot metrics.scorer=strict",
            "smollm2 · cot · auto scorer=strict · arithmetic",
        ),
        ("dataset=arithmetic prompt.shots=2", "smollm2 · few_shot · arithmetic"),
    ],
)
def test_a_name_says_what_a_sweep_varies(words: str, name: str) -> None:
    assert run_name(checked(compose(words.split()))) == name


# --- a token budget that is too small, or passed


def test_a_token_budget_under_every_call_is_told_with_its_numbers(tmp_path: Path, own_cache: Path) -> None:
    words = ["dataset=chains", "dataset.count=40", "generator=lab", "verbose=false"]
    parts = checked(compose([*words, "router.token_budget=20"]))
    done = _run(parts, tmp_path, run_name(parts), {})
    queries = done.metrics["data/examples"]
    assert done.metrics["quality/accuracy"] == 0 and done.metrics["cost/tokens_total"] == 0
    (told,) = done.warnings
    assert f"router.token_budget=20: {queries:.0f} of {queries:.0f} queries got no attempt" in told
    least = int(told.split("may take ")[1].split()[0])
    assert least > 20
    (tmp_path / "enough").mkdir()
    parts = checked(compose([*words, "router.token_budget=200"]))
    done = _run(parts, tmp_path / "enough", run_name(parts), {})
    assert done.warnings == () and done.metrics["quality/accuracy"] > 0
    assert done.metrics["cost/over_budget_queries"] == 0
    (tmp_path / "least").mkdir()
    parts = checked(compose([*words, f"router.token_budget={least}"]))
    done = _run(parts, tmp_path / "least", run_name(parts), {})
    assert done.metrics["cost/tokens_total"] > 0  # the call that was named is made


def test_replies_that_fail_are_told_by_their_commonest_error(tmp_path: Path, own_cache: Path) -> None:
    words = ["dataset=arithmetic", "dataset.limit=20", "verbose=false"]
    parts = replace(checked(compose(words)), generator=Simulated(p=0.5, fail=0.4))
    done = _run(parts, tmp_path, "some", {})
    failed = done.metrics["data/failed_calls"]
    (told,) = done.warnings
    assert 0 < failed < 20
    assert told == f"{failed:.0f} of 20 replies failed, {failed:.0f} of them so: the server hung up"
    (tmp_path / "hidden").mkdir()
    hidden = replace(parts, tracking=replace(parts.tracking, log_text=False))
    (told,) = _run(hidden, tmp_path / "hidden", "some", {}).warnings  # an error may repeat what was sent
    assert "hung up" not in told and "ledger.parquet" in told


def test_a_run_of_which_every_reply_failed_is_no_result(tmp_path: Path, own_cache: Path) -> None:
    parts = checked(compose(["generator=lab", "dataset.limit=3", "verbose=false"]))
    with pytest.raises(GenerationError, match=r"3 of 3 replies failed, 3 of them so: .*pass the window"):
        _run(parts, tmp_path, "lab", {})
    assert read_ledger(tmp_path / "ledger.parquet").lines  # what was tried is kept


def test_a_budget_that_no_unit_fits_is_told_with_its_numbers(tmp_path: Path, own_cache: Path) -> None:
    words = ["dataset.limit=3", "selector=lead", "generator=extract", "verbose=false"]
    parts = checked(compose([*words, "budget.tokens=3"]))
    done = _run(parts, tmp_path, run_name(parts), {})
    (told,) = done.warnings
    assert "in 3 of 3 queries no unit fitted" in told and done.metrics["context/tokens_max"] == 0
    most = int(told.split("at least, ")[1].split()[0])
    (tmp_path / "enough").mkdir()
    for more in (f"budget.tokens={most}", "selector=none"):
        parts = checked(compose([*words, more]))
        assert _run(parts, tmp_path / "enough", run_name(parts), {}).warnings == ()


# --- what is generated to fit a policy


def test_what_was_generated_to_fit_a_policy_was_generated_now(
    tmp_path: Path, own_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from outlay.record import Ended
    from outlay.report import terminal

    words = ["dataset=chains", "dataset.count=60", "dataset.fit_limit=10", "generator=lab", "verbose=false"]
    parts = checked(compose([*words, "router=frugalgpt", "retry.temperature=0.7"]))
    made = []
    for at in (0, 1):
        (tmp_path / str(at)).mkdir()
        done = _run(parts, tmp_path / str(at), run_name(parts), {})
        made.append(done.metrics["cache/generated_tokens"])
    assert made[0] > done.metrics["cost/tokens_completion"] and made[1] == 0
    ended = Ended("frugalgpt", "FINISHED", {}, {}, done.metrics, "out")
    terminal.single(ended)
    terminal.sweep_ends([ended], tmp_path, "")
    said = capsys.readouterr().out
    assert said.count(f"{done.metrics['fit/tokens']:,.0f}") == 2 and "tokens to fit" in said


def test_where_no_model_runs_nothing_comes_from_the_store(
    tmp_path: Path, own_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from outlay.record import Ended
    from outlay.report import terminal

    metrics, _ = run(tmp_path, "dataset.limit=12", "selector=lead", "budget.tokens=64")
    terminal.point(Ended("lead", "FINISHED", {}, {}, metrics, "out"), "1/1")
    assert "(no model ran)" in capsys.readouterr().out


def test_what_passed_a_token_budget_is_counted() -> None:
    parts = checked(compose(["dataset=arithmetic", "router.token_budget=100"]))
    metrics = _over_budget([90, 100, 105, 130], parts)
    assert metrics == {"cost/over_budget_queries": 2, "cost/over_budget_tokens": 35}
    (told,) = _budget_warnings(metrics, [], 4, parts)
    assert "2 of 4 queries passed it, by 35 tokens" in told
    assert _over_budget([90, 130], checked(compose(["dataset=arithmetic"]))) == {}


def test_the_routers_choice_follows_known_front_loading_and_redundancy(own_cache: Path) -> None:
    def chosen(selector: str, *words: str) -> int:
        one = ["dataset.task=summary", "dataset.query=template", "dataset.limit=16", "dataset.split=all"]
        routed = stage(*one, "selector=routed", *words)
        return sum(
            routed.contexts(example)[0].selection.choice == selector for example in routed.dataset.examples()
        )

    late, early = (chosen("lead", f"dataset.front_loading={share}", "budget.tokens=96") for share in (0, 1))
    assert late + 4 < early
    once, often = (chosen("rcd", f"dataset.redundancy={share}", "budget.tokens=1024") for share in (0, 1))
    assert once < often
