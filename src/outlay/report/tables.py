"""Rows of a sweep: what varied, what it bought, what it cost."""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from outlay.sweep import flat


class Point(Protocol):
    """A finished run, as far as tables need it."""

    @property
    def name(self) -> str: ...
    @property
    def config(self) -> Mapping[str, Any]: ...
    @property
    def choices(self) -> Mapping[str, str]: ...
    @property
    def metrics(self) -> Mapping[str, float]: ...
    @property
    def run_id(self) -> str: ...
    @property
    def oracle(self) -> bool: ...
    @property
    def folder(self) -> str: ...


OF_VERIFIER = ("retry.verifier", "retry.threshold", "retry.verifier_samples", "retry.judge")
"""Settings that count where retry.stop=verifier."""


def labels(point: Point) -> dict[str, Any]:
    """A point's settings, flat: each group's choice under its name, each option under group.option."""
    options = {
        key: value
        for key, value in flat(point.config).items()
        if not key.endswith("_target_")
        and key.partition(".")[0] not in ("verbose", "output_dir", "tracking", "sweep", "tune")
    }
    if options.get("retry.stop") not in (None, "verifier"):  # no verifier ran
        options = {key: value for key, value in options.items() if key not in OF_VERIFIER}
    return {
        **{group: choice for group, choice in point.choices.items() if group not in ("experiment", "tune")},
        **options,
    }


def varying(points: Sequence[Point]) -> list[str]:
    """Settings with two values or more among the points that have them; in the order of the config.

    A seed that is everywhere the run's own (dataset.seed, where it is not set) says nothing more than `seed`.
    """
    each = [labels(point) for point in points]
    keys = dict.fromkeys(key for one in each for key in one if not _repeats_seed(key, each))
    return [key for key in keys if len({json.dumps(one[key], default=str) for one in each if key in one}) > 1]


def _repeats_seed(key: str, each: Sequence[Mapping[str, Any]]) -> bool:
    return key.endswith(".seed") and all(one[key] == one.get("seed") for one in each if key in one)


SPOKEN = {"budget.tokens": "budget", "retry.max_attempts": "attempts", "router.escalate.rule": "rule"}
"""Settings whose last part says too little, or too much."""


UNTOLD = ("seed", "metrics.scorer", "dataset.split")
"""Settings of which no value says what it is a value of."""


def word(key: str, value: object) -> str:
    """A setting in a name: a choice, or a value that is a word, says itself; another needs its option's name."""
    if value == "none" and "." not in key:
        return f"no {key}"
    spoken = "." not in key or (isinstance(value, str) and len(value) > 1 and value != "none")
    if spoken and key not in UNTOLD:
        return str(value)
    return f"{SPOKEN.get(key, key.rpartition('.')[2])} {value}"


def needed(keys: Sequence[str], each: Sequence[Mapping[str, object]]) -> list[str]:
    """Of these settings as few as tell the runs apart that all of them do; an option goes before its choice does."""

    def told_apart(by: Sequence[str]) -> int:
        return len({tuple(str(own.get(key)) for key in by) for own in each})

    def nameless(by: Sequence[str]) -> int:  # runs of which nothing would be said
        return sum(all(own.get(key) is None for key in by) for own in each)

    kept, whole = list(keys), told_apart(keys)
    for key in sorted(kept, key=lambda key: "." in key, reverse=True):
        rest = [one for one in kept if one != key]
        has_options = any(one.startswith(f"{key}.") for one in rest)
        if not has_options and told_apart(rest) == whole and nameless(rest) == nameless(keys):
            kept = rest
    return kept


def said(point: Point, points: Sequence[Point], leave_out: Sequence[str] = ()) -> str:
    """What tells a run from the sweep's others, in a few words."""
    own = labels(point)
    keys = [key for key in varying(points) if key not in ("dataset", *leave_out)]
    keys = needed(keys, [labels(one) for one in points])
    return (
        " · ".join(dict.fromkeys(word(key, own[key]) for key in keys if own.get(key) is not None))
        or point.name
    )


CHECKS = "cost/tokens_checks"
"""What the calls of verifiers cost in a run; see `metric`."""


def metric(metrics: Mapping[str, float], name: str) -> float:
    """A run's metric; nan where it has none. CHECKS is the sum over its verifiers."""
    if name != CHECKS:
        return metrics.get(name, math.nan)
    return sum(
        value for key, value in metrics.items() if key.startswith("verifier/") and key.endswith("/tokens")
    )


MARKS = {
    "*": "reads the answer key: a bound, not a policy that can be deployed",
    "†": "the query is the reference text: a leak, as in the published code",
}
"""What a table or figure puts behind a setting, and its meaning."""


INSTRUMENT = "generator=lab: small models made for dataset=chains, an instrument; what holds of them need not hold of others"


def marks(point: Point) -> str:
    """The marks that a point must carry wherever it is shown."""
    leak = labels(point).get("dataset.query") == "reference"
    return ("*" if point.oracle else "") + ("†" if leak else "")


def legend(points: Sequence[Point]) -> list[str]:
    """The meaning of each mark among the points, a line each."""
    used = "".join(marks(point) for point in points)
    lines = [f"{mark} {meaning}" for mark, meaning in MARKS.items() if mark in used]
    if any(point.choices.get("generator") == "lab" for point in points):
        lines.append(INSTRUMENT)
    return lines


UNANSWERED = " (no model)"
"""Behind a data set's name: its runs with generator=extract, where models answered others."""


def answers(point: Point) -> bool:
    """Whether a model answered; with generator=extract there is a context, and no answer to judge."""
    return point.choices.get("generator") != "extract"


def by_dataset(points: Sequence[Point]) -> dict[str, list[Point]]:
    """The points of each data set, in order: figures of different data sets do not compare.

    Nor do answers and contexts: where some runs of a data set ask no model, they stand apart.
    """
    answered = {point.choices.get("dataset", "") for point in points if answers(point)}
    groups: dict[str, list[Point]] = {}
    for point in points:
        dataset = point.choices.get("dataset", "")
        apart = dataset in answered and not answers(point)
        groups.setdefault(f"{dataset}{UNANSWERED}" if apart else dataset, []).append(point)
    return groups


def size(points: Sequence[Point]) -> str:
    """ "20 to 40 examples on 5 documents": how much the points of a table ran on."""

    def between(what: str) -> tuple[str, int]:
        counts = sorted({int(point.metrics.get(f"data/{what}", 0)) for point in points})
        number = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
        return f"{number} {what if counts[-1] != 1 else what[:-1]}", counts[-1]

    examples, most = between("examples")
    documents, held = between("documents")
    return f"{examples} on {documents}" if 0 < held < most else examples


def sizes_differ(points: Sequence[Point]) -> bool:
    """Whether a table needs a column of sizes: one caption over rows of different sizes would be wrong for some."""
    return len({point.metrics.get("data/examples") for point in points}) > 1


ANSWERS = ("accuracy", "bertscore_f1", "rougeL", "token_f1", "fact_recall")
CONTEXTS = ("fact_recall", "rouge1", "token_f1")
"""Quality metrics, the one that tells most first: of a model's answers, and of contexts that no model has read."""


def headline(points: Sequence[Point]) -> str:
    """The quality metric that a table leads with: the first that every point has a value of."""
    extractive = all(point.choices.get("generator") == "extract" for point in points)
    for name in CONTEXTS if extractive else ANSWERS:
        # A data set without gold facts has a fact recall that is not a number.
        if not any(math.isnan(point.metrics.get(f"quality/{name}", math.nan)) for point in points):
            return f"quality/{name}"
    return "quality/token_f1"


def results(points: Sequence[Point], folder: Path) -> list[Path]:
    """results.csv: every varying setting and every metric of every point, with its run id."""
    path = folder / "results.csv"
    settings = varying(points) or ["dataset"]
    metrics = sorted({name for point in points for name in point.metrics})
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["name", *settings, "oracle", "leak", *metrics, "run_id"])
        for point in points:
            values = labels(point)
            writer.writerow(
                [
                    point.name,
                    *(values.get(key, "") for key in settings),
                    point.oracle,
                    "†" in marks(point),
                    *(point.metrics.get(name, "") for name in metrics),
                    point.run_id,
                ]
            )
    return [path]


def with_interval(metrics: Mapping[str, float], name: str, percent: bool = True) -> str:
    """ "41 % [29, 54]": a mean and its 95 % interval."""
    scale, unit = (100, " %") if percent else (1, "")
    digits = 0 if percent else 2
    mean, low, high = (metrics.get(f"{name}{end}", math.nan) * scale for end in ("", "_lo", "_hi"))
    if math.isnan(mean):
        return "–"
    if math.isnan(low) or math.isnan(high):
        return f"{mean:.{digits}f}{unit}"
    return f"{mean:.{digits}f}{unit} [{low:.{digits}f}, {high:.{digits}f}]"


def count(value: float) -> str:
    """A number of tokens: 1,234; – where there is none."""
    if math.isnan(value):
        return "–"
    return "∞" if math.isinf(value) else f"{value:,.0f}"
