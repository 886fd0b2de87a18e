"""Sentences grouped by a similarity graph."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from outlay.context import Embed, Span, Unit
from outlay.context.unitizers.sentence import sentences
from outlay.schema import option

if TYPE_CHECKING:
    import numpy as np
    from scipy.sparse import csr_array


@dataclass(frozen=True)
class Clusters:
    """One unit per community of sentences; its members keep their own spans, in document order.

    The paper names neither graph nor method. Ours: an edge joins two sentences where either is among the
    other's `neighbours` most similar and their cosine is at least `threshold`, weighted by the cosine;
    Louvain communities (Blondel et al. 2008; networkx, seeded) at `resolution`. A community of more than
    `max_sentences` is cut in document order.
    """

    name: ClassVar[str] = "cluster"
    neighbours: int = option(5, least=1)
    threshold: float = option(0.1, least=0.0, most=1.0)
    resolution: float = option(1.0, above=0.0)
    max_sentences: int = option(12, least=1)
    seed: int = 0

    def split(self, document: str, embed: Embed) -> list[Unit]:
        found: list[Span] = [(sentence.start, sentence.end) for sentence in sentences(document)]
        if len(found) < 2:
            return [Unit((span,)) for span in found]
        graph = similarity_graph(
            embed([document[start:end] for start, end in found]), self.neighbours, self.threshold
        )
        groups = communities(graph, self.resolution, self.seed)
        cut = [
            group[first : first + self.max_sentences]
            for group in groups
            for first in range(0, len(group), self.max_sentences)
        ]
        return [Unit(tuple(found[index] for index in members)) for members in sorted(cut)]


def similarity_graph(
    vectors: "np.ndarray", neighbours: int, threshold: float, rows: int = 1024
) -> "csr_array":
    """Symmetric sparse cosines (n, n) of mutual-or-either k nearest neighbours above the threshold; O(rows * n) memory.

    vectors: (n, d) float rows of length 1 or 0. Ties go to the earlier sentence.
    """
    import numpy as np
    from scipy.sparse import coo_array

    n = len(vectors)
    k = min(neighbours, n - 1)
    sources, targets, weights = [], [], []
    for first in range(0, n, rows):
        cosines = vectors[first : first + rows] @ vectors.T
        here = np.arange(len(cosines))
        cosines[here, first + here] = -np.inf
        best = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
        value = np.take_along_axis(cosines, best, axis=1)
        row, column = np.nonzero((value >= threshold) & (value > 0))
        sources.append(first + row)
        targets.append(best[row, column])
        weights.append(value[row, column])
    entries = (np.concatenate(weights), (np.concatenate(sources), np.concatenate(targets)))
    directed = coo_array(entries, shape=(n, n)).tocsr()
    return directed.maximum(directed.T).tocsr()


def communities(graph: "csr_array", resolution: float, seed: int) -> list[list[int]]:
    """Louvain communities, each in document order."""
    import networkx  # kept, seeded, and 10,000 sentences take seconds; its greedy modularity has no seed and is slower

    found = networkx.community.louvain_communities(
        networkx.from_scipy_sparse_array(graph), weight="weight", resolution=resolution, seed=seed
    )
    return [sorted(int(node) for node in group) for group in found]
