"""Facts about a GPU, and about calls that wait for it or copy to it, as the recorder writes them. Not a test."""

from __future__ import annotations

from typing import Any

MS = 1_000_000


CUDA = {
    "name": "NVIDIA A100-SXM4-40GB",
    "capability": [8, 0],
    "tf32_matmul": False,
    "tf32_cudnn": True,
    "cudnn_benchmark": True,
}


def site(**given: Any) -> dict[str, Any]:
    usual = {"call": "item", "file": "/job/train.py", "line": 88, "function": "train", "through": "", "phase": "gap"}
    return {**usual, "count": 10, "looks": 10, "blocked_ns": 50 * MS, "least_ns": MS, "bytes": 0, **given}


def copy(**given: Any) -> dict[str, Any]:
    usual = {"call": "to", "line": 61, "phase": "forward", "pinned": True, "non_blocking": True, "aside": False}
    return site(**{**usual, "bytes": 770_000_000, **given})
