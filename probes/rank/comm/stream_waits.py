"""Times the compute stream's waits for collectives, with a GPU event before and one after each wait."""

from __future__ import annotations

from _thread import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..layout import PHASE_MASK
from ..ring import PHASE
from ..steps.step_phases import BACKWARD, CLIP, FORWARD, GAP, OPTIMIZER

if TYPE_CHECKING:
    from ..recorder import Recorder

    Wait = tuple[Any, int, int]  # event before it, phase, ns that recording it took

_PHASES = {FORWARD: 0, BACKWARD: 1, CLIP: 2, OPTIMIZER: 2}  # as in `GpuTimes.wait_ends`


class StreamWaits:
    """The waits of one step, if `GpuTimes.choose_waits` has chosen it.

    A collective on GPU tensors only queues work on a stream of its own and returns. The compute stream waits for it within the call, in
    `Work.wait`, or in `torch.cuda.Event.wait` (sharded parameters, DeepSpeed). In DistributedDataParallel's reducer it waits in C++,
    where nothing is timed.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def timed(self) -> bool:
        """True in a step whose waits are timed."""
        gpu = self._recorder.gpu
        return gpu is not None and gpu.times_waits and self._recorder.active

    def begin(self, stream: Any = None) -> Wait | None:
        """Records an event before the compute stream waits; `stream`: the one that waits. None outside the step's passes."""
        recorder = self._recorder
        account, gpu = recorder.account, recorder.gpu
        if account is None or account.ring is None or gpu is None:
            return None
        began, phase = perf_counter_ns(), account.ring.words[PHASE] & PHASE_MASK
        of = _PHASES.get(FORWARD if phase == GAP and not account.fetched else phase)
        # on CUDA the backward pass runs in autograd's thread while the training thread waits
        if of is None or not (phase == BACKWARD or get_ident() == account.thread):
            return None
        event = gpu.wait_begins(stream)
        return None if event is None else (event, of, perf_counter_ns() - began)

    def end(self, wait: Wait | None) -> None:
        """Records the event after the wait, and charges the cost of both to the recorder."""
        recorder = self._recorder
        account, gpu = recorder.account, recorder.gpu
        if wait is None or account is None or gpu is None:
            return
        began = perf_counter_ns()
        event, phase, took = wait
        gpu.wait_ends(event, phase)
        account.self_ns += took + perf_counter_ns() - began
