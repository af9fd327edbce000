"""A live merge: nothing unless requested; if it cannot be had or fails, that is a gap, and the run goes on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rn50_advisor.advisor.merge.inbox import INBOX_NAME
from rn50_advisor.advisor.merge.live_merge import Part
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
