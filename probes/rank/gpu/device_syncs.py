"""Finds the job's calls that synchronise with the device or copy to it. Observes single steps at growing intervals.

In an observed step, wrappers replace a few methods of `torch.Tensor` (`item`, `cpu`, `to` ...) and the synchronising functions of
`torch.cuda`. They time the calls and record the user's line. At the step's end the originals are restored. A wrapper has the original's
hash, equality and attributes, so code that keeps tensor methods in sets and tables still finds it. Nothing is patched while dynamo
compiles or before it is loaded: dynamo's import stores the methods that it finds in `torch.Tensor`.
"""

from __future__ import annotations

import os
import sys
import types
from _thread import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, cast

from ..facts.precision_facts import compiled_frames
from ..facts.process_facts import call_frames
from ..hidden_frames import hide_frame
from ..layout import PHASES
from ..steps.step_phases import CHECKPOINT, EVALUATION
from ..workers.sample_standins import put
from .graph_captures import Captures

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from ...documents.rank_documents import CopySite, RankFacts
    from ..steps.step_account import Account

NEVER = 1 << 62
# The first steps compile, tune and fill caches. Each later observation is at 5/4 of the last one's step: some sixty in a million steps,
# never in phase with an event in every tenth step. They are few also because Python limits the versions of a class in its attribute cache.
FIRST_OBSERVED_STEP = 6
NAMED_MAX = 24  # distinct places
CALLS_MAX = 2000  # calls in one observed step, which may never end after the job's last step
WAITING = ("item", "tolist", "cpu", "nonzero", "__bool__", "__float__", "__int__", "__index__", "__repr__")
COPYING = ("to", "cuda", "copy_")
_SYNCHRONISING = (("", "synchronize"), ("Event", "synchronize"), ("Stream", "synchronize"))  # in torch.cuda
_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # the whole recorder


class Wrapper:
    """Replaces one method or function for one step. Calls in other threads and nested calls pass through."""

    def __init__(self, owner: Any, name: str, original: Any, syncs: Syncs) -> None:
        self._owner = owner
        self._name = name
        self._original = original
        self._syncs = syncs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        syncs = self._syncs
        # checks `open`, since code may keep a wrapper from the observed step
        watched = not syncs.inside and syncs.open and get_ident() == syncs.thread
        if watched:
            syncs.inside = True
        began = perf_counter_ns()
        try:
            result = self._original(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            ended = perf_counter_ns()
            if watched:
                syncs.inside = False
        if not watched:
            return result
        try:
            syncs.called(self._name, args, kwargs, result, ended - began)
        except Exception:
            syncs.fail()
        return result

    def __get__(self, item: Any, owner: Any = None) -> Any:
        return self if item is None else types.MethodType(self, item)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def __eq__(self, other: object) -> bool:
        return self._original is other or self is other

    def __hash__(self) -> int:
        return hash(self._original)

    def __reduce__(self) -> Any:
        return getattr, (self._owner, self._name)

    def __repr__(self) -> str:
        return repr(self._original)


class Syncs:
    """The observed steps of one process. `due`: the step at which the next observation starts or ends."""

    def __init__(self, torch: Any, failed: Callable[[], None], captures: Captures | None = None) -> None:
        self._torch = torch
        self._captures = captures or Captures()
        self._failed = failed
        # tests run without a GPU
        self._device = os.environ.get("RN50_ADVISOR_SYNC_DEVICE", "cuda")
        self._undo: list[Callable[[], None]] = []
        self.forget()

    def forget(self) -> None:
        """Resets in a new process, or one forked during an observed step."""
        self._put_back()
        self.due = FIRST_OBSERVED_STEP
        self.open = self.inside = False
        self.thread = self.observed_steps = self._calls = self._began = 0
        self._compiled = -1
        self._account: Any = None
        self._facts: RankFacts = {}
        self._sites: dict[Any, CopySite] = {}
        self._copies: dict[Any, CopySite] = {}

    def turn(self, step: int, account: Account, values: RankFacts) -> None:
        """Starts or ends an observation at the start of a due step. Results are written with the facts."""
        self._facts = values
        try:
            if self.open:
                self._close(step, values)
            else:
                self._open_if_quiet(step, account)
        except Exception:
            self.fail()

    def fail(self) -> None:
        """Stops observing after an error in this job."""
        self._put_back()
        self.open = False
        self.due = NEVER
        self._record_unobserved("failed")
        self._failed()

    def _open_if_quiet(self, step: int, account: Account) -> None:
        if self._device == "cuda" and not self._torch.cuda.is_initialized():
            self.due = NEVER
        elif "torch._dynamo.variables.tensor" not in sys.modules:
            self.due = step + max(1, step // 4)
            self._record_unobserved("dynamo")
        else:
            before, self._compiled = self._compiled, compiled_frames()
            if before == self._compiled:
                self._open(step, account)
            else:
                self.due = step + 1
                if before >= 0:
                    self._record_unobserved("compiling")

    def _record_unobserved(self, reason: str) -> None:
        """Records why no step was observed so far."""
        if not self.observed_steps:
            self._facts["syncs"] = {"looks": 0, "device": self._device, "sites": [], "unseen": reason}

    def _open(self, step: int, account: Account) -> None:
        torch = self._torch
        self.thread, self._account = account.thread, account
        self._calls, self._began = 0, step
        self.open, self.due = True, step + 1
        for name in (*WAITING, *COPYING):
            self._wrap(torch.Tensor, name)
        for owner, name in _SYNCHRONISING:
            self._wrap(getattr(torch.cuda, owner) if owner else torch.cuda, name)

    def _wrap(self, owner: Any, name: str) -> None:
        original = getattr(owner, name, None)
        if original is not None:
            self._undo.append(put(owner, name, Wrapper(owner, name, original, self)))

    def _put_back(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _close(self, step: int, values: RankFacts) -> None:
        self._put_back()
        self.open = False
        self.due = step + max(1, self._began // 4)
        self.observed_steps += max(1, step - self._began)
        values["syncs"] = {"looks": self.observed_steps, "device": self._device, "sites": _costliest(self._sites)}
        values["copies"] = _costliest(self._copies)

    # -- calls -----------------------------------------------------------------------------------------------------------------

    def called(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, took_ns: int) -> None:
        began = perf_counter_ns()
        if self._account.phase in (EVALUATION, CHECKPOINT):
            return
        with self._torch._C.DisableTorchFunction():  # calls no methods of user subclasses
            copied = self._copied(name, args, kwargs, result) if name in COPYING else None
            if copied is not None:
                self._note(self._copies, {"call": name, **copied}, took_ns, _bytes(result))
            elif name == "synchronize" or self._waits(name, args, kwargs, result):
                self._note(self._sites, {"call": name}, took_ns, 0)
        self._account.self_ns += perf_counter_ns() - began

    def _waits(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> bool:
        if name not in COPYING:
            return bool(args[0].device.type == self._device)
        source, target = _ends(name, args, kwargs, result)
        leaves = source.device.type == self._device and target.device.type == "cpu"
        return leaves and not _non_blocking(args, kwargs)

    def _copied(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> CopySite | None:
        """Properties of a host-to-device copy; None for other calls."""
        tensor, target = _ends(name, args, kwargs, result)
        on_cuda = self._device == "cuda"
        if tensor.device.type != "cpu" or target.device.type != self._device or self._device == "cpu":
            return None
        if on_cuda and (self._captures.under_way or self._torch.cuda.is_current_stream_capturing()):
            return None
        last = self._torch.channels_last
        return {
            "pinned": bool(tensor.is_pinned()),
            "non_blocking": _non_blocking(args, kwargs),
            "aside": on_cuda and self._aside(),
            "channels_last": result.is_contiguous(memory_format=last) if result.dim() == 4 else None,
        }

    def _aside(self) -> bool:
        """True if the copy is on another stream than the default one."""
        cuda = self._torch.cuda
        return bool(cuda.current_stream() != cuda.default_stream())

    def _note(self, notes: dict[Any, CopySite], about: CopySite, took_ns: int, size: int) -> None:
        self._calls += 1
        if self._calls > CALLS_MAX:
            self._put_back()
        frame, package = call_frames(2)
        place = (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)
        key = (place, tuple(about.items()))
        entry = notes.get(key)
        if entry is None:
            if len(notes) >= NAMED_MAX:
                return
            entry = notes[key] = {
                **about,
                "file": place[0],
                "line": place[1],
                "function": frame.f_code.co_name if frame is not None else "",
                "through": _through(package),
                "phase": PHASES[self._account.phase],
                "count": 0,
                "looks": 0,
                "blocked_ns": 0,
                "least_ns": took_ns,
                "bytes": 0,
            }
        if entry.get("step") != self._began:
            entry["step"] = self._began
            entry["looks"] += 1
        entry["count"] += 1
        entry["blocked_ns"] += took_ns
        entry["least_ns"] = min(entry["least_ns"], took_ns)
        entry["bytes"] += size


def _costliest(notes: dict[Any, CopySite]) -> list[CopySite]:
    """The notes, most blocked time first. Copies them, since the facts may be written during an observed step."""
    ordered = sorted(notes.values(), key=lambda entry: -entry["blocked_ns"])
    return [cast("CopySite", {name: value for name, value in entry.items() if name != "step"}) for entry in ordered]


def _through(package: FrameType | None) -> str:
    """The module of a library or of torch (such as the gradient scaler) between the user's line and the call; empty without one."""
    if package is not None:
        return str(package.f_globals.get("__name__", ""))
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_FOLDER):
        frame = frame.f_back
    name = str(frame.f_globals.get("__name__", "")) if frame is not None else ""
    return name if name.startswith("torch.") else ""


def _ends(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> tuple[Any, Any]:
    """Source and destination of a copy. `copy_` fills the tensor it is called on."""
    if name == "copy_":
        return (args[1] if len(args) > 1 else kwargs.get("src", result)), args[0]
    return args[0], result


def _non_blocking(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """The `non_blocking` argument of `to`, `cuda` and `copy_`, which is their first boolean."""
    positional = next((value for value in args[1:] if isinstance(value, bool)), False)
    return bool(kwargs.get("non_blocking", positional))


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())
