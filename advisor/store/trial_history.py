"""Keeps what was predicted and measured of each trial, in a file of the user's own: how well rules foretell on this machine.

A line holds a rule, a change, numbers and versions. It never holds a command, a path, a host's name or a setting's text: values that are
neither numbers nor names of torch are left out.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from rn50_advisor import advisor
from rn50_advisor.advisor.model.trials import PastTrial, Trial, Tried
from rn50_advisor.advisor.model.visible_text import on_one_line

FOLDER = "rn50-advisor"
FILE_NAME = "trials.jsonl"
_READ_BYTES = 4 << 20  # the newest ten thousand trials
_WRITE = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_WORDS_MAX = 120
_RULE = re.compile(r"[A-Za-z]\w{0,30}")
_VERSION = re.compile(r"\d[\w.+-]{0,40}")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_NAME = r"(?:--?)?[A-Za-z_][\w.-]*"
_VALUE = r"(?:-?\d+(?:\.\d+)?(?:e-?\d+)?|True|False|None|torch\.[\w.]+|…)"
_PLAIN = re.compile(rf"=|(?:{_NAME}\()?(?:{_NAME}=)?{_VALUE}[,;)]*|{_NAME}\(\)?|--[a-z][\w-]*")
_FIRST = re.compile(rf"{_NAME}\(?")


def history_file(environment: Mapping[str, str]) -> Path | None:
    """`$XDG_STATE_HOME/rn50-advisor/trials.jsonl`; None for a user without a home."""
    named = environment.get("XDG_STATE_HOME", "")
    with contextlib.suppress(RuntimeError):
        base = Path(named) if named.startswith("/") else Path.home() / ".local" / "state"
        return base / FOLDER / FILE_NAME
    return None


def past_trials(tried: Tried, *, day: str, torch: str, device: str) -> list[PastTrial]:
    """What is kept of these trials. `device`: the kind of device that trains, such as `CPU` or `NVIDIA H200`."""
    return [
        PastTrial(
            trial.rule if _RULE.fullmatch(trial.rule) else "",
            _public(trial.knob),
            trial.outcome,
            trial.predicted,
            trial.measured,
            day,
            advisor.__version__,
            torch if _VERSION.fullmatch(torch) else "",
            _words(device),
        )
        for trial in tried.trials
        if _is_kept(trial)
    ]


def keep(trials: Iterable[PastTrial], file: Path) -> bool:
    """Appends a line a trial, all in one write. Returns False where that could not be done: no trial fails of it."""
    text = b"".join(msgspec.json.encode(trial) + b"\n" for trial in trials)
    if not text:
        return True
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, _WRITE, 0o600)
    except OSError:
        return False
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
            return False
        if about.st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
        cut = about.st_size > 0 and os.pread(descriptor, 1, about.st_size - 1) != b"\n"  # the disk was full once
        data = (b"\n" if cut else b"") + text
        return os.write(descriptor, data) == len(data)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def read(file: Path) -> list[PastTrial]:
    """The trials in the file, oldest first, without lines that no advisor wrote. Empty if there is no file."""
    try:
        descriptor = os.open(file, _READ)
    except OSError:
        return []
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            return []
        lines = os.pread(descriptor, _READ_BYTES, max(0, about.st_size - _READ_BYTES)).split(b"\n")
    except OSError:
        return []
    finally:
        os.close(descriptor)
    return list(_trials(lines))


def _is_kept(trial: Trial) -> bool:
    return trial.outcome != "refused" and (trial.measured is None or math.isfinite(trial.measured.speedup))


def _trials(lines: Iterable[bytes]) -> Iterator[PastTrial]:
    for line in lines:
        with contextlib.suppress(msgspec.MsgspecError, RecursionError):
            found = msgspec.json.decode(line, type=PastTrial)
            if _RULE.fullmatch(found.rule) and _DAY.fullmatch(found.day):
                yield replace(
                    found,
                    knob=_words(found.knob),
                    advisor=_words(found.advisor),
                    torch=_words(found.torch),
                    device=_words(found.device),
                )


def _words(text: str) -> str:
    return on_one_line(text[:_WORDS_MAX]).strip()


def _public(knob: str) -> str:
    """The change without texts: paths, hosts and secrets stand in quotes, or as values of variables and options."""
    words = _QUOTED.sub("…", knob).split()
    if words[:1] == ["unset"]:
        return _words(knob)
    return _words(" ".join(_public_word(word, first=place == 0) for place, word in enumerate(words)))


def _public_word(word: str, *, first: bool) -> str:
    if _PLAIN.fullmatch(word) or (first and _FIRST.fullmatch(word)):
        return word
    name, given, _ = word.partition("=")
    return f"{name}=…" if given and re.fullmatch(_NAME, name) else "…"
