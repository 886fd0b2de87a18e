"""The plan of a sweep is what the sweep then does: exactly where no answer decides, within its range where one does."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from simulated import Simulated

from outlay.compose import checked, compose
from outlay.errors import GenerationError
from outlay.generate import Completion, Request
from outlay.generate.spend import Spend
from outlay.generate.store import Store
from outlay.plan import plan, union
from outlay.progress import Progress
from outlay.runner import _run, run_name
from outlay.schema import Parts


def point(*words: str, generator: Simulated) -> Parts:
    from dataclasses import replace

    return replace(
        checked(compose(["dataset=arithmetic", "dataset.limit=20", "verbose=false", *words])),
        generator=generator,
    )


@pytest.fixture
def grid() -> list[Parts]:
    generator = Simulated(p=0.5)
    return [
        point("retry=none", "retry.temperature=0.7", generator=generator),
        point("retry=fixed", "retry.stop=none", "retry.max_attempts=3", generator=generator),
        point("retry=fixed", "retry.stop=gold", "retry.max_attempts=5", generator=generator),
        point("retry=fixed", "retry.stop=vote", "retry.max_attempts=4", "probe=cbe", generator=generator),
    ]


def test_a_plan_brackets_what_is_then_generated(grid: list[Parts], own_cache: Path, tmp_path: Path) -> None:
    store = Store(own_cache / "completions.sqlite")
    before = plan(grid, store)
    for at, parts in enumerate(grid):
        (tmp_path / str(at)).mkdir()
        _run(parts, tmp_path / str(at), run_name(parts), {})
    assert len(before.best.rows) <= len(store) <= len(before.worst.rows)
    fixed = plan(grid[1:2], Store(tmp_path / "empty.sqlite"))
    assert len(fixed.best.rows) == len(fixed.worst.rows) == 60  # no answer decides: exact
    assert not plan(grid, store).best.rows  # what is in the store costs nothing


def test_a_plan_generates_nothing(grid: list[Parts], own_cache: Path) -> None:
    plan(grid, Store(own_cache / "completions.sqlite"))
    assert not grid[0].generator.asked


def test_the_union_generates_each_first_completion_once_and_the_points_read_it(
    grid: list[Parts], own_cache: Path, tmp_path: Path
) -> None:
    generator = grid[0].generator
    of, told = list[int](), list[int]()
    store = Store(own_cache / "completions.sqlite")
    tally = union(grid, store, "", lambda rows, tokens: told.append(rows), of.append)
    assert of == [sum(told)] == [80]  # what its line of progress counts up to
    union(grid, store, "", lambda rows, tokens: None, of.append)
    assert of[1] == 0  # the store has them
    # the first attempt of three points is one row; the probe of the fourth is three
    assert tally.misses == len(generator.asked) == 20 + 60
    asked = len(generator.asked)
    _run(grid[0], tmp_path, "none", {})
    assert len(generator.asked) == asked


def test_a_line_of_progress_counts_what_is_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("outlay.progress.EVERY", -1)
    with Progress("first", None, True, "completions") as progress:
        progress.of(80)
        progress(7, 7, 21)
    with Progress("lead", 40, True) as progress:
        progress(0, 16, 64)
    first, second = capsys.readouterr().err.splitlines()
    assert "first: 7 of 80 completions, " in first and first.endswith("reply tokens/s")
    assert "lead: 0 of 40 queries, 16 completions, " in second


def test_a_generator_that_does_not_answer_takes_no_other_with_it(
    grid: list[Parts], own_cache: Path, tmp_path: Path
) -> None:
    class Down(Simulated):
        def generate(
            self, requests: Sequence[Request], spend: Spend
        ) -> Iterator[list[tuple[int, Completion]]]:
            raise GenerationError("no server answers there")

    points = [point("retry=none", generator=Down(p=0.1)), *grid]
    tally = union(points, Store(own_cache / "completions.sqlite"), "", lambda rows, tokens: None)
    assert tally.misses == 20 + 60  # of the grid, as without it
    (tmp_path / "0").mkdir()
    with pytest.raises(GenerationError, match="no server"):  # the point itself says so
        _run(points[0], tmp_path / "0", "down", {})


def test_a_plan_of_several_points_counts_shared_rows_once(grid: list[Parts], own_cache: Path) -> None:
    store = Store(own_cache / "completions.sqlite")
    alone = [plan([parts], store) for parts in grid]
    together = plan(grid, store)
    assert len(together.worst.rows) < sum(len(one.worst.rows) for one in alone)
