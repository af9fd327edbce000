"""What the recorded process learns of a keeper that cannot work."""

from __future__ import annotations

from pathlib import Path

import pytest

from rn50_advisor.advisor.commands.notebooks import keeper_handle
from rn50_advisor.advisor.commands.notebooks.keeper_handle import NoKeeper, RunKeeper


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(NoKeeper, match="File exists"):
        RunKeeper(name="x", run_dir=tmp_path / "file")
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_one_that_does_not_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper_handle, "_MODULE", "this")  # ends without a word
    with pytest.raises(NoKeeper, match="ended"):
        RunKeeper(name="x", run_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []
