from __future__ import annotations

from pathlib import Path

import pytest

from clickharvest.estimation.program_cache import _own_folder


def test_programs_are_kept_in_the_users_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = _own_folder()
    assert folder == tmp_path / "clickharvest" / "programs"
    assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert _own_folder() == tmp_path / "home" / ".cache" / "clickharvest" / "programs"


def test_a_folder_that_others_may_write_or_nobody_can_make_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "clickharvest" / "programs"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert _own_folder() is None
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert _own_folder() is None
