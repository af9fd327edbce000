"""A profiler window: two steps under torch's own profiler to identify kernels and operators. Only on request.

The request is a small file in the ring folder, read when the process becomes a rank. The window starts and ends at the start of a step, in
the training thread. It closes before conflicts (another profiler, a fork, the end of the job) and before long work (an evaluation, a
checkpoint, many batches), because the profiler processes all recorded events when it stops: a launch-bound host pays some 6 s per recorded
second. No exception escapes; the facts state errors. Jobs with CUDA graphs are not profiled: CUPTI crashes with them below CUDA 12.6
(pytorch#75504, pytorch#150957).
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
from _thread import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from .. import rank_ring_folder
from ..hidden_frames import hide_frame, wraps
from ..layout import FLAG_DEEP
from ..side_files import DEEP_REQUEST, DEEP_TRACE
from ..signal_exceptions import reraise_signal_exception
from ..steps.step_phases import CHECKPOINT, EVALUATION, INPUT
from ..workers.sample_standins import put
from .graph_captures import Captures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Literal

    from ...documents.rank_documents import WindowFacts
    from ..facts.process_facts import Facts
    from ..steps.step_account import Account

STEP_MARK = "rn50-advisor step"
NEVER = 1 << 62
_CHECK_EVERY_NS = 1_000_000_000  # checking the file takes some 20 us
_AGAIN_STEPS = 5
_ATTEMPTS_MAX = 3
_DISK_LEFT = 256 << 20  # bytes; a trace of two steps takes 1 to 30 MB
_DEVICE_LEFT = 512 << 20  # bytes; includes CUPTI's buffers
_BATCHES_MAX = 16  # fetches or backward passes; for ResNet-50 some 110,000 events, 45 MB of trace
_TIMES_USUAL = 4  # a launch-bound step takes some 2.4 times as long under the profiler
_BEYOND_NS = 1_000_000_000  # allows for a late batch or the profiler's first calls
_EVALUATES = "an evaluation began"
_LOG_LEVEL = "KINETO_LOG_LEVEL"
_FROZEN = gc.get_freeze_count()  # objects that were frozen before torch was imported cannot be graphs
# Nsight and similar tools occupy CUPTI.
_TOOLS = ("NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "NVPROF_TMPDIR")


class NotProfiled(Exception):
    """The window is not opened, or is closed early; the message says why."""


def asked(
    torch: Any, folder: str, facts: Facts, rank: int, local_rank: int, captures: Captures | None = None
) -> ProfilerWindow | None:
    """The profiler window; None if none can be requested for this rank, which then has no cost."""
    request = _read(folder)
    if request is None:
        return None
    first = local_rank == 0 or (local_rank < 0 and rank <= 0)  # one rank per node; some launchers give no local rank
    if not request.get("auto") and not first:
        return None
    return ProfilerWindow(torch, folder, facts, request, captures or Captures())


def _read(folder: str) -> dict[str, Any] | None:
    try:
        request = json.loads(rank_ring_folder.read(folder, DEEP_REQUEST))
    except (OSError, ValueError):
        return None
    return request if isinstance(request, dict) else None


class ProfilerWindow:
    """A rank's profiler window. `next_step`: the step at which to call `at_step`; `on`: the profiler runs."""

    def __init__(self, torch: Any, folder: str, facts: Facts, request: dict[str, Any], captures: Captures) -> None:
        self.on = False
        self.next_step = 0 if request.get("auto") else int(request.get("from_step", 0))
        self._torch = torch
        self._folder = folder
        self._facts = facts
        self._captures = captures
        self._request = request
        self._waiting = bool(request.get("auto"))  # waits for the agent's request to this process
        self._attempts = 0
        self._first = 0
        self._profile: Any = None
        self._account: Any = None
        self._undo: list[Callable[[], None]] = []
        self._until_ns = self._backwards = self._fetches = 0
        self._times: WindowFacts = {}

    def at_step(self, account: Account) -> None:
        """Called at the start of `next_step`."""
        step = account.step
        if self._captures.under_way:
            self.next_step = step + 1  # starting and stopping the profiler would synchronise
            return
        try:
            if self.on:
                self._mark()
                account.flags |= FLAG_DEEP
                if step >= self._first + int(self._request.get("steps", 2)):
                    self._finish(step)
            elif self._waiting and not self._wanted():
                self.next_step = step + max(1, _CHECK_EVERY_NS // max(account.last_step_ns, 1))
            else:
                account.flags |= FLAG_DEEP
                self._begin(account)
        except NotProfiled as refusal:
            self._failed(step, str(refusal), again=False)
        except Exception as error:
            self._failed(step, "%s: %s" % (type(error).__name__, str(error)[:300]), again=False)
            reraise_signal_exception()

    def _wanted(self) -> bool:
        request = _read(self._folder)
        if request is None or request.get("pid") != os.getpid():
            return False
        self._request, self._waiting = request, False
        return True

    def _begin(self, account: Account) -> None:
        began = perf_counter_ns()
        self._attempts += 1
        self._check_possible(account)
        profiler = self._torch.profiler
        activities = [profiler.ProfilerActivity.CPU]
        if self._torch.cuda.is_initialized() and profiler.ProfilerActivity.CUDA in profiler.supported_activities():
            activities.append(profiler.ProfilerActivity.CUDA)
        self._profile = profiler._KinetoProfile(activities=activities, record_shapes=True)
        with _silence():
            self._profile.start()
        self._account, self._first, self.on = account, account.step, True
        self._undo += _give_way_to_others(self._torch.autograd.profiler, self.give_way)
        self._undo.append(_give_way_to_evaluation(self._torch, self.give_way))
        self._undo.append(put(account, "enter", self._watched(account.enter)))
        self.next_step = account.step + 1
        self._mark()
        self._took("start_s", began)
        self._backwards, self._fetches = account.backwards, 0
        usual_ns = int(self._request.get("steps", 2)) * account.last_step_ns
        self._until_ns = perf_counter_ns() + _TIMES_USUAL * usual_ns + _BEYOND_NS

    def _watched(self, enter: Callable[..., int]) -> Callable[..., int]:
        """A replacement of the account's `enter` while the window is open, so that marks of other steps need no check."""

        def enter_watched(phase: int, charge: int = -1) -> int:
            reason = self._too_long(phase)
            if reason:
                self.give_way(reason)
            return enter(phase, charge)

        return enter_watched

    def _too_long(self, phase: int) -> str:
        """The reason to close the window before this phase starts, or because it has become too long; empty: none."""
        if phase == EVALUATION:
            return _EVALUATES
        if phase == CHECKPOINT:
            return "a checkpoint was written"
        self._fetches += phase == INPUT
        if max(self._fetches, self._account.backwards - self._backwards) > _BATCHES_MAX:
            return "its steps have more than %d batches" % _BATCHES_MAX
        return "its steps took several times as long as usual" if perf_counter_ns() > self._until_ns else ""

    def _check_possible(self, account: Account) -> None:
        torch = self._torch
        if account.backwards * int(self._request.get("steps", 2)) > _BATCHES_MAX * max(account.step, 1):
            raise NotProfiled("each step has some %d backward passes" % (account.backwards // max(account.step, 1)))
        if any(os.environ.get(name) for name in _TOOLS):
            raise NotProfiled("another tool profiles the GPU")
        if torch.autograd._profiler_enabled():
            raise NotProfiled("another profiler is running")
        if gc.get_freeze_count() > _FROZEN:
            raise NotProfiled("gc.freeze() hides whether the job has CUDA graphs or a profiler of its own")
        profilers = (torch.profiler._KinetoProfile, torch.autograd.profiler.profile)
        graph = getattr(torch.cuda, "CUDAGraph", ())
        for found in gc.get_objects():  # some 50 ms in a large process, once
            kind = type(found)
            if issubclass(kind, profilers):
                raise NotProfiled("the job has a profiler of its own")
            if graph and issubclass(kind, graph):
                raise NotProfiled("the job replays CUDA graphs")
        space = os.statvfs(self._request["folder"])
        if space.f_bavail * space.f_frsize < _DISK_LEFT:
            raise NotProfiled("no room for a trace in %s" % self._request["folder"])
        cuda = self._facts.values.get("cuda")
        if (
            cuda and torch.cuda.mem_get_info(cuda["device"])[0] < _DEVICE_LEFT
        ):  # on another GPU it would create a context
            raise NotProfiled("the GPU's memory is full")

    def _mark(self) -> None:
        with self._torch.autograd.profiler.record_function(STEP_MARK):
            pass

    def _took(self, what: Literal["start_s", "stop_s", "export_s"], since: int) -> None:
        self._times[what] = self._times.get(what, 0.0) + (perf_counter_ns() - since) / 1e9

    def _stop(self) -> Any:
        profile, self._profile, self.on = self._profile, None, False
        while self._undo:
            self._undo.pop()()
        if profile is not None:
            profile.stop()
        return profile

    def _finish(self, step: int) -> None:
        began = perf_counter_ns()
        try:
            profile = self._stop()
        finally:
            self._took("stop_s", began)
        began = perf_counter_ns()
        path = os.path.join(self._request["folder"], DEEP_TRACE % os.getpid())
        # Kineto prints to stderr if it cannot write, and follows symbolic links
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        profile.export_chrome_trace(path)
        size = os.path.getsize(path)
        del profile  # takes half as long as stopping it
        self._took("export_s", began)
        if not 0 < size <= int(self._request.get("bytes_max", NEVER)):
            os.unlink(path)
            raise NotProfiled("its trace is %.0f MB large" % (size / 1e6) if size else "its trace could not be written")
        self.next_step = NEVER
        self._write_state(
            {"state": "done", "path": path, "bytes": size, "first_step": self._first, "steps": step - self._first}
        )

    def give_way(self, reason: str) -> None:
        """Stops the profiler before an event that it must not record, in the thread that started it."""
        if not self.on or self._account.thread != get_ident() or self._captures.under_way:
            return
        self._account.flags |= FLAG_DEEP
        again = self._attempts < _ATTEMPTS_MAX
        began = perf_counter_ns()
        try:
            self._stop()  # this drops its events
        except Exception as error:
            self._took("stop_s", began)
            self._failed(self._account.step, "%s (%s)" % (reason, type(error).__name__), again=again)
            reraise_signal_exception()
        else:
            self._took("stop_s", began)
            self._failed(self._account.step, reason, again=again)

    def _failed(self, step: int, reason: str, *, again: bool) -> None:
        """Schedules another attempt a little later, or gives up."""
        try:
            self._stop()
        except Exception:
            self.on = False
        self.next_step = step + _AGAIN_STEPS * self._attempts if again else NEVER
        self._write_state({"state": "trying" if again else "refused", "reason": reason})

    def _write_state(self, state: WindowFacts) -> None:
        """Writes the state to the facts, with the total times of all attempts, since the job paid for each."""
        with contextlib.suppress(Exception):  # a full disk: no report
            self._facts.update({"deep": {**state, **self._times}})


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Silences Kineto's messages on the job's stderr ("profiler_start", no GPU); it reads the log level at its first use."""
    if _LOG_LEVEL in os.environ:
        yield
        return
    os.environ[_LOG_LEVEL] = "99"
    try:
        yield
    finally:
        os.environ.pop(_LOG_LEVEL, None)


def _give_way_to_others(module: Any, give_way: Any) -> list[Callable[[], None]]:
    """Ends our profiler when the process starts another one. Returns functions that restore the originals."""

    def starts_profiler(*args: Any, **kwargs: Any) -> None:
        give_way("the job began a profiler of its own")

    return [
        _call_first(module, name, starts_profiler)
        for name in ("_prepare_profiler", "_enable_profiler")
        if hasattr(module, name)
    ]


def _give_way_to_evaluation(torch: Any, give_way: Any) -> Callable[[], None]:
    """Ends our profiler at `train(False)`, the only sign of an evaluation without loader. Returns a function that restores `train`."""
    is_compiling = torch.compiler.is_dynamo_compiling

    def evaluates(*args: Any, **kwargs: Any) -> None:
        # a no-op for dynamo, which may be tracing it
        if not is_compiling() and (args[1] if len(args) > 1 else kwargs.get("mode")) is False:
            give_way(_EVALUATES)

    return _call_first(torch.nn.Module, "train", evaluates)


def _call_first(owner: Any, name: str, call: Callable[..., None]) -> Callable[[], None]:
    """Wraps a function to call `call` (which never raises) with the same arguments first. Returns a function that restores the original."""
    original = getattr(owner, name)

    @wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        call(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return put(owner, name, wrapper)
