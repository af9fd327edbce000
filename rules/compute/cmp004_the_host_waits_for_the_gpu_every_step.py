"""The host waits for the GPU every step.

What it does: finds calls in each step that wait until the GPU is done: `.item()`, `.cpu()`, `print(tensor)`, `float(loss)`, a comparison of
a tensor, `synchronize`.

Why it is slow: PyTorch queues work for the GPU and runs ahead. A value that is read back makes the host wait for all of it, and then the
GPU for the host: while the next batch is fetched and the first kernels are launched it has nothing to do.

Evidence: in some steps, ever more rarely, the recorder times these calls and notes their lines; CUDA events tell how long the GPU idled
between steps: at most what the host spends there, and what NVML saw without any kernel. A deep window tells how long it idled after waits.

Fix: read the value every so many steps, and keep sums on the device until then.

Estimate: the GPU's idle time between steps, as far as the host was held that long: with it free, that time passes behind compute. A wait
gives back no more than it took: what the host does after it, it does without it too.

False alarms: the one wait at a log line is not in each step. Waiting that the GPU's compute covers costs nothing and is no finding. The
gradient scaler asks for infinities once a step by itself: it is told as such, with what avoids it.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.gpu.gpu_pace import Wait
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.compute.compute_cost import AMPERE, SCALER, fused_form, hidden_s, if_not_held
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_SHOWN = 3
_LOOKS_MIN = 3  # steps looked at: fewer may have met the log line by chance, or missed what is in each other step
_LEAST = 0.25  # of the expected gain, should the host be held by something else then


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    step, looks, calls = a.value("step.time_s"), a.by_rank("sync.looks"), a.by_rank("sync.calls")
    if max(looks.values()) < _LOOKS_MIN:
        return NotMeasured(RULE.id, ("sync.looks",))
    ranks = [rank for rank in calls if looks[rank] >= _LOOKS_MIN and calls[rank] >= t["calls"]]
    hidden = {rank: hidden_s(a, rank, a.get("sync.blocked_s", rank) or 0.0) for rank in ranks}
    hidden = {rank: max(seconds, _by_kernels(a, rank)) for rank, seconds in hidden.items()}
    if not hidden:
        return Clear(RULE.id)
    after = if_not_held(a, hidden, hopeful=False)
    level = severity((step - after) / step)
    if step - after < t["cost"] * step or level is None:
        return Clear(RULE.id)
    rank = max(hidden, key=lambda r: hidden[r])
    waits = [wait for wait in a.habits.waits if wait.rank == rank]
    model = model_of(a)
    return Finding(
        rule=RULE.id,
        title="The host waits for the GPU in each step, and the GPU for the host after it",
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=step - after,
        scope=Affected(ranks=() if len(ranks) == a.world_size else tuple(ranks)),
        evidence=(
            Evidence("sync.calls", calls[rank], "calls", t["calls"], _told(waits) or "in each step"),
            Evidence(
                "sync.blocked_s",
                a.get("sync.blocked_s", rank) or 0.0,
                "s",
                None,
                f"the host's time in them, in {looks[rank]:.0f} steps that were looked at",
            ),
            Evidence(
                "idle after waits",
                hidden[rank],
                "s",
                t["cost"] * step,
                f"the GPU had nothing to do between steps: {100 * hidden[rank] / step:.0f} % of a {1000 * step:.0f} ms step",
            ),
        ),
        fixes=tuple(_fix(a, wait) for wait in waits[:_SHOWN]) or (Fix("read values back every 50 steps only"),),
        saving=model.saving(
            after,
            step - _LEAST * (step - after),
            "what the GPU idles between steps passes behind compute, as far as the host was held",
        ),
    )


def _by_kernels(a: Analysis, rank: int) -> float:
    """What a deep window saw idle after the host had waited, as far as it was held."""
    idle = (a.get("kernel.idle_sync_share", rank) or 0.0) * a.value("step.time_s")
    return min(idle, a.get("kernel.sync_s", rank) or 0.0)


def _told(waits: list[Wait]) -> str:
    """`.item() at train.py:88 (12.3 ms), printing a tensor at …`."""
    told = [
        f"{wait.words} at {wait.file.rpartition('/')[2]}:{wait.line} ({1000 * wait.blocked_s:.1f} ms)" for wait in waits
    ]
    more = len(told) - _SHOWN
    return ", ".join(told[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _fix(a: Analysis, wait: Wait) -> Fix:
    where = Where(wait.file, wait.line) if wait.file else None
    if wait.through.startswith(SCALER):
        return Fix("spare the gradient scaler its question", _without_question(a, wait.rank), where, "one line")
    if wait.call == "synchronize":
        return Fix("no synchronize() in each step: events tell times without it", "", where, "one line")
    change = "keep loss.detach() in a sum on the device, and read that every 50 steps"
    return Fix(f"no {wait.words} in each step", change, where, "small change")


def _without_question(a: Analysis, rank: int) -> str:
    name, capability = fused_form(a, rank), a.get("precision.capability", rank)
    ways = [f"{name}(..., fused=True), which is told on the device"] if name else []
    if capability is None or capability >= AMPERE:
        ways.append("bfloat16, which needs no scaler")
    return (
        "; or ".join(ways) or "none for this optimizer; Adam and AdamW have a fused form, which is told on the device"
    )


RULE = rule(
    __name__,
    "the host waits for the GPU every step",
    check,
    needs=("step.time_s", "sync.looks", "sync.calls", "gpu.idle_gap_s"),
    explains=("LOP002", "LOP004", "CMP003", "CMP008"),
    thresholds={
        "calls": Threshold(0.5, "calls a step, at places that wait in most steps"),
        "cost": Threshold(0.02, "of the step: severity 'low' begins here"),
    },
)
