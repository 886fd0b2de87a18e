"""What each further attempt buys, and how far it inflates the bill: retry curves and the inflation table."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outlay.report.agent.checks import notices
from outlay.report.agent.lines import Tried, attempts, spent
from outlay.report.grid.drawing import save, write_rows
from outlay.report.sheets import notes
from outlay.report.tables import CHECKS, Point, answers, labels, marks, metric, said, with_interval

RETRIES = ("none", "fixed", "vote", "adaptive", "escalate")


@dataclass(frozen=True)
class CurveRow:
    """One run's first k attempts, as if it had been allowed no more. Intervals are 95 %, by a bootstrap over queries."""

    dataset: str
    setting: str
    attempts: int  # k
    queries: int
    solved: float  # any of the first k is right: what stopping on gold gives (an oracle)
    solved_lo: float
    solved_hi: float
    solved_tokens: float  # a query, when it stops at the first right one
    solved_tokens_lo: float
    solved_tokens_hi: float
    inflation: float  # mean of those tokens over the first attempt's
    inflation_lo: float
    inflation_hi: float
    voted: float  # the majority of the first k is right: no gold
    voted_lo: float
    voted_hi: float
    all_tokens: float  # a query, when all k are made
    marginal: float  # right answers more than with k - 1, per 1,000 tokens more, stopping on gold
    marginal_vote: float  # the same for the vote
    repeated: float  # share of k-th attempts whose text is an earlier one's, word for word
    run_id: str


def retry_curves(points: Sequence[Point], folder: Path) -> list[Path]:
    """retry_curves.csv, .md and figure, from runs that make all their attempts (stop=none, three or more)."""
    whole = [point for point in points if _makes_all(point)]
    rows = [row for point in whole for row in curve_rows(point, whole)]
    if not rows:
        return []
    text = folder / "retry_curves.md"
    text.write_text(_markdown(rows, notes(whole)), encoding="utf-8")
    return [*write_rows(rows, folder / "retry_curves.csv"), text, *_figure(rows, folder)]


def _makes_all(point: Point) -> bool:
    own = labels(point)
    return (
        point.choices.get("retry") == "fixed"
        and own.get("retry.stop") == "none"
        and int(own.get("retry.max_attempts", 1)) >= 3
    )


def curve_rows(point: Point, points: Sequence[Point]) -> list[CurveRow]:
    """k = 1 .. max_attempts for one run; a query that was refused every attempt is wrong, and costs nothing."""
    import numpy as np

    from outlay.score.statistics import interval, share

    made = attempts(point.folder)
    tried = [made.get(example, []) for example in spent(point.folder)]
    most = max(map(len, tried), default=0)
    right = np.array([_padded([x.right for x in one], most) for one in tried], float)
    tokens = np.array([_padded([x.tokens for x in one], most) for one in tried], float)
    voted = np.array([[_vote_right(one[:k]) for k in range(1, most + 1)] for one in tried], float)
    before = np.cumsum(right, axis=1) - right > 0  # already solved
    paid = np.cumsum(np.where(before, 0.0, tokens), axis=1)
    bill = np.cumsum(tokens, axis=1)
    solved = np.cumsum(right, axis=1) > 0
    rows: list[CurveRow] = []
    for k in range(1, most + 1):
        billed = tokens[:, 0] > 0
        gain, cost = solved[:, k - 1].mean(), paid[:, k - 1].mean()
        last = (solved[:, k - 2].mean(), paid[:, k - 2].mean()) if k > 1 else (0.0, 0.0)
        vote, last_vote = voted[:, k - 1].mean(), voted[:, k - 2].mean() if k > 1 else 0.0
        more = bill[:, k - 1].mean() - (bill[:, k - 2].mean() if k > 1 else 0.0)
        rows.append(
            CurveRow(
                point.choices.get("dataset", ""),
                said(point, points, leave_out=("retry.max_attempts", "retry.stop")),
                k,
                len(tried),
                *share(solved[:, k - 1]),
                *interval(paid[:, k - 1]),
                *interval(paid[billed, k - 1] / tokens[billed, 0]),
                *share(voted[:, k - 1]),
                float(bill[:, k - 1].mean()),
                1000 * (gain - last[0]) / (cost - last[1]) if cost > last[1] else math.nan,
                1000 * (vote - last_vote) / more if more > 0 else math.nan,
                float(np.mean([_repeats(one, k) for one in tried if len(one) >= k])),
                point.run_id,
            )
        )
    return rows


def _padded(values: Sequence[float], length: int) -> list[float]:
    """A query that was refused has fewer attempts: the others cost nothing and are wrong."""
    return [*map(float, values), *[0.0] * (length - len(values))]


def _vote_right(tried: Sequence[Tried]) -> bool:
    """Whether the most frequent answer is right; ties go to the earlier one, as in `Trace.vote`."""
    counts = Counter(one.answer for one in tried if one.answer is not None)
    if not counts:
        return False
    top = counts.most_common(1)[0][0]
    return any(one.right for one in tried if one.answer == top)


def _repeats(tried: Sequence[Tried], k: int) -> bool:
    return any(tried[k - 1].text == one.text for one in tried[: k - 1])


def _markdown(rows: Sequence[CurveRow], told: Sequence[str]) -> str:
    lines = [
        "# What each further attempt buys",
        "",
        "Solved: any of the first k attempts is right, i.e. stopping on the answer key *, an oracle. Vote: their majority is",
        "right; no gold. Marginal: right answers more, per 1,000 tokens more. 95 % intervals over queries.",
        "",
        *(f"- {line}".replace("*", "\\*") for line in told),
    ]
    for name in dict.fromkeys((row.dataset, row.setting) for row in rows):
        own = [row for row in rows if (row.dataset, row.setting) == name]
        lines += [
            "",
            f"## {name[0]}, {name[1]} ({own[0].queries} queries)",
            "",
            "| attempts | solved * | tokens a query * | inflation * | marginal * | vote | tokens, all made | marginal, vote | repeated word for word |",
            "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        ]
        for row in own:
            lines.append(
                f"| {row.attempts} | {_percent(row.solved, row.solved_lo, row.solved_hi)} | {row.solved_tokens:,.0f} | "
                f"{row.inflation:.2f} [{row.inflation_lo:.2f}, {row.inflation_hi:.2f}] | {_number(row.marginal)} | "
                f"{_percent(row.voted, row.voted_lo, row.voted_hi)} | {row.all_tokens:,.0f} | "
                f"{_number(row.marginal_vote)} | {100 * row.repeated:.0f} % |"
            )
    return "\n".join(lines) + "\n"


def _percent(value: float, low: float, high: float) -> str:
    return f"{100 * value:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def _figure(rows: Sequence[CurveRow], folder: Path) -> list[Path]:
    """Accuracy over attempts and over tokens, solved (an oracle) and voted; a row of panels for each data set."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    from outlay.report.figures import COLORS, MARKERS

    datasets = list(dict.fromkeys(row.dataset for row in rows))
    settings = list(dict.fromkeys(row.setting for row in rows))
    figure, axes = plt.subplots(
        len(datasets), 2, figsize=(10.5, 3.6 * len(datasets) + 0.6), squeeze=False, layout="constrained"
    )
    for (by_attempt, by_token), dataset in zip(axes, datasets, strict=True):
        for at, name in enumerate(settings):
            own = [row for row in rows if row.dataset == dataset and row.setting == name]
            if not own:
                continue
            style = {"color": COLORS[at % len(COLORS)], "marker": MARKERS[at % len(MARKERS)], "markersize": 4}
            k = [row.attempts for row in own]
            solved, voted = [100 * row.solved for row in own], [100 * row.voted for row in own]
            by_attempt.plot(k, solved, label=f"{name}, solved *", **style)
            by_attempt.fill_between(
                k,
                [100 * row.solved_lo for row in own],
                [100 * row.solved_hi for row in own],
                color=style["color"],
                alpha=0.12,
                linewidth=0,
            )
            by_attempt.plot(k, voted, linestyle="--", label=f"{name}, vote", **style)
            by_token.plot([row.solved_tokens for row in own], solved, **style)
            by_token.plot([row.all_tokens for row in own], voted, linestyle="--", **style)
        by_attempt.set_xlabel("attempts allowed")
        by_token.set_xlabel("tokens a query")
        by_attempt.set_ylabel(f"{dataset}: right, %")
        for axis in (by_attempt, by_token):
            axis.spines[["top", "right"]].set_visible(False)
            axis.grid(linewidth=0.4, alpha=0.6)
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right upper", frameon=False, fontsize=8)
    figure.supxlabel(
        "* stops on the answer key: a bound, not a policy that can be deployed", fontsize=8, color="#555555"
    )
    return save(figure, folder / "retry_curves")


@dataclass(frozen=True)
class InflationRow:
    """One run that retries, or that the retrying ones are measured against. Intervals are 95 %, over queries."""

    dataset: str
    setting: str
    marks: str
    accuracy: float
    accuracy_lo: float
    accuracy_hi: float
    mean: float  # of (tokens of all attempts) / (tokens of the first)
    mean_lo: float
    mean_hi: float
    ratio_of_means: float
    ratio_of_means_lo: float
    ratio_of_means_hi: float
    solved: float  # the mean over queries that stopped on an accepted attempt
    solved_lo: float
    solved_hi: float
    exhausted: float  # over those that ran out of attempts
    exhausted_lo: float
    exhausted_hi: float
    share_exhausted: float
    share_exhausted_lo: float
    share_exhausted_hi: float
    share_ge_2: float
    share_ge_2_lo: float
    share_ge_2_hi: float
    repeated: float  # share of retries whose text is an earlier attempt's, word for word
    tokens: float  # a query, probes and verifiers included
    check_tokens: float  # of these, for verifiers' calls
    run_id: str


MEASURED = ("mean", "ratio_of_means", "solved", "exhausted", "share_exhausted", "share_ge_2")


def inflation_rows(points: Sequence[Point]) -> list[InflationRow]:
    """A row for each run of the retry policies; none where none of them retries."""
    own = [
        point
        for point in points
        if point.choices.get("retry") in RETRIES and "inflation/mean" in point.metrics and answers(point)
    ]
    if not any(point.choices.get("retry") != "none" for point in own):
        return []
    names = {"accuracy": "quality/accuracy"} | {name: f"inflation/{name}" for name in MEASURED}
    ends = {f"{field}{end}": f"{name}{end}" for field, name in names.items() for end in ("", "_lo", "_hi")}
    return [
        InflationRow(
            dataset=point.choices.get("dataset", ""),
            setting=said(point, own),
            marks=marks(point),
            repeated=metric(point.metrics, "inflation/identical_attempts"),
            tokens=metric(point.metrics, "cost/tokens_per_query"),
            check_tokens=metric(point.metrics, CHECKS) / point.metrics["data/examples"],
            run_id=point.run_id,
            **{field: metric(point.metrics, name) for field, name in ends.items()},
        )
        for point in own
    ]


def inflation_table(points: Sequence[Point], folder: Path) -> list[Path]:
    """inflation.csv and .md: every retrying run, solved and exhausted queries apart; what scorers and stops change."""
    rows = inflation_rows(points)
    if not rows:
        return []
    checks = any(row.check_tokens for row in rows)
    lines = [
        "# Inflation: what retries add to the bill of one call",
        "",
        "Mean over queries of (tokens of all attempts) / (tokens of the first). 95 % intervals over queries.",
        "Probes and verifiers are paid for, but are no attempts: see tokens a query.",
        "",
        *(f"- {line}".replace("*", "\\*") for line in (*notes(points), *notices(points))),
        "",
        "| data set | setting | accuracy | inflation | ratio of means | solved | exhausted | share exhausted | share ≥ 2 | "
        f"repeated | tokens a query |{' … for checks |' if checks else ''}",
        f"|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|{'---:|' if checks else ''}",
    ]
    for row in rows:
        cells = [
            row.dataset,
            f"{row.setting} {row.marks}".rstrip().replace("*", "\\*"),
            _cell(row, "accuracy", True),
            *(_cell(row, name, False) for name in ("mean", "ratio_of_means", "solved", "exhausted")),
            *(_cell(row, name, True) for name in ("share_exhausted", "share_ge_2")),
            "–" if math.isnan(row.repeated) else f"{100 * row.repeated:.0f} %",
            f"{row.tokens:,.0f}",
            *((f"{row.check_tokens:,.0f}",) if checks else ()),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    path = folder / "inflation.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [*write_rows(rows, folder / "inflation.csv"), path]


def _cell(row: InflationRow, name: str, percent: bool) -> str:
    return with_interval(
        {f"{name}{end}": getattr(row, f"{name}{end}") for end in ("", "_lo", "_hi")}, name, percent
    )
