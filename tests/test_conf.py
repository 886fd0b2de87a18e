"""Every file under conf/ composes, is built, and documents each of its options. Adding a file adds its test."""

import dataclasses
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from outlay import schema
from outlay.errors import ConfigError, nearest

CONF = schema.conf_dir()
FILES = sorted(path.relative_to(CONF) for group in schema.GROUPS for path in (CONF / group).glob("*.yaml"))
NEEDS = {
    "transformers": {"model": "x", "price": {"input": 0.0, "output": 0.0, "units": 1.0}},
    "server": {"uri": "http://127.0.0.1:5000"},
}
"""Options without a default."""


@pytest.mark.parametrize("file", FILES, ids=str)
def test_a_choice_is_built_and_every_option_of_it_stands_in_its_file(file: Path) -> None:
    group, choice = file.parts[0], file.stem
    built = schema.component(group, choice, **NEEDS.get(choice, {}))
    node = OmegaConf.to_container(OmegaConf.load(CONF / file), resolve=False)
    written = set(node) - {"_target_", "defaults", *schema._shared_names(group)}
    assert written == {field.name for field in dataclasses.fields(built)}
    assert (CONF / file).read_text().startswith("# ")


def test_there_is_a_choice_in_every_group() -> None:
    assert {file.parts[0] for file in FILES} == set(schema.GROUPS)


def test_components_are_hashable_so_that_work_is_shared() -> None:
    for file in FILES:
        if file.parts[0] in ("unitizer", "embedder", "selector", "budget"):
            built = schema.component(file.parts[0], file.stem)
            assert hash(built) == hash(schema.component(file.parts[0], file.stem))


def test_an_unknown_choice_or_option_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'rcd'"):
        schema.component("selector", "rdc")
    with pytest.raises(ConfigError, match=r"unknown option 'budget\.token'.*'budget\.tokens'"):
        schema.component("budget", "fixed", token=3)
    with pytest.raises(ConfigError, match=r"budget\.tokens"):
        schema.component("budget", "fixed", tokens="many")


def test_nearest_lists_the_choices_when_none_is_near() -> None:
    assert nearest("zzz", ["lead", "rcd"]) == "Choices: lead, rcd."
    assert nearest("x", []) == ""
