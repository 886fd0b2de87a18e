"""What is said of verifiers that tell nothing, and where their bill stands."""

import math
from pathlib import Path

import pytest

from outlay.record import Ended
from outlay.report import terminal
from outlay.report.agent.checks import check_rows, notices, verifiers
from outlay.report.sheets import overview


def judged(
    name: str,
    verifier: str,
    tpr: float,
    fpr: float,
    checks: int = 10,
    wrong: float = 0.4,
    tokens: float = 0.0,
    **more: float,
) -> Ended:
    rates = {"tpr": tpr, "fpr": fpr, "accepted_wrong": wrong}
    metrics = {
        f"verifier/{verifier}/{key}{end}": value for key, value in rates.items() for end in ("", "_lo", "_hi")
    }
    metrics |= {f"verifier/{verifier}/checks": float(checks), f"verifier/{verifier}/tokens": tokens}
    metrics |= {"data/examples": 5.0, "quality/accuracy": 0.5, "cost/tokens_per_query": 100.0} | more
    metrics |= {"cost/tokens_total": 500.0, "cost/tokens_probe": 0.0, "cost/tokens_retry": 0.0}
    config = {"retry": {"verifier": verifier, "max_attempts": len(name)}}
    return Ended(name, "FINISHED", config, {"dataset": "chains", "retry": "fixed"}, metrics, f"/{name}", name)


def test_a_verifier_that_accepts_everything_is_named_with_its_numbers() -> None:
    (line,) = notices([judged("a", "logprob", 1.0, 1.0, checks=1000, wrong=0.583)])
    assert "verifier logprob accepted every attempt" in line and "retry.threshold" in line
    assert "1,000 of 1,000, 583 of them wrong" in line
    (line,) = notices([judged("a", "scorer", 0.0, 0.0)])
    assert "verifier scorer rejected every attempt" in line and "10 of 10" in line


@pytest.mark.parametrize(
    ("tpr", "fpr", "said"),
    [
        (0.5, math.nan, "met no wrong attempt, so its false positive rate is undefined"),
        (math.nan, 0.5, "met no right attempt, so its true positive rate is undefined"),
    ],
)
def test_a_rate_without_cases_is_said_to_be_undefined(tpr: float, fpr: float, said: str) -> None:
    (line,) = notices([judged("a", "judge", tpr, fpr)])
    assert said in line and "10 checks" in line


def test_a_verifier_without_rates_is_named() -> None:
    point = judged("a", "judge", 0.5, 0.5)
    metrics = {key: value for key, value in point.metrics.items() if not key.startswith("verifier/")}
    bare = Ended(**{**vars(point), "metrics": metrics | {"verifier/judge/tokens": 70.0}})
    (line,) = notices([bare])
    assert "verifier judge gave no verdict" in line
    assert notices([Ended(**{**vars(point), "metrics": metrics | {"verifier/reflect/tokens": 70.0}})]) == []


def test_what_tells_right_from_wrong_needs_no_notice() -> None:
    assert notices([judged("a", "judge", 0.9, 0.1), judged("bb", "gold", 1.0, 1.0)]) == []
    many = [judged("a" * k, "logprob", 1.0, 1.0) for k in range(1, 6)]
    (line,) = notices(many)
    assert line.count("10 of 10") == 3 and line.endswith("and 2 more runs")


def test_the_table_has_a_row_for_each_verifier_but_gold(tmp_path: Path) -> None:
    points = [judged("a", "judge", 0.9, 0.1, tokens=250.0), judged("bb", "gold", 1.0, 0.0)]
    (row,) = check_rows(points)
    assert (row.verifier, row.checks, row.tokens, row.run_id) == ("judge", 10, 50.0, "a")
    written, (sheet,) = verifiers(points, tmp_path)
    assert [path.name for path in written] == ["verifiers.csv"] and sheet.sources == (("a",),)
    assert verifiers(points[1:], tmp_path) == ([], [])


def test_the_bill_of_checks_has_a_column_where_there_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    paid = [judged("a", "judge", 0.9, 0.1, tokens=250.0), judged("bb", "judge", 0.9, 0.1, tokens=400.0)]
    free = [judged("a", "parse", 0.9, 0.1), judged("bb", "parse", 0.9, 0.1)]
    at = overview(paid)[0].headings.index("… for checks")
    assert [row[at].text for row in overview(paid)[0].rows] == ["50", "80"]
    assert "… for checks" not in overview(free)[0].headings
    for points, shown in ((paid, True), (free, False)):
        terminal.sweep_ends(points, Path("out"), "mlflow ui")
        assert ("checks" in capsys.readouterr().out) == shown
