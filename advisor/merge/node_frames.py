"""The frames that a node sends of its run every ten seconds: 2 kB of compressed JSON per rank, none of it trusted on arrival.

A rank's table is sent as columns: columns of zeros are left out, times are in microseconds, and growing values are sent as differences. Of
the steps in ten seconds a dozen consecutive ones are sent unfolded, the same ones from every rank, since blame compares ranks step by
step. The others are folded into windows, which keeps their sums.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.store.schema import BESIDE, RING_TABLES
from rn50_advisor.advisor.store.step_folding import COLUMNS, fold
from rn50_advisor.advisor.store.typed_rows import RANK_MAX, Corrupt, check_numbers
from rn50_advisor.probes.documents.bounded_numbers import Number, Whole
from rn50_advisor.probes.rank.layout import FIELDS, FLAG_TAIL

FRAME_BYTES_MAX = 1 << 20
UNPACKED_BYTES_MAX = 8 << 20  # a frame of 64 ranks takes a tenth of it; a larger one is an attempt to fill memory
SENT_TABLES: Mapping[str, tuple[str, ...]] = {
    table: (*FIELDS[kind], *BESIDE[table])
    for kind, table in RING_TABLES.items()
    if table in ("steps", "comm", "gpu_steps", "collectives", "batches")
}
_STEPS_UNFOLDED = 12  # in a row, from every rank
_BATCHES = 4
_ROWS_MAX = 4096  # of one table in one frame: a second of the fastest steps
_US = 1000
_ONE_WINDOW_NS = 1 << 62

Rows = NDArray[np.int64]
Rank = Annotated[int, msgspec.Meta(ge=0, le=RANK_MAX)]


class StepsFrame(msgspec.Struct):
    """What happened since the last frame. Samples: the latest by metric and scope; tables: columns by rank and table."""

    t: Whole
    positions: dict[Rank, tuple[str, Whole, Whole]]
    samples: dict[str, dict[str, Number]]
    ranks: dict[Rank, dict[str, dict[str, list[Whole]]]]
    v: Literal[1] = 1


class StateFrame(msgspec.Struct):
    """Everything else of the run. Processes and gaps have their fields in order; events: time, kind, pid, rank, data."""

    t: Whole
    meta: dict[str, Any]
    processes: list[tuple[Any, ...]]
    facts: dict[int, dict[str, Any]]
    events: list[tuple[Whole, str, Whole | None, Whole | None, dict[str, Any]]]
    gaps: list[tuple[str, str, str, str]]
    v: Literal[1] = 1


Frame = TypeVar("Frame", bound=StepsFrame | StateFrame)


class NotAFrame(ValueError):
    """The bytes are not a frame that this advisor reads."""


def packed(frame: StepsFrame | StateFrame) -> bytes:
    # json keeps names that are not text, which msgspec refuses
    return zlib.compress(json.dumps(msgspec.structs.asdict(frame), separators=(",", ":")).encode(), 9)


def unpacked(data: bytes, shape: type[Frame]) -> Frame:
    """Unpacks a frame at a bounded cost. Raises NotAFrame for anything else."""
    try:
        stream = zlib.decompressobj()
        text = stream.decompress(data, UNPACKED_BYTES_MAX)
        if not stream.eof:
            raise NotAFrame("it has the wrong length")
        return msgspec.convert(json.loads(text), shape, str_keys=True)
    except (zlib.error, ValueError, RecursionError) as error:
        raise NotAFrame(str(error)) from error


def thinned(rows: Rows) -> Rows:
    """Returns one rank's steps (COLUMNS) as they are sent: a few unfolded, chosen by step number, the others folded."""
    tail = rows[:, COLUMNS.index("flags")] & FLAG_TAIL != 0
    steps, last = rows[~tail], rows[tail]
    if len(steps) <= _STEPS_UNFOLDED:
        return rows
    # a power of two: if ranks differ by a step in ten seconds, the blocks of one are still among those of the other
    every = 1 << (len(steps) - 1).bit_length()
    whole = steps[:, COLUMNS.index("step")] % every < _STEPS_UNFOLDED
    parts = np.split(np.arange(len(steps)), np.flatnonzero(np.diff(whole)) + 1)
    kept = [steps[part] if whole[part[0]] else fold(steps[part], _ONE_WINDOW_NS, 0.0, bridge=True)[1] for part in parts]
    return np.concatenate([*kept, last])


def sent_tables(tables: Mapping[str, Rows]) -> dict[str, dict[str, list[int]]]:
    """Returns the tables of one rank as they are sent: steps thinned, the last batches, other rows only of unfolded steps."""
    found: dict[str, Rows] = {}
    steps = thinned(tables["steps"]) if len(tables.get("steps", ())) else None
    whole = steps[steps[:, COLUMNS.index("count")] == 1][:, COLUMNS.index("step")] if steps is not None else None
    for name, rows in tables.items():
        if name == "steps" and steps is not None:
            found[name] = steps
        elif name == "batches":
            found[name] = rows[-_BATCHES:]
        elif whole is not None and len(rows):
            found[name] = rows[np.isin(rows[:, 0], whole)]
    return {name: _columns(rows, SENT_TABLES[name]) for name, rows in found.items() if len(rows)}


def received_rows(name: str, rank: int, columns: Mapping[str, Sequence[int]]) -> Rows:
    """Returns the received columns as rows of SENT_TABLES. Raises NotAFrame if they cannot be rows of this table."""
    fields = SENT_TABLES[name]
    sizes = {len(values) for values in columns.values()}
    if len(sizes) != 1 or not 0 < (size := sizes.pop()) <= _ROWS_MAX:
        raise NotAFrame("columns of different lengths")
    rows = np.zeros((size, len(fields)), np.int64)
    for place, field in enumerate(fields):
        if field in columns:
            values = np.array(columns[field], np.int64)
            values = np.cumsum(values) if _grows(field) else values
            rows[:, place] = values * _US if field.endswith("_ns") else values
    try:
        check_numbers(name, rank, fields, rows)
    except Corrupt as error:
        raise NotAFrame(str(error)) from error
    return rows


def _columns(rows: Rows, fields: Sequence[str]) -> dict[str, list[int]]:
    found = {}
    for field, values in zip(fields, rows.T, strict=True):
        if field == "step" or values.any():
            whole = values // _US if field.endswith("_ns") else values
            found[field] = (np.diff(whole, prepend=0) if _grows(field) else whole).tolist()
    return found


@cache
def _grows(field: str) -> bool:
    return (
        field in ("step", "iteration", "number") or field.startswith("t_") or field.endswith(("_start_ns", "_end_ns"))
    )
