"""What a fitted predictor owes: it depends on its training cases and its seed, on nothing else, and is saved exactly."""

import json
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.errors import ConfigError, DataError, OutlayError
from outlay.inflation.cases import Cases, joined
from outlay.inflation.features import FOUR, Features
from outlay.inflation.predictor import FILES, Predictor, Training, load, train

QUICK = Training(epochs=12, patience=4, device="cpu")


def table(count: int = 120, seed: int = 0, tier: str = "small", dataset: str = "sums") -> Cases:
    """Up to six attempts at a chance that falls with the entropy."""
    rng = np.random.default_rng(seed)
    chance = rng.uniform(0.1, 0.95, count)
    tries = np.minimum(rng.geometric(chance), 6).astype(float)
    rows = np.column_stack(
        [1.6 * (1 - chance), chance, rng.lognormal(4, 0.5, count), rng.lognormal(5, 0.5, count)]
    )
    ids = np.array([f"{seed}-{at}" for at in range(count)])
    return Cases(rows, FOUR, np.full(count, tier), np.full(count, dataset), tries, tries < 6, ids)


def same(one: Predictor, other: Predictor, tier: str = "small") -> bool:
    rows = table(50, seed=99).features
    return np.array_equal(one.predict(tier, rows), other.predict(tier, rows)) and np.array_equal(
        one.probability(tier, rows), other.probability(tier, rows)
    )


@pytest.fixture(scope="module")
def fitted() -> Predictor:
    return train(joined([table(), table(tier="large", seed=1)]), QUICK)


# ---------------------------------------------------------------- training


def test_a_seed_gives_one_predictor_and_the_order_of_cases_and_other_tiers_do_not_matter(
    fitted: Predictor,
) -> None:
    shuffled = table().only(np.random.default_rng(5).permutation(120))
    assert same(train(shuffled, QUICK), fitted)
    assert not same(train(table(), replace(QUICK, seed=1)), fitted)


def test_random_states_and_threads_of_others_are_left_alone() -> None:
    import torch

    torch.manual_seed(3)
    np.random.seed(3)
    threads = torch.get_num_threads()
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]
    train(table(), QUICK)
    assert torch.equal(before[0], torch.get_rng_state()) and torch.get_num_threads() == threads
    assert before[1] == np.random.get_state()[1].tolist()  # type: ignore[index]


def test_held_out_queries_set_no_scaling() -> None:
    """An outlier in one case moves the scaling, unless the case is held out: so many cases there must be."""
    own = table(50)
    settings = replace(QUICK, epochs=1)
    plain = train(own, settings).fits["small"]
    unmoved = 0
    for at in range(len(own)):
        rows = own.features.copy()
        rows[at] = 1e6
        moved = train(replace(own, features=rows), settings).fits["small"]
        unmoved += all(
            np.array_equal(a, b)
            for a, b in zip(vars(plain.scaling).values(), vars(moved.scaling).values(), strict=True)
        )
    assert unmoved == plain.held_out == 10


def test_repeats_of_a_query_are_held_out_together_or_not_at_all() -> None:
    """Marked by its entropy alone, a query asked twice counts twice in the scaling's mean, or not at all."""
    own = joined([table(60), table(60)])
    counted = []
    for query in range(60):
        rows = own.features.copy()
        rows[:, 0] = 0.0
        rows[[query, 60 + query], 0] = 1.0
        fit = train(replace(own, features=rows), replace(QUICK, epochs=1)).fits["small"]
        assert fit.scaling is not None
        counted.append(round(fit.scaling.mean[0] * (fit.cases - fit.held_out)))
    assert sorted(counted) == [0] * 12 + [2] * 48


def test_early_stopping_keeps_the_best_epoch() -> None:
    own = table(200, seed=3)
    fit = train(own, Training(epochs=200, patience=8, learning_rate=0.02, device="cpu")).fits["small"]
    assert fit.losses[fit.epoch] == min(fit.losses)
    assert len(fit.losses) == fit.epoch + 1 + 8 < 200
    stopped = Training(epochs=fit.epoch + 1, patience=8, learning_rate=0.02, device="cpu")
    there = train(own, stopped).fits["small"]
    assert there.losses == fit.losses[: fit.epoch + 1]
    for kept, last in zip(fit.layers, there.layers, strict=True):
        assert np.array_equal(kept[0], last[0]) and np.array_equal(kept[1], last[1])


@pytest.mark.parametrize(("few", "flat"), [(True, False), (False, True)])
def test_a_tier_with_too_little_to_learn_from_is_predicted_by_its_mean(few: bool, flat: bool) -> None:
    odd = table(39 if few else 80, seed=2, tier="odd")
    odd = replace(odd, inflation=np.full(len(odd), 3.0)) if flat else odd
    found = train(joined([table(), odd]), QUICK)
    mean = exp(np.log(odd.inflation).mean())
    rows = table(7).features
    assert found.predict("odd", rows) == pytest.approx([mean] * 7)
    assert found.probability("odd", rows) == pytest.approx([odd.high.mean()] * 7)
    (note,) = found.notes
    assert "tier odd is predicted by its mean" in note and ("39 queries" in note) == few
    assert found.fits["small"].layers


def test_a_constant_or_unknown_column_is_said_and_harmless() -> None:
    own = table()
    rows = own.features.copy()
    rows[:, 2], rows[:, 3] = 7.0, np.nan
    found = train(replace(own, features=rows), QUICK)
    assert found.notes == ("tier small: chain_tokens, prompt_tokens did not vary and taught nothing",)
    other = rows.copy()
    other[:, 2:] = 1e9
    assert np.array_equal(found.predict("small", rows), found.predict("small", other))


def test_a_training_that_diverges_says_so() -> None:
    with pytest.raises(OutlayError, match=r"diverged .* learning_rate=1e\+30"):
        train(table(), replace(QUICK, learning_rate=1e30))


def test_cuda_is_refused_where_there_is_none() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(ConfigError, match="no CUDA device"):
        train(table(), replace(QUICK, device="cuda"))


def test_no_cases_and_wrong_cases_are_refused() -> None:
    none = table().only(np.zeros(120, bool))
    with pytest.raises(DataError, match="without a probe"):
        train(replace(none, notes=("9 queries of sums without a probe are left out",)), QUICK)
    with pytest.raises(DataError, match=r"case 2 \(sums/0-2\): inflation nan"):
        replace(table(3), inflation=np.array([1.0, 2.0, np.nan]))
    with pytest.raises(DataError, match="expected \\(3, 4\\)"):
        replace(table(3), features=np.zeros((3, 5)))
    with pytest.raises(DataError, match="same features"):
        joined([])


# ---------------------------------------------------------------- predicting


@given(
    rows=st.lists(
        st.tuples(*[st.floats(allow_nan=True, allow_infinity=True) for _ in FOUR]), min_size=1, max_size=5
    )
)
@settings(deadline=None)
def test_a_prediction_is_finite_and_at_least_1_whatever_the_features(
    fitted: Predictor, rows: list[tuple[float, ...]]
) -> None:
    predicted, chance = fitted.predict("small", rows), fitted.probability("small", rows)
    assert np.isfinite(predicted).all() and (predicted >= 1).all()
    assert ((chance >= 0) & (chance <= 1)).all()


def test_beyond_the_range_of_its_training_it_predicts_as_at_the_edge(fitted: Predictor) -> None:
    rows = np.array([[0.8, 0.5, 60.0, 150.0]] * 3)
    rows[1, 3], rows[2, 3] = 1e5, 1e9
    edge = table().features[:, 3].max()
    _, far, further = fitted.predict("small", rows)
    assert far == further
    rows[0, 3] = 2 * edge
    assert fitted.predict("small", rows)[0] == far


def test_other_rows_change_no_prediction(fitted: Predictor) -> None:
    rows = table(20, seed=7).features
    alone = np.concatenate([fitted.predict("small", row[None]) for row in rows])
    assert fitted.predict("small", np.vstack([rows, np.full((3, 4), 1e9)]))[:20] == pytest.approx(
        alone, rel=1e-12
    )


def test_an_unknown_tier_a_missing_feature_and_a_wrong_width_name_the_way_out(fitted: Predictor) -> None:
    with pytest.raises(ConfigError, match=r"no tier 'smal'\. Did you mean 'small'\?"):
        fitted.predict("smal", table(2).features)
    with pytest.raises(
        ConfigError, match=r"4 features \(cbe, agreement, chain_tokens, prompt_tokens\); got shape \(2, 3\)"
    ):
        fitted.predict("small", np.zeros((2, 3)))
    known = Features(0.9, 0.6, 30.0, 80.0, 0.7, 2.0)
    assert fitted.row(known) == [0.9, 0.6, 30.0, 80.0]
    with pytest.raises(ConfigError, match=r"no feature 'cbee'\. Did you mean 'cbe'\?"):
        replace(fitted, names=("cbee",)).row(known)


# ---------------------------------------------------------------- files


def test_saved_and_loaded_it_is_the_same_to_the_last_bit(fitted: Predictor, tmp_path: Path) -> None:
    rated = replace(
        train(joined([table(), table(10, tier="odd", seed=4)]), QUICK), metrics={"predictor/auroc": 0.75}
    )
    where = rated.save(tmp_path / "deep" / "predictor")
    assert sorted(path.name for path in where.iterdir()) == sorted(FILES)
    for asked in (where, str(where), where / FILES[0], where / FILES[1]):
        again = load(asked)
        assert same(again, rated) and same(again, rated, "odd")
        assert (again.names, again.training, again.data) == (rated.names, rated.training, rated.data)
        assert (again.notes, again.metrics, again.datasets) == (rated.notes, rated.metrics, {"sums": 130})
        assert again.fits["small"].losses == rated.fits["small"].losses
    twice = again.save(tmp_path / "twice")
    assert all((twice / name).read_bytes() == (where / name).read_bytes() for name in FILES)


def test_its_files_are_json_and_safetensors(fitted: Predictor, tmp_path: Path) -> None:
    from safetensors import safe_open

    where = fitted.save(tmp_path)
    described = json.loads((where / FILES[0]).read_text(encoding="utf-8"))
    assert [one["tier"] for one in described["tiers"]] == ["large", "small"]
    with safe_open(str(where / FILES[1]), framework="numpy") as weights:
        shapes = {key: weights.get_slice(key).get_shape() for key in weights.keys()}  # noqa: SIM118
    assert shapes["1.0.weight"] == [4, 32] and shapes["1.2.bias"] == [2] and len(shapes) == 12


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        (FILES[1], lambda old: old[:-4], "not the weights that predictor.json describes"),
        (FILES[0], lambda old: old[:-40], "not a saved predictor"),
        (FILES[0], lambda old: b"[]", "not a saved predictor"),
        (FILES[0], lambda old: old.replace(b'"version": 1', b'"version": 7'), "version 7, expected 1"),
        (FILES[0], lambda old: old.replace(b'"log_mean"', b'"mean"'), "not a saved predictor .*log_mean"),
    ],
)
def test_damaged_files_are_named(
    fitted: Predictor, tmp_path: Path, name: str, damage: Any, said: str
) -> None:
    where = fitted.save(tmp_path)
    (where / name).write_bytes(damage((where / name).read_bytes()))
    with pytest.raises(DataError, match=said) as refused:
        load(where)
    assert name in str(refused.value) and "\n" not in str(refused.value)


def test_a_folder_without_a_predictor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"no predictor\.json and no predictor\.safetensors there\. Give the folder"
    ):
        load(tmp_path)


@pytest.mark.slow  # a new SQLite store takes seconds to migrate
def test_a_tracked_predictor_is_loaded_by_its_run(
    fitted: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from outlay.track import Tracking, start_run, store_uri

    run = start_run(Tracking(), tmp_path, "fit", {})
    where = fitted.save(tmp_path / "predictor")
    for name in FILES:
        run.artifact(where / name, "predictor")
    run.end()
    store = store_uri(Tracking(), tmp_path)
    address = f"runs:/{run.run_id}/predictor"
    assert same(load(address, store), fitted)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    assert same(load(address), fitted)
    for wrong in (f"runs:/{run.run_id}/other", "runs:/0123456789/predictor"):
        with pytest.raises(OutlayError, match=wrong):
            load(wrong)
    with pytest.raises(ConfigError, match="expected runs:/RUN_ID/PATH"):
        load("runs:/")
    with pytest.raises(OutlayError, match="no tracking store"):
        load(address, f"sqlite:///{tmp_path}/none.db")


def test_the_mean_is_of_logs() -> None:
    """One of two at 1 and one at 4: log inflation has the mean of 2."""
    two = table(2)
    found = train(replace(two, inflation=np.array([1.0, 4.0])), QUICK)
    assert found.fits["small"].log_mean == pytest.approx(log(2))
