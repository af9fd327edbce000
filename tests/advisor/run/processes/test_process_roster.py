"""Rows of the job's processes from the process tree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rn50_advisor.advisor.run.processes.process_roster import Roster
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.probes.host.process.process_tree import Member, TreeChange


def test_a_process_is_named_by_what_it_runs_not_by_what_forked_it(tmp_path: Path) -> None:
    forked = Member(7, 1, 100, 5, 5, "rn50-advisor run -- sh", 0.0, 0.0)
    writer = RunWriter.create(tmp_path / "run", meta={})
    roster = Roster(writer, 1, "job")
    roster.update(TreeChange(started=(forked,)), (forked,))
    roster.update(TreeChange(), (replace(forked, command="/bin/sh -c train"),))
    roster.update(TreeChange(), (replace(forked, command=""),))
    writer.close()
    [process] = read_recording(tmp_path / "run").processes
    assert process.command == "/bin/sh -c train"
