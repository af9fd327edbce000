"""Summarises a live rank's latest steps, from rows of its ring, to decide which rank to inspect and when."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from rn50_advisor.advisor.model.gpu.gpu_pace import long_backward, long_forward
from rn50_advisor.probes.rank.layout import (
    FLAG_BITS,
    FLAG_CLOCKED,
    FLAG_NO_LOADER,
    FLAG_TAIL,
    GPU_STEP_FIELDS,
    STEP_FIELDS,
)

Row = tuple[int, tuple[int, ...]]  # flags and fields of a ring record

_T_START, _T_END = STEP_FIELDS.index("t_start_ns"), STEP_FIELDS.index("t_end_ns")
_GAP, _CLIP, _FORWARD = (STEP_FIELDS.index(name) for name in ("gap_ns", "clip_ns", "forward_ns"))
_WAIT = STEP_FIELDS.index("input_wait_ns")
_EVALUATION, _CHECKPOINT = STEP_FIELDS.index("evaluation_ns"), STEP_FIELDS.index("checkpoint_ns")
_DELAY = STEP_FIELDS.index("run_delay_ns")
_BACKWARD = tuple(STEP_FIELDS.index(name) for name in ("backward_ns", "backward_cpu_ns"))
_COMPUTE = tuple(STEP_FIELDS.index(name) for name in ("forward_ns", "clip_ns", "optimizer_ns"))
_COMPUTE_CPU = tuple(STEP_FIELDS.index(name) for name in ("forward_cpu_ns", "optimizer_cpu_ns"))
_STREAM = tuple(
    GPU_STEP_FIELDS.index(f"{name}_ns") for name in ("input_wait", "forward", "backward", "optimizer", "gap")
)
_RECENT_STEPS = 256
_FIRST_STEPS = 3  # these compile, tune and allocate: ten times their length is no measure of a hang
_ENOUGH_STEPS = 10
_ENOUGH_CLOCKED = 3  # steps; two a second are clocked
_MODEL_PART_MIN = 0.1  # of the model's time; the least part from which the whole is extrapolated


@dataclass(slots=True)
class RecentSteps:
    """Sliding window over the steps of one rank. The oldest steps drop out."""

    steps: int = 0
    counted: int = 0  # of them, steps of which the rank noted only the boundaries; the rest of this window omits them
    step_ns: deque[int] = field(default_factory=lambda: deque(maxlen=_RECENT_STEPS))
    # gap and clip of the same steps
    outside_ns: deque[int] = field(default_factory=lambda: deque(maxlen=_RECENT_STEPS))
    wait_ns: deque[int] = field(default_factory=lambda: deque(maxlen=_RECENT_STEPS))  # input wait of the same steps
    # lengths without evaluation and checkpoints, without the first steps
    usual_ns: deque[int] = field(default_factory=lambda: deque(maxlen=_RECENT_STEPS))
    # forward and backward of the same steps; 0 for steps that no loader feeds
    model_ns: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_RECENT_STEPS))
    delay_ns: deque[int] = field(default_factory=lambda: deque(maxlen=_RECENT_STEPS))  # waiting for a core
    # for steps with CPU clocks: time off the CPU in forward and optimizer, in backward, and the share of forward and optimizer in all three
    off_cpu_ns: deque[tuple[int, int, float]] = field(default_factory=lambda: deque(maxlen=_RECENT_STEPS))
    # for steps with GPU events: idle share of the GPU's stream
    idle_shares: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT_STEPS))
    fed: bool = False  # a loader feeds the steps, so it is known where the model begins

    @property
    def outside_share(self) -> float:
        """Share of recent steps outside the model, where only stacks show the work."""
        total = sum(self.step_ns)
        return sum(self.outside_ns) / total if total else 0.0

    @property
    def wait_share(self) -> float:
        """Share of the time of recent steps spent waiting for input."""
        total = sum(self.step_ns)
        return sum(self.wait_ns) / total if total else 0.0

    def uneven_share(self, *, on_gpu: bool) -> float:
        """Share of recent steps by which the forward or backward pass is longer than the other one implies.

        On a GPU the host's backward time does not show the GPU's compute, so only the forward pass is checked.
        """
        total = sum(self.step_ns)
        if not total or not self.model_ns:
            return 0.0
        forward, backward = map(sum, zip(*self.model_ns, strict=True))
        return max(long_forward(forward, backward), 0.0 if on_gpu else long_backward(forward, backward)) / total

    @property
    def idle_share(self) -> float | None:
        """Median share of a step in which the GPU's stream was idle, for input or between steps; None if too few steps had events.

        The host's clocks cannot show this. A loop that reads a value of each step waits for the GPU between steps, which they count as time
        outside the model.
        """
        return median(self.idle_shares) if self.fed and len(self.idle_shares) >= _ENOUGH_STEPS else None

    def asleep_share(self, *, alone: bool) -> float:
        """Share of recent steps in which the model neither computed nor waited for a core; 0 while unknown.

        The backward counts only for a rank that trains `alone`. Other ranks wait for each other there, so the share of the rest is used.
        """
        total, seen = sum(self.step_ns), len(self.off_cpu_ns)
        if seen < _ENOUGH_CLOCKED or not total:
            return 0.0
        compute, backward, part = (sum(column) / seen for column in zip(*self.off_cpu_ns, strict=True))
        off_cpu: float = compute + backward if alone else compute / max(part, _MODEL_PART_MIN)
        return max(0.0, off_cpu - sum(self.delay_ns) / len(self.delay_ns)) * len(self.step_ns) / total

    @property
    def median_ns(self) -> int:
        """The median of recent steps; 0 without any."""
        return int(median(self.step_ns)) if self.step_ns else 0

    def p99_ns(self, *, whole: bool = False) -> int:
        """The 99th percentile of recent steps. `whole`: including their evaluations and checkpoints."""
        ordered = sorted(self.step_ns if whole or len(self.usual_ns) < _ENOUGH_STEPS else self.usual_ns)
        return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] if ordered else 0

    def add(self, rows: Iterable[Row]) -> None:
        for flags, payload in rows:
            if flags & FLAG_TAIL:
                continue
            more = flags >> FLAG_BITS
            self.steps += 1 + more
            if more:
                self.counted += 1 + more
                continue
            length_ns = payload[_T_END] - payload[_T_START]
            self.step_ns.append(length_ns)
            if self.steps > _FIRST_STEPS:
                self.usual_ns.append(length_ns - payload[_EVALUATION] - payload[_CHECKPOINT])
            # without a loader it is unknown where the fetch ends and the model begins until a stack shows it
            self.fed = not flags & FLAG_NO_LOADER
            unknown = payload[_FORWARD] if flags & FLAG_NO_LOADER else 0
            self.outside_ns.append(payload[_GAP] + payload[_CLIP] + unknown)
            self.model_ns.append((payload[_FORWARD] - unknown, 0 if unknown else payload[_BACKWARD[0]]))
            self.wait_ns.append(payload[_WAIT])
            self.delay_ns.append(payload[_DELAY])
            if flags & FLAG_CLOCKED:
                compute, cpu = sum(payload[n] for n in _COMPUTE), sum(payload[n] for n in _COMPUTE_CPU)
                backward, backward_cpu = (payload[n] for n in _BACKWARD)
                part = compute / max(1, compute + backward)
                self.off_cpu_ns.append((compute - cpu, backward - backward_cpu, part))

    def add_gpu(self, rows: Iterable[Row]) -> None:
        for _, payload in rows:
            spent = [payload[n] for n in _STREAM]
            if sum(spent) > 0:
                self.idle_shares.append((spent[0] + spent[-1]) / sum(spent))
