"""A rank died.

What it does: names the rank that ended first, how (exit code, signal, OOM killer), in which phase, and with which exception.

Why it matters: when one rank dies, launchers end the others, and the last lines of the output are those of the victims.

Evidence: the order of the deaths; exit code or signal of each as the kernel kept it; the OOM killer's counter.

Fix: the first death's cause. SIGKILL without the OOM killer came from outside: a scheduler, a memory limit of the container, an operator.

False alarms: an interrupt by the user (Ctrl-C), or a time limit or scheduler that ends the whole job by SIGTERM, is no death.
"""

from __future__ import annotations

import signal

from advisor.core.analysis import Analysis, Death
from advisor.core.findings import Affected, Clear, Evidence, Finding, Fix
from rules.rule import Thresholds, rule


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    ranks = [death for death in a.deaths if death.role == "rank"]
    if not ranks or a.stopped_from_outside:
        return Clear(RULE.id)
    first = ranks[0]
    return Finding(
        rule=RULE.id,
        title=f"Rank {first.rank} {_how(first)}",
        severity="critical",
        confidence=0.95 if first.signal is not None or first.exit_code is not None else 0.7,
        seconds_per_step=0.0,
        scope=Affected(ranks=(first.rank,) if first.rank is not None else (), since_step=first.step),
        evidence=tuple(
            Evidence(
                f"rank {d.rank}",
                _how(d),
                "",
                None,
                f"after {d.t_s:.1f} s, step {d.step}, in {d.phase or 'an unknown phase'}",
            )
            for d in ranks
        )
        + (
            (Evidence("exception", first.exception, "", None, f"raised by rank {first.rank}"),)
            if first.exception
            else ()
        ),
        fixes=(Fix(_advice(first), "", None, "small change"),),
        fatal=True,
    )


def _how(death: Death) -> str:
    if death.oom_killed:
        return "was killed by the OOM killer"
    if death.signal is not None:
        try:
            return f"was killed by {signal.Signals(death.signal).name}"
        except ValueError:
            return f"was killed by signal {death.signal}"
    if death.exit_code is not None:
        return f"ended with exit code {death.exit_code}"
    return "vanished without shutting down"


def _advice(death: Death) -> str:
    if death.oom_killed:
        return "the host's or the container's memory ran out: fewer workers or prefetched batches, a smaller cache, or a higher limit"
    if death.signal == signal.SIGKILL:
        return "something outside the job killed it: the OOM killer, a scheduler, a memory limit or an operator; ask the host's log"
    if death.signal == signal.SIGTERM:
        return "something outside this rank asked it to end: its launcher, a scheduler or a time limit"
    if death.signal in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT):
        return "native code crashed: run again with faulthandler (python -X faulthandler); SIGBUS often means /dev/shm is full"
    if death.exception:
        return "mend the exception above; the other ranks only followed"
    return "read this rank's own last lines of output; the other ranks only followed"


RULE = rule(
    __name__,
    "a rank died",
    check,
    explains=("RUN001", "COM002", "CMP007", "DAT008"),
    steady_steps=0,
)
