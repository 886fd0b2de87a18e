"""Small random problems, and their optimum by trying every subset."""

import numpy as np

from outlay.context.objective import Objective

BUDGET_SHARES = (0.15, 0.35, 0.6)


def random_vectors(rng: np.random.Generator, count: int, width: int = 6) -> np.ndarray:
    """Unit rows around a few topics, with some near and some exact copies, and now and then a zero row."""
    topics = rng.normal(size=(max(2, count // 3), width))
    rows = topics[rng.integers(0, len(topics), count)] + rng.uniform(0.1, 1.5) * rng.normal(
        size=(count, width)
    )
    for place in range(1, count):
        if rng.random() < 0.15:
            rows[place] = rows[rng.integers(0, place)]
    if rng.random() < 0.1:
        rows[rng.integers(0, count)] = 0
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def random_instance(rng: np.random.Generator, count: int) -> tuple[Objective, np.ndarray, list[int]]:
    """An objective with random weights (now and then one term alone), costs of three kinds, three budgets."""
    vectors = random_vectors(rng, count)
    alpha, beta, gamma = rng.choice(
        [(0.7, 1.0, 0.05), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0.3, 0.5, 2.0), (1.0, 0.1, 0.5)], axis=0
    )
    relevance = np.clip(vectors @ rng.normal(size=vectors.shape[1]), 0, 1).astype(np.float64)
    kind = rng.integers(0, 3)
    if kind == 0:
        costs = rng.integers(1, 20, count)
    elif kind == 1:  # a few large units beside many small ones: where density greedy alone fails
        costs = np.where(rng.random(count) < 0.3, rng.integers(20, 40, count), rng.integers(1, 4, count))
    else:
        costs = 1 + np.round(30 * relevance + rng.integers(0, 3, count)).astype(int)
    weight = beta * rng.uniform(0.2, 1.0, count)
    objective = Objective(
        vectors, alpha * relevance, weight, float(gamma), float(rng.choice([0.5, 1.0, 4.0]))
    )
    budgets = sorted({max(1, int(share * costs.sum())) for share in BUDGET_SHARES})
    return objective, costs.astype(np.int64), budgets


def all_values(objective: Objective) -> np.ndarray:
    """(2^n,) F of every subset; bit i of the index says whether unit i is in it."""
    count = len(objective.reward)
    rows = objective.vectors.astype(np.float64)
    cosines = rows @ rows.T
    masks = (np.arange(2**count)[:, None] >> np.arange(count)) & 1
    covered = np.where(masks[:, :, None], cosines[None], 0.0).max(axis=1)
    kernels = np.eye(count) + objective.scale * cosines * masks[:, :, None] * masks[:, None, :]
    log_dets = np.linalg.slogdet(kernels)[1]
    return masks @ objective.reward + covered @ objective.weight + objective.diversity * log_dets


def optima(objective: Objective, costs: np.ndarray, budgets: list[int]) -> list[float]:
    """The best F under each budget."""
    values = all_values(objective)
    masks = (np.arange(len(values))[:, None] >> np.arange(len(costs))) & 1
    tokens = masks @ costs
    return [float(values[tokens <= budget].max()) for budget in budgets]
