"""A new router is one module and one YAML file; nothing else is edited."""

from pathlib import Path

import pytest
from known import run
from omegaconf import OmegaConf

import outlay.routers
from outlay import schema
from outlay.errors import ConfigError
from outlay.generate.store import Store

MODULE = '''"""The first tier, and the last where two of the first tier's samples disagree."""

from dataclasses import dataclass
from typing import ClassVar, Self

from outlay.agent import Action, Attempt, Stop
from outlay.agent.ledger import Ledger, Trace
from outlay.routers import Setting
from outlay.schema import option


@dataclass(frozen=True)
class Disagree:
    samples: int = option(2, least=2)
    token_budget: int | None = option(None, least=1)

    name: ClassVar[str] = "disagree"

    def policy(self, setting: Setting) -> "DisagreePolicy":
        return DisagreePolicy(setting.tiers[0].name, setting.tiers[-1].name, self.samples)


@dataclass(frozen=True)
class DisagreePolicy:
    weak: str
    strong: str
    samples: int

    def fit(self, ledger: Ledger) -> Self:
        return self

    def next(self, trace: Trace) -> Action:
        answers = [line.answer for line in trace.attempts]
        if not answers:
            return Attempt(self.weak, 0.7, n=self.samples)
        if len(set(answers)) > 1 and len(answers) == self.samples:
            return Attempt(self.strong, 0.7)
        return Stop(answers[-1], solved=answers[-1] is not None)
'''
YAML = "_target_: outlay.routers.disagree.Disagree\nsamples: 2\ntoken_budget: null\n"


def test_a_new_policy_of_under_forty_lines_runs_without_another_edit(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len((MODULE + YAML).splitlines()) < 44 and len(MODULE.splitlines()) < 40
    (tmp_path / "disagree.py").write_text(MODULE)
    (tmp_path / "disagree.yaml").write_text(YAML)
    monkeypatch.setattr(outlay.routers, "__path__", [*outlay.routers.__path__, str(tmp_path)])
    node = OmegaConf.to_container(OmegaConf.load(tmp_path / "disagree.yaml"))
    router = schema.build_one("router", node)  # type: ignore[arg-type]
    ran = run(store, router, n=150)
    for one in ran.outcomes:
        small = [line.answer for line in one.trace.attempts if line.tier == "small"]
        assert len(small) == 2 and (len(one.trace.attempts) == 3) == (small[0] != small[1])
    with pytest.raises(ConfigError, match=r"router\.samples=1"):
        schema.build_one("router", {**node, "samples": 1})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match=r"router\.sample'.*samples'"):
        schema.build_one("router", {**node, "sample": 2})  # type: ignore[dict-item]
