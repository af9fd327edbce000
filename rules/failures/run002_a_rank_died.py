"""Rank failure.

What it does: names the rank that ended first, how (exit code, signal, OOM killer), in which phase, and with which
exception. It also names the reason if the exception or the kept output shows a known failure: mismatched collectives,
the NCCL watchdog, GPU or host memory, shared memory, a port in use, a failed rendezvous. A job that failed before it
trained is reported too, if its failure is known. If a GPU ran out of memory, the rule lists what held it, largest part
first, and the batch that would have fitted, with the arithmetic.

Fires when: a rank died; names the first to die, or the one that left the others behind, its signal or exit code, its last phase, and
what the exception or output shows of the cause. If a GPU's memory ran out, also what held it and which batch would have
fitted, or that none would.

Why it matters: when one rank dies, launchers end the others, and the last lines of the output are those of the victims.

Evidence: the order of the deaths; exit code or signal of each from the kernel; the OOM killer's counter. A rank whose
exception says that its peer is gone (connection closed, remote process exited) is a follower, whenever it ended. If
all dead ranks are followers, the rank that ended normally before them is named: it ran out of data, or took no part
in the last collective. If the others gave up waiting for a rank that did something else, or one rank exchanges in an
evaluation of its own, that rank is named, whichever died first. The last lines of output are attributed to a rank only
if they are marked so. Output is kept if the screen is between the job and the terminal, and the end of it is read
if stderr is a file. Otherwise a gap says that it is not kept, and the evidence is the exceptions that Python
processes leave, and for an NCCL watchdog its dumps. On several hosts the order of deaths is known only as precisely
as their clocks: within that error, all ranks that died other than by SIGTERM are named.

Fix: the cause of the first death. SIGKILL without the OOM killer came from outside: a scheduler, a memory limit of the
container, an operator.

False alarms: an interrupt by the user (Ctrl-C), or a time limit or scheduler that ends the whole job, is not a death:
each signal that asks the job to end is recorded, and a rank that leaves within two minutes of it, with any exit code,
did as asked.
"""

from __future__ import annotations

import signal
from dataclasses import replace

from rn50_advisor.advisor.model.analysis import Analysis, Death, Failure
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, Where
from rn50_advisor.advisor.model.wording.rank_words import in_phase
from rn50_advisor.rules.failures.rank_apart import rank_apart
from rn50_advisor.rules.failures.uneven_data import uneven_data
from rn50_advisor.rules.rule import Thresholds, rule

_ORDER_UNKNOWN = 0.5  # confidence if ranks of several hosts died within their clocks' error
_FOLLOWS_NOTE = " (consequence: its peer had gone)"
_LINE_CHARS_MAX = 200


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    ranks = [death for death in a.deaths if death.role == "rank"]
    if a.stopped_from_outside or (not ranks and a.failure is None):
        return Clear(RULE.id)
    return _death(a, ranks) if ranks else _before_training(a)


def _death(a: Analysis, ranks: list[Death]) -> Finding:
    first, rivals = _first(ranks)
    why = a.failure if a.failure and _fits(a.failure, first) else None
    others = [death for death in ranks if death is not first]
    apart = rank_apart(a, ranks)
    uneven = uneven_data(a, {death.rank: death.step for death in ranks if death.rank is not None})
    special = [case for case in (apart, uneven) if case]
    title = f"Rank {first.rank} {_how(first)}" + (f": {why.title}" if why is not None else "")
    named = (apart.rank,) if apart else sorted(d.rank for d in (first, *rivals) if d.rank is not None)
    remedy = replace(_remedy(a, why, _advice(first, a.world_size)), where=_where(first))
    return Finding(
        rule=RULE.id,
        title=apart.title if apart else title,
        severity="critical",
        confidence=_ORDER_UNKNOWN
        if rivals
        else 0.95
        if first.signal is not None or first.exit_code is not None
        else 0.7,
        seconds_per_step=0.0,
        scope=Affected(ranks=tuple(named), since_step=first.step),
        evidence=(
            *(case.evidence for case in special),
            *(_row(death) for death in (first, *others)),
            *_exception(first),
            *_reported(why or _caught(a, first)),
            *_memory(a, why),
            *_order(first, rivals),
            *_last_lines(first),
        ),
        fixes=(*(case.fix for case in special), *(() if apart else (remedy,))),
        fatal=True,
    )


def _first(ranks: list[Death]) -> tuple[Death, list[Death]]:
    """The first rank to die, and ranks on other hosts that may have died first, given the clocks' error.

    A launcher ends the remaining ranks by SIGTERM: a rank that died in another way at the same time was earlier.
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
    note = f"which of ranks {', '.join(str(d.rank) for d in (first, *rivals))} was first is unknown"
    return (Evidence("clocks of the hosts", error, "s", None, note),)


def _before_training(a: Analysis) -> Finding:
    """The finding for a job in which no failed process had made a step, so none is known as a rank."""
    why = a.failure
    assert why is not None
    whose = "The job" if why.rank is None else f"Rank {why.rank}"
    when = "outside its ranks" if a.step_time.steps else "before its first step"
    return Finding(
        rule=RULE.id,
        title=f"{whose} failed {when}: {why.title}",
        severity="critical",
        confidence=0.9,
        seconds_per_step=0.0,
        scope=Affected(ranks=() if why.rank is None else (why.rank,)),
        evidence=(*_reported(why), *_memory(a, why)),
        fixes=(_remedy(a, why, "fix the exception above"),),
        fatal=True,
    )


def _fits(why: Failure, first: Death) -> bool:
    """True if this failure explains the death: not another rank's own message, and not output if the kill came from outside."""
    killed = first.oom_killed or first.signal == signal.SIGKILL
    return why.kind != "exception" and not killed and why.rank in (None, first.rank)


def _caught(a: Analysis, first: Death) -> Failure | None:
    """The exception of a rank whose launcher (mp.spawn) caught and printed it."""
    why = a.failure
    printed = why is not None and not first.exception and first.signal is None and not first.oom_killed
    return why if printed and why is not None and why.rank in (None, first.rank) else None


def _row(death: Death) -> Evidence:
    follows = _FOLLOWS_NOTE if death.follows else ""
    # a rank that ends by itself marks its end and is in no phase any more
    phase = "" if death.phase == "ended" else f", {in_phase(death.phase)}"
    note = f"{death.t_s:.1f} s after the start, step {death.step}{phase}{follows}"
    return Evidence(f"rank {death.rank}", _how(death), "", None, note, "explains")


def _exception(death: Death) -> tuple[Evidence, ...]:
    if not death.exception:
        return ()
    raised = death.raised
    if raised is None:
        return (Evidence("exception", death.exception, "", None, f"raised by rank {death.rank}"),)
    within = f" in its {raised.within}" if raised.within else ""
    place = f", {raised.file}:{raised.line} in {raised.function}" if raised.file else ""
    return (Evidence("exception", raised.text, "", None, f"raised by rank {death.rank}{within}{place}"),)


def _where(death: Death) -> Where | None:
    return Where(death.raised.file, death.raised.line) if death.raised and death.raised.file else None


def _last_lines(death: Death) -> tuple[Evidence, ...]:
    return tuple(
        Evidence("last output", line[:_LINE_CHARS_MAX], "", None, "its own")
        if _marks(death, line)
        else Evidence("last output", line[:_LINE_CHARS_MAX], "", None, "of the job, by any rank", form="explains")
        for line in death.last_lines
    )


def _marks(death: Death, line: str) -> bool:
    return f"[rank{death.rank}]:" in line


def _reported(why: Failure | None) -> tuple[Evidence, ...]:
    if why is None:
        return ()
    return (Evidence("failure", why.kind, "", None, why.line),)


def _memory(a: Analysis, why: Failure | None) -> tuple[Evidence, ...]:
    """For a GPU out of memory: what occupied the memory, and the batch size that would have fitted."""
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
    return "disappeared without shutting down"


_ABORTED = (
    "read the last lines of its stderr: native code gave up. gloo and NCCL do so if ranks call different collectives, "
    "or in another order: compare the calls"
)
_CRASHED = (
    "native code crashed: run again with faulthandler (python -X faulthandler); SIGBUS often means /dev/shm is full"
)
_BY_SIGNAL: dict[int, str] = {
    signal.SIGKILL: "something outside the job killed it: the OOM killer, a scheduler, a memory limit or an operator; see the host's log",
    signal.SIGTERM: "something outside this rank terminated it: its launcher, a scheduler or a time limit",
    **dict.fromkeys((signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT), _CRASHED),
}


def _advice(death: Death, world_size: int) -> str:
    followers = "; the other ranks ended as a consequence" if world_size > 1 else ""
    if death.exit_code == 0:
        return (
            "run the same number of steps on every rank: a sampler that shards the data evenly (DistributedSampler, drop_last=True), "
            "or DDP's `with model.join():`; and a barrier before the end"
        )
    if death.oom_killed:
        return "the host's or the container's memory ran out: fewer workers or prefetched batches, a smaller cache, or a higher limit"
    if death.signal == signal.SIGABRT and world_size > 1:
        return _ABORTED
    if death.signal in _BY_SIGNAL:
        return _BY_SIGNAL[death.signal]
    if death.exception:
        return f"fix the exception above{followers}"
    where = "above" if any(_marks(death, line) for line in death.last_lines) else "of output"
    return f"read this rank's own last lines {where}{followers}"


RULE = rule(
    __name__,
    "Rank failure",
    check,
    severities=("critical",),
    steady_steps=0,
)
