"""The caller of a collective: the job's line, and the library in between."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..facts import process_facts
from ..layout import COLLECTIVE_KINDS

if TYPE_CHECKING:
    from types import FrameType

    from ...documents.collective_documents import CollectiveSite

NORM = "SyncBatchNorm"
BUFFERS = "DistributedDataParallel"  # broadcasts its buffers
# Packages through which jobs exchange metrics, some of them while a model is called. Each has one place for the calls of many lines.
METRIC_LIBRARIES = frozenset(
    {"accelerate", "ignite", "lightning", "lightning_fabric", "pytorch_lightning", "torchmetrics", "transformers"}
)
PLACES = 5  # of a step, at which calls block a rank: forward, backward, optimizer with clipping, gap, elsewhere
# Libraries that call for the job, by part of the file name; the first match wins. Other packages have their own name,
# the job's own code has none.
_LIBRARIES = (
    (os.sep + "torch" + os.sep + "nn" + os.sep + "modules" + os.sep, NORM),
    (os.sep + "apex" + os.sep + "parallel" + os.sep, NORM),
    (os.sep + "fsdp" + os.sep, "FSDP"),
    ("zero_redundancy_optimizer", "ZeRO"),
    (os.sep + "deepspeed" + os.sep, "DeepSpeed"),
    (os.sep + "ddp_comm_hooks" + os.sep, "communication hook"),
)
_PACKAGE = re.compile(r"^.*[/\\](?:site|dist)-packages[/\\](\w+)")
_NORM_NAMES = re.compile(r"sync\w*_?(?:batch_?norm|bn)", re.IGNORECASE)


def described(frame: FrameType, kind: int, group: Any) -> CollectiveSite:
    """The caller: the job's line, and the library that it calls through, if any."""
    library = _library(frame)
    user, _ = process_facts.call_frames(2)
    own = frame if user is None else user
    return {
        "file": own.f_code.co_filename,
        "line": own.f_lineno,
        "function": own.f_code.co_name,
        "library": library,
        "for_metrics": library in METRIC_LIBRARIES,
        "kind": COLLECTIVE_KINDS[kind],
        "backend": "" if group is None else group.backend,
        "group_size": 0 if group is None else group.size,
        "calls": 0,
        "bytes": 0,
        "ns": 0,
        "held_ns": [0] * PLACES,
        "in_module": any(each.f_code.co_name == "_call_impl" for each in process_facts.frames_from(frame)),
    }


def callers_line(frame: FrameType) -> tuple[Any, int]:
    """(code, instruction) of the innermost frame of the job's own code."""
    own = next((each for each in process_facts.frames_from(frame) if _is_users(each.f_code.co_filename)), frame)
    return own.f_code, own.f_lasti


_is_users = lru_cache(maxsize=1024)(process_facts.is_users)


def _library(frame: FrameType) -> str:
    code = frame.f_code
    # Before Python 3.13 reading a frame's locals keeps them alive while the frame runs: for a training loop perhaps days.
    brief = code.co_name in ("forward", "backward") and code.co_varnames
    first = frame.f_locals.get(code.co_varnames[0]) if brief else None
    # matched on the function's class, since a script may be called train_syncbn.py
    owners = getattr(code, "co_qualname", "").rpartition("<locals>.")[2].split(".")[:-1]
    if any(_NORM_NAMES.search(name) for name in (*owners, type(first).__name__)):
        return NORM
    package = _PACKAGE.search(code.co_filename)
    if package is None and not code.co_filename.startswith(process_facts.torchs_folder()):
        return ""  # the job's own folders may have any name
    known = next((library for part, library in _LIBRARIES if part in code.co_filename), "")
    return known or (package[1] if package else "torch")
