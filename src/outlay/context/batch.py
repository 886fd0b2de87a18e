"""RCD for several documents at once in torch, on the GPU where there is one: the same algorithm, every gain anew at
every step. Single-precision sums differ from the compiled engine's, so near-ties may fall the other way."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from outlay.context.objective import Objective, first_copies
from outlay.context.reference import Solution

if TYPE_CHECKING:
    import numpy as np
    import torch


def solve_batch(
    objectives: Sequence[Objective],
    costs: Sequence["np.ndarray"],
    budgets: Sequence[Sequence[int]],
    kept: Sequence[Sequence[int]],
    bounded: bool = True,
) -> list[list[Solution]]:
    """Per document, one solution per budget; every set contains the document's `kept`, whose costs count.

    Documents are padded to the longest: memory is that of documents * units^2 floats, so batch like with like.
    """

    if not objectives:
        return []
    run = _Run(objectives, costs, budgets)
    starts = [[list(given) for _ in limits] for given, limits in zip(kept, budgets, strict=True)]
    greedy = run.greedy(starts, bounded)
    # Greedy+Max: where a prefix with one more unit is better, go on from there.
    improved = [
        [more if more else start for more, start in zip(mores, own, strict=True)]
        for mores, own in zip(greedy.additions, starts, strict=True)
    ]
    again = run.greedy(improved, False) if improved != starts else greedy
    solutions: list[list[Solution]] = []
    for place, objective in enumerate(objectives):
        solutions.append([])
        for q in range(len(budgets[place])):
            orders = (greedy.orders[place][q], again.orders[place][q])
            value, first = max((objective.value(order), -turn) for turn, order in enumerate(orders))
            bound = float(greedy.bounds[place, q])
            solutions[-1].append(Solution(orders[-first], value, bound, float(greedy.slopes[place, q])))
    return solutions


class _Found:
    """What one run found: orders and better starts per document and budget, bounds and slopes (D, Q)."""

    def __init__(self, orders: Any, additions: Any, bounds: "np.ndarray", slopes: "np.ndarray") -> None:
        self.orders, self.additions, self.bounds, self.slopes = orders, additions, bounds, slopes


class _Run:
    """D documents padded to N units and Q budgets, on one device."""

    def __init__(
        self, objectives: Sequence[Objective], costs: Sequence["np.ndarray"], budgets: Sequence[Sequence[int]]
    ) -> None:
        import numpy as np
        import torch

        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.sizes = [len(own) for own in costs]
        self.budgets = budgets
        documents, most = len(costs), max(self.sizes)
        width = max(objective.vectors.shape[1] for objective in objectives)
        vectors = np.zeros((documents, most, width), np.float32)
        weight, reward = np.zeros((documents, most), np.float32), np.zeros((documents, most))
        cost = np.full((documents, most), 2**40)  # padding fits nowhere
        same = np.tile(np.arange(most), (documents, 1))
        limit = np.full((documents, max(map(len, budgets))), -1)
        for place, objective in enumerate(objectives):
            rows = slice(0, self.sizes[place])
            vectors[place, rows, : objective.vectors.shape[1]] = objective.vectors
            weight[place, rows], reward[place, rows] = objective.weight, objective.reward
            cost[place, rows], same[place, rows] = costs[place], first_copies(objective.vectors)
            limit[place, : len(budgets[place])] = budgets[place]
        self.diversity, self.scale = objectives[0].diversity, objectives[0].scale
        self.weight, self.reward = self._on(weight), self._on(reward)[:, None]
        self.cost, self.same, self.limit = self._on(cost)[:, None], self._on(same), self._on(limit)
        units = self._on(vectors)
        cosines = units @ units.transpose(1, 2)
        rows_same = self.same[:, :, None].expand_as(cosines)
        self.cosines = cosines.gather(1, rows_same).gather(2, rows_same.transpose(1, 2))
        self.copies = self.same[:, None].expand(-1, limit.shape[1], -1)

    def _on(self, array: "np.ndarray") -> "torch.Tensor":
        import torch

        return torch.from_numpy(array).to(self.device)

    def greedy(self, starts: list[list[list[int]]], bounded: bool) -> _Found:
        """Density greedy from each start; the best set of a prefix and one unit, where it beats the whole."""
        import numpy as np
        import torch

        documents, count = self.limit.shape
        most = self.cosines.shape[1]
        first, lengths = self._starts(starts)
        cover = torch.zeros(documents, count, most, device=self.device)
        schur = (1 + self.scale * self.cosines.diagonal(dim1=1, dim2=2)).double()[:, None].repeat(1, count, 1)
        factor: list[torch.Tensor] = []
        free = (self.cost < 2**40).repeat(1, count, 1)
        left, value = (
            self.limit.clone(),
            torch.zeros(documents, count, device=self.device, dtype=torch.float64),
        )
        fixed = self.limit - self._paid(first, lengths)
        picks: list[torch.Tensor] = []
        best = torch.full_like(value, -torch.inf)
        best_step, best_unit = torch.full_like(left, -1), torch.full_like(left, -1)
        bounds, slopes = torch.full_like(value, torch.inf), torch.zeros_like(value)
        position = torch.arange(most, device=self.device)
        while True:
            step = len(picks)
            gain = self._gains(cover, schur)
            density = gain / self.cost
            forced = step < lengths
            fits = free & (self.cost <= left[..., None])
            open_ = ~forced & fits.any(-1)
            if bounded:
                self._tighten(bounds, value, density, free, fixed, ~forced)
            slopes = torch.where(
                forced, slopes, density.where(free & (self.cost <= fixed[..., None]), 0.0).amax(-1)
            )
            more, unit_more = (value[..., None] + gain).where(fits, -torch.inf).max(-1)
            better = open_ & (more > best)
            best = torch.where(better, more, best)
            best_step, best_unit = best_step.where(~better, step), best_unit.where(~better, unit_more)
            if not (open_ | forced).any():
                break
            fitting = density.where(fits, -1.0)
            top = fitting.amax(-1, keepdim=True)
            unit = torch.where(fitting == top, position, most).amin(-1)  # the first of equals
            if step < first.shape[-1]:
                unit = torch.where(forced, first[..., step], unit)
            moves = open_ | forced
            self._keep(unit, moves, cover, schur, factor, free)
            at = unit[..., None]
            value = value + gain.gather(-1, at)[..., 0].where(moves, 0.0)
            left = left - self.cost.expand_as(free).gather(-1, at)[..., 0].where(moves, 0)
            picks.append(unit.where(moves, -1))
        order = torch.stack(picks, -1).cpu().numpy() if picks else np.zeros((documents, count, 0), np.int64)
        wins = (best > value * (1 + 1e-6)).cpu().numpy()
        steps, units = best_step.cpu().numpy(), best_unit.cpu().numpy()
        orders = [
            [order[d, q][order[d, q] >= 0].tolist() for q in range(len(self.budgets[d]))]
            for d in range(documents)
        ]
        additions = [
            [
                [*order[d, q, : steps[d, q]].tolist(), int(units[d, q])] if wins[d, q] else []
                for q in range(len(self.budgets[d]))
            ]
            for d in range(documents)
        ]
        return _Found(orders, additions, bounds.cpu().numpy(), slopes.cpu().numpy())

    def _starts(self, starts: list[list[list[int]]]) -> tuple["torch.Tensor", "torch.Tensor"]:
        """Units to keep first (D, Q, longest), and their numbers (D, Q)."""
        import numpy as np

        documents, count = self.limit.shape
        longest = max((len(one) for own in starts for one in own), default=0)
        first, lengths = (
            np.zeros((documents, count, longest), np.int64),
            np.zeros((documents, count), np.int64),
        )
        for d, own in enumerate(starts):
            for q, one in enumerate(own):
                first[d, q, : len(one)], lengths[d, q] = one, len(one)
        return self._on(first), self._on(lengths)

    def _paid(self, first: "torch.Tensor", lengths: "torch.Tensor") -> "torch.Tensor":
        import torch

        costs = self.cost.expand(-1, first.shape[1], -1).gather(-1, first)
        inside = torch.arange(first.shape[-1], device=self.device) < lengths[..., None]
        return costs.where(inside, 0).sum(-1)

    def _gains(self, cover: "torch.Tensor", schur: "torch.Tensor") -> "torch.Tensor":
        """(D, Q, N) marginal gains; one budget at a time bounds the memory by D N^2."""
        import torch

        spread = torch.stack(
            [
                ((self.cosines - cover[:, q, None]).clamp_min(0) * self.weight[:, None]).sum(
                    -1, dtype=torch.float64
                )
                for q in range(cover.shape[1])
            ],
            dim=1,
        )
        gains = self.reward + spread + self.diversity * schur.log()
        return gains.gather(-1, self.copies) if spread.shape[-1] else gains

    def _keep(
        self,
        unit: "torch.Tensor",
        moves: "torch.Tensor",
        cover: "torch.Tensor",
        schur: "torch.Tensor",
        factor: list["torch.Tensor"],
        free: "torch.Tensor",
    ) -> None:
        """Keep one unit in each (document, budget) that moves: a new row of each Cholesky factor."""
        at = unit[..., None]
        row = self.cosines.gather(1, at.expand(-1, -1, self.cosines.shape[-1]))
        cover.copy_(cover.maximum(row).where(moves[..., None], cover))
        if self.diversity > 0:
            entry = (self.scale * row).double()
            for earlier in factor:
                entry = entry - earlier.gather(-1, at) * earlier
            entry = (entry / schur.gather(-1, at).sqrt()).where(moves[..., None], 0.0)
            factor.append(entry)
            schur.copy_((schur - entry**2).clamp_min(1.0))
        free.scatter_(-1, at, free.gather(-1, at) & ~moves[..., None])

    def _tighten(
        self,
        bounds: "torch.Tensor",
        value: "torch.Tensor",
        density: "torch.Tensor",
        free: "torch.Tensor",
        room: "torch.Tensor",
        valid: "torch.Tensor",
    ) -> None:
        """The online bound at this prefix."""
        import torch

        usable = free & (self.cost <= room[..., None])
        ranked, places = density.where(usable, 0.0).sort(-1, descending=True)
        tokens = self.cost.expand_as(free).where(usable, 0).gather(-1, places)
        inside = torch.minimum(tokens, (room[..., None] - (tokens.cumsum(-1) - tokens)).clamp_min(0))
        bound = value + (ranked * inside).sum(-1)
        bounds.copy_(torch.where(valid, bounds.minimum(bound), bounds))
