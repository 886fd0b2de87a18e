"""A run's first queries as MLflow traces: a span for each ledger line, in order; without text where none may leave."""

from pathlib import Path
from typing import Any

import pytest

from outlay.agent.ledger import Line
from outlay.track import Tracking, start_run
from outlay.track.traces import log_traces

pytestmark = pytest.mark.slow  # a new SQLite store takes seconds to migrate

SECRET = "zebra"
LINES = (
    Line("q", 0, "probe", "small", completion_tokens=5, latency_s=0.5, finish_reason="stop", text=SECRET),
    Line(
        "q",
        1,
        "attempt",
        "small",
        attempt=1,
        prompt_tokens=7,
        completion_tokens=5,
        answer=SECRET,
        text=SECRET,
    ),
    Line("q", 2, "verify", attempt=1, verifier="gold", verdict=False, oracle=True),
    Line("q", 3, "attempt", "large", attempt=2, finish_reason="retried", error=f"500: {SECRET}"),
    Line(
        "q",
        4,
        "attempt",
        "large",
        attempt=2,
        prompt_tokens=7,
        completion_tokens=6,
        answer=SECRET,
        text=SECRET,
    ),
    Line("q", 5, "verify", attempt=2, verifier="parse", verdict=True, confidence=1.0),
)
NAMES = [
    "query 1",
    "probe 1 on small",
    "attempt 1 on small",
    "gold rejects attempt 1",
    "attempt 2 escalates to large, failed and tried again",
    "attempt 2 on large",
    "parse accepts attempt 2",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("outputs")


def trace_of(folder: Path, private: bool) -> Any:
    from outlay.data import Example
    from outlay.report.examples import Shown

    shown = Shown(Example(SECRET, f"Which {SECRET}?"), SECRET, [], 3, LINES, answer=SECRET, correct=True)
    run = start_run(Tracking(), folder, "run", {})
    log_traces(run, [shown], private)
    run.end()
    experiment = run.client.get_run(run.run_id).info.experiment_id
    (found,) = run.client.search_traces(locations=[experiment], run_id=run.run_id)
    return run.client.get_trace(found.info.trace_id)


def test_each_line_is_a_span_under_the_query_in_the_ledgers_order(folder: Path) -> None:
    trace = trace_of(folder, private=False)
    root, *spans = sorted(trace.data.spans, key=lambda one: (one.start_time_ns, one.parent_id is not None))
    assert [one.name for one in (root, *spans)] == NAMES
    assert {one.parent_id for one in spans} == {root.span_id}
    assert [one.name for one in spans if one.status.status_code.value == "ERROR"] == [NAMES[4]]
    assert root.inputs["question"] == f"Which {SECRET}?" and root.outputs == {"answer": SECRET}
    assert root.attributes["tokens"] == 30 and root.attributes["tiers"] == ["small", "large"]
    assert spans[0].end_time_ns - spans[0].start_time_ns == 500_000_000
    assert sum(one.attributes["completion_tokens"] for one in spans) == 16
    assert spans[2].attributes["verdict"] is False and spans[2].attributes["oracle"] is True


def test_a_private_runs_traces_have_numbers_and_no_text(folder: Path) -> None:
    trace = trace_of(folder, private=True)
    assert len(trace.data.spans) == len(NAMES) and SECRET not in str(trace.to_dict())
    assert any(one.attributes.get("completion_tokens") == 6 for one in trace.data.spans)


def test_a_notebooks_own_tracking_address_is_left_as_it_was(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    mlflow.set_tracking_uri(None)  # type: ignore[arg-type]
    trace_of(folder, private=True)
    assert not mlflow.is_tracking_uri_set()
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'own.db'}")
    try:
        trace_of(folder, private=True)
        assert mlflow.get_tracking_uri() == f"sqlite:///{tmp_path / 'own.db'}"
    finally:
        mlflow.set_tracking_uri(None)  # type: ignore[arg-type]
