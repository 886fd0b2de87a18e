"""The selection problem as arrays, and the objective F = alpha R + beta C + gamma D that RCD maximises."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outlay.context import Problem, Unit
from outlay.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np


def problem_from_arrays(
    vectors: Any,
    query: Any,
    costs: Any,
    budgets: Sequence[int],
    units: Sequence[Unit] = (),
    seed: int = 0,
) -> Problem:
    """A checked `Problem`: rows of length 1 (a zero row stays zero), relevance in [0, 1].

    Args:
        vectors: (n, d) finite floats; n may be 0.
        query: (d,) or (q, d) floats: relevance is the maximum over queries of max(0, cos).
            None or (0, d): centroid mode, relevance is max(0, cos) with the mean of the rows.
        costs: (n,) whole numbers of tokens; 0 is lifted to 1, so that a gain per token exists (ours).
        budgets: tokens, at least 1 each.
        units: the units' spans and headers, one per row, or none.

    Raises:
        ConfigError: wrong shapes, values that are not finite, costs or budgets that are not whole or negative.
    """
    import numpy as np

    rows = _floats("vectors", vectors)
    if rows.size == 0:
        rows = rows.reshape(0, rows.shape[1] if rows.ndim == 2 else 0)
    if rows.ndim != 2:
        raise ConfigError(f"vectors has shape {rows.shape}: expected (n, d), one row per unit")
    count, width = rows.shape
    tokens = np.maximum(_whole("costs", costs, least=0), 1)
    if tokens.shape != (count,):
        raise ConfigError(f"costs has shape {tokens.shape}: expected ({count},), one per row of vectors")
    if units and len(units) != count:
        raise ConfigError(f"units holds {len(units)} units: expected {count}, one per row of vectors")
    limits = _whole("budgets", budgets, least=1)
    if limits.ndim != 1:
        raise ConfigError(f"budgets has shape {limits.shape}: expected a list of tokens")

    rows = _unit_rows(rows)
    asked = _floats("query", [] if query is None else query)
    if asked.size == 0:
        asked = rows.sum(axis=0, keepdims=True)
    asked = np.atleast_2d(asked)
    if asked.ndim != 2 or (count and asked.shape[1] != width):
        raise ConfigError(f"query has shape {asked.shape}: expected ({width},) or (q, {width})")
    relevance = np.zeros(0)
    if count:
        cosines: np.ndarray = rows @ _unit_rows(asked).T
        relevance = np.clip(cosines.max(axis=1), 0.0, 1.0)
    problem = Problem(
        vectors=rows.astype(np.float32),
        relevance=relevance,
        costs=tokens,
        budgets=tuple(limits.tolist()),
        units=tuple(units),
        seed=seed,
    )
    same = first_copies(problem.vectors)
    relevance[:] = relevance[same]  # BLAS rounds equal rows differently, and ties must go by position
    return problem


def _floats(name: str, values: Any) -> "np.ndarray":
    import numpy as np

    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} cannot be read as an array of numbers: {error}") from None
    if not np.isfinite(array).all():
        place = tuple(int(axis) for axis in np.argwhere(~np.isfinite(array))[0])
        raise ConfigError(f"{name} holds {array[place]} at {place}: every value must be finite")
    return array


def _whole(name: str, values: Any, least: int) -> "np.ndarray":
    import numpy as np

    array = _floats(name, values)
    wrong = np.argwhere((array != np.floor(array)) | (array < least) | (array > 2**53))
    if len(wrong):
        place = tuple(int(axis) for axis in wrong[0])
        raise ConfigError(
            f"{name} holds {array[place]:g} at {place}: expected whole tokens, at least {least}"
        )
    return array.astype(np.int64)


def _unit_rows(rows: "np.ndarray") -> "np.ndarray":
    import numpy as np

    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    scaled = rows / np.where(
        largest > 0, largest, 1.0
    )  # first by the largest entry: squares neither over- nor underflow
    length = np.linalg.norm(scaled, axis=1, keepdims=True)
    unit: np.ndarray = scaled / np.where(length > 0, length, 1.0)
    return unit


def first_copies(rows: "np.ndarray") -> "np.ndarray":
    """(n,) the position of the first row identical to each row."""
    import numpy as np

    first = np.arange(len(rows))
    if rows.shape[1] == 0:
        return np.zeros_like(first)
    heads, head_of = np.unique(
        rows[:, 0], return_inverse=True
    )  # a cheap first sieve: most documents end here
    if len(heads) < len(rows):
        suspects = np.flatnonzero(np.bincount(head_of)[head_of] > 1)
        seen: dict[bytes, int] = {}
        for position in suspects.tolist():
            first[position] = seen.setdefault(rows[position].tobytes(), position)
    return first


@dataclass(frozen=True)
class Objective:
    """F(S) = sum_{i in S} reward_i + sum_j weight_j max_{i in S} max(0, cos_ij) + diversity log det(I + scale K_S).

    Monotone and submodular, because every coefficient is at least 0 and the Gram matrix K of the rows is
    positive semidefinite. reward = alpha * relevance, weight = beta * w_j.
    """

    vectors: "np.ndarray"  # (n, d) float32
    reward: "np.ndarray"  # (n,) float64
    weight: "np.ndarray"  # (n,) float64
    diversity: float
    scale: float

    def value(self, kept: Iterable[int]) -> float:
        """F of a set of units, in float64 from the vectors."""
        import numpy as np

        chosen = np.fromiter(kept, dtype=np.int64)
        if not len(chosen):
            return 0.0
        rows = self.vectors.astype(np.float64)
        covered = np.zeros(len(rows))
        for start in range(0, len(chosen), 256):  # blocks: a long document never holds k rows of n at once
            np.maximum(covered, (rows[chosen[start : start + 256]] @ rows.T).max(axis=0), out=covered)
        kept_rows = rows[chosen]
        return float(self.reward[chosen].sum() + self.weight @ covered) + self.diversity * log_det(
            kept_rows, self.scale
        )


def log_det(rows: "np.ndarray", scale: float) -> float:
    """log det(I + scale * rows rows^T), through the smaller of its two Gram forms (Sylvester)."""
    import numpy as np

    gram = rows @ rows.T if len(rows) <= rows.shape[1] else rows.T @ rows
    return float(np.linalg.slogdet(np.eye(len(gram)) + scale * gram)[1])


def facility_weights(relevance: "np.ndarray", kind: str, decay: float) -> "np.ndarray":
    """(n,) the w_j of the facility location term.

    relevant: w_j = relevance_j, or 1 where nothing is relevant (ours): coverage of what the query asks about. On
        questions it keeps more gold facts than uniform weights, whose coverage of all else outweighs relevance.
    uniform: w_j = 1 (ours): coverage of the whole document; slightly better for summaries (Cochrane, ROUGE-1).
    position: w_j = exp(-decay j) (1 + minmax(relevance)_j) / 2, the authors' code, with decay .04 there. It puts
        98 % of the weight on the first hundred units, so it also rewards position.
    """
    import numpy as np

    if kind == "uniform" or (kind == "relevant" and not relevance.any()):
        return np.ones(len(relevance))
    if kind == "relevant":
        return relevance.astype(np.float64)
    low, high = relevance.min(initial=1.0), relevance.max(initial=0.0)
    scaled = (relevance - low) / (high - low) if high > low else np.zeros(len(relevance))
    return np.asarray(np.exp(-decay * np.arange(len(relevance))) * (0.5 + 0.5 * scaled))
