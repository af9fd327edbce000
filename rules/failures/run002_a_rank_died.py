"""A rank died.

What it does: names the rank that ended first, how (exit code, signal, OOM killer), in which phase, and with which exception; and why, where
its exception or the output that was kept is a failure that is known: mismatched collectives, the NCCL watchdog, memory of the GPU or the
host, shared memory, a port in use, a rendezvous that failed. A job that failed before it trained is told of too, where that is known.
Where a GPU's memory ran out it tells what held it, largest part first, and which batch would have fitted, with the arithmetic.

Why it matters: when one rank dies, launchers end the others, and the last lines of the output are those of the victims.

Evidence: the order of the deaths; exit code or signal of each as the kernel kept it; the OOM killer's counter. A rank whose exception says
that its peer had gone (connection closed, remote process exited) follows, whenever it ended; where all that died follow, the rank that
ended in order before them is named: it ran out of data, or took no part in the last collective. The last lines of output are its own where
they are marked so. Output is kept where the screen stands between the job and the terminal, and the end of it is read where stderr is a
file; elsewhere a gap says that it is not kept, the exceptions that Python processes leave speak, and of an NCCL watchdog the dumps that it
leaves. On several hosts the order of deaths is known as well as their clocks are: within that, all that died otherwise than by SIGTERM are
named.

Fix: the first death's cause. SIGKILL without the OOM killer came from outside: a scheduler, a memory limit of the container, an operator.

False alarms: an interrupt by the user (Ctrl-C), or a time limit or scheduler that ends the whole job, is no death: each signal that asks
the job to end is noted, and a rank that leaves within two minutes of it, with whatever code, did as it was asked.
"""

from __future__ import annotations

import signal

from rn50_advisor.advisor.model.analysis import Analysis, Death, Failure
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix
from rn50_advisor.rules.first_ending import died_of_it
from rn50_advisor.rules.rule import Thresholds, rule

_ORDER_UNKNOWN = 0.5  # confidence, where ranks of several hosts died within what their clocks are known to
_FOLLOWS = " (it follows: its peer had gone)"
_LINE_MAX = 200  # characters


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    ranks = [death for death in a.deaths if death.role == "rank"]
    if a.stopped_from_outside or (not ranks and a.failure is None):
        return Clear(RULE.id)
    return _death(a, ranks) if ranks else _before_training(a)


def _death(a: Analysis, ranks: list[Death]) -> Finding:
    first, rivals = _first(ranks)
    why = a.failure if a.failure and _fits(a.failure, first) else None
    others = [death for death in ranks if death is not first]
    return Finding(
        rule=RULE.id,
        title=f"Rank {first.rank} {_how(first)}" + (f": {why.title}" if why is not None else ""),
        severity="critical",
        confidence=_ORDER_UNKNOWN
        if rivals
        else 0.95
        if first.signal is not None or first.exit_code is not None
        else 0.7,
        seconds_per_step=0.0,
        scope=Affected(
            ranks=tuple(sorted(d.rank for d in (first, *rivals) if d.rank is not None)), since_step=first.step
        ),
        evidence=(
            *(_row(death) for death in (first, *others)),
            *_exception(first),
            *_said(why or _untold(a, first)),
            *_memory(a, why),
            *_order(first, rivals),
            *_last_lines(first),
        ),
        fixes=(_remedy(a, why, _advice(first, a.world_size)),),
        explains=() if any(died_of_it(a, stall) for stall in a.stalls) else ("RUN001",),
        fatal=True,
    )


def _first(ranks: list[Death]) -> tuple[Death, list[Death]]:
    """The first to die, and those on other hosts of whom the clocks cannot tell that they were not.

    A launcher that ends what is left does it by SIGTERM: who died otherwise at the same time was before it.
    """
    own = [death for death in ranks if not death.follows] or ranks
    earliest = own[0]
    together = [d for d in own if d is earliest or d.t_s - earliest.t_s < d.t_error_s + earliest.t_error_s]
    certain = [d for d in together if d.signal != signal.SIGTERM] or together
    return certain[0], certain[1:]


def _order(first: Death, rivals: list[Death]) -> tuple[Evidence, ...]:
    if not rivals:
        return ()
    error = first.t_error_s + max(death.t_error_s for death in rivals)
    note = f"which of ranks {', '.join(str(d.rank) for d in (first, *rivals))} was first cannot be told"
    return (Evidence("clocks of the hosts", error, "s", None, note),)


def _before_training(a: Analysis) -> Finding:
    """No process that failed had made a step, so none is known as a rank."""
    why = a.failure
    assert why is not None
    whose = "The job" if why.rank is None else f"Rank {why.rank}"
    when = "beside its ranks" if a.step_time.steps else "before its first step"
    return Finding(
        rule=RULE.id,
        title=f"{whose} failed {when}: {why.title}",
        severity="critical",
        confidence=0.9,
        seconds_per_step=0.0,
        scope=Affected(ranks=() if why.rank is None else (why.rank,)),
        evidence=(*_said(why), *_memory(a, why)),
        fixes=(_remedy(a, why, "mend the exception above"),),
        fatal=True,
    )


def _fits(why: Failure, first: Death) -> bool:
    """What another rank said of itself is no reason of this one; a kill from outside has none in the output."""
    killed = first.oom_killed or first.signal == signal.SIGKILL
    return why.kind != "exception" and not killed and why.rank in (None, first.rank)


def _untold(a: Analysis, first: Death) -> Failure | None:
    """The exception of a rank whose launcher caught it (mp.spawn) and printed it itself."""
    why = a.failure
    caught = why is not None and not first.exception and first.signal is None and not first.oom_killed
    return why if caught and why is not None and why.rank in (None, first.rank) else None


def _row(death: Death) -> Evidence:
    follows = _FOLLOWS if death.follows else ""
    # who ends by itself marks its end, and stands in no phase any more
    phase = "" if death.phase == "ended" else f", in {death.phase or 'an unknown phase'}"
    note = f"after {death.t_s:.1f} s, step {death.step}{phase}{follows}"
    return Evidence(f"rank {death.rank}", _how(death), "", None, note)


def _exception(death: Death) -> tuple[Evidence, ...]:
    if not death.exception:
        return ()
    return (Evidence("exception", death.exception, "", None, f"raised by rank {death.rank}"),)


def _last_lines(death: Death) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            "last output", line[:_LINE_MAX], "", None, "its own" if _marks(death, line) else "of the job, by any rank"
        )
        for line in death.last_lines
    )


def _marks(death: Death, line: str) -> bool:
    return f"[rank{death.rank}]:" in line


def _said(why: Failure | None) -> tuple[Evidence, ...]:
    if why is None:
        return ()
    return (Evidence("failure", why.kind, "", None, why.line),)


def _memory(a: Analysis, why: Failure | None) -> tuple[Evidence, ...]:
    """Of a GPU whose memory ran out: what held it, and the batch that would have fitted."""
    full = a.out_of_memory
    if why is None or full is None or why.kind != "GPU memory":
        return ()
    rows = [Evidence(what, value, "bytes", None, note) for what, value, note in full.rows]
    if full.arithmetic:
        rows.append(Evidence("batch that fits", float(full.fits or 0), "samples", None, full.arithmetic))
    return tuple(rows)


def _remedy(a: Analysis, why: Failure | None, otherwise: str) -> Fix:
    full = a.out_of_memory
    if why is not None and full is not None and why.kind == "GPU memory":
        return Fix(full.advice, "", None, "small change")
    return Fix((why.advice if why is not None else "") or otherwise, "", None, "small change")


def _how(death: Death) -> str:
    if death.oom_killed:
        return "was killed by the OOM killer"
    if death.signal is not None:
        try:
            return f"was killed by {signal.Signals(death.signal).name}"
        except ValueError:
            return f"was killed by signal {death.signal}"
    if death.exit_code == 0:
        return "left while other ranks still trained"
    if death.exit_code is not None:
        return f"ended with exit code {death.exit_code}"
    return "vanished without shutting down"


_CRASHED = (
    "native code crashed: run again with faulthandler (python -X faulthandler); SIGBUS often means /dev/shm is full"
)
_BY_SIGNAL: dict[int, str] = {
    signal.SIGKILL: "something outside the job killed it: the OOM killer, a scheduler, a memory limit or an operator; ask the host's log",
    signal.SIGTERM: "something outside this rank asked it to end: its launcher, a scheduler or a time limit",
    **dict.fromkeys((signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT), _CRASHED),
}


def _advice(death: Death, world_size: int) -> str:
    followers = "; the other ranks only followed" if world_size > 1 else ""
    if death.exit_code == 0:
        return (
            "let every rank make as many steps: a sampler that divides the data evenly (DistributedSampler, drop_last=True), "
            "or DDP's `with model.join():`; and a barrier before the end"
        )
    if death.oom_killed:
        return "the host's or the container's memory ran out: fewer workers or prefetched batches, a smaller cache, or a higher limit"
    if death.signal in _BY_SIGNAL:
        return _BY_SIGNAL[death.signal]
    if death.exception:
        return f"mend the exception above{followers}"
    where = "above" if any(_marks(death, line) for line in death.last_lines) else "of output"
    return f"read this rank's own last lines {where}{followers}"


RULE = rule(
    __name__,
    "a rank died",
    check,
    explains=("COM002", "CMP007", "DAT008"),
    steady_steps=0,
)
