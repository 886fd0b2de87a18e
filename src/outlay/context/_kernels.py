"""The compiled engine of RCD: lazy density greedy for every budget of a sweep in one pass.

Identical units (same vector, reward and cost) form a group with one row of similarities, one gain and one
row of the Cholesky factor; `twin` chains its members by position. So a note of ten thousand copies costs one
row, and equal units tie exactly, in document order.

Gains only fall as units are kept (submodularity), so an old gain is an upper bound: the heap's top is
re-evaluated until it is fresh, and it is then the densest unit (Minoux 1978; Leskovec et al., KDD 2007).
A gain needs log(schur), schur = 1 + K_ii - |c_i|^2 with c_i the unit's row of the Cholesky factor of
I + K_S (Chen et al., NeurIPS 2018). Each unit extends its row only when it is looked at (Hemmi et al., 2022).
"""

from heapq import heapify, heappop, heapreplace
from math import log, sqrt
from typing import Any, NamedTuple

import numpy as np
from numba import njit

Array = Any  # numba sees concrete arrays; the comments give shapes
BLOCK = (
    2048  # single precision inside a block, double across blocks: a sum of positive terms is right to 4e-6
)
FAR = 1 << 60


class Instance(NamedTuple):
    """One document; m groups of n units."""

    similarity: Array  # (m, m) float32 cosines; (0, 0) where rows are made on demand
    vectors: Array  # (m, d) float32
    norm: Array  # (m,) float64: squared lengths, 1 or 0
    weight: Array  # (m,) float32, summed over a group's members
    reward: Array  # (m,) float64
    cost: Array  # (m,) int64
    first_gain: Array  # (m,) float64: F of the unit alone, or an upper bound of it
    first_stamp: int  # 0 where first_gain is exact, else -1
    group: Array  # (n,) int64
    leader: Array  # (m,) int64: the first member
    twin: Array  # (n,) int64: the next member, or -1
    diversity: float
    scale: float
    factor: Array  # (m, k) float32 scratch: rows of the Cholesky factor


class State(NamedTuple):
    """A partial selection; `stamp` and `depth` tell for how many kept units a group's numbers hold."""

    cover: Array  # (m,) float32: best similarity to a kept unit
    gain: Array  # (m,) float64
    spread: Array  # (m,) float64: the coverage part of the gain
    stamp: Array  # (m,) int64
    schur: Array  # (m,) float64
    depth: Array  # (m,) int64
    kept: Array  # (n,) bool
    order: Array  # (k,) int64
    pivot: Array  # (k,) float64: root of the Schur complement at the pick
    value: Array  # (k + 1,) float64: F of each prefix


@njit(cache=True)
def empty_state(inst):
    m, n, k = len(inst.cost), len(inst.group), inst.factor.shape[1]
    return State(
        np.zeros(m, np.float32),
        inst.first_gain.copy(),
        np.full(m, np.inf),
        np.full(m, inst.first_stamp),
        1.0 + inst.scale * inst.norm,
        np.zeros(m, np.int64),
        np.zeros(n, np.bool_),
        np.full(k, -1),
        np.ones(k),
        np.zeros(k + 1),
    )


@njit(cache=True)
def fork(s):
    return State(
        s.cover.copy(),
        s.gain.copy(),
        s.spread.copy(),
        s.stamp.copy(),
        s.schur.copy(),
        s.depth.copy(),
        s.kept.copy(),
        s.order.copy(),
        s.pivot.copy(),
        s.value.copy(),
    )


@njit(cache=True)
def queue_of(inst, state):
    """A heap of (-gain per token, unit): the first member of each group; ties go to the earlier unit."""
    queue = [(-state.gain[g] / inst.cost[g], inst.leader[g]) for g in range(len(inst.cost))]
    heapify(queue)
    return queue


@njit(cache=True, inline="always")  # a call with these records costs as much as its work
def similarities(inst, g):
    if len(inst.similarity):
        return inst.similarity[g]
    return np.dot(inst.vectors, inst.vectors[g])


@njit(cache=True, fastmath=True)
def dot(a, b, k):
    total = np.float32(0)
    for i in range(k):
        total += a[i] * b[i]
    return total


@njit(cache=True, fastmath=True)
def coverage_gain_block(row, cover, weight):
    total = np.float32(0)
    for j in range(len(row)):
        total += weight[j] * max(row[j] - cover[j], np.float32(0))
    return total


@njit(cache=True)
def coverage_gain(row, cover, weight):
    total = 0.0
    for at in range(
        0, len(row), BLOCK
    ):  # slices: with offsets in the index the loop is not vectorised (9x slower)
        block = slice(at, at + BLOCK)
        total += coverage_gain_block(row[block], cover[block], weight[block])
    return total


@njit(cache=True)
def coverage_gains(similarity, weight):
    """(m,) the coverage of each unit alone."""
    nothing, gains = np.zeros(len(weight), np.float32), np.empty(len(weight))
    for i in range(len(weight)):
        gains[i] = coverage_gain(similarity[i], nothing, weight)
    return gains


@njit(cache=True)
def extend_factor(inst, state, g, size):
    row, schur = inst.factor[g], state.schur[g]
    for t in range(state.depth[g], size):
        pick = inst.group[state.order[t]]
        if len(inst.similarity):
            cosine = inst.similarity[g, pick]
        else:
            cosine = dot(inst.vectors[pick], inst.vectors[g], inst.vectors.shape[1])
        entry = (inst.scale * cosine - dot(inst.factor[pick], row, t)) / state.pivot[t]
        row[t] = entry
        schur -= entry * entry
    state.schur[g] = max(schur, 1.0)  # I + K is at least I
    state.depth[g] = max(size, state.depth[g])


@njit(cache=True, inline="always")  # a call with these records costs as much as its work
def refresh(inst, state, g, size):
    """True if a group's gain is fresh; else one part of it is brought up to date, which may already sink it."""
    if state.stamp[g] != size:
        if state.spread[g] > 0.0:  # a unit whose neighbours are all covered stays at 0
            state.spread[g] = coverage_gain(similarities(inst, g), state.cover, inst.weight)
        state.stamp[g] = size
    elif inst.diversity > 0.0 and state.depth[g] < size:
        extend_factor(inst, state, g, size)
    else:
        return True
    state.gain[g] = inst.reward[g] + state.spread[g] + inst.diversity * log(state.schur[g])
    return False


@njit(cache=True)
def keep(inst, state, unit, size):
    g = inst.group[unit]
    while not refresh(inst, state, g, size):
        pass
    state.order[size] = unit
    state.kept[unit] = True
    state.pivot[size] = sqrt(state.schur[g])
    state.value[size + 1] = state.value[size] + state.gain[g]
    row = similarities(inst, g)
    for j in range(len(row)):
        state.cover[j] = max(state.cover[j], row[j])


@njit(cache=True)
def advance(inst, queue):
    """Replace the top unit by the next member of its group."""
    density, unit = queue[0]
    if inst.twin[unit] >= 0:
        heapreplace(queue, (density, inst.twin[unit]))
    else:
        heappop(queue)


@njit(cache=True)
def densest(inst, state, queue, size, room):
    """The unit of the largest fresh gain per token among those that fit, or -1; it stays on top of the queue."""
    while len(queue):
        unit = queue[0][1]
        g = inst.group[unit]
        if state.kept[unit]:
            advance(inst, queue)
        elif inst.cost[g] > room:
            heappop(queue)
        elif refresh(inst, state, g, size) and queue[0][0] == -state.gain[g] / inst.cost[g]:
            return unit  # fresh, and so is its place in the queue (a bound on the way refreshes gains too)
        else:
            heapreplace(queue, (-state.gain[g] / inst.cost[g], unit))
    return -1


@njit(cache=True)
def complete(inst, state, queue, size, room):
    """Density greedy until nothing fits; returns the new size."""
    while True:
        unit = densest(inst, state, queue, size, room)
        if unit < 0:
            return size
        keep(inst, state, unit, size)
        room -= inst.cost[inst.group[unit]]
        size += 1


@njit(cache=True)
def online_bound(inst, state, size, capacity):
    """F(A) + the best fractional filling of the capacity by the gains given A: at least the optimum
    (Leskovec et al., KDD 2007). Only the gains that enter the filling are made fresh.

    Returns (bound, largest gain per token given A).
    """
    queue = queue_of(inst, state)
    total, left, slope = state.value[size], capacity, 0.0
    while len(queue) and left > 0:
        unit = queue[0][1]
        g = inst.group[unit]
        if state.kept[unit]:
            advance(inst, queue)
        elif inst.cost[g] > capacity:
            heappop(queue)
        elif not refresh(inst, state, g, size):
            heapreplace(queue, (-state.gain[g] / inst.cost[g], unit))
        else:
            slope = max(slope, state.gain[g] / inst.cost[g])
            total += state.gain[g] * min(1.0, left / inst.cost[g])
            left -= inst.cost[g]
            advance(inst, queue)
    return total, slope


@njit(cache=True)
def gain_after(inst, state, cover, g, t):
    """The gain of a group's unit given the first t picks, `cover` being theirs."""
    gain = inst.reward[g] + coverage_gain(similarities(inst, g), cover, inst.weight)
    if inst.diversity > 0.0:
        if state.depth[g] < t:
            extend_factor(inst, state, g, t)
        row = inst.factor[g]
        gain += inst.diversity * log(max(1.0, 1.0 + inst.scale * inst.norm[g] - dot(row, row, t)))
    return gain


@njit(cache=True)
def best_addition(inst, state, fixed, size, budget):
    """Greedy+Max (Yaroslavtsev, Zhou, Avdiukhin, AISTATS 2020): the best set of a prefix and one unit that fits.

    Returns (prefix length, unit), or (-1, -1) where none beats the whole selection. The pick at a prefix was the
    densest unit that fits, so (its density) * cost bounds every other gain there: few units need a look.
    """
    cover = np.zeros(len(inst.cost), np.float32)
    limit = inst.first_gain.copy()
    taken = np.zeros(len(inst.group), np.bool_)
    best, place, addition = state.value[size] * (1 + 1e-7), -1, -1
    room, dearest = budget, inst.cost.max()
    for t in range(size):
        pick = inst.group[state.order[t]]
        if t >= fixed:
            density = (state.value[t + 1] - state.value[t]) / inst.cost[pick] * (1 + 1e-5)
            hopeless = state.value[t] + density * min(room, dearest) <= best
            for g in range(0 if hopeless else len(inst.cost)):
                upper = min(limit[g], density * inst.cost[g])
                if max(state.stamp[g], state.depth[g]) <= t:
                    upper = min(upper, state.gain[g])
                if inst.cost[g] > room or state.value[t] + upper <= best:
                    continue
                unit = inst.leader[g]
                while unit >= 0 and taken[unit]:
                    unit = inst.twin[unit]
                if unit < 0:
                    continue
                limit[g] = gain_after(inst, state, cover, g, t)
                if state.value[t] + limit[g] > best:
                    best, place, addition = state.value[t] + limit[g], t, unit
        taken[state.order[t]] = True
        room -= inst.cost[pick]
        row = similarities(inst, pick)
        for j in range(len(row)):
            cover[j] = max(cover[j], row[j])
    return place, addition


@njit(cache=True)
def started(inst, first):
    """The state after keeping the units of `first`, and their cost."""
    state, used = empty_state(inst), 0
    for size in range(len(first)):
        keep(inst, state, first[size], size)
        used += inst.cost[inst.group[first[size]]]
    return state, used


@njit(cache=True)
def sweep(inst, budgets, first, plus_max, bounded):
    """Selections that start with the units of `first`, one per budget; budgets ascend.

    All budgets share one path. Where the next unit of the path passes a budget, that budget leaves it with a
    copy of the state and goes on alone. The result equals a run per budget. The online bound is the least of
    those at a quarter, at half and at the end of a budget (mostly one of the first two is the tightest).

    Returns orders (q, k), padded by -1; sizes (q,), -1 where `first` does not fit; values, online bounds and
    gains per token of the best unit left (q,).
    """
    q, k = len(budgets), inst.factor.shape[1]
    orders, sizes = np.full((q, k), -1), np.full(q, -1)
    values, bounds, slopes = np.full(q, -np.inf), np.full(q, np.inf), np.zeros(q)
    places, additions, quarters = np.full(q, -1), np.full(q, -1), np.ones(q)
    state, used = started(inst, first)
    size, fixed = len(first), used
    queue = queue_of(inst, state)
    at = 0
    while at < q and used > budgets[at]:
        at += 1
    while at < q:
        unit = densest(inst, state, queue, size, budgets[q - 1] - used)
        cost = inst.cost[inst.group[unit]] if unit >= 0 else FAR
        for later in range(at, q if bounded else 0):
            if quarters[later] < 3 and used + cost > quarters[later] * budgets[later] / 4:
                bound, _ = online_bound(inst, state, size, budgets[later] - fixed)
                bounds[later] = min(bounds[later], bound)
                quarters[later] = np.floor(4 * (used + cost) / budgets[later]) + 1
        while at < q and used + cost > budgets[at]:
            alone = fork(state)
            end = complete(inst, alone, queue.copy(), size, budgets[at] - used)
            orders[at, :end] = alone.order[:end]
            sizes[at], values[at] = end, alone.value[end]
            if plus_max:
                places[at], additions[at] = best_addition(inst, alone, len(first), end, budgets[at])
            if bounded:
                bound, slopes[at] = online_bound(inst, alone, end, budgets[at] - fixed)
                bounds[at] = min(bounds[at], bound)
            at += 1
        if unit < 0:
            break
        keep(inst, state, unit, size)
        used += cost
        size += 1
    for at in range(q):  # last, since a new path overwrites the factor rows that the shared path still needs
        if places[at] < 0:
            continue
        state, used = started(inst, np.append(orders[at, : places[at]], additions[at]))
        end = complete(inst, state, queue_of(inst, state), places[at] + 1, budgets[at] - used)
        if state.value[end] > values[at]:
            orders[at, :end] = state.order[:end]
            orders[at, end:] = -1
            sizes[at], values[at] = end, state.value[end]
    return orders, sizes, values, bounds, slopes


@njit(cache=True)
def best_guess(inst, budgets, first, candidates, depth, orders, sizes, values):
    """Improve the selections in place by sweeps that start with one or two guessed units.

    One guess and density greedy reach .617, two reach 1 - 1/e (Feldman, Nutov, Shoham, 2020).
    """
    for i in range(len(candidates)):
        one = np.append(first, candidates[i])
        take_better(inst, budgets, one, orders, sizes, values)
        if depth > 1:
            for j in range(i + 1, len(candidates)):
                take_better(inst, budgets, np.append(one, candidates[j]), orders, sizes, values)


@njit(cache=True)
def take_better(inst, budgets, first, orders, sizes, values):
    found, found_sizes, found_values, _, _ = sweep(inst, budgets, first, False, False)
    for q in range(len(budgets)):
        if found_sizes[q] >= 0 and found_values[q] > values[q] * (1 + 1e-7):
            orders[q], sizes[q], values[q] = found[q], found_sizes[q], found_values[q]


@njit(cache=True, fastmath=True)
def excess_block(row, weight, price):
    total = np.float32(0)
    for j in range(len(row)):
        total += max(weight[j] * row[j] - price[j], np.float32(0))
    return total


@njit(cache=True)
def excesses(similarity, weight, price, out):
    """out_i = sum_j max(0, weight_j cos_ij - price_j), the value of unit i at the prices."""
    for i in range(len(weight)):
        total = 0.0
        for at in range(0, len(weight), BLOCK):
            block = slice(at, at + BLOCK)
            total += excess_block(similarity[i][block], weight[block], price[block])
        out[i] = total


@njit(cache=True)
def subgradient(similarity, weight, price, taken, out):
    """out_j = 1 - the taken share of the units that pay for j."""
    out[:] = 1.0
    for i in range(len(weight)):
        if taken[i] > 0.0:
            row = similarity[i]
            for j in range(len(weight)):
                if weight[j] * row[j] > price[j]:
                    out[j] -= taken[i]
