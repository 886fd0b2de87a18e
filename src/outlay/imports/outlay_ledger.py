"""Outlay's own ledgers: a run's ledger.parquet, with the gold of the predictions.jsonl beside it."""

from collections.abc import Sequence
from dataclasses import fields

from outlay.agent.ledger import Line
from outlay.errors import DataError
from outlay.imports.log import Log, Options, Question, cell, rows, sources


def read(paths: Sequence[str], options: Options) -> Log:
    """Every line is kept, probes and verifiers too. The questions are not in it: a run's own data set has them."""
    log = Log(options.kind or "span", lines=[])
    names = {one.name for one in fields(Line)}
    assert log.lines is not None
    for path in sources(paths, "ledger.parquet"):
        for row in rows(path):
            missing = sorted(names - row.value.keys())
            if missing:
                raise DataError(f"{row.place}: no column '{missing[0]}'; this is no ledger of Outlay")
            log.lines.append(Line(**{name: row.value[name] for name in names}))
        beside = path.with_name("predictions.jsonl")
        for row in rows(beside) if beside.is_file() else ():
            references = tuple(str(one) for one in cell(row, "references", list))
            asked = f"example {cell(row, 'id')}"
            log.ask(Question(cell(row, "id"), asked, references, options.labels), row.place)
    for line in log.lines:
        if line.example_id not in log.questions:
            log.questions[line.example_id] = Question(
                line.example_id, f"example {line.example_id}", (), options.labels
            )
    log.notes.append(
        "A run's ledger can be replayed as it is: the run's own overrides, with generator=replay and its path."
    )
    return log
