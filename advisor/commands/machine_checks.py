"""The checks of `doctor`: each tries one thing that a run will do and reports the result; none changes anything."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rn50_advisor.advisor.commands.screen_available import has_terminal
from rn50_advisor.advisor.model.errors import UsageError
from rn50_advisor.advisor.model.wording import quantities as fmt

TORCH_TIMEOUT_S = 120.0  # the first import of torch from a cold network disk takes that long
CHILD_TIMEOUT_S = 20.0
SHM_WARN_BYTES = 1 << 30  # Docker's default is 64 MiB; one prefetched batch of 256 images of 224x224 float32 is 154 MB
_OLDEST_RANK = (3, 9)
# `python -c` puts the working directory first in sys.path, where a user's `queue.py` could hide the standard module.
_WITHOUT_WORKING_FOLDER = "import sys; sys.path[:] = [entry for entry in sys.path if entry]\n"


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    name: str
    state: Literal["ok", "warn", "missing"]
    found: str
    hint: str = ""


def run_checks(python: str) -> list[DoctorCheck]:
    """Runs all checks in the order of display; a check that crashes becomes a warning, and the others still run."""
    checks: list[tuple[str, Callable[[], DoctorCheck]]] = [
        ("advisor's python", own_python),
        ("the job's torch", lambda: torch_of(python)),
        ("injection", lambda: injection(python)),
        ("ring folder", ring_folder),
        ("py-spy", lambda: py_spy(python)),
        ("NVIDIA driver", nvidia_driver),
        ("cgroup", cgroup),
        ("pressure (PSI)", pressure),
        ("/dev/shm", shared_memory),
        ("terminal", terminal),
    ]
    return [_tried(name, check) for name, check in checks]


def job_python(python: str | None) -> str:
    """Returns the interpreter that a job would most likely use. Raises UsageError if the given one does not exist."""
    if python is not None:
        found = shutil.which(python)
        if found is None:
            raise UsageError(f"--python {python}: no such program", "name the interpreter that runs your training")
        return found
    return shutil.which("python") or shutil.which("python3") or sys.executable


def own_python() -> DoctorCheck:
    return DoctorCheck("advisor's python", "ok", f"{sys.version.split()[0]} at {sys.executable}")


def torch_of(python: str) -> DoctorCheck:
    """Imports torch in that interpreter: the package's metadata would not show a broken installation."""
    name = "the job's torch"
    program = (
        _WITHOUT_WORKING_FOLDER + "import json\nimport torch\n"
        "print(json.dumps([sys.version.split()[0], torch.__version__, torch.version.cuda or torch.version.hip,"
        " torch.cuda.device_count(), torch.distributed.is_available() and [b for b in ('nccl', 'gloo')"
        " if getattr(torch.distributed, 'is_' + b + '_available', lambda: False)()]]))"
    )
    choose = "choose the interpreter of your training with --python"
    try:
        done = _run([python, "-c", program], timeout_s=TORCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return DoctorCheck(
            name, "warn", f"import torch in {python} took more than {TORCH_TIMEOUT_S:.0f} s", "is its disk slow?"
        )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return DoctorCheck(name, "missing", f"import torch fails in {python}: {reason}", choose)
    version, torch, cuda, devices, backends = json.loads(done.stdout.splitlines()[-1])
    build = f"CUDA {cuda}, {devices} GPU{'s' if devices != 1 else ''}" if cuda else "CPU only"
    found = f"{torch} ({build}; {', '.join(backends or ['no distributed backend'])}) in Python {version} at {python}"
    if tuple(map(int, version.split(".")[:2])) < _OLDEST_RANK:
        return DoctorCheck(name, "missing", found, "the recorder needs Python 3.9 or newer in the job")
    return DoctorCheck(name, "ok", found)


def injection(python: str) -> DoctorCheck:
    """Starts a child as a run would and checks that the recorder's hook waits for torch in it."""
    from rn50_advisor.advisor.run.launch.job_environment import (
        CannotInject,
        inherited_environment,
        inject_folder,
        with_recorder,
    )
    from rn50_advisor.advisor.run.rings.agent_ring_folder import RingFolder

    name = "injection"
    program = (
        "import sys\n"
        "codes = [getattr(getattr(type(f), 'find_spec', None), '__code__', None) for f in sys.meta_path]\n"
        "print(any(code is not None and code.co_filename.startswith(sys.argv[1]) for code in codes))"
    )
    try:
        rings = RingFolder()
    except OSError as error:
        return DoctorCheck(name, "warn", f"not tried: no ring folder ({error})")
    try:
        plain = inherited_environment()
        watched = with_recorder(plain, rings.path)
        bare_s = min(_timed([python, "-c", "pass"], plain) for _ in range(3))
        armed_s = min(_timed([python, "-c", "pass"], watched) for _ in range(3))
        done = _run([python, "-c", program, str(inject_folder())], environment=watched)
        notes = [note.read_text(errors="replace").strip() for note in rings.path.glob("error-*.txt")]
    except CannotInject as error:
        return DoctorCheck(name, "missing", str(error), "install rn50-advisor under a path without a colon")
    finally:
        rings.close(remove=True)
    if done.returncode or not done.stdout.startswith("True"):
        reason = "; ".join(notes) or (done.stderr.strip().splitlines() or ["sitecustomize was not run"])[-1]
        hint = "python -I, -S, -E and frozen programs keep it out; host measurements remain"
        return DoctorCheck(name, "missing", f"the recorder does not reach a child of {python}: {reason}", hint)
    cost = fmt.duration(max(armed_s - bare_s, 0.0))
    return DoctorCheck(name, "ok", f"reached a child of {python}; adds {cost} to the start of a process without torch")


def ring_folder() -> DoctorCheck:
    from rn50_advisor.advisor.run.rings.agent_ring_folder import RingFolder

    name = "ring folder"
    try:
        rings = RingFolder()
    except OSError as error:
        return DoctorCheck(name, "missing", str(error), "a run works without the recorder inside the job")
    place = rings.path.parent
    rings.close(remove=True)
    return DoctorCheck(name, "ok", f"{place}, in memory")


def py_spy(python: str) -> DoctorCheck:
    """Takes the stack of a child that runs the recorder like a rank does: under yama, the recorder permits us to read the stack."""
    from rn50_advisor.advisor.model.metrics import ProbeGap
    from rn50_advisor.advisor.run.launch.job_environment import inherited_environment, with_recorder
    from rn50_advisor.advisor.run.rings.agent_ring_folder import RingFolder
    from rn50_advisor.probes.host.stacks.process_stacks import find_py_spy, run_py_spy

    try:
        rings = RingFolder()
    except OSError as error:
        return DoctorCheck("py-spy", "warn", f"not tried: {error}")
    with contextlib.ExitStack() as stack:
        stack.callback(rings.close, remove=True)
        job = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rn50-doctor-")))
        (job / "torch.py").touch()  # enough to start the recorder, and works without torch
        program = (
            _WITHOUT_WORKING_FOLDER
            + "sys.path.insert(0, sys.argv[1]); import torch; print('up', flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [python, "-c", program, str(job)],
            env=with_recorder(inherited_environment(), rings.path),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as target:
            assert target.stdin is not None and target.stdout is not None
            try:
                any(line == b"up\n" for line in target.stdout)  # a sitecustomize of the user's may print too
                seen = run_py_spy(target.pid, "dump", "--json", timeout_s=CHILD_TIMEOUT_S)
            finally:
                target.stdin.close()
                target.kill()  # we started it, and the program named with --python may not end by itself
                target.wait(CHILD_TIMEOUT_S)
    if isinstance(seen, ProbeGap):
        hint = seen.hint or "without it, hangs and gaps have no file and line"
        return DoctorCheck("py-spy", "warn", f"cannot read the stack of a child: {seen.reason}", hint)
    return DoctorCheck("py-spy", "ok", f"reads stacks ({find_py_spy()})")


def nvidia_driver() -> DoctorCheck:
    name = "NVIDIA driver"
    devices = sorted(str(path) for path in Path("/dev").glob("nvidia[0-9]*"))
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:  # noqa: BLE001 - NVML's errors have no base that its absence leaves importable
        if devices:
            return DoctorCheck(
                name,
                "missing",
                f"{len(devices)} device files, but NVML says: {error}",
                "docker run --gpus all; is the driver loaded?",
            )
        return DoctorCheck(
            name, "warn", "no NVIDIA GPU seen", "CPU training is still observed; GPU measurements will be missing"
        )
    try:
        driver, count = pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlDeviceGetCount()
        names = {str(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(i))) for i in range(count)}
        return DoctorCheck(name, "ok", f"driver {driver}, {count} × {', '.join(sorted(names)) or 'no GPU'}")
    finally:
        pynvml.nvmlShutdown()


def cgroup() -> DoctorCheck:
    from rn50_advisor.probes.host.cgroup.cgroup_probe import CgroupReader

    name = "cgroup"
    version = "v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1"
    reader = CgroupReader()
    reader.begin_tick(time.monotonic_ns())
    state = reader.state_of(os.getpid())
    if state is None or state.cpu is None:
        hint = "mount /sys/fs/cgroup into the container; a CPU quota could throttle the job unnoticed"
        return DoctorCheck(name, "warn", "our own CPU cgroup cannot be seen", hint)
    cores = len(os.sched_getaffinity(0))
    quota = state.cpu.quota_cores
    limit = state.memory.limit_bytes if state.memory else None
    memory = f", memory limit {fmt.bytes_(limit)}" if limit else ""
    if quota is not None and quota < cores:
        hint = "the kernel throttles anything beyond; torch and DataLoader count cores and ignore quotas"
        return DoctorCheck(name, "warn", f"{version}, CPU quota {fmt.number(quota)} of {cores} cores{memory}", hint)
    return DoctorCheck(name, "ok", f"{version}, no CPU quota below the {cores} cores at hand{memory}")


def pressure() -> DoctorCheck:
    name = "pressure (PSI)"
    try:
        line = Path("/proc/pressure/cpu").read_text().splitlines()[0]
    except (OSError, IndexError) as error:
        reason = error.strerror if isinstance(error, OSError) else "empty"
        return DoctorCheck(
            name, "warn", f"/proc/pressure/cpu: {reason}", "needs Linux 4.20 or newer with CONFIG_PSI, or psi=1 at boot"
        )
    return DoctorCheck(name, "ok", line)


def shared_memory() -> DoctorCheck:
    name = "/dev/shm"
    try:
        space = os.statvfs("/dev/shm")
    except OSError as error:
        return DoctorCheck(name, "warn", f"{error.strerror}", "DataLoader workers pass batches through it")
    size, free = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
    found = f"{fmt.bytes_(size)}, {fmt.bytes_(free)} free"
    if size < SHM_WARN_BYTES:
        return DoctorCheck(name, "warn", found, "small for DataLoader workers: docker run --shm-size=8g or --ipc=host")
    return DoctorCheck(name, "ok", found)


def terminal() -> DoctorCheck:
    name = "terminal"
    kind = os.environ.get("TERM", "")
    if kind != "dumb" and not has_terminal():
        return DoctorCheck(name, "ok", "no terminal here: `run` prints a summary, `watch` needs one")
    columns, rows = shutil.get_terminal_size()
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    found = f"{kind or 'TERM not set'}, {columns}×{rows}, {encoding}"
    if kind in ("", "dumb"):
        return DoctorCheck(name, "warn", found, "set TERM, e.g. xterm-256color, for the screen of `run` and `watch`")
    if encoding != "utf8":
        return DoctorCheck(name, "warn", found, "set LANG=C.UTF-8: bars and arrows need it")
    if columns < 80 or rows < 24:
        return DoctorCheck(name, "warn", found, "the screen is made for 80×24 and more")
    return DoctorCheck(name, "ok", found)


def _tried(name: str, check: Callable[[], DoctorCheck]) -> DoctorCheck:
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - a machine can be broken in more ways than we know; the other checks go on
        return DoctorCheck(name, "warn", f"could not be checked: {type(error).__name__}: {error}")


def _run(
    command: Sequence[str], *, timeout_s: float = CHILD_TIMEOUT_S, environment: dict[bytes, bytes] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        env=environment,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def _timed(command: Sequence[str], environment: dict[bytes, bytes]) -> float:
    began = time.perf_counter()
    _run(command, environment=environment)
    return time.perf_counter() - began
