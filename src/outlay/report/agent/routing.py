"""Every routing policy on the same queries and draws: accuracy over cost, the areas under it, and what gold is worth.

Points of one policy at several budgets make a curve. Bands and intervals resample queries, the same draws for all
policies, so that differences between policies are paired.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlay.report.agent.lines import spent
from outlay.report.grid.drawing import write_rows
from outlay.report.tables import Point, by_dataset, labels, varying

if TYPE_CHECKING:
    import numpy as np

BUDGETS = (
    "router.mean_cost",
    "router.cost_share",
    "router.strong_share",
    "router.shares",
    "router.threshold",
    "router.token_budget",
    "router.tier",
)
"""Options that move a policy along its curve."""
RESAMPLES = 300
LEVELS = (0.25, 0.5, 0.75)
"""Budgets that accuracies are compared at, as shares of the way from the cheapest single tier to the dearest."""
REFERENCE = "frugalgpt"
"""The policy that the paper compares with."""


@dataclass(frozen=True)
class PointRow:
    """One run: what it paid a query, and what it bought. Intervals are 95 %, by a bootstrap over queries."""

    dataset: str
    policy: str
    reads_gold: bool
    budget: str
    queries: int
    accuracy: float
    accuracy_lo: float
    accuracy_hi: float
    cost: float  # compute units a query, probes, verifiers and failed calls included
    cost_lo: float
    cost_hi: float
    cost_p95: float
    cost_max: float
    tokens: float  # a query
    usd: float
    cost_per_correct: float
    tiers: str  # share of queries that each tier answered
    fit_tokens: float  # paid once, on the train and tune splits
    run_id: str


@dataclass(frozen=True)
class PolicyRow:
    """One policy's curve, on the cost range of the single tiers, which is the same for all.

    Every policy may send all queries to the cheapest tier, so that tier's point is on every curve (ours): without it, a
    policy whose cheapest setting is dear would be worth nothing below it.
    """

    dataset: str
    policy: str
    reads_gold: bool
    points: int
    aiq: float  # mean accuracy of its hull, with the cheapest tier, over the range
    aiq_lo: float
    aiq_hi: float
    apgr: float  # share of the gap between the cheapest and the best single tier that it recovers
    apgr_lo: float
    apgr_hi: float
    at_25: float  # accuracy at a quarter of the range, mixing settings where that buys more; nan: nothing so cheap
    at_50: float
    at_75: float
    cost_at_best: float  # least cost for the accuracy of the best single tier; nan: never reached
    cost_at_best_lo: float
    cost_at_best_hi: float
    oracle_gap: float  # accuracy of the oracle at this policy's dearest point's cost, less its own
    over_reference: float  # mean over the range of (own accuracy - frugalgpt's), with its paired interval
    over_reference_lo: float
    over_reference_hi: float
    cost_over_reference: float  # cost at the reference's best accuracy over the reference's, less one
    cost_over_reference_lo: float
    cost_over_reference_hi: float


@dataclass(frozen=True)
class PremiumRow:
    """What stopping on the answer key adds to the same policy without it."""

    dataset: str
    policy: str
    budget: str
    accuracy_points: float  # with its paired interval
    accuracy_points_lo: float
    accuracy_points_hi: float
    cost_ratio: float  # cost with gold over cost without


@dataclass(frozen=True)
class _Curve:
    policy: str
    gold: bool
    points: tuple[Point, ...]
    right: "np.ndarray"  # (points, queries)
    cost: "np.ndarray"


def routing(points: Sequence[Point], folder: Path) -> list[Path]:
    """routing_points.csv, routing.csv, routing.md and figure; nothing where fewer than two routers ran."""
    routed = [point for point in points if "quality/accuracy" in point.metrics]
    rows: list[PointRow] = []
    policies: list[PolicyRow] = []
    premiums: list[PremiumRow] = []
    curves: dict[str, list[_Curve]] = {}
    for dataset, group in by_dataset(routed).items():
        if len({point.choices.get("router") for point in group}) < 2:
            continue
        found = _curves(group)
        curves[dataset] = found
        rows += [row for curve in found for row in _point_rows(dataset, curve)]
        policies += _policy_rows(dataset, found)
        premiums += _premiums(dataset, found)
    if not rows:
        return []
    text = folder / "routing.md"
    text.write_text(_markdown(rows, policies, premiums), encoding="utf-8")
    written = [
        *write_rows(rows, folder / "routing_points.csv"),
        *write_rows(policies, folder / "routing.csv"),
    ]
    numbers = folder / "routing_metrics.json"
    numbers.write_text(json.dumps(_metrics(policies), indent=1) + "\n", encoding="utf-8")
    written.append(numbers)
    if premiums:
        written += write_rows(premiums, folder / "gold_premium.csv")
    return [*written, text, *_figure(rows, folder)]


def _metrics(policies: Sequence[PolicyRow]) -> dict[str, float]:
    """The parent run's metrics: routing/aiq/<policy>, and the like."""
    found: dict[str, float] = {}
    several = len({row.dataset for row in policies}) > 1
    for row in policies:
        policy = re.sub(r"[^\w. -]+", "-", f"{row.dataset} {row.policy}" if several else row.policy)
        values = {"aiq": row.aiq, "apgr": row.apgr, "accuracy_at_budget": row.at_50}
        values |= {"cost_at_accuracy": row.cost_at_best, "oracle_gap": row.oracle_gap}
        found |= {f"routing/{name}/{policy}": value for name, value in values.items() if math.isfinite(value)}
    return found


# ---------------------------------------------------------------- curves


def _curves(points: Sequence[Point]) -> list[_Curve]:
    """The policies, each with its points on the queries that all runs share, cheapest first."""
    import numpy as np

    read = {point.run_id: spent(point.folder) for point in points}
    ids = sorted(set.intersection(*(set(one) for one in read.values())))
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(_policy(point, points), []).append(point)
    curves = []
    for policy, group in groups.items():
        right = np.array([[read[p.run_id][one].right for one in ids] for p in group], float)
        cost = np.array([[read[p.run_id][one].units for one in ids] for p in group], float)
        order = np.argsort(cost.mean(axis=1), kind="stable")
        gold = any(point.oracle for point in group)
        curves.append(_Curve(policy, gold, tuple(group[at] for at in order), right[order], cost[order]))
    return curves


def _policy(point: Point, points: Sequence[Point]) -> str:
    """The router, and of its settings those that vary and are no budget."""
    own = labels(point)
    keys = [
        key
        for key in varying(points)
        if key in own
        and key not in (*BUDGETS, "router", "dataset", "generator")
        and key.partition(".")[0] in ("router", "retry", "probe", "prompt")
    ]
    router = point.choices.get("router", "")
    same = [one for one in points if one.choices.get("router") == router]
    said = [
        str(own[key])
        for key in keys
        if len({str(labels(one).get(key)) for one in same}) > 1 or key == "retry.stop"
    ]
    return " · ".join(dict.fromkeys([router, *said]))


def _budget(point: Point) -> str:
    """Where on its curve a run stands."""
    own = labels(point)
    for key in BUDGETS:
        if own.get(key) is not None:
            return f"{key.rpartition('.')[2]} {own[key]}"
    return ""


def _tiers(points: Sequence[_Curve]) -> list[tuple[float, float]]:
    """(cost, accuracy) of each single tier, tried once where that ran: the ends of every curve's range."""
    single = [
        (float(curve.cost[at].mean()), float(curve.right[at].mean()), curve.points[at])
        for curve in points
        if not curve.gold
        for at in range(len(curve.points))
        if curve.points[at].choices.get("router") == "static"
    ]
    once = [one for one in single if one[2].choices.get("retry") == "none"] or single
    return [(cost, accuracy) for cost, accuracy, _ in once]


# ---------------------------------------------------------------- rows


def _point_rows(dataset: str, curve: _Curve) -> list[PointRow]:
    import numpy as np

    from outlay.score.statistics import interval

    rows = []
    for at, point in enumerate(curve.points):
        right, cost = curve.right[at], curve.cost[at]
        of = spent(point.folder)
        tiers: dict[str, int] = {}
        for one in of.values():
            tiers[one.tier or "none"] = tiers.get(one.tier or "none", 0) + 1
        shares = ", ".join(f"{tier} {100 * number / len(of):.0f} %" for tier, number in sorted(tiers.items()))
        rows.append(
            PointRow(
                dataset,
                curve.policy,
                point.oracle,
                _budget(point),
                right.size,
                *interval(right),
                *interval(cost),
                float(np.percentile(cost, 95)),
                float(cost.max()),
                float(np.mean([one.tokens for one in of.values()])),
                float(np.mean([one.usd for one in of.values()])),
                float(cost.sum() / right.sum()) if right.sum() else math.inf,
                shares,
                point.metrics.get("fit/tokens", 0.0),
                point.run_id,
            )
        )
    return rows


def _policy_rows(dataset: str, curves: Sequence[_Curve]) -> list[PolicyRow]:
    import numpy as np

    from outlay.score.curves import accuracy_at_budget, aiq, apgr, tokens_at_accuracy

    tiers = _tiers(curves)
    if not tiers:
        return []
    low, high = min(cost for cost, _ in tiers), max(cost for cost, _ in tiers)
    weak, strong = min(tiers), max(tiers, key=lambda one: one[1])
    curves = [_with_cheapest(curve, curves) for curve in curves]
    draws = _draws(curves)
    reference = next(
        (curve for curve in curves if curve.policy.split(" · ")[0] == REFERENCE and not curve.gold), None
    )
    oracle = next((curve for curve in curves if curve.policy.split(" · ")[0] == "oracle"), None)

    def area(cost: Any, right: Any) -> float:
        return aiq(cost, right, low, high)

    def least(cost: Any, right: Any) -> float:
        return tokens_at_accuracy(cost, right, strong[1])

    def recovered(cost: Any, right: Any) -> float:
        return apgr(cost, right, weak, strong)

    rows = []
    for curve in curves:
        cost, right = curve.cost.mean(axis=1), curve.right.mean(axis=1)
        quarter, half, most = (
            accuracy_at_budget(cost, right, low + level * (high - low)) for level in LEVELS
        )
        gap = math.nan
        if oracle is not None:
            at = accuracy_at_budget(oracle.cost.mean(axis=1), oracle.right.mean(axis=1), float(cost.max()))
            gap = at - float(right[cost.argmax()])
        over = cheaper = (math.nan, math.nan, math.nan)
        if reference is not None and reference is not curve:
            top = reference.right.mean(axis=1).max()

            def dearer(c: Any, r: Any, other_c: Any, other_r: Any, top: float = float(top)) -> float:
                return tokens_at_accuracy(c, r, top) / tokens_at_accuracy(other_c, other_r, top) - 1

            over = _estimated(lambda c, r, oc, orr: area(c, r) - area(oc, orr), draws, curve, reference)
            cheaper = _estimated(dearer, draws, curve, reference)
        rows.append(
            PolicyRow(
                dataset,
                curve.policy,
                curve.gold,
                len(curve.points),
                *_estimated(area, draws, curve),
                *_estimated(recovered, draws, curve),
                quarter,
                half,
                most,
                *_estimated(least, draws, curve),
                gap,
                *over,
                *cheaper,
            )
        )
    return sorted(rows, key=lambda row: (row.reads_gold, -np.nan_to_num(row.aiq, nan=-1)))


def _with_cheapest(curve: _Curve, curves: Sequence[_Curve]) -> _Curve:
    """The curve with the cheapest single tier's run as one more point."""
    import numpy as np

    single = [
        (float(one.cost[at].mean()), one.right[at], one.cost[at])
        for one in curves
        if not one.gold
        for at in range(len(one.points))
        if one.points[at].choices.get("router") == "static"
    ]
    _, right, cost = min(single, key=lambda one: one[0])
    return replace(curve, right=np.vstack([right, curve.right]), cost=np.vstack([cost, curve.cost]))


def _draws(curves: Sequence[_Curve]) -> "np.ndarray":
    """(1 + RESAMPLES, queries) weights: first the sample itself, then how often each query was drawn."""
    import numpy as np

    n = curves[0].right.shape[1]
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES)
    weights: np.ndarray = np.vstack([np.ones(n), drawn]) / n
    return weights


def _estimated(
    statistic: Callable[..., float], draws: "np.ndarray", *curves: _Curve
) -> tuple[float, float, float]:
    """A statistic of the curves' mean costs and accuracies, with its percentile interval over the draws."""
    import numpy as np

    means = [axis @ draws.T for curve in curves for axis in (curve.cost, curve.right)]
    values = np.array([statistic(*(axis[:, at] for axis in means)) for at in range(len(draws))], float)
    known = values[1:][~np.isnan(values[1:])]
    if math.isnan(values[0]) or known.size < 0.5 * RESAMPLES:
        return float(values[0]), math.nan, math.nan
    return float(values[0]), float(np.quantile(known, 0.025)), float(np.quantile(known, 0.975))


def _premiums(dataset: str, curves: Sequence[_Curve]) -> list[PremiumRow]:
    """Runs that differ in reading gold only: by their stop rule, or by what a cascade verifies with."""
    from outlay.score.statistics import paired_difference

    keys = ("retry.stop", "router.verify")

    def rest(point: Point) -> str:
        own = {key: value for key, value in labels(point).items() if key not in keys}
        return json.dumps(own, sort_keys=True, default=str)

    plain: Mapping[str, tuple[_Curve, int]] = {
        rest(point): (curve, at)
        for curve in curves
        for at, point in enumerate(curve.points)
        if not point.oracle
    }
    rows = []
    for curve in curves:
        for at, point in enumerate(curve.points):
            if not point.oracle or rest(point) not in plain:
                continue
            other, where = plain[rest(point)]
            gap = paired_difference(curve.right[at], other.right[where])
            cost = float(curve.cost[at].mean() / other.cost[where].mean())
            budget = _budget(point)
            rows.append(
                PremiumRow(
                    dataset, f"{curve.policy} against {other.policy}", budget, gap.value, gap.lo, gap.hi, cost
                )
            )
    return rows


# ---------------------------------------------------------------- how they are shown


def _markdown(rows: Sequence[PointRow], policies: Sequence[PolicyRow], premiums: Sequence[PremiumRow]) -> str:
    lines = [
        "# Routing: what each policy buys",
        "",
        "Cost: compute units a query, with every probe, verifier and failed call. Same test queries, same draws; 95 %",
        f"intervals by {RESAMPLES} resamples of the queries, paired between policies. * reads the answer key: a bound.",
        "AIQ: mean accuracy of a policy's hull from the cheapest to the dearest single tier, the cheapest tier being on every",
        "curve. APGR: the share of the gap between the cheapest and the best single tier that it recovers. Fitting is paid",
        "once, and stands apart.",
    ]
    for dataset in dict.fromkeys(row.dataset for row in rows):
        lines += [
            "",
            f"## {dataset}: policies",
            "",
            "| policy | AIQ | APGR | accuracy at ¼, ½, ¾ of the range | cost at the best tier's accuracy | oracle gap | AIQ over frugalgpt | cost at its accuracy |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
        ]
        for policy in (one for one in policies if one.dataset == dataset):
            lines.append(
                f"| {_starred(policy)} | {_percent(policy, 'aiq')} | "
                f"{_plain(policy, 'apgr', 2)} | "
                + ", ".join(_share(value) for value in (policy.at_25, policy.at_50, policy.at_75))
                + f" | {_plain(policy, 'cost_at_best', 1)} | {_share(policy.oracle_gap)} | "
                f"{_percent(policy, 'over_reference', signed=True)} | "
                f"{_percent(policy, 'cost_over_reference', signed=True)} |"
            )
        lines += [
            "",
            f"## {dataset}: every run",
            "",
            "| policy | budget | accuracy | cost a query | p95 | most | cost a right answer | tokens a query | answered by | tokens to fit |",
            "|---|---|---:|---:|---:|---:|---:|---:|---|---:|",
        ]
        for row in (one for one in rows if one.dataset == dataset):
            lines.append(
                f"| {_starred(row)} | {row.budget} | {_percent(row, 'accuracy')} | "
                f"{_plain(row, 'cost', 1)} | {row.cost_p95:,.1f} | {row.cost_max:,.1f} | {row.cost_per_correct:,.1f} | "
                f"{row.tokens:,.0f} | {row.tiers} | {row.fit_tokens:,.0f} |"
            )
        own = [one for one in premiums if one.dataset == dataset]
        if own:
            lines += [
                "",
                f"## {dataset}: what the answer key is worth",
                "",
                "| with and without gold | budget | points of accuracy | cost with over without |",
                "|---|---|---:|---:|",
                *(
                    f"| {one.policy} | {one.budget} | {_percent(one, 'accuracy_points', signed=True)} | {one.cost_ratio:.2f} |"
                    for one in own
                ),
            ]
    return "\n".join(lines) + "\n"


def _starred(row: Any) -> str:
    return row.policy + (" \\*" if row.reads_gold else "")


def _percent(row: Any, name: str, signed: bool = False) -> str:
    value, low, high = (100 * getattr(row, f"{name}{end}") for end in ("", "_lo", "_hi"))
    if math.isnan(value):
        return "–"
    form = "+.1f" if signed else ".1f"
    between = "" if math.isnan(low) else f" [{low:{form}}, {high:{form}}]"
    return f"{value:{form}}{'' if signed else ' %'}{between}"


def _plain(row: Any, name: str, digits: int) -> str:
    value, low, high = (getattr(row, f"{name}{end}") for end in ("", "_lo", "_hi"))
    if math.isnan(value):
        return "–"
    return f"{value:,.{digits}f}" + ("" if math.isnan(low) else f" [{low:,.{digits}f}, {high:,.{digits}f}]")


def _share(value: float) -> str:
    return "–" if math.isnan(value) else f"{100 * value:.1f} %"


def _figure(rows: Sequence[PointRow], folder: Path) -> list[Path]:
    """Accuracy over cost, a row of panels for each data set: policies that could be deployed, and those that read gold."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    from outlay.report.figures import COLORS, MARKERS

    datasets = list(dict.fromkeys(row.dataset for row in rows))
    kinds = [gold for gold in (False, True) if any(row.reads_gold == gold for row in rows)]
    figure, axes = plt.subplots(
        len(datasets),
        len(kinds),
        figsize=(7.6 * len(kinds) + 1.5, 4.4 * len(datasets) + 0.5),
        squeeze=False,
        layout="constrained",
    )
    for line, dataset in zip(axes, datasets, strict=True):
        for axis, gold in zip(line, kinds, strict=True):
            shown = [row for row in rows if row.dataset == dataset]
            names = list(dict.fromkeys(row.policy for row in shown if row.reads_gold == gold))
            for at, policy in enumerate(names):
                own = [row for row in shown if row.policy == policy]
                style = {"color": COLORS[at % len(COLORS)], "marker": MARKERS[at % len(MARKERS)]}
                dashes = ("-", "--", ":", "-.")[at // len(COLORS) % 4]
                x = [row.cost for row in own]
                axis.plot(
                    x,
                    [100 * row.accuracy for row in own],
                    linestyle=dashes,
                    markersize=4.5,
                    label=policy,
                    **style,
                )
                axis.fill_between(
                    x,
                    [100 * row.accuracy_lo for row in own],
                    [100 * row.accuracy_hi for row in own],
                    color=style["color"],
                    alpha=0.07,
                    linewidth=0,
                )
            axis.set_title(
                f"{dataset}: {'stops on the answer key (bounds)' if gold else 'deployable'}", fontsize=10
            )
            axis.set_xlabel("compute units a query")
            axis.set_ylabel("right, %")
            axis.set_xscale("log")
            axis.spines[["top", "right"]].set_visible(False)
            axis.grid(linewidth=0.4, alpha=0.6)
            axis.legend(frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    written = []
    for ending in ("png", "svg"):
        path = folder / f"routing.{ending}"
        figure.savefig(path, dpi=160)
        written.append(path)
    plt.close(figure)
    return written
