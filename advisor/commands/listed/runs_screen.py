"""The runs list on a terminal: shows it, opens the run that was chosen, and comes back to the list."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rn50_advisor.advisor.commands.watch import screen_of
from rn50_advisor.advisor.model.errors import AdvisorError, UsageError
from rn50_advisor.advisor.model.wording import quantities as fmt

if TYPE_CHECKING:
    from rn50_advisor.advisor.model.report import Report
    from rn50_advisor.advisor.tui.runs.list_widgets import Removal
    from rn50_advisor.advisor.tui.runs.run_actions import RunActions

_NAMES_SHOWN = 5
_COMPARED_CHARS = 74  # in the frame of a page on a terminal of 80
_UNREADABLE = "{name} could not be opened: {why}"


def show_runs(run_dir: Path, *, config: Path | None = None, limit: int | None = None) -> None:
    """Shows the list until the user leaves it. Raises an AdvisorError for a bad configuration."""
    from rn50_advisor.advisor.tui.runs.listed_runs import ListState
    from rn50_advisor.advisor.tui.runs.opened_run import LEFT, OpenedRun
    from rn50_advisor.advisor.tui.runs.runs_app import RunsApp
    from rn50_advisor.advisor.tui.terminal_driver import HUNG_UP

    actions, state, trouble = actions_on(run_dir, config=config, limit=limit), ListState(), ""
    while True:
        chosen = RunsApp(actions, state, place=str(run_dir), notice=trouble).run()
        if not isinstance(chosen, Path):
            return
        trouble = ""
        try:
            answer = screen_of(chosen, OpenedRun).run()
        except (AdvisorError, OSError) as error:
            trouble = _UNREADABLE.format(name=chosen.name, why=error)
            continue
        if answer in (LEFT, HUNG_UP):
            return


def actions_on(run_dir: Path, *, config: Path | None = None, limit: int | None = None) -> RunActions:
    """What the list does with the runs of a folder. Raises an AdvisorError for a bad configuration."""
    from rn50_advisor.advisor.config_file import load_config
    from rn50_advisor.advisor.store.run_folders import list_runs
    from rn50_advisor.advisor.tui.runs.run_actions import RunActions

    settings = load_config(config)

    def report_of(folder: Path) -> Report:
        from rn50_advisor.advisor.merge.job_reading import read_job
        from rn50_advisor.advisor.verdict.diagnose import diagnose

        return diagnose(read_job(folder), settings)

    def judge(folder: Path) -> None:
        from rn50_advisor.advisor.commands.saved_reports import keep_verdict

        keep_verdict(folder, settings)

    def page(folder: Path) -> Path:
        from rn50_advisor.advisor.commands.saved_reports import page_for_browser

        return page_for_browser(report_of(folder), folder)

    def compare(folders: Sequence[Path]) -> str:
        from rn50_advisor.advisor.merge.job_reading import read_job
        from rn50_advisor.advisor.report import document_text, styled_lines
        from rn50_advisor.advisor.report.compared import document
        from rn50_advisor.advisor.run_comparison import compare as put_side_by_side
        from rn50_advisor.advisor.run_comparison import load

        loaded = [load(folder.name, read_job(folder), settings, place=place) for place, folder in enumerate(folders)]
        made = replace(document(put_side_by_side(loaded)), text_width=_COMPARED_CHARS)
        return styled_lines.plain(document_text.lines(made))

    return RunActions(lambda: list_runs(run_dir)[:limit], judge, compare, page, removal_of)


def removal_of(folders: Sequence[Path]) -> Removal:
    """Looks at the runs without changing them. Raises as `removable`: of several runs all go, or none."""
    if sys.platform != "linux":
        raise AdvisorError(f"removing a run needs Linux, this is {sys.platform}", "remove the folder by hand")
    if not folders:
        raise UsageError("no run is chosen")
    from rn50_advisor.advisor.store.run_removal import removable, remove_run
    from rn50_advisor.advisor.tui.runs.list_widgets import Removal

    found = [removable(folder) for folder in folders]
    size = fmt.bytes_(sum(run.size_bytes for run in found))
    names = [f"{run.folder.name}  {fmt.bytes_(run.size_bytes)}" for run in found[:_NAMES_SHOWN]]
    if len(found) > _NAMES_SHOWN:
        names.append(f"and {len(found) - _NAMES_SHOWN} more")
    kept = [name for run in found for name in run.kept]
    stays = f" These files in them stay: {_some(kept)}." if kept else ""
    note = f"{'; '.join(names)}. What the recording made is deleted and cannot be restored.{stays}"

    def remove() -> str:
        left = [name for run in found for name in remove_run(run)]
        said = f"Removed {fmt.counted(len(found), 'run')} ({size})."
        return f"{said} Kept, as the recording did not make it: {_some(left)}." if left else said

    return Removal(f"Remove {fmt.counted(len(found), 'run')} ({size})?", note, remove)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMES_SHOWN]) + (" …" if len(names) > _NAMES_SHOWN else "")
