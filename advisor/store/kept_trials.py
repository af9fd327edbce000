"""The result of `try` beside the run whose advice was tried, in a file of a fixed name: reports and the screen show it with the run.

The file names its run by the run's start. In a stranger's folder it may hold anything: it is read up to a size, checked, and cut.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec

from rn50_advisor.advisor.model.errors import AdvisorError, NotARun
from rn50_advisor.advisor.model.report import plain_values
from rn50_advisor.advisor.model.trials import SCHEMA, Applied, Numbers, Outcome, Trial, Tried, from_json
from rn50_advisor.advisor.store.document_checks import misfit
from rn50_advisor.advisor.store.run_summary import READ_FLAGS, UNIX_S_MAX, read_times, replace_file
from rn50_advisor.advisor.store.secrets.masking import as_json

TRIED_NAME = "tried.json"
_BYTES_MAX = 1 << 20
_TRIALS_MAX, _NOTES_MAX, _ARGUMENTS_MAX = 100, 20, 1000
_RULE_CHARACTERS, _LINE_CHARACTERS, _CHANGE_CHARACTERS, _DIFF_CHARACTERS = 40, 500, 4_000, 20_000
_SPEEDUP_MAX = 1e6
_Ratio = Annotated[float, msgspec.Meta(ge=0, le=_SPEEDUP_MAX)]
_Amount = Annotated[float, msgspec.Meta(ge=0, le=1e15)]


class _Job(TypedDict):
    argv: list[str]
    samples_per_s: _Amount | None


class _Predicted(TypedDict):
    likely: _Ratio | None
    lo: _Ratio
    hi: _Ratio


class _Measured(TypedDict):
    speedup: _Ratio
    lo: _Ratio
    hi: _Ratio
    pairs: Annotated[int, msgspec.Meta(ge=0, le=10**9)]


class _Trial(TypedDict):
    rule: str
    title: str
    knob: str
    predicted: _Predicted | None
    measured: _Measured | None
    outcome: Outcome
    reason: str
    applied: Applied | None
    numbers: Numbers
    change: str
    diff: str | None


class _Run(TypedDict):
    started_unix_s: Annotated[float, msgspec.Meta(ge=0, le=UNIX_S_MAX)]


class _Document(TypedDict):
    schema: Literal["rn50-advisor/try/1"]
    job: _Job
    trials: list[_Trial]
    together: _Measured | None
    took_s: _Amount
    notes: list[str]
    run: _Run | None


class TriedDocument(_Document):
    """All trials of one call, as `try` prints them. `best`: the rule of the fix with the largest gain."""

    best: str | None


class UnreadableTrials(Exception):
    """Says in words what is wrong with the file."""


def keep_tried(folder: Path, tried: Tried) -> None:
    """Writes the result into the run's folder, in place of an earlier one. Raises OSError or AdvisorError if it cannot be kept there."""
    started_unix_s = read_times(folder).started_unix_s
    file = folder / TRIED_NAME
    if (file.is_symlink() or file.exists()) and not holds_tried(folder):
        raise AdvisorError(f"{TRIED_NAME} in {folder} is no result of try for this run", "-o names another file")
    text = encoded(replace(tried, run_started_unix_s=started_unix_s))
    if len(text) > _BYTES_MAX:
        raise AdvisorError(f"the result has more than {_BYTES_MAX >> 20} MiB", "-o writes it to a file")
    replace_file(file, text)


def encoded(tried: Tried, *, with_diffs: bool = True) -> str:
    """The document as it is kept: without secrets, and without diffs that are too long or show code that stays where it is."""
    trials = (
        trial if with_diffs and len(trial.diff or "") <= _DIFF_CHARACTERS else replace(trial, diff=None)
        for trial in tried.trials
    )
    return as_json(plain_values(replace(tried, trials=tuple(trials)).as_json()))


def read_tried(folder: Path, started_unix_s: float) -> Tried | None:
    """The trials kept with the run that started then; None if there are none. Raises UnreadableTrials for any other file of that name."""
    try:
        document = _decoded(folder / TRIED_NAME)
    except FileNotFoundError:
        return None
    if wrong := misfit(document, _Document):
        raise UnreadableTrials(f"it is no result of try: {wrong}")
    tried = from_json(document)
    if tried.run_started_unix_s != started_unix_s:
        raise UnreadableTrials("it is not of this run")
    return _bounded(tried)


def holds_tried(folder: Path) -> bool:
    """True if the file is a result of `try` for the run in this folder."""
    try:
        return read_tried(folder, read_times(folder).started_unix_s) is not None
    except (UnreadableTrials, NotARun):
        return False


def _decoded(file: Path) -> Mapping[str, Any]:
    """Raises FileNotFoundError and UnreadableTrials."""
    try:
        descriptor = os.open(file, READ_FLAGS)
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UnreadableTrials("it is no file")
            data = opened.read(_BYTES_MAX + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnreadableTrials(f"it cannot be read: {error.strerror}") from error
    if len(data) > _BYTES_MAX:
        raise UnreadableTrials(f"it has more than {_BYTES_MAX >> 20} MiB")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UnreadableTrials("it is no JSON") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UnreadableTrials("it is no result of try")
    return document


def _bounded(tried: Tried) -> Tried:
    return replace(
        tried,
        trials=tuple(map(_cut, tried.trials[:_TRIALS_MAX])),
        argv=tuple(word[:_LINE_CHARACTERS] for word in tried.argv[:_ARGUMENTS_MAX]),
        notes=tuple(note[:_LINE_CHARACTERS] for note in tried.notes[:_NOTES_MAX]),
    )


def _cut(trial: Trial) -> Trial:
    """A diff is whole or left out: half of one applies to nothing."""
    return replace(
        trial,
        rule=trial.rule[:_RULE_CHARACTERS],
        title=trial.title[:_LINE_CHARACTERS],
        knob=trial.knob[:_LINE_CHARACTERS],
        reason=trial.reason[:_LINE_CHARACTERS],
        change=trial.change[:_CHANGE_CHARACTERS],
        diff=trial.diff if trial.diff and len(trial.diff) <= _DIFF_CHARACTERS else None,
    )
