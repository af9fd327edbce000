"""GIL contention.

What it does: finds ranks whose training thread waits for Python's interpreter while another thread of the same process
holds it: a thread that formats metrics, a custom prefetcher, a monitor in a loop.

Fires when: the training thread waits for Python's interpreter in ≥ 5 % of its samples, and by more than three standard errors.

Why it is slow: only one thread of a process runs Python at a time (the GIL). A training step releases and takes the
interpreter at each of its hundreds of operations, and a thread that never sleeps releases it only 5 ms after it is
asked to. Measured: a loop over json while a step ran 250 small operations turned a step of 6 ms into one of 25 ms to 5
s.

Evidence: samples of the kernel's wait state of the training thread, in which the interpreter's own lock differs from
every other wait; and stacks of all threads at such times, which show the thread that held the interpreter and its
line of user code. No samples are taken if the CPU clocks of the steps leave no time unexplained.

Fix: move that work to a process of its own (`multiprocessing`) or to code that releases the interpreter; do less of it,
less often. `sys.setswitchinterval` is not a fix: it makes each wait shorter and both threads slower.

Estimate: the step without that share of it, plus or minus two standard errors of the samples. At best the rest of the
step shrinks too: a thread that has waited must be woken and finds its caches cold. At worst half of the gain, if the
ranks leave no core for the work.

False alarms: a thread that decodes images, reads or waits has released the interpreter, and nothing waits for it. Waits
for a GPU, for other ranks or for compute threads are different waits. The cores that a thread uses are not counted
here.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.gpu.gpu_pace import Holder
from rn50_advisor.advisor.model.measures.host_measures import CPU_ALLOWED_CORES
from rn50_advisor.advisor.model.measures.step_measures import (
    INTERPRETER_ERROR,
    INTERPRETER_LOST_S,
    INTERPRETER_WAITING_SHARE,
    STEP_ASLEEP_S,
    STEP_TIME_S,
)
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.loop.between_steps import on_ranks
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_STANDARD_ERRORS = 2.0
# Minimum remaining share of a step: a thread found waiting in all samples would otherwise need no time at all.
_STEP_LEFT_MIN = 0.005
# Remaining share of the rest of the step at best: a waiting thread must be woken and finds cold caches. Measured: 0.70 to 0.78 in one
# process, whose thread worked a fifth and half of the time.
_REST_LEFT_BEST = 0.7
# Share of the gain that is lost at worst if no core is left for the work in its own process. Measured for two ranks
# on two cores: steps got 1.11 times faster with the same work in a process of its own, 1.7 times without it.
_CROWDED_COST_SHARE = 0.5


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    step, shares = a.value(STEP_TIME_S), a.by_rank(INTERPRETER_WAITING_SHARE)
    errors = {rank: a.get(INTERPRETER_ERROR, rank) or 0.0 for rank in shares}
    unknown = [rank for rank, s in a.by_rank(STEP_ASLEEP_S).items() if s >= t["waiting"] * step and rank not in shares]
    held = tuple(rank for rank, share in shares.items() if share >= t["waiting"] and share >= t["sure"] * errors[rank])
    model = model_of(a)
    expected = _without(a, held)
    level = severity((step - expected) / step)
    if not held or level is None:
        return NotMeasured(RULE.id, (INTERPRETER_WAITING_SHARE,)) if unknown and not held else Clear(RULE.id)
    best, worst = (
        _without(a, held, errors=_STANDARD_ERRORS, rest=_REST_LEFT_BEST),
        _without(a, held, errors=-_STANDARD_ERRORS),
    )
    if _crowded(a, held):
        worst = expected + _CROWDED_COST_SHARE * (step - expected) + (worst - expected)
    most = max(held, key=lambda rank: shares[rank])
    whose = held if len(held) < len(model.own) else ()
    found = next((h for h in a.holders if h.rank == most), None) or next((h for h in a.holders if h.rank in held), None)
    return Finding(
        rule=RULE.id,
        title="GIL contention: another thread holds the interpreter" + on_ranks(whose),
        severity=level,
        confidence=confidence(a, cap=0.95 if found else 0.85),
        seconds_per_step=step - expected,
        scope=Affected(ranks=whose),
        evidence=_evidence(a, t, most, found),
        fixes=_fixes(found),
        saving=model.saving(model.at_best(best), worst, "no wait for the GIL, within the sampling error"),
    )


def _crowded(a: Analysis, held: tuple[int, ...]) -> bool:
    """True if no core is left for these ranks' other threads once each training thread has its own."""
    cores, threads = a.get(CPU_ALLOWED_CORES), a.of_host(dict.fromkeys(held, 1.0))
    return cores is not None and cores < a.ranks_of_host + len(threads)


def _without(a: Analysis, ranks: tuple[int, ...], *, errors: float = 0.0, rest: float = 1.0) -> float:
    """Step time without these waits: their share is moved by `errors` standard errors, and `rest` of the other step time is left."""
    model = model_of(a)
    changes: dict[tuple[int, str], float] = {}
    if rest < 1.0 and _crowded(a, tuple(ranks)):  # they shared cores with these ranks
        changes = {(rank, phase): rest * s for rank, own in model.own.items() for phase, s in own.items()}
    for rank in ranks:
        share, own = a.value(INTERPRETER_WAITING_SHARE, rank), model.own_s(rank)
        found = max(0.0, share + errors * (a.get(INTERPRETER_ERROR, rank) or 0.0)) / max(share, 1e-9)
        lost = found * (a.get(INTERPRETER_LOST_S, rank) or 0.0)
        keep = rest * max(_STEP_LEFT_MIN, 1.0 - lost / own) if own > 0 else 1.0
        changes |= {(rank, phase): seconds * keep for phase, seconds in model.own[rank].items()}
    return model.step_if(changes)


def _evidence(a: Analysis, t: Thresholds, rank: int, found: Holder | None) -> tuple[Evidence, ...]:
    step, share = a.value(STEP_TIME_S), a.value(INTERPRETER_WAITING_SHARE, rank)
    error, lost_s = a.get(INTERPRETER_ERROR, rank) or 0.0, a.get(INTERPRETER_LOST_S, rank) or 0.0
    note = f"of the samples of rank {rank}'s training thread wait for the GIL (± {100 * error:.0f} %)"
    evidence = [Evidence.of(INTERPRETER_WAITING_SHARE, share, t["waiting"], note, form="continues")]
    if found is not None:
        where = f" at {found.where.file}:{found.where.line}" if found.where else ""
        note = f"{found.thread or 'a thread'} had it, in {found.function or 'code that is not Python'}{where}"
        evidence.append(Evidence("stacks", f"{found.times} of {found.samples}", "", None, note))
    evidence.append(
        Evidence.of(
            INTERPRETER_LOST_S,
            lost_s,
            t["waiting"] * step,
            f"of a {duration(step)} step, on rank {rank}",
            form="continues",
        )
    )
    return tuple(evidence)


def _fixes(found: Holder | None) -> tuple[Fix, ...]:
    what = f"what {found.function} does" if found and found.function else "what the other thread does"
    return (
        Fix(
            f"move {what} to a separate process",
            "multiprocessing.Process(target=..., daemon=True), fed by a multiprocessing.Queue; sys.setswitchinterval does not help",
            found.where if found else None,
            "small change",
        ),
        Fix(
            "run it less often, or let the thread sleep between iterations",
            "",
            found.where if found else None,
            "one line",
        ),
    )


RULE = rule(
    __name__,
    "GIL contention",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "waiting": Threshold(
            0.05, "severity 'medium' begins at 5 % of the step; a thread that is busy for less cannot cost more"
        ),
        "sure": Threshold(3.0, "standard errors: by chance a sound job shows this many waits less than once a year"),
    },
)
