"""Errors meant for people: what is wrong, where, the nearest valid choice, the way out."""

import difflib
from collections.abc import Iterable


class OutlayError(Exception):
    """A failure whose message is complete on its own; shown without a stack trace."""

    exit_code = 1


class ConfigError(OutlayError):
    """Wrong usage or an impossible configuration, found before anything is paid for."""

    exit_code = 2


class DataError(OutlayError):
    """A file or row that cannot be read; the message names both."""


class GenerationError(OutlayError):
    """A model, server or store that cannot answer."""


class SpendLimitReached(GenerationError):
    """The next call would pass the limit on what a command may pay. What was answered is kept; the run can go on."""


def nearest(name: str, choices: Iterable[str], prefix: str = "") -> str:
    """A sentence that names the closest valid choice, or all of them. prefix: what stands before it where it is written."""
    known = sorted(choices)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if not close:  # letters swapped in a short name ("rdc") share no long block
        close = [known_name for known_name in known if sorted(known_name) == sorted(name)]
    if close:
        return f"Did you mean '{prefix}{close[0]}'?"
    return f"Choices: {', '.join(known)}." if known else ""
