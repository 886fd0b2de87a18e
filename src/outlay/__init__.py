"""Outlay: what does a token buy? Budgeted context, retries and routing, with every token on a ledger."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from outlay.runner import Result


def run(overrides: list[str] | tuple[str, ...] = (), output_dir: str | None = None) -> "Result":
    """One tracked run, as `outlay [overrides]` does it.

    Args:
        overrides: e.g. ["dataset=notes", "selector=rcd", "budget.tokens=128"].
        output_dir: where runs go; null takes the config's.

    Returns:
        The run's `Result`: metrics, ledger and predictions as data frames, folder, run id.

    Raises:
        ConfigError: the config is refused.
        OutlayError: the run failed; it is marked so in the tracking store.
    """
    from outlay.app import run_from_python

    extra: list[Any] = [f"output_dir='{output_dir}'"] if output_dir else []
    return run_from_python([*overrides, *extra])
