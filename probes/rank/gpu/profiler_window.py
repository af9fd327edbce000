"""A deep window: two steps under torch's own profiler, so that kernels and operators can be told. Only where it was asked for.

What is wanted lies in a small file of the ring folder, read when the process becomes a rank. The window begins and ends at the begin of a
step, in the training thread. It gives way to whatever would meet it: another profiler, a fork, the end of the job. So it does to what would
make it long: an evaluation, a checkpoint, many batches. For whatever was recorded is read through when the profiler stops, wanted or not: a
host that only launches pays some 6 s for each second of it. Nothing of ours escapes from here: what goes wrong is stated in the facts. CUDA
graphs are left alone: CUPTI crashes with them below CUDA 12.6 (pytorch#75504, pytorch#150957).
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
from ..step_phases import CHECKPOINT, EVALUATION, INPUT
from ..wall import let_pass
from ..workers.sample_standins import put
from .graph_captures import Captures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..facts.process_facts import Facts
    from ..step_account import Account

REQUEST = "deep.json"
STEP_MARK = "rn50-advisor step"
NEVER = 1 << 62
_LOOK_EVERY_NS = 1_000_000_000  # a look at the file takes some 20 us
_AGAIN_STEPS = 5
_ATTEMPTS = 3
_DISK_LEFT = 256 << 20  # bytes; a trace of two steps takes 1 to 30 MB
_DEVICE_LEFT = 512 << 20  # bytes; CUPTI's buffers lie there too
_BATCHES_MAX = 16  # fetches or backward passes: of ResNet-50 some 110,000 events, 45 MB of trace
_TIMES_USUAL = 4  # where the host only launches, a step takes some 2.4 times as long under the profiler
_BEYOND_NS = 1_000_000_000  # a batch that came late, or the profiler's first calls
_EVALUATES = "an evaluation began"
_LOG_LEVEL = "KINETO_LOG_LEVEL"
_FROZEN = gc.get_freeze_count()  # objects made before torch was there: none of them is what is looked for
# Under Nsight and its like CUPTI is taken.
_TOOLS = ("NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "NVPROF_TMPDIR")


class Aside(Exception):
    """The window is not opened, or is closed early; says why."""


def asked(
    torch: Any, folder: str, facts: Facts, rank: int, local_rank: int, captures: Captures | None = None
) -> ProfilerWindow | None:
    """None where no window may ever be wanted: the rank pays nothing then."""
    request = _read(folder)
    if request is None:
        return None
    first = local_rank == 0 or (local_rank < 0 and rank <= 0)  # one rank a node; a launcher may not say local ranks
    if not request.get("auto") and not first:
        return None
    return ProfilerWindow(torch, folder, facts, request, captures or Captures())


def _read(folder: str) -> dict[str, Any] | None:
    try:
        request = json.loads(rank_ring_folder.read(folder, REQUEST))
    except (OSError, ValueError):
        return None
    return request if isinstance(request, dict) else None


class ProfilerWindow:
    """`next_step` is when `at_step` wants to be called; `on` while the profiler runs."""

    def __init__(self, torch: Any, folder: str, facts: Facts, request: dict[str, Any], captures: Captures) -> None:
        self.on = False
        self.next_step = 0 if request.get("auto") else int(request.get("from_step", 0))
        self._torch = torch
        self._folder = folder
        self._facts = facts
        self._captures = captures
        self._request = request
        self._waiting = bool(request.get("auto"))  # for the agent to ask this very process
        self._attempts = 0
        self._first = 0
        self._profile: Any = None
        self._account: Any = None
        self._undo: list[Callable[[], None]] = []
        self._until_ns = self._backwards = self._fetches = 0
        self._times: dict[str, float] = {}

    def at_step(self, account: Account) -> None:
        """A step begins for which this was planned."""
        step = account.step
        if self._captures.under_way:
            self.next_step = step + 1  # to begin and to end the profiler would synchronise
            return
        try:
            if self.on:
                self._mark()
                account.flags |= FLAG_DEEP
                if step >= self._first + int(self._request.get("steps", 2)):
                    self._finish(step)
            elif self._waiting and not self._wanted():
                self.next_step = step + max(1, _LOOK_EVERY_NS // max(account.last_step_ns, 1))
            else:
                account.flags |= FLAG_DEEP
                self._begin(account)
        except Aside as aside:
            self._failed(step, str(aside), again=False)
        except Exception as error:
            self._failed(step, "%s: %s" % (type(error).__name__, str(error)[:300]), again=False)
            let_pass()

    def _wanted(self) -> bool:
        request = _read(self._folder)
        if request is None or request.get("pid") != os.getpid():
            return False
        self._request, self._waiting = request, False
        return True

    def _begin(self, account: Account) -> None:
        began = perf_counter_ns()
        self._attempts += 1
        self._why_not(account)
        profiler = self._torch.profiler
        activities = [profiler.ProfilerActivity.CPU]
        if self._torch.cuda.is_initialized() and profiler.ProfilerActivity.CUDA in profiler.supported_activities():
            activities.append(profiler.ProfilerActivity.CUDA)
        self._profile = profiler._KinetoProfile(activities=activities, record_shapes=True)
        with _silence():
            self._profile.start()
        self._account, self._first, self.on = account, account.step, True
        self._undo += _step_aside_for_others(self._torch.autograd.profiler, self.give_way)
        self._undo.append(_tell_of_evaluation(self._torch, self.give_way))
        self._undo.append(put(account, "enter", self._watched(account.enter)))
        self.next_step = account.step + 1
        self._mark()
        self._took("start_s", began)
        self._backwards, self._fetches = account.backwards, 0
        usual_ns = int(self._request.get("steps", 2)) * account.last_step_ns
        self._until_ns = perf_counter_ns() + _TIMES_USUAL * usual_ns + _BEYOND_NS

    def _watched(self, enter: Callable[..., int]) -> Callable[..., int]:
        """In the place of the account's own while the window is open: no mark of any other step has to ask for it."""

        def enter_watched(phase: int, charge: int = -1) -> int:
            reason = self._too_long(phase)
            if reason:
                self.give_way(reason)
            return enter(phase, charge)

        return enter_watched

    def _too_long(self, phase: int) -> str:
        """Why what comes now, or has come since the window was opened, is not to be recorded; empty: it is."""
        if phase == EVALUATION:
            return _EVALUATES
        if phase == CHECKPOINT:
            return "a checkpoint was written"
        self._fetches += phase == INPUT
        if max(self._fetches, self._account.backwards - self._backwards) > _BATCHES_MAX:
            return "its steps have more than %d batches" % _BATCHES_MAX
        return "its steps took several times as long as usual" if perf_counter_ns() > self._until_ns else ""

    def _why_not(self, account: Account) -> None:
        torch = self._torch
        if account.backwards * int(self._request.get("steps", 2)) > _BATCHES_MAX * max(account.step, 1):
            raise Aside("each step has some %d backward passes" % (account.backwards // max(account.step, 1)))
        if any(os.environ.get(name) for name in _TOOLS):
            raise Aside("another tool profiles the GPU")
        if torch.autograd._profiler_enabled():
            raise Aside("another profiler is running")
        if gc.get_freeze_count() > _FROZEN:
            raise Aside("gc.freeze() hides whether the job has CUDA graphs or a profiler of its own")
        ours = (torch.profiler._KinetoProfile, torch.autograd.profiler.profile)
        graph = getattr(torch.cuda, "CUDAGraph", ())
        for found in gc.get_objects():  # some 50 ms in a large process, once
            kind = type(found)
            if issubclass(kind, ours):
                raise Aside("the job has a profiler of its own")
            if graph and issubclass(kind, graph):
                raise Aside("the job replays CUDA graphs")
        space = os.statvfs(self._request["folder"])
        if space.f_bavail * space.f_frsize < _DISK_LEFT:
            raise Aside("no room for a trace in %s" % self._request["folder"])
        cuda = self._facts.values.get("cuda")
        if (
            cuda and torch.cuda.mem_get_info(cuda["device"])[0] < _DEVICE_LEFT
        ):  # of another GPU it would make a context there
            raise Aside("the GPU's memory is full")

    def _mark(self) -> None:
        with self._torch.autograd.profiler.record_function(STEP_MARK):
            pass

    def _took(self, what: str, since: int) -> None:
        """All attempts together: the job paid for each."""
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
        path = os.path.join(self._request["folder"], "deep-%d.json" % os.getpid())
        # Kineto complains on stderr where it cannot write, and follows a link
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        profile.export_chrome_trace(path)
        size = os.path.getsize(path)
        del profile  # which takes half as long as to stop it
        self._took("export_s", began)
        if not 0 < size <= int(self._request.get("bytes_max", NEVER)):
            os.unlink(path)
            raise Aside("its trace is %.0f MB large" % (size / 1e6) if size else "its trace could not be written")
        self.next_step = NEVER
        self._tell(state="done", path=path, bytes=size, first_step=self._first, steps=step - self._first)

    def give_way(self, reason: str) -> None:
        """Something comes that must not meet the profiler: it ends here, in the thread that it was begun in."""
        if not self.on or self._account.thread != get_ident() or self._captures.under_way:
            return
        self._account.flags |= FLAG_DEEP
        again = self._attempts < _ATTEMPTS
        began = perf_counter_ns()
        try:
            self._stop()  # and let go of what it has seen
        except Exception as error:
            self._took("stop_s", began)
            self._failed(self._account.step, "%s (%s)" % (reason, type(error).__name__), again=again)
            let_pass()
        else:
            self._took("stop_s", began)
            self._failed(self._account.step, reason, again=again)

    def _failed(self, step: int, reason: str, *, again: bool) -> None:
        """Again a little later, or not at all."""
        try:
            self._stop()
        except Exception:
            self.on = False
        self.next_step = step + _AGAIN_STEPS * self._attempts if again else NEVER
        self._tell(state="trying" if again else "refused", reason=reason)

    def _tell(self, **told: Any) -> None:
        with contextlib.suppress(Exception):  # a full disk: then nobody is told
            self._facts.set("deep", {**told, **self._times})


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Kineto writes to the job's stderr ("profiler_start", no GPU), from a level on that it reads when it is first used."""
    if _LOG_LEVEL in os.environ:
        yield
        return
    os.environ[_LOG_LEVEL] = "99"
    try:
        yield
    finally:
        os.environ.pop(_LOG_LEVEL, None)


def _step_aside_for_others(module: Any, give_way: Any) -> list[Callable[[], None]]:
    """Another profiler of this process that is begun meanwhile finds the way free. Returns what puts the functions back."""

    def begins(*args: Any, **kwargs: Any) -> None:
        give_way("the job began a profiler of its own")

    return [
        _call_first(module, name, begins) for name in ("_prepare_profiler", "_enable_profiler") if hasattr(module, name)
    ]


def _tell_of_evaluation(torch: Any, give_way: Any) -> Callable[[], None]:
    """One over tensors in memory has no mark but this: `eval()` is `train(False)`. Returns what puts the function back."""
    is_compiling = torch.compiler.is_dynamo_compiling

    def trains(*args: Any, **kwargs: Any) -> None:
        # to dynamo, which may be tracing it, nothing
        if not is_compiling() and (args[1] if len(args) > 1 else kwargs.get("mode")) is False:
            give_way(_EVALUATES)

    return _call_first(torch.nn.Module, "train", trains)


def _call_first(owner: Any, name: str, call: Callable[..., None]) -> Callable[[], None]:
    """`call`, which raises nothing, is given the arguments first; whoever calls gets what the original returns or raises."""
    original = getattr(owner, name)

    @wraps(original)
    def stands_in(*args: Any, **kwargs: Any) -> Any:
        call(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return put(owner, name, stands_in)
