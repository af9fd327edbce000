"""Marks replays of CUDA graphs that contain a whole backward pass or an update: for the account they are that pass, or that update.

What such a graph does within is one launch: its whole time on the GPU is that of the backward pass. Graphs of parts of a pass (inductor's,
`make_graphed_callables`) contain no call of `torch.autograd.backward` and are left alone.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from ..hidden_frames import hide_frame, wraps
from .wrappers import quietly

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from ..recorder import Recorder


def mark_replays(torch: Any, recorder: Recorder) -> list[Any]:
    """Wraps captures and replays of `torch.cuda.CUDAGraph`. Returns the wrappers."""
    kind = torch.cuda.CUDAGraph
    graphs = StepGraphs(recorder)
    begin, end, replay = kind.capture_begin, kind.capture_end, kind.replay

    @wraps(begin)
    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        if recorder.active:
            quietly(recorder, graphs.begins, self)
        try:
            return begin(self, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    @wraps(end)
    def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            result = end(self, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        if recorder.active:
            quietly(recorder, graphs.ends, self)
        return result

    @wraps(replay)
    def replayed(self: Any, *args: Any, **kwargs: Any) -> Any:
        known = graphs.known
        begun = quietly(recorder, graphs.replay_begins, self) if known and recorder.active else None
        try:
            return replay(self, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            if begun is not None:
                quietly(recorder, graphs.replay_ends, begun)

    kind.capture_begin, kind.capture_end, kind.replay = capture_begin, capture_end, replayed
    return [capture_begin, capture_end, replayed]


class StepGraphs:
    """`known`: by graph, whether it contains a backward pass, and the optimizer whose update it contains."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._begun: MutableMapping[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
        self.known: MutableMapping[Any, tuple[bool, Any]] = weakref.WeakKeyDictionary()

    def begins(self, graph: Any) -> None:
        account = self._recorder.own_account()
        self.known.pop(graph, None)
        if account is not None and account.ring is not None:
            self._begun[graph] = account.backwards, account.optimizers
            self._recorder.passes.captured_update = None

    def ends(self, graph: Any) -> None:
        before, account = self._begun.pop(graph, None), self._recorder.own_account()
        if before is None or account is None:
            return
        updates = self._recorder.passes.captured_update if account.optimizers > before[1] else None
        if account.backwards > before[0] or updates is not None:
            self.known[graph] = account.backwards > before[0], updates

    def replay_begins(self, graph: Any) -> tuple[Any, Any] | None:
        """Begins the backward pass, if there is one. Returns its account, and the optimizer."""
        found, recorder = self.known.get(graph), self._recorder
        if found is None or recorder.own_account() is None:
            return None
        passes, updates = found
        if passes:
            recorder.facts.values["replayed_steps"] = True
        return recorder.passes.backward_begin() if passes else None, None if updates is None else updates()

    def replay_ends(self, begun: tuple[Any, Any]) -> None:
        account, optimizer = begun
        if account is not None:
            self._recorder.passes.backward_end(account)
        if optimizer is not None:
            self._recorder.passes.optimizer_begin(optimizer)
            self._recorder.passes.optimizer_end(optimizer)
