"""Oracle and learned selectors in worlds whose best candidate is known."""

from dataclasses import replace
from math import isfinite, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay import run, schema
from outlay.context import Problem, Unit
from outlay.context.features import features
from outlay.context.objective import problem_from_arrays
from outlay.context.pins import Retention
from outlay.context.selectors.lead import Lead
from outlay.context.selectors.learned import Learned, describe
from outlay.context.selectors.mmr import Mmr
from outlay.context.selectors.oracle import Oracle
from outlay.context.stage import Stage
from outlay.errors import ConfigError, OutlayError
from outlay.score.quality import context_worth

ARMS = ("lead", "mmr")
SEEDS = st.integers(0, 2**32 - 1)


def note(seed: int, front: float, count: int = 24) -> Problem:
    """A document whose relevance falls (front > 0) or rises (front < 0) with position; utility is set by a world."""
    rng = np.random.default_rng(seed)
    place = np.linspace(1, -1, count)
    relevance = np.clip(0.5 + 0.4 * front * place + rng.normal(0, 0.05, count), 0.01, 0.99)
    around = rng.normal(size=(count, 8))
    around /= np.linalg.norm(around, axis=1, keepdims=True)
    vectors = np.column_stack([relevance, np.sqrt(1 - relevance**2)[:, None] * around])
    units = [Unit(((10 * at, 10 * at + 10),)) for at in range(count)]
    query = np.eye(9)[0]
    return problem_from_arrays(vectors, query, rng.integers(5, 15, count), [60], units, seed)


def world(seeds: range, follows_phi: bool, noise: float = 0.05) -> list[Problem]:
    """Lead is worth .8 in front-loaded documents and .2 in others, mmr the reverse; or no document differs: mmr .6, lead .4."""
    problems = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        front = float(rng.choice([-1.0, 1.0]))
        problem = note(seed, front)
        kept = {name: arm.select(problem)[0].indices for name, arm in (("lead", Lead()), ("mmr", Mmr()))}
        lead = (0.8 if front > 0 else 0.2) if follows_phi else 0.4
        worth = {kept["mmr"]: (1 - lead) + rng.normal(0, noise), kept["lead"]: lead + rng.normal(0, noise)}
        problems.append(replace(problem, utility=lambda indices, worth=worth: worth[tuple(indices)]))
    return problems


def mean_worth(selector, problems: list[Problem]) -> float:
    """Of what it selects without seeing gold."""
    return float(
        np.mean([one.utility(selector.select(replace(one, utility=None))[0].indices) for one in problems])
    )


def oracle_worth(problems: list[Problem]) -> float:
    return float(np.mean([one.utility(Oracle(ARMS).select(one)[0].indices) for one in problems]))


# ---------------------------------------------------------------- oracle


def test_the_oracle_takes_the_candidate_of_most_worth():
    for problem in world(range(20), follows_phi=True):
        found = Oracle(ARMS).select(problem)[0]
        worth = {
            name: problem.utility(arm.select(problem)[0].indices)
            for name, arm in (("lead", Lead()), ("mmr", Mmr()))
        }
        assert problem.utility(found.indices) == max(worth.values())
        assert worth[found.choice] == max(worth.values())
        assert found.info["worth_lead"] == worth["lead"] and found.info["worth_mmr"] == worth["mmr"]


def test_ties_go_to_the_cheaper_then_to_the_earlier_candidate():
    problem = replace(note(0, 0.0), utility=lambda indices: 0.5)
    cost = {name: schema.component("selector", name).select(problem)[0].tokens for name in ARMS}
    assert cost["lead"] != cost["mmr"]
    assert Oracle(ARMS).select(problem)[0].choice == min(cost, key=cost.get)
    roomy = replace(problem, budgets=(10_000,))  # both keep everything
    assert Oracle(("mmr", "lead")).select(roomy)[0].choice == "mmr"
    assert Oracle(("lead", "mmr")).select(roomy)[0].choice == "lead"


def test_a_worth_that_is_undefined_counts_as_nothing():
    problem = note(1, -1.0)
    lead = Lead().select(problem)[0].indices
    assert lead != Mmr().select(problem)[0].indices
    found = Oracle(ARMS).select(replace(problem, utility=lambda indices: nan if indices == lead else 0.1))
    assert found[0].choice == "mmr"


def test_no_candidate_sees_gold(monkeypatch):
    seen = []
    monkeypatch.setattr(
        Lead, "select", lambda self, problem: seen.append(problem.utility) or Mmr().select(problem)
    )
    Oracle(ARMS).select(replace(note(0, 0.0), utility=lambda indices: 0.5))
    assert seen == [None]


@pytest.mark.parametrize("selector", ["oracle", "learned"])
@pytest.mark.parametrize(
    "wrong, says",
    [(["lead", "full"], "full"), (["led"], "lead"), ([], "each once"), (["lead", "lead"], "each once")],
)
def test_wrong_candidates_are_refused(selector, wrong, says):
    with pytest.raises(ConfigError, match=says):
        schema.component("selector", selector, candidates=wrong)


def test_gold_or_a_fit_is_missed_by_name():
    with pytest.raises(ConfigError, match="needs gold"):
        Oracle().select(note(0, 0.0))
    with pytest.raises(ConfigError, match="not fitted"):
        Learned().select(note(0, 0.0))
    with pytest.raises(ConfigError, match="needs gold"):
        Learned().fit([note(0, 0.0)])


# ---------------------------------------------------------------- learned


def test_where_the_best_candidate_follows_phi_it_comes_near_the_oracle():
    fitted = Learned(ARMS).fit(world(range(80), follows_phi=True))
    assert fitted.kind != "constant"
    assert fitted.regret < 0.25 * fitted.fixed_regret
    test = world(range(1000, 1060), follows_phi=True)
    best_fixed = max(mean_worth(Lead(), test), mean_worth(Mmr(), test))
    assert best_fixed < 0.65
    assert mean_worth(fitted, test) > oracle_worth(test) - 0.05
    found = fitted.select(replace(test[0], utility=None))[0]
    assert found.choice in ARMS
    assert {"phi", "rho", "cv_regret", "cv_regret_fixed", "predicted_lead", "predicted_mmr"} <= set(
        found.info
    )


def test_where_nothing_tells_documents_apart_it_is_the_best_fixed_candidate():
    kinds = []
    for start in range(0, 500, 100):
        fitted = Learned(ARMS).fit(world(range(start, start + 60), follows_phi=False, noise=0.3))
        kinds.append(fitted.kind)
        assert fitted.regret <= fitted.fixed_regret
        assert min(fitted.fixed, key=fitted.fixed.get) == "mmr"
    # Chance gives a gain of one standard error now and then: measured in 3 of 25 such worlds.
    assert kinds.count("constant") >= 4
    constant = Learned(ARMS, model="constant").fit(world(range(60), follows_phi=False))
    assert {constant.select(note(seed, front))[0].choice for seed in range(5) for front in (-1, 1)} == {"mmr"}


def test_a_gain_within_the_margin_is_not_taken():
    train = world(range(40), follows_phi=True)
    assert Learned(ARMS).fit(train).kind != "constant"
    assert Learned(ARMS, margin=1e6).fit(train).kind == "constant"
    assert Learned(ARMS, margin=1e6, model="ridge").fit(train).kind == "ridge"  # asked for by name


def test_questions_on_one_document_are_never_on_both_sides_of_a_fold():
    # Worth is drawn per document: who remembers a document from another question of it does well, who may not cannot.
    problems = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        one, lead = note(seed, 0.0), float(rng.integers(0, 2))
        kept = Lead().select(one)[0].indices
        utility = lambda indices, kept=kept, lead=lead: lead if tuple(indices) == kept else 1 - lead  # noqa: E731
        problems += [replace(one, utility=utility)] * 4
    described = describe(ARMS, problems)
    assert described.documents == tuple(at for at in range(40) for _ in range(4))
    assert Learned(ARMS, model="forest").fit(problems).regret > 0.25


def test_too_few_train_documents_say_so_and_name_the_way_out():
    few = [one for one in world(range(4), follows_phi=True) for _ in range(10)]
    with pytest.raises(OutlayError, match=r"4 documents.*dataset\.count.*routed"):
        Learned(ARMS).fit(few)


def test_a_document_without_defined_worth_is_left_out():
    problems = world(range(12), follows_phi=True)
    problems[3] = replace(problems[3], utility=lambda indices: nan)
    assert len(describe(ARMS, problems).rows) == 11


def test_equal_data_and_seed_give_equal_choices():
    train, test = world(range(40), True), world(range(100, 110), True)
    first, again = (Learned(ARMS, model="forest").fit(train) for _ in range(2))
    assert [first.select(one) for one in test] == [again.select(one) for one in test]


@given(seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_features_are_finite_and_know_no_gold(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(0, 30))
    vectors = rng.normal(0.2, 1, (count, 6))
    vectors[rng.random(count) < 0.2] = 0
    costs = rng.integers(1, 30, count)
    problem = problem_from_arrays(vectors, rng.normal(size=6), costs, (1, 25, 10_000))
    found = {name: schema.component("selector", name).select(problem) for name in ("lead", "rcd")}
    rows = features(problem, found)
    assert len(rows) == 3 and len({tuple(row) for row in rows}) == 1
    assert all(isfinite(value) for row in rows for value in row.values())
    with_gold = replace(problem, utility=lambda indices: 1 / 0)
    assert features(with_gold, found) == rows


def test_a_budget_is_kept_and_pins_are_held():
    fitted = Learned(("lead", "mmr", "rcd")).fit(
        [replace(note(seed, 0.0), utility=lambda indices: len(indices) / 24) for seed in range(10)]
    )
    problem = replace(note(99, 0.3), budgets=(1, 20, 60, 10_000))
    for budget, one in zip(problem.budgets, fitted.select(problem), strict=True):
        assert one.tokens == problem.costs[list(one.indices)].sum() <= budget
    pinned = fitted.select_given(replace(problem, budgets=(60, 10_000)), (5,))
    assert all(5 in one.indices for one in pinned)


# ---------------------------------------------------------------- in a run


@pytest.mark.slow
def test_an_oracle_marks_its_run_and_a_learned_selector_does_not(own_cache, tmp_path):
    common = [
        "dataset=notes", "dataset.task=summary", "dataset.query=template", "dataset.count=40", "dataset.length=0.4",
        "dataset.limit=4", "generator=extract", "metrics=qa", "budget.tokens=64", f"output_dir={tmp_path}", "verbose=false",
    ]  # fmt: skip
    oracle = run([*common, "selector=oracle"])
    learned = run([*common, "selector=learned", "selector.model=ridge"])
    rcd = run([*common, "selector=rcd"])
    assert oracle.oracle and not learned.oracle and not rcd.oracle
    assert oracle.metrics["quality/fact_recall"] >= max(
        one.metrics["quality/fact_recall"] for one in (learned, rcd)
    )
    assert "cross-validation" in (learned.folder / "run.log").read_text()


def test_a_stage_gives_gold_to_the_oracle_and_train_gold_to_the_learned_selector_only():
    notes = schema.component(
        "dataset", "notes", task="summary", query="template", count=40, length=0.4, limit=4
    )

    def stage(selector):
        return Stage(
            dataset=notes,
            unitizer=schema.component("unitizer", "sentence"),
            embedder=schema.component("embedder", "tfidf"),
            selector=selector,
            retention=Retention(),
            budget=schema.component("budget", "fixed", tokens=64),
            count=lambda texts: [len(text.split()) for text in texts],
            tokenizer="words",
            seed=0,
        ).fitted()

    oracle, learned = stage(Oracle()), stage(Learned(model="ridge"))
    assert Oracle.oracle and not learned.selector.oracle
    for example in notes.examples():
        (best,), (chosen,) = oracle.contexts(example), learned.contexts(example)
        worths = [value for name, value in best.selection.info.items() if name.startswith("worth_")]
        assert context_worth(example, best.context.spans) == pytest.approx(max(worths))
        assert context_worth(example, chosen.context.spans) <= max(worths) + 1e-9
        assert chosen.selection.choice in ("lead", "mmr", "rcd")
        assert learned.problem(example, (64,)).utility is None
