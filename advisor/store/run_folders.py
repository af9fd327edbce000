"""Creates the folders of runs and finds runs by name."""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.model.wording.near_names import did_you_mean
from rn50_advisor.advisor.model.wording.quantities import shorten_path
from rn50_advisor.advisor.store.recording_failure import RecordingStopped, failure_reason
from rn50_advisor.advisor.store.schema import FILE_NAME

LATEST = "latest"
_NAME_CHARACTERS_MAX = 60
_SHOWN_MAX = 5
_STAMP = re.compile(r"(?P<stamp>\d{8}-\d{6})(?:-(?P<name>.+))?$")


def new_run_folder(base: Path, name: str | None, now: datetime | float) -> Path:
    """Creates `base/<time>-<name>` (0700), numbered if two runs start in the same second. `now`: local time or Unix seconds.

    Raises RecordingStopped if no folder can be created.
    """
    moment = now if isinstance(now, datetime) else datetime.fromtimestamp(now)
    stem = f"{moment:%Y%m%d-%H%M%S}"
    if cleaned := _clean(name or ""):
        stem += f"-{cleaned}"
    try:
        base.mkdir(parents=True, exist_ok=True)
        number = 1
        while True:
            folder = base / (stem if number == 1 else f"{stem}-{number}")
            try:
                folder.mkdir(mode=0o700)
            except FileExistsError:
                number += 1
            else:
                return folder
    except OSError as error:
        raise RecordingStopped(failure_reason(error, base.parent)) from error


def resolve_run(argument: str, base: Path) -> Path:
    """Returns the run that a user means: a folder, a run file, a bundle, `latest`, or a name in `base` or its unique prefix.

    The time in front of a name may be omitted. Raises NotARun.
    """
    path = path_of(argument)
    try:
        if path.is_file() or (path / FILE_NAME).is_file():
            return path
    except OSError as error:
        raise not_read(argument, error) from error
    runs = list_runs(base)
    if not runs:
        why = f"no runs in {base}" if argument == LATEST else f"{argument} is not a run, and {base} holds no runs"
        raise NotARun(why, "record one: rn50-advisor run -- COMMAND, or name the folder of the runs with --run-dir")
    if argument == LATEST:
        return runs[0]
    for fits in (is_called, _starts_like):
        found = [run for run in runs if argument and fits(run.name, argument)]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(run.name for run in found[:_SHOWN_MAX]) + (" …" if len(found) > _SHOWN_MAX else "")
            raise NotARun(f"{argument} matches {len(found)} runs: {names}", "give a longer part of the name")
    hint = did_you_mean(path.name, _typed_names(runs)) or f"the newest is {runs[0].name}"
    raise NotARun(
        f"{argument} is not a run: no such path, and no run of that name in {base}",
        f"{hint}; rn50-advisor runs lists them",
    )


def not_read(argument: str, error: OSError) -> NotARun:
    return NotARun(f"{shorten_path(argument, 200)} cannot be read: {error.strerror or error}")


def path_of(argument: str) -> Path:
    try:
        return Path(argument).expanduser()
    except RuntimeError:  # `~somebody` who does not exist: treated as a plain name
        return Path(argument)


def list_runs(base: Path) -> list[Path]:
    """Returns the folders in `base` that hold a run, newest first."""
    found = []
    with contextlib.suppress(OSError):
        for folder in base.iterdir():
            with contextlib.suppress(OSError):  # other users' runs are closed to us
                if (folder / FILE_NAME).is_file():
                    found.append((_started(folder), folder))
    return [folder for _, folder in sorted(found, reverse=True)]


def _typed_names(runs: Sequence[Path]) -> list[str]:
    """Returns what may be typed for one of the runs: `latest`, names without their time, whole names."""
    matches = [match for run in runs if (match := _STAMP.match(run.name))]
    return [LATEST, *(match["name"] for match in matches if match["name"]), *(run.name for run in runs)]


def _clean(name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9._-]+", "-", plain)[:_NAME_CHARACTERS_MAX].strip("-._")


def is_called(folder: str, argument: str) -> bool:
    """True if the argument is the folder's name, or all of it but the time."""
    match = _STAMP.match(folder)
    return argument == folder or (match is not None and argument == match["name"])


def _starts_like(folder: str, argument: str) -> bool:
    match = _STAMP.match(folder)
    return folder.startswith(argument) or (match is not None and (match["name"] or "").startswith(argument))


def _started(folder: Path) -> tuple[float, float]:
    """Returns the start by the folder's name (a copied run keeps its age), else by the file; then the file's time, to break ties."""
    modified = (folder / FILE_NAME).stat().st_mtime
    if match := _STAMP.match(folder.name):
        try:
            return datetime.strptime(match["stamp"], "%Y%m%d-%H%M%S").timestamp(), modified
        except ValueError:
            pass
    return modified, modified
