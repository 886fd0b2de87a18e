"""A limit on what a command may pay: reserved before a call, settled after it, so it is never passed.

The account is a row of the generation store, so that all jobs of a sweep, and a resumed one, draw on the same limit.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outlay.errors import SpendLimitReached
from outlay.generate import Completion, Price, Request, Tier
from outlay.schema import option

if TYPE_CHECKING:
    from outlay.generate.store import Store


@dataclass(frozen=True)
class SpendLimit:
    """Options of every generator: what one command (a run, or a whole sweep) may pay at most."""

    spend_limit_usd: float | None = option(None, least=0)
    spend_limit_tokens: int | None = option(None, least=1)

    @property
    def unlimited(self) -> bool:
        return self.spend_limit_usd is None and self.spend_limit_tokens is None


@dataclass(frozen=True)
class Ticket:
    """A reservation: the most that a call can cost."""

    tier: str
    tokens: int
    usd: float


class Spend:
    """The account of a command; without a limit every reservation is granted and nothing is written."""

    def __init__(
        self, limit: SpendLimit, tiers: Sequence[Tier], store: "Store | None" = None, account: str = ""
    ) -> None:
        self._limit = limit
        self._prices: Mapping[str, Price] = {tier.name: tier.price for tier in tiers}
        self._store = None if limit.unlimited else store
        self._account = account

    def reserve(self, tier: str, prompt_tokens: int, completion_tokens: int) -> Ticket:
        """Set aside the most that a call can cost. Safe across threads and processes that share the store.

        Raises:
            SpendLimitReached: what is left does not cover it; nothing has been set aside.
        """
        if self._store is None:
            return Ticket(tier, 0, 0.0)
        usd = self._prices[tier].usd(prompt_tokens, 0, completion_tokens)
        ticket = Ticket(tier, prompt_tokens + completion_tokens, usd)
        limit = self._limit
        spent = self._store.spend(
            self._account, ticket.tokens, usd, limit.spend_limit_tokens, limit.spend_limit_usd
        )
        if spent is not None:
            raise SpendLimitReached(_reached(limit, *spent, ticket))
        return ticket

    def settle(self, ticket: Ticket, prompt_tokens: int, cached_tokens: int, completion_tokens: int) -> None:
        """Put back what the call did not use. A call whose bill is unknown is never settled: it stays set aside."""
        if self._store is None:
            return
        usd = self._prices[ticket.tier].usd(prompt_tokens, cached_tokens, completion_tokens)
        tokens = prompt_tokens + completion_tokens
        self._store.spend(self._account, tokens - ticket.tokens, usd - ticket.usd, None, None)

    @contextmanager
    def batch(
        self, requests: Sequence[Request], prompt_tokens: Mapping[str, int]
    ) -> Iterator[list[Completion]]:
        """Reserve a local batch; append its completions to the list that is yielded, and it is settled.

        prompt_tokens: by prompt text; samples of one prompt are billed for it once.
        """
        texts = {request.text for request in requests}
        tickets = (
            [
                self.reserve(
                    requests[0].tier,
                    sum(prompt_tokens[text] for text in texts),
                    sum(request.sampling.max_new_tokens for request in requests),
                )
            ]
            if requests
            else []
        )
        done: list[Completion] = []
        yield done
        for ticket in tickets:
            self.settle(
                ticket,
                sum(prompt_tokens[text] for text in texts),
                0,
                sum(one.completion_tokens for one in done),
            )


UNLIMITED = Spend(SpendLimit(), ())


def _reached(limit: SpendLimit, tokens: int, usd: float, ticket: Ticket) -> str:
    bounds = []
    if limit.spend_limit_usd is not None:
        bounds.append(
            f"{usd:.4f} of {limit.spend_limit_usd:.4f} USD are spent, the next call or batch may cost {ticket.usd:.4f}"
        )
    if limit.spend_limit_tokens is not None:
        bounds.append(
            f"{tokens} of {limit.spend_limit_tokens} tokens are spent, the next call or batch may take {ticket.tokens}"
        )
    return (
        f"spend limit reached: {'; '.join(bounds)}. What was answered is in the store: raise generator.spend_limit_usd "
        "or generator.spend_limit_tokens and run again (a sweep: outlay -m resume=last ...), and only the rest is paid for"
    )
