"""Runs of each state, and the screen that lists them, with functions that stand in for files. Not a test."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import report_samples as samples
from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.store.run_summary import summary_of, write_summary
from rn50_advisor.advisor.tui.runs.list_widgets import Removal, RunTable
from rn50_advisor.advisor.tui.runs.listed_runs import ListState
from rn50_advisor.advisor.tui.runs.run_actions import RunActions
from rn50_advisor.advisor.tui.runs.runs_app import RunsApp
from store_rows import T0_NS
from tui_doubles import until
from written_runs import written_run

STATES = (samples.bottleneck, samples.healthy, samples.inconclusive, samples.dead_rank)


def runs_of_each_state(tmp_path: Path) -> Path:
    """A run of each verdict, one without, and one that is damaged; the newest is the last but one."""
    start = 1.7e9
    for n, make in enumerate(STATES):
        name = f"2025010{n + 1}-000000-{make.__name__}"
        folder = written_run(tmp_path / name, started_unix_s=start + n, ended_ns=T0_NS + 10**9, steps=3)
        write_summary(folder, replace(summary_of(make(), read_recording(folder)), samples_per_s=100.0 + n))
    written_run(tmp_path / "20250105-000000-new", started_unix_s=start + 9, ended_ns=T0_NS + 10**9, steps=3)
    (tmp_path / "20250106-000000-damaged").mkdir()
    (tmp_path / "20250106-000000-damaged" / "run.sqlite").write_bytes(b"nothing")
    return tmp_path


class Files:
    """What the list asks for, in order."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.asked: list[tuple[str, Any]] = []
        self.release = threading.Event()
        self.release.set()
        self.failing = ""

    def actions(self) -> RunActions:
        return RunActions(self.folders, self.judge, self.compare, self.page, self.removal)

    def folders(self) -> list[Path]:
        self.release.wait(20)
        if self.failing == "folders":
            raise NotARun("the folder is gone")
        return sorted((folder for folder in self.base.iterdir() if folder.is_dir()), reverse=True)

    def judge(self, folder: Path) -> None:
        self.asked.append(("judge", folder.name))
        if self.failing == "judge":
            raise NotARun("damaged")
        write_summary(folder, summary_of(samples.healthy(), read_recording(folder)))

    def compare(self, folders: Sequence[Path]) -> str:
        self.asked.append(("compare", [folder.name for folder in folders]))
        return "improved: 1.5 times as fast\n[not markup]"

    def page(self, folder: Path) -> Path:
        self.asked.append(("page", folder.name))
        return folder / "report.html"

    def removal(self, folders: Sequence[Path]) -> Removal:
        if self.failing == "removal":
            raise NotARun("it is being recorded")

        def remove() -> str:
            self.asked.append(("remove", [folder.name for folder in folders]))
            for folder in folders:
                for file in folder.iterdir():
                    file.unlink()
                folder.rmdir()
            return "Removed."

        return Removal(f"Remove {len(folders)}?", "these files go", remove)


@asynccontextmanager
async def listing(
    base: Path, size: tuple[int, int] = (80, 24), **options: Any
) -> AsyncIterator[tuple[RunsApp, Any, Files]]:
    files = options.pop("files", None) or Files(base)
    app = RunsApp(files.actions(), options.pop("state", None) or ListState(), place="runs", **options)
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(pilot, lambda: app.reader.loaded and not app.reader._busy)
        await pilot.pause()
        yield app, pilot, files


def names(app: RunsApp) -> list[str]:
    return [Path(option.id or "").name[16:] for option in app.screen_stack[0].query_one(RunTable).options]
