"""Queries as cases: what was known of each before it was answered, and what answering it cost."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outlay.errors import ConfigError, DataError, nearest
from outlay.inflation import inflation
from outlay.inflation.features import FOUR, features

if TYPE_CHECKING:
    import numpy as np

    from outlay.agent.ledger import Line, Trace

HIGH = 2.0
"""Inflation from which a query counts as high."""
COLUMNS = ("features", "tier", "dataset", "inflation", "solved", "ids")


@dataclass(frozen=True, eq=False)
class Cases:
    """What was known of queries before they were answered, and what answering them cost; one row a query and tier.

    Raises:
        DataError: columns of different lengths, or an inflation that is not at least 1.
    """

    features: "np.ndarray"  # (n, d) float64; nan where unknown
    names: tuple[str, ...]  # (d,)
    tier: "np.ndarray"  # (n,) str, the tier that answered
    dataset: "np.ndarray"  # (n,) str
    inflation: "np.ndarray"  # (n,) float64
    solved: "np.ndarray"  # (n,) bool: the last attempt was right
    ids: "np.ndarray"  # (n,) str, of the example
    notes: tuple[str, ...] = ()  # what a reader of figures must know

    def __post_init__(self) -> None:
        import numpy as np

        count = len(self.ids)
        if self.features.shape != (count, len(self.names)):
            raise DataError(
                f"features have shape {self.features.shape}: expected ({count}, {len(self.names)}), one column each for "
                f"{', '.join(self.names)}"
            )
        for name in ("tier", "dataset", "inflation", "solved"):
            if (shape := getattr(self, name).shape) != (count,):
                raise DataError(f"{name} has shape {shape}: expected ({count},), one per id")
        wrong = np.flatnonzero(~(np.isfinite(self.inflation) & (self.inflation >= 1)))
        if len(wrong):
            at = wrong[0]
            raise DataError(
                f"case {at} ({self.dataset[at]}/{self.ids[at]}): inflation {self.inflation[at]:g} is not at least 1"
            )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def high(self) -> "np.ndarray":
        """(n,) bool: inflation of at least 2."""
        high: np.ndarray = self.inflation >= HIGH
        return high

    @property
    def keys(self) -> "np.ndarray":
        """(n,) str: one per query, whatever the tier."""
        import numpy as np

        return np.array([f"{data}/{one}" for data, one in zip(self.dataset, self.ids, strict=True)], str)

    @property
    def digest(self) -> str:
        """sha256 over all columns."""
        import numpy as np

        digest = hashlib.sha256(json.dumps(self.names).encode())
        for column in (self.features, self.inflation):
            digest.update(np.ascontiguousarray(column, np.float64).tobytes())
        for words in (self.tier, self.dataset, self.ids):
            digest.update(json.dumps([str(word) for word in words]).encode())
        return digest.hexdigest()

    def only(self, chosen: "np.ndarray") -> "Cases":
        """The rows of a mask or of positions."""
        columns = {name: getattr(self, name)[chosen] for name in COLUMNS}
        return Cases(**columns, names=self.names, notes=self.notes)

    def column(self, name: str) -> "np.ndarray":
        """(n,) one feature."""
        column: np.ndarray = self.features[:, self.names.index(name)]
        return column


def cases(traces: "Iterable[Trace]", dataset: str, names: Sequence[str] = FOUR) -> Cases:
    """One case for each query and tier that answered it (`Ledger.traces(split)` gives the traces).

    Features are the probe's, whichever tier was probed. Inflation is that of the attempts on the case's own tier, and
    it counts as solved where the last of them is right: by its score, else by a verdict. Queries without a probe or
    without a billed attempt are left out, and `notes` says how many.

    Raises:
        ConfigError: a name that is not a feature.
    """
    import numpy as np

    rows: list[list[float]] = []
    found: list[tuple[str, str, float, bool]] = []
    without_probe = without_bill = reused = 0
    for trace in traces:
        if not trace.probes:
            without_probe += 1
            continue
        row = row_of(features(trace), names)
        for tier in dict.fromkeys(line.tier for line in trace.attempts):
            attempts = [line for line in trace.attempts if line.tier == tier]
            cost = inflation(attempts)
            if not cost >= 1:  # nan: every call failed
                without_bill += 1
                continue
            reused += any(line.kind == "probe" for line in attempts)
            rows.append(row)
            found.append((trace.query.id, tier, cost, _right(trace, attempts[-1])))
    told = {
        f"{without_probe} queries of {dataset} without a probe are left out": without_probe,
        f"{without_bill} cases of {dataset} without a billed attempt are left out": without_bill,
        f"{reused} of {len(found)} cases of {dataset} reuse the probe as attempts: features saw what they predict": reused,
    }
    return Cases(
        features=np.array(rows, float).reshape(len(rows), len(names)),
        names=tuple(names),
        tier=np.array([tier for _, tier, _, _ in found], str),
        dataset=np.full(len(found), dataset),
        inflation=np.array([cost for _, _, cost, _ in found], float),
        solved=np.array([right for _, _, _, right in found], bool),
        ids=np.array([key for key, _, _, _ in found], str),
        notes=tuple(note for note, count in told.items() if count),
    )


def _right(trace: "Trace", attempt: "Line") -> bool:
    if attempt.score is not None:
        return attempt.score >= 1
    verdicts = [
        line.verdict for line in trace.lines if line.attempt == attempt.attempt and line.kind == "verify"
    ]
    return any(verdict is True for verdict in verdicts)


def joined(tables: Sequence[Cases]) -> Cases:
    """Cases of several data sets in one table.

    Raises:
        DataError: no table, or tables with different features.
    """
    import numpy as np

    if not tables or len({one.names for one in tables}) > 1:
        kinds = "; ".join(dict.fromkeys(", ".join(one.names) for one in tables))
        raise DataError(f"only cases with the same features can be joined; these have: {kinds or 'none'}")
    columns = {name: np.concatenate([getattr(one, name) for one in tables]) for name in COLUMNS}
    notes = tuple(dict.fromkeys(note for one in tables for note in one.notes))
    return Cases(**columns, names=tables[0].names, notes=notes)


def row_of(found: object, names: Sequence[str]) -> list[float]:
    """A query's `Features` as a row, in the order of names.

    Raises:
        ConfigError: a name that is not a feature.
    """
    known = [name for name in dir(found) if not name.startswith("_")]
    for name in names:
        if name not in known:
            raise ConfigError(f"no feature '{name}'. {nearest(name, known)}")
    return [float(getattr(found, name)) for name in names]
