"""RouterBench (Hu et al. 2024), wide: sample_id, prompt, eval_name, and per model a score, a reply and a cost.

It is published as pickles, which are not read. Convert one where you trust it, e.g. to Parquet.
"""

from collections.abc import Sequence

from outlay.errors import DataError
from outlay.imports.log import Log, Options, Question, Reply, cell, flag, rows, sources

_REPLY, _COST = "|model_response", "|total_cost"


def read(paths: Sequence[str], options: Options) -> Log:
    """`<model>`, `<model>|model_response`, `<model>|total_cost`. The log has flags and no gold answers."""
    log = Log(options.kind or "span", notes=["The log has no gold answers: use metrics.scorer=recorded."])
    for path in sources(paths, "routerbench*.parquet"):
        for row in rows(path):
            example_id = cell(row, "sample_id", (str, int))
            asked = cell(row, "prompt")
            log.ask(Question(str(example_id), asked, (), options.labels), row.place)
            tiers = [name.removesuffix(_REPLY) for name in row.value if name.endswith(_REPLY)]
            if not tiers:
                raise DataError(f"{row.place}: has no column '<model>{_REPLY}'")
            for tier in tiers:
                text, cost = row.value[tier + _REPLY], row.value.get(tier + _COST)
                if text is None:
                    continue  # this model was not asked
                said = flag(row, tier, row.value.get(tier))
                usd = float(cost) if cost not in (None, "") else float("nan")
                log.replies.append(Reply(str(example_id), tier, str(text), said, usd=usd))
    return log
