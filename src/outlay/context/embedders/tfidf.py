"""TF-IDF, fitted once on a document's units and its queries together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from outlay.schema import option

if TYPE_CHECKING:
    import numpy as np

_TERM = r"(?u)\d+(?:[.,/]\d+)*|[^\W\d_]\w+"  # 2.5 and 120/80 are one term
_NEGATIONS = frozenset(("cannot", "never", "no", "nor", "not", "without"))


@dataclass(frozen=True)
class Tfidf:
    """Dense float32 rows over this document's own terms, so the space is as small as the document."""

    stop_words: bool = True  # drops scikit-learn's English list, but for negations
    sublinear: bool = True
    max_terms: int = option(8192, least=1)

    name: ClassVar[str] = "tfidf"

    def embed(self, units: Sequence[str], queries: Sequence[str]) -> "tuple[np.ndarray, np.ndarray]":
        """(n, d) and (q, d) float32 rows of length 1, or 0 for a text without terms; d = 1 where no text has any."""
        import numpy as np
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfVectorizer

        texts = [*units, *queries]
        vectorizer = TfidfVectorizer(
            token_pattern=_TERM,
            stop_words=sorted(ENGLISH_STOP_WORDS - _NEGATIONS) if self.stop_words else None,
            sublinear_tf=self.sublinear,
            max_features=self.max_terms,
            dtype=np.float32,
        )
        try:
            rows = vectorizer.fit_transform(texts).toarray()
        except ValueError:  # its only one here: an empty vocabulary
            rows = np.zeros((len(texts), 1), dtype=np.float32)
        return rows[: len(units)], rows[len(units) :]
