"""The process beside: it ends with the recorded one, and what it could not see is in the run."""

from __future__ import annotations

from pathlib import Path

import psutil

from rn50_advisor.advisor.commands.notebooks.keeper_handle import RunKeeper
from rn50_advisor.advisor.commands.notebooks.recording_keeper import UNSEEN
from rn50_advisor.advisor.store.run_reader import read_recording
from waiting import wait_for


def test_it_ends_the_recording_when_nobody_talks_to_it_any_more(tmp_path: Path) -> None:
    keeper = RunKeeper(name="left", run_dir=tmp_path)
    process = psutil.Process(int(Path(keeper.place.rings).name.split("-")[2]))
    assert process.ppid() != psutil.Process().pid  # its work is not the recorded process's
    keeper.close()
    wait_for(lambda: not Path(keeper.place.rings).exists(), "the rings are gone")
    wait_for(lambda: not process.is_running(), "the keeper has ended")
    recording = read_recording(keeper.place.run)
    assert recording.meta.name == "left" and recording.meta.ended_ns is not None
    assert recording.meta.exit_code is None
    assert UNSEEN in recording.gaps
