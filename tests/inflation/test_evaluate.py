"""The predictor in worlds whose success chances are known, so that what can be predicted is known exactly."""

from collections import defaultdict
from dataclasses import replace
from itertools import product
from math import isnan, nan

import numpy as np
import pytest

from outlay.agent.ledger import Ledger, Line, Query
from outlay.errors import ConfigError, DataError
from outlay.inflation import agreement
from outlay.inflation.cases import Cases, cases, joined
from outlay.inflation.evaluate import Row, evaluate, tracked
from outlay.inflation.features import FOUR, rounded_entropy
from outlay.inflation.predictor import Training, train
from outlay.score.statistics import bootstrap

CPU = Training(device="cpu")
ATTEMPTS = 6
CHANCES = (0.1, 0.3, 0.5, 0.7, 0.9)
WRONG = ("w", "x", "y", "z")


def exact_auroc(score: np.ndarray, chance: np.ndarray, weight: np.ndarray | float = 1.0) -> float:
    """AUROC for inflation >= 2 of a score, where case i takes a second attempt with probability 1 - chance_i and attempts
    cost alike: over all pairs, weighted by the probability that the first is such a case and the second is not."""
    high, low = weight * (1 - chance), weight * chance
    _, place = np.unique(score, return_inverse=True)
    above, below = np.bincount(place, high), np.bincount(place, low)
    return float((above * (np.cumsum(below) - below / 2)).sum() / (above.sum() * below.sum()))


def retried(chance: np.ndarray, features: np.ndarray, seed: int, dataset: str = "known") -> Cases:
    """Independent retries until success, or ATTEMPTS of them; every attempt costs the same."""
    tries = np.minimum(np.random.default_rng([seed, 1]).geometric(chance), ATTEMPTS).astype(float)
    count = len(chance)
    ids = np.array([f"{seed}-{at}" for at in range(count)])
    return Cases(
        features, FOUR, np.full(count, "small"), np.full(count, dataset), tries, tries < ATTEMPTS, ids
    )


def telling(count: int, seed: int) -> tuple[Cases, np.ndarray]:
    """The first feature determines the chance, but not monotonely: hard at both ends. The others are noise."""
    rng = np.random.default_rng(seed)
    first = rng.uniform(-1, 1, count)
    chance = 0.02 + 0.96 * (1 - np.abs(first)) ** 1.5
    noise = (rng.uniform(0.3, 1, count), rng.lognormal(4, 0.5, count), rng.lognormal(5, 0.5, count))
    return retried(chance, np.column_stack([first, *noise]), seed), chance


def asked(
    count: int, k: int, seed: int, tier: str = "small", probe_tier: str = "small"
) -> tuple[Ledger, np.ndarray]:
    """A ledger of k probe samples and gold-stopped attempts on queries whose chance is one of CHANCES."""
    rng = np.random.default_rng(seed)
    chance = rng.choice(CHANCES, count)
    ledger = Ledger()

    def answer(p: float) -> str:
        return "right" if rng.random() < p else str(rng.choice(WRONG))

    for at, p in enumerate(chance):
        query = Query(f"{seed}-{at}", "How many?", 0, int(rng.integers(20, 200)))
        ledger.queries[query.id] = query

        def line(kind: str, said: str, query: Query = query, **more: object) -> None:
            number = sum(one.example_id == query.id for one in ledger.lines[-20:])
            ledger.lines.append(
                Line(
                    query.id,
                    number,
                    kind,
                    answer=said,
                    text=said,
                    prompt_tokens=10,
                    completion_tokens=5,
                    **more,
                )  # type: ignore[arg-type]
            )

        for sample in range(k):
            line("probe", answer(p), tier=probe_tier, sample=sample)
        for attempt in range(1, ATTEMPTS + 1):
            said = answer(p)
            line("attempt", said, tier=tier, attempt=attempt, score=float(said == "right"))
            if said == "right":
                break
    return ledger, chance


def patterns(k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Every sequence of k answers under every chance: (CBE, agreement, chance, probability), by enumeration."""
    found: dict[tuple[float, float, float], float] = defaultdict(float)
    for answers in product(("right", *WRONG), repeat=k):
        right = answers.count("right")
        for p in CHANCES:
            seen = p**right * ((1 - p) / len(WRONG)) ** (k - right)
            found[rounded_entropy(answers), agreement(answers), p] += seen / len(CHANCES)
    columns = np.array([(*key, mass) for key, mass in found.items()])
    return tuple(columns.T)  # type: ignore[return-value]


def row(rows: list[Row], model: str, scope: str = "pooled") -> Row:
    (found,) = [one for one in rows if (one.model, one.scope) == (model, scope)]
    return found


# ---------------------------------------------------------------- known truth


@pytest.mark.parametrize("seed", range(2))
def test_given_what_determines_the_chance_it_reaches_the_ideal_auroc_and_never_passes_it(seed: int) -> None:
    fitted, _ = telling(2000, seed)
    test, chance = telling(2000, 100 + seed)
    predicted = train(fitted, replace(CPU, seed=seed)).predict("small", test.features)
    ideal, reached = exact_auroc(-chance, chance), exact_auroc(predicted, chance)
    assert reached <= ideal + 1e-12  # over all outcomes nothing orders better than the chance itself
    assert reached > ideal - 0.015
    rows = evaluate(fitted, test, replace(CPU, seed=seed), resamples=200)
    mlp, alone, gap = (row(rows, name) for name in ("mlp", "cbe", "mlp - cbe"))
    error = (mlp.auroc.hi - mlp.auroc.lo) / 4
    assert abs(mlp.auroc.value - reached) < 4 * error and ideal < mlp.auroc.hi + 2 * error
    assert abs(alone.auroc.value - 0.5) < 0.1 and gap.auroc.lo > 0.2
    # Chances, not only an order: of high inflation, and of attempts in the mean of logs.
    assert mlp.ece.value < 0.08
    stays = np.cumprod(np.column_stack([np.ones(len(chance)), *[1 - chance] * (ATTEMPTS - 1)]), axis=1)
    steps = np.log(np.arange(2, ATTEMPTS + 1) / np.arange(1, ATTEMPTS))
    known = np.exp(stays[:, 1:] @ steps)
    assert np.corrcoef(np.log(predicted), np.log(known))[0, 1] > 0.95


def test_on_outcomes_it_beats_the_chance_itself_by_no_more_than_noise() -> None:
    fitted, _ = telling(2000, 7)
    test, chance = telling(4000, 107)
    predicted = train(fitted, CPU).predict("small", test.features)

    def gap(ours: np.ndarray, theirs: np.ndarray, high: np.ndarray) -> float:
        from outlay.score.statistics import auroc

        return auroc(ours, high, resamples=0).value - auroc(theirs, high, resamples=0).value

    found = bootstrap(gap, predicted, -chance, test.high, resamples=200)
    assert found.lo < 0 and -0.02 < found.value < 0.005


@pytest.mark.parametrize("k", [3, 5])
def test_from_a_probe_alone_each_figure_is_the_enumerated_one(k: int) -> None:
    """The ledger's way: probe and attempts from one chance, features and inflation from the lines."""
    fitted, test = (cases(asked(1500, k, seed)[0].traces(), "known") for seed in (k, 50 + k))
    rows = evaluate(fitted, test, CPU, resamples=300)
    entropy, agreed, chance, mass = patterns(k)
    posterior: dict[tuple[float, float], np.ndarray] = defaultdict(lambda: np.zeros(2))
    for e, a, p, m in zip(entropy, agreed, chance, mass, strict=True):
        posterior[e, a] += m * np.array([1 - p, 1.0])
    best = np.array([posterior[e, a][0] / posterior[e, a][1] for e, a in zip(entropy, agreed, strict=True)])
    for model, score in (("cbe", entropy), ("agreement", -agreed), ("mlp", best)):
        found, exact = row(rows, model).auroc, exact_auroc(score, chance, mass)
        assert abs(found.value - exact) < 3 * (found.hi - found.lo) / 4, (model, found, exact)
    assert row(rows, "prompt_tokens").auroc.lo < 0.5 < row(rows, "prompt_tokens").auroc.hi
    ideal = exact_auroc(best, chance, mass)
    assert exact_auroc(entropy, chance, mass) <= ideal + 1e-12
    gap = row(rows, "mlp - cbe").auroc
    assert gap.hi < ideal - exact_auroc(entropy, chance, mass) + 0.03


def test_at_k_3_entropy_and_agreement_are_the_same_information() -> None:
    entropy, agreed, chance, mass = patterns(3)
    assert len(set(entropy)) == len(set(agreed)) == 3
    assert exact_auroc(entropy, chance, mass) == pytest.approx(exact_auroc(-agreed, chance, mass))


# ---------------------------------------------------------------- scopes


def test_pooled_figures_may_only_tell_data_sets_apart() -> None:
    """Two data sets of different difficulty and prompt length, and nothing to know within either."""

    def world(name: str, chance: float, words: float, seed: int, count: int = 700) -> Cases:
        rng = np.random.default_rng([seed, len(name)])
        probe = np.column_stack(
            [rng.choice([0, 0.918, 1.585], count), rng.choice([1 / 3, 2 / 3, 1.0], count)]
        )
        lengths = np.column_stack([rng.lognormal(4, 0.5, count), words * rng.lognormal(0, 0.2, count)])
        return retried(np.full(count, chance), np.hstack([probe, lengths]), seed, name)

    def both(seed: int) -> Cases:
        return joined([world("sums", 0.85, 80, seed), world("hops", 0.2, 900, seed + 1)])

    rows = evaluate(both(0), both(10), CPU, resamples=200)
    for model in ("mlp", "prompt_tokens", "gradient boosting"):
        assert row(rows, model).auroc.value > 0.75, model
        for name in ("sums", "hops"):
            for scope in (f"within {name}", f"leave-out {name}"):
                found = row(rows, model, scope).auroc
                assert abs(found.value - 0.5) < found.hi - found.lo, (
                    model,
                    scope,
                    found,
                )  # four standard errors
    names = tracked(rows)
    assert names["predictor/auroc"] == row(rows, "mlp").auroc.value
    assert abs(names["predictor/auroc_within"] - 0.5) < 0.1 < names["predictor/auroc"] - 0.5
    # Left out, a data set's base rate is not known either.
    assert names["predictor/ece_left_out"] > 0.3 > 0.1 > names["predictor/ece"]


def test_a_shared_signal_survives_leaving_its_data_set_out() -> None:
    def both(seed: int) -> Cases:
        first, second = telling(900, seed)[0], telling(900, seed + 1)[0]
        return joined([first, replace(second, dataset=np.full(900, "other"))])

    rows = evaluate(both(20), both(30), CPU, resamples=100)
    for name in ("known", "other"):
        assert row(rows, "mlp", f"leave-out {name}").auroc.lo > 0.75
        assert row(rows, "mlp - cbe", f"leave-out {name}").auroc.lo > 0.2


def test_one_data_set_has_nothing_to_leave_out() -> None:
    rows = evaluate(telling(100, 0)[0], telling(60, 1)[0], replace(CPU, epochs=3), resamples=20)
    assert {one.scope for one in rows} == {"pooled", "within known"}
    pooled, within = (
        [replace(one, scope="") for one in rows if one.scope == scope] for scope in ("pooled", "within known")
    )
    assert pooled == within and len(pooled) == 6
    assert pooled[0].n == 60 and pooled[0].flat()["auroc_lo"] == pooled[0].auroc.lo


# ---------------------------------------------------------------- what is undefined, and what is refused


def test_one_class_has_no_auroc_and_says_why() -> None:
    fitted, test = telling(100, 0)[0], telling(60, 1)[0]
    easy = test.only(~test.high)
    for one in evaluate(fitted, easy, replace(CPU, epochs=3), resamples=20):
        assert isnan(one.auroc.value) and one.note == "every inflation is below 2: no AUROC"
        assert one.share_high == 0 and (one.model == "mlp - cbe" or not isnan(one.brier.value))


def test_a_tier_without_training_cases_is_a_row_that_says_so() -> None:
    fitted, test = telling(100, 0)[0], telling(60, 1)[0]
    rows = evaluate(fitted, replace(test, tier=np.full(60, "large")), replace(CPU, epochs=3), resamples=20)
    assert {(one.model, one.note) for one in rows} == {("mlp", "no training case of tier large")}
    assert tracked(rows) == {}


def test_all_high_in_training_is_no_failure() -> None:
    fitted, test = telling(200, 0)[0], telling(60, 1)[0]
    rows = evaluate(fitted.only(fitted.high), test, replace(CPU, epochs=3), resamples=20)
    assert row(rows, "gradient boosting").brier.value == pytest.approx(1 - test.high.mean())
    assert all(one.note == "" for one in rows)


def test_unknown_features_do_not_take_a_case_out() -> None:
    fitted, test = telling(200, 0)[0], telling(60, 1)[0]
    rows = test.features.copy()
    rows[:10, :3] = nan  # no sample of the probe was answered
    assert all(
        one.n == 60 and not isnan(one.auroc.value)
        for one in evaluate(fitted, replace(test, features=rows), replace(CPU, epochs=3), resamples=20)
    )


def test_a_query_on_both_sides_and_other_features_are_refused() -> None:
    fitted = telling(100, 0)[0]
    with pytest.raises(
        DataError, match="1 queries are in train and in test, such as known/0-7: split by query"
    ):
        evaluate(fitted, joined([telling(50, 1)[0], fitted.only(np.array([7]))]), CPU)
    with pytest.raises(DataError, match="use the same"):
        evaluate(fitted, replace(telling(9, 1)[0], names=("a", "b", "c", "d")), CPU)
    with pytest.raises(DataError, match="no test cases"):
        evaluate(fitted, fitted.only(np.zeros(100, bool)), CPU)


# ---------------------------------------------------------------- cases


def test_cases_are_queries_by_the_tier_that_answered() -> None:
    def line(number: int, kind: str, tier: str, attempt: int = 0, tokens: int = 10, **more: object) -> Line:
        return Line("q", number, kind, tier, attempt, completion_tokens=tokens, answer="7", text="7", **more)  # type: ignore[arg-type]

    probes = [line(at, "probe", "tiny", sample=at) for at in range(3)]
    small = [line(3, "attempt", "small", 1, 10, score=0.0), line(4, "attempt", "small", 2, 20, score=0.0)]
    large = [line(5, "attempt", "large", 3, 8, score=1.0)]
    ledger = Ledger([*probes, *small, *large], {"q": Query("q", "How many?", 0, 40)})
    found = cases(ledger.traces(), "sums")
    assert found.tier.tolist() == ["small", "large"] and found.inflation.tolist() == [3.0, 1.0]
    assert found.solved.tolist() == [False, True] and found.ids.tolist() == ["q", "q"]
    assert found.features.tolist() == [[0.0, 1.0, 10.0, 40.0]] * 2 and found.notes == ()
    assert cases(ledger.traces(), "sums", ["prompt_tokens", "cues"]).features.shape == (2, 2)
    with pytest.raises(ConfigError, match=r"no feature 'prompt_token'\. Did you mean 'prompt_tokens'\?"):
        cases(ledger.traces(), "sums", ["prompt_token"])


def test_what_is_left_out_or_seen_twice_is_said() -> None:
    def line(query: str, kind: str, attempt: int, tokens: int) -> Line:
        return Line(query, 0, kind, "small", attempt, completion_tokens=tokens, answer="7", text="7")

    lines = [
        line("no probe", "attempt", 1, 9),
        line("no bill", "probe", 0, 9),
        line("no bill", "attempt", 1, 0),
        line("reused", "probe", 1, 9),
        line("reused", "attempt", 2, 9),
    ]
    names = ("no probe", "no bill", "reused")
    found = cases(Ledger(lines, {name: Query(name, "", 0, 5) for name in names}).traces(), "sums")
    assert found.ids.tolist() == ["reused"] and found.inflation.tolist() == [2.0]
    assert [note.split(" of sums ")[0] for note in found.notes] == ["1 queries", "1 cases", "1 of 1 cases"]
    assert "saw what they predict" in found.notes[-1]
    assert not joined([found, found]).solved.any() and joined([found, found]).notes == found.notes


def test_without_a_score_a_verdict_says_whether_it_is_solved() -> None:
    ledger = Ledger(queries={"q": Query("q", "", 0, 5)})
    ledger.lines = [
        Line("q", 0, "probe", "small", completion_tokens=3, answer="7"),
        Line("q", 1, "attempt", "small", 1, completion_tokens=3, answer="7"),
        Line("q", 2, "verify", "small", 1, verifier="gold", verdict=True, oracle=True),
    ]
    assert cases(ledger.traces(), "sums").solved.tolist() == [True]
    ledger.lines[2] = replace(ledger.lines[2], verdict=False)
    assert cases(ledger.traces(), "sums").solved.tolist() == [False]
