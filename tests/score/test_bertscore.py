"""BERTScore by content: bert-score's own figures, each pair scored once, each reference embedded once."""

from pathlib import Path

import pytest

from outlay.score import bertscore
from outlay.score.bertscore import bertscore_f1

pytestmark = pytest.mark.slow

TEXTS = (
    "Warfarin was started for the patient.",
    "The patient was given warfarin, 2.5 mg.",
    "Stock prices fell sharply today.",
    "word " * 700,  # above the model's longest input
)


def test_figures_are_bert_scores_own(own_cache: Path) -> None:
    from bert_score import BERTScorer

    pairs = [(one, other) for one in TEXTS for other in TEXTS]
    official = BERTScorer(model_type=bertscore._place(None), num_layers=6)
    expected = official.score([one for one, _ in pairs], [other for _, other in pairs])[2].tolist()
    assert bertscore_f1([one for one, _ in pairs], [[other] for _, other in pairs]) == pytest.approx(
        expected, abs=1e-5
    )


def test_a_pair_is_scored_once_and_a_reference_embedded_once(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded: list[str] = []
    own = bertscore._Scorer._vectors

    def counted(self: bertscore._Scorer, texts: list[str]) -> object:
        embedded.extend(texts)
        return own(self, texts)

    monkeypatch.setattr(bertscore._Scorer, "_vectors", counted)
    bertscore._scorer(None, None).references.clear()
    reference, first, second, _ = TEXTS
    before = bertscore_f1([first, first], [[reference], [reference]])
    assert sorted(embedded) == sorted([reference, first])
    bertscore_f1([second], [[reference]])
    assert embedded[2:] == [second]
    assert bertscore_f1([first, first], [[reference], [reference]]) == before
    assert len(embedded) == 3
