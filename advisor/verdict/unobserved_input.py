"""The verdict on jobs whose input or training was not observed: what was not observed is neither blamed nor called healthy."""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.advisor.model.input.input_source import FeedSamples, InputSource
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_UTIL_SHARE
from rn50_advisor.advisor.model.measures.host_measures import (
    CPU_ALLOWED_CORES,
    CPU_HOST_BUSY_CORES,
    CPU_HOST_CORES,
    CPU_JOB_CORES,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_INPUT_WAIT_S, STEP_TIME_S
from rn50_advisor.advisor.model.measures.storage_measures import STORAGE_BUSY_SHARE
from rn50_advisor.advisor.model.report import Verdict
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.model.wording.quantities import counted

# Share of the step from which a finding is worth fixing, as with the input rules.
_WORTH_FIXING_SHARE = 0.05
_EXHAUSTED_SHARE = 0.85  # of the allowed cores, as in DAT001
_DISK_BUSY = 0.80  # above this, requests queue
_GPU_IDLE = 0.80
# Share of the time since the first step: with this much unobserved, the recorded steps do not represent the run.
_UNOBSERVED_SHARE_MIN = 0.5
# Inference or an upload after the training cannot be distinguished from training without fetches. A warm-up before a replayed CUDA graph
# has about a dozen steps, a manual timing a few tens, and the unobserved work after it takes many times as long.
_STEPS_MIN = 50
_UNOBSERVED_AFTER_SHARE_MIN = 0.8
_HIDDEN_WORK = "a replayed CUDA graph, torch.autograd.grad, and a loop in C++ or in another process cannot be observed"
_HINT = (
    "To make it visible, train for some minutes with Tensor.backward() and without the graph; to mark it as an evaluation, "
    "fetch under torch.no_grad()"
)


def unobserved_training(analysis: Analysis) -> Verdict | None:
    """Returns the verdict of a run whose observed steps are the smaller part of its work; otherwise None."""
    c = analysis.coverage
    if c is None or c.unseen_s + c.after_s < _UNOBSERVED_SHARE_MIN * c.total_s:
        return None
    total = f"the {fmt.duration(c.total_s)} since training began"
    observed = f"the {counted(c.steps, 'observed step')} took {fmt.duration(c.seen_s)} of {total}"
    if c.unseen_s >= _UNOBSERVED_SHARE_MIN * c.total_s:
        text = (
            f"{c.unseen_batches} batches were fetched but not seen in training: no backward pass followed, and nothing shows that they "
            f"were evaluated; {observed}. What they were used for is not known: {_HIDDEN_WORK}. {_HINT}."
        )
        return Verdict("inconclusive", None, "Most of the training was not observed", text)
    if c.steps >= _STEPS_MIN or c.unseen_s + c.after_s < _UNOBSERVED_AFTER_SHARE_MIN * c.total_s:
        return None
    unknown = fmt.duration(c.after_s + c.unseen_s)
    text = f"For {unknown} no training, evaluation or checkpoint was seen; {observed}. What was done is not known: {_HIDDEN_WORK}. {_HINT}."
    return Verdict("inconclusive", None, "Most of what the job did was not observed", text)


def speaks_for(analysis: Analysis) -> str:
    """Returns a sentence for a verdict that covers only the smaller part of the run; otherwise empty."""
    c = analysis.coverage
    if c is None or c.unseen_s + c.after_s < _UNOBSERVED_SHARE_MIN * c.total_s:
        return ""
    return (
        f" This covers {counted(c.steps, 'step')} in {fmt.duration(c.seen_s)}; in {fmt.duration(c.unseen_s + c.after_s)} more "
        "no backward pass was seen."
    )


def unobserved_input(analysis: Analysis) -> Verdict | None:
    """Returns the verdict of a run whose input was not observed; None if other measurements show that input hardly matters."""
    feed = analysis.feed
    if feed is None or analysis.model is None:
        return None
    return _timed(analysis, feed) if feed.measured else _untimed(analysis, feed)


def input_is_unknown(analysis: Analysis) -> str:
    """Returns a sentence for a verdict without a measured input wait; empty if it was measured."""
    feed = analysis.feed
    return "" if feed is None or feed.measured else f" How long it waits for input is not measured: {feed.why_unknown}."


def _timed(a: Analysis, feed: InputSource) -> Verdict | None:
    step, waits = a.value(STEP_TIME_S), a.by_rank(STEP_INPUT_WAIT_S)
    wait = max(waits.values(), default=0.0)
    if wait < _WORTH_FIXING_SHARE * step:
        return None
    text = (
        f"{fmt.share(wait / step)} of a {fmt.duration(step)} step waits for batches of {feed.library}{_at(feed.where)}"
    )
    summary = f"{text}; how it makes them is not observed. {_host(a)}".strip()
    return Verdict("inconclusive", None, f"The loop waits for {feed.library}", summary)


def _untimed(a: Analysis, feed: InputSource) -> Verdict | None:
    step = a.value(STEP_TIME_S)
    if feed.samples is not None:
        share = feed.chunk_s / step
        if (1.0 - feed.samples.model) * share < _WORTH_FIXING_SHARE:
            return None
        text = (
            f"{fmt.share(share)} of a {fmt.duration(step)} step passes between the optimizer and the backward pass; "
            f"{feed.samples.count} stack samples found it {_found(feed.samples)}"
        )
        summary = f"{text}.{input_is_unknown(a)} {_host(a)}".strip()
        return Verdict("inconclusive", None, _title(feed.samples, share), summary)
    if feed.blocked_s is not None and feed.blocked_s < _WORTH_FIXING_SHARE * step:
        return None
    blocked = ""
    if feed.blocked_s is not None:
        share = feed.blocked_s / step
        blocked = f"{fmt.share(share)} of a {fmt.duration(step)} step is neither computing nor waiting for a core."
    summary = f"{blocked}{input_is_unknown(a)} {_host(a)}".strip()
    return Verdict("inconclusive", None, "How long the loop waits for input is unknown", summary)


def _found(samples: FeedSamples) -> str:
    parts = (
        (samples.fetching, f"in {samples.library}"),
        (samples.waiting, "waiting for another thread, a process or a file"),
        (samples.elsewhere, "elsewhere in the loop"),
        (samples.model, "in the model"),
    )
    text = ", ".join(f"{fmt.share(part)} {what}" for part, what in parts if part > 0)
    return f"{text}{', mostly' if samples.where else ''}{_at(samples.where)}"


def _title(samples: FeedSamples, share: float) -> str:
    if samples.fetching * share >= _WORTH_FIXING_SHARE and samples.fetching >= samples.waiting:
        return f"The loop spends its time in {samples.library}"
    if samples.waiting * share >= _WORTH_FIXING_SHARE:
        return "The loop waits for something that is not the model"
    return "The loop does other work before the backward pass"


def _at(where: Where | None) -> str:
    return f" at {where.file}:{where.line}" if where is not None else ""


def _host(a: Analysis) -> str:
    """Describes the state of the machine during the steps, as far as known."""
    found = []
    job, allowed, busy = a.get(CPU_JOB_CORES), a.get(CPU_ALLOWED_CORES), a.get(CPU_HOST_BUSY_CORES)
    if allowed and (job is not None or busy is not None):
        # other processes on cores beyond the job's quota or affinity take nothing from the job
        beyond = max(0.0, (a.get(CPU_HOST_CORES) or 0.0) - allowed)
        most = min(allowed, max(job or 0.0, (busy or 0.0) - beyond))
        exhausted = ": the CPUs are exhausted" if most >= _EXHAUSTED_SHARE * allowed else ""
        own = "" if job is None else f", {job:.1f} by this job"
        found.append(f"{most:.1f} of {allowed:.3g} allowed cores were busy{own}{exhausted}")
    busy_share = a.get(STORAGE_BUSY_SHARE)
    if a.storage is not None and busy_share is not None and busy_share >= _DISK_BUSY:
        found.append(f"the disk of its data ({a.storage.words}) was busy {fmt.share(busy_share)} of the time")
    resident = {gpu.index: a.of_gpu(GPU_UTIL_SHARE, gpu.index) for gpu in a.gpu_view.devices}
    idle = {index: share for index, share in resident.items() if share is not None and share < _GPU_IDLE}
    if idle:
        least = min(idle, key=lambda index: idle[index])
        found.append(f"GPU {least} was busy {fmt.share(idle[least])} of the time")
    return f"Meanwhile {', '.join(found)}." if found else ""
