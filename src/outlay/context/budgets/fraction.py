"""A share of each document's own tokens."""

from dataclasses import dataclass
from typing import ClassVar

from outlay.schema import option


@dataclass(frozen=True)
class Fraction:
    fraction: float = option(0.25, above=0, most=1)
    tokenizer: str | None = None  # null: the generator's own
    truncate: bool = False  # true: the first unit that does not fit is cut, not skipped

    name: ClassVar[str] = "fraction"

    def steps(self, document_tokens: int) -> tuple[int, ...]:
        return (max(1, int(self.fraction * document_tokens)),)

    @property
    def label(self) -> str:
        return f"{100 * self.fraction:g} %"
