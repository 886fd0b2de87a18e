"""How good a text is against gold: exact match, token F1, ROUGE, BERTScore, fact recall, per example.

Every metric takes the whole batch of `Scored` examples, so that a model is loaded once and fed in batches,
and gives one float in [0, 1] per example; nan where the metric is undefined for an example (no gold of its kind).
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from outlay.data import Example, Fact, Span
from outlay.errors import ConfigError, nearest
from outlay.score.bertscore import bertscore_f1
from outlay.score.match import is_exact, normalise_text

NAN = float("nan")


@dataclass(frozen=True)
class Scored:
    """One example as the metrics see it.

    prediction: the text to judge (an empty one scores 0: a failed example is a wrong example);
    spans: the kept context's offsets into the document, None for a closed-book task.
    """

    prediction: str
    references: Sequence[str] = ()
    facts: Sequence[Fact] = ()
    spans: Sequence[Span] | None = None


@dataclass(frozen=True)
class Metric:
    """score: a batch to one value per example; sets: the choices of `metrics` that hold it."""

    score: Callable[..., list[float]]
    sets: tuple[str, ...]


def metrics_of(choice: str, answer_kind: str) -> tuple[str, ...]:
    """The metric names of a `metrics` choice; "auto" is "summary" for free text and "qa" for the rest.

    Accuracy is not among them: it is the mean of `match.matches`, in every run whose answers can be right.

    Raises:
        ConfigError: an unknown choice or kind of answer.
    """
    known = {"auto", *(name for metric in METRICS.values() for name in metric.sets)}
    if choice not in known:
        raise ConfigError(f"metrics={choice} is no set of metrics. {nearest(choice, known)}")
    wanted = ("qa" if is_exact(answer_kind) else "summary") if choice == "auto" else choice
    return tuple(name for name, metric in METRICS.items() if wanted in metric.sets)


def score_batch(
    choice: str,
    answer_kind: str,
    examples: Sequence[Example],
    predictions: Sequence[str],
    spans: Sequence[Sequence[Span]],
    bertscore_model: str | None = None,
) -> list[dict[str, float]]:
    """The metrics of a `metrics` choice, one dict per example; `spans` are the kept context's, () where none was sent.

    Raises:
        ConfigError: an unknown choice or kind of answer, a BERTScore model that is not there.
    """
    batch = [
        Scored(prediction, example.references, example.facts, kept if example.document else None)
        for example, prediction, kept in zip(examples, predictions, spans, strict=True)
    ]
    columns = score(metrics_of(choice, answer_kind), batch, bertscore_model)
    return [{name: column[i] for name, column in columns.items()} for i in range(len(batch))]


def score(
    names: Iterable[str], batch: Sequence[Scored], bertscore_model: str | None = None
) -> dict[str, list[float]]:
    """Each named metric for each example, in order. `bertscore_model`: see `bertscore_f1`.

    Raises:
        ConfigError: an unknown metric, a BERTScore model that is not there.
    """
    values = {}
    for name in names:
        if name not in METRICS:
            raise ConfigError(f"unknown metric '{name}'. {nearest(name, METRICS)}")
        options = {"model": bertscore_model} if name == "bertscore_f1" else {}
        values[name] = METRICS[name].score(batch, **options)
    return values


# --- answers -----------------------------------------------------------------------------------------------


def exact_match(prediction: str, references: Sequence[str]) -> float:
    """1 where the normalised texts are equal (official SQuAD and HotpotQA); nan without references."""
    return _best(lambda gold: float(normalise_text(prediction) == normalise_text(gold)), references)


def token_f1(prediction: str, references: Sequence[str]) -> float:
    """F1 over normalised tokens, the best reference's (official HotpotQA); yes, no, noanswer only match whole."""
    return _best(lambda gold: _f1(normalise_text(prediction), normalise_text(gold)), references)


def _f1(prediction: str, gold: str) -> float:
    closed = ("yes", "no", "noanswer")
    if prediction != gold and (prediction in closed or gold in closed):
        return 0.0
    ours, theirs = prediction.split(), gold.split()
    if not ours or not theirs:  # as SQuAD 2: nothing matches nothing only
        return float(ours == theirs)
    return _harmonic((Counter(ours) & Counter(theirs)).total(), len(ours), len(theirs))


def _harmonic(common: int, predicted: int, gold: int) -> float:
    """The F-measure, as rouge-score and HotpotQA compute it, so that figures agree to the last digit."""
    if common == 0:
        return 0.0
    precision, recall = common / predicted, common / gold
    return 2 * precision * recall / (precision + recall)


def _best(measure: Callable[[str], float], references: Sequence[str]) -> float:
    references = [references] if isinstance(references, str) else references
    return max(map(measure, references), default=NAN)


# --- ROUGE -------------------------------------------------------------------------------------------------


def rouge_n(prediction: str, references: Sequence[str], n: int) -> float:
    """ROUGE-n F-measure with Porter stems, the best reference's; equal to rouge-score's."""
    ours = _ngrams(prediction, n)

    def measure(gold: str) -> float:
        theirs = _ngrams(gold, n)
        return _harmonic((ours & theirs).total(), ours.total(), theirs.total())

    return _best(measure, references)


def rouge_l(prediction: str, references: Sequence[str]) -> float:
    """ROUGE-L F-measure with Porter stems, the best reference's; equal to rouge-score's."""
    ours = _stems(prediction)

    def measure(gold: str) -> float:
        theirs = _stems(gold)
        return _harmonic(_common_subsequence(ours, theirs), len(ours), len(theirs))

    return _best(measure, references)


# rouge-score gives the tokens; its own counting stems every word again and fills a Python table of n × m cells,
# 18 to 150 times slower on a 2,000-word context against references of 150 to 600 words.
# The tests hold every figure equal to RougeScorer's.
@lru_cache(maxsize=2048)
def _stems(text: str) -> tuple[str, ...]:
    from rouge_score import tokenize

    return tuple(tokenize.tokenize(text, _stemmer()))


def _ngrams(text: str, n: int) -> Counter[tuple[str, ...]]:
    stems = _stems(text)
    return Counter(zip(*(stems[start:] for start in range(n)), strict=False))


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    from nltk.stem import porter

    stemmer = porter.PorterStemmer()
    stemmer.stem = lru_cache(maxsize=2**17)(stemmer.stem)
    return stemmer


def _common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Length of the longest common subsequence, a row of bits at a time (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for index, token in enumerate(first):
        places[token] = places.get(token, 0) | 1 << index
    mask = row = (1 << len(first)) - 1
    for token in second:
        matched = row & places.get(token, 0)
        row = (row + matched | row - matched) & mask
    return len(first) - row.bit_count()


# --- facts -------------------------------------------------------------------------------------------------


def fact_recall_context(facts: Sequence[Fact], spans: Sequence[Span]) -> float:
    """Share of the facts that the kept context states: one of a fact's gold spans lies wholly within it.

    Kept spans that touch or overlap count as one stretch. Facts without a gold span do not count; nan if none has.
    """
    placed = [fact for fact in facts if fact.spans]
    if not placed:
        return NAN
    stretches: list[list[int]] = []
    for start, end in sorted(spans):
        if stretches and start <= stretches[-1][1]:
            stretches[-1][1] = max(stretches[-1][1], end)
        else:
            stretches.append([start, end])
    starts = [start for start, _ in stretches]

    def kept(span: Span) -> bool:
        index = bisect_right(starts, span[0]) - 1
        return index >= 0 and span[1] <= stretches[index][1]

    return sum(any(map(kept, fact.spans)) for fact in placed) / len(placed)


def fact_recall_text(facts: Sequence[Fact], text: str) -> float:
    """Share of the facts whose value a text states, as a run of whole words and numbers ("2.5" is not in "12.5").

    A lower bound: a paraphrase is not found. Nan without facts.
    """
    stated = [words for words in (_words(fact.text) for fact in facts) if words.strip()]
    if not stated:
        return NAN
    whole = _words(text)
    return sum(words in whole for words in stated) / len(stated)


_WORD = re.compile(r"\d+(?:[.,:/]\d+)*|[^\W\d_]+|[%<>]")


def _words(text: str) -> str:
    """Lower-case words and numbers, a space on either side of each."""
    return f" {' '.join(_WORD.findall(text.lower()))} "


# --- the table ---------------------------------------------------------------------------------------------


def _each(measure: Callable[[str, Sequence[str]], float], examples: Sequence[Scored]) -> list[float]:
    return [measure(example.prediction, example.references) for example in examples]


def _bertscore(examples: Sequence[Scored], model: str | None = None) -> list[float]:
    return bertscore_f1([e.prediction for e in examples], [e.references for e in examples], model)


def _fact_recall(examples: Sequence[Scored]) -> list[float]:
    return [
        fact_recall_text(e.facts, e.prediction) if e.spans is None else fact_recall_context(e.facts, e.spans)
        for e in examples
    ]


def _fact_recall_answer(examples: Sequence[Scored]) -> list[float]:
    return [fact_recall_text(example.facts, example.prediction) for example in examples]


METRICS: dict[str, Metric] = {
    "exact_match": Metric(partial(_each, exact_match), ("qa", "all")),
    "token_f1": Metric(partial(_each, token_f1), ("qa", "summary", "all")),
    "rouge1": Metric(partial(_each, partial(rouge_n, n=1)), ("summary", "all")),
    "rouge2": Metric(partial(_each, partial(rouge_n, n=2)), ("summary", "all")),
    "rougeL": Metric(partial(_each, rouge_l), ("summary", "all")),
    "bertscore_f1": Metric(_bertscore, ("summary", "all")),
    "fact_recall": Metric(
        _fact_recall, ("qa", "summary", "all")
    ),  # of the context, where there is a document
    "fact_recall_answer": Metric(_fact_recall_answer, ("summary", "all")),  # of the answer's text
}


# --- contexts ----------------------------------------------------------------------------------------------


def context_worth(example: Example, spans: Sequence[Span]) -> float:
    """What gold says of a context before any model has read it, in [0, 1]: what oracles and learned selectors go by.

    The share of gold facts it holds; without facts, ROUGE-1 against the reference text (`answer` kinds of free text)
    or whether it states an accepted answer.

    Raises:
        ConfigError: the example has neither facts nor a reference that a text can hold (a label does not count).
    """
    if example.facts:
        return fact_recall_context(example.facts, spans)
    if example.choices or not example.references:
        raise ConfigError(
            f"example {example.id} has no gold facts and no reference text, so a context has no worth that could be "
            "known or learned. Use another selector than oracle or learned"
        )
    text = "\n".join(example.document[start:end] for start, end in spans)
    if example.question:
        words = f" {_words(text)} "
        return float(any(f" {_words(reference)} " in words for reference in example.references))
    return rouge_n(text, example.references, 1)
