"""The pins of pip and conda are the same; the files that a wheel needs are in the package."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def declared() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["dev"]]


def test_conda_users_get_the_same_pins() -> None:
    from omegaconf import OmegaConf

    environment = OmegaConf.load(ROOT / "environment.yml")
    (pip,) = [one["pip"] for one in environment.dependencies if not isinstance(one, str)]
    assert sorted(pip) == sorted([*declared(), "-e ."])


def test_what_was_tested_lies_within_what_is_declared() -> None:
    from packaging.requirements import Requirement

    pins = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().split("\n")
        if line and line[0] != "#"
    )
    known = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins.items()}
    for text in declared():
        requirement = Requirement(text)
        assert requirement.specifier.contains(known[re.sub(r"[-_.]+", "-", requirement.name).lower()]), text


def test_the_package_holds_the_configs() -> None:
    from outlay.schema import conf_dir

    assert (conf_dir() / "config.yaml").is_file()
    assert conf_dir().resolve() == (ROOT / "conf").resolve()


def test_the_readme_lists_choices_that_exist() -> None:
    from outlay import schema

    readme = (ROOT / "README.md").read_text()
    for group in (*schema.GROUPS, "experiment"):
        (row,) = [line for line in readme.splitlines() if line.startswith(f"| `{group}` |")]
        listed = sorted(name.strip(" *|") for name in row.split("|")[2].split(","))
        assert set(listed) <= set(schema.choices(group))
