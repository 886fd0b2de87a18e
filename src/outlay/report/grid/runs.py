"""Runs of one data set that differ in unitizer, selector and budget only, and their scores, example by example."""

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlay.report.tables import Point, by_dataset, labels, varying

if TYPE_CHECKING:
    import numpy as np

METRICS = ("bertscore_f1", "rouge1", "rouge2", "rougeL", "token_f1", "fact_recall", "accuracy")
SELECTORS = (
    "lead",
    "mmr",
    "rcd",
    "routed",
    "sliding",
    "hierarchical",
    "graphcluster",
    "shuffled",
    "learned",
    "oracle",
    "full",
)
UNITIZERS = ("sentence", "section", "window", "cluster")
REFERENCES = ("full", "none", "oracle", "learned", "routed")
"""Selectors that are no method of their own: the ends of the scale, and those that choose among others."""
RESAMPLES = 1000
BINS = 20


@dataclass(frozen=True)
class Scores:
    """A run's predictions as columns: (n,) per metric, nan where undefined; ids in the run's order."""

    ids: tuple[str, ...]
    metrics: Mapping[str, "np.ndarray"]
    context_tokens: "np.ndarray"
    documents: Mapping[str, str]  # example id -> what names its document


@dataclass(frozen=True)
class Grid:
    """Runs of one data set that differ in unitizer, selector and budget only."""

    dataset: str
    rest: str  # what else tells them from the sweep's other runs
    runs: Mapping[tuple[str, str, int], Point]  # by unitizer, selector, budget
    full: Point | None  # the whole document

    @property
    def name(self) -> str:
        return " · ".join(part for part in (self.dataset, self.rest) if part)

    @property
    def unitizers(self) -> list[str]:
        return ordered({unitizer for unitizer, _, _ in self.runs}, UNITIZERS)

    @property
    def selectors(self) -> list[str]:
        return ordered({selector for _, selector, _ in self.runs}, SELECTORS)

    @property
    def budgets(self) -> list[int]:
        return sorted({budget for _, _, budget in self.runs})

    def at(self, budget: int) -> dict[tuple[str, str], Point]:
        return {
            (unitizer, selector): run for (unitizer, selector, b), run in self.runs.items() if b == budget
        }


def grids(points: Sequence[Point]) -> list[Grid]:
    """The points as grids over unitizer, selector and budget, each under everything else that varies."""
    found: dict[tuple[str, str, str], dict[tuple[str, str, int], Point]] = {}
    fulls: dict[tuple[str, str], Point] = {}
    for dataset, group in by_dataset(points).items():
        settings = varying(group)
        for point in group:
            own = labels(point)
            others = [key for key in settings if key in own and key.partition(".")[0] not in CONTEXT_GROUPS]
            rest = _settings(own, others)
            if point.choices.get("selector") == "full":
                fulls[dataset, rest] = point
            elif "budget.tokens" in own:
                kind = _settings(own, [key for key in settings if key in own and key in BUDGET_KINDS])
                key = (
                    named(own, settings, "unitizer"),
                    named(own, settings, "selector"),
                    int(own["budget.tokens"]),
                )
                found.setdefault((dataset, rest, kind), {})[key] = point
    return [
        Grid(dataset, " · ".join(part for part in (rest, kind) if part), runs, fulls.get((dataset, rest)))
        for (dataset, rest, kind), runs in found.items()
    ]


BUDGET_KINDS = ("budget.truncate", "budget.tokenizer")
CONTEXT_GROUPS = ("unitizer", "selector", "budget")


def _settings(own: Mapping[str, Any], keys: Sequence[str]) -> str:
    return " · ".join(f"{key}={own[key]}" for key in keys)


def named(own: Mapping[str, Any], settings: Sequence[str], group: str) -> str:
    """A choice with those of its options that vary: "mmr weight=0.7"."""
    options = [key for key in settings if key.startswith(f"{group}.") and key in own]
    return " ".join([str(own[group]), *(f"{key.removeprefix(group + '.')}={own[key]}" for key in options)])


def ordered(names: Iterable[str], known: Sequence[str]) -> list[str]:
    rank = {name: at for at, name in enumerate(known)}
    return sorted(names, key=lambda name: (rank.get(name.partition(" ")[0], len(known)), name))


@lru_cache(maxsize=1024)
def read_scores(folder: str) -> Scores | None:
    """A run's predictions; None where its files are not here."""
    import numpy as np

    path = Path(folder) / "predictions.jsonl"
    if not path.is_file():
        return None
    rows = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            one = json.loads(line)
            document = str(one.get("document") or one["id"])
            rows.append(
                (sys.intern(str(one["id"])), one["metrics"], one["context_tokens"], sys.intern(document))
            )
    names = dict.fromkeys(name for _, metrics, *_ in rows for name in metrics)

    def column(name: str) -> "np.ndarray":
        values = (metrics.get(name) for _, metrics, *_ in rows)
        return np.array([math.nan if value is None else value for value in values], float)

    return Scores(
        tuple(name for name, *_ in rows),
        {name: column(name) for name in names},
        np.array([tokens for _, _, tokens, _ in rows], float),
        {name: document for name, _, _, document in rows},
    )


def aligned(points: Sequence[Point], metric: str) -> "tuple[np.ndarray, list[str]] | None":
    """(points, n) values of the examples that every point scored, and their ids; None without two such examples."""
    import numpy as np

    read = [read_scores(point.folder) for point in points]
    if any(one is None or metric not in one.metrics for one in read):
        return None
    tables = [dict(zip(one.ids, one.metrics[metric].tolist(), strict=True)) for one in read if one]
    ids = [name for name in tables[0] if all(not math.isnan(table.get(name, math.nan)) for table in tables)]
    if len(ids) < 2:
        return None
    return np.array([[table[name] for name in ids] for table in tables]), ids


def documents_of(folder: str, ids: Sequence[str]) -> list[str]:
    """What names the document of each example of a run."""
    read = read_scores(folder)
    return [read.documents[name] for name in ids] if read else list(ids)


def run_ids(runs: Iterable[Point | None]) -> str:
    """The ids of the runs that a row is made from, separated by blanks."""
    return " ".join(dict.fromkeys(run.run_id for run in runs if run is not None))


def document_weights(names: Sequence[str], seed: int = 0) -> "np.ndarray":
    """(RESAMPLES, n) bootstrap weights that sum to 1 a row; the examples of one document are drawn together."""
    import numpy as np

    place = {name: at for at, name in enumerate(dict.fromkeys(names))}
    draws = np.random.default_rng(seed).multinomial(
        len(place), np.full(len(place), 1 / len(place)), size=RESAMPLES
    )
    weights = draws[:, [place[name] for name in names]].astype(float)
    normal: np.ndarray = weights / weights.sum(axis=1, keepdims=True)
    return normal


def percentile_ends(draws: "np.ndarray") -> tuple[float, float]:
    import numpy as np

    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(high)


def shared_metrics(grid: Grid, wanted: Sequence[str] = METRICS) -> list[str]:
    """Metrics that every run has and that tell any two runs apart."""
    found = []
    for name in wanted:
        values = {round(run.metrics.get(f"quality/{name}", math.nan), 6) for run in grid.runs.values()}
        if len(values) > 1 and not any(map(math.isnan, values)):
            found.append(name)
    return found


def panel_metrics(grid: Grid) -> list[str]:
    """The metrics that get panels of their own: a semantic and a lexical one where there are both."""
    metrics = shared_metrics(grid)
    if "fact_recall" in metrics:  # gold facts, where there are any, say more than words in common
        return ["fact_recall"]
    return [name for name in ("accuracy", "bertscore_f1", "rouge1") if name in metrics] or metrics[:1]


# Quality over budget
