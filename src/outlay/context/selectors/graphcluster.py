"""Representatives of the communities of a similarity graph."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from outlay.context import Problem, Selection
from outlay.context.packing import fill, selection
from outlay.schema import option

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class GraphCluster:
    """One unit of each community, then a second of each, and so on, as far as they fit.

    Communities are those of Louvain on the graph of nearest neighbours (networkx: seeded, on weighted graphs, and
    their number need not be known). They come in order of their mean relevance, members in order of their
    similarity to the community's mean vector, or of relevance. The paper names the idea; all of this is ours.
    """

    neighbours: int = option(10, least=1)  # edges per unit
    resolution: float = option(1.0, above=0)  # larger: more communities
    representative: str = option("central", choices=("central", "relevant"))

    name: ClassVar[str] = "graphcluster"
    oracle: ClassVar[bool] = False

    def select(self, problem: Problem) -> list[Selection]:
        import numpy as np

        ranked = []
        for members in communities(problem.vectors, self.neighbours, self.resolution, problem.seed):
            scores = problem.relevance[members]
            if self.representative == "central":
                rows = problem.vectors[members].astype(np.float64)
                scores = np.round(rows @ rows.mean(axis=0), 9)  # equal rows tie, and ties go by position
            ranked.append(
                (-float(problem.relevance[members].mean()), members[np.argsort(-scores, kind="stable")])
            )
        ranked.sort(key=lambda community: (community[0], community[1].min()))
        rounds = max((len(members) for _, members in ranked), default=0)
        ranking = [
            int(members[turn]) for turn in range(rounds) for _, members in ranked if turn < len(members)
        ]
        costs = problem.costs.tolist()
        return [selection(fill(ranking, costs, budget), problem.costs) for budget in problem.budgets]


def communities(vectors: "np.ndarray", neighbours: int, resolution: float, seed: int) -> list["np.ndarray"]:
    """Louvain communities of the nearest-neighbour graph, as ascending positions; alone: units without a neighbour.

    Identical units are one node, so copies cost nothing and stay together.
    """
    import networkx as nx
    import numpy as np

    from outlay.context.objective import first_copies

    first = first_copies(vectors)
    nodes = np.unique(first)
    rows = vectors[nodes]
    graph = nx.Graph()
    graph.add_nodes_from(range(len(nodes)))
    near = min(neighbours, len(nodes) - 1)
    for start in range(0, len(nodes) if near > 0 else 0, 1024):
        cosines = rows[start : start + 1024] @ rows.T
        np.fill_diagonal(cosines[:, start:], -1.0)
        closest = np.argpartition(-cosines, near - 1, axis=1)[:, :near]
        for offset, others in enumerate(closest):
            weights = cosines[offset, others].tolist()
            node = start + offset
            edges = (
                (node, other, weight)
                for other, weight in zip(others.tolist(), weights, strict=True)
                if weight > 0
            )
            graph.add_weighted_edges_from(edges)
    found = nx.community.louvain_communities(graph, resolution=resolution, seed=seed)
    group = np.empty(len(vectors), np.int64)
    for number, members in enumerate(found):
        group[nodes[list(members)]] = number
    group = group[first]
    return [np.flatnonzero(group == number) for number in range(len(found))]
