"""The same number of tokens for every document."""

from dataclasses import dataclass
from typing import ClassVar

from outlay.schema import option


@dataclass(frozen=True)
class Fixed:
    tokens: int = option(256, least=1)
    tokenizer: str | None = None  # null: the generator's own
    truncate: bool = False  # true: the first unit that does not fit is cut, not skipped

    name: ClassVar[str] = "fixed"

    def steps(self, document_tokens: int) -> tuple[int, ...]:
        return (self.tokens,)

    @property
    def label(self) -> str:
        return str(self.tokens)
