"""Vectors of questions and answers for policies that learn from them, each text embedded once a process."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

MOST = 200_000
"""Texts held at once; 384 floats each, some 300 MB."""


class Remembered:
    """An embedder's unit vectors, (n, d) for n texts; asked for a text again, it does not compute again."""

    def __init__(self, embedder: Any) -> None:
        self._embedder = embedder
        self._known: dict[str, np.ndarray] = {}

    def __call__(self, texts: Sequence[str]) -> "np.ndarray":
        import numpy as np

        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            if len(self._known) + len(new) > MOST:
                self._known.clear()
                new = list(dict.fromkeys(texts))
            vectors, _ = self._embedder.embed(new, [])
            self._known.update(zip(new, vectors, strict=True))
        if not texts:
            return np.zeros((0, 1), np.float32)
        return np.stack([self._known[text] for text in texts])


_remembered: dict[str, Remembered] = {}


def remembered(embedder: Any) -> Remembered:
    """The one memory of an embedder in this process."""
    return _remembered.setdefault(repr(embedder), Remembered(embedder))
