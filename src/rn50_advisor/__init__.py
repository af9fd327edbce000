"""rn50-advisor: runs jobs, keeps runs, explains runs, shows runs.

The one name in site-packages: users have packages called `advisor`, `probes` or `rules`, too. The sources stay in the top-level folders
of the repository; here are relative links to them. Links, because every tool follows them without configuration: wheels get the files, an
editable install is one path in a .pth file, and mypy and import-linter see ordinary packages.

What scripts and notebooks use of it is here; importing it costs nothing, and a call loads what it needs.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing `typing` costs more than all of this
if TYPE_CHECKING:
    import os
    from typing import Any

    from rn50_advisor.advisor.commands.notebooks.watching import WatchedRun, Watching


def watch(*, name: str = "", run_dir: str | os.PathLike[str] | None = None) -> Watching:
    """Records the training inside `with rn50_advisor.watch() as watched:`, or in a function that it decorates.

    Afterwards `print(watched)` shows the report, a notebook shows its page, `watched.report` is the report as an object, and
    `watched.save("report.html")` writes it. The run is kept in `run_dir` ("runs") for the command line, too.
    """
    from rn50_advisor.advisor.commands.notebooks.watching import Watching

    return Watching(name=name, run_dir=run_dir)


def open_run(run: str = "latest", *, run_dir: str | os.PathLike[str] | None = None) -> WatchedRun:
    """A recorded run, to print or to show in a notebook: a folder, a bundle, a name, or the latest. Raises NotARun."""
    from rn50_advisor.advisor.commands.notebooks.watching import watched_run
    from rn50_advisor.advisor.merge.job_reading import resolve_job

    return watched_run(run, run_dir, resolve_job)


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext rn50_advisor`: makes the cell magic `%%rn50_advisor` known."""
    from rn50_advisor.advisor.commands.notebooks.cell_magic import register

    register(shell)
