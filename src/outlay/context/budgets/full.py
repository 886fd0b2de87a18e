"""The whole document: no budget."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Full:
    tokenizer: str | None = None  # null: the generator's own

    name: ClassVar[str] = "full"
    truncate: ClassVar[bool] = False

    def steps(self, document_tokens: int) -> tuple[int, ...]:
        return (max(document_tokens, 1),)

    @property
    def label(self) -> str:
        return "full"
