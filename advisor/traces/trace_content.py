"""The bytes of a trace: whether a file is one, and its content, decompressed."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable
from pathlib import Path

from rn50_advisor.advisor.model.errors import NotARun

# Called with the share of one file's work that is done.
Progress = Callable[[float], None]
_READ, DECODED = 0.2, 0.5  # shares of that work, as measured with a trace of 500 MB
_CHUNK = 4 << 20
_SNIFFED = 1 << 16
_GZIP = b"\x1f\x8b"
# The decompressed size that is read at most. A trace of this size needs some 16 GB of memory.
BYTES_MAX = 4 << 30
_LOOKS_LIKE_A_TRACE = re.compile(
    rb'"(?:traceEvents|deviceProperties|distributedInfo|displayTimeUnit|baseTimeNanoseconds|traceName)"|"ph"\s*:'
)
_FEWER = "profile fewer steps, without stacks: schedule(wait=5, warmup=2, active=5)"
CUT_OFF = "the profiler may still be writing it, or the disk was full"


def looks_like_a_trace(path: Path) -> bool:
    """True if the file, decompressed, begins like JSON with events of a profiler. A damaged one counts, so that its error is told."""
    try:
        with path.open("rb") as file:
            begin = file.read(_SNIFFED)
    except OSError:
        return False
    if begin.startswith(_GZIP):
        try:
            begin = zlib.decompressobj(wbits=31).decompress(begin, _SNIFFED)
        except zlib.error:
            return False
    begin = begin.removeprefix(b"\xef\xbb\xbf").lstrip()
    return begin[:1] in (b"{", b"[") and bool(_LOOKS_LIKE_A_TRACE.search(begin))


def trace_content(path: Path, progress: Progress, shown: str) -> bytes:
    """The file's bytes, decompressed. Raises NotARun if it is truncated or too large."""
    found = io.BytesIO()
    with path.open("rb") as file:
        size = max(1, file.seek(0, 2))
        file.seek(0)
        begin = file.read(2)
        file.seek(0)
        unpacker = zlib.decompressobj(wbits=31) if begin == _GZIP else None
        read = 0
        while chunk := file.read(_CHUNK):
            read += len(chunk)
            progress(_READ * min(1.0, read / size))
            try:
                found.write(unpacker.decompress(chunk, BYTES_MAX - found.tell() + 1) if unpacker else chunk)
            except zlib.error as error:
                raise NotARun(f"{shown} is damaged: {error}") from error
            if found.tell() > BYTES_MAX:
                raise NotARun(f"{shown} is too large: a trace of more than {BYTES_MAX >> 30} GB is not read", _FEWER)
        if unpacker is not None and not unpacker.eof:
            raise NotARun(f"{shown} is cut off: its compressed data ends early", CUT_OFF)
    return found.getvalue().removeprefix(b"\xef\xbb\xbf")
