"""Finds the flight recorder dumps that NCCL's watchdog writes when it ends a job, and reads them as untrusted data.

Their usual place is /tmp, where any user may create a file of that name. They are pickles: only numbers, strings, lists and dicts are
read; anything else aborts the reading.
"""

from __future__ import annotations

import contextlib
import glob
import io
import pickle
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.run.sidefiles.own_evidence import read_own
from rn50_advisor.probes.documents.collective_documents import FlightDump

_PREFIXES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_DEFAULTS = ("/tmp/nccl_trace_rank_", "{home}/.cache/torch/comm_lib_trace_rank_")
_BYTES_MAX = 64 << 20
_FILES_MAX = 64
ENTRIES_MAX = 24
_KEPT_FIELDS = (
    "process_group", "collective_seq_id", "is_p2p", "profiling_name", "input_sizes", "state", "time_created_ns", "retired",
)  # fmt: skip
_LISTS = frozenset(("build_intlist", "build_boollist", "build_doublelist", "build_tensorlist"))


def found_dumps(environment: Mapping[str, str], since_unix_s: float) -> dict[int, FlightDump]:
    """Dumps by rank, written by this user's processes since then. None is removed: they are the user's."""
    dumps: dict[int, FlightDump] = {}
    for path in _files(environment):
        number = re.search(r"(\d+)$", path.name)
        with contextlib.suppress(OSError):
            data = read_own(path, since_unix_s=since_unix_s, bytes_max=_BYTES_MAX + 1) if number else b""
            read = read_dump(data) if len(data) <= _BYTES_MAX else None
            if number is not None and read is not None:
                dumps[int(number[1])] = read
    return dumps


def _files(environment: Mapping[str, str]) -> Iterable[Path]:
    named = [environment[name] for name in _PREFIXES if environment.get(name)]
    home = environment.get("HOME", "")
    for prefix in named or [default.format(home=home) for default in _DEFAULTS]:
        yield from map(Path, sorted(glob.glob(glob.escape(prefix) + "*"))[:_FILES_MAX])  # noqa: PTH207 - an absolute prefix


def read_dump(data: bytes) -> FlightDump | None:
    """Returns the latest entries of a dump; None if the data is no dump."""
    try:
        dump = _Plain(io.BytesIO(data)).load()
    except Exception:  # noqa: BLE001 - a damaged pickle can raise anything
        return None
    entries = dump.get("entries") if isinstance(dump, dict) else None
    if not isinstance(entries, list):
        return None
    latest = [entry for entry in entries[-ENTRIES_MAX:] if isinstance(entry, dict)]
    return {
        "version": dump.get("version"),
        "pg_status": dump.get("pg_status") or {},
        "entries": [{key: entry[key] for key in _KEPT_FIELDS if key in entry} for entry in latest],
    }


class _Plain(pickle.Unpickler):
    """An unpickler that creates only JSON-like values."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch.jit._pickle" and name in _LISTS:
            return list
        raise pickle.UnpicklingError(f"a dump holds no {module}.{name}")
