"""Host-device synchronization in every step.

What it does: finds calls in each step that wait until the GPU is done: `.item()`, `.cpu()`, `print(tensor)`,
`float(loss)`, a comparison of a tensor, `synchronize`.

Fires when: `.item()`, `.cpu()`, printing and the like in most steps take ≥ 2 % of the step; names the line.

Why it is slow: PyTorch queues work for the GPU and runs ahead. Reading a value back makes the host wait for all queued
work, and then the GPU wait for the host: it has nothing to do while the host fetches the next batch and launches the
first kernels.

Evidence: in some steps, at growing intervals, the recorder times these calls and records their lines. CUDA events show how
long the GPU idled between steps: at most the time that the host spends there, and at most the time without any kernel
that NVML saw. A profiler window (`--deep`) shows how long the GPU idled after such waits.

Fix: read the value only every N steps, and accumulate on the device until then.

Estimate: the GPU's idle time between steps, up to the time for which the host was blocked: with the host free, that
time overlaps with compute. At best also the time between launches in passes that the GPU then runs at the host's pace.
A wait gains no more than its own length: the work that the host does after it remains.

False alarms: a single wait at a log line is not in every step. Waiting that the GPU's compute covers costs nothing and
is not a finding. The gradient scaler reads its check for infinities once a step: it is reported under its own name,
with a way to avoid it.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.gpu.gpu_pace import Wait
from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_IDLE_GAP_S
from rn50_advisor.advisor.model.measures.kernel_measures import KERNEL_IDLE_SYNC_SHARE, KERNEL_SYNC_S
from rn50_advisor.advisor.model.measures.pace_measures import (
    PRECISION_CAPABILITY,
    SYNC_BLOCKED_S,
    SYNC_CALLS,
    SYNC_LOOKS,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.compute.compute_cost import AMPERE, SCALER, fused_form, hidden_s, if_not_held, restarting_s
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_PLACES_SHOWN = 3
_SAMPLED_STEPS_MIN = 3  # sampled steps: fewer may hit the log line by chance, or miss a call in every other step
_GAIN_SHARE_MIN = 0.25  # of the expected gain, if something else then blocks the host


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    step, sampled, calls = a.value(STEP_TIME_S), a.by_rank(SYNC_LOOKS), a.by_rank(SYNC_CALLS)
    if max(sampled.values()) < _SAMPLED_STEPS_MIN:
        return NotMeasured(RULE.id, (SYNC_LOOKS,))
    ranks = [rank for rank in calls if sampled[rank] >= _SAMPLED_STEPS_MIN and calls[rank] >= t["calls"]]
    hidden = {rank: hidden_s(a, rank, a.get(SYNC_BLOCKED_S, rank) or 0.0) for rank in ranks}
    hidden = {rank: max(seconds, _by_kernels(a, rank)) for rank, seconds in hidden.items()}
    if not hidden:
        return Clear(RULE.id)
    blocked = {rank: a.get(SYNC_BLOCKED_S, rank) or 0.0 for rank in hidden}
    behind = {rank: restarting_s(a, rank, blocked[rank] - seconds) for rank, seconds in hidden.items()}
    sure = if_not_held(a, hidden, hopeful=False)
    best = if_not_held(a, hidden, hopeful=False, launching=behind)
    after = (sure + best) / 2
    level = severity((step - after) / step)
    if step - after < t["cost"] * step or level is None:
        return Clear(RULE.id)
    rank = max(hidden, key=lambda r: hidden[r])
    waits = [wait for wait in a.call_sites.waits if wait.rank == rank]
    model = model_of(a)
    return Finding(
        rule=RULE.id,
        title="Host-device synchronization in every step",
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=step - after,
        scope=Affected(ranks=() if len(ranks) == a.world_size else tuple(ranks)),
        evidence=(
            _calls(calls[rank], t["calls"], waits),
            Evidence.of(
                SYNC_BLOCKED_S,
                a.get(SYNC_BLOCKED_S, rank) or 0.0,
                note=f"per step, over {sampled[rank]:.0f} sampled steps",
            ),
            _idle(hidden[rank], behind[rank], t["cost"], step),
        ),
        fixes=tuple(_fix(a, wait) for wait in waits[:_PLACES_SHOWN]) or (Fix("read values back only every 50 steps"),),
        saving=model.saving(
            best,
            step - _GAIN_SHARE_MIN * (step - sure),
            "no GPU idle time while the host is blocked",
        ),
    )


def _idle(between_s: float, behind_s: float, cost: float, step: float) -> Evidence:
    """Evidence of the idle time: that between steps, and half of what the launches after a wait may take the GPU."""
    idle = between_s + behind_s / 2
    note = f"GPU idle between steps: {100 * idle / step:.0f} % of a {duration(step)} step"
    if behind_s > between_s:
        note = f"between steps, and up to {duration(behind_s)} in which the host launches what the GPU runs at once"
    return Evidence("idle after waits", idle, "s", cost * step, note)


def _by_kernels(a: Analysis, rank: int) -> float:
    """GPU idle time after the host's waits in a profiler window, up to the length of these waits."""
    idle = (a.get(KERNEL_IDLE_SYNC_SHARE, rank) or 0.0) * a.value(STEP_TIME_S)
    return min(idle, a.get(KERNEL_SYNC_S, rank) or 0.0)


def _calls(calls: float, threshold: float, waits: list[Wait]) -> Evidence:
    places = _places(waits)
    return Evidence.of(SYNC_CALLS, calls, threshold, places or "in each step", form="alone" if places else "explains")


def _places(waits: list[Wait]) -> str:
    """`.item() at train.py:88 (12.3 ms), printing a tensor at …`; no place from a trace without stacks."""
    places = [
        wait.words
        + (f" at {wait.file.rpartition('/')[2]}:{wait.line}" if wait.file else "")
        + f" ({duration(wait.blocked_s)})"
        for wait in waits
    ]
    more = len(places) - _PLACES_SHOWN
    return ", ".join(places[:_PLACES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _fix(a: Analysis, wait: Wait) -> Fix:
    where = Where(wait.file, wait.line) if wait.file else None
    if wait.through.startswith(SCALER):
        return _without_scaler_wait(a, wait.rank, where)
    if wait.call == "synchronize":
        return Fix("no synchronize() in each step: time with CUDA events instead", "", where, "one line")
    change = "accumulate loss.detach() on the device, and read the sum every 50 steps"
    return Fix(f"no {wait.words} in each step", change, where, "small change")


def _without_scaler_wait(a: Analysis, rank: int, where: Where | None) -> Fix:
    title, name, capability = (
        "avoid the gradient scaler's wait for its check",
        fused_form(a, rank),
        a.get(PRECISION_CAPABILITY, rank),
    )
    half = "bfloat16, which needs no scaler" if capability is None or capability >= AMPERE else ""
    if name:
        more = ", which checks for infinities on the device" + (f"; or {half}" if half else "")
        return Fix.of(title, CallChange.of(name, fused=True), where, "one line", more=more)
    none = "none for this optimizer; Adam and AdamW have a fused form, which checks on the device"
    return Fix(title, half or none, where, "one line")


RULE = rule(
    __name__,
    "Host-device synchronization in every step",
    check,
    needs=(STEP_TIME_S, SYNC_LOOKS, SYNC_CALLS, GPU_IDLE_GAP_S),
    thresholds={
        "calls": Threshold(0.5, "calls a step, at places that wait in most steps"),
        "cost": Threshold(0.02, "of the step: severity 'low' begins here"),
    },
    traced=True,
)
