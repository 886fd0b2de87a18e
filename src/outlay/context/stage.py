"""From an example to its context: units, their costs and vectors, the selection, the assembled text.

What a document needs once (units and costs) is kept for the other points of a sweep in the same process.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from outlay.context import Selection, Unit
from outlay.data import Dataset, Example
from outlay.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    from outlay.context.assemble import Context

CountMany = Callable[[Sequence[str]], list[int]]


@dataclass(frozen=True)
class Cut:
    """A document's units with their token costs, and its own length in tokens."""

    units: tuple[Unit, ...]
    costs: "np.ndarray"
    tokens: int


@dataclass(frozen=True)
class Sent:
    """What one example sends: the context, how it was chosen, and how long the document is."""

    context: "Context"
    selection: Selection
    document_tokens: int


def select_context(
    example: Example,
    dataset: Dataset,
    unitizer: Any,
    embedder: Any,
    selector: Any,
    budget: Any,
    count: CountMany,
    tokenizer: str,
    seed: int,
) -> Sent:
    """One example's context under the budget.

    Raises:
        ConfigError: the example has no query of the kind that `dataset.query` names.
    """
    from outlay.context.assemble import assemble
    from outlay.context.objective import problem_from_arrays

    cut = _cut(_Text(example.document), unitizer, embedder, tokenizer, _Counter(count))
    limit = budget.limit(cut.tokens)
    texts = [unit.text(example.document) for unit in cut.units]
    if selector.name in ("full", "none", "lead", "shuffled"):  # these look at no vector, so none is made
        import numpy as np

        vectors = np.zeros((len(texts), 1), np.float32)
        query_vectors = np.zeros((1, 1), np.float32)
    else:
        vectors, query_vectors = embedder.embed(texts, queries(example, dataset))
    # Under budget.truncate the unit that comes next is cut to fill what is left: a larger budget tells which.
    limits = (limit, 4 * limit) if budget.truncate else (limit,)
    problem = problem_from_arrays(vectors, query_vectors, cut.costs, limits, units=cut.units, seed=seed)
    selection, *larger = selector.select(problem)
    spare = [unit for one in larger for unit in one.order if unit not in selection.indices]
    context = assemble(
        example.document,
        cut.units,
        selection.indices,
        limit,
        lambda text: count([text])[0],
        order=selection.order,
        truncate=budget.truncate,
        spare=spare,
    )
    return Sent(context, selection, cut.tokens)


def queries(example: Example, dataset: Dataset) -> tuple[str, ...]:
    """The texts that relevance is measured against; none means centrality in the document."""
    kinds = {
        "question": (example.question,) if example.question else (),
        "template": dataset.aspects,
        "centroid": (),
        "reference": example.references,  # the published code's leak; every table marks it
    }
    found = kinds[dataset.query]
    if not found and dataset.query != "centroid":
        raise ConfigError(
            f"dataset.query={dataset.query}: example {example.id} has none. Use dataset.query=template or centroid"
        )
    return found


class _Text(str):
    """A document hashed by its content once, so that a cache key does not hash it again for each look-up."""

    def __hash__(self) -> int:
        return int.from_bytes(hashlib.blake2b(self.encode(), digest_size=8).digest(), "big", signed=True)


@dataclass(frozen=True)
class _Counter:
    """A count function that cache keys ignore: the tokenizer's name stands for it."""

    count: CountMany

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Counter)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=2048)
def _cut(document: str, unitizer: Any, embedder: Any, tokenizer: str, counter: _Counter) -> Cut:
    from outlay.context.assemble import unit_costs

    units = unitizer.split(str(document), lambda texts: embedder.embed(texts, ())[0])
    return Cut(
        units=tuple(units),
        costs=unit_costs(document, units, counter.count),
        tokens=counter.count([document])[0],
    )
