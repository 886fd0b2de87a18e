"""What a shown chain does to the next attempt: paired arms, exact tests, intervals, and the power that there was."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from outlay.report.agent.lines import Tried, attempts, grouped
from outlay.report.grid.drawing import save, write_rows
from outlay.report.sheets import notes, percent
from outlay.report.tables import Point, labels

ARMS = ("fresh", "failed", "right", "noise", "other", "answer")
SPOKEN = {
    "fresh": "nothing is shown",
    "failed": "a failed chain, as one's own",
    "right": "a right chain, as one's own",
    "noise": "the failed chain, shuffled",
    "other": "the failed chain, as someone else's",
    "answer": "the failed answer alone",
}
WANTED = 0.1
"""The loss that the power is stated for: ten points, without gains. Ours."""


@dataclass(frozen=True)
class ArmRow:
    """One arm against the fresh one, over the queries that both have. Intervals are 95 %."""

    setting: str
    arm: str
    chains: str  # all, or a third of the cases by the length of the failed chain in tokens
    cases: int
    right: float  # share, with Clopper and Pearson's interval
    right_lo: float
    right_hi: float
    fresh: float  # the fresh arm on the same queries
    losses: int  # fresh right, this arm wrong
    gains: int
    difference: float  # paired, with its bootstrap interval
    difference_lo: float
    difference_hi: float
    p: float  # exact McNemar
    p_holm: float  # over the arms of a setting
    loss_share: float  # of the fresh arm's right answers, with Clopper and Pearson's interval
    loss_share_lo: float
    loss_share_hi: float
    repeats: float  # share that gives the failed chain's wrong answer again
    repeats_fresh: float
    power: float  # to find a loss of WANTED at this number of cases
    run_id: str
    run_ids: str  # of the arm and of the fresh one, separated by blanks


@dataclass(frozen=True)
class _Case:
    right: bool
    repeats: bool
    chain_tokens: int


def contamination(points: Sequence[Point], folder: Path) -> list[Path]:
    """contamination.csv, .md and the forest plot; nothing in a sweep without its arms."""
    own = [point for point in points if point.choices.get("retry") == "contaminate"]
    rows = arm_rows(own)
    if not rows:
        return []
    text = folder / "contamination.md"
    text.write_text(_markdown(rows, notes(own)), encoding="utf-8")
    return [*write_rows(rows, folder / "contamination.csv"), text, *_forest(rows, folder)]


def arm_rows(points: Sequence[Point]) -> list[ArmRow]:
    """A row for each setting, arm and third of the chains; the fresh arm of a setting is what the others are paired with."""
    from outlay.score.statistics import holm

    rows: list[ArmRow] = []
    for setting, runs in grouped(points, "retry.arm"):
        if "fresh" not in runs or len(runs) < 2:
            continue
        samples = int(labels(runs["fresh"])["retry.samples"])
        fresh = _cases(runs["fresh"], samples)
        own: list[ArmRow] = []
        for arm in (name for name in ARMS if name in runs):
            cases = _cases(runs[arm], samples)
            run_ids = dict.fromkeys((runs[arm].run_id, runs["fresh"].run_id))
            own += _rows(setting, arm, " ".join(run_ids), cases, fresh)
        tested = [at for at, row in enumerate(own) if row.chains == "all" and row.arm != "fresh"]
        for at, p in zip(tested, holm([own[at].p for at in tested]), strict=True):
            own[at] = replace(own[at], p_holm=float(p))
        rows += own
    return rows


def _cases(point: Point, samples: int) -> dict[str, _Case]:
    """Example id -> the last attempt of a query that has a failed chain among its first."""
    found = {}
    for example, tried in attempts(point.folder).items():
        first, last = tried[:samples], tried[samples:]
        failed = next((one for one in first if one.answer is not None and not one.right), None)
        if last and failed is not None:
            found[example] = _Case(last[0].right, last[0].answer == failed.answer, _length(failed))
    return found


def _length(tried: Tried) -> int:
    return tried.completion_tokens


def _rows(
    setting: str, arm: str, run_ids: str, cases: Mapping[str, _Case], fresh: Mapping[str, _Case]
) -> list[ArmRow]:
    import numpy as np

    shared = [one for one in cases if one in fresh]
    if not shared:
        return []
    lengths = np.array([fresh[one].chain_tokens for one in shared])
    edges = np.quantile(lengths, [1 / 3, 2 / 3])
    third = np.searchsorted(edges, lengths, side="left")
    parts = {"all": np.ones(len(shared), bool)}
    if len(shared) >= 30 and edges[0] < edges[1]:
        low, high = (f"{edge:.0f}" for edge in edges)
        names = (f"≤ {low} tokens", f"{low} to {high} tokens", f"> {high} tokens")
        parts |= {name: third == at for at, name in enumerate(names)}
    rows = []
    for name, inside in parts.items():
        ids = [one for one, kept in zip(shared, inside, strict=True) if kept]
        if ids:
            rows.append(_row(setting, arm, name, run_ids, [cases[x] for x in ids], [fresh[x] for x in ids]))
    return rows


def _row(
    setting: str, arm: str, chains: str, run_ids: str, cases: Sequence[_Case], fresh: Sequence[_Case]
) -> ArmRow:
    import numpy as np

    from outlay.score.statistics import (
        clopper_pearson,
        discordant,
        mcnemar,
        mcnemar_power,
        paired_difference,
    )

    own = np.array([case.right for case in cases], float)
    other = np.array([case.right for case in fresh], float)
    losses, gains = discordant(other, own)
    gap = paired_difference(own, other)
    lost = clopper_pearson(losses, int(other.sum()))
    return ArmRow(
        setting,
        arm,
        chains,
        len(cases),
        *clopper_pearson(int(own.sum()), len(own)),
        float(other.mean()),
        losses,
        gains,
        gap.value,
        gap.lo,
        gap.hi,
        mcnemar(losses, gains) if arm != "fresh" else math.nan,
        math.nan,
        *lost,
        float(np.mean([case.repeats for case in cases])),
        float(np.mean([case.repeats for case in fresh])),
        mcnemar_power(len(cases), WANTED, 0.0),
        run_ids.split()[0],
        run_ids,
    )


def _markdown(rows: Sequence[ArmRow], said: Sequence[str]) -> str:
    lines = [
        "# Contamination: what a shown chain does to the next attempt",
        "",
        "Every case is a query with a failed chain among its fresh samples (the right arm: and with a right one). Arms are",
        "paired by query with the fresh one. p: exact McNemar, Holm over the arms. Power: to find a loss of "
        f"{100 * WANTED:.0f} points.",
        "Finding the chains reads the answer key: this is an instrument, not a policy.",
        "",
        *(f"- {line}".replace("*", "\\*") for line in said),
    ]
    for setting in dict.fromkeys(row.setting for row in rows):
        lines += [
            "",
            f"## {setting}",
            "",
            "| shown | cases | right | fresh, same queries | difference, points | lost : gained | p | p (Holm) | same wrong answer | power |",
            "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        ]
        for row in rows:
            if row.setting == setting and row.chains == "all":
                lines.append("| " + " | ".join(_cells(row)) + " |")
        parts = [row for row in rows if row.setting == setting and row.chains != "all" and row.arm != "fresh"]
        if parts:
            lines += [
                "",
                "By the length of the failed chain:",
                "",
                "| shown | chains | cases | difference, points |",
                "|---|---|---:|---:|",
                *(f"| {SPOKEN[row.arm]} | {row.chains} | {row.cases} | {_points(row)} |" for row in parts),
            ]
    return "\n".join(lines) + "\n"


def _cells(row: ArmRow) -> list[str]:
    paired = row.arm != "fresh"
    return [
        SPOKEN[row.arm],
        str(row.cases),
        f"{100 * row.right:.1f} % [{100 * row.right_lo:.1f}, {100 * row.right_hi:.1f}]",
        f"{100 * row.fresh:.1f} %" if paired else "",
        _points(row) if paired else "",
        f"{row.losses} : {row.gains}" if paired else "",
        f"{row.p:.2g}" if paired else "",
        f"{row.p_holm:.2g}" if paired else "",
        f"{100 * row.repeats:.0f} %",
        f"{row.power:.2f}" if paired else "",
    ]


def _points(row: ArmRow) -> str:
    return percent(row.difference, row.difference_lo, row.difference_hi, signed=True).text


def _forest(rows: Sequence[ArmRow], folder: Path) -> list[Path]:
    """Each arm's paired difference from the fresh one, with its interval; a panel for each setting."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    from outlay.report.figures import COLORS

    shown = [row for row in rows if row.arm != "fresh"]
    settings = list(dict.fromkeys(row.setting for row in shown))
    most = max(sum(row.setting == one for row in shown) for one in settings)
    figure, axes = plt.subplots(
        1,
        len(settings),
        figsize=(4.6 * len(settings) + 2.2, 0.28 * most + 1.6),
        squeeze=False,
        sharex=True,
        layout="constrained",
    )
    for axis, setting in zip(axes[0], settings, strict=True):
        own = [row for row in shown if row.setting == setting]
        for at, row in enumerate(own):
            whole = row.chains == "all"
            color = COLORS[(ARMS.index(row.arm) - 1) % len(COLORS)]
            axis.errorbar(
                100 * row.difference,
                -at,
                xerr=[
                    [100 * (row.difference - row.difference_lo)],
                    [100 * (row.difference_hi - row.difference)],
                ],
                marker="s" if whole else "o",
                markersize=6 if whole else 3.5,
                color=color,
                alpha=1.0 if whole else 0.65,
                capsize=2,
            )
        axis.axvline(0, color="#555555", linewidth=0.8)
        names = [SPOKEN[row.arm] if row.chains == "all" else f"{row.chains} (n = {row.cases})" for row in own]
        axis.set_yticks([-at for at in range(len(own))], names, fontsize=8)
        axis.set_title(f"{setting} (n = {max(row.cases for row in own)})", fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
    figure.supxlabel(
        "points of accuracy against a fresh retry on the same queries, 95 % intervals", fontsize=9
    )
    return save(figure, folder / "contamination")
