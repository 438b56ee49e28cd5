"""The cache folder: what the user says, else what the platform says."""

import sys
from pathlib import Path

import pytest

from proxlin.data.cache import cache_folder


def test_the_user_chooses_the_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("PROXLIN_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path


@pytest.mark.skipif(
    sys.platform != "linux", reason="the rules of XDG are those of Linux"
)
def test_without_a_word_it_is_the_platforms(monkeypatch, tmp_path):
    monkeypatch.delenv("PROXLIN_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "proxlin"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_folder() == Path.home() / ".cache" / "proxlin"
    monkeypatch.setenv("PROXLIN_CACHE", "")
    assert cache_folder() == Path.home() / ".cache" / "proxlin"
