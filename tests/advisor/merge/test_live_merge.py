"""A node's part in a live merge: none unless requested, a failure is one gap, and a token that nobody else can read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rn50_advisor.advisor.merge.inbox import INBOX_NAME
from rn50_advisor.advisor.merge.live_merge import Part, parse_address, read_token
from rn50_advisor.advisor.model.errors import AdvisorError, UsageError
from rn50_advisor.advisor.model.metrics import ProbeGap


def gaps_of(folder: Path, listen: str) -> list[ProbeGap]:
    gaps: list[ProbeGap] = []
    part = Part(listen=listen, to="", token_file=str(folder / "token"), period_s=10.0)
    part.start(folder, gaps.append)
    part.finish()
    return gaps


def test_nothing_listens_and_nothing_is_sent_unless_requested(tmp_path: Path) -> None:
    assert not gaps_of(tmp_path, "") and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("listen", "missing", "expected"),
    [
        ("203.0.113.1:1", "", ("cannot listen", "--merge-listen with another port")),
        ("127.0.0.1:0", "rn50_advisor.advisor.merge.receiver", ("no live merge", "rn50-advisor[cluster]")),
        ("127.0.0.1:0", "", ("the live merge stopped: DatabaseError", "own run files")),
    ],
    ids=["no such address", "no pyzmq", "a damaged file"],
)
def test_a_merge_that_cannot_be_had_is_one_gap(
    listen: str, missing: str, expected: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / INBOX_NAME).write_bytes(b"no database" * 400)
    if missing:
        monkeypatch.setitem(sys.modules, missing, None)
    (gap,) = gaps_of(tmp_path, listen)
    assert gap.metric == "node.merge" and expected[0] in gap.reason and expected[1] in gap.hint


def test_the_token_is_created_once_and_only_for_the_user(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(AdvisorError, match="cannot be read"):
        read_token(file, make=False)
    made = read_token(file, make=True)
    assert len(made) == 64 and file.stat().st_mode & 0o077 == 0
    assert read_token(file, make=True) == read_token(file, make=False) == made
    file.chmod(0o644)
    with pytest.raises(UsageError, match="read by other users"):
        read_token(file, make=False)
    file.chmod(0o600)
    file.write_text("short\n")
    with pytest.raises(UsageError, match="shorter"):
        read_token(file, make=False)


def test_a_token_is_created_atomically_and_the_first_creator_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, link = tmp_path / "token", Path.hardlink_to

    def checked(name: Path, new: Path) -> None:
        assert not file.exists() and len(new.read_text().strip()) == 64
        link(name, new)

    monkeypatch.setattr(Path, "hardlink_to", checked)
    made = read_token(file, make=True)

    def too_late(name: Path, new: Path) -> None:
        file.write_bytes(made)
        file.chmod(0o600)
        link(name, new)

    file.unlink()
    monkeypatch.setattr(Path, "hardlink_to", too_late)
    assert read_token(file, make=True) == made
    assert list(tmp_path.iterdir()) == [file]

    def no_links(name: Path, new: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    file.unlink()
    monkeypatch.setattr(Path, "hardlink_to", no_links)
    assert len(read_token(file, make=True)) == 64 and list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("text", "address"),
    [("node0:29600", ("node0", 29600)), ("[::1]:7", ("::1", 7)), (":0", ("", 0))],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "node0", "node0:", "node0:http", "node0:70000", "node0:²"])
def test_a_wrong_address_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        parse_address(text)
