"""Two measures of a document that route it to a selector: how front-loaded (phi) and how redundant (rho) it is.

The paper names both and gives no formula: every measure here is ours, as a named choice.
"""

from collections.abc import Callable

from outlay.context import Problem

Measure = Callable[[Problem], float]


def phi_area(problem: Problem) -> float:
    """2 (area under cumulative relevance over cumulative tokens) - 1, in [-1, 1]: 0 is uniform, 1 all at the start."""
    import numpy as np

    mass, tokens = problem.relevance.sum(), problem.costs.sum()
    if mass <= 0:
        return 0.0
    earned = np.concatenate([[0.0], np.cumsum(problem.relevance) / mass])
    spent = np.concatenate([[0.0], np.cumsum(problem.costs) / tokens])
    return float(2 * np.trapezoid(earned, spent) - 1)


def phi_head(problem: Problem, share: float = 0.2) -> float:
    """Relevance in the first fifth of the tokens against its share there: (mass - share) / (1 - share), in [-.25, 1]."""
    import numpy as np

    mass = problem.relevance.sum()
    if mass <= 0:
        return 0.0
    starts = np.cumsum(problem.costs) - problem.costs
    inside = np.clip((share * problem.costs.sum() - starts) / problem.costs, 0.0, 1.0)
    return float(((inside * problem.relevance).sum() / mass - share) / (1 - share))


def phi_rank(problem: Problem) -> float:
    """- Spearman's correlation of relevance with position, in [-1, 1]; 0 where relevance is flat."""
    from scipy.stats import rankdata

    count = len(problem.relevance)
    if count < 2 or problem.relevance.min() == problem.relevance.max():
        return 0.0
    import numpy as np

    return -float(np.corrcoef(rankdata(problem.relevance), np.arange(count))[0, 1])


def rho_nearest(problem: Problem) -> float:
    """Mean over units of the largest max(0, cos) to an earlier unit, in [0, 1]: what a reader has seen before."""
    import numpy as np

    rows = problem.vectors
    if len(rows) < 2:
        return 0.0
    total = 0.0
    for start in range(0, len(rows), 1024):  # blocks: no n x n matrix
        block = rows[start : start + 1024]
        cosines = block @ rows[: start + len(block)].T
        earlier = np.tril(np.ones(cosines.shape, bool), start - 1)
        total += float(np.where(earlier, cosines, 0.0).max(axis=1, initial=0.0).sum(dtype=np.float64))
    return min(total / (len(rows) - 1), 1.0)


def rho_rank(problem: Problem) -> float:
    """1 - (effective rank - 1) / (min(n, d) - 1), in [0, 1], with the effective rank exp(entropy of the normalised
    eigenvalues of the Gram matrix) (Roy and Vetterli, 2007)."""
    import numpy as np

    rows = problem.vectors.astype(np.float64)
    rank = min(rows.shape)
    if rank < 2:
        return 0.0
    gram = rows @ rows.T if len(rows) <= rows.shape[1] else rows.T @ rows
    values = np.clip(np.linalg.eigvalsh(gram), 0.0, None)
    if values.sum() <= 0:
        return 0.0
    shares = values / values.sum()
    shares = shares[shares > 0]
    effective = float(np.exp(-(shares * np.log(shares)).sum()))
    return float(np.clip(1 - (effective - 1) / (rank - 1), 0.0, 1.0))


def rho_mean(problem: Problem) -> float:
    """Mean cosine of two different units, at least 0: the cheapest, O(nd)."""
    import numpy as np

    rows = problem.vectors.astype(np.float64)
    if len(rows) < 2:
        return 0.0
    pairs = float((rows.sum(axis=0) ** 2).sum() - (rows**2).sum())
    return float(np.clip(pairs / (len(rows) * (len(rows) - 1)), 0.0, 1.0))


PHI: dict[str, Measure] = {"area": phi_area, "head": phi_head, "rank": phi_rank}
RHO: dict[str, Measure] = {"nearest": rho_nearest, "rank": rho_rank, "mean": rho_mean}
