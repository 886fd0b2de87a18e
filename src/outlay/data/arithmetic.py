"""Sums of one-digit terms at graded difficulty, and number tasks of reasoning-gym: answers that can be checked."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from outlay.data import Dataset, Example, PromptText, hash_split
from outlay.data.draw import Draw
from outlay.errors import ConfigError, DataError
from outlay.schema import option

# The form that SmolLM2-135M answers best: its turn begins with the sum.
SUMS_PROMPT = PromptText(
    user="Calculate {{ question }}.", prefill="{{ question }} =", max_new_tokens=6, stop=("\n",)
)
GYM_PROMPT = PromptText(user="{{ question }}\nGive only the final number.", max_new_tokens=24)
TRIES = 200  # draws for a new question before a repeated one is accepted: short sums run out

# The number tasks of reasoning-gym that fit, and how they name our options.
GYM: dict[str, Callable[["Arithmetic"], dict[str, Any]]] = {
    "chain_sum": lambda data: _terms(data) | _digits(data),
    "basic_arithmetic": lambda data: _terms(data) | _digits(data) | {"allow_negation": data.negative},
    "products": lambda data: _terms(data) | _digits(data),
    "gcd": lambda data: {
        "min_numbers": data.min_terms,
        "max_numbers": data.max_terms,
        "max_value": 10**data.digits,
    },
    "lcm": lambda data: {
        "min_numbers": data.min_terms,
        "max_numbers": data.max_terms,
        "max_value": 10**data.digits,
    },
    "leg_counting": lambda data: {"min_animals": data.min_terms, "max_animals": data.max_terms},
}


def _terms(data: "Arithmetic") -> dict[str, int]:
    return {"min_terms": data.min_terms, "max_terms": data.max_terms}


def _digits(data: "Arithmetic") -> dict[str, int]:
    return {"min_digits": 1, "max_digits": data.digits}


@dataclass(frozen=True, kw_only=True)
class Arithmetic(Dataset):
    """`task=sums`: chains of + and -, as many of each length; the other tasks are reasoning-gym's.

    `meta["difficulty"]` is the number of terms (the numbers, the animals).
    """

    count: int = option(400, least=1)
    task: str = option("sums", choices=("sums", *GYM))
    min_terms: int = option(2, least=2, most=12)
    max_terms: int = option(5, least=2, most=12)
    digits: int = option(1, least=1, most=4)
    negative: bool = False

    name: ClassVar[str] = "arithmetic"
    answer: ClassVar[str] = "number"
    prompt: ClassVar[PromptText] = SUMS_PROMPT
    has_document: ClassVar[bool] = False
    embedded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.min_terms > self.max_terms:
            raise ConfigError(
                f"dataset.min_terms={self.min_terms} is above dataset.max_terms={self.max_terms}. "
                f"Raise max_terms or lower min_terms"
            )
        if self.task != "sums":  # an instance attribute hides the class's: the prompt depends on the task
            object.__setattr__(self, "prompt", GYM_PROMPT)

    def rows(self) -> Iterator[Example | DataError]:
        """`count` examples; no question twice, unless all questions of a length are used up."""
        made = self._sums() if self.task == "sums" else self._gym()
        for index, (question, answer, difficulty) in enumerate(islice(made, self.count)):
            example_id = f"{self.task}-{index:05d}"
            yield Example(
                id=example_id,
                question=question,
                references=(answer,),
                split=hash_split(example_id),
                meta={"difficulty": difficulty},
            )

    def _sums(self) -> Iterator[tuple[str, str, int]]:
        draw, seen = Draw(f"{self.seed}:sums"), set[str]()
        lengths = range(self.min_terms, self.max_terms + 1)
        for index in range(self.count):
            length = lengths[index % len(lengths)]
            for _ in range(TRIES):
                question, result = _sum(draw, length, 10**self.digits - 1)
                if question not in seen and (result >= 0 or self.negative):
                    break
            else:
                while result < 0 and not self.negative:
                    question, result = _sum(draw, length, 10**self.digits - 1)
            seen.add(question)
            yield question, str(result), length

    def _gym(self) -> Iterator[tuple[str, str, int]]:
        import reasoning_gym  # 100 generators with checked answers; heavy, so imported when used

        size = self.count * 20  # items are made when asked for, so room for repeated ones costs nothing
        options = GYM[self.task](self)
        items, seen = (
            reasoning_gym.create_dataset(self.task, size=size, seed=self.seed, **options),
            set[str](),
        )
        for index in range(size):
            item = items[index]
            if item["question"] not in seen:
                seen.add(item["question"])
                yield item["question"], item["answer"], _size(item["metadata"])


def _sum(draw: Draw, terms: int, largest: int) -> tuple[str, int]:
    """Terms from 1 to `largest`, each sign as likely; "7 + 5 - 3" and its value."""
    result = draw.between(1, largest)
    words = [str(result)]
    for _ in range(terms - 1):
        sign, term = draw.choice((1, -1)), draw.between(1, largest)
        result += sign * term
        words += ["+" if sign > 0 else "-", str(term)]
    return " ".join(words), result


def _size(metadata: dict[str, Any]) -> int:
    for name in ("num_terms", "num_animals"):
        if name in metadata:
            return int(metadata[name])
    return len(metadata["numbers"]) if "numbers" in metadata else 1
