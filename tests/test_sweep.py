"""A sweep is the union of its grids, crossed with the command line."""

from collections.abc import Mapping
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.errors import ConfigError
from outlay.sweep import config_hash, flat, points

GRIDS = [
    {"dataset": "notes", "selector": ["lead", "rcd"], "budget.tokens": [64, 128]},
    {"dataset": "arithmetic", "retry": ["none", "fixed"]},
]


def test_a_preset_is_a_union_of_products() -> None:
    plan = points(GRIDS, {})
    assert len(plan) == 6
    assert plan[0] == ["dataset=notes", "selector=lead", "budget.tokens=64"]
    assert plan[-1] == ["dataset=arithmetic", "retry=fixed"]


def test_the_command_line_replaces_an_axis_and_adds_axes() -> None:
    plan = points(GRIDS, {"selector": ["mmr"], "seed": ["1", "2"]})
    assert len(plan) == (1 * 2 + 2) * 2
    assert all("selector=mmr" in point for point in plan)


def test_without_grids_the_command_line_is_the_grid() -> None:
    assert points([], {"a": ["1", "2"], "b": ["3"]}) == [["a=1", "b=3"], ["a=2", "b=3"]]
    assert points([], {}) == [[]]


axes = st.dictionaries(
    st.sampled_from("abcd"), st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True)
)


@given(axes)
def test_a_grid_has_the_product_of_its_axes(grid: Mapping[str, list[int]]) -> None:
    assert len(points([grid], {})) == prod(len(axis) for axis in grid.values())
    assert len(points([grid, grid], {})) == len(points([grid], {}))  # a point twice is one point


def test_values_are_written_as_hydra_reads_them() -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    values = [None, True, 0.7, 3, "word", "two words", "it's", "a=b,c", "\\d+", "a\\'b", "end\\", "x:y/z"]
    (plan,) = points([{f"k{at}": [value] for at, value in enumerate(values)}], {})
    read = [one.value() for one in OverridesParser.create().parse_overrides(plan)]
    assert [one if one is None or isinstance(one, (int, float)) else str(one) for one in read] == values


def test_a_grid_that_is_not_a_mapping_is_refused() -> None:
    with pytest.raises(ConfigError, match="mapping"):
        points(["selector=lead"], {})  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="no values"):
        points([{"a": []}], {})


def test_the_hash_names_what_a_run_is_not_where_it_goes() -> None:
    config = {
        "selector": {"_target_": "x"},
        "seed": 0,
        "output_dir": "a",
        "verbose": True,
        "tracking": {"uri": None},
    }
    assert config_hash(config) == config_hash(
        {**config, "output_dir": "b", "verbose": False, "tracking": {"uri": "z"}}
    )
    assert config_hash(config) != config_hash({**config, "seed": 1})
    assert flat({"a": {"b": 1, "c": {"d": [2]}}, "e": {}}) == {"a.b": 1, "a.c.d": [2], "e": {}}


def test_an_option_that_some_grids_sweep_is_for_those_alone() -> None:
    plan = points(GRIDS, {"budget.tokens": ["32"]})
    assert [point for point in plan if "dataset=arithmetic" in point] == [
        ["dataset=arithmetic", "retry=none"],
        ["dataset=arithmetic", "retry=fixed"],
    ]
    assert all("budget.tokens=32" in point for point in plan if "dataset=notes" in point)
    assert all("dataset.limit=3" in point for point in points(GRIDS, {"dataset.limit": ["3"]}))
