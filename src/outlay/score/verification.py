"""What verifiers let through: their verdicts against scores that were joined after the run."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from outlay.agent.ledger import Line
from outlay.score.statistics import Estimate, clopper_pearson

Counts = Counter[tuple[str, str]]
"""(verifier, what was counted) -> how many; runs that go chunk by chunk add them up."""


@dataclass(frozen=True)
class Rates:
    """One verifier. Intervals are Clopper and Pearson's over attempts, which of one query are not independent: at most
    one of them is accepted where a stop rule asks, so that `accepted_wrong` is over queries.
    """

    verifier: str
    oracle: bool
    right: int  # attempts that it judged and that were right; a verdict that could not be read is a rejection
    wrong: int
    tpr: Estimate  # accepted, of the right
    fpr: Estimate  # accepted, of the wrong
    accepted_wrong: Estimate  # wrong, of the accepted: what it let through
    tokens: int  # that its calls cost


def counts(lines: Iterable[Line]) -> Counts:
    """Verdicts by whether the attempt was right, from scored lines of whole queries.

    Only scores of 1 and 0 count: of a free text that is partly right, no verdict is simply right.
    """
    lines = list(lines)
    scores = {
        (line.example_id, line.attempt): line.score
        for line in lines
        if line.attempt and line.kind != "verify"
    }
    found: Counts = Counter()
    judged = set()
    for line in lines:
        if line.kind != "verify":
            continue
        found[line.verifier, "tokens"] += line.tokens
        found[line.verifier, "oracle"] += line.oracle
        score = scores.get((line.example_id, line.attempt))
        key = (line.example_id, line.attempt, line.verifier)
        if line.finish_reason == "retried" or key in judged or score not in (0.0, 1.0):
            continue  # samples of one check share its verdict
        judged.add(key)
        found[line.verifier, "verdicts"] += line.verdict is not None
        found[line.verifier, f"{'right' if score else 'wrong'}_{bool(line.verdict)}"] += 1
    return found


def rates(found: Counts) -> list[Rates]:
    """One row per verifier that gave a verdict, by name."""
    rows = []
    for name in sorted({verifier for verifier, _ in found}):
        if not found[name, "verdicts"]:  # a reflection judges nothing
            continue
        right = found[name, "right_True"], found[name, "right_False"]
        wrong = found[name, "wrong_True"], found[name, "wrong_False"]
        rows.append(
            Rates(
                verifier=name,
                oracle=found[name, "oracle"] > 0,
                right=sum(right),
                wrong=sum(wrong),
                tpr=clopper_pearson(right[0], sum(right)),
                fpr=clopper_pearson(wrong[0], sum(wrong)),
                accepted_wrong=clopper_pearson(wrong[0], right[0] + wrong[0]),
                tokens=found[name, "tokens"],
            )
        )
    return rows


def metrics(found: Counts) -> Mapping[str, float]:
    """verifier/NAME/{tpr,fpr,accepted_wrong}, each with _lo and _hi; verifier/NAME/{checks,tokens}."""
    out: dict[str, float] = {}
    for row in rates(found):
        for name in ("tpr", "fpr", "accepted_wrong"):
            one: Estimate = getattr(row, name)
            out |= {
                f"verifier/{row.verifier}/{name}{end}": value
                for end, value in zip(("", "_lo", "_hi"), one, strict=True)
            }
        out[f"verifier/{row.verifier}/checks"] = float(row.right + row.wrong)
    for name in sorted({verifier for verifier, _ in found}):
        out[f"verifier/{name}/tokens"] = float(found[name, "tokens"])
    return out
