"""Regret tables of sweeps whose truth is known."""

import csv
import json
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from outlay.report import regret as module
from outlay.report.regret import (
    ALL,
    BEST,
    EACH,
    HELD_OUT,
    PER_EXAMPLE,
    RANDOM,
    held_out_best,
    regret,
    regret_rows,
)
from outlay.score.statistics import interval


@dataclass(frozen=True)
class Run:
    """A finished run, as far as tables need it."""

    name: str
    folder: str
    choices: MappingProxyType
    config: MappingProxyType
    metrics: MappingProxyType
    oracle: bool = False
    run_id: str = field(default="r")


def finished(folder: Path, selector: str, values: dict[str, float], budget: int = 64, **changes) -> Run:
    """A run whose examples have these accuracies."""
    own = folder / f"{selector}-{budget}-{len(list(folder.iterdir()))}"
    own.mkdir()
    lines = [
        json.dumps({"id": one, "document": one.partition("-q")[0], "metrics": {"accuracy": value}})
        for one, value in values.items()
    ]
    (own / "predictions.jsonl").write_text("\n".join(lines) + "\n")
    settings = {"dataset": "notes", "generator": "smollm2", **changes.get("choices", {})}
    known = [value for value in values.values() if value is not None]
    return Run(
        selector,
        str(own),
        MappingProxyType({**settings, "selector": selector}),
        MappingProxyType({"budget": {"tokens": budget}, "selector": changes.get("options", {})}),
        MappingProxyType({"quality/accuracy": float(np.mean(known)), **changes.get("metrics", {})}),
        oracle=selector == "oracle",
    )


def sweep(folder: Path, notes: int = 60, seed: int = 0, budget: int = 64, right: float = 0.9) -> list[Run]:
    """Lead is right on front-loaded notes and mmr on others; `learned` follows that in a share `right` of the notes.
    True means: fixed .5 each, oracle 1, learned `right`."""
    rng = np.random.default_rng(seed)
    front = np.arange(notes) % 2 == 0
    follows = rng.random(notes) < right
    ids = [(f"n{note:04d}-q{question}", note) for note in range(notes) for question in range(3)]
    lead = {one: float(front[note]) for one, note in ids}
    mmr = {one: float(not front[note]) for one, note in ids}
    learned = {one: float(follows[note]) for one, note in ids}
    return [
        finished(folder, "lead", lead, budget),
        finished(folder, "mmr", mmr, budget),
        finished(folder, "learned", learned, budget),
        finished(folder, "oracle", dict.fromkeys(lead, 1.0), budget),
    ]


def by_policy(rows, setting=ALL):
    return {row.policy: row for row in rows if row.setting == setting}


def test_a_known_world(tmp_path):
    rows = by_policy(regret_rows(sweep(tmp_path)))
    assert rows[PER_EXAMPLE].mean == 1 and rows[PER_EXAMPLE].regret == 0 and rows[PER_EXAMPLE].reads_gold
    assert rows["oracle"].reads_gold and not rows["learned"].reads_gold
    assert rows[BEST].mean == rows[RANDOM].mean == rows["lead"].regret == 0.5
    assert rows[HELD_OUT].mean == 0  # with one note out, the others favour the selector that is wrong on it
    learned = rows["learned"]
    assert learned.regret == pytest.approx(1 - learned.mean)
    assert learned.over_best == pytest.approx(learned.mean - 0.5)
    assert learned.over_best_lo > 0.1
    assert learned.kind == "router" and rows["lead"].kind == "fixed" and rows[BEST].kind == "reference"
    assert (learned.examples, learned.documents, learned.quality) == (180, 60, "accuracy")


def test_the_regret_interval_covers_the_truth(tmp_path):
    covered = 0
    for seed in range(40):
        folder = tmp_path / str(seed)
        folder.mkdir()
        row = by_policy(regret_rows(sweep(folder, seed=seed, right=0.7)))["learned"]
        covered += row.regret_lo <= 0.3 <= row.regret_hi
    assert covered >= 34  # of 40 at 95 %; P(fewer) is under 1 in 500


def test_documents_are_resampled_whole():
    values = np.repeat(np.arange(20) % 2, 5).astype(float)
    documents = [f"n{at // 5}" for at in range(100)]
    clustered, naive = interval(values, clusters=documents), interval(values)
    assert clustered.value == naive.value
    assert clustered.hi - clustered.lo > 1.8 * (naive.hi - naive.lo)  # sqrt(5) as wide
    alone = interval(values, clusters=[str(at) for at in range(100)])
    assert alone.hi - alone.lo == pytest.approx(naive.hi - naive.lo, abs=0.03)


def test_held_out_best_looks_at_the_other_documents_only():
    fixed = np.array([[1, 1, 0, 0, 0, 0], [0, 0, 0.4, 0.4, 0.4, 0.4]], float)
    #  others without a: row 1 (.4 > 0); without b: row 0 (.5 > .2); without c: row 0
    assert held_out_best(fixed, list("aabbcc")).tolist() == [0, 0, 0, 0, 0, 0]
    same = np.array([[0.5, 0.5], [0.5, 0.5]])
    assert held_out_best(same, ["a", "b"]).tolist() == [0.5, 0.5]


def test_settings_are_also_taken_together(tmp_path):
    rows = regret_rows([*sweep(tmp_path, budget=64), *sweep(tmp_path, seed=1, budget=256)])
    assert list(dict.fromkeys(row.setting for row in rows)) == [ALL, "tokens 64", "tokens 256"]
    together = by_policy(rows)
    assert together["learned"].examples == 360 and together["learned"].documents == 60
    assert EACH in together and EACH not in by_policy(rows, "tokens 64")
    parts = [by_policy(rows, f"tokens {budget}")["learned"].mean for budget in (64, 256)]
    assert together["learned"].mean == pytest.approx(np.mean(parts))


def test_only_examples_that_every_policy_has_are_compared(tmp_path):
    runs = [
        finished(tmp_path, "lead", {"a": 1.0, "b": 0.0, "c": 1.0}),
        finished(tmp_path, "mmr", {"a": 0.0, "b": None, "c": 1.0}),
        finished(tmp_path, "routed", {"c": 0.0, "a": 1.0, "b": 1.0}),
    ]
    rows = by_policy(regret_rows(runs))
    assert rows["routed"].examples == 2
    assert rows["routed"].regret == 0.5


def test_a_run_without_a_model_is_judged_by_the_facts_it_holds(tmp_path):
    extract = {"choices": {"generator": "extract"}, "metrics": {"quality/fact_recall": 0.5}}
    assert module._quality([finished(tmp_path, "lead", {"a": 0.0}, **extract)]) == "quality/fact_recall"
    assert module._quality([finished(tmp_path, "lead", {"a": 0.0})]) == "quality/accuracy"


def test_variants_of_one_selector_are_told_apart(tmp_path):
    runs = [
        finished(tmp_path, "mmr", {"a": 1.0, "b": 0.0}, options={"weight": 0.3}),
        finished(tmp_path, "mmr", {"a": 0.0, "b": 0.0}, options={"weight": 0.7}),
        finished(tmp_path, "routed", {"a": 1.0, "b": 0.0}, options={"low": 128}),
    ]
    assert {"mmr weight=0.3", "mmr weight=0.7", "routed"} <= set(by_policy(regret_rows(runs)))


def test_nothing_is_written_without_a_router_or_a_choice(tmp_path):
    one, two = (finished(tmp_path, name, {"a": 1.0, "b": 0.0}) for name in ("lead", "mmr"))
    routed = finished(tmp_path, "routed", {"a": 1.0, "b": 0.0})
    other = finished(tmp_path, "routed", {"a": 1.0, "b": 0.0}, budget=512)
    out = tmp_path / "out"
    out.mkdir()
    for runs in ([], [one, two], [one, routed], [one, two, other]):
        assert regret(runs, out) == []
    assert list(out.iterdir()) == []


def test_the_files(tmp_path):
    runs, out = sweep(tmp_path), tmp_path / "out"
    out.mkdir()
    written = regret(runs, out)
    assert [path.name for path in written] == [
        "regret.csv",
        "regret.md",
        "router_regret.png",
        "router_regret.svg",
    ]
    assert all(path.stat().st_size > 500 for path in written)
    with (out / "regret.csv").open() as file:
        rows = {row["policy"]: row for row in csv.DictReader(file)}
    assert all(set(row["run_ids"].split()) == {run.run_id for run in runs} for row in rows.values())
    assert float(rows["learned"]["regret"]) == pytest.approx(by_policy(regret_rows(runs))["learned"].regret)
    text = (out / "regret.md").read_text()
    assert "oracle \\*" in text and "chosen on these very examples" in text
