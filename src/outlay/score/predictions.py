"""What a run says of each example: the lines of predictions.jsonl, and the numbers that its metrics are made of."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from outlay import inflation
from outlay.agent.executor import Outcome
from outlay.agent.ledger import Line
from outlay.context.stage import Sent
from outlay.data import Example
from outlay.inflation.features import identical, rounded_entropy
from outlay.schema import Parts
from outlay.score.correct import grader
from outlay.score.match import is_exact
from outlay.score.provenance import link


@dataclass(frozen=True)
class Prediction:
    """One example. public: its line of predictions.jsonl; numbers: for the run's statistics, without any text."""

    public: Mapping[str, Any]
    numbers: Mapping[str, Any]
    reply: str  # the text that the final answer was read from


def predictions(
    chunk: Sequence[Example], steps: Sequence[Sequence[Sent]], outcomes: Sequence[Outcome], parts: Parts
) -> Iterator[Prediction]:
    """One prediction per example, in order. steps: the contexts that each could be answered with."""
    from outlay.score.quality import score_batch

    exact, grade = is_exact(parts.dataset.answer), grader(chunk, parts)
    finals = [_final(outcome) for outcome in outcomes]
    # The context that the answer was given on; without an answer, the last one that was tried.
    sent = [
        each[final.step if final else max((line.step for line in outcome.trace.attempts), default=0)]
        if each
        else None
        for each, final, outcome in zip(steps, finals, outcomes, strict=True)
    ]
    scores = score_batch(
        parts.metrics.choice,
        parts.dataset.answer,
        chunk,
        [
            (outcome.stop.answer or "") if exact else (final.text if final else "")
            for outcome, final in zip(outcomes, finals, strict=True)
        ],
        [one.context.spans if one else () for one in sent],
        parts.metrics.bertscore_model,
    )
    for example, one, outcome, final, metrics in zip(chunk, sent, outcomes, finals, scores, strict=True):
        reply = final.text if final else ""
        trace, attempts = outcome.trace, outcome.trace.attempts
        correct = None
        if exact and grade.knows(example.id):
            correct = grade(_judged(outcome, final, example.id)) >= 0.5
            metrics = {"accuracy": float(correct), **metrics}
        generated = one is not None and parts.generator.samples and reply
        links = (
            link(reply, example.document, one.context.spans, parts.embedder.embed)
            if one and generated
            else []
        )
        public = {
            "id": example.id,
            "document": _document(example),
            "prediction": outcome.stop.answer if exact else reply,
            "references": list(example.references),
            "correct": correct,
            "context_tokens": one.context.tokens if one else 0,
            "context_spans": [list(span) for span in one.context.spans] if one else [],
            "document_characters": len(example.document),
            "attempts": len(attempts),
            "tier": final.tier if final else "",
            "tokens": trace.tokens,
            "usd": sum(line.usd for line in trace.lines),
            "inflation": _number(inflation.inflation(attempts)),
            "metrics": {name: _number(value) for name, value in metrics.items()},
            # Of data sets that grade their questions: terms, steps, hops.
            **({"difficulty": example.meta["difficulty"]} if "difficulty" in example.meta else {}),
            # [start, end of a sentence of the reply, start, end of its source in the document, cosine]
            "links": [list(astuple(one_link)) for one_link in links],
        }
        probes = [line.answer for line in trace.probes]
        numbers = {
            **{
                key: public[key]
                for key in ("document", "correct", "context_tokens", "tokens", "inflation", "metrics")
            },
            "document_tokens": one.document_tokens if one else 0,
            "context": {"optimality": one.selection.optimality, **one.selection.info} if one else {},
            "solved": outcome.stop.solved,
            "attempt_tokens": sum(line.tokens for line in attempts),
            "direct_tokens": inflation.direct_tokens(attempts),
            "cbe": rounded_entropy(probes) if probes else None,
            "identical": identical(trace),
            "retries": max(0, len(attempts) - 1),
        }
        yield Prediction(public, numbers, reply)


def _document(example: Example) -> str:
    """What names the document: examples with the same name share one, and their scores are not independent."""
    if not example.document:
        return example.id
    named = example.meta.get("note")  # the same case, also where it is written in another way
    return str(named) if named else hashlib.blake2b(example.document.encode(), digest_size=6).hexdigest()


def line_numbers(line: Line) -> dict[str, Any]:
    """A ledger line's numbers, for the run's statistics."""
    names = (
        "kind",
        "tier",
        "attempt",
        "prompt_tokens",
        "completion_tokens",
        "cost_units",
        "usd",
        "latency_s",
        "error",
        "tokens",
        "finish_reason",
    )
    return {name: getattr(line, name) for name in names}


def _final(outcome: Outcome) -> Line | None:
    """The attempt that the final answer was read from."""
    for line in reversed(outcome.trace.attempts):
        if line.answer == outcome.stop.answer:
            return line
    return None


def _judged(outcome: Outcome, final: Line | None, example_id: str) -> Line:
    """The line that the final answer stands on: an attempt's, else any sample's; a policy may also make up an answer."""
    if final:
        return final
    answer = outcome.stop.answer
    for line in reversed(outcome.trace.lines):
        if line.kind != "verify" and line.finish_reason != "retried" and line.answer == answer:
            return line
    return Line(example_id, 0, "attempt", answer=answer, text=answer or "", error="no such reply was made")


def _number(value: float) -> float | None:
    """JSON has no not-a-number."""
    return None if value != value else value
