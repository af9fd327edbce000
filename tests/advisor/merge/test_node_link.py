"""What both sides of a live merge are given: the token and the address."""

from __future__ import annotations

from pathlib import Path

import pytest

from rn50_advisor.advisor.merge.node_link import parse_address, read_token
from rn50_advisor.advisor.model.errors import AdvisorError, UsageError


def test_the_token_is_made_once_and_for_nobody_else(tmp_path: Path) -> None:
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


def test_a_token_is_never_seen_half_made_and_of_two_that_make_one_the_first_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, link = tmp_path / "token", Path.hardlink_to

    def looked_at(name: Path, new: Path) -> None:
        assert not file.exists() and len(new.read_text().strip()) == 64
        link(name, new)

    monkeypatch.setattr(Path, "hardlink_to", looked_at)
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
def test_what_is_no_address_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        parse_address(text)
