"""The schema of every config group, and the one place where a config becomes objects.

A choice of a group is a frozen dataclass named by `_target_` in `conf/<group>/<choice>.yaml`; its
fields are its options. So a new choice brings its schema with it, and nothing here is edited.
"""

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from outlay.errors import ConfigError, nearest


def option(
    default: Any = dataclasses.MISSING,
    *,
    choices: Sequence[Any] | None = None,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    factory: Any = dataclasses.MISSING,
) -> Any:
    """A dataclass field with a checked domain: one of `choices`, or least <= value <= most, value > above."""
    domain = {"choices": choices, "least": least, "most": most, "above": above}
    return dataclasses.field(
        default=default,
        default_factory=factory,
        metadata={name: value for name, value in domain.items() if value is not None},
    )


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything of a config that is not a group."""

    seed: int = option(0, least=0)  # of data, selection, sampling and statistics
    verbose: bool = True  # progress bars and the table at the end
    output_dir: str = "multirun_outputs"
    plan: bool = False  # say what the points would need, and pay for nothing
    resume: str | None = None  # a sweep's id, or last: go on with what has not finished
    reuse: bool = False  # take a point that another sweep has finished, with the same config and code
    fail_fast: bool = False  # after the first failure, start no other point
    sweep: list[Any] = dataclasses.field(default_factory=list)  # a preset's union of grids


GROUPS = {
    "dataset": "outlay.data.",
    "unitizer": "outlay.context.unitizers.",
    "embedder": "outlay.context.embedders.",
    "selector": "outlay.context.",
    "budget": "outlay.context.budgets.",
    "generator": "outlay.generate.",
    "retry": "outlay.agent.retry.",
    "router": "outlay.routers.",
    "probe": "outlay.inflation.probes.",
    "prompt": "outlay.generate.prompting.",
    "metrics": "outlay.score.",
    "tracking": "outlay.track.",
    "tune": "outlay.tune.",
}
"""Each group and the package that its components live in: nothing else is built from a config."""


SHARED = {
    "selector": "outlay.context.pins.Retention",
    "generator": "outlay.generate.spend.SpendLimit",
}
"""Options that every choice of a group has, whatever else it has; a component of their own."""


@dataclasses.dataclass(frozen=True)
class Parts:
    """One grid point as objects: a component per group, and the settings."""

    dataset: Any
    unitizer: Any
    embedder: Any
    selector: Any
    budget: Any
    generator: Any
    retry: Any
    router: Any
    probe: Any
    prompt: Any
    metrics: Any
    tracking: Any
    tune: Any
    retention: Any  # the selector's pins
    spend_limit: Any  # the generator's
    settings: Settings


def conf_dir() -> Path:
    """The folder of config files (in a checkout, a link to `conf/`)."""
    return Path(__file__).parent / "conf"


def choices(group: str) -> list[str]:
    """The named options of a group."""
    return sorted(path.stem for path in (conf_dir() / group).glob("*.yaml"))


def component(group: str, choice: str, **options: Any) -> Any:
    """Build one component by its name, e.g. component("selector", "mmr", penalty=0.7), without Hydra.

    Raises:
        ConfigError: an unknown choice or option, or a value outside its domain.
    """
    from omegaconf import OmegaConf

    path = conf_dir() / group / f"{choice}.yaml"
    if not path.is_file():
        raise ConfigError(f"{group}={choice}: no such choice. {nearest(choice, choices(group))}")
    node: dict[str, Any] = OmegaConf.to_container(OmegaConf.load(path), resolve=False)  # type: ignore[assignment]
    # Values that refer to the whole config (${seed}) have none here; there the dataclass's defaults serve.
    own = {
        key: value
        for key, value in node.items()
        if key not in ("defaults", *_shared_names(group)) and not str(value).startswith("${")
    }
    return build_one(group, {**own, **options})


def build(config: Mapping[str, Any]) -> Parts:
    """Check a composed config against the schemas and build its components; nothing heavy is loaded.

    Raises:
        ConfigError: an unknown key (also one added with `+`), a wrong type, a value outside its domain,
            a target outside outlay, or a combination that cannot run.
    """
    known = {*GROUPS, *(field.name for field in dataclasses.fields(Settings))}
    for key in config:
        if key not in known:
            raise ConfigError(f"unknown option '{key}'. {nearest(str(key), known)}")
    settings = _checked(Settings, {key: value for key, value in config.items() if key not in GROUPS}, "")
    nodes = {group: dict(config[group]) for group in GROUPS}
    shared = {
        group: {name: nodes[group].pop(name) for name in _shared_names(group) if name in nodes[group]}
        for group in SHARED
    }
    parts = Parts(
        **{group: build_one(group, node) for group, node in nodes.items()},
        retention=build_one("selector", {"_target_": SHARED["selector"], **shared["selector"]}),
        spend_limit=build_one("generator", {"_target_": SHARED["generator"], **shared["generator"]}),
        settings=settings,
    )
    check_combination(parts)
    return parts


def build_one(group: str, node: Mapping[str, Any]) -> Any:
    """Build the component that a group's node describes.

    Raises:
        ConfigError: see `build`.
    """
    values = dict(node)
    return _checked(_target(group, str(values.pop("_target_", ""))), values, f"{group}.")


def _target(group: str, target: str) -> type:
    if not target.startswith(GROUPS[group]):
        raise ConfigError(
            f"{group}._target_={target!r}: only components inside '{GROUPS[group]}' are built from a config"
        )
    module_name, _, class_name = target.rpartition(".")
    try:
        cls = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{group}._target_={target}: {error}") from error
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise ConfigError(f"{group}._target_={target} is not a component (a dataclass of options)")
    return cls


def _shared_names(group: str) -> list[str]:
    return (
        [field.name for field in dataclasses.fields(_target(group, SHARED[group]))] if group in SHARED else []
    )


def _checked(cls: type, values: Mapping[str, Any], prefix: str) -> Any:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    for key in values:
        if key not in fields:
            hint = nearest(str(key), fields, prefix) if fields else "It has no options."
            raise ConfigError(f"unknown option '{prefix}{key}'. {hint}")
    try:
        typed = OmegaConf.structured(cls)
        _open(typed)
        typed = OmegaConf.merge(typed, dict(values))
        built = OmegaConf.to_object(typed)
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", None) or ""
        reason = str(getattr(error, "msg", None) or error).strip().splitlines()[0]
        raise ConfigError(f"{prefix}{key}: {reason}") from error
    except ConfigError as error:  # from a component's own __post_init__
        raise ConfigError(f"{prefix[:-1]}: {error}") from error
    _check_domains(built, prefix)
    return built


def _check_domains(built: Any, prefix: str) -> None:
    """Of its options, and of those within an option."""
    for field in dataclasses.fields(built):
        value = getattr(built, field.name) if field.init else None
        if dataclasses.is_dataclass(value):
            _check_domains(value, f"{prefix}{field.name}.")
        else:
            _check_domain(f"{prefix}{field.name}", value, field.metadata)


def _open(node: Any) -> None:
    """OmegaConf takes frozen dataclasses for read-only, nested ones too."""
    from omegaconf import DictConfig, OmegaConf

    OmegaConf.set_readonly(node, False)
    for key in node:
        child = node._get_node(key)
        if isinstance(child, DictConfig) and not child._is_none() and not child._is_missing():
            _open(child)


def _check_domain(key: str, value: Any, domain: Mapping[str, Any]) -> None:
    if value is None or not domain:
        return
    for one in value if isinstance(value, list) else [value]:
        allowed = domain.get("choices")
        if allowed is not None and one not in allowed:
            raise ConfigError(f"{key}={one}: {nearest(str(one), map(str, allowed))}")
        if "least" in domain and not one >= domain["least"]:
            raise ConfigError(f"{key}={one}: must be at least {domain['least']}")
        if "above" in domain and not one > domain["above"]:
            raise ConfigError(f"{key}={one}: must be above {domain['above']}")
        if "most" in domain and not one <= domain["most"]:
            raise ConfigError(f"{key}={one}: must be at most {domain['most']}")


def check_combination(parts: Parts) -> None:
    """Refuse what cannot run, before anything is loaded.

    Raises:
        ConfigError: names the options at odds and the way out.
    """
    parts.prompt.over(parts.dataset.prompt)  # its templates are read
    for impossible, message in _combinations(parts):
        if impossible:
            raise ConfigError(message)


def _combinations(parts: Parts) -> list[tuple[bool, str]]:
    """(does it clash, what to say), one row per rule."""
    data, selector, retry, probe, router = (
        parts.dataset,
        parts.selector,
        parts.retry,
        parts.probe,
        parts.router,
    )
    tiers = [tier.name for tier in parts.generator.tiers]
    samples = parts.generator.samples
    stop = getattr(retry, "stop", "none")
    summary = data.answer == "text"
    probe_tier = getattr(probe, "tier", None)
    router_tier = getattr(router, "tier", None)
    return [
        (
            bool(data.path) and data.embedded,
            f"dataset.path={data.path}: dataset={data.name} is made here and reads no file. "
            "Use dataset=table for a file of your own",
        ),
        (
            bool(data.path) and not data.may_exist(),
            f"dataset.path={data.path}: {_siblings(data.path)}",
        ),
        (
            not data.has_gold and parts.prompt.shots > 0,
            f"prompt.shots={parts.prompt.shots}: dataset={data.name} has no gold answers to show. Use prompt.shots=0",
        ),
        (
            not data.has_gold and data.query == "reference",
            f"dataset.query=reference: dataset={data.name} has no references. Use dataset.query=centroid",
        ),
        (
            (selector.oracle or hasattr(selector, "fit")) and (not data.has_gold or data.answer == "label"),
            f"selector={selector.name} goes by gold facts or reference texts, and dataset={data.name} has none. "
            "Use selector=routed",
        ),
        (
            getattr(parts.budget, "rule", "") == "certificate" and selector.name != "rcd",
            f"budget.rule=certificate needs a selector with a bound, and selector={selector.name} has none. "
            "Use selector=rcd",
        ),
        *(
            (
                None in (tier.price.input, tier.price.output, tier.price.units),
                f"generator.price: input, output and units of tier {tier.name} are needed (USD per million tokens, "
                "compute units per token); an unknown price is not zero, but 0 is a price",
            )
            for tier in parts.generator.tiers
        ),
        (
            parts.metrics.scorer == "recorded" and not hasattr(parts.generator, "recorded"),
            f"metrics.scorer=recorded: generator={parts.generator.name} replays no log, so there is no flag to go by. "
            "Use metrics.scorer=outlay, or generator=replay",
        ),
        (
            stop == "gold" and not data.has_gold,
            f"retry.stop=gold: dataset={data.name} has no gold answers. "
            "Use retry.stop=vote or retry.stop=parse",
        ),
        (
            stop == "gold" and summary,
            "retry.stop=gold: a summary is never exactly right, so it would never stop. Use retry=none",
        ),
        *_split_combinations(parts),
        *_retry_combinations(parts, tiers),
        *_router_combinations(parts, tiers),
        *_replay_combinations(parts),
        (
            not data.has_document and selector.name != "none",
            f"selector={selector.name} needs a document, and dataset={data.name} has none. Use selector=none",
        ),
        (
            not data.has_document and not samples,
            f"generator={parts.generator.name} answers with the context, and dataset={data.name} has none. "
            "Use generator=smollm2",
        ),
        (
            data.has_document
            and data.query == "question"
            and summary
            and getattr(data, "task", "") == "summary",
            "dataset.query=question: a summary has no question. Use dataset.query=template or centroid",
        ),
        (
            (selector.name == "full") != (parts.budget.name == "full"),
            "selector=full and budget=full go together: the whole document keeps no budget. "
            "Use both, or another selector under budget=fixed",
        ),
        (
            probe_tier is not None and probe_tier not in tiers,
            f"probe.tier={probe_tier}: generator={parts.generator.name} has no such tier. "
            f"{nearest(str(probe_tier), tiers)}",
        ),
        (
            router_tier is not None and router_tier not in tiers,
            f"router.tier={router_tier}: generator={parts.generator.name} has no such tier. "
            f"{nearest(str(router_tier), tiers)}",
        ),
        (
            probe.name != "none" and not samples,
            f"probe={probe.name}: generator={parts.generator.name} does not sample, so there is nothing to "
            "probe. Use probe=none",
        ),
        (
            retry.name != "none" and not samples,
            f"retry={retry.name}: generator={parts.generator.name} gives the same answer every time. "
            "Use retry=none",
        ),
        (
            getattr(probe, "reuse", False) and probe.temperature != getattr(retry, "temperature", None),
            "probe.reuse=true: its samples serve as attempts, so probe.temperature must equal retry.temperature",
        ),
        (
            data.credentialed and not parts.generator.stays_home,
            f"dataset={data.name} is credentialed: its text may not be sent to generator={parts.generator.name}, "
            "whose address is not on this machine. Use a local generator",
        ),
    ]


def judged_on_fitted(what: str, split: str) -> str:
    """What is said where queries would be judged by what was fitted on their gold."""
    return (
        f"dataset.split={split}: {what} is fitted on the gold of queries of this split, and would be judged on the same "
        "ones. Use dataset.split=test"
    )


def _split_combinations(parts: Parts) -> list[tuple[bool, str]]:
    """Nothing is judged on what it has learned from; as in `_combinations`."""
    split, retry, shots = parts.dataset.split, parts.retry, parts.prompt.shots
    on_train, on_both = split in ("train", "all"), split != "test"  # routers choose their thresholds on tune
    return [
        (
            on_both and getattr(parts.router, "learns", False),
            judged_on_fitted(f"router={parts.router.name}", split),
        ),
        (
            on_both and getattr(retry, "asks", "") == "scorer",
            judged_on_fitted("retry.verifier=scorer", split),
        ),
        (
            on_train and hasattr(parts.selector, "fit"),
            judged_on_fitted(f"selector={parts.selector.name}", split),
        ),
        (
            on_train and shots > 0,
            f"dataset.split={split}: prompt.shots={shots} shows worked examples of the train split with their gold, and "
            "some of them would be asked again. Use dataset.split=test, or prompt.shots=0",
        ),
    ]


def _replay_combinations(parts: Parts) -> list[tuple[bool, str]]:
    """What a log has too few samples for, whatever they say; as in `_combinations`."""
    log, retry, router, probe = parts.generator, parts.retry, parts.router, parts.probe
    if not hasattr(log, "recorded") or log.missing != "error" or log.reuse:
        return []
    from outlay.agent.ledger import recorded

    most, apart = recorded(log.path)
    if not most:
        return []
    tiers = [tier.name for tier in log.tiers]
    learns = getattr(router, "learns", False) and getattr(retry, "temperature", 0.0) > 0
    pair = [getattr(router, end, None) or tiers[at] for end, at in (("weak", 0), ("strong", -1))]
    explored = min(most.get(tier, 0) for tier in (pair if hasattr(router, "weak") else tiers))
    static = router.name == "static"
    answered = most.get(router.tier or tiers[0], 0) if static else max(most.values())
    # Every attempt is made, of a retry that this router runs.
    every = getattr(retry, "stop", "none") == "none" and getattr(retry, "context", "fresh") == "fresh"
    every = (
        every
        and retry.name != "adaptive"
        and (static or router.name in ("random", "ser", "ser_x", "lagrangian"))
    )
    probed = 0 if getattr(probe, "reuse", False) or apart else int(getattr(probe, "k", 0))
    kept = 0 if apart else max(probed, log.probes)
    wanted = [
        ("probe.k", probed, answered - 1),  # one more is answered with
        ("router.samples", getattr(router, "samples", 0) if learns else 0, explored - kept),
        ("router.k", getattr(router, "k", 0) if router.name == "mot" else 0, most.get(pair[0], 0)),
        ("retry.samples", getattr(retry, "samples", 0), answered),
        *((f"retry.{one}", getattr(retry, one, 0) if every else 0, answered - kept) for one in PER_TIER),
    ]
    return [
        (
            count > max(0, here),
            f"{name}={count}: of no query does {log.path} hold as many fresh samples"
            f"{f' beside the {kept} of the probe' if kept and name != 'probe.k' else ''}: the most is {max(0, here)}. "
            f"{f'Use {name}={here}' if here > 0 else 'Use probe=none' if kept else f'Lower {name}'}, "
            "or generator.reuse=true (a sample again) or generator.missing=skip (such calls fail, and are counted)",
        )
        for name, count, here in wanted
    ]


PER_TIER = ("max_attempts", "attempts_per_tier")
"""What retries call the attempts that they may make on a tier."""


def _retry_combinations(parts: Parts, tiers: Sequence[str]) -> list[tuple[bool, str]]:
    """The rules of how often to try, and of what checks a try; as in `_combinations`."""
    data, retry, probe, router = parts.dataset, parts.retry, parts.probe, parts.router
    asks, judge = getattr(retry, "asks", None), getattr(retry, "judge", None)
    attempts = int(getattr(retry, "max_attempts", getattr(retry, "attempts_per_tier", 1)))
    probed = int(getattr(probe, "k", 0))
    sampled = max(attempts, probed) if getattr(probe, "reuse", False) else attempts + probed
    ladder = getattr(retry, "tiers", None)
    escalates = retry.name == "escalate"
    return [
        (
            data.answer == "text" and (retry.name in ("vote", "adaptive") or asks == "agreement"),
            f"retry={retry.name}: dataset={data.name} is answered in free text, and free texts never agree. "
            "Use retry=none, or retry=fixed with retry.stop=verifier and retry.verifier=self_verify",
        ),
        (
            asks == "agreement" and sampled < getattr(retry, "verifier_samples", 1),
            f"retry.verifier=agreement: it compares at least {getattr(retry, 'verifier_samples', 1)} samples "
            f"(retry.verifier_samples), and a query has at most {sampled}. Allow more attempts",
        ),
        (
            asks == "scorer" and (not data.has_gold or data.answer == "text"),
            f"retry.verifier=scorer is fitted on right and wrong answers, and dataset={data.name} has none. "
            "Use retry.verifier=self_verify",
        ),
        (
            judge is not None and judge not in tiers,
            f"retry.judge={judge}: generator={parts.generator.name} has no such tier. {nearest(str(judge), tiers)}",
        ),
        (
            asks == "judge" and len(tiers) < 2,
            f"retry.verifier=judge asks another tier, and generator={parts.generator.name} has one. "
            "Use retry.verifier=self_verify",
        ),
        (
            parts.generator.name == "lab" and asks in ("self_verify", "judge"),
            f"retry.verifier={asks} asks a model whether an answer is right, and generator=lab's models answer no such "
            "question. Use retry.verifier=agreement, parse, logprob or scorer",
        ),
        (
            escalates and len(ladder or tiers) < 2,
            f"retry=escalate goes from tier to tier, and there is one: {(ladder or tiers)[0]}. "
            "Use retry=fixed, or a generator with several tiers",
        ),
        *(
            (
                tier not in tiers,
                f"retry.tiers: generator={parts.generator.name} has no tier '{tier}'. {nearest(str(tier), tiers)}",
            )
            for tier in ladder or ()
        ),
        (
            escalates and (getattr(router, "tier", None) or tiers[0]) not in (ladder or tiers),
            f"retry.tiers={ladder}: router.tier={getattr(router, 'tier', None) or tiers[0]}, where it starts, is not "
            "among them",
        ),
        (
            escalates and router.name != "static",
            f"retry=escalate and router={router.name} would both choose the tier. Use retry=fixed, or router=static",
        ),
        (
            getattr(retry, "predictor", None) is not None and probe.name == "none",
            "retry.predictor foretells from a probe, and there is none. Use probe=cbe",
        ),
    ]


def _router_combinations(parts: Parts, tiers: Sequence[str]) -> list[tuple[bool, str]]:
    """The rules of routers; as in `_combinations`."""
    data, router = parts.dataset, parts.router
    name = f"router={router.name}"
    return [
        (
            len(tiers) < getattr(router, "least_tiers", 1),
            f"{name} chooses between tiers, and generator={parts.generator.name} has one. "
            "Use router=static, or generator=ladder",
        ),
        (
            parts.generator.name == "lab" and router.name == "automix",
            f"{name} asks a model whether an answer is right, and generator=lab's models answer no such question. "
            "Use router=frugalgpt, or retry=escalate with retry.stop=verifier and retry.verifier=agreement, parse, logprob "
            "or scorer",
        ),
        (
            getattr(router, "learns", False) and not data.has_gold,
            f"{name} learns from right and wrong answers, and dataset={data.name} has no gold. "
            "Use router=static or router=mot",
        ),
        (
            getattr(router, "reads_gold", False) and (not data.has_gold or data.answer == "text"),
            f"{name} stops at a right answer, and dataset={data.name} has none that can be right. "
            "Use router=static or router=lagrangian",
        ),
        (
            # Shares of calls need no cost; what weighs quality against cost does.
            getattr(router, "learns", False)
            and hasattr(router, "cost")
            and (not hasattr(router, "strong_share") or router.mean_cost is not None)
            and all(_free(tier.price, router.cost) for tier in parts.generator.tiers),
            f"router.cost={getattr(router, 'cost', None)}: every tier of generator={parts.generator.name} is free in it, "
            f"so {name} has nothing to weigh quality against. Use router.cost=units, or name the prices",
        ),
        (
            getattr(router, "predictor", None) is not None and parts.probe.name == "none",
            "router.predictor foretells from a probe, and there is none. Use probe=cbe",
        ),
        *(
            (
                tier is not None and tier not in tiers,
                f"router.{end}={tier}: generator={parts.generator.name} has no such tier. "
                f"{nearest(str(tier), tiers)}",
            )
            for end in ("weak", "strong")
            for tier in [getattr(router, end, None)]
        ),
        (
            hasattr(router, "weak") and (router.weak or tiers[0]) == (router.strong or tiers[-1]),
            f"{name}: weak and strong are the same tier, {getattr(router, 'weak', None) or tiers[0]}",
        ),
    ]


def _free(price: Any, cost: str) -> bool:
    """Whether a call costs nothing in what a router minimises."""
    return cost != "tokens" and not any((price.units,) if cost == "units" else (price.input, price.output))


def _siblings(path: str | None) -> str:
    where = Path(path or "").expanduser()
    if not where.parent.is_dir():
        return f"there is no folder {where.parent}"
    names = [one.name for one in where.parent.iterdir() if not one.name.startswith(".")]
    close = nearest(where.name, names)
    return f"no such file. {close}" if close.startswith("Did") else "no such file"
