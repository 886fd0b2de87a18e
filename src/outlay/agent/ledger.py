"""The ledger: one line per call made or tried, failures included. Its sum is the bill."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Line:
    """One call. Tokens are the generator's own counts; of n samples in one request the first bills the prompt."""

    example_id: str
    line: int  # position in the query's trace, from 0
    kind: str  # probe | attempt | verify; a call that failed and was tried again has finish_reason "retried"
    tier: str = ""
    attempt: int = 0  # from 1; 0 for a sample that is not an attempt
    sample: int = 0  # index on its stream
    context: str = "fresh"  # fresh | carry | other | reflect
    step: int = 0  # which of the query's contexts was sent; 0 is the smallest
    seed: int = 0  # of the row's own random numbers
    temperature: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost_units: float = 0.0
    usd: float = 0.0
    latency_s: float = 0.0
    finish_reason: str = ""  # stop | length | refused | error | retried
    logprob: float | None = None  # mean over the reply's tokens, in nats
    answer: str | None = None  # normalised; None where nothing could be parsed
    verifier: str = ""  # of a verify line
    confidence: float | None = None  # the verifier's, from 0 to 1
    verdict: bool | None = None
    oracle: bool = False  # a verdict that read gold
    score: float | None = None  # joined after the run
    error: str = ""
    text: str = ""  # the reply

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Query:
    """What a policy may know of an example before any call: never its gold."""

    id: str
    question: str
    context_tokens: int  # of the first step
    prompt_tokens: int  # of a fresh prompt at the first step
    steps: int = 1  # contexts of growing budget that it may be answered with
    split: str = "test"


@dataclass(frozen=True)
class Trace:
    """One query and its lines so far."""

    query: Query
    lines: tuple[Line, ...] = ()

    @property
    def probes(self) -> list[Line]:
        return [line for line in self.lines if line.kind == "probe" and line.finish_reason != "retried"]

    @property
    def attempts(self) -> list[Line]:
        """Samples that count as tries at an answer, in order; with probe.reuse the probe's are among them."""
        return [line for line in self.lines if line.attempt > 0 and line.kind != "verify"]

    @property
    def tokens(self) -> int:
        return sum(line.tokens for line in self.lines)

    def verdict(self, attempt: int, verifier: str) -> bool | None:
        """What a verifier said of an attempt; None if it has not looked at it, or could not tell."""
        return next((line.verdict for line in self._checks(attempt, verifier)), None)

    def checked(self, attempt: int, verifier: str) -> bool:
        """Whether a verifier has looked at an attempt."""
        return any(True for _ in self._checks(attempt, verifier))

    def confidence(self, attempt: int, verifier: str) -> float | None:
        """A verifier's confidence in an attempt: the mean over its samples that said anything; None without one."""
        said = [one.confidence for one in self._checks(attempt, verifier) if one.confidence is not None]
        return sum(said) / len(said) if said else None

    def _checks(self, attempt: int, verifier: str) -> Iterator[Line]:
        for line in self.lines:
            if (
                line.kind == "verify"
                and line.attempt == attempt
                and line.verifier == verifier
                and line.finish_reason != "retried"
            ):
                yield line

    def vote(self) -> str | None:
        """The most frequent parsed answer of the attempts; ties go to the earlier one."""
        counts = Counter(line.answer for line in self.attempts if line.answer is not None)
        return counts.most_common(1)[0][0] if counts else None

    def last_answer(self) -> str | None:
        """The latest attempt's answer that could be parsed."""
        for line in reversed(self.attempts):
            if line.answer is not None:
                return line.answer
        return None

    def of_tier(self, tier: str) -> "Trace":
        """The trace as if only one tier had been tried.

        Attempts keep their numbers in the whole trace, so that a `Verify` of one means the same there. A probe on another
        tier counts as made, not as tried.
        """
        kept = {line.attempt for line in self.attempts if line.tier == tier}
        lines = [
            replace(line, attempt=0) if line.kind == "probe" and line.attempt not in kept else line
            for line in self.lines
            if line.kind == "probe"
            or (line.attempt in kept if line.kind == "verify" or line.attempt else line.tier == tier)
        ]
        return replace(self, lines=tuple(lines))

    def plus(self, lines: Iterable[Line]) -> "Trace":
        return replace(self, lines=(*self.lines, *lines))


@dataclass
class Ledger:
    """All lines of a run, in the order they were settled, and the queries they belong to."""

    lines: list[Line] = field(default_factory=list)
    queries: dict[str, Query] = field(default_factory=dict)

    def traces(self, split: str | None = None) -> list[Trace]:
        """The lines by query, of one split or of all; in the order of `queries`."""
        found: dict[str, list[Line]] = {key: [] for key in self.queries}
        for line in self.lines:
            found[line.example_id].append(line)
        return [
            Trace(query, tuple(found[key]))
            for key, query in self.queries.items()
            if split in (None, query.split)
        ]

    @property
    def tokens(self) -> int:
        return sum(line.tokens for line in self.lines)

    @property
    def usd(self) -> float:
        return sum(line.usd for line in self.lines)

    @property
    def oracle(self) -> bool:
        """Whether any line read gold, so that no table may call the run deployable."""
        return any(line.oracle for line in self.lines)

    def frame(self) -> "pd.DataFrame":
        """One row per line, columns as in `Line`."""
        return ledger_table(self.lines).to_pandas()


def ledger_schema() -> "pa.Schema":
    """The Parquet schema of a ledger: every column typed, also when it is empty."""
    import pyarrow as pa

    kinds = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
    columns = []
    for one in fields(Line):
        annotation = one.type if isinstance(one.type, str) else getattr(one.type, "__name__", str(one.type))
        columns.append(pa.field(one.name, kinds[annotation.removesuffix(" | None")]))
    return pa.schema(columns)


def ledger_table(lines: Sequence[Line]) -> "pa.Table":
    import pyarrow as pa

    schema = ledger_schema()
    return pa.table({name: [getattr(line, name) for line in lines] for name in schema.names}, schema=schema)


class Recorded(NamedTuple):
    """What a ledger's file holds: by tier, the most fresh attempts of any query; whether probes stand apart from them."""

    most: Mapping[str, int]
    probes: bool


def recorded(path: str) -> Recorded:
    """Counted from a few columns of the file; nothing where it is no ledger."""
    where = Path(path).expanduser()
    state = where.stat()
    return _recorded(str(where), state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=16)
def _recorded(path: str, *state: int) -> Recorded:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    names = ["tier", "example_id", "kind", "attempt", "context", "step", "finish_reason"]
    if set(names) - set(pq.read_schema(path).names):
        return Recorded({}, False)
    table = pq.read_table(path, columns=names)
    table = table.filter(pc.not_equal(table["finish_reason"], "retried"))
    probe = pc.and_(pc.equal(table["kind"], "probe"), pc.equal(table["attempt"], 0))
    fresh = pc.and_(pc.equal(table["context"], "fresh"), pc.equal(table["step"], 0))
    tried = pc.and_(pc.not_equal(table["kind"], "verify"), pc.invert(probe))
    counts = (
        table.filter(pc.and_(fresh, tried)).group_by(["tier", "example_id"]).aggregate([([], "count_all")])
    )
    most = counts.group_by("tier").aggregate([("count_all", "max")])
    return Recorded(
        dict(zip(most["tier"].to_pylist(), most["count_all_max"].to_pylist(), strict=True)),
        bool(pc.any(probe).as_py()),
    )


def read_ledger(path: Path) -> Ledger:
    """A ledger from its Parquet file."""
    import pyarrow.parquet as pq

    return Ledger([Line(**row) for row in pq.read_table(path).to_pylist()])
