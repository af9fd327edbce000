"""What `run` refuses of a merge before the job starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from rn50_advisor.advisor.commands.run import check_merge
from rn50_advisor.advisor.model.errors import AdvisorError, UsageError


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("", "", "token"), "without a merge"),
        (("node0:1", "node0:1", "token"), "either listens or sends"),
        (("node0:1", "", ""), "needs --merge-token-file"),
        (("", "node0:1", ""), "needs --merge-token-file"),
        (("", ":1", "token"), "names no host"),
        (("node0", "", "token"), "is no address"),
    ],
)
def test_a_merge_that_makes_no_sense_is_refused(given: tuple[str, str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_merge(*given)


def test_the_listening_side_makes_the_token_and_the_other_starts_without_one(tmp_path: Path) -> None:
    file = tmp_path / "token"
    check_merge("", "node0:29600", str(file))
    assert not file.exists()
    check_merge(":29600", "", str(file))
    check_merge("", "node0:29600", str(file))
    assert file.stat().st_mode & 0o077 == 0 and list(tmp_path.iterdir()) == [file]


def test_a_token_that_never_can_be_read_is_refused_before_the_job_starts(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("abc\n")
    with pytest.raises(AdvisorError, match="cannot be read"):
        check_merge("", "node0:29600", str(tmp_path / "no folder" / "token"))
    with pytest.raises(AdvisorError, match="cannot be read"):
        check_merge("", "node0:29600", str(tmp_path))
    with pytest.raises(UsageError, match="shorter"):
        check_merge("", "node0:29600", str(tmp_path / "short"))


def test_without_a_merge_nothing_is_asked(tmp_path: Path) -> None:
    check_merge("", "", "")
    assert not list(tmp_path.iterdir())
