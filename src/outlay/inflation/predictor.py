"""Inflation predicted from a probe and the prompt: a small network per tier, fitted on what attempts really cost.

The four features are the paper's (InflationAgent, arXiv 2608.13571); the network's size, its training and its second
output, the chance that inflation reaches 2, are ours. The target is log inflation, so a prediction is a geometric
mean: below the arithmetic one where inflation is spread. A query that ran out of attempts counts with what it cost.
"""

import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlay.errors import ConfigError, DataError, OutlayError, nearest
from outlay.inflation.cases import Cases, row_of
from outlay.schema import option

if TYPE_CHECKING:
    import numpy as np


FILES = ("predictor.json", "predictor.safetensors")
"""What a saved predictor is made of; the artifacts of a tracked one."""
VERSION = 1


@dataclass(frozen=True)
class Training:
    """How a predictor is fitted; all of it ours, the paper states none of it."""

    hidden: tuple[int, ...] = (32, 16)  # units of each hidden layer
    learning_rate: float = option(0.003, above=0)
    weight_decay: float = option(0.01, least=0)
    high_weight: float = option(1.0, least=0)  # of the chance of high inflation, beside log inflation
    epochs: int = option(300, least=1)
    patience: int = option(30, least=1)  # epochs without a better validation loss
    batch: int = option(64, least=1)
    validation_share: float = option(0.2, above=0, most=0.5)
    least_cases: int = option(40, least=4)  # a tier with fewer is predicted by its mean
    seed: int = option(0, least=0)
    device: str = option("auto", choices=("auto", "cpu", "cuda"))

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))  # a list would not hash
        if any(units < 1 for units in self.hidden):
            raise ConfigError(f"hidden={list(self.hidden)}: every layer needs at least one unit")


# ---------------------------------------------------------------- predictor

Layers = tuple[tuple[Any, Any], ...]
"""(weights (in, out), bias (out,)) of each layer; arrays or tensors."""


@dataclass(frozen=True, eq=False)
class Scaling:
    """Standard scores by the rows that a tier was fitted on, token counts by log(1 + tokens) first.

    What lies outside the range of those rows is moved to its edge: a network extrapolates without bound. An unknown
    value becomes the mean. (d,) each.
    """

    mean: "np.ndarray"
    deviation: "np.ndarray"
    low: "np.ndarray"
    high: "np.ndarray"

    def apply(self, rows: "np.ndarray", names: Sequence[str]) -> "np.ndarray":
        import numpy as np

        with np.errstate(over="ignore"):  # which becomes the edge
            scaled = (_logged(rows, names) - self.mean) / self.deviation
        return np.nan_to_num(np.clip(scaled, self.low, self.high), nan=0.0)


@dataclass(frozen=True, eq=False)
class Fit:
    """What one tier's cases taught; without layers, it is predicted by their mean."""

    cases: int
    held_out: int  # of the cases, for validation
    log_mean: float  # of log inflation
    share_high: float  # of cases with inflation of at least 2
    scaling: Scaling | None = None
    layers: Layers = ()
    losses: tuple[float, ...] = ()  # on validation, by epoch

    @property
    def epoch(self) -> int:
        """The epoch whose weights were kept, from 0: that of the best validation loss."""
        return self.losses.index(min(self.losses))


@dataclass(frozen=True, eq=False)
class Predictor:
    """Inflation from features, one network per tier. Predicting needs numpy only."""

    names: tuple[str, ...]
    fits: Mapping[str, Fit]  # by tier
    training: Training
    datasets: Mapping[str, int]  # cases of each that it was fitted on
    data: str  # digest of those cases
    notes: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)

    def predict(self, tier: str, rows: Any) -> "np.ndarray":
        """(n,) predicted inflation, above 1, of (n, d) rows with columns as in `names`.

        Raises:
            ConfigError: a tier that it was not fitted on, or rows of another width.
        """
        import numpy as np

        return np.exp(self._outputs(tier, rows)[0])

    def probability(self, tier: str, rows: Any) -> "np.ndarray":
        """(n,) chance that inflation is at least 2. Raises as `predict`."""
        return self._outputs(tier, rows)[1]

    def row(self, features: object) -> list[float]:
        """A query's `Features` as a row. Raises ConfigError where one is missing."""
        return row_of(features, self.names)

    def _outputs(self, tier: str, rows: Any) -> "tuple[np.ndarray, np.ndarray]":
        """(n,) log inflation and (n,) chance of high inflation."""
        import numpy as np

        fit = self.fits.get(tier)
        if fit is None:
            raise ConfigError(
                f"the predictor knows no tier '{tier}'. {nearest(tier, self.fits)} Or fit one on a ledger with that tier"
            )
        table = np.asarray(rows, float)
        if table.ndim != 2 or table.shape[1] != len(self.names):
            raise ConfigError(
                f"the predictor takes rows of {len(self.names)} features ({', '.join(self.names)}); got shape {table.shape}"
            )
        if fit.scaling is None:
            return np.full(len(table), fit.log_mean), np.full(len(table), fit.share_high)
        raw = _forward(fit.scaling.apply(table, self.names), fit.layers)
        return np.logaddexp(0, raw[:, 0]), np.exp(-np.logaddexp(0, -raw[:, 1]))

    def save(self, folder: str | Path) -> Path:
        """Write `FILES` into a folder, which is made; returns it."""
        import numpy as np
        from safetensors.numpy import save

        where = Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        arrays = {
            f"{place}.{depth}.{kind}": np.ascontiguousarray(array, np.float32)
            for place, fit in enumerate(self.fits.values())
            for depth, layer in enumerate(fit.layers)
            for kind, array in zip(("weight", "bias"), layer, strict=True)
        }
        weights = save(arrays)
        tiers = [
            {
                "tier": tier,
                "cases": fit.cases,
                "held_out": fit.held_out,
                "log_mean": fit.log_mean,
                "share_high": fit.share_high,
                "layers": len(fit.layers),
                "losses": list(fit.losses),
                "scaling": {name: column.tolist() for name, column in vars(fit.scaling).items()}
                if fit.scaling
                else None,
            }
            for tier, fit in self.fits.items()
        ]
        described = {
            "outlay": "inflation predictor",
            "version": VERSION,
            "names": list(self.names),
            "training": asdict(self.training),
            "tiers": tiers,
            "datasets": dict(self.datasets),
            "data": self.data,
            "notes": list(self.notes),
            "metrics": dict(self.metrics),
            "weights": hashlib.sha256(weights).hexdigest(),
        }
        (where / FILES[1]).write_bytes(weights)
        (where / FILES[0]).write_text(
            json.dumps(described, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        return where


def load(where: str | Path, tracking_uri: str | None = None) -> Predictor:
    """A saved predictor: its folder, either of its files, or `runs:/RUN_ID/predictor` of a tracking store.

    tracking_uri: see `outlay.track.fetch`.

    Raises:
        ConfigError: there is none.
        DataError: its files are damaged or of another version.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load as read_arrays

    if str(where).startswith("runs:/"):
        from outlay.track import fetch

        folder = fetch(str(where), tracking_uri)
    else:
        folder = Path(where).expanduser()
    if folder.name in FILES:
        folder = folder.parent
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise ConfigError(
            f"predictor {where}: no {' and no '.join(missing)} there. Give the folder that a predictor was saved to, or "
            "runs:/RUN_ID/predictor"
        )
    path = folder / FILES[0]
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
        if described["version"] != VERSION:
            raise DataError(f"{path}: version {described['version']}, expected {VERSION}. Train it again")
        weights = (folder / FILES[1]).read_bytes()
        if hashlib.sha256(weights).hexdigest() != described["weights"]:
            raise DataError(f"{folder / FILES[1]}: not the weights that {FILES[0]} describes. Save it again")
        arrays = read_arrays(weights)
        return Predictor(
            names=tuple(described["names"]),
            fits={one["tier"]: _read(one, place, arrays) for place, one in enumerate(described["tiers"])},
            training=Training(**described["training"]),
            datasets=described["datasets"],
            data=described["data"],
            notes=tuple(described["notes"]),
            metrics=described["metrics"],
        )
    except (KeyError, TypeError, ValueError, SafetensorError) as error:
        raise DataError(
            f"{path}: not a saved predictor ({type(error).__name__}: {error}). Save it again"
        ) from error


def _read(one: Mapping[str, Any], place: int, arrays: "Mapping[str, np.ndarray]") -> Fit:
    import numpy as np

    scaling = one["scaling"]
    return Fit(
        cases=one["cases"],
        held_out=one["held_out"],
        log_mean=one["log_mean"],
        share_high=one["share_high"],
        scaling=Scaling(**{name: np.array(column) for name, column in scaling.items()}) if scaling else None,
        layers=tuple(
            (
                arrays[f"{place}.{depth}.weight"].astype(np.float64),
                arrays[f"{place}.{depth}.bias"].astype(np.float64),
            )
            for depth in range(one["layers"])
        ),
        losses=tuple(one["losses"]),
    )


# ---------------------------------------------------------------- training


def train(table: Cases, training: Training | None = None) -> Predictor:
    """Fit one network per tier, with early stopping on held-out queries. The same on every call on one machine, and
    for a tier whatever the other tiers and the order of the cases.

    Raises:
        ConfigError: training.device is not to be had here.
        DataError: no cases.
        OutlayError: the training diverged.
    """
    settings = training or Training()
    if not len(table):
        raise DataError(
            f"no cases to fit a predictor on. {' '.join(table.notes) or 'Run a probe (probe=cbe)'}"
        )
    notes = list(table.notes)
    fits = {}
    for tier in sorted(set(table.tier.tolist())):
        own = table.only(table.tier == tier)
        fits[tier], note = _fit(tier, own.only(own.keys.argsort(kind="stable")), settings)
        notes += note
    return Predictor(
        names=table.names,
        fits=fits,
        training=settings,
        datasets=dict(sorted(Counter(table.dataset.tolist()).items())),
        data=table.digest,
        notes=tuple(notes),
    )


def _fit(tier: str, own: Cases, training: Training) -> tuple[Fit, list[str]]:
    """A tier's fit, and what is to be said of it."""
    import numpy as np

    target = np.log(own.inflation)
    mean = Fit(len(own), 0, float(target.mean()), float(own.high.mean()))
    queries, query_of = np.unique(own.keys, return_inverse=True)
    if len(queries) < training.least_cases:
        why = f"{len(queries)} queries, fewer than least_cases={training.least_cases}"
    elif np.ptp(target) == 0:
        why = f"every inflation is {own.inflation[0]:g}"
    else:
        why = ""
    if why:
        return mean, [f"tier {tier} is predicted by its mean: {why}"]
    rng = np.random.default_rng([training.seed, zlib.crc32(tier.encode())])
    held_queries = rng.permutation(len(queries))[: max(1, round(training.validation_share * len(queries)))]
    held = np.isin(query_of, held_queries)
    scaling, constant = _scaling(own.features[~held], own.names)
    rows = scaling.apply(own.features, own.names)
    layers = _started(rows.shape[1], training.hidden, mean, rng)
    with _one_thread():
        layers, losses = _descend(rows, target, own.high, held, layers, training, rng)
    note = [f"tier {tier}: {', '.join(constant)} did not vary and taught nothing"] if constant else []
    return Fit(mean.cases, int(held.sum()), mean.log_mean, mean.share_high, scaling, layers, losses), note


def _logged(rows: "np.ndarray", names: Sequence[str]) -> "np.ndarray":
    """Token counts, whose tail is long, on a log scale."""
    import numpy as np

    tokens = np.array([name.endswith("_tokens") for name in names])
    return np.where(tokens, np.log1p(np.maximum(rows, 0)), rows)


def _scaling(rows: "np.ndarray", names: Sequence[str]) -> tuple[Scaling, list[str]]:
    """The scaling of these rows, and the names of columns without two different values."""
    import numpy as np

    logged = _logged(np.where(np.isfinite(rows), rows, np.nan), names)
    known = ~np.isnan(logged).all(axis=0)
    logged[:, ~known] = 0.0
    mean, deviation = np.nanmean(logged, axis=0), np.nanstd(logged, axis=0)
    flat = np.nanmax(logged, axis=0) == np.nanmin(logged, axis=0)
    deviation[flat] = 1.0
    scaled = (logged - mean) / deviation
    low, high = np.nanmin(scaled, axis=0), np.nanmax(scaled, axis=0)
    low[flat] = high[flat] = 0.0
    return Scaling(mean, deviation, low, high), [name for name, one in zip(names, flat, strict=True) if one]


def _started(width: int, hidden: Sequence[int], mean: Fit, rng: "np.random.Generator") -> Layers:
    """Uniform in ±1/sqrt(inputs), as torch's linear layers; the last bias makes the mean the first prediction.

    Drawn by numpy, so that the CPU and the GPU start alike and torch's own random state is left alone.
    """
    import numpy as np

    sizes = [width, *hidden, 2]
    layers = []
    for inputs, outputs in pairwise(sizes):
        edge = inputs**-0.5
        layers.append((rng.uniform(-edge, edge, (inputs, outputs)), rng.uniform(-edge, edge, outputs)))
    share = min(max(mean.share_high, 0.01), 0.99)
    layers[-1] = (layers[-1][0], np.array([np.log(np.expm1(mean.log_mean)), np.log(share / (1 - share))]))
    return tuple(layers)


def _forward(rows: Any, layers: Layers) -> Any:
    """(n, 2) raw outputs; for numpy and torch alike. Softplus of the first is log inflation, which is never negative."""
    *hidden, (weight, bias) = layers
    for inner, offset in hidden:
        rows = rows @ inner + offset
        rows = rows * (rows > 0)
    return rows @ weight + bias


def _descend(
    rows: "np.ndarray",
    target: "np.ndarray",
    high: "np.ndarray",
    held: "np.ndarray",
    layers: Layers,
    training: Training,
    rng: "np.random.Generator",
) -> tuple[Layers, tuple[float, ...]]:
    """AdamW with early stopping: the layers of the best epoch, and every epoch's validation loss.

    Loss: squared error of log inflation in units of its variance, plus high_weight times the log loss of high inflation.
    """
    import numpy as np
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits, softplus

    device = _device(training.device)

    def tensor(array: "np.ndarray") -> "torch.Tensor":
        return torch.from_numpy(np.ascontiguousarray(array, np.float32)).to(device)

    parameters = [tensor(array).requires_grad_() for layer in layers for array in layer]
    network = tuple(zip(parameters[::2], parameters[1::2], strict=True))
    variance = float(target[~held].var()) or 1.0

    def loss(x: "torch.Tensor", y: "torch.Tensor", above: "torch.Tensor") -> "torch.Tensor":
        raw = _forward(x, network)
        squared = (softplus(raw[:, 0]) - y).square().mean() / variance
        return squared + training.high_weight * binary_cross_entropy_with_logits(raw[:, 1], above)

    fitted = [tensor(one[~held]) for one in (rows, target, high)]
    checked = [tensor(one[held]) for one in (rows, target, high)]
    optimiser = torch.optim.AdamW(parameters, training.learning_rate, weight_decay=training.weight_decay)
    count = len(fitted[0])
    losses: list[float] = []
    kept: list[np.ndarray] = []
    best = float("inf")
    for epoch in range(training.epochs):
        order = torch.from_numpy(rng.permutation(count)).to(device)
        for first in range(0, count, training.batch):
            at = order[first : first + training.batch]
            optimiser.zero_grad()
            loss(*(one[at] for one in fitted)).backward()
            optimiser.step()
        with torch.no_grad():
            losses.append(float(loss(*checked)))
        if losses[-1] < best:
            best, since = losses[-1], epoch
            kept = [one.detach().cpu().numpy().astype(np.float64) for one in parameters]
        elif not kept or epoch - since >= training.patience:
            break
    if not kept:
        raise OutlayError(
            f"the predictor's training diverged (validation loss {losses[-1]}). Lower learning_rate={training.learning_rate}"
        )
    return tuple(zip(kept[::2], kept[1::2], strict=True)), tuple(losses)


@contextmanager
def _one_thread() -> Iterator[None]:
    """These matrices are too small to share: threads would wait for each other, and on a busy machine for long."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _device(name: str) -> str:
    import torch

    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise ConfigError("device=cuda: torch sees no CUDA device here. Use auto or cpu")
    return "cuda" if there and name != "cpu" else "cpu"
