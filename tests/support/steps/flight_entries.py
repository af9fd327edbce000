"""Entries and dumps of torch's flight recorder. Not a test."""

from __future__ import annotations

from typing import Any


def entry(number: int, op: str = "nccl:all_reduce", size: int = 1024, **more: Any) -> dict[str, Any]:
    """An entry of `_dump_nccl_trace_json`, shortened as the recorder does."""
    return {
        "process_group": ["0", "default_pg"],
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "is_p2p": False,
        "op_id": number,
        "profiling_name": op,
        "input_sizes": [[size]],
        "output_sizes": [[size]],
        "state": "scheduled",
        "time_created_ns": 1_700_000_000_000_000_000 + number,
        "timeout_ms": 600000,
        **more,
    }


def dump(*found: dict[str, Any]) -> list[dict[str, Any]]:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    return [{"version": "2.10", "pg_config": config, "pg_status": {}, "entries": list(found)}]


def upto(last: int, **more: Any) -> list[dict[str, Any]]:
    return dump(*(entry(n, **more) for n in range(last - 3, last + 1)))
