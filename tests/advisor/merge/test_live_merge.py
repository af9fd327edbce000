"""A live merge: nothing unless asked, and where it cannot be had the run goes on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rn50_advisor.advisor.merge.inbox import INBOX_NAME
from rn50_advisor.advisor.merge.live_merge import Part
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.store.run_writer import RunWriter


def test_nothing_listens_and_nothing_is_sent_unless_asked(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", meta={"name": "x"})
    gaps: list[ProbeGap] = []
    part = Part(listen="", to="", token_file="", period_s=10.0)
    part.start(writer, {}, gaps.append)
    part.finish()
    writer.close()
    assert not gaps and not (tmp_path / "run" / INBOX_NAME).exists()


@pytest.mark.parametrize(
    ("listen", "missing"), [("203.0.113.1:1", ""), ("127.0.0.1:0", "rn50_advisor.advisor.merge.receiver")]
)
def test_a_merge_that_cannot_be_had_is_a_gap_and_no_failure(
    listen: str, missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing:
        monkeypatch.setitem(sys.modules, missing, None)
    writer = RunWriter.create(tmp_path / "run", meta={"name": "x"})
    gaps: list[ProbeGap] = []
    part = Part(listen=listen, to="", token_file=str(tmp_path / "token"), period_s=10.0)
    part.start(writer, {}, gaps.append)
    part.finish()
    writer.close()
    assert [gap.metric for gap in gaps] == ["node.merge"]
    assert not missing or "rn50-advisor[cluster]" in gaps[0].hint
