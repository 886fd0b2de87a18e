"""What a sweep leaves on disk: a plan that is whole or absent, and ends that are believed only where they are whole."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlay import record
from outlay.errors import ConfigError, OutlayError
from outlay.record import Ended, Plan


def plan(sweep_id: str = "s-1", *configs: dict[str, object]) -> Plan:
    configs = configs or ({"a": 1, "seed": 0}, {"a": 2, "seed": 0})
    return Plan(
        sweep_id,
        ("a=1,2",),
        "parent",
        "host:1:2.0",
        record.planned([[f"a={c['a']}"] for c in configs], configs),
    )


def sweep(folder: Path, one: Plan) -> Path:
    where = folder / "experiment" / one.sweep_id
    where.mkdir(parents=True)
    record.write_plan(where, one)
    return where


def ended(folder: Path, number: int, status: str = "FINISHED", code: str = "1") -> Ended:
    return Ended(
        "a", status, {"a": number}, {}, {"m": 0.5}, str(folder / str(number)), f"run-{number}", code=code
    )


def test_a_plan_and_its_ends_come_back(tmp_path: Path) -> None:
    one = plan()
    where = sweep(tmp_path, one)
    assert record.read_plan(where) == one
    record.write_ended(ended(where, 0))
    record.write_ended(ended(where, 1, "FAILED"))
    assert record.finished(where, one) == {0: ended(where, 0)}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 0.99))
def test_half_a_record_is_no_end(tmp_path: Path, share: float) -> None:
    one = ended(tmp_path, 0)
    record.write_ended(one)
    path = tmp_path / "0" / record.ENDED
    text = path.read_text()
    path.write_text(text[: int(share * len(text))])  # a half-copied folder
    assert record.read_ended(tmp_path / "0") is None


def test_a_sweep_is_found_by_id_and_the_latest_by_last(tmp_path: Path) -> None:
    old, new = (
        sweep(tmp_path, plan("2026-01-01T00-00-00-aaaa")),
        sweep(tmp_path, plan("2026-01-02T00-00-00-bbbb")),
    )
    assert record.find(tmp_path, "last") == new
    assert record.find(tmp_path, "2026-01-01T00-00-00-aaaa") == old
    with pytest.raises(ConfigError, match="Did you mean 'last'"):
        record.find(tmp_path, "lst")
    with pytest.raises(ConfigError, match="Did you mean '2026-01-01T00-00-00-aaaa'"):
        record.find(tmp_path, "2026-01-01T00-00-00-aaab")
    with pytest.raises(ConfigError, match="no sweep"):
        record.find(tmp_path / "none", "last")


def test_another_sweep_is_refused_with_the_keys_that_differ() -> None:
    one = plan()
    record.same(one, plan().points)
    record.same(
        one, plan("s-2", {"a": 1, "seed": 0, "verbose": False}, {"a": 2, "seed": 0, "plan": True}).points
    )
    with pytest.raises(ConfigError, match=r"point 2 is another one \(seed: 0 then, 7 now\)"):
        record.same(one, plan("s-1", {"a": 1, "seed": 0}, {"a": 2, "seed": 7}).points)
    with pytest.raises(ConfigError, match="2 points, this command 1"):
        record.same(one, one.points[:1])


def test_a_limit_does_not_make_another_sweep() -> None:
    one, other = (
        plan("s", {"a": 1, "generator": {"model": "m", "spend_limit_usd": limit}}) for limit in (None, 2.0)
    )
    record.same(one, other.points)


def test_what_did_not_finish_is_put_aside_and_kept(tmp_path: Path) -> None:
    for text in ("first", "second"):
        (tmp_path / "3").mkdir()
        (tmp_path / "3" / "run.log").write_text(text)
        record.put_aside(tmp_path, 3)
    assert [(tmp_path / "earlier" / f"3-{at}" / "run.log").read_text() for at in (1, 2)] == [
        "first",
        "second",
    ]
    record.put_aside(tmp_path, 3)  # nothing there: nothing to do


def test_only_the_same_code_is_reused(tmp_path: Path) -> None:
    one = plan()
    where = sweep(tmp_path, one)
    record.write_ended(ended(where, 0))
    record.write_ended(ended(where, 1, code="other"))
    hashes = {point.hash for point in one.points}
    assert set(record.elsewhere(tmp_path, hashes, "1", but="none")) == {one.points[0].hash}
    assert not record.elsewhere(tmp_path, hashes, "1", but=one.sweep_id)


def test_a_broken_plan_says_so(tmp_path: Path) -> None:
    where = sweep(tmp_path, plan())
    (where / record.PLAN).write_text(json.dumps({"sweep_id": "x"}) + "\nhalf")
    with pytest.raises(OutlayError, match="no plan of a sweep that can be resumed"):
        record.read_plan(where)
