"""Another thread holds the interpreter.

What it does: finds ranks whose training thread waits for Python's interpreter while another thread of the same process has it: metrics that
are put into words, a home-made prefetcher, a monitor in a loop.

Why it is slow: only one thread of a process runs Python at a time (the GIL). A training step gives the interpreter up and takes it back at
each of its hundreds of operations, and a thread that never sleeps lets go only when it has been asked for 5 ms. Measured: a loop over json
beside 250 small operations made a step of 6 ms one of 25 ms to 5 s.

Evidence: looks at what the training thread sleeps in, as the kernel tells it: the interpreter's own lock is told from every other wait. And
stacks of all threads at such moments: who had the interpreter, and where in the user's code. Nobody looks where the CPU clocks of the steps
leave no time unexplained.

Fix: that work in a process of its own (`multiprocessing`), or in code that lets go of the interpreter; less of it, less often.
`sys.setswitchinterval` is no cure: it makes each wait shorter and both threads slower.

Estimate: the step without that share of it, give or take two standard errors of the looks. At best the rest is shorter, too: who has
waited must be woken and finds its caches cold. At worst half of that where the ranks leave no core for the work.

False alarms: a thread that decodes pictures, reads or waits has let go of the interpreter, and nobody waits for it. Waits for a GPU,
for other ranks or for compute threads are none of these. What a thread costs by using cores is not counted here.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.gpu.gpu_pace import Holder
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.loop.between_steps import on_ranks
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity
from rn50_advisor.rules.stragglers import slows_the_wire

_TWO_SIDED = 2.0  # standard errors
# Of a step, what is left at best: found waiting in all looks, a thread would else need no time at all.
_LEFT = 0.005
# Of the rest of the step, what is left at best: who has waited must be woken and finds its caches cold. Measured: 0.70 to 0.78 of it in one
# process, whose thread worked a fifth and half of the time.
_REST_KEEPS = 0.7
# Where no core is left for the work once it is done beside the training, what of the gain that takes back at worst. Measured of two ranks
# on two cores: steps got 1.11 times faster with the same work in a process of its own, 1.7 times without it.
_CROWDED_COSTS = 0.5


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    step, shares = a.value("step.time_s"), a.by_rank("interpreter.waiting_share")
    errors = {rank: a.get("interpreter.error", rank) or 0.0 for rank in shares}
    unseen = [rank for rank, s in a.by_rank("step.asleep_s").items() if s >= t["waiting"] * step and rank not in shares]
    held = tuple(rank for rank, share in shares.items() if share >= t["waiting"] and share >= t["sure"] * errors[rank])
    model = model_of(a)
    expected = _without(a, held)
    level = severity((step - expected) / step)
    if not held or level is None:
        return NotMeasured(RULE.id, ("interpreter.waiting_share",)) if unseen and not held else Clear(RULE.id)
    best, worst = _without(a, held, errors=_TWO_SIDED, rest=_REST_KEEPS), _without(a, held, errors=-_TWO_SIDED)
    if _crowded(a, held):
        worst = expected + _CROWDED_COSTS * (step - expected) + (worst - expected)
    most = max(held, key=lambda rank: shares[rank])
    whose = held if len(held) < len(model.own) else ()
    found = next((h for h in a.holders if h.rank == most), None) or next((h for h in a.holders if h.rank in held), None)
    return Finding(
        rule=RULE.id,
        title="Another thread holds the interpreter" + on_ranks(whose),
        severity=level,
        confidence=confidence(a, cap=0.95 if found else 0.85),
        seconds_per_step=step - expected,
        explains=slows_the_wire(a, step - expected),
        scope=Affected(ranks=whose),
        evidence=_evidence(a, t, most, found),
        fixes=_fixes(found),
        saving=model.saving(model.at_best(best), worst, "no waiting for the interpreter, by the looks and their error"),
    )


def _crowded(a: Analysis, held: tuple[int, ...]) -> bool:
    """No core is left for what these ranks' threads do, once each rank's training thread has its own."""
    cores, threads = a.get("cpu.allowed_cores"), a.of_host(dict.fromkeys(held, 1.0))
    return cores is not None and cores < a.ranks_of_host + len(threads)


def _without(a: Analysis, ranks: tuple[int, ...], *, errors: float = 0.0, rest: float = 1.0) -> float:
    """Step time if these ranks waited no more: the share moved by so many standard errors, of the rest of the step this share left."""
    model = model_of(a)
    changes: dict[tuple[int, str], float] = {}
    if rest < 1.0 and _crowded(a, tuple(ranks)):  # they took turns for cores with these
        changes = {(rank, phase): rest * s for rank, own in model.own.items() for phase, s in own.items()}
    for rank in ranks:
        share, own = a.value("interpreter.waiting_share", rank), model.own_s(rank)
        found = max(0.0, share + errors * (a.get("interpreter.error", rank) or 0.0)) / max(share, 1e-9)
        lost = found * (a.get("interpreter.lost_s", rank) or 0.0)
        keep = rest * max(_LEFT, 1.0 - lost / own) if own > 0 else 1.0
        changes |= {(rank, phase): seconds * keep for phase, seconds in model.own[rank].items()}
    return model.step_if(changes)


def _evidence(a: Analysis, t: Thresholds, rank: int, found: Holder | None) -> tuple[Evidence, ...]:
    step, share = a.value("step.time_s"), a.value("interpreter.waiting_share", rank)
    error, lost_s = a.get("interpreter.error", rank) or 0.0, a.get("interpreter.lost_s", rank) or 0.0
    note = f"of the looks at rank {rank}'s training thread found it waiting for the interpreter, ± {error:.2f}"
    evidence = [Evidence("interpreter.waiting_share", share, "", t["waiting"], note)]
    if found is not None:
        where = f" at {found.where.file}:{found.where.line}" if found.where else ""
        note = f"{found.thread or 'a thread'} had it, in {found.function or 'code that is not Python'}{where}"
        evidence.append(Evidence("stacks", f"{found.times} of {found.looks}", "", None, note))
    evidence.append(
        Evidence(
            "interpreter.lost_s", lost_s, "s", t["waiting"] * step, f"of a {1000 * step:.3g} ms step, on rank {rank}"
        )
    )
    return tuple(evidence)


def _fixes(found: Holder | None) -> tuple[Fix, ...]:
    what = f"what {found.function} does" if found and found.function else "what the other thread does"
    return (
        Fix(
            f"move {what} to a process of its own",
            "multiprocessing.Process(target=..., daemon=True), fed by a multiprocessing.Queue; sys.setswitchinterval is no cure",
            found.where if found else None,
            "small change",
        ),
        Fix(
            "do it less often, or let the thread sleep between two rounds",
            "",
            found.where if found else None,
            "one line",
        ),
    )


RULE = rule(
    __name__,
    "another thread holds the interpreter",
    check,
    needs=("step.time_s",),
    explains=("CMP003", "CMP007", "COM002", "DAT003", "LOP002", "LOP004", "LOP007", "RUN004"),
    thresholds={
        "waiting": Threshold(
            0.05, "severity 'medium' begins at 5 % of the step; a thread busy for less cannot cost more"
        ),
        "sure": Threshold(
            3.0, "standard errors: that a sound job is found waiting so often by chance does not happen in a year"
        ),
    },
)
