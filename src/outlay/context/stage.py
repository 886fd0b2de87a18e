"""From an example to its context: units, their costs and vectors, the selection, the assembled text.

What a document needs once (units, costs, vectors, relevance) is kept for the other points of a sweep in the same process.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from outlay.context import Problem, Selection, Unit
from outlay.context.pins import Retention
from outlay.data import Dataset, Example
from outlay.errors import ConfigError
from outlay.score.quality import context_worth

if TYPE_CHECKING:
    import numpy as np

    from outlay.context.assemble import Context

KEPT_BYTES = 2**28
"""Of units and their vectors kept for the other points of a sweep; the oldest go first, so documents without end stream."""
UNIT_BYTES = 1000
"""About what a unit takes beside its vector: its object, spans, cost, relevance and text."""

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


@dataclass(frozen=True)
class Stage:
    """The context side of a run: what every example of a data set goes through before it is sent."""

    dataset: Dataset
    unitizer: Any
    embedder: Any
    selector: Any
    retention: Retention
    budget: Any
    count: CountMany  # tokens of each text, under the budget's tokenizer
    tokenizer: str  # its name
    seed: int

    def contexts(self, example: Example) -> list[Sent]:
        """One example's contexts, one for each step of the budget that may be sent; most budgets have one.

        Raises:
            ConfigError: the example has no query of the kind that `dataset.query` names.
            OutlayError: the pinned units alone pass the budget.
        """
        from outlay.context.assemble import assemble

        cut = self._cut(example)
        steps = self.budget.steps(cut.tokens)
        # Under budget.truncate the unit that comes next is cut to fill what is left: a budget with room for one more
        # unit, however large, tells which.
        limits = (*steps, steps[-1] + int(cut.costs.max(initial=0))) if self.budget.truncate else steps
        problem = self.problem(example, limits, gold=self.selector.oracle)
        texts = [unit.text(example.document) for unit in cut.units]
        selections = self.retention.select(self.selector, problem, texts)
        chosen = getattr(self.budget, "chosen", lambda *_: range(len(steps)))
        return [
            Sent(
                assemble(
                    example.document,
                    cut.units,
                    selections[place].indices,
                    steps[place],
                    lambda text: self.count([text])[0],
                    order=selections[place].order,
                    truncate=self.budget.truncate,
                    spare=[unit for unit in selections[-1].order if unit not in selections[place].indices],
                ),
                selections[place],
                cut.tokens,
            )
            for place in chosen(problem, selections[: len(steps)], texts)
        ]

    def problem(self, example: Example, budgets: Sequence[int], gold: bool = False) -> Problem:
        """One example's selection problem. gold: with the worth of a set of units under the references and facts."""
        cut = self._cut(example)
        blind = getattr(self.selector, "blind", False)
        asked = () if blind else queries(example, self.dataset)
        key = (example.document, self.unitizer, self.embedder, self.tokenizer, asked, blind)
        found = _kept(key, lambda: self._problem(example.document, cut, asked, blind))
        found = replace(found, budgets=tuple(budgets), seed=self.seed)
        if not gold:
            return found

        def worth(indices: Sequence[int]) -> float:
            spans = [span for index in sorted(indices) for span in cut.units[index].spans]
            return context_worth(example, spans)

        return replace(found, utility=worth)

    def _problem(self, document: str, cut: Cut, asked: Sequence[str], blind: bool) -> Problem:
        import numpy as np

        from outlay.context.objective import problem_from_arrays

        texts = [unit.text(document) for unit in cut.units]
        if blind:
            vectors, query_vectors = np.zeros((len(texts), 1), np.float32), np.zeros((1, 1), np.float32)
        else:
            vectors, query_vectors = self.embedder.embed(texts, asked)
        return problem_from_arrays(vectors, query_vectors, cut.costs, (), units=cut.units)

    def smallest_unit(self, example: Example) -> int:
        """Tokens of the smallest unit that one example's document is cut into."""
        return int(self._cut(example).costs.min(initial=self._cut(example).tokens))

    def fitted(self) -> "Stage":
        """The same with its selector fitted on the train split, where it is one that learns."""
        if not hasattr(self.selector, "fit"):
            return self
        examples = replace(self.dataset, split="train", limit=self.selector.train_limit).examples([])
        steps = self.budget.steps
        problems = (self.problem(one, steps(self._cut(one).tokens), gold=True) for one in examples)
        return replace(self, selector=self.selector.fit(problems))

    def _cut(self, example: Example) -> Cut:
        return _cut(example.document, self.unitizer, self.embedder, self.tokenizer, _Counter(self.count))


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


_problems: dict[Hashable, tuple[int, Problem]] = {}  # with its bytes; the oldest first


def _kept(key: Hashable, make: Callable[[], Problem]) -> Problem:
    """The problem of the key, made where it is not kept; points that differ in selector or budget only share it."""
    size, found = _problems.pop(key, (0, None))
    if found is None:
        found = make()
        size = found.vectors.nbytes + UNIT_BYTES * len(found.units)
        room = KEPT_BYTES - size - sum(other for other, _ in _problems.values())
        while room < 0 and _problems:
            room += _problems.pop(next(iter(_problems)))[0]
    _problems[key] = size, found
    return found


@dataclass(frozen=True)
class _Counter:
    """A count function that cache keys ignore: the tokenizer's name stands for it."""

    count: CountMany

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Counter)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=512)
def _cut(document: str, unitizer: Any, embedder: Any, tokenizer: str, counter: _Counter) -> Cut:
    from outlay.context.assemble import unit_costs

    units = unitizer.split(document, lambda texts: embedder.embed(texts, ())[0])
    return Cut(
        units=tuple(units),
        costs=unit_costs(document, units, counter.count),
        tokens=counter.count([document])[0],
    )
