"""Current Python stacks of all threads of a process, read from outside with py-spy without stopping it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rn50_advisor import probes
from rn50_advisor.advisor.model.metrics import ProbeGap

METRIC = "stacks"
_LIBRARY = re.compile(
    r"/(site|dist)-packages/"
    r"|/lib(64)?/python3\.\d+/|/python3\d+\.zip/"  # the standard library
    r"|/torchinductor_[^/]*/|/torch_compile_debug/"  # code that torch wrote
    # a torch built from source; only its own folders, since users' folders may be called torch, too
    r"|/torch/(_\w+|nn|utils|distributed|optim|autograd|cuda|amp|fx|multiprocessing)(/|\.py$)"
    r"|/torch/(functional|serialization|storage|hub|random)\.py$"
)
_OURS = str(Path(probes.__file__).parent) + "/"
_REFUSED = re.compile(r"permission denied|operation not permitted|EPERM|os error (1|13)\b", re.I)


@dataclass(frozen=True, slots=True)
class Frame:
    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """Frames innermost first. `active`: running or runnable, not asleep in a system call. `thread_id` is the kernel's.

    `owns_gil`: it held the GIL; between two owners no thread holds it.
    """

    thread_id: int | None
    name: str
    main: bool
    active: bool
    frames: tuple[Frame, ...]
    owns_gil: bool = False


def is_user_file(file: str) -> bool:
    """True if a file is the user's code: not a library, not generated or frozen code, not the recorder, nor a name such as `__loader__`,
    which the frame of a function that has just returned may show.
    """
    is_file = ("/" in file or "." in file) and not file.startswith("<")
    return is_file and not is_ours(file) and not _LIBRARY.search(file)


def is_ours(file: str) -> bool:
    return file.startswith(_OURS)


def user_frame(frames: Sequence[Frame]) -> Frame | None:
    """The innermost frame in the user's code, or None. `frames` are innermost first."""
    return next((frame for frame in frames if is_user_file(frame.file)), None)


def parse_dump(text: str) -> tuple[ThreadStack, ...]:
    """Parses the output of `py-spy dump --json`. Raises ValueError, KeyError, TypeError or AttributeError on anything else."""
    return tuple(_thread(thread) for thread in json.loads(text))


def _thread(thread: dict[str, Any]) -> ThreadStack:
    name, tid = thread.get("thread_name") or "", thread.get("os_thread_id")
    frames = tuple(Frame(f["name"], f["filename"], f["line"]) for f in thread["frames"])
    main = tid == thread["pid"] or name == "MainThread"
    return ThreadStack(tid, name, main, bool(thread["active"]), frames, bool(thread.get("owns_gil")))


def find_py_spy() -> str | None:
    """Path of py-spy: the script of our own environment, which may not be on PATH, else the one on PATH; None if there is none."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def explain_refusal(message: str, root: Path = Path("/")) -> tuple[str, str]:
    """Reason and hint for py-spy's message on stderr."""
    first = next((line.strip() for line in message.splitlines() if line.strip()), "py-spy failed without a message")
    first = first.removeprefix("Error: ")
    if _REFUSED.search(message):
        try:
            scope = int((root / "proc/sys/kernel/yama/ptrace_scope").read_text())
        except (OSError, ValueError):
            scope = 0
        hints = {
            0: "run as the job's user; in a container add the capability: docker run --cap-add SYS_PTRACE",
            1: "sysctl kernel.yama.ptrace_scope=0, or run as root; in a container: --cap-add SYS_PTRACE",
            2: "only root may look into processes here (kernel.yama.ptrace_scope=2)",
            3: "this machine forbids it until reboot (kernel.yama.ptrace_scope=3)",
        }
        return "not permitted to read the process's memory", hints.get(scope, hints[0])
    if re.search(r"No such (process|file)", message):
        return "the process is gone, or is not Python", ""
    if re.search(r"python version|Failed to find|interpreter", message, re.I):
        return f"not Python, or a version that py-spy does not know ({first})", "pip install -U py-spy"
    return first, ""


def run_py_spy(pid: int, *arguments: str, timeout_s: float) -> str | ProbeGap:
    """Output of py-spy on a process. It never stops the process (`--nonblocking`), so a frame may be wrong while the process runs."""
    scope = f"pid:{pid}"
    program = find_py_spy()
    if program is None:
        return ProbeGap(METRIC, scope, "py-spy not found", "pip install py-spy")
    try:
        done = subprocess.run(
            [program, *arguments, "--nonblocking", "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            text=True,
            errors="replace",
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ProbeGap(METRIC, scope, f"py-spy did not finish within {timeout_s:g} s", "the machine may be overloaded")
    except OSError as e:
        return ProbeGap(METRIC, scope, f"{program}: {e.strerror}", "pip install -U py-spy")
    if done.returncode != 0:
        return ProbeGap(METRIC, scope, *explain_refusal(done.stderr))
    return done.stdout


def dump_stacks(pid: int, *, timeout_s: float = 5.0) -> tuple[ThreadStack, ...] | ProbeGap:
    """Stacks of all Python threads of a process at one moment."""
    printed = run_py_spy(pid, "dump", "--json", timeout_s=timeout_s)
    if isinstance(printed, ProbeGap):
        return printed
    try:
        return parse_dump(printed)
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        reason = f"py-spy printed unexpected output: {e}"
        return ProbeGap(METRIC, f"pid:{pid}", reason, "pip install -U py-spy")
