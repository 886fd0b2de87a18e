"""Which text to pay for: documents become units, units become a context under a token budget."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    import numpy as np

Span = tuple[int, int]
Embed = Callable[[Sequence[str]], "np.ndarray"]
"""Texts to float32 unit rows (n, d)."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A selectable piece of a document: one span, or several in document order (a cluster's members)."""

    spans: tuple[Span, ...]
    header: int | None = None  # index of the unit that holds this unit's section header, if another unit does

    @property
    def start(self) -> int:
        return self.spans[0][0]

    def text(self, document: str) -> str:
        return "".join(document[start:end] for start, end in self.spans)


class Unitizer(Protocol):
    """Cuts a document. The spans of all units together cover every character of the document."""

    name: ClassVar[str]

    def split(self, document: str, embed: Embed) -> list[Unit]: ...


class Embedder(Protocol):
    """Vectors of units and queries in one space."""

    name: ClassVar[str]

    def embed(self, units: Sequence[str], queries: Sequence[str]) -> "tuple[np.ndarray, np.ndarray]":
        """Float32 rows (n, d) and (q, d), each of length 1, or 0 for a text without features."""


@dataclass(frozen=True)
class Problem:
    """One document's selection problem, for all budgets of a sweep at once.

    vectors: (n, d) float32 unit rows; relevance: (n,) in [0, 1], max over queries of max(0, cos);
    costs: (n,) int64 tokens >= 1; budgets: tokens; units: spans and headers, where a selector needs places.
    """

    vectors: "np.ndarray"
    relevance: "np.ndarray"
    costs: "np.ndarray"
    budgets: tuple[int, ...]
    units: tuple[Unit, ...] = ()
    seed: int = 0
    utility: Callable[[Sequence[int]], float] | None = None
    """Gold's worth of a set of units. Given to a selector marked `oracle`, and on the train split to one that fits."""


@dataclass(frozen=True)
class Selection:
    """Kept units under one budget.

    indices: kept units in document order; order: the same, in the order of picking;
    tokens: their cost; value: the selector's objective (nan where it has none);
    bound: a proven upper bound on the best objective under this budget (nan where none is known).
    """

    indices: tuple[int, ...]
    tokens: int
    value: float = float("nan")
    bound: float = float("nan")
    order: tuple[int, ...] = ()
    choice: str = ""  # the selector that a routing selector chose
    info: dict[str, float] = field(default_factory=dict)  # e.g. phi, rho

    @property
    def optimality(self) -> float:
        """value / bound: the proven share of the optimum (nan where no bound is known)."""
        return self.value / self.bound if self.bound > 0 else float("nan")


class Selector(Protocol):
    """Chooses units. A unit dearer than what is left is skipped, not cut; ties go to the earlier unit."""

    name: ClassVar[str]
    oracle: ClassVar[bool]  # reads gold, so every table marks it

    def select(self, problem: Problem) -> list[Selection]:
        """One selection per budget of the problem, in its order, each with tokens <= budget."""


def select(
    vectors: Any,
    query: Any,
    costs: Any,
    budgets: Sequence[int],
    selector: str = "rcd",
    **options: Any,
) -> list[Selection]:
    """Select units by their vectors, without Hydra or MLflow.

    Args:
        vectors: (n, d) floats; rows are scaled to length 1.
        query: (d,) floats, or (q, d) for several queries (relevance is the maximum).
        costs: (n,) integer tokens, at least 1 each.
        budgets: tokens, at least 1 each.
        selector: a name under `conf/selector/`; `options` are its options there.

    Returns:
        One `Selection` per budget, in the given order.

    Raises:
        ConfigError: an unknown selector or option, arrays of the wrong shape, values that are not finite.
    """
    from outlay.context.objective import problem_from_arrays
    from outlay.schema import component

    chosen = component("selector", selector, **options)
    return chosen.select(problem_from_arrays(vectors, query, costs, budgets))
