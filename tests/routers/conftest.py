"""The completions of `known` are made once for all tests of it."""

import pytest

from outlay.generate.store import Store


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store") / "store.sqlite")
