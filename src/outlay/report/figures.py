"""Figures of a sweep, as PNG and SVG."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from outlay.report.sheets import judged, names, only_held_out
from outlay.report.tables import Point, by_dataset, headline, labels, legend, marks, size, varying
from outlay.report.trials import trials

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette: told apart by colour-blind readers too."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def quality_over_cost(points: Sequence[Point], folder: Path) -> list[Path]:
    """Quality (with its 95 % interval) over tokens per query, a panel for each data set; budgets of one selector joined.

    Of more lines than can be told apart, those with a point that no other run beats in both are named.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FuncFormatter

    apart = only_held_out(points)
    panels = by_dataset(judged(points))
    figure, axes = plt.subplots(
        1, len(panels), figsize=(5.4 * len(panels), 4.2), squeeze=False, layout="constrained"
    )
    for axis, (dataset, group) in zip(axes[0], panels.items(), strict=True):
        quality = headline(group)
        settings = [key for key in varying(group) if key != "dataset" and key.partition(".")[0] != "budget"]
        lines: dict[str, list[Point]] = {}
        tuned = names(group) if trials(group) else {}
        for point in group:
            values = labels(point)
            named = [str(values[key]) for key in settings if key in values] or [point.name]
            name = tuned.get(point.run_id) or f"{' · '.join(dict.fromkeys(named))} {marks(point)}".rstrip()
            lines.setdefault(name, []).append(point)
        shown = _told_apart(lines, quality)
        for at, name in enumerate(sorted(lines, key=lambda name: name in shown)):
            number = list(shown).index(name) if name in shown else -1
            members = lines[name]
            members = sorted(members, key=lambda point: point.metrics["cost/tokens_per_query"])
            x = [point.metrics["cost/tokens_per_query"] for point in members]
            y = [point.metrics.get(quality, math.nan) for point in members]
            low = [
                max(0.0, mean - point.metrics.get(f"{quality}_lo", mean))
                for mean, point in zip(y, members, strict=True)
            ]
            high = [
                max(0.0, point.metrics.get(f"{quality}_hi", mean) - mean)
                for mean, point in zip(y, members, strict=True)
            ]
            axis.errorbar(
                x,
                y,
                yerr=[low, high],
                label=name if number >= 0 else "" if at else f"{len(lines) - len(shown)} others",
                color=COLORS[number % len(COLORS)] if number >= 0 else "#bbbbbb",
                marker=MARKERS[number % len(MARKERS)] if number >= 0 else "",
                markersize=6,
                linewidth=1.4 if number >= 0 else 0.7,
                elinewidth=0.8 if number >= 0 else 0,
                capsize=2.5 if number >= 0 else 0,
                alpha=0.9,
            )
        axis.set_title(f"{dataset} ({size(group)}{apart})", loc="left", fontsize=11)
        axis.set_xlabel("tokens per query")
        axis.set_ylabel(f"{quality.removeprefix('quality/').replace('_', ' ')}, 95 % interval")
        axis.set_ylim(bottom=0)
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", linewidth=0.4, alpha=0.6)
        # Below the axes, as many in a row as there is room for: inside, it would hide points.
        columns = max(1, min(4, 60 // (max(map(len, shown)) + 6)))
        axis.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=columns)
    if legend(points):
        figure.supxlabel("\n".join(legend(points)), fontsize=8, color="#555555")
    written = [folder / f"quality_over_cost.{ending}" for ending in ("png", "svg")]
    for path in written:
        figure.savefig(path, dpi=160)
    plt.close(figure)
    return written


def _told_apart(lines: Mapping[str, Sequence[Point]], quality: str) -> list[str]:
    """The lines to name: all where they are few, else those with a point that no deployable run beats in both."""
    most = len(COLORS)
    if len(lines) <= most:
        return list(lines)

    def place(point: Point) -> tuple[float, float]:
        return point.metrics["cost/tokens_per_query"], -point.metrics.get(quality, -math.inf)

    bounds = [name for name, members in lines.items() if any(point.oracle for point in members)]
    best, named = math.inf, dict[str, None]()
    places = (
        (place(point), name) for name, members in lines.items() if name not in bounds for point in members
    )
    for (_, loss), name in sorted(places):
        if loss < best:
            best = loss
            named[name] = None
    # The later, dearer and better ones first: there a choice weighs most.
    return [*bounds, *reversed(list(named))][:most]
