"""What a token of a named model costs: a dated table, a file of one's own laid over it, the config laid over both."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from outlay.errors import ConfigError, nearest
from outlay.generate import Price

LISTED = Path(__file__).with_name("prices.yaml")


@dataclass(frozen=True)
class PriceTable:
    """date: when its prices held; models: what a provider asks; local: units on one's own hardware, without dollars."""

    date: str
    source: str
    models: Mapping[str, Price]
    local: Mapping[str, Price]


NEEDED = ("input", "output", "units")
"""What a price must say."""


def price_of(model: str, own: Price, own_hardware: bool = False) -> Price:
    """The price of a model: what `own` says, and the tables for what it leaves null.

    OUTLAY_PRICES names a file of the same form as prices.yaml, which stands before it. own_hardware: the model runs
    here, so that its tokens cost no dollars; elsewhere the same model is never taken as free.

    Raises:
        ConfigError: input, output or units is not known anywhere, or the file cannot be read.
    """
    price = known_price(model, own, own_hardware)
    missing = lacking(price)
    if missing:
        close = nearest(model, {name for prices in _order(own_hardware) for name in prices} - {model})
        raise ConfigError(
            f"the price of model '{model}' is not known. {close if close.startswith('Did') else ''}".rstrip()
            + " Add "
            + " ".join(f"generator.price.{name}=…" for name in missing)
            + " (USD per million tokens; units: compute units per token), or a row in a file like "
            f"{LISTED.name} that OUTLAY_PRICES names; 0 is a price"
        )
    return price


def lacking(price: Price) -> list[str]:
    """What a price must say and does not."""
    return [name for name in NEEDED if getattr(price, name) is None]


def known_price(model: str, own: Price, own_hardware: bool = False) -> Price:
    """As `price_of`, with null for what is not known."""
    order = _order(own_hardware)
    listed = next((prices[model] for prices in order if model in prices), Price())
    if not own_hardware and not any(model in table.models for table in _tables()):
        listed = Price(units=listed.units)
    return Price(
        input=_first(own.input, listed.input),
        # A cached price belongs to its input price: one's own input is not discounted by a listed one.
        cached=own.cached if own.input is not None else _first(own.cached, listed.cached),
        output=_first(own.output, listed.output),
        units=_first(own.units, listed.units),
    )


def _order(own_hardware: bool) -> list[Mapping[str, Price]]:
    """Where a price is looked for, first to last."""
    tables = _tables()
    asked, running = [table.models for table in tables], [table.local for table in tables]
    return running + asked if own_hardware else asked + running


def _first(own: float | None, listed: float | None) -> float | None:
    return listed if own is None else own


def _tables() -> list[PriceTable]:
    own = os.environ.get("OUTLAY_PRICES")
    return ([read_prices(Path(own).expanduser())] if own else []) + [read_prices(LISTED)]


@cache
def read_prices(path: Path) -> PriceTable:
    """A table of prices.

    Raises:
        ConfigError: names the file, the model and what is wrong with it.
    """
    from omegaconf import OmegaConf

    try:
        found: Any = OmegaConf.to_container(OmegaConf.load(path))
    except Exception as error:  # of the file system, of YAML, of OmegaConf
        raise ConfigError(f"price table {path}: {str(error).splitlines()[0]}") from error
    if not isinstance(found, dict) or not {"date", "models"} <= set(found):
        raise ConfigError(f"price table {path}: it needs a 'date' and 'models'; see {LISTED.name}")
    models, local = found["models"] or {}, found.get("local") or {}
    return PriceTable(
        date=str(found["date"]),
        source=str(found.get("source", "")),
        models={str(name): _price(path, str(name), row) for name, row in models.items()},
        local={
            str(name): _price(path, str(name), {"input": 0.0, "output": 0.0, "units": units})
            for name, units in local.items()
        },
    )


def _price(path: Path, model: str, row: Any) -> Price:
    known = {one.name for one in fields(Price)}
    if not isinstance(row, dict):
        raise ConfigError(f"price table {path}: model '{model}' needs input, output and units")
    for name, value in row.items():
        if name not in known:
            raise ConfigError(
                f"price table {path}: model '{model}': unknown '{name}'. {nearest(str(name), known)}"
            )
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise ConfigError(
                f"price table {path}: model '{model}': {name}={value} is not a number from 0 on"
            )
    return Price(**{name: float(value) for name, value in row.items()})
