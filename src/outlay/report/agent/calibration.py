"""Whether a foretold chance of inflation is the chance: P(inflation ≥ 2) against the share that was seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outlay.report.agent.prediction import foretellable, traces
from outlay.report.grid.drawing import panels, save, write_rows
from outlay.report.tables import Point, labels

BINS = 10
"""Of equal width, as in the expected calibration error."""


@dataclass(frozen=True)
class CalibrationRow:
    """The test queries whose foretold chance lies in one bin; the share has Clopper and Pearson's 95 % interval."""

    tier: str
    low: float
    high: float
    queries: int
    predicted: float  # mean foretold chance
    observed: float
    observed_lo: float
    observed_hi: float
    run_ids: str  # of the test runs, separated by blanks


def calibration(points: Sequence[Point], folder: Path) -> list[Path]:
    """calibration.csv and figure, of the predictor that `foretelling` saved beside it; nothing without one."""
    from outlay.inflation.cases import cases, joined
    from outlay.inflation.predictor import load
    from outlay.score.statistics import clopper_pearson

    if not (folder / "predictor").is_dir():
        return []
    import numpy as np

    runs = [point for point in points if foretellable(point)]
    runs = [point for point in runs if labels(point)["dataset.split"] not in ("train", "tune")]
    tables = [one for point in runs if len(one := cases(traces(point), point.choices["dataset"]))]
    if not tables:
        return []
    predictor, asked = load(folder / "predictor"), joined(tables)
    rows = []
    for tier in sorted(set(asked.tier.tolist())):
        own = asked.only(asked.tier == tier)
        chance = predictor.probability(tier, own.features)
        place = np.minimum((chance * BINS).astype(int), BINS - 1)
        for at in sorted(set(place.tolist())):
            inside = place == at
            seen = clopper_pearson(int(own.high[inside].sum()), int(inside.sum()))
            ids = " ".join(dict.fromkeys(point.run_id for point in runs))
            rows.append(
                CalibrationRow(
                    tier,
                    at / BINS,
                    (at + 1) / BINS,
                    int(inside.sum()),
                    float(chance[inside].mean()),
                    *seen,
                    ids,
                )
            )
    return write_rows(rows, folder / "calibration.csv") + _figure(rows, folder)


def _figure(rows: Sequence[CalibrationRow], folder: Path) -> list[Path]:
    from outlay.report.figures import COLORS

    tiers = list(dict.fromkeys(row.tier for row in rows))
    figure, axes = panels(1, len(tiers), width=3.6, height=3.4)
    for at, (axis, tier) in enumerate(zip(axes[0], tiers, strict=True)):
        own = [row for row in rows if row.tier == tier]
        axis.plot([0, 1], [0, 1], color="#999999", linewidth=0.8, linestyle="--")
        axis.errorbar(
            [row.predicted for row in own],
            [row.observed for row in own],
            yerr=[
                [row.observed - row.observed_lo for row in own],
                [row.observed_hi - row.observed for row in own],
            ],
            color=COLORS[at % len(COLORS)],
            marker="o",
            markersize=4.5,
            capsize=2,
        )
        axis.set_title(f"{tier} ({sum(row.queries for row in own)} queries)", loc="left", fontsize=10)
        axis.set_xlabel("foretold P(inflation ≥ 2)")
        axis.set_xlim(-0.02, 1.02)
        axis.set_ylim(-0.02, 1.02)
    axes[0][0].set_ylabel("share with inflation ≥ 2")
    return save(figure, folder / "calibration")
