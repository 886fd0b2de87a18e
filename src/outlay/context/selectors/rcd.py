"""RCD: relevance, coverage and diversity of the whole set, maximised with a certificate."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from outlay.context import Problem, Selection
from outlay.context.packing import selection
from outlay.errors import ConfigError, OutlayError
from outlay.schema import option

if TYPE_CHECKING:
    from outlay.context.objective import Objective
    from outlay.context.reference import Solution


@dataclass(frozen=True)
class Rcd:
    """F(S) = relevance * R(S) + coverage * C(S) + diversity * log det(I + kernel_scale * K_S) under the budget.

    Lazy density greedy against the best single unit (1/2 (1 - 1/e) of the optimum, Leskovec et al., KDD 2007) and
    against every prefix with one more unit (Greedy+Max, 1/2, Yaroslavtsev et al., AISTATS 2020), one pass for all
    budgets; guess=1 reaches .617 and guess=2 reaches 1 - 1/e (Feldman, Nutov, Shoham, 2020). What still fits is kept,
    also at no gain. `bound` is at least F of every set within the budget.

    The weights .7, 1 and .05 are those of the authors' code (there beta, alpha and eta); so is weights=position with
    decay .04. The paper's tables do not say theirs. The other weights, kernel_scale 1 and all else are ours.

    info: `online_bound`; `marginal`, the largest gain per token left, i.e. what the next token would buy.
    """

    relevance: float = option(0.7, least=0)
    coverage: float = option(1.0, least=0)
    diversity: float = option(0.05, least=0)
    kernel_scale: float = option(1.0, least=0)
    weights: str = option("relevant", choices=("relevant", "uniform", "position"))
    position_decay: float = option(0.04, least=0)
    guess: int = option(0, choices=(0, 1, 2))
    guess_top: int | None = option(
        None, least=1
    )  # guess among so many of the best single units; null: all (the guarantee)
    bound: str = option("online", choices=("none", "online", "lagrangian"))
    bound_steps: int = option(60, least=1)
    engine: str = option("numba", choices=("numba", "numpy", "torch"))
    dense_limit: int = option(
        12_000, least=1
    )  # above so many distinct units, similarities are made on demand

    name: ClassVar[str] = "rcd"
    oracle: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.engine != "numba" and self.bound == "lagrangian":
            raise ConfigError(
                f"bound=lagrangian: engine={self.engine} has none. Use engine=numba or bound=online"
            )
        if self.engine == "torch" and self.guess:
            raise ConfigError(f"guess={self.guess}: engine=torch does not guess. Use engine=numba or guess=0")

    def select(self, problem: Problem) -> list[Selection]:
        return self.select_given(problem, ())

    def select_given(self, problem: Problem, kept: Sequence[int]) -> list[Selection]:
        """As `select`, over the sets that contain the units `kept`, whose costs count against the budgets.

        Raises:
            OutlayError: the units kept pass a budget; or see `engine.solve`.
        """
        return select_batch(self, [problem], [kept])[0]

    def objective(self, problem: Problem) -> "Objective":
        """F for one problem."""
        from outlay.context.objective import Objective, facility_weights

        return Objective(
            vectors=problem.vectors,
            reward=self.relevance * problem.relevance,
            weight=self.coverage * facility_weights(problem.relevance, self.weights, self.position_decay),
            diversity=self.diversity,
            scale=self.kernel_scale,
        )


def select_batch(
    rcd: Rcd, problems: Sequence[Problem], kept: Sequence[Sequence[int]] = ()
) -> list[list[Selection]]:
    """The selections of several documents; engine=torch takes them as one padded batch, on the GPU where there is one.

    Raises:
        OutlayError: see `Rcd.select_given`.
    """
    kept = kept or [()] * len(problems)
    objectives = [rcd.objective(problem) for problem in problems]
    # A budget for the whole document needs no search: F is monotone.
    partly = [
        sorted({budget for budget in problem.budgets if budget < problem.costs.sum()}) for problem in problems
    ]
    for problem, given in zip(problems, kept, strict=True):
        paid = int(problem.costs[list(given)].sum())
        if paid > min(problem.budgets, default=paid):
            raise OutlayError(
                f"the {len(given)} units kept take {paid} tokens, more than the budget of {min(problem.budgets)}"
            )
    searched = [place for place, budgets in enumerate(partly) if budgets]
    found: dict[tuple[int, int], Solution] = {}
    answers = _engine(rcd)(
        [objectives[place] for place in searched],
        [problems[place].costs for place in searched],
        [partly[place] for place in searched],
        [kept[place] for place in searched],
    )
    for place, solutions in zip(searched, answers, strict=True):
        found |= {(place, budget): one for budget, one in zip(partly[place], solutions, strict=True)}
    return [
        [
            _selection(problem, found[place, budget], rcd.bound != "none")
            if (place, budget) in found
            else _everything(problem, objectives[place], kept[place])
            for budget in problem.budgets
        ]
        for place, problem in enumerate(problems)
    ]


Engine = Callable[..., "list[list[Solution]]"]


def _engine(rcd: Rcd) -> Engine:
    """A function of lists over documents: objectives, costs, ascending budgets, units kept."""
    if rcd.engine == "torch":
        from outlay.context.batch import solve_batch

        return partial(solve_batch, bounded=rcd.bound != "none")
    if rcd.engine == "numpy":
        from outlay.context import reference

        one = partial(reference.solve, guess=rcd.guess, guess_top=rcd.guess_top)
    else:
        from outlay.context import engine

        one = partial(
            engine.solve,
            guess=rcd.guess,
            guess_top=rcd.guess_top,
            bounded=rcd.bound != "none",
            steps=rcd.bound_steps if rcd.bound == "lagrangian" else 0,
            dense_limit=rcd.dense_limit,
        )
    return lambda *documents: [one(*document) for document in zip(*documents, strict=True)]


def _selection(problem: Problem, found: "Solution", bounded: bool) -> Selection:
    from outlay.context.bounds import MARGIN

    if not bounded:
        return selection(found.order, problem.costs, value=found.value)
    online, lagrangian = (max(one * (1 + MARGIN), found.value) for one in (found.online, found.lagrangian))
    return selection(
        found.order,
        problem.costs,
        value=found.value,
        bound=min(online, lagrangian),
        info={"online_bound": online, "marginal": found.slope},
    )


def _everything(problem: Problem, objective: "Objective", kept: Sequence[int]) -> Selection:
    order = [*kept, *(unit for unit in range(len(problem.costs)) if unit not in set(kept))]
    value = objective.value(order)
    return selection(
        order, problem.costs, value=value, bound=value, info={"online_bound": value, "marginal": 0.0}
    )
