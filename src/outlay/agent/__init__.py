"""Which tries to pay for: policies see a query's ledger lines and return the next action; one executor runs them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from outlay.agent.ledger import Ledger, Trace


@dataclass(frozen=True, slots=True)
class Probe:
    """k samples that measure a query before it is answered; one request, its prompt billed once."""

    tier: str
    k: int
    temperature: float


@dataclass(frozen=True, slots=True)
class Attempt:
    """n samples at an answer in one request.

    context: fresh; carry (a chain is shown as one's own), other (as someone else's), reflect (with what `Verify("reflect")`
    wrote about it). shown: the chain; None takes the last attempt's, so that the first attempt is always fresh.
    step: which of the query's contexts is sent, where a budget escalates; 0 is the smallest.
    """

    tier: str
    temperature: float
    context: str = "fresh"
    n: int = 1
    step: int = 0
    shown: str | None = None


@dataclass(frozen=True, slots=True)
class Verify:
    """A check of one attempt (by its number, from 1); its verdict becomes a ledger line. tier: of a check that costs
    a call, where it is not the verifier's own choice."""

    kind: str
    attempt: int
    tier: str | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """The end of a query. solved: its own stop rule fired; else the attempts, or the budget, ran out.

    A rule that never judges (no retry, stop=none) ends as solved once it has an answer.
    """

    answer: str | None
    solved: bool


Action = Probe | Attempt | Verify | Stop


class Policy(Protocol):
    """Decides; knows nothing of caches or budgets.

    A policy that computes something for each query, such as an embedding, may have `prepare(traces)`: it is called before
    each wave with all live queries, so that the work is done in one batch.

    A policy that learns has one method more, `explore() -> Policy`: what is run on the train and tune splits, so that
    `fit` gets the ledger it learns from. Without it, `fit` is never called.
    """

    def fit(self, ledger: "Ledger") -> Self:
        """Learn from scored lines of the train split and choose thresholds on the tune split (`Ledger.queries` says
        which query is of which); a policy that learns nothing returns itself."""

    def next(self, trace: "Trace") -> Action:
        """The next action for one query, from its lines so far."""
