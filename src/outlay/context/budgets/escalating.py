"""A budget that starts small and grows while a rule says that more text is worth its price. All rules are ours."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from outlay.errors import ConfigError
from outlay.schema import option

if TYPE_CHECKING:
    from outlay.context import Problem, Selection


@dataclass(frozen=True)
class Escalating:
    """Steps start, start * factor, ... up to most (or the whole document), and a rule that picks one.

    marginal: grow while the next step adds at least `threshold` times the relevance per token of the first.
    certificate: grow until the selection is proven `threshold`-optimal for the whole document's objective (rcd).
    concepts: grow until every pattern of `concepts` that the document holds is in the context.
    grounded: answer first; grow while fewer than `threshold` of the reply's content words stand in the context.
    The first three choose before anything is paid for; each step of the last is an attempt on the ledger.
    """

    start: int = option(64, least=1)
    factor: float = option(2.0, above=1)
    most: int = option(1024, least=1)
    rule: str = option("marginal", choices=("marginal", "certificate", "concepts", "grounded"))
    threshold: float = option(0.5, least=0, most=1)
    concepts: list[str] = field(default_factory=lambda: ["allergies", "anticoagulants", "doses"])
    tokenizer: str | None = None  # null: the generator's own
    truncate: bool = False

    name: ClassVar[str] = "escalating"

    def __post_init__(self) -> None:
        from outlay.context.pins import patterns

        if self.start > self.most:
            raise ConfigError(f"budget.start={self.start} is above budget.most={self.most}")
        patterns(self.concepts)

    def __hash__(self) -> int:
        return hash(repr(self))

    @property
    def label(self) -> str:
        return f"{self.start} to {self.most} ({self.rule})"

    @property
    def verifier(self) -> str | None:
        """The check of an answer that makes the budget grow; None where the step is chosen before."""
        return "grounded" if self.rule == "grounded" else None

    def steps(self, document_tokens: int) -> tuple[int, ...]:
        last = max(1, min(self.most, document_tokens))
        sizes, size = [], float(self.start)
        while size < last:
            sizes.append(int(size))
            size *= self.factor
        return (*dict.fromkeys(sizes), last)

    def chosen(
        self, problem: "Problem", selections: Sequence["Selection"], texts: Sequence[str]
    ) -> Sequence[int]:
        """The positions of the steps to be used: one, or all where the answer decides.

        Raises:
            ConfigError: rule=certificate with a selector that gives none.
        """
        if self.rule == "grounded":
            return range(len(selections))
        enough = {"marginal": self._marginal, "certificate": self._certificate, "concepts": self._concepts}[
            self.rule
        ]
        for place in range(len(selections) - 1):
            if enough(problem, selections, texts, place):
                return (place,)
        return (len(selections) - 1,)

    def _marginal(
        self, problem: "Problem", selections: Sequence["Selection"], texts: Sequence[str], place: int
    ) -> bool:
        worth = [float(problem.relevance[list(one.indices)].sum()) for one in selections[: place + 2]]
        first, here, after = selections[0], selections[place], selections[place + 1]
        if after.tokens <= here.tokens:
            return False
        return (worth[-1] - worth[-2]) / (after.tokens - here.tokens) < self.threshold * worth[0] / max(
            first.tokens, 1
        )

    def _certificate(
        self, problem: "Problem", selections: Sequence["Selection"], texts: Sequence[str], place: int
    ) -> bool:
        whole = selections[-1].bound
        if whole != whole:
            raise ConfigError("budget.rule=certificate needs a selector with a bound. Use selector=rcd")
        return selections[place].value >= self.threshold * whole

    def _concepts(
        self, problem: "Problem", selections: Sequence["Selection"], texts: Sequence[str], place: int
    ) -> bool:
        from outlay.context.pins import pinned

        kept = set(selections[place].indices)
        holders = [pinned(texts, [concept]) for concept in self.concepts]
        return all(not units or kept & set(units) for units in holders)
