"""From an example and its context to the messages that are sent. Templates are Jinja; wording that is ours is an option."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from outlay.data import Example, PromptText
from outlay.errors import ConfigError
from outlay.generate import FRESH, Earlier, Message, Prompt
from outlay.schema import option

if TYPE_CHECKING:
    from jinja2 import Template

META = ("cue", "instruction")
"""Of an example's meta, what a template may use: the rest describes how the example was made, gold's places included."""


@dataclass(frozen=True)
class Prompting:
    """How an example is asked. null takes the data set's own wording, or the usual one for what follows a shown chain.

    template, prefill: Jinja over question, context, choices, meta; carry, other, reflect: over the same and `user`,
    `chain`, `reflection`. All but `other` follow the chain as the assistant's own turn.
    """

    template: str | None = None
    system: str | None = None
    prefill: str | None = None
    carry: str | None = None  # the user's turn that follows a shown chain
    other: str | None = None  # the user's turn that shows a chain as someone else's
    reflect: str | None = None  # the user's turn that follows a shown chain and what was written about it
    shots: int = option(0, least=0)  # worked examples from the train split
    answer_pattern: str | None = None  # a regular expression; its first group is the answer
    max_new_tokens: int | None = option(None, least=1)
    stop: list[str] | None = None
    top_p: float = option(1.0, above=0, most=1)

    def __post_init__(self) -> None:
        import re

        try:
            re.compile(self.answer_pattern or "")
        except re.error as error:
            raise ConfigError(
                f"answer_pattern={self.answer_pattern!r} is not a regular expression: {error}"
            ) from error

    def over(self, own: PromptText) -> PromptText:
        """The data set's wording with this prompt's put over it.

        Raises:
            ConfigError: a template is not valid Jinja.
        """
        text = PromptText(
            user=own.user if self.template is None else self.template,
            system=own.system if self.system is None else self.system,
            prefill=own.prefill if self.prefill is None else self.prefill,
            max_new_tokens=self.max_new_tokens or own.max_new_tokens,
            stop=own.stop if self.stop is None else tuple(self.stop),
            carry=own.carry if self.carry is None else self.carry,
            other=own.other if self.other is None else self.other,
            reflect=own.reflect if self.reflect is None else self.reflect,
        )
        for source in (text.user, text.system, text.prefill, text.carry, text.other, text.reflect):
            _template(source)
        return text

    def prompt(
        self,
        text: PromptText,
        example: Example,
        context: str,
        shots: Sequence[Message],
        shown: Earlier = FRESH,
        prefill: str | None = None,
    ) -> Prompt:
        """The messages for one example, with what they show of earlier attempts. prefill: the tier's own, if it has one."""
        fields = {
            "question": example.question,
            "context": context,
            "choices": example.choices,
            "meta": {name: example.meta[name] for name in META if name in example.meta},
        }
        user = _fill(text.user, fields)
        usual = _fill(text.prefill, fields)
        chain = (usual if shown.prefill is None else shown.prefill) + shown.chain
        messages = [("system", _fill(text.system, fields))] if text.system else []
        messages += shots
        again = ""
        if shown.context != "fresh":
            own = getattr(self, shown.context)
            again = getattr(text, shown.context) if own is None else own
        if shown.context in ("carry", "reflect"):
            messages += [("user", user), ("assistant", chain)]
        if again:
            more = {"user": user, "chain": chain, "reflection": shown.reflection}
            user = _fill(again, {**fields, **more})
        return Prompt(
            messages=(*messages, ("user", user)),
            prefill=usual if prefill is None else prefill,
            context=context,
            example_id=example.id,
            shows=shown.context,
        )

    def worked(self, text: PromptText, examples: Sequence[tuple[Example, str]]) -> list[Message]:
        """Worked examples with their contexts, as turns; the first reference is the reply."""
        turns: list[Message] = []
        for example, context in examples:
            asked = self.prompt(text, example, context, ())
            gap = " " if asked.prefill else ""
            turns += [asked.messages[-1], ("assistant", asked.prefill + gap + example.references[0])]
        return turns


@cache
def _template(source: str) -> "Template":
    from jinja2 import StrictUndefined, TemplateError
    from jinja2.sandbox import SandboxedEnvironment

    try:
        return SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True).from_string(source)
    except TemplateError as error:
        raise ConfigError(f"prompt template {source!r}: {error}") from error


def _fill(source: str, fields: dict[str, Any]) -> str:
    from jinja2 import TemplateError

    try:
        return _template(source).render(fields)
    except TemplateError as error:
        raise ConfigError(f"prompt template {source!r}: {error}. It may use: {', '.join(fields)}") from error
