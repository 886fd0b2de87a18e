"""Composing and checking: from overrides to points, and everything that can be refused before a model, a data set or the tracking store is touched."""

import copy
import itertools
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from outlay import launch, schema, sweep, tune
from outlay.errors import ConfigError, nearest


def compose(overrides: Sequence[str], with_hydra: bool = False) -> DictConfig:
    """The config of one point.

    Raises:
        ConfigError: an unknown choice, key or value, with the nearest valid name.
    """
    import hydra
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        if GlobalHydra.instance().is_initialized():  # composing inside a running job
            return hydra.compose("config", list(overrides), return_hydra_config=with_hydra)
        with hydra.initialize_config_dir(str(schema.conf_dir()), version_base="1.3"):
            return hydra.compose("config", list(overrides), return_hydra_config=with_hydra)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_refusal(error, overrides)) from error


def _refusal(error: Exception, overrides: Sequence[str]) -> str:
    """Hydra's error in one line, with the nearest valid name."""
    for word in overrides:
        key, _, value = word.partition("=")
        key = key.lstrip("+~")
        if key == "hydra/launcher" and value != "basic":
            try:
                launch.installed(value)
            except ConfigError as missing:
                return str(missing)
            if value not in launch.PACKAGES:
                return f"{word}: no such launcher. {nearest(value, ['basic', *launch.PACKAGES])}"
        group, _, rest = key.partition(".")
        groups = (*schema.GROUPS, "experiment")
        if group in groups and not rest:
            for one in value.split(","):
                if one and one not in schema.choices(group) and one != "null":
                    return f"{group}={one}: no such choice. {nearest(one, schema.choices(group))}"
        elif (
            group.partition("/")[0] not in (*groups, "hydra")
            and group not in schema.Settings.__dataclass_fields__
        ):
            return (
                f"unknown option '{key}'. {nearest(group, [*groups, *schema.Settings.__dataclass_fields__])}"
            )
    text = " ".join(str(error).split())
    if "Ambiguous value" in text:
        several = next(word for word in overrides if "," in word)
        return f"{several}: several values make a grid. Add -m: outlay -m {' '.join(overrides)}"
    for word in overrides:
        key = word.partition("=")[0].lstrip("+~")
        group, _, rest = key.partition(".")
        if rest and key in text and group in schema.GROUPS:
            return f"unknown option '{key}'. {_options_of(group, overrides, rest)}"
    return text


def _options_of(group: str, overrides: Sequence[str], wrong: str) -> str:
    """The nearest option of the group's chosen component."""
    others = [word for word in overrides if not word.lstrip("+~").startswith(f"{group}.")]
    try:
        known = [str(key) for key in compose(others)[group] if key != "_target_"]
    except ConfigError:
        return ""
    near = nearest(wrong, known, f"{group}.") if known else "That choice has no options."
    if near.startswith("Did") or not (having := _with_option(group, wrong)):
        return near
    several = "" if len(having) == 1 else f" and {group}={having[-1]}"
    return (
        f"{near} {', '.join(f'{group}={one}' for one in having[: max(1, len(having) - 1)])}{several} "
        f"{'has' if len(having) == 1 else 'have'} it; a sweep of choices with and without it is a union of grids, `sweep:` "
        "of a preset (conf/experiment/quickstart.yaml)"
    )


def _with_option(group: str, option: str) -> list[str]:
    """The group's choices that have an option."""
    return [
        choice
        for choice in schema.choices(group)
        if OmegaConf.is_dict(node := OmegaConf.load(schema.conf_dir() / group / f"{choice}.yaml"))
        and option in node
    ]


def points_of(overrides: Sequence[str]) -> list[list[str]]:
    """The points of a multirun: the preset's grids crossed with the command line.

    Raises:
        ConfigError: an override that cannot be parsed, a wrong preset.
    """
    given = _given(overrides)
    grids = _preset(given)[0]
    held = (_axis(key, axis) for grid in grids if isinstance(grid, Mapping) for key, axis in grid.items())
    for axis in (*given.values(), *held):
        if not axis.values:
            raise ConfigError(
                f"{axis.key} is an interval, which has no list of values. A grid needs one, {axis.key}=1,2,3 or "
                f"{axis.key}='range(1,4)'; to search the interval, add tune=optuna"
            )
    points = sweep.points(grids, {key: axis.values for key, axis in given.items()})
    # The plan is the sweep's; a point carries its own overrides only, so its hash does not depend on its neighbours.
    return [[*point, "sweep=[]"] for point in points]


def _given(overrides: Sequence[str]) -> dict[str, tune.Axis]:
    """What the command line gives, by key, without what says how the sweep is launched.

    Raises:
        ConfigError: an override that cannot be parsed.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        found = {}
        for one in OverridesParser.create().parse_overrides(list(overrides)):
            key = one.get_key_element()
            name = key.lstrip("+~").partition(".")[0]
            if one.is_sweep_override() and (name.startswith("hydra") or name == "tune"):
                how = "launched" if name.startswith("hydra") else "searched"
                raise ConfigError(f"{one.input_line}: one value; how a sweep is {how} is not an axis")
            if not name.startswith("hydra"):
                found[key] = _read(key, one)
        return found
    except HydraException as error:
        raise ConfigError(" ".join(str(error).split())) from error


def _read(key: str, one: Any) -> tune.Axis:
    """A parsed override as an axis; one with a single value has that alone."""
    from hydra.core.override_parser.types import RangeSweep

    if not one.is_sweep_override():
        return tune.Axis(key, (one.get_value_element_as_str(),))
    value = one.value()
    if not one.is_discrete_sweep():
        return tune.Axis(key, low=value.start, high=value.end, log="log" in value.tags)
    values = tuple(one.sweep_string_iterator())
    if not isinstance(value, RangeSweep) or value.shuffle or len(values) < 2:
        return tune.Axis(key, values)
    low, high = sorted((float(values[0]), float(values[-1])))
    return tune.Axis(
        key, values if value.step > 0 else values[::-1], low, high, (high - low) / (len(values) - 1)
    )


SWEPT = re.compile(r"(tag\(.*)?(interval|range|choice)\(")
"""How a string begins that a preset's axis has in Hydra's sweep grammar."""


def _axis(key: str, axis: Any) -> tune.Axis:
    """A preset's axis: a list of values, one value, or Hydra's sweep grammar as a string."""
    if isinstance(axis, str) and SWEPT.match(axis):
        return _given([f"{key}={axis}"])[key]
    return tune.Axis(key, tuple(sweep.written(value) for value in sweep.values(key, axis)))


def _preset(given: Mapping[str, tune.Axis]) -> tuple[Any, Any]:
    """The preset's grids, and how they are searched (`tune.Untuned`: not at all)."""
    presets = given["experiment"].values if "experiment" in given else ()
    if len(presets) > 1:
        raise ConfigError("experiment: one preset at a time; its sweep is a union of grids")
    words = [
        f"{key}={axis.values[0]}"
        for key, axis in given.items()
        if key.lstrip("+~").partition(".")[0] in ("experiment", "tune")
    ]
    if not words:
        return [], tune.Untuned()
    config: Any = OmegaConf.to_container(compose(words), resolve=False)
    return config["sweep"], schema.build_one("tune", config["tune"])


def space_of(overrides: Sequence[str], composed: dict[tuple[str, ...], DictConfig]) -> tune.Space:
    """What a tuned sweep searches: the preset's one grid, with what the command line gives put over it.

    Raises:
        ConfigError: a union of grids, an interval that is none, an option that no choice has.
    """
    given = _given(overrides)
    grids = _preset(given)[0]
    if len(grids) > 1:
        raise ConfigError(
            f"tune=optuna searches one space, and the preset is a union of {len(grids)} grids. "
            "Use a preset with one, such as experiment=tune"
        )
    held = {key: _axis(key, axis) for grid in grids for key, axis in grid.items()}
    axes = list((held | given).values())
    for axis in axes:
        if axis.key.lstrip("+") == tune.SPLIT and len(axis.values) != 1:
            raise ConfigError(
                f"{axis.key}={','.join(axis.ends)}: a search stays on one split; another would not be held out. "
                "Use dataset.split=tune"
            )
    fixed = {axis.key: axis.values[0] for axis in axes if len(axis.values) == 1}
    space = tune.Space(fixed, tuple(axis for axis in axes if axis.key not in fixed))
    homes = {axis.key: _home(axis.key, space, composed) for axis in axes if not axis.choice}
    for axis in axes:
        if axis.key in given and homes.get(axis.key, True) is None:
            compose([*next(_choices_of(space)), f"{axis.key}={axis.ends[0]}"])  # it says which option is near
            raise ConfigError(f"{axis.key}: no choice of the space has this option")
    # A preset's option whose choices the command line has replaced is for none.
    known = [axis for axis in space.axes if homes.get(axis.key, True) is not None]
    if not known:
        raise ConfigError(
            "tune=optuna: nothing to search. Give several values or an interval, such as "
            "selector.weight='interval(0,1)' budget.tokens=64,128,256"
        )
    return replace(space, axes=tuple(_typed(axis, homes.get(axis.key)) for axis in known))


def _home(key: str, space: tune.Space, composed: dict[tuple[str, ...], DictConfig]) -> DictConfig | None:
    """The config of the first choices that have an option."""
    found = (words for words in _choices_of(space) if has_option(words, key, composed))
    words = next(found, None)
    return None if words is None else _composed(words, composed)


def _typed(axis: tune.Axis, home: DictConfig | None) -> tune.Axis:
    """An interval of an option that is a whole number has whole numbers. home: the config of choices that have it.

    Raises:
        ConfigError: an interval that is none.
    """
    if axis.values:
        return axis
    if not (axis.low < axis.high and (axis.low > 0 or not axis.log)):
        raise ConfigError(
            f"{axis.key}: an interval goes from a smaller to a larger number; under log, above 0"
        )
    usual = None if home is None else OmegaConf.select(home, axis.key)
    whole = isinstance(usual, int) and not isinstance(usual, bool)
    if whole and not (axis.low.is_integer() and axis.high.is_integer()):
        raise ConfigError(f"{axis.key}: a whole number, so its interval ends in whole numbers")
    return replace(axis, whole=whole)


def _choices_of(space: tune.Space) -> Iterator[list[str]]:
    """Every combination of the space's choices, as overrides."""
    fixed = [f"{key}={text}" for key, text in space.fixed.items() if "." not in key]
    choices = [[f"{axis.key}={text}" for text in axis.ends] for axis in space.axes if axis.choice]
    return ([*fixed, *combination] for combination in itertools.product(*choices))


def _composed(words: Any, composed: dict[tuple[str, ...], DictConfig]) -> DictConfig:
    """The config of a point's choices, without its options."""
    choices = tuple(
        word for word in words if "." not in word.partition("=")[0] and not word.startswith("sweep=")
    )
    choices = (*choices, "sweep=[]")
    if choices not in composed:
        composed[choices] = compose(choices)
    return composed[choices]


def has_option(words: Any, key: str, composed: dict[tuple[str, ...], DictConfig]) -> bool:
    """Whether a point with these choices has an option."""
    if key.startswith(("+", "~")):
        return True
    if isinstance(words, Mapping):
        words = [f"{name}={text}" for name, text in words.items()]
    where, _, name = key.rpartition(".")
    node = OmegaConf.select(_composed(words, composed), where)
    return isinstance(node, DictConfig) and name in node.keys()  # noqa: SIM118 (one without a value is there too)


def compose_near(point: Sequence[str], composed: dict[tuple[str, ...], DictConfig]) -> DictConfig:
    """As `compose`, but points that differ in plain options share one composition: a fifth of the time."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    options = [
        one for one in OverridesParser.create().parse_overrides(list(point)) if "." in one.key_or_group
    ]
    simple = all(
        not (one.is_add() or one.is_force_add() or one.is_delete() or one.package) for one in options
    )
    if not simple or any(one.key_or_group.startswith("hydra") for one in options):
        return compose(point)
    config = copy.deepcopy(_composed(point, composed))
    try:
        for one in options:
            OmegaConf.update(config, one.key_or_group, one.value(), force_add=False)
    except Exception:  # whatever is wrong, Hydra's own composition says it in our words
        return compose(point)
    return config


def checked(config: DictConfig) -> schema.Parts:
    """A point's components, built from its config.

    Raises:
        ConfigError: names the option that is missing or cannot be.
    """
    from omegaconf.errors import OmegaConfBaseException

    try:
        resolved = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", "") or ""
        raise ConfigError(
            f"{key}: {' '.join(str(error).split('full_key')[0].split())}. Set {key}=..."
        ) from error
    written: Any = OmegaConf.to_container(config, resolve=False)
    if _holds_secret(str(written["tracking"]["uri"])):  # it would be kept in config files
        raise ConfigError(
            "tracking.uri: a user or password in it would be written into config files. Take it from the environment, "
            "tracking.uri='http://${oc.env:TRACKING_USER}:${oc.env:TRACKING_PASSWORD}@HOST:PORT', or set "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )
    return schema.build(resolved)  # type: ignore[arg-type]


def _holds_secret(uri: str) -> bool:
    """Whether an address, as written, has a password; over HTTP, a user: a token may be one. `${oc.env:NAME}` is neither.

    Read up to the last @, so that a password with a slash or a # in it, which no parser of addresses sees, is seen.
    """
    scheme, _, rest = re.sub(r"\$\{oc\.env:\w+\}", "", uri).partition("//")
    user, _, password = rest.rpartition("@")[0].partition(":")
    if scheme.lower().startswith(("sqlite", "file")):
        return False
    return bool(password or (user and scheme.lower().startswith("http")))


def preflight(overrides: Sequence[str], multirun: bool) -> list[schema.Parts]:
    """Compose and check every point before the first is paid for.

    Returns:
        Each point's components, in the plan's order.

    Raises:
        ConfigError: names the option, and the point where it is not the only one.
    """
    if not multirun:
        config = compose(overrides)
        refuse_grid(config, overrides)
        return [checked(config)]
    if isinstance(_preset(_given(overrides))[1], tune.Optuna):
        return _preflight_of_a_space(overrides)
    points = points_of(overrides)
    composed: dict[tuple[str, ...], DictConfig] = {}
    found = []
    for at, point in enumerate(points):
        try:
            found.append(checked(compose_near(point, composed)))
        except ConfigError as error:
            where = f" (point {at + 1} of {len(points)}: {' '.join(point[:-1])})" if len(points) > 1 else ""
            raise ConfigError(f"{error}{where}") from error
    return found


def _preflight_of_a_space(overrides: Sequence[str]) -> list[schema.Parts]:
    """Every value of the space, an interval by its ends, can be run with some of its choices, the other options as first given,
    on the held-out split too.

    Returns:
        The first point that can be run.

    Raises:
        ConfigError: names the option.
    """
    composed: dict[tuple[str, ...], DictConfig] = {}
    space = space_of(overrides, composed)
    has = partial(has_option, composed=composed)
    first: list[schema.Parts] = []
    for wanted in [(axis.key, end) for axis in space.axes for end in axis.ends]:
        why = None
        for words in _choices_of(space):
            chosen = dict(word.split("=", 1) for word in words) | dict([wanted])
            if "." in wanted[0] and not has(chosen, wanted[0]):
                continue
            point = space.choose(has, lambda axis, chosen=chosen: chosen.get(axis.key, axis.ends[0]))  # type: ignore[misc]
            try:
                first.append(_held_out_too(point, composed))
                break
            except ConfigError as error:
                why = why or error
        else:
            assert why is not None
            raise why
    held_out = first[0].tune.held_out
    for parts in first:
        if held_out is not None and parts.dataset.split in (held_out, "all"):
            raise ConfigError(
                f"tune.held_out={held_out}: the search would see that split, dataset.split={parts.dataset.split}. "
                "Search on dataset.split=tune, or say that nothing is held out: tune.held_out=null"
            )
    return first[:1]


def _held_out_too(point: Sequence[str], composed: dict[tuple[str, ...], DictConfig]) -> schema.Parts:
    """A point of a space, checked on the split that is searched and on the one that is held out."""
    parts = checked(compose_near(point, composed))
    if split := parts.tune.held_out:
        try:
            checked(compose_near(tune.on_split(point, split), composed))
        except ConfigError as error:
            raise ConfigError(
                f"tune.held_out={split}: what is found could not be run there. {error}"
            ) from error
    return parts


def to_generate(overrides: Sequence[str]) -> list[schema.Parts]:
    """The points of `outlay generate`, which can be answered.

    Raises:
        ConfigError: as `preflight` and `ready`; a search, whose points are not known before their answers.
    """
    points = preflight(overrides, multirun=True)
    if isinstance(points[0].tune, tune.Optuna):
        raise ConfigError(
            "tune=optuna: which settings a search asks for is known as it goes, so nothing can be generated for it "
            "beforehand. Use outlay -m, or give a grid: tune=none"
        )
    ready(points)
    return points


def refuse_grid(config: DictConfig, overrides: Sequence[str]) -> None:
    """Refuse as one run what is a sweep of them.

    Raises:
        ConfigError: names the flag that makes it a sweep.
    """
    if OmegaConf.select(config, "tune._target_") == "outlay.tune.Optuna":
        raise ConfigError("tune=optuna searches by a sweep of runs. Add -m: outlay -m " + " ".join(overrides))
    if config.get("sweep"):
        raise ConfigError("this preset is a grid of runs. Add -m: outlay -m " + " ".join(overrides))


def writable(output_dir: Path) -> None:
    """Refuse an output folder before the first run rather than after it.

    Raises:
        ConfigError: it cannot be made or written.
    """
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=output_dir):
            pass
    except OSError as error:
        raise ConfigError(
            f"output_dir={output_dir}: {error.strerror}. Name a folder that can be written"
        ) from error


def ready(points: Sequence[schema.Parts]) -> None:
    """Refuse what would not be answered: a plan needs no key, and a run does.

    Raises:
        ConfigError: from the generator's or the data set's own `ready`.
    """
    looked_at = set[str]()
    for parts in points:
        for part in (parts.generator, parts.dataset):
            check = getattr(part, "ready", None)
            if check and repr(part) not in looked_at:
                looked_at.add(repr(part))
                check()


def may_launch(overrides: Sequence[str], first: schema.Parts) -> None:
    """Refuse a launcher that is not here, and stores where its jobs could not share them.

    Raises:
        ConfigError: names the package or the folder, and the way out.
    """
    from outlay.cache import cache_dir
    from outlay.track import store_uri
    from outlay.track.places import check_places

    words = [word for word in overrides if word.lstrip("+~").startswith("hydra")]
    name = "basic"
    if words:
        name = str(compose(words, with_hydra=True).hydra.runtime.choices["hydra/launcher"])
    launch.installed(name)
    check_places(store_uri(first.tracking, Path(first.settings.output_dir)), cache_dir(), name)


def plain(config: DictConfig) -> dict[str, Any]:
    """The resolved config as it may be kept: what comes from the environment stands as its `${oc.env:...}` name."""

    def kept(raw: Any, resolved: Any) -> Any:
        if isinstance(raw, dict):
            return {key: kept(raw[key], resolved[key]) for key in raw}
        return raw if "oc.env:" in str(raw) else resolved

    raw, resolved = (OmegaConf.to_container(config, resolve=resolve) for resolve in (False, True))
    found: dict[str, Any] = kept(raw, resolved)
    return found


def choices_made(hydra_config: Any) -> dict[str, str]:
    """Group -> the choice that a point was composed of."""
    return {
        group: str(choice) for group, choice in hydra_config.runtime.choices.items() if group in schema.GROUPS
    }
