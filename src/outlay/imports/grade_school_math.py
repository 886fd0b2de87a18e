"""Four models' solutions of GSM8K's test set, with their flags (openai/grade-school-math)."""

from collections.abc import Sequence

from outlay.errors import DataError
from outlay.imports.log import Log, Options, Question, Reply, cell, flag, rows, sources
from outlay.score.match import parse


def read(paths: Sequence[str], options: Options) -> Log:
    """example_model_solutions.jsonl: question, ground_truth ending in "A: N", and per model {is_correct, solution}."""
    log = Log("number")
    for path in sources(paths, "example_model_solutions.jsonl"):
        for row in rows(path):
            example_id = f"test-{row.number}"  # as in the data set: the rows are those of test.jsonl
            gold = parse(cell(row, "ground_truth").splitlines()[-1], "number")
            if gold is None:
                raise DataError(f"{row.place}: field 'ground_truth' does not end in a number")
            log.ask(Question(example_id, cell(row, "question").strip(), (gold,)), row.place)
            tiers = [name for name, value in row.value.items() if isinstance(value, dict)]
            if not tiers:
                raise DataError(f"{row.place}: has no model's solution")
            for tier in tiers:
                solved = row._replace(value=row.value[tier], place=f"{row.place}: '{tier}'")
                said = flag(solved, "is_correct", solved.value.get("is_correct"))
                log.replies.append(Reply(example_id, tier, cell(solved, "solution"), said))
    return log
