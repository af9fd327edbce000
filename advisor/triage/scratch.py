"""The one folder that a triage writes to; it goes away however the triage ends, and what a killed one left goes with the next."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import psutil

from advisor.triage.deadline import within
from probes.host.procfs import read_text

PREFIX = "rn50-advisor-triage-"
_NAME = re.compile(rf"({PREFIX}[0-9a-f]{{8}}-)(\d+)-")
_OLD_S = 86_400.0  # no triage takes a day
GOES_S = 5.0  # some hundred files take milliseconds, and as long on a throttled volume


@contextlib.contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Below `parent`, or where temporary files go. Raises OSError where nothing can be written."""
    where = parent or Path(tempfile.gettempdir())
    _sweep(where)
    with _ending_by_exception():
        # absolute: children live in it, to whom the same name would mean another folder
        folder = Path(tempfile.mkdtemp(prefix=f"{own_prefix()}{os.getpid()}-", dir=where)).absolute()
        try:
            yield folder
        finally:
            # a disk that hangs keeps its files; the next triage sweeps what is left
            within(GOES_S, functools.partial(shutil.rmtree, folder, ignore_errors=True))


def own_prefix() -> str:
    """Names the boot and the PID namespace: on a shared volume a process is somebody else's where its number means nothing here."""
    boot = read_text(Path("/proc/sys/kernel/random/boot_id")) or os.uname().nodename
    with contextlib.suppress(OSError):
        boot += os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - a name that leads nowhere
    return f"{PREFIX}{zlib.crc32(boot.encode()):08x}-"


def _sweep(where: Path) -> None:
    """Only what is ours by name and owner, and of a process that is gone; of other machines and containers what is a day old."""
    own = own_prefix()
    for left in where.glob(f"{PREFIX}*"):
        maker = _NAME.match(left.name)
        with contextlib.suppress(OSError):
            told = left.lstat()
            if maker is None or told.st_uid != os.geteuid():
                continue
            gone = not psutil.pid_exists(int(maker[2])) if maker[1] == own else time.time() - told.st_mtime > _OLD_S
            if gone:
                shutil.rmtree(left, ignore_errors=True)


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
