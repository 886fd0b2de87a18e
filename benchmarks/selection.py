"""Speed and quality of RCD and MMR: python benchmarks/selection.py [--units 100 300 1000 3000] [--repeats 7] [--fast]

Synthetic notes (topics, a fifth near copies, d = 384), six budgets in one call, medians over repetitions, one and two
BLAS threads. The yardstick is the matrix product that the similarities need, vectors @ vectors.T in float32; numpy
uses that it is symmetric. The published greedy is re-implemented here from its description, with the published
weights; apricot-select and submodlib-py take part where they are installed (facility location only).
"""

import argparse
import math
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from outlay.context import Problem
from outlay.context.objective import Objective, problem_from_arrays
from outlay.context.selectors.mmr import Mmr
from outlay.context.selectors.rcd import Rcd

BUDGETS = (64, 128, 256, 512, 1024, 2048)
WIDTH = 384


def note(count: int, seed: int = 0) -> Problem:
    """A synthetic note: a common direction, one topic per twenty units, a fifth near copies of earlier units."""
    rng = np.random.default_rng(seed)

    def directions(rows: int) -> np.ndarray:
        drawn = rng.standard_normal((rows, WIDTH))
        return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)

    topics = directions(max(8, count // 20))
    vectors = (
        0.6 * directions(1) + 0.8 * topics[rng.integers(0, len(topics), count)] + 0.9 * directions(count)
    )
    for copy in np.flatnonzero(rng.random(count) < 0.2)[1:]:
        vectors[copy] = vectors[rng.integers(0, copy)] + 0.05 * directions(1)[0]
    costs = np.maximum(1, rng.lognormal(math.log(16), 0.5, count).round()).astype(int)
    return problem_from_arrays(vectors, topics[0] + topics[1], costs, BUDGETS)


def published_greedy(
    objective: Objective, costs: np.ndarray, budget: int, cap: int = 80, share: float = 0.4, seed: int = 7
) -> list[int]:
    """Density greedy as the published code does it: over the `cap` densest single units, a random `share` of them per
    step, a linear solve per candidate; no best single unit, and an end as soon as no drawn unit fits."""
    rng = np.random.default_rng(seed)
    rows = objective.vectors.astype(np.float64)
    cosines = rows @ rows.T
    kernel = objective.scale * cosines
    covered = np.zeros(len(rows))
    alone = (objective.reward + np.maximum(cosines, 0) @ objective.weight) / costs
    pool = np.argsort(-alone, kind="stable")[:cap].tolist()
    order: list[int] = []
    while pool:
        drawn = (
            rng.choice(pool, max(1, int(share * len(pool))), replace=False).tolist() if share < 1 else pool
        )
        best, pick = -1.0, -1
        inside = np.eye(len(order)) + kernel[np.ix_(order, order)]
        for unit in drawn:
            if costs[unit] > budget:
                continue
            gain = objective.reward[unit] + objective.weight @ np.maximum(cosines[unit] - covered, 0)
            schur = 1 + kernel[unit, unit]
            if order:
                schur -= kernel[unit, order] @ np.linalg.solve(inside, kernel[order, unit])
            gain += objective.diversity * math.log(max(schur, 1.0))
            if gain / costs[unit] > best:
                best, pick = gain / costs[unit], unit
        if pick < 0:
            break
        order.append(pick)
        pool.remove(pick)
        budget -= int(costs[pick])
        covered = np.maximum(covered, cosines[pick])
    return order


def apricot(problem: Problem) -> Callable[[], Any] | None:
    """Facility location by cost; budgets above n are refused, so costs are scaled."""
    try:
        from apricot import FacilityLocationSelection
    except ImportError:
        return None
    cosines = np.maximum(problem.vectors @ problem.vectors.T, 0).astype(np.float64)
    count = len(cosines)
    costs = problem.costs * (0.5 * count / BUDGETS[-1])
    return lambda: FacilityLocationSelection(count // 2, metric="precomputed", optimizer="lazy").fit(
        cosines, sample_cost=costs
    )


def submodlib(problem: Problem) -> Callable[[], Any] | None:
    """Facility location by cost; budgets of n and above are refused, so costs are scaled."""
    try:
        from submodlib import FacilityLocationFunction
    except ImportError:
        return None
    cosines = np.maximum(problem.vectors @ problem.vectors.T, 0)
    count = len(cosines)
    costs = (problem.costs * (0.5 * count / BUDGETS[-1])).tolist()

    def run() -> Any:
        function = FacilityLocationFunction(n=count, mode="dense", sijs=cosines, separate_rep=False)
        return function.maximize(
            budget=count // 2,
            optimizer="LazyGreedy",
            costs=costs,
            costSensitiveGreedy=True,
            show_progress=False,
        )

    return run


def milliseconds(run: Callable[[], Any], repeats: int) -> float:
    """The median over repetitions, after one call that compiles and warms up."""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(1000 * (time.perf_counter() - start))
    return median(times)


def contenders(problem: Problem, fast: bool) -> Iterator[tuple[str, Callable[[], Any] | None]]:
    """(name, what to time); None where it cannot run."""
    plain, online = (Rcd(weights="uniform", bound=bound) for bound in ("none", "online"))
    objective = Rcd(weights="position").objective(problem)
    slow = fast or len(problem.costs) > 300
    yield "matrix product, n² d", lambda: problem.vectors @ problem.vectors.T
    yield "rcd: kernel + six budgets", lambda: plain.select(problem)
    yield "rcd: the same, online bound", lambda: online.select(problem)
    yield "rcd: the same, Lagrangian bound", lambda: replace(online, bound="lagrangian").select(problem)
    yield "mmr: six budgets", lambda: Mmr().select(problem)
    yield (
        "published greedy, six budgets",
        lambda: [published_greedy(objective, problem.costs, budget) for budget in BUDGETS],
    )
    exact = (
        None if slow else lambda: published_greedy(objective, problem.costs, 2048, len(problem.costs), 1.0)
    )
    yield "the same over all units, B = 2048", exact
    yield "apricot, lazy, one budget", None if fast else apricot(problem)
    yield "submodlib, lazy, one budget", None if fast else submodlib(problem)


def speed(sizes: list[int], repeats: int, fast: bool) -> Table:
    """Milliseconds and, in brackets, multiples of the matrix product."""
    table = Table("ms (multiple of the matrix product)", *[f"n = {size}" for size in sizes])
    problems = [note(size) for size in sizes]
    for threads in (1, 2):
        table.add_section()
        table.add_row(f"[bold]{threads} BLAS thread{'s' * (threads > 1)}")
        with threadpool_limits(threads):
            rows: dict[str, list[str]] = {}
            for problem in problems:
                product = float("nan")
                for name, run in contenders(problem, fast):
                    few = repeats if name[0] in "rm" else 1
                    spent = milliseconds(run, few) if run else float("nan")
                    product = spent if name.startswith("matrix") else product
                    cell = "-" if math.isnan(spent) else f"{spent:,.2f} ({spent / product:,.1f})"
                    rows.setdefault(name, []).append(cell)
        for name, cells in rows.items():
            table.add_row(name, *cells)
    return table


def quality(sizes: list[int]) -> Table:
    """F of the published greedy over F of rcd, with the published weights; and how near rcd is to the optimum."""
    table = Table("share", *[f"B = {budget}" for budget in BUDGETS])
    rcd = Rcd(weights="position", bound="lagrangian")
    for size in sizes:
        problem = note(size)
        objective = rcd.objective(problem)
        found = rcd.select(problem)
        ours = [objective.value(one.indices) for one in found]
        variants = [("published", 80, 0.4)] + ([("over all units", size, 1.0)] if size <= 300 else [])
        for name, cap, share in variants:
            theirs = [
                objective.value(published_greedy(objective, problem.costs, budget, cap, share))
                for budget in BUDGETS
            ]
            shares = [their / our for their, our in zip(theirs, ours, strict=True)]
            assert max(shares) <= 1 + 1e-6, f"n = {size}: the {name} greedy beats rcd"
            table.add_row(f"n = {size}: {name} / rcd", *[f"{share:.3f}" for share in shares])
        table.add_row(f"n = {size}: rcd / optimum, at least", *[f"{one.optimality:.3f}" for one in found])
        table.add_section()
    return table


def streaming(documents: int) -> str:
    """Small documents one after the other: throughput, and what memory the stream adds."""

    def spent() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    rcd = Rcd()
    start = time.perf_counter()
    early = 0.0
    for number in range(documents):
        rng = np.random.default_rng(number)
        rows = rng.standard_normal((int(rng.integers(5, 40)), 64))
        rcd.select(problem_from_arrays(rows, rows[0], rng.integers(5, 30, len(rows)), (64, 256)))
        early = spent() if number == documents // 10 else early
    seconds = time.perf_counter() - start
    return f"{documents} documents in {seconds:.1f} s ({documents / seconds:.0f} a second), memory after the first tenth: +{spent() - early:.1f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--units", type=int, nargs="+", default=[100, 300, 1000, 3000])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--fast", action="store_true", help="leave out what takes minutes")
    args = parser.parse_args()
    console = Console(width=140)
    console.print(streaming(args.documents))  # first: the peak of memory only grows
    console.print(speed(args.units, args.repeats, args.fast))
    console.print(quality(args.units))


if __name__ == "__main__":
    main()
