"""A sample of a run's queries as MLflow traces: a span for the query, and one for each line of its ledger."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from outlay.agent.ledger import Line
from outlay.report.examples import Shown
from outlay.track import TrackedRun

KINDS = {"probe": "LLM", "attempt": "LLM", "verify": "EVALUATOR"}
"""MLflow's type of span for a ledger line of a kind."""


def log_traces(run: TrackedRun, shown: Sequence[Shown], private: bool) -> None:
    """Write the traces of a run's examples; they stand in the run's Traces tab. private: numbers alone, no text.

    Spans follow each other with the ledger's latencies, up to now: a stored completion took what it took when it was made.
    """
    if not shown:
        return
    experiment = run.client.get_run(run.run_id).info.experiment_id
    with _exported_to(run.client.tracking_uri):
        for number, one in enumerate(shown, start=1):
            _trace(one, number, run.run_id, experiment, private)


def _trace(one: Shown, number: int, run_id: str, experiment: str, private: bool) -> None:
    from mlflow import start_span_no_context
    from mlflow.tracing.constant import SpanAttributeKey, TraceMetadataKey

    began = time.time_ns() - sum(_ns(line) for line in one.lines)
    attempts = [line for line in one.lines if line.attempt > 0 and line.kind != "verify"]
    about: dict[str, Any] = {
        "attempts": len(attempts),
        "tiers": list(dict.fromkeys(line.tier for line in attempts)),
        "tokens": sum(line.tokens for line in one.lines),
        "usd": sum(line.usd for line in one.lines),
        "context_tokens": one.context_tokens,
        "correct": one.correct,
    }
    root = start_span_no_context(
        f"query {number}",
        span_type="AGENT",
        inputs=None if private else {"example": one.example.id, "question": one.example.question},
        attributes=_known(about),
        metadata={TraceMetadataKey.SOURCE_RUN: run_id},
        experiment_id=experiment,
        start_time_ns=began,
    )
    at, tier = began, ""
    for line in one.lines:
        usage = {
            "input_tokens": line.prompt_tokens,
            "output_tokens": line.completion_tokens,
            "total_tokens": line.tokens,
        }
        span = start_span_no_context(
            _name(line, tier),
            span_type=KINDS[line.kind],
            parent_span=root,
            attributes=_known(
                _said(line, private) | ({SpanAttributeKey.CHAT_USAGE: usage} if line.tokens else {})
            ),
            start_time_ns=at,
        )
        at += _ns(line)
        failed = line.finish_reason in ("error", "retried")
        reply = None if private or not line.text else {"reply": line.text}
        span.end(outputs=reply, status="ERROR" if failed else "OK", end_time_ns=at)
        if line.kind == "attempt":
            tier = line.tier
    answer = None if private else {"answer": one.answer if one.answer is not None else one.reply}
    root.end(outputs=answer, status="OK", end_time_ns=at)


JUDGED = {True: "accepts", False: "rejects", None: "cannot tell of"}


def _name(line: Line, before: str) -> str:
    """Probe 2 on small, attempt 1 on small, gold rejects attempt 1, attempt 2 escalates to large. before: the tier of the attempt before."""
    tried = ", failed and tried again" if line.finish_reason == "retried" else ""
    if line.kind == "verify":
        judged = "checks" if tried else JUDGED[line.verdict]
        return f"{line.verifier} {judged} attempt {line.attempt}{tried}"
    if line.kind == "probe":
        return f"probe {line.sample + 1} on {line.tier}{tried}"
    moved = "escalates to" if before and line.tier != before else "on"
    return f"attempt {line.attempt} {moved} {line.tier}{tried}"


def _said(line: Line, private: bool) -> dict[str, Any]:
    """What a line says besides its text; of a private one no answer and no error message, which may quote it."""
    text = {} if private else {"answer": line.answer, "error": line.error or None}
    return {
        "tier": line.tier or None,
        "prompt_tokens": line.prompt_tokens,
        "cached_tokens": line.cached_tokens,
        "completion_tokens": line.completion_tokens,
        "cost_units": line.cost_units,
        "usd": line.usd,
        "context": line.context,
        "temperature": line.temperature,
        "finish_reason": line.finish_reason or None,
        "verdict": line.verdict,
        "confidence": line.confidence,
        "oracle": line.oracle or None,
        "score": line.score,
        **text,
    }


def _known(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _ns(line: Line) -> int:
    return max(round(line.latency_s * 1e9), 1000)  # never none, so that spans keep the ledger's order


@contextmanager
def _exported_to(uri: str) -> Iterator[None]:
    """MLflow exports traces to its global address alone: lend it ours, and put a notebook's own back."""
    import mlflow

    before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    mlflow.set_tracking_uri(uri)
    try:
        yield
        mlflow.flush_trace_async_logging()
    finally:
        mlflow.set_tracking_uri(before)  # type: ignore[arg-type]  # None: none was set
