"""What does not change from step to step: versions, environment, who called from where. One small JSON file per process."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from .. import rank_ring_folder
from ..layout import COMPILATIONS_MAX

if TYPE_CHECKING:
    from types import FrameType


MADE_MAX = 32  # wrappers of models that are told of: a job may make ever new ones
_MISSES_MAX = 32
_REASON_CHARS_MAX = 300
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # the whole recorder
# Who this process is in its job, and which job that is: by it the runs of several nodes find each other.
_LAUNCHER_TELLS = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT",
    "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_NODEID",
)  # fmt: skip


class Facts:
    """A JSON object that is written whole, atomically, whenever it changed; called at set-up moments, never every step."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.values: dict[str, Any] = {}
        self.active = False  # nothing is written before the process has shown what it is

    def set(self, key: str, value: Any) -> None:
        if self.values.get(key) != value:
            self.values[key] = value
            self.write()

    def miss(self, what: str) -> None:
        """Something of the recorder's does not work here."""
        known = self.values.get("unpatched", [])
        if what not in known and len(known) < _MISSES_MAX:
            self.values["unpatched"] = [*known, what]

    def write(self) -> None:
        if not self.active:
            return
        self.values.update(changing_facts())
        text = json.dumps(dict(self.values), default=str)  # other threads may add to them meanwhile
        with contextlib.suppress(OSError):  # they stay as they were told last
            rank_ring_folder.put(self._folder, "facts-%d.json" % os.getpid(), text)


def call_site() -> tuple[str, int]:
    """(file, line) of the user's code that called, as `call_frames` finds it."""
    frame, _ = call_frames(2)
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)


def calling_function() -> tuple[str, str]:
    """(file, function) that called into the recorder, be it the user's, torch's or a library's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_code.co_name) if frame is not None else ("", "")


def call_frames(depth: int) -> tuple[FrameType | None, FrameType | None]:
    """The innermost frame outside torch, this recorder and installed packages, and of a package the innermost inside of that.

    The package's frame is taken for the user's when there is no better one.
    """
    frame: FrameType | None = sys._getframe(depth)
    package: FrameType | None = None
    passed_over = (_OWN, "<", torchs_folder())
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(passed_over):
            if "site-packages" not in name and "dist-packages" not in name and not _standard(name):
                return frame, package
            if package is None:
                package = frame
        frame = frame.f_back
    return package, None


def torchs_folder() -> str:
    """Where torch lies, also where it is no installed package; a folder of the job's may be called `torch` as well."""
    file = getattr(sys.modules.get("torch"), "__file__", None)
    return os.path.dirname(file) + os.sep if file else os.sep + os.sep


def _standard(name: str) -> bool:
    return name.startswith(os.path.dirname(os.__file__))


def process_facts(torch: Any) -> dict[str, Any]:
    """Who this process is: versions, rank as the launcher said, threads."""
    facts: dict[str, Any] = {
        "pid": os.getpid(),
        "python": "%d.%d.%d" % sys.version_info[:3],
        "torch": getattr(torch, "__version__", None),
        "argv": list(sys.argv[:64]),
        "cwd": _working_directory(),  # file names of code may be relative to it
        "written_unix_s": time.time(),  # a file of code that is younger may not be what runs
        "environment_rank": {name: os.environ.get(name) for name in _LAUNCHER_TELLS},
        "cpus_allowed": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cuda": None,
    }
    return facts


def cuda_facts(torch: Any, device: int) -> dict[str, Any]:
    """The GPU that this process trains on."""
    properties = torch.cuda.get_device_properties(device)
    return {
        "device": device,
        "name": properties.name,
        "capability": [properties.major, properties.minor],
        "memory_bytes": properties.total_memory,
        "uuid": str(getattr(properties, "uuid", "")) or None,
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "order": os.environ.get("CUDA_DEVICE_ORDER"),
    }


def cuda_index(tensors: Any) -> int | None:
    """Number of the GPU that holds a tensor, or the first of several; None where none does, or where asking would take it from the job."""
    first = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
    device: Any = getattr(first, "device", None)
    return device.index if getattr(device, "type", None) == "cuda" else None


def changing_facts() -> dict[str, Any]:
    """What a script may set after its first backward pass, or what grows: looked up whenever the facts are written."""
    facts: dict[str, Any] = {
        # not how many objects are frozen: the interpreter counts them one by one
        "gc": {
            "enabled": gc.isenabled(),
            "collections": [generation["collections"] for generation in gc.get_stats()],
        }
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        facts["threads"] = torch.get_num_threads()
        joined = joined_ranks(torch)
        if joined:
            facts["group_size"] = joined  # it stays known when the group has been left
    return facts


def joined_ranks(torch: Any) -> int:
    """How many processes this one trains with, by torch.distributed or Horovod; 0 where it has joined none, whatever its launcher said."""
    try:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return int(torch.distributed.get_world_size())
        horovod: Any = sys.modules.get("horovod.torch")
        return int(horovod.size()) if horovod is not None and horovod.is_initialized() else 0
    except (AttributeError, RuntimeError, ValueError):
        return 0  # a group that is being torn down, or another version


def distributed_identity(torch: Any) -> tuple[int, int, int]:
    """(rank, local rank, world size), -1 where unknown: the process group knows best, then the launcher's variables."""
    rank, world = _number("RANK"), _number("WORLD_SIZE")
    try:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    except (RuntimeError, ValueError):
        pass  # a group that is being torn down: the variables stand
    return rank, _number("LOCAL_RANK"), world


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None  # it was deleted


def _number(name: str) -> int:
    try:
        return int(os.environ.get(name, ""))
    except ValueError:
        return -1


def _guard(reason: str) -> str:
    """`0/0: n == 1` of a text that goes on with the source and its stack."""
    return reason.partition("#")[0].partition("\n")[0].strip()[:_REASON_CHARS_MAX]


def note_compilations(values: dict[str, Any], *, now_ns: int, wall_us: float) -> None:
    """Add what dynamo has compiled since the last call, under `compilations`: when (monotonic), how long, which function, and why again.

    Dynamo itself keeps its last 64, and so do we: more of them between two calls are not seen.
    """
    ask = getattr(sys.modules.get("torch._dynamo.utils"), "get_compilation_metrics", None)
    if ask is None:
        return
    told = values.setdefault("compilations", [])
    since_us = told[-1]["began_us"] if told else 0
    for made in ask():
        began_us = getattr(made, "start_time_us", None) or 1e6 * (getattr(made, "start_time", None) or 0.0)
        if not made.co_name or made.entire_frame_compile_time_s is None or began_us <= since_us:
            continue
        told.append(
            {
                "began_us": began_us,
                "began_ns": now_ns - int(1e3 * (wall_us - began_us)),
                "took_ns": int(1e9 * made.entire_frame_compile_time_s),
                "function": made.co_name,
                "file": made.co_filename,
                "line": made.co_firstlineno,
                "reason": _guard(str(getattr(made, "recompile_reason", None) or "")),
            }
        )
    del told[:-COMPILATIONS_MAX]


AIDS_FROM_STEP = 25  # before, a profiler may have been asked for the first steps alone
# Variables of the environment that slow every step, and with what value; None: with any.
_AID_VARIABLES = {
    "CUDA_LAUNCH_BLOCKING": ("1",),
    "HIP_LAUNCH_BLOCKING": ("1",),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": None,
    "TORCH_DISTRIBUTED_DEBUG": ("DETAIL",),
    "NCCL_DEBUG": ("TRACE",),
}
_TOOLS = (0, 1, 2)  # of sys.monitoring (Python 3.12): a debugger, coverage, a profiler


# Debugging aids that are switched on while a job trains: seen as they stand when a handful of backward passes begin.
#
# Between steps is no place to ask: `with torch.autograd.detect_anomaly():` stands around the step, within the loop.
def look_for_aids(torch: Any, values: dict[str, Any], *, profiled_by_us: bool) -> None:
    """Count what is on in the training thread, under `debugging` of these facts."""
    told = values.setdefault("debugging", {"looks": 0, "on": {}})
    told["looks"] += 1
    for name in _aids(torch, profiled_by_us=profiled_by_us):
        told["on"][name] = told["on"].get(name, 0) + 1


def _aids(torch: Any, *, profiled_by_us: bool) -> list[str]:
    found = []
    if torch.is_anomaly_enabled():
        found.append("anomaly detection")
    if torch.autograd._profiler_enabled():
        found += [] if profiled_by_us else ["profiler"]
    elif sys.gettrace() is not None or sys.getprofile() is not None or _monitored():
        found.append("tracer")  # torch's profiler brings one of its own
    for name, values in _AID_VARIABLES.items():
        value = os.environ.get(name)
        if value and (values is None or value.upper() in values):
            found.append(name)
    return found


def _monitored() -> bool:
    monitoring = getattr(sys, "monitoring", None)
    return monitoring is not None and any(
        monitoring.get_tool(tool) is not None and monitoring.get_events(tool) for tool in _TOOLS
    )
