"""Which points a sweep has: a preset's union of grids, crossed with what the command line gives."""

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from outlay.errors import ConfigError

TRANSPORT = ("verbose", "output_dir", "tracking", "sweep", "plan", "resume", "reuse", "fail_fast", "tune")
"""Keys that change where a run goes, not what it is."""

LIMITS = ("spend_limit_usd", "spend_limit_tokens")


def points(grids: Sequence[Mapping[str, Any]], given: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """The overrides of every point, in order, without duplicates.

    Args:
        grids: each a product of axes {key: value or list of values}; the sweep is their union. Empty: one grid
            without axes of its own.
        given: command-line overrides, key -> values; they replace a grid's axis of the same key. An option that some
            grids sweep is for those alone; another key with several values is an axis of every grid.

    Raises:
        ConfigError: a grid is not a mapping, or an axis has no values.
    """
    found: dict[tuple[str, ...], None] = {}
    held = {key for grid in grids if isinstance(grid, Mapping) for key in grid}
    for grid in grids or [{}]:
        if not isinstance(grid, Mapping):
            raise ConfigError(
                f"sweep: each grid is a mapping of axes, not {grid!r}. See conf/experiment/quickstart.yaml"
            )
        axes = {key: [written(value) for value in values(key, axis)] for key, axis in grid.items()}
        # An option that other grids sweep and this one does not is not for this one: it may choose a component
        # that has no such option.
        axes.update(
            {key: list(v) for key, v in given.items() if key in grid or key not in held or "." not in key}
        )
        for choice in itertools.product(*axes.values()):
            found[tuple(f"{key}={value}" for key, value in zip(axes, choice, strict=True))] = None
    return [list(point) for point in found]


def varying(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """The flat keys whose values differ between the configs, in order of first appearance."""
    flats = [flat(config) for config in configs]
    keys = dict.fromkeys(key for one in flats for key in one)
    return [key for key in keys if len({json.dumps(one.get(key), sort_keys=True) for one in flats}) > 1]


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys joined by dots; lists stay values."""
    out: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            out.update(flat(value, f"{prefix}{key}."))
        else:
            out[f"{prefix}{key}"] = value
    return out


def config_hash(config: Mapping[str, Any]) -> str:
    """Twelve hex digits that name a resolved config, apart from the keys that only say where a run goes."""
    kept = {key: value for key, value in config.items() if key not in TRANSPORT}
    generator = config.get("generator")
    if isinstance(generator, Mapping):  # a limit changes how far a run gets, not what it is
        kept["generator"] = {key: value for key, value in generator.items() if key not in LIMITS}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()[:12]


def values(key: str, axis: Any) -> list[Any]:
    """An axis as a list.

    Raises:
        ConfigError: it is empty.
    """
    found = list(axis) if isinstance(axis, (list, tuple)) else [axis]
    if not found:
        raise ConfigError(f"sweep: axis {key} has no values")
    return found


def written(value: Any) -> str:
    """A value as Hydra's override grammar reads it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(written, value)) + "]"
    text = str(value)
    if text.replace("_", "").replace("-", "").isalnum():
        return text
    # Inside quotes only a quote, and the backslashes right before one, are escaped.
    return "'" + re.sub(r"(\\*)('|$)", lambda end: 2 * end[1] + ("\\'" if end[2] else ""), text) + "'"
