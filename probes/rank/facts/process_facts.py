"""Facts of a process that do not change from step to step: versions, environment, callers. One small JSON file per process."""

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
from ..side_files import FACTS

try:
    from _tracemalloc import is_tracing as is_tracing_memory  # the module without Python's part, which imports others
except ImportError:  # an interpreter that has none

    def is_tracing_memory() -> bool:
        return False


if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from ...documents.rank_documents import CudaFacts, RankFacts


MADE_MAX = 32  # described model wrappers: a job may keep creating new ones
_MISSES_MAX = 32
_REASON_CHARS_MAX = 300
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # the whole recorder
# Variables that identify the job and this process within it. They match the recordings of several nodes.
_LAUNCHER_VARIABLES = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT",
    "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_NODEID",
)  # fmt: skip
# Switches that take a path away from NCCL. A shell script or the job itself may set them, where the advisor's own environment has none.
_PATH_VARIABLES = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_IB_DISABLE", "NCCL_NET", "NCCL_NET_PLUGIN")


class Facts:
    """A JSON object that is written as a whole, atomically, after a change. Called during set-up and seldom later, not every step."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.values: RankFacts = {}
        self.active = False  # True once the role of the process is known: nothing is written before

    def update(self, values: RankFacts) -> None:
        if {**self.values, **values} != self.values:
            self.values.update(values)
            self.write()

    def miss(self, what: str) -> None:
        """Records that a part of the recorder does not work here."""
        known = self.values.get("unpatched", [])
        if what not in known and len(known) < _MISSES_MAX:
            self.values["unpatched"] = [*known, what]

    def write(self) -> None:
        if not self.active:
            return
        self.values.update(changing_facts())
        text = json.dumps(dict(self.values), default=str)  # other threads may add values meanwhile
        with contextlib.suppress(OSError):  # the previous file stays
            rank_ring_folder.put(self._folder, FACTS % os.getpid(), text)


def call_site() -> tuple[str, int]:
    """(file, line) of the calling user code, found by `call_frames`."""
    frame, _ = call_frames(2)
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)


def calling_function() -> tuple[str, str]:
    """(file, function) of the recorder's caller: the user's code, torch or a library."""
    frame = next(jobs_frames(2), None)
    return (frame.f_code.co_filename, frame.f_code.co_name) if frame is not None else ("", "")


def jobs_frames(depth: int) -> Iterator[FrameType]:
    """The frames outside this recorder, innermost first."""
    return (each for each in frames_from(sys._getframe(depth)) if not each.f_code.co_filename.startswith(_OWN))


def frames_from(frame: FrameType | None) -> Iterator[FrameType]:
    """This frame and those that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def call_frames(depth: int) -> tuple[FrameType | None, FrameType | None]:
    """(innermost frame of the user's code, innermost frame of an installed package inside it).

    The user's code is outside torch, this recorder and installed packages. Without such a frame, the package's frame takes its place.
    """
    package: FrameType | None = None
    for frame in jobs_frames(depth):
        name = frame.f_code.co_filename
        if is_users(name):
            return frame, package
        if package is None and not name.startswith(("<", torchs_folder())):
            package = frame
    return package, None


def is_users(name: str) -> bool:
    """True for a file of the job's own code: outside torch, the standard library and installed packages."""
    installed = "site-packages" in name or "dist-packages" in name
    return not name.startswith(("<", _OWN, torchs_folder())) and not installed and not _standard(name)


def torchs_folder() -> str:
    """The folder of torch, also if torch is not installed as a package. The job may have another folder called `torch`."""
    file = getattr(sys.modules.get("torch"), "__file__", None)
    return os.path.dirname(file) + os.sep if file else os.sep + os.sep


def _standard(name: str) -> bool:
    return name.startswith(os.path.dirname(os.__file__))


def process_facts(torch: Any) -> RankFacts:
    """Identity of this process: versions, command line, the launcher's variables, allowed CPUs."""
    facts: RankFacts = {
        "pid": os.getpid(),
        "python": "%d.%d.%d" % sys.version_info[:3],
        "torch": getattr(torch, "__version__", None),
        "argv": list(sys.argv[:64]),
        "cwd": _working_directory(),  # code's file names may be relative to it
        "written_unix_s": time.time(),  # source files changed after this time may differ from the running code
        "environment_rank": {name: os.environ.get(name) for name in (*_LAUNCHER_VARIABLES, *_PATH_VARIABLES)},
        "cpus_allowed": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cuda": None,
    }
    return facts


def cuda_facts(torch: Any, device: int) -> CudaFacts:
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
    """Index of the GPU of a tensor, or of the first one in a list or tuple; None if there is none.

    Does not read other iterables, since it could consume the job's iterator.
    """
    first = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
    device: Any = getattr(first, "device", None)
    return device.index if getattr(device, "type", None) == "cuda" else None


def changing_facts() -> RankFacts:
    """Facts that grow, or that a script may set after its first backward pass. Read at each writing of the facts."""
    facts: RankFacts = {
        # without the number of frozen objects: the interpreter counts them one by one
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
            facts["group_size"] = joined  # kept after the group is destroyed
    return facts


def joined_ranks(torch: Any) -> int:
    """Number of processes in the joined group of torch.distributed or Horovod; 0 without a group, whatever the launcher set."""
    try:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return int(torch.distributed.get_world_size())
        horovod: Any = sys.modules.get("horovod.torch")
        return int(horovod.size()) if horovod is not None and horovod.is_initialized() else 0
    except (AttributeError, RuntimeError, ValueError):
        return 0  # the group is being torn down, or another version


def distributed_identity(torch: Any) -> tuple[int, int, int]:
    """(rank, local rank, world size), -1 for unknown. The process group takes precedence over the launcher's variables."""
    rank, world = _number("RANK"), _number("WORLD_SIZE")
    try:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    except (RuntimeError, ValueError):
        pass  # the group is being torn down: use the variables
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
    """The guard in a recompilation reason, such as `0/0: n == 1`, without the source and stack that follow."""
    return reason.partition("#")[0].partition("\n")[0].strip()[:_REASON_CHARS_MAX]


def note_compilations(values: RankFacts, *, now_ns: int, wall_us: float) -> None:
    """Adds dynamo's compilations since the last call to `compilations`: time (monotonic), duration, function, reason to recompile.

    Dynamo keeps only its last 64, and so do we: if there are more between two calls, some are missed.
    """
    ask = getattr(sys.modules.get("torch._dynamo.utils"), "get_compilation_metrics", None)
    if ask is None:
        return
    compilations = values.setdefault("compilations", [])
    since_us = compilations[-1]["began_us"] if compilations else 0
    for made in ask():
        began_us = getattr(made, "start_time_us", None) or 1e6 * (getattr(made, "start_time", None) or 0.0)
        if not made.co_name or made.entire_frame_compile_time_s is None or began_us <= since_us:
            continue
        compilations.append(
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
    del compilations[:-COMPILATIONS_MAX]


AIDS_FROM_STEP = 25  # in earlier steps a profiler may run that covers only the first steps
# Environment variables that slow every step, and the values that do; None: any value.
_AID_VARIABLES = {
    "CUDA_LAUNCH_BLOCKING": ("1",),
    "HIP_LAUNCH_BLOCKING": ("1",),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": None,
    "TORCH_DISTRIBUTED_DEBUG": ("DETAIL",),
    "NCCL_DEBUG": ("TRACE",),
}
TRACER = "tracer"
_TOOLS = (0, 1, 2)  # of sys.monitoring (Python 3.12): a debugger, coverage, a profiler


# Debugging aids that are on during training, checked at the start of a few backward passes.
#
# Not between steps: `with torch.autograd.detect_anomaly():` may enclose only the step.
def count_aids(torch: Any, values: RankFacts, *, profiled_by_us: bool) -> bool:
    """Counts the aids that are on in the training thread, in `debugging` of the facts. True if no tracer was among them."""
    debugging = values.setdefault("debugging", {"looks": 0, "on": {}})
    debugging["looks"] += 1
    found = _aids(torch, profiled_by_us=profiled_by_us)
    for name in found:
        debugging["on"][name] = debugging["on"].get(name, 0) + 1
    return TRACER not in found and not profiled_by_us


def count_tracer(values: RankFacts) -> None:
    """Counts a tracer that is on now and was not at the last check: a library's profiler may cover each part of the step but the last."""
    if _traces():
        on = values["debugging"]["on"]
        on[TRACER] = on.get(TRACER, 0) + 1


def _aids(torch: Any, *, profiled_by_us: bool) -> list[str]:
    found = []
    if torch.is_anomaly_enabled():
        found.append("anomaly detection")
    if torch.autograd._profiler_enabled():
        found += [] if profiled_by_us else ["profiler"]
    elif _traces():
        found.append(TRACER)  # torch's profiler installs one, too
    if is_tracing_memory():
        found.append("tracemalloc")
    for name, values in _AID_VARIABLES.items():
        value = os.environ.get(name)
        if value and (values is None or value.upper() in values):
            found.append(name)
    return found


def _traces() -> bool:
    return sys.gettrace() is not None or sys.getprofile() is not None or _monitored()


def _monitored() -> bool:
    monitoring = getattr(sys, "monitoring", None)
    return monitoring is not None and any(
        monitoring.get_tool(tool) is not None and monitoring.get_events(tool) for tool in _TOOLS
    )
