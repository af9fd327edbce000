"""The one folder that a triage writes to; it goes away however the triage ends, and what a killed one left goes with the next."""

from __future__ import annotations

import contextlib
import functools
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from rn50_advisor.advisor.run.rings.own_folder import OwnFolder, remove_tree, sweep
from rn50_advisor.advisor.triage.deadline import within

PREFIX = "rn50-triage-"
_OLD_S = 86_400.0  # no triage takes a day: what is older on a shared volume is no other machine's that still runs
GOES_S = 5.0  # some hundred files take milliseconds, and as long on a throttled volume


@contextlib.contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Below `parent`, or where temporary files go. Raises OSError where nothing can be written."""
    where = parent or Path(tempfile.gettempdir())
    sweep(where, PREFIX, remove_tree, other_boots_after_s=_OLD_S)
    with _ending_by_exception():
        own = OwnFolder(where, PREFIX)
        try:
            yield own.path
        finally:
            # a disk that hangs keeps its files; the next triage sweeps what is left
            within(GOES_S, functools.partial(own.close, remove_tree))


@contextlib.contextmanager
def _ending_by_exception() -> Iterator[None]:
    """SIGTERM and SIGHUP end us as Ctrl-C does: through every `finally`."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
