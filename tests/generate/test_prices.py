"""Prices: a dated table, one's own before it, and never zero where nothing is known."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.errors import ConfigError
from outlay.generate import Price
from outlay.generate.openai import OpenAI
from outlay.generate.prices import LISTED, price_of, read_prices

TABLE = read_prices(LISTED)


def test_the_table_is_dated_and_every_model_has_all_it_needs() -> None:
    assert TABLE.date.startswith("20") and TABLE.source
    for price in [*TABLE.models.values(), *TABLE.local.values()]:
        assert None not in (price.input, price.output, price.units) and price.units
    assert not set(TABLE.models) & set(TABLE.local)


def test_units_of_api_models_follow_from_their_prices_as_the_table_says() -> None:
    for model, price in TABLE.models.items():
        assert price.units == pytest.approx(
            8 * (3 * price.input + price.output) / (3 * 0.15 + 0.6), abs=0.01
        ), model


def test_known_prices() -> None:
    assert price_of("gpt-4o", Price()) == Price(2.5, 1.25, 10.0, 133.33)
    assert price_of("gpt-4o-mini", Price()).usd(1_000_000, 0, 1_000_000) == pytest.approx(0.75)
    assert price_of("gpt-4o-mini", Price()).usd(1_000_000, 1_000_000, 0) == pytest.approx(0.075)


def test_the_table_agrees_with_frugalgpt_where_both_know_a_dated_model(shared: Path) -> None:
    theirs = json.loads((shared / "replay" / "frugalgpt" / "serviceinfo.json").read_text())
    both = 0
    for models in theirs.values():
        for model, row in models.items():
            # Undated names have changed their price since: gpt-4o, gpt-3.5-turbo.
            if model in TABLE.models and model not in ("gpt-4o", "gpt-3.5-turbo"):
                price = TABLE.models[model]
                assert price.input == pytest.approx(row["cost_input"] * 1e6), model
                assert price.output == pytest.approx(row["cost_output"] * 1e6), model
                both += 1
    assert both >= 10


def test_an_unknown_model_is_an_error_that_says_how_to_add_it() -> None:
    with pytest.raises(
        ConfigError, match=r"'gpt-4o-mni'.*Did you mean 'gpt-4o-mini'.*generator\.price\.input=…"
    ):
        price_of("gpt-4o-mni", Price())
    with pytest.raises(ConfigError, match=r"Add generator\.price\.units=… .*OUTLAY_PRICES"):
        price_of("mine", Price(input=1.0, output=2.0))
    assert price_of("mine", Price(1.0, None, 2.0, 3.0)) == Price(1.0, None, 2.0, 3.0)


def test_a_local_model_is_free_on_this_machine_alone() -> None:
    model = "Qwen/Qwen2.5-7B-Instruct"
    (home,) = OpenAI(model=model, base_url="http://127.0.0.1:8000/v1").tiers
    assert home.price == Price(0.0, None, 0.0, 7.6)
    with pytest.raises(ConfigError, match=r"generator\.price\.input=… generator\.price\.output=…"):
        _ = OpenAI(model=model, base_url="https://api.example.org/v1").tiers
    own = Price(input=0.3, output=0.3)
    assert OpenAI(model=model, base_url="https://api.example.org/v1", price=own).tiers[0].price.units == 7.6


prices = st.none() | st.floats(0, 100)


@given(st.builds(Price, prices, prices, prices, prices), st.sampled_from(sorted(TABLE.models)))
def test_what_is_said_stands_and_the_rest_is_listed(own: Price, model: str) -> None:
    found, listed = price_of(model, own), TABLE.models[model]
    for name in ("input", "output", "units"):
        said = getattr(own, name)
        assert getattr(found, name) == (getattr(listed, name) if said is None else said)
    if own.input is not None:
        assert found.cached == own.cached, "one's own input price has no listed discount"


def test_a_file_of_ones_own_stands_before_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(
        "date: 2030-01-01\nmodels:\n  gpt-4o: {input: 1, output: 4, units: 9}\n  new: {input: 2, output: 2, units: 1}\n"
    )
    monkeypatch.setenv("OUTLAY_PRICES", str(file))
    assert price_of("gpt-4o", Price()) == Price(1.0, None, 4.0, 9.0)
    assert price_of("new", Price()).input == 2 and price_of("gpt-4o-mini", Price()).input == 0.15


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("models: {m: {inptu: 1}}\ndate: x", r"'m': unknown 'inptu'. Did you mean 'input'"),
        ("models: {m: {input: cheap}}\ndate: x", "'m': input=cheap is not a number"),
        ("models: {m: {input: -1}}\ndate: x", "'m': input=-1 is not a number from 0 on"),
        ("models: {m: 3}\ndate: x", "'m' needs input, output and units"),
        ("models: {}", "needs a 'date'"),
        ("- a", "needs a 'date'"),
        ("a: [", "price table"),
    ],
)
def test_a_broken_file_is_named(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    monkeypatch.setenv("OUTLAY_PRICES", str(file))
    with pytest.raises(ConfigError, match=says) as caught:
        price_of("gpt-4o", Price())
    assert str(file) in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAY_PRICES", str(tmp_path / "absent.yaml"))
    with pytest.raises(ConfigError, match=r"absent\.yaml"):
        price_of("gpt-4o", Price())
