"""Answers: found in a reply, brought to one form, compared with gold. One table of kinds serves every data set.

A wrong match is paid for as a retry, so the scorer is part of the experiment: RouteLLM's rule (the last
run of digits) marks 42 of 1,319 right GPT-4 answers wrong, because "$18.00" reads as 00.
"""

import re
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from outlay.errors import ConfigError, nearest


@dataclass(frozen=True)
class Kind:
    """One kind of answer.

    find: the answer that a reply commits to, in normal form, or None; gets the reply and the choices.
    normalise: the normal form of a gold answer (and of an answer already found); None where equality
    with gold says nothing, as for a summary.
    """

    find: Callable[[str, tuple[str, ...]], str | None]
    normalise: Callable[[str], str | None] | None


def parse(text: str, kind: str, choices: Sequence[str] = (), pattern: str | None = None) -> str | None:
    """The normalised answer of a reply; None where it commits to none.

    Args:
        text: the reply as generated.
        kind: a name in `KINDS`.
        choices: the labels of a "label" task, in the order of its lettered options.
        pattern: a regular expression (the prompt's `answer_pattern`); its first group, or the whole match,
            is where the answer is looked for. A reply without a match is unparsable.

    Raises:
        ConfigError: an unknown kind, a label task without choices, a pattern that does not compile.
    """
    find = _kind(kind).find
    if pattern is not None:
        try:
            hit = re.search(pattern, text)
        except re.error as error:
            raise ConfigError(
                f"prompt.answer_pattern={pattern!r} is no regular expression: {error}"
            ) from error
        if hit is None:
            return None
        text = next((group for group in hit.groups() if group is not None), hit.group())
    return find(text, tuple(choices))


def matches(answer: str | None, references: str | Sequence[str], kind: str) -> bool:
    """Whether a parsed answer equals any gold answer; an unparsable one (None) never does.

    Raises:
        ConfigError: an unknown kind, or one without exact correctness ("text").
    """
    normalise = _kind(kind).normalise
    if normalise is None:
        exact = [name for name, known in KINDS.items() if known.normalise]
        raise ConfigError(
            f"answers of kind '{kind}' are never simply right or wrong; score them with metrics=summary, "
            f"or use a kind with exact answers: {', '.join(exact)}"
        )
    found = None if answer is None else normalise(answer)
    if found is None:
        return False
    return any(
        found == normalise(gold) for gold in ([references] if isinstance(references, str) else references)
    )


def is_exact(kind: str) -> bool:
    """Whether an answer of this kind can be right or wrong (so that gold can be a stop rule)."""
    return _kind(kind).normalise is not None


def _kind(name: str) -> Kind:
    if name not in KINDS:
        raise ConfigError(f"unknown kind of answer '{name}'. {nearest(name, KINDS)}")
    return KINDS[name]


# --- numbers -----------------------------------------------------------------------------------------------

_CALCULATION = re.compile(r"<<[^<>\n]*>>")  # GSM8K's calculator marks
_MARKUP = re.compile(r"[*_`]{1,3}(?=[\d\s$€£.,;:!?)\w-]|$)|\\[$(),!;\[\]%]|\\(?:text|mathrm|displaystyle)\b")
_FRAC = re.compile(r"\\[dt]?frac\{(\d{1,15})\}\{(\d{1,15})\}")
_FULL_HOUR = re.compile(r"(?<=\d):00\b")  # "6:00" is 6, as "$18.00" is 18
_NUMBER = re.compile(
    r"(?<![\w.,/])(?P<sign>-)?\s?[$€£]?\s?(?P<inner>-)?"
    r"(?:(?P<whole>\d{1,15})\s+)?(?P<over>\d{1,15})/(?P<under>\d{1,15})(?![\d/])"
    r"|(?<![\w.])(?P<minus>-)?[$€£]?\s?(?P<second>-)?"
    r"(?P<digits>\d{1,3}(?:,\d{3})+(?!\d)|\d+|(?=\.\d))(?P<rest>\.\d+)?(?P<power>[eE][+-]?\d{1,2}\b)?"
)
_BOXED = re.compile(r"\\boxed\s*\{")
_COMMITS = (  # the strongest first; each leaves the answer to the rest of its line
    _BOXED,
    re.compile(r"####"),
    re.compile(r"\banswer\b(?:[^\n.:=]{0,60}?\bis\b|[*\s]*[:=])", re.IGNORECASE),
    re.compile(r"^[ \t]*A:(?=[ \t]*-?\s?[$€£]?\d)", re.MULTILINE),
)
_HEDGE = re.compile(
    r"[\s:=({\[]*(?:(?:about|approximately|around|roughly|exactly|only|equal to)\b)?[\s~≈:=({\[]*"
)
_SENTENCE = re.compile(r"\n|[.;!?](?=\s|$)")
_WORDS = (  # noqa: SIM905 (a list of strings is no easier to read)
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty"
).split()


def _find_number(text: str, choices: tuple[str, ...]) -> str | None:
    text = _plain(text)
    for commit in _COMMITS:
        for hit in commit.finditer(text):
            number = _committed(text[hit.end() : hit.end() + 400])
            if number is not None:
                return number  # the first: base models go on with questions of their own
    numbers = [number for _, _, number in _numbers(text)]
    return numbers[-1] if numbers else _spelled(text)


def _committed(tail: str) -> str | None:
    """The number of a clause such as " $18 a day for 5 days" or " 2 + 3 = 5 apples"."""
    lead = _HEDGE.match(tail)
    tail = tail[lead.end() :] if lead else tail
    end = _SENTENCE.search(tail)
    clause = tail[: end.start()] if end else tail
    found = list(_numbers(clause))
    if not found:
        return _spelled(clause)
    after = [number for start, _, number in found if start >= clause.rfind("=") >= 0]
    if after:
        return after[0]
    start, _, first = found[0]
    return first if not clause[:start].strip() else found[-1][2]


def _numbers(text: str) -> Iterator[tuple[int, int, str]]:
    for hit in _NUMBER.finditer(text):
        number = _canonical(hit, text)
        if number is not None:
            yield hit.start(), hit.end(), number


def _canonical(hit: re.Match[str], text: str) -> str | None:
    """ "1,450.50" -> "1450.5", "1/2" -> "0.5", "1/3" -> "1/3"; by text, so that no length of digits is too much."""
    part = hit.groupdict()
    if part["over"]:
        if int(part["under"]) == 0:
            return None
        value = Fraction(int(part["over"]), int(part["under"])) + int(part["whole"] or 0)
        negative = bool(part["sign"] or part["inner"]) and not _is_operator(hit, text)
        return ("-" if negative and value else "") + _decimal(value)
    negative = bool(part["minus"] or part["second"]) and not (part["minus"] and _is_operator(hit, text))
    number = part["digits"].replace(",", "") + (part["rest"] or "")
    if part["power"]:
        from decimal import Decimal

        number = format(Decimal(number + part["power"]), "f")
    whole, _, rest = number.partition(".")
    whole, rest = whole.lstrip("0") or "0", rest.rstrip("0")
    number = f"{whole}.{rest}" if rest else whole
    return f"-{number}" if negative and number != "0" else number


def _is_operator(hit: re.Match[str], text: str) -> bool:
    """Whether the minus sign subtracts: "8 -3" and "(8) -3" hold 3, "is -3" holds -3."""
    before = text[: hit.start()].rstrip()[-1:]
    return before.isdigit() or before in (")", "%")


def _decimal(value: Fraction) -> str:
    """A fraction as a decimal where it ends within its denominator's twos and fives, else as "n/d"."""
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest != 1:
        return f"{value.numerator}/{value.denominator}"
    places = value.denominator.bit_length()
    whole, fraction = divmod(value.numerator * 10**places // value.denominator, 10**places)
    digits = f"{fraction:0{places}d}".rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)


def _spelled(text: str) -> str | None:
    """A reply that is one number word, such as "Seven."."""
    word = text.strip(" \t\r\n.!*\"'").lower()
    return str(_WORDS.index(word)) if word in _WORDS else None


def _plain(text: str) -> str:
    text = _CALCULATION.sub("", text.translate(_TYPOGRAPHY))
    text = _FRAC.sub(r" \1/\2", text)
    return _FULL_HOUR.sub("", _MARKUP.sub("", text))


def _normal_number(text: str) -> str | None:
    return _find_number(text, ())


# --- spans -------------------------------------------------------------------------------------------------

_TYPOGRAPHY = str.maketrans(
    {"‘": "'", "’": "'", "“": '"', "”": '"', "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-"}
    | {"\u00a0": " ", "\u202f": " ", "\u2009": " ", "½": " 1/2", "¼": " 1/4", "¾": " 3/4"}
)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_DECIMAL_POINT = re.compile(r"(?<=\d)\.(?=\d)")
_SPAN_COMMIT = re.compile(
    r"\banswer(?:\s+to\b[^\n.:]{0,80}?)?[*_\"']{0,3}\s*(?:is\b|:)[\s:*]*|\A\s*A:\s+", re.IGNORECASE
)
_YES_NO = re.compile(r"(yes|no)(?:[.!;]|\s*[-,:]\s)\s*(?=\S+\s+\S)", re.IGNORECASE)
_STOP = re.compile(r"(?<=\S)\.[\"')*]*\s+(?=[A-Z\"'(])")
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof st jr sr rev hon gov gen col lt capt sgt cmdr sen rep pres inc ltd co corp bros vs v mt ft "  # noqa: SIM905
    "no nos vol op pt ed eds etc dept univ est feat ph jan feb mar apr jun jul aug sep sept oct nov dec".split()
)


def _find_span(text: str, choices: tuple[str, ...]) -> str | None:
    text = text.translate(_TYPOGRAPHY)
    hit = _SPAN_COMMIT.search(text)
    if hit and text[hit.end() :].strip():
        text = text[hit.end() :]
    line = next((line for line in text.splitlines() if line.strip(" \t*#>`\"'")), "").strip(" \t*#>`")
    yes_no = _YES_NO.match(line)
    return _normal_span(yes_no.group(1) if yes_no else _first_sentence(line))


def _first_sentence(line: str) -> str:
    for stop in _STOP.finditer(line):
        word = re.split(r"[\s(\"']", line[max(0, stop.start() - 40) : stop.start()])[-1].lower()
        initials = (len(word) == 1 and word.isalpha()) or "." in word
        if not initials and word not in _ABBREVIATIONS and not (word.isdigit() and len(word) < 3):
            return line[: stop.start()]
    return line


def normalise_text(text: str) -> str:
    """Lower case, without punctuation, articles and surplus white space: the official SQuAD and HotpotQA form."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _normal_span(text: str) -> str | None:
    """The official form, but with decimal points kept: without them a weight of 79.1 kg equals one of 791 kg."""
    text = _DECIMAL_POINT.sub("·", text.translate(_TYPOGRAPHY))
    # A name made of articles ("The The") keeps them, else it could not be answered at all.
    normal = normalise_text(text) or " ".join(text.lower().translate(_PUNCTUATION).split())
    return normal.replace("·", ".") or None


# --- labels ------------------------------------------------------------------------------------------------

_DETERMINER = r"(?!\s+(?!(?:it|they|this|that|these|those|there|he|she|we|the|because|since|as)\b)[a-z])"


@dataclass(frozen=True)
class _Labels:
    """The ways to commit to one of a set of labels, the most explicit first; `names` gives each form's label."""

    names: dict[str, str]
    ways: tuple[re.Pattern[str], ...]
    echo: re.Pattern[str]


@lru_cache(maxsize=256)
def _labels(choices: tuple[str, ...]) -> _Labels:
    letters = all(len(choice) == 1 and choice.isalpha() for choice in choices)
    names = {choice.casefold(): choice for choice in choices}
    words = "|".join(
        re.escape(choice).replace(r"\ ", r"\s+") + (_DETERMINER if choice.casefold() == "no" else "")
        for choice in sorted(choices, key=len, reverse=True)
    )
    edge, close = r"(?<![\w'-])", r"(?![\w'-])"
    word = rf"{edge}(?P<a>{words}){close}"
    committed = word
    if not letters:  # "B" stands for the second of yes, no, maybe, where a reply commits to an option
        option_letters = string.ascii_uppercase[: len(choices)]
        positional = {
            letter.casefold(): choice for letter, choice in zip(option_letters, choices, strict=False)
        }
        names = positional | names
        committed = rf"(?:{word}|{edge}(?-i:(?P<b>[{option_letters}]))(?=[).:,\"'\]}}*]|\s*$|\s*\n))"
    open_, end = r"[\s*_\"'(\[{>#]{0,9}", r"(?=[.,;:!?)\]}*_\"'\n]|\s*$|\s*-|\s+\()"
    explicit = r"\b(?:answer|choice|option|label|conclusion|decision|verdict)\b"
    hedge = r"(?:(?!not\b)[a-z]+,?\s+){0,3}?"
    ways = [
        rf"[\"'](?:final_)?(?:answer|label|choice)[a-z_]*[\"']\s*:{open_}{committed}",  # a JSON field
        rf"\A{open_}(?:(?:the\s+)?(?:final\s+|correct\s+|best\s+)?answer(?:\s+is)?\s*:?{open_})?{committed}{end}",
        rf"{explicit}[\"'*]*[^\n.:]{{0,80}}?(?:\bis\b|\bbe\b|:|=){open_}{hedge}{open_}{committed}",
    ]
    if letters:
        capitals = "".join(choice.upper() for choice in choices)
        ways += [
            rf"\((?P<a>{words})\)",
            rf"{edge}(?-i:(?P<a>[{capitals}]))(?=[).:,]|\s*$)",
            rf"{edge}(?-i:(?P<a>[{re.sub('[AI]', '', capitals) or capitals}])){close}",  # "A", "I" are words too
        ]
    else:
        ways += [rf"(?<!\bnot )(?<!n't ){word}"]
    plain = "|".join(re.escape(choice) for choice in sorted(choices, key=len, reverse=True))
    listed = rf"[\"'(]?{edge}(?:{plain}){close}[\"')]?"
    echo = rf"{listed}(?:\s?[,/|]\s?{listed})*\s?(?:,?\s?\bor\s|[/|])\s?{listed}"
    return _Labels(
        names=names,
        ways=tuple(re.compile(way, re.IGNORECASE) for way in ways),
        echo=re.compile(echo, re.IGNORECASE),
    )


def _find_label(text: str, choices: tuple[str, ...]) -> str | None:
    if not choices:
        raise ConfigError("a label task has no choices; give each example's `choices` in the data set")
    labels = _labels(choices)
    text = labels.echo.sub(" ", text.translate(_TYPOGRAPHY))  # "yes/no/maybe" repeats the question
    for way in labels.ways:
        hit = way.search(text)
        if hit:
            form = next(group for group in hit.groups() if group is not None)
            return labels.names[" ".join(form.casefold().split())]
    return None


def _normal_label(text: str) -> str | None:
    return text.strip(" \t\r\n().:*\"'").casefold() or None


# --- free text ---------------------------------------------------------------------------------------------


def _find_text(text: str, choices: tuple[str, ...]) -> str | None:
    return text.strip() or None


KINDS: dict[str, Kind] = {
    "number": Kind(_find_number, _normal_number),
    "span": Kind(_find_span, _normal_span),
    "label": Kind(_find_label, _normal_label),
    "text": Kind(_find_text, None),
}
