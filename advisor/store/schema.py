"""The tables of a run file. Times are monotonic nanoseconds; `meta` holds the wall-clock anchor."""

from __future__ import annotations

from rn50_advisor.probes.rank.layout import (
    FIELDS,
    FLAG_BITS,
    KIND_BATCH,
    KIND_COLLECTIVES,
    KIND_COMM,
    KIND_GPU_STEP,
    KIND_PART,
    KIND_PROFILED,
    KIND_SPAN,
    KIND_STEP,
)

APPLICATION_ID = 0x52353041  # "R50A"
USER_VERSION = 1
FILE_NAME = "run.sqlite"
NODES_NAME = (
    "nodes.sqlite"  # data from other nodes, in the run of the merging node; see rn50_advisor.advisor.merge.inbox
)
OUTPUT_NAME = "output.log"  # the job's output, kept only if the job ran behind the screen


RING_TABLES = {
    KIND_STEP: "steps",
    KIND_GPU_STEP: "gpu_steps",
    KIND_COMM: "comm",
    KIND_COLLECTIVES: "collectives",
    KIND_SPAN: "spans",
    KIND_BATCH: "batches",
    KIND_PROFILED: "looks",
    KIND_PART: "parts",
}
# Columns of a table in addition to the rank and the record's own fields.
_BESIDE = {"steps": ("flags", "count"), "batches": ("pid", "flags")}
BESIDE = {table: _BESIDE.get(table, ("flags",)) for table in RING_TABLES.values()}
# In a run file the added columns come first; rows that are sent or read begin with the record's fields.
RECORD_COLUMNS = {table: ("rank", *BESIDE[table], *FIELDS[kind]) for kind, table in RING_TABLES.items()}


def cells_beside(table: str, flags: int, pid: int | None) -> tuple[int | None, ...]:
    """Values of `BESIDE` for a record of a ring. `pid`: the worker that made a batch."""
    if table == "steps":
        return flags & (1 << FLAG_BITS) - 1, 1 + (flags >> FLAG_BITS)
    return (pid, flags) if table == "batches" else (flags,)


# Ring records stay in order of arrival, with an index by rank: WITHOUT ROWID would sort every insert.
TABLES = {
    "meta": "key TEXT PRIMARY KEY, value TEXT NOT NULL",  # JSON values
    "processes": (
        "pid INTEGER NOT NULL, first_seen_ns INTEGER NOT NULL, role TEXT NOT NULL, "
        "rank INTEGER, local_rank INTEGER, worker INTEGER, "
        "parent_pid INTEGER NOT NULL, command TEXT NOT NULL, ended_ns INTEGER, exit_code INTEGER, exit_signal INTEGER, "
        "clean_exit INTEGER, oom_killed INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (pid, first_seen_ns)"
    ),
    "facts": "pid INTEGER PRIMARY KEY, value TEXT NOT NULL",  # one JSON object per process
    **{table: ", ".join(f"{name} INTEGER NOT NULL" for name in columns) for table, columns in RECORD_COLUMNS.items()},
    "part_names": "part INTEGER PRIMARY KEY, value TEXT NOT NULL",  # JSON object: kind, name, file, line
    "samples": "t_ns INTEGER NOT NULL, metric INTEGER NOT NULL, value REAL NOT NULL",  # metric: id in `series`
    "series": "id INTEGER PRIMARY KEY, metric TEXT NOT NULL, scope TEXT NOT NULL, UNIQUE (metric, scope)",
    "positions": "rank INTEGER PRIMARY KEY, phase TEXT NOT NULL, step INTEGER NOT NULL, since_ns INTEGER NOT NULL",
    "events": "t_ns INTEGER NOT NULL, kind TEXT NOT NULL, pid INTEGER, rank INTEGER, data TEXT NOT NULL",
    "gaps": (
        "metric TEXT NOT NULL, scope TEXT NOT NULL, reason TEXT NOT NULL, hint TEXT NOT NULL, PRIMARY KEY (metric, scope)"
    ),
    "sources": "path TEXT PRIMARY KEY, sha256 TEXT NOT NULL, text TEXT NOT NULL, edited INTEGER NOT NULL",
}
# Tables added later: an older run is complete without them.
LATER_TABLES = frozenset({"sources", "looks", "parts", "part_names", "collectives"})
# Columns added later: in an older run they read as -1, unknown.
LATER_COLUMNS = {
    "batches": ("sending_ns", "gc_ns"),
    "gpu_steps": ("meetings", "forward_met_ns", "backward_met_ns", "optimizer_met_ns", "least_met_ns"),
}
# Retention uses them to walk a rank's (or a kind's) rows in order of arrival, the live screen to find the latest.
INDEXES = {**dict.fromkeys(RING_TABLES.values(), "rank"), "events": "kind"}
