"""Every routing policy on the same queries and draws: accuracy over cost, the areas under it, and what gold is worth.

Points of one policy at several budgets make a curve; runs that differ in their seed only are one point. Bands and intervals
resample queries, the same draws for all policies and for what they are measured against: all differences are paired.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlay.report.agent.checks import notices
from outlay.report.agent.lines import Spent, spent
from outlay.report.grid.drawing import footnote, save, write_rows
from outlay.report.grid.runs import documents_of
from outlay.report.sheets import notes, number, percent
from outlay.report.tables import Point, by_dataset, labels, needed, varying, word

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


OF_POLICY = ("router", "retry", "probe", "prompt", "embedder")
"""Groups whose settings make a policy; what varies of the others (generator, selector, budget) is what policies run on."""


@dataclass(frozen=True)
class PointRow:
    """One run, or the runs that differ in their seed only: what it paid a query, and what it bought.

    Every column is of the queries that all runs of the setting share. Intervals are 95 %, by a bootstrap over documents
    (over queries, where each has its own); a query asked under several seeds is drawn with all of them.
    """

    dataset: str
    setting: (
        str  # what else varies in the sweep and is no policy's: the generator, the selector, the token budget
    )
    policy: str
    reads_gold: bool
    budget: str
    seeds: int
    queries: int  # of each seed, summed
    accuracy: float
    accuracy_lo: float
    accuracy_hi: float
    cost: float  # compute units a query, probes, verifiers and failed calls included
    cost_lo: float
    cost_hi: float
    cost_p95: float
    cost_max: float
    tokens: float  # a query
    check_tokens: float  # of these, for verifiers' calls
    usd: float
    cost_per_correct: float
    tiers: str  # share of queries that each tier answered
    fit_tokens: float  # paid once, on the train and tune splits
    run_id: str  # of the first seed
    run_ids: str  # of all, separated by blanks


@dataclass(frozen=True)
class PolicyRow:
    """One policy's curve, on the cost range of the single tiers, which is the same for all of a setting.

    Every policy may send all queries to the cheapest tier, so that tier's point is on every curve (ours): without it, a
    policy whose cheapest setting is dear would be worth nothing below it. What a figure is measured against (the cheapest
    and the best tier, the range, the target, the reference) is read off the same resample as the curve itself.
    """

    dataset: str
    setting: str
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
    at_25_lo: float
    at_25_hi: float
    at_50: float
    at_50_lo: float
    at_50_hi: float
    at_75: float
    at_75_lo: float
    at_75_hi: float
    cost_at_best: float  # least cost for the accuracy of the best single tier; infinite: never reached
    cost_at_best_lo: float
    cost_at_best_hi: float
    oracle_gap: float  # accuracy of the oracle at this policy's dearest point's cost, less its own
    oracle_gap_lo: float
    oracle_gap_hi: float
    over_reference: float  # mean over the range of (own accuracy - frugalgpt's), with its paired interval
    over_reference_lo: float
    over_reference_hi: float
    cost_over_reference: (
        float  # cost at the reference's best accuracy over the reference's (nan where 0), less one
    )
    cost_over_reference_lo: float
    cost_over_reference_hi: float
    run_ids: (
        str  # of its points, of the single tiers, and of the reference and the oracle where there are such
    )


@dataclass(frozen=True)
class PremiumRow:
    """What stopping on the answer key adds to the same policy without it."""

    dataset: str
    setting: str
    policy: str
    budget: str
    accuracy_points: float  # with its paired interval
    accuracy_points_lo: float
    accuracy_points_hi: float
    cost_ratio: float  # cost with gold over cost without, paired
    cost_ratio_lo: float
    cost_ratio_hi: float
    run_ids: str


@dataclass(frozen=True)
class _Spot:
    """A policy at one budget: its runs, one for each seed, query by query."""

    runs: tuple[Point, ...]
    budget: str
    right: "np.ndarray"  # (queries,)
    cost: "np.ndarray"
    tokens: "np.ndarray"
    checks: "np.ndarray"
    usd: "np.ndarray"
    tiers: tuple[str, ...]


@dataclass(frozen=True)
class _Curve:
    policy: str
    gold: bool
    spots: tuple[_Spot, ...]  # cheapest first

    @property
    def is_of(self) -> str:
        """Its router."""
        return self.spots[0].runs[0].choices.get("router", "")


@dataclass(frozen=True)
class _Field:
    """The policies of one setting, on the queries that all their runs share."""

    dataset: str
    setting: str
    curves: tuple[_Curve, ...]
    documents: tuple[str, ...]  # (queries,) what is drawn together
    left_out: tuple[str, ...]  # seeds that some policies ran with, and not all


def routing(points: Sequence[Point], folder: Path) -> list[Path]:
    """routing_points.csv, routing.csv, routing.md and figure; nothing where fewer than two routers ran."""
    routed = [point for point in points if "quality/accuracy" in point.metrics]
    rows, policies, premiums, left_out = routing_rows(routed)
    if not rows:
        return []
    text = folder / "routing.md"
    text.write_text(
        _markdown(rows, policies, premiums, [*notes(routed), *notices(routed), *left_out]), encoding="utf-8"
    )
    written = write_rows(rows, folder / "routing_points.csv")
    if policies:
        written += write_rows(policies, folder / "routing.csv")
    numbers = folder / "routing_metrics.json"
    numbers.write_text(json.dumps(_metrics(policies), indent=1) + "\n", encoding="utf-8")
    written.append(numbers)
    if premiums:
        written += write_rows(premiums, folder / "gold_premium.csv")
    return [*written, text, *_figure(rows, policies, routed, folder)]


def routing_rows(
    points: Sequence[Point],
) -> tuple[list[PointRow], list[PolicyRow], list[PremiumRow], list[str]]:
    """Of each data set and setting in which two routers ran or more; and what of it is left out, in words."""
    left_out = []
    rows: list[PointRow] = []
    policies: list[PolicyRow] = []
    premiums: list[PremiumRow] = []
    for field in _fields(points):
        rows += [row for curve in field.curves for row in _point_rows(field, curve)]
        policies += _policy_rows(field)
        premiums += _premiums(field)
        if field.left_out:
            name = ", ".join(filter(None, (field.dataset, field.setting)))
            left_out.append(
                f"{name}: seeds {', '.join(field.left_out)} are left out, not every policy ran with them"
            )
    return rows, policies, premiums, left_out


def _metrics(policies: Sequence[PolicyRow]) -> dict[str, float]:
    """The parent run's metrics: routing/aiq/<policy>, and the like."""
    found: dict[str, float] = {}
    several = len({row.dataset for row in policies}) > 1
    for row in policies:
        words = [*([row.dataset] if several else []), *([row.setting] if row.setting else []), row.policy]
        policy = re.sub(r"[^\w. -]+", "-", " ".join(words))
        values = {"aiq": row.aiq, "apgr": row.apgr, "accuracy_at_budget": row.at_50}
        values |= {"cost_at_accuracy": row.cost_at_best, "oracle_gap": row.oracle_gap}
        found |= {f"routing/{name}/{policy}": value for name, value in values.items() if math.isfinite(value)}
    return found


# ---------------------------------------------------------------- curves


def _fields(points: Sequence[Point]) -> Iterator[_Field]:
    for dataset, group in by_dataset(points).items():
        known = varying(group)
        apart = [key for key in known if key.partition(".")[0] not in (*OF_POLICY, "dataset", "seed")]
        apart += [key for key in known if key.startswith("dataset.")]
        for setting, own in _split(group, apart).items():
            if len({point.choices.get("router") for point in own}) > 1:
                yield from _of_setting(dataset, setting, own, known)


def _split(points: Sequence[Point], keys: Sequence[str]) -> dict[str, list[Point]]:
    """Points under what they say of these settings, in as few words as tell them apart."""
    telling = needed(keys, [labels(point) for point in points])
    found: dict[tuple[str, ...], list[Point]] = {}
    for point in points:
        own = labels(point)
        found.setdefault(tuple(str(own.get(key)) for key in keys), []).append(point)
    named: dict[str, list[Point]] = {}
    for values, group in found.items():
        own = labels(group[0])
        said = dict.fromkeys(word(key, own[key]) for key in telling if own.get(key) is not None)
        name = " · ".join(said)
        if name in named:  # words that say the same of different settings
            name = " · ".join(f"{key}={value}" for key, value in zip(keys, values, strict=True))
        named[name] = group
    return named


def _of_setting(
    dataset: str, setting: str, points: Sequence[Point], known: Sequence[str]
) -> Iterator[_Field]:
    """The setting's policies over the seeds that all their budgets ran with; without such a seed, each seed by itself."""
    of_policy = [key for key in known if key.partition(".")[0] in OF_POLICY and key not in BUDGETS]
    spots: dict[tuple[str, str], dict[str, Point]] = {}
    for policy, group in _policies(points, of_policy).items():
        for point in group:
            own = labels(point)
            at = json.dumps([own.get(key) for key in BUDGETS], default=str)
            spots.setdefault((policy, at), {})[str(own.get("seed"))] = point
    shared = set.intersection(*(set(runs) for runs in spots.values()))
    if not shared:
        for seed, alone in _split(points, ["seed"]).items():
            if len({point.choices.get("router") for point in alone}) > 1:
                name = " · ".join(one for one in (setting, seed) if one)
                yield from _of_setting(dataset, name, alone, known)
        return
    seeds = sorted(shared)
    read = {run.folder: spent(run.folder) for runs in spots.values() for run in runs.values()}
    ids = {
        seed: sorted(set.intersection(*(set(read[runs[seed].folder]) for runs in spots.values())))
        for seed in seeds
    }
    if not any(ids.values()):
        return
    some = next(iter(spots.values()))
    documents = tuple(name for seed in seeds for name in documents_of(some[seed].folder, ids[seed]))
    curves: dict[str, list[_Spot]] = {}
    for (policy, _), runs in spots.items():
        bills = [read[runs[seed].folder][one] for seed in seeds for one in ids[seed]]
        curves.setdefault(policy, []).append(_spot(tuple(runs[seed] for seed in seeds), bills))
    yield _Field(
        dataset,
        setting,
        tuple(
            _Curve(
                policy,
                any(run.oracle for spot in own for run in spot.runs),
                tuple(sorted(own, key=lambda spot: float(spot.cost.mean()))),
            )
            for policy, own in curves.items()
        ),
        documents,
        tuple(sorted({seed for runs in spots.values() for seed in runs} - shared)),
    )


def _spot(runs: tuple[Point, ...], bills: Sequence[Spent]) -> _Spot:
    import numpy as np

    def column(name: str) -> "np.ndarray":
        return np.array([getattr(one, name) for one in bills], float)

    return _Spot(
        runs,
        _budget(runs[0]),
        column("right"),
        column("units"),
        column("tokens"),
        column("checks"),
        column("usd"),
        tuple(one.tier or "none" for one in bills),
    )


def _policies(points: Sequence[Point], keys: Sequence[str]) -> dict[str, list[Point]]:
    """Runs by policy: the router, and all that varies of it, of retry, probe and prompt, but for the budget.

    Its name has those of its settings that tell it from its router's other runs; and how it stops.
    """
    by_router: dict[str, list[Point]] = {}
    for point in points:
        by_router.setdefault(point.choices.get("router", ""), []).append(point)
    found: dict[str, list[Point]] = {}
    for router, group in by_router.items():
        each = [labels(point) for point in group]
        telling = [key for key in keys if key != "router" and len({str(own.get(key)) for own in each}) > 1]
        for said, own in _split(group, telling).items():
            stops = labels(own[0]).get("retry.stop") if "retry.stop" in keys else None
            stops = word("retry.stop", stops) if stops is not None else None
            words = dict.fromkeys(one for one in (router, *said.split(" · "), stops) if one)
            found[" · ".join(words)] = own
    return found


def _budget(point: Point) -> str:
    """Where on its curve a run stands."""
    own = labels(point)
    for key in BUDGETS:
        if own.get(key) is not None:
            return f"{key.rpartition('.')[2]} {own[key]}"
    return ""


def _single_tiers(curves: Sequence[_Curve]) -> list[_Spot]:
    """Each single tier, tried once where that ran: the ends of every curve's range."""
    single = [spot for curve in curves if not curve.gold and curve.is_of == "static" for spot in curve.spots]
    return [spot for spot in single if spot.runs[0].choices.get("retry") == "none"] or single


# ---------------------------------------------------------------- rows


def _point_rows(field: _Field, curve: _Curve) -> list[PointRow]:
    import numpy as np

    from outlay.score.statistics import interval, share

    rows = []
    for spot in curve.spots:
        right, cost, n = spot.right, spot.cost, spot.right.size
        counts = Counter(spot.tiers)
        rows.append(
            PointRow(
                field.dataset,
                field.setting,
                curve.policy,
                any(run.oracle for run in spot.runs),
                spot.budget,
                len(spot.runs),
                n,
                *share(right, clusters=field.documents),
                *interval(cost, clusters=field.documents),
                float(np.percentile(cost, 95)),
                float(cost.max()),
                float(spot.tokens.mean()),
                float(spot.checks.mean()),
                float(spot.usd.mean()),
                float(cost.sum() / right.sum()) if right.sum() else math.inf,
                ", ".join(f"{tier} {100 * number / n:.0f} %" for tier, number in sorted(counts.items())),
                float(np.mean([run.metrics.get("fit/tokens", 0.0) for run in spot.runs])),
                spot.runs[0].run_id,
                _run_ids([spot]),
            )
        )
    return rows


def _run_ids(spots: Iterable[_Spot]) -> str:
    return " ".join(dict.fromkeys(run.run_id for spot in spots for run in spot.runs))


Means = tuple["np.ndarray", "np.ndarray"]
"""Costs and accuracies of some spots: (spots,) each."""


def _policy_rows(field: _Field) -> list[PolicyRow]:
    import numpy as np

    tiers = _single_tiers(field.curves)
    if not tiers:
        return []
    draws = _draws(field.documents)
    plain = [curve for curve in field.curves if not curve.gold]
    reference = next((curve for curve in plain if curve.is_of == REFERENCE), None)
    oracle = next((curve for curve in field.curves if curve.is_of == "oracle"), None)
    none = (math.nan,) * 3
    rows = []
    for curve in field.curves:
        own = (curve.spots, tiers)
        against = (*own, reference.spots) if reference is not None and reference is not curve else None
        used = [
            *curve.spots,
            *tiers,
            *(reference.spots if reference else ()),
            *(oracle.spots if oracle else ()),
        ]
        rows.append(
            PolicyRow(
                field.dataset,
                field.setting,
                curve.policy,
                curve.gold,
                len(curve.spots),
                *_estimated(_area, draws, *own),
                *_estimated(_recovered, draws, *own),
                *_estimated(partial(_bought, LEVELS[0]), draws, *own),
                *_estimated(partial(_bought, LEVELS[1]), draws, *own),
                *_estimated(partial(_bought, LEVELS[2]), draws, *own),
                *_estimated(_least, draws, *own),
                *(_estimated(_gap, draws, *own, oracle.spots) if oracle else none),
                *(_estimated(_over, draws, *against) if against else none),
                *(_estimated(_dearer, draws, *against) if against else none),
                _run_ids(used),
            )
        )
    return sorted(rows, key=lambda row: (row.reads_gold, -np.nan_to_num(row.aiq, nan=-1)))


# What a policy's curve is worth: `own` are its points, `single` those of the single tiers, `other` another policy's.


def _whole(own: Means, single: Means) -> Means:
    """A curve with the cheapest single tier's point."""
    import numpy as np

    at = single[0].argmin()
    return np.append(own[0], single[0][at]), np.append(own[1], single[1][at])


def _area(own: Means, single: Means) -> float:
    from outlay.score.curves import aiq

    return aiq(*_whole(own, single), single[0].min(), single[0].max())


def _recovered(own: Means, single: Means) -> float:
    """APGR."""
    import numpy as np

    from outlay.score.curves import apgr

    weak = single[0].argmin()
    strong = np.lexsort((-single[0], single[1]))[-1]  # of equally good tiers the cheaper
    ends = ((float(single[0][at]), float(single[1][at])) for at in (weak, strong))
    return apgr(*_whole(own, single), *ends)


def _bought(level: float, own: Means, single: Means) -> float:
    """Accuracy at a level of the range."""
    from outlay.score.curves import accuracy_at_budget

    low, high = single[0].min(), single[0].max()
    return accuracy_at_budget(*_whole(own, single), low + level * (high - low))


def _cost_at(own: Means, single: Means, accuracy: float) -> float:
    """What is never reached has no price, however high."""
    from outlay.score.curves import tokens_at_accuracy

    cost = tokens_at_accuracy(*_whole(own, single), accuracy)
    return math.inf if math.isnan(cost) else cost


def _least(own: Means, single: Means) -> float:
    return _cost_at(own, single, single[1].max())


def _gap(own: Means, single: Means, other: Means) -> float:
    from outlay.score.curves import accuracy_at_budget

    dearest = own[0].argmax()
    return accuracy_at_budget(*_whole(other, single), own[0][dearest]) - float(own[1][dearest])


def _over(own: Means, single: Means, other: Means) -> float:
    return _area(own, single) - _area(other, single)


def _dearer(own: Means, single: Means, other: Means) -> float:
    """At the other's best accuracy; nan where the other pays nothing for it, as no ratio says how much more that is."""
    target = _whole(other, single)[1].max()
    price, others = (_cost_at(one, single, target) for one in (own, other))
    return price / others - 1 if others else math.nan


def _draws(documents: Sequence[str]) -> "np.ndarray":
    """(1 + RESAMPLES, queries) weights that sum to 1 a row: the sample itself, then resamples of whole documents."""
    import numpy as np

    _, place = np.unique(np.asarray(documents), return_inverse=True)
    n = int(place.max()) + 1
    drawn = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=RESAMPLES)
    weights: np.ndarray = np.vstack([np.ones(place.size), drawn[:, place]])
    return weights / weights.sum(axis=1, keepdims=True)


def _estimated(
    statistic: Callable[..., float], draws: "np.ndarray", *groups: Sequence[_Spot]
) -> tuple[float, float, float]:
    """A statistic of the mean costs and accuracies of some spots, with its percentile interval over the draws.

    A draw in which it is undefined (an APGR without a gap) is left out; none where that is most of them.
    """
    import numpy as np

    from outlay.score.statistics import percentiles

    means = [
        tuple(np.stack([getattr(spot, name) for spot in spots]) @ draws.T for name in ("cost", "right"))
        for spots in groups
    ]
    values = np.array(
        [statistic(*((cost[:, at], right[:, at]) for cost, right in means)) for at in range(len(draws))],
        float,
    )
    value, drawn = float(values[0]), values[1:]
    if math.isnan(value) or np.isnan(drawn).mean() > 0.5:
        return value, math.nan, math.nan
    return percentiles(value, drawn)


def _premiums(field: _Field) -> list[PremiumRow]:
    """Each pair of runs that differ in reading gold only: by their stop rule, or by what a cascade verifies with."""
    from outlay.score.statistics import paired_difference

    keys = ("retry.stop", "router.verify", "seed", "dataset.seed")
    draws = _draws(field.documents)

    def rest(spot: _Spot) -> str:
        own = {key: value for key, value in labels(spot.runs[0]).items() if key not in keys}
        return json.dumps(own, sort_keys=True, default=str)

    def ratio(own: Means, other: Means) -> float:
        return float(own[0][0] / other[0][0]) if other[0][0] else math.nan

    every = [(curve, spot) for curve in field.curves for spot in curve.spots]
    plain: dict[str, list[tuple[_Curve, _Spot]]] = {}
    for curve, spot in every:
        if not spot.runs[0].oracle:
            plain.setdefault(rest(spot), []).append((curve, spot))
    pairs = [(one, twin) for one in every if one[1].runs[0].oracle for twin in plain.get(rest(one[1]), ())]
    rows = []
    for (curve, spot), (other, without) in pairs:
        gap = paired_difference(spot.right, without.right, clusters=field.documents)
        rows.append(
            PremiumRow(
                field.dataset,
                field.setting,
                f"{curve.policy} against {other.policy}",
                spot.budget,
                gap.value,
                gap.lo,
                gap.hi,
                *_estimated(ratio, draws, [spot], [without]),
                _run_ids([spot, without]),
            )
        )
    return rows


# ---------------------------------------------------------------- how they are shown


def _markdown(
    rows: Sequence[PointRow],
    policies: Sequence[PolicyRow],
    premiums: Sequence[PremiumRow],
    said: Sequence[str],
) -> str:
    lines = [
        "# Routing: what each policy buys",
        "",
        "Cost: compute units a query, with every probe, verifier and failed call. Same test queries, same draws; 95 % intervals",
        f"by {RESAMPLES} resamples, paired between policies; the range, the tiers and the targets are resampled with them.",
        "AIQ: mean accuracy of a policy's hull from the cheapest to the dearest single tier, the cheapest tier being on every",
        "curve. APGR: the share of the gap between the cheapest and the best single tier that it recovers. ∞: never reached.",
        "Fitting is paid once, and stands apart.",
        "",
        *(f"- {line}".replace("*", "\\*") for line in said),
    ]
    for dataset, setting in dict.fromkeys((row.dataset, row.setting) for row in rows):
        name = ", ".join(part for part in (dataset, setting) if part)
        own = [row for row in policies if (row.dataset, row.setting) == (dataset, setting)]
        runs = [row for row in rows if (row.dataset, row.setting) == (dataset, setting)]
        gold = [row for row in premiums if (row.dataset, row.setting) == (dataset, setting)]
        seeds = max(row.seeds for row in runs)
        asked = f"{runs[0].queries:,} queries" + (f" over {seeds} seeds" if seeds > 1 else "")
        lines += _table(f"{name}: policies ({asked})", _POLICIES, own)
        lines += _table(f"{name}: every setting ({asked})", _POINTS, runs)
        lines += _table(f"{name}: what the answer key is worth", _PREMIUMS, gold)
    return "\n".join(lines) + "\n"


def _table(title: str, columns: Mapping[str, Callable[[Any], str]], rows: Sequence[Any]) -> list[str]:
    """A table under its title; a column that has nothing for any row is left out, and so is a table without rows."""
    cells = {heading: [cell(row) for row in rows] for heading, cell in columns.items()}
    cells = {
        heading: column for heading, column in cells.items() if any(one not in ("–", "") for one in column)
    }
    if not cells:
        return []
    ends = ["---" if heading in WORDS else "---:" for heading in cells]
    body = zip(*cells.values(), strict=True)
    return [
        "",
        f"## {title}",
        "",
        f"| {' | '.join(cells)} |",
        f"|{'|'.join(ends)}|",
        *(f"| {' | '.join(row)} |" for row in body),
    ]


WORDS = ("policy", "budget", "answered by", "with and without gold")
"""Columns of words."""


def _starred(row: Any) -> str:
    return row.policy + (" \\*" if row.reads_gold else "")


def _points(name: str, signed: bool = False) -> Callable[[Any], str]:
    return lambda row: percent(*_ends(row, name), signed=signed).text


def _numbers(name: str, form: str) -> Callable[[Any], str]:
    return lambda row: number(*_ends(row, name), form=form).text


def _ends(row: Any, name: str) -> tuple[float, float, float]:
    value, low, high = (getattr(row, f"{name}{end}", math.nan) for end in ("", "_lo", "_hi"))
    return value, low, high


def _some(name: str) -> Callable[[Any], str]:
    """A number of tokens; none where nothing was spent."""
    return lambda row: f"{getattr(row, name):,.0f}" if getattr(row, name) else "–"


_POLICIES: Mapping[str, Callable[[Any], str]] = {
    "policy": _starred,
    "AIQ": _points("aiq"),
    "APGR": _numbers("apgr", ".2f"),
    "accuracy at ¼ of the range": _points("at_25"),
    "at ½": _points("at_50"),
    "at ¾": _points("at_75"),
    "cost at the best tier's accuracy": _numbers("cost_at_best", ",.1f"),
    "oracle gap, points": _points("oracle_gap", signed=True),
    f"AIQ over {REFERENCE}, points": _points("over_reference", signed=True),
    "cost at its accuracy, %": _points("cost_over_reference", signed=True),
}
_POINTS: Mapping[str, Callable[[Any], str]] = {
    "policy": _starred,
    "budget": lambda row: row.budget,
    "accuracy": _points("accuracy"),
    "cost a query": _numbers("cost", ",.1f"),
    "p95": _numbers("cost_p95", ",.1f"),
    "most": _numbers("cost_max", ",.1f"),
    "cost a right answer": _numbers("cost_per_correct", ",.1f"),
    "tokens a query": _numbers("tokens", ",.0f"),
    "… for checks": _some("check_tokens"),
    "answered by": lambda row: row.tiers,
    "tokens to fit": _some("fit_tokens"),
}
_PREMIUMS: Mapping[str, Callable[[Any], str]] = {
    "with and without gold": lambda row: row.policy,
    "budget": lambda row: row.budget,
    "points of accuracy": _points("accuracy_points", signed=True),
    "cost with over without": _numbers("cost_ratio", ".2f"),
}


BANDED = 3
"""Policies of a panel, the best by AIQ, that are drawn with their bands; with more, bands on each other are a fog."""


def _figure(
    rows: Sequence[PointRow], policies: Sequence[PolicyRow], points: Sequence[Point], folder: Path
) -> list[Path]:
    """Accuracy over cost, a row of panels for each data set: policies that could be deployed, and those that read gold.

    Single tiers are points: what lies between them is bought by mixing, a chord in cost, which a log axis bends.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    fields = list(dict.fromkeys((row.dataset, row.setting) for row in rows))
    kinds = [gold for gold in (False, True) if any(row.reads_gold == gold for row in rows)]
    most = max(
        len({row.policy for row in rows if (row.dataset, row.setting, row.reads_gold) == (*field, gold)})
        for field in fields
        for gold in kinds
    )
    figure, axes = plt.subplots(
        len(fields),
        len(kinds),
        figsize=(6.8 * len(kinds), (4.4 + 0.2 * math.ceil(most / COLUMNS)) * len(fields) + 0.4),
        squeeze=False,
        layout="constrained",
    )
    for line, field in zip(axes, fields, strict=True):
        worth = {row.policy: row.aiq for row in policies if (row.dataset, row.setting) == field}
        of_field = [row for row in rows if (row.dataset, row.setting) == field]
        for axis, gold in zip(line, kinds, strict=True):
            shown = [row for row in of_field if row.reads_gold == gold]
            _draw(axis, shown, worth)
            if not gold:
                _draw_tiers(axis, shown)
            title = "stops on the answer key (bounds)" if gold else "could be deployed"
            axis.set_title(f"{', '.join(filter(None, field))}: {title}", fontsize=11)
            _cost_axis(axis, [row.cost for row in shown])
    footnote(figure, points)
    return save(figure, folder / "routing")


COLUMNS = 3
"""Of a panel's legend."""
WIDE = 30
"""Letters of a name that leave no room for as many columns."""


def _draw(axis: Any, rows: Sequence[PointRow], worth: Mapping[str, float]) -> None:
    """A panel's policies but the single tiers, the best first."""
    from outlay.report.figures import COLORS, MARKERS

    lines: dict[str, list[PointRow]] = {}
    for row in rows:
        if row.policy not in _of_tiers(rows):
            lines.setdefault(row.policy, []).append(row)
    names = sorted(lines, key=lambda name: -worth.get(name, -math.inf))
    known = [name for name in names if math.isfinite(worth.get(name, math.nan)) and not _is_static(name)]
    banded = {*known[:BANDED], *(name for name in names if name == REFERENCE)}
    # The banded ones first: a palette's first colours are the ones most easily told apart.
    names.sort(key=lambda name: name not in banded)
    for at, name in enumerate(names):
        own = lines[name]
        color = COLORS[at % len(COLORS)]
        x, y = [row.cost for row in own], [100 * row.accuracy for row in own]
        low, high = [100 * row.accuracy_lo for row in own], [100 * row.accuracy_hi for row in own]
        joined = len(own) > 1 and not _is_static(name)
        best = name in banded
        axis.plot(
            x,
            y,
            linestyle="none" if not joined else "-" if best else (0, (4, 1.5)),
            linewidth=1.8 if best else 1.0,
            color=color,
            marker=MARKERS[(at + at // len(COLORS)) % len(MARKERS)],
            markersize=5.5 if best else 4.5,
            alpha=1.0 if best else 0.75,
            zorder=3 if best else 2,
            label=name,
        )
        if best and joined:
            axis.fill_between(x, low, high, color=color, alpha=0.13, linewidth=0)
        elif not joined:  # a point says how sure it is by itself
            axis.vlines(x, low, high, color=color, linewidth=0.8, alpha=0.6)


def _is_static(policy: str) -> bool:
    return policy.partition(" · ")[0] == "static"


def _of_tiers(rows: Sequence[PointRow]) -> list[str]:
    """The policies that are a single tier, tried once where that ran."""
    static = dict.fromkeys(row.policy for row in rows if _is_static(row.policy) and not row.reads_gold)
    return [name for name in static if "no retry" in name.split(" · ")] or list(static)


def _draw_tiers(axis: Any, rows: Sequence[PointRow]) -> None:
    """Each single tier as a named point, and what mixing them at random buys."""
    import numpy as np
    from matplotlib.patheffects import withStroke

    from outlay.score.curves import hull

    own = [row for row in rows if row.policy in _of_tiers(rows)]
    if not own:
        return
    curve = hull([row.cost for row in own], [row.accuracy for row in own])
    if curve.cost.size > 1:
        costs = np.geomspace(curve.cost[0], curve.cost[-1], 200)
        axis.plot(
            costs,
            100 * curve.at(costs),
            color="#777777",
            linestyle=":",
            linewidth=1.4,
            zorder=1,
            label="what mixing single tiers buys",
        )
    x, y = [row.cost for row in own], [100 * row.accuracy for row in own]
    axis.vlines(
        x, [100 * row.accuracy_lo for row in own], [100 * row.accuracy_hi for row in own], color="#000000"
    )
    axis.plot(
        x, y, linestyle="none", marker="*", markersize=11, color="#000000", zorder=4, label="a single tier"
    )
    by_cost = sorted(own, key=lambda row: row.cost)
    up = False
    for row, after in zip(by_cost, [*by_cost[1:], None], strict=True):
        # Of two tiers that cost about the same, the first is named on the other side; the dearest's name would leave the panel.
        up = not up and after is not None and after.cost < 1.5 * row.cost
        left = up or after is None
        axis.annotate(
            row.budget.removeprefix("tier ") or row.policy,
            (row.cost, 100 * row.accuracy),
            textcoords="offset points",
            xytext=(-8 if left else 8, 7 if up else -24 if after is None else -15),
            ha="right" if left else "left",
            fontsize=9,
            fontweight="bold",
            path_effects=[withStroke(linewidth=2.5, foreground="white", alpha=0.8)],
            zorder=3.5,
        )


def _cost_axis(axis: Any, costs: Sequence[float]) -> None:
    from matplotlib.ticker import NullLocator

    from outlay.report.page.charts import log_ticks

    axis.set_xlabel("compute units a query")
    axis.set_ylabel("right, %")
    known = [cost for cost in costs if cost > 0]
    if known:
        low, high = min(known) / 1.12, max(known) * 1.12
        axis.set_xscale("log")
        axis.set_xlim(low, high)
        at = log_ticks(low, high)
        axis.set_xticks(at, [f"{value:,g}" if value < 1000 else f"{value:,.0f}" for value in at])
        axis.xaxis.set_minor_locator(NullLocator())
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(linewidth=0.4, alpha=0.6)
    longest = max(map(len, axis.get_legend_handles_labels()[1]), default=0)
    axis.legend(
        frameon=False,
        fontsize=9,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.13),
        ncols=COLUMNS if longest < WIDE else COLUMNS - 1,  # a legend wider than its panel would squeeze it
    )
