"""Whether an answer counts as right: one rule for ledger scores, the gold verifier and predictions.

The rule is an option (metrics.scorer), because it is part of the experiment: a strict one marks right answers wrong,
and what it marks wrong is retried and paid for.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from outlay.errors import ConfigError
from outlay.score.match import is_exact, matches, normalise_text, parse

if TYPE_CHECKING:
    from outlay.agent.ledger import Line
    from outlay.data import Example
    from outlay.schema import Parts


@dataclass(frozen=True)
class Grader:
    """Grades ledger lines; the only reader of gold and of a log's own flags.

    name: outlay (`score.match`), recorded (the flag of the log that is replayed), strict, f1, contains (see `RULES`).
    """

    name: str
    kind: str  # of answer; see `score.match`
    gold: Mapping[str, Sequence[str]]  # by example id
    flag: "Callable[[Line], float | None]" = lambda line: None  # of scorer=recorded
    pattern: str | None = None  # prompt.answer_pattern

    def __call__(self, line: "Line") -> float:
        """1 or 0 for answers that can be right (a failed call is wrong), token F1 for free text; nan without gold.

        Raises:
            ConfigError: scorer=recorded, and the log has no flag for the line.
        """
        from outlay.score.quality import token_f1

        if self.name == "recorded":
            return self._flag(line)
        references = self.gold[line.example_id]
        if not references:
            return float("nan")
        if not is_exact(self.kind):
            return token_f1(line.text, references)
        said = line
        if self.name == "strict" and self.pattern:  # the part of the reply that it names
            said = replace(line, text=parse(line.text, "text", pattern=self.pattern) or "")
        return float(RULES[self.name](said, references, self.kind))

    def knows(self, example_id: str) -> bool:
        """Whether an example's answers can be right or wrong."""
        return self.name == "recorded" or bool(self.gold[example_id])

    def verdict(self, line: "Line") -> float:
        """As a gold verifier says it.

        Raises:
            ConfigError: the example has no gold answer, so that no attempt would ever be right.
        """
        if not self.knows(line.example_id):
            raise ConfigError(
                f"retry.stop=gold: example {line.example_id} has no gold answer. "
                "Use metrics.scorer=recorded where a log is replayed, or retry.stop=vote"
            )
        return self(line)

    def _flag(self, line: "Line") -> float:
        found = self.flag(line)
        if found is None and not line.error:
            raise ConfigError(
                f"metrics.scorer=recorded: the log does not say whether example {line.example_id} was right "
                f"on tier {line.tier}. Use metrics.scorer=outlay"
            )
        return found or 0.0


def _strict(line: "Line", references: Sequence[str], kind: str) -> bool:
    """Equal as text, white space at the ends and case apart: of a span the reply itself, else the answer found in it."""
    said = line.text if kind == "span" else line.answer or ""
    return any(said.strip().lower() == gold.strip().lower() for gold in references)


def _f1(line: "Line", references: Sequence[str], kind: str) -> bool:
    """A token F1 of at least a half."""
    from outlay.score.quality import token_f1

    return token_f1(line.answer or "", references) >= 0.5


def _contains(line: "Line", references: Sequence[str], kind: str) -> bool:
    """Gold's words stand anywhere in the reply."""
    said = f" {_apart(line.text)} "
    return any(f" {_apart(gold)} " in said for gold in references)


def _apart(text: str) -> str:
    """Words alone: punctuation parts them, so that "2-9=93" says 2, 9 and 93."""
    return normalise_text(re.sub(r"[^\w\s]", " ", text))


RULES: "dict[str, Callable[[Line, Sequence[str], str], bool]]" = {
    "outlay": lambda line, references, kind: matches(line.answer, references, kind),
    "strict": _strict,
    "f1": _f1,
    "contains": _contains,
}
"""Rules that read gold; strict, f1 and contains are what other harnesses do, to be compared with (ours)."""
SCORERS = (*RULES, "recorded")


def grader(examples: "Sequence[Example]", parts: "Parts") -> Grader:
    """The run's grader for a chunk of examples."""

    def flag(line: "Line") -> float | None:
        found: float | None = parts.generator.recorded(line, parts.settings.seed)
        return found

    gold = {one.id: one.references for one in examples}
    return Grader(parts.metrics.scorer, parts.dataset.answer, gold, flag, parts.prompt.answer_pattern)
