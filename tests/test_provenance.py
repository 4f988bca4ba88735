"""Where a figure comes from: the commit of this package's own checkout, and of no other."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from noisychannel.provenance import COMMIT, commit, provenance, short_commit


def git(directory: Path, *words: str) -> str:
    name = ["-c", "user.name=x", "-c", "user.email=x"]
    return subprocess.run(["git", *name, *words], cwd=directory, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In a repository with one commit, to which it does not belong yet."""
    monkeypatch.delenv(COMMIT, raising=False)
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "a project of the user's")
    file = tmp_path / "package.py"
    file.write_text("x = 1")
    return file


def test_the_repository_of_a_user_is_not_ours(file: Path) -> None:
    assert commit(file) is None


def test_a_checkout_has_its_commit_and_says_if_it_was_changed(file: Path) -> None:
    git(file.parent, "add", "package.py")
    git(file.parent, "commit", "-q", "-m", "ours")
    head = git(file.parent, "rev-parse", "HEAD")[:12]
    assert commit(file) == head
    file.write_text("x = 2")
    assert commit(file) == f"{head}+"


def test_no_repository_and_no_git(file: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "package.py"
    elsewhere.write_text("")
    assert commit(elsewhere) is None
    monkeypatch.setenv("PATH", "")
    assert commit(file) is None


def test_a_copy_can_be_told_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMMIT, "abc")
    assert provenance()["commit"] == "abc"
    assert set(provenance()) == {"noisychannel", "commit", "torch"}


def test_pages_print_twelve_digits_and_the_plus() -> None:
    shown = [short_commit(one) for one in ("0123456789abcdef", "0123456789abcdef+", "0123456789ab+", "abc", None)]
    assert shown == ["0123456789ab", "0123456789ab+", "0123456789ab+", "abc", "unknown"]
