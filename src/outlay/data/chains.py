"""Chained arithmetic modulo 100, worked out from left to right: "37+8*5?" is 37+8=45, then 45*5=25.

The task of the models in `outlay.lab`, which have seen the rest of its questions: these are held out by a hash.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from outlay.data import Dataset, Example, PromptText, hash_split
from outlay.data.draw import Draw
from outlay.errors import ConfigError, DataError
from outlay.schema import option

MODULUS = 100
OPERANDS = {"+": (1, 9), "-": (1, 9), "*": (2, 9)}
"""The smallest and the largest second operand of each operation; a chain begins with 1 to 99. Ours."""
HELD_OUT = 0.25
"""Share of all questions that no lab model was trained on."""
TRIES = 2000  # draws for a question that is new and held out, before they are said to have run out


def make_question(draw: Draw, steps: int, operations: str = "+-*") -> str:
    """A question of so many steps, e.g. "37+8*5?"; each operation as likely."""
    words = [str(draw.between(1, MODULUS - 1))]
    for _ in range(steps):
        operation = draw.choice(operations)
        words += [operation, str(draw.between(*OPERANDS[operation]))]
    return "".join(words) + "?"


def split_question(question: str) -> tuple[int, list[tuple[str, int]]]:
    """The first operand, and each operation with its second operand."""
    first, *rest = question.rstrip("?").replace("+", " +").replace("-", " -").replace("*", " *").split()
    return int(first), [(word[0], int(word[1:])) for word in rest]


def step(value: int, operation: str, operand: int) -> int:
    """One step, modulo 100: 5-12 is 93."""
    exact = {"+": value + operand, "-": value - operand, "*": value * operand}[operation]
    return exact % MODULUS


def solve(question: str) -> tuple[str, int]:
    """The right chain, e.g. "37+8=45;45*5=25", and its answer."""
    value, rest = split_question(question)
    chain = []
    for operation, operand in rest:
        result = step(value, operation, operand)
        chain.append(f"{value}{operation}{operand}={result}")
        value = result
    return ";".join(chain), value


def held_out(question: str) -> bool:
    """Whether a question is one that the lab models never trained on; whole questions, not their steps."""
    digest = hashlib.sha256(f"outlay-chains:{question}".encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64 < HELD_OUT


@dataclass(frozen=True, kw_only=True)
class Chains(Dataset):
    """Held-out questions, as many of each number of steps. `meta["difficulty"]` is that number.

    The split is a hash of the question, so that a question of one split is in no other, whatever the seed.
    """

    count: int = option(1000, least=1)
    min_steps: int = option(1, least=1, most=5)
    max_steps: int = option(5, least=1, most=5)
    operations: list[str] = option(factory=lambda: list(OPERANDS), choices=tuple(OPERANDS))

    name: ClassVar[str] = "chains"
    answer: ClassVar[str] = "number"
    # The language of the lab models. They read no reflections: what is shown is the chain alone.
    prompt: ClassVar[PromptText] = PromptText(
        user="{{ question }}",
        max_new_tokens=64,
        carry="{{ user }}",
        other="{{ user }}{{ chain }}~{{ user }}",
        reflect="{{ user }}",
    )
    has_document: ClassVar[bool] = False
    embedded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.min_steps > self.max_steps:
            raise ConfigError(
                f"dataset.min_steps={self.min_steps} is above dataset.max_steps={self.max_steps}. "
                "Raise max_steps or lower min_steps"
            )
        if not self.operations:
            raise ConfigError("dataset.operations is empty. Name one at least: +, -, *")

    def rows(self) -> Iterator[Example | DataError]:
        """`count` examples; no question twice.

        Raises:
            DataError: the held-out questions of some number of steps are used up.
        """
        draw, seen = Draw(f"{self.seed}:chains"), set[str]()
        lengths = range(self.min_steps, self.max_steps + 1)
        for index in range(self.count):
            steps = lengths[index % len(lengths)]
            question = self._new(draw, steps, seen)
            seen.add(question)
            yield Example(
                id=f"chains-{self.seed}-{index:05d}",
                question=question,
                references=(str(solve(question)[1]),),
                split=hash_split(question),
                meta={"difficulty": steps},
            )

    def _new(self, draw: Draw, steps: int, seen: set[str]) -> str:
        for question in (make_question(draw, steps, "".join(self.operations)) for _ in range(TRIES)):
            if question not in seen and held_out(question):
                return question
        raise DataError(
            f"dataset.count={self.count}: the held-out questions of {steps} step(s) are used up. "
            "Lower dataset.count, or raise dataset.min_steps"
        )
