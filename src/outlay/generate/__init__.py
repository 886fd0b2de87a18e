"""What every generator takes and gives. A request is one sample of one rendered prompt; it is billed by its completion."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from outlay.errors import ConfigError
from outlay.schema import option

if TYPE_CHECKING:
    from outlay.generate.spend import Spend

Message = tuple[str, str]
"""(role, text), role one of system, user, assistant."""


@dataclass(frozen=True)
class Price:
    """What a token costs on one tier: USD per million tokens, and compute units per token.

    Units compare tiers where money does not (one's own hardware); the ratio between tiers is ours.
    """

    input: float | None = option(None, least=0)
    cached: float | None = option(None, least=0)  # None: cached input is billed as input
    output: float | None = option(None, least=0)
    units: float | None = option(None, least=0)

    def usd(self, prompt_tokens: int, cached_tokens: int, completion_tokens: int) -> float:
        """Dollars for one line.

        Raises:
            ConfigError: a price is not known; it is never taken as zero.
        """
        if self.input is None or self.output is None:
            raise ConfigError(
                "generator.price: input and output are needed (USD per million tokens); 0 is a price"
            )
        cached = self.input if self.cached is None else self.cached
        fresh = prompt_tokens - cached_tokens
        return (fresh * self.input + cached_tokens * cached + completion_tokens * self.output) / 1e6

    def cost_units(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Compute units for one line.

        Raises:
            ConfigError: `units` is not known.
        """
        if self.units is None:
            raise ConfigError("generator.price.units is needed (compute units per token)")
        return (prompt_tokens + completion_tokens) * self.units


@dataclass(frozen=True)
class Tier:
    """One model, asked in one way, at one price."""

    name: str
    price: Price
    prefill: str | None = None  # the first words of its replies, in place of the prompt's own


@dataclass(frozen=True)
class Earlier:
    """What of earlier attempts a prompt shows; nothing, by default.

    context: fresh | carry (a chain of one's own) | other (a chain said to be someone else's) | reflect (a chain, and
    what was written about it).
    """

    context: str = "fresh"
    chain: str = ""
    reflection: str = ""
    prefill: str | None = None  # of the tier that wrote the chain


FRESH = Earlier()


@dataclass(frozen=True)
class Prompt:
    """What is to be asked, before a model's chat template: messages, then the first words of the reply."""

    messages: tuple[Message, ...]
    prefill: str = ""
    context: str = ""  # the selected text on its own, for generators that answer with it
    example_id: str = ""  # for replay, which looks a reply up rather than make one
    shows: str = "fresh"  # `Earlier.context`
    step: int = 0  # which of the query's contexts it holds, for replay; 0 is the smallest


@dataclass(frozen=True)
class Sampling:
    """How a reply is drawn. At temperature 0 every sample of a prompt is the same."""

    temperature: float
    max_new_tokens: int
    top_p: float = 1.0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """One sample: the `sample`-th draw of a rendered prompt on a stream ("probe" or "attempt")."""

    tier: str
    text: str
    sampling: Sampling
    stream: str
    sample: int
    seed: int  # of the run

    @property
    def row_seed(self) -> int:
        """63 bits that this row alone draws from: neither its batch nor the grid point that asks matters."""
        return int(_digest(self.seed, self.text, self.stream, self.sample)[:16], 16) >> 1

    def key(self, identity: Mapping[str, str]) -> str:
        """The address of this row in the store; a field added to the sampling makes new keys."""
        sampling = vars(self.sampling)
        greedy = self.sampling.temperature == 0
        draw = ("", 0, 0) if greedy else (self.stream, self.sample, self.seed)
        return _digest(dict(identity), self.text, sampling, draw)


@dataclass(frozen=True)
class Failure:
    """A call that was tried before the one that answered: why it failed, and what it was billed for."""

    error: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    latency_s: float = 0.0
    cached_tokens: int = 0


@dataclass(frozen=True)
class Completion:
    """A reply as it was billed. finish_reason: stop, length, refused or error (then `error` says why)."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    finish_reason: str
    cached_tokens: int = 0
    latency_s: float = 0.0  # from the start of the batch to this row's last token
    error: str = ""
    logprob: float | None = None  # mean over the reply's tokens, in nats; None where the engine gives none
    failures: tuple[Failure, ...] = ()  # calls tried for this row before; each is a ledger line


class Generator(Protocol):
    """A model or several (tiers). Constructing one loads nothing; `generate` and `count` load on first use.

    One that needs something of the environment, such as a key, also has `ready()`, which raises ConfigError without it: a
    run asks before anything is loaded.
    """

    @property
    def name(self) -> str: ...

    @property
    def tiers(self) -> Sequence[Tier]: ...

    samples: bool  # False: the same prompt always gets the same answer
    stored: bool  # False: answering costs nothing, so the store is passed by
    stays_home: bool  # True: no text leaves this machine

    def identity(self, tier: str) -> Mapping[str, str]:
        """What makes one model's rows another's: model, revision, weights' hash, dtype, chat template."""

    def window(self, tier: str) -> int:
        """The longest prompt plus reply, in tokens."""

    def count(self, texts: Sequence[str], tier: str) -> list[int]:
        """Tokens of each text under the tier's own tokenizer, without special tokens."""

    def render(self, prompt: Prompt, tier: str) -> str:
        """The prompt as sent, with the chat template and the prefill."""

    def generate(self, requests: Sequence[Request], spend: "Spend") -> Iterator[list[tuple[int, Completion]]]:
        """Finished batches as (index into requests, completion), in any order.

        Each call (or batch) is reserved with `spend` before it is made and settled after it.
        """


@dataclass
class Tally:
    """What the store answered and what had to be generated."""

    hits: int = 0
    misses: int = 0
    generated_tokens: int = 0
    seconds: float = field(default=0.0, compare=False)


def _digest(*parts: object) -> str:
    plain = json.dumps(parts, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=list)
    return hashlib.sha256(plain.encode()).hexdigest()
