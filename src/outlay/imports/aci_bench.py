"""Notes that four models wrote of ACI-Bench's first test set (wyim/aci-bench, baselines/predictions)."""

import re
from collections.abc import Sequence

from outlay.data.files import stem
from outlay.imports.log import Log, Options, Question, Reply, cell, rows, sources


def read(paths: Sequence[str], options: Options) -> Log:
    """test1<model>_.csv: Dialogues, Reference Summaries, note (the model's), encounter_id. The log has no flags."""
    log = Log("text")
    for path in sources(paths, "test*.csv"):
        named = re.fullmatch(r"test\d+(.+?)_?", stem(path))
        tier = options.tier or (named[1] if named else stem(path))
        for row in rows(path):
            example_id = cell(row, "encounter_id")
            reference = cell(row, "Reference Summaries").strip()
            dialogue = cell(row, "Dialogues")
            asked = "Write the clinical note of this visit."
            log.ask(Question(example_id, asked, (reference,), document=dialogue), row.place)
            log.replies.append(Reply(example_id, tier, cell(row, "note")))
    return log
