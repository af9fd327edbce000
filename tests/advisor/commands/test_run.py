"""`run` refuses wrong options and a wrong configuration before the job starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rn50_advisor.advisor.commands.run import check_config, check_merge
from rn50_advisor.advisor.model.errors import AdvisorError, ConfigError, UsageError


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
        (("", ":1", "token"), "does not name a host"),
        (("node0", "", "token"), "is not an address"),
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


@pytest.mark.parametrize("way", [("", "node0:29600"), (":29600", "")])
def test_where_pyzmq_is_missing_one_line_says_what_to_install(
    way: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_merge(*way, "token")
    assert capsys.readouterr().err == ""
    monkeypatch.setitem(sys.modules, "zmq", None)
    check_merge(*way, "token")
    (line,) = capsys.readouterr().err.splitlines()
    assert 'pip install "rn50-advisor[cluster]"' in line


def test_without_a_merge_nothing_is_asked(tmp_path: Path) -> None:
    check_merge("", "", "")
    assert not list(tmp_path.iterdir())


def test_a_configuration_is_checked_and_its_error_comes_with_its_hint(tmp_path: Path) -> None:
    (tmp_path / "right.toml").write_text("[rules.DAT003]\ninput_wait = 0.1\n")
    check_config(tmp_path / "right.toml")
    (tmp_path / "wrong.toml").write_text("[rules.DAT003]\ninput_wiat = 0.1\n")
    with pytest.raises(ConfigError, match="input_wiat") as refused:
        check_config(tmp_path / "wrong.toml")
    assert "input_wait" in refused.value.hint
    with pytest.raises(ConfigError, match="none"):
        check_config(tmp_path / "none.toml")
