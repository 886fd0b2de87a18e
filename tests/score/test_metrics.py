"""A run's metrics: documents are resampled whole, an interval on the price of a right answer reaches infinity."""

import math
from typing import Any

import pytest

from outlay.generate import Tally
from outlay.score.metrics import run_metrics


def row(
    at: int, correct: bool, document: str | None = None, tokens: int = 100, **other: Any
) -> dict[str, Any]:
    return {
        "document": document or f"d{at}",
        "correct": correct,
        "context_tokens": 50,
        "tokens": tokens,
        "inflation": 1.0,
        "metrics": {"accuracy": float(correct)},
        "document_tokens": 500,
        "context": {},
        "solved": True,
        "attempt_tokens": tokens,
        "direct_tokens": tokens,
        "cbe": None,
        "identical": 0,
        "retries": 0,
        **other,
    }


def metrics(rows: list[dict[str, Any]]) -> dict[str, float]:
    line = {
        "kind": "attempt",
        "attempt": 1,
        "prompt_tokens": 90,
        "completion_tokens": 10,
        "cost_units": 1.0,
        "usd": 0.0,
        "latency_s": 0.5,
        "error": "",
        "finish_reason": "stop",
        "tokens": 100,
    }
    return run_metrics(rows, [line] * len(rows), Tally(), 0, 2000, 0)


def test_the_price_of_a_right_answer_has_no_end_where_there_may_be_none() -> None:
    few = metrics([row(at, at < 2) for at in range(16)])
    assert few["cost/per_correct"] == 800
    assert few["cost/per_correct_hi"] == math.inf and few["cost/per_correct_lo"] < 800
    many = metrics([row(at, at < 12) for at in range(16)])
    assert many["cost/per_correct_lo"] < many["cost/per_correct"] < many["cost/per_correct_hi"] < math.inf
    none = metrics([row(at, False) for at in range(16)])
    assert none["cost/per_correct"] == math.inf
    # all wrong: an interval of no width would claim certainty
    assert none["quality/accuracy_lo"] == 0 and 0.1 < none["quality/accuracy_hi"] < 0.3


def test_questions_on_one_document_count_as_one_draw() -> None:
    apart = metrics([row(at, at % 8 < 4) for at in range(32)])
    shared = metrics([row(at, at % 8 < 4, document=f"d{at // 4}") for at in range(32)])
    width = [one["quality/accuracy_hi"] - one["quality/accuracy_lo"] for one in (apart, shared)]
    assert width[1] > 1.7 * width[0]
    assert shared["data/documents"] == 8 and shared["data/examples"] == 32


def test_inflation_splits_solved_from_exhausted() -> None:
    rows = [
        row(
            at,
            True,
            inflation=1.0 + at % 2,
            solved=at % 2 == 0,
            attempt_tokens=100 + 100 * (at % 2),
            direct_tokens=100,
        )
        for at in range(10)
    ]
    found = metrics(rows)
    assert found["inflation/mean"] == found["inflation/ratio_of_means"] == 1.5
    assert found["inflation/solved"] == 1 and found["inflation/exhausted"] == 2
    assert found["inflation/share_ge_2"] == found["inflation/share_exhausted"] == 0.5
    assert found["inflation/mean_lo"] < 1.5 < found["inflation/mean_hi"]


def test_a_share_of_none_or_all_has_an_interval_of_some_width() -> None:
    found = metrics([row(at, True) for at in range(16)])  # nobody retried, nobody gave up
    for name in ("share_ge_2", "share_exhausted"):
        value, low, high = (found[f"inflation/{name}{end}"] for end in ("", "_lo", "_hi"))
        assert value == low == 0 and high == pytest.approx(1 - 0.025 ** (1 / 16))
