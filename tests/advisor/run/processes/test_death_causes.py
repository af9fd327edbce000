"""Deaths, and which of them were the OOM killer's."""

from __future__ import annotations

import signal

import pytest

from rn50_advisor.advisor.model.metrics import Sample
from rn50_advisor.advisor.run.processes.death_causes import OomLedger
from rn50_advisor.probes.host.process.death_watch import ProcessDeath

S = 1_000_000_000


def oom(host: float | None = None, **scopes: float) -> list[Sample]:
    found = [Sample("cgroup.oom_kills", f"pid:{name}", value) for name, value in scopes.items()]
    return found + ([Sample("mem.oom_kills", "host", host)] if host is not None else [])


def killed(pid: int, t_s: float, number: int | None = signal.SIGKILL, code: int | None = None) -> ProcessDeath:
    return ProcessDeath(pid, round(t_s * S), code, number)


@pytest.mark.parametrize(
    ("readings", "death", "taken"),
    [
        ({0: oom(3), 8: oom(3), 11: oom(4)}, killed(1, 10), True),
        ({0: oom(3), 8: oom(3), 11: oom(3)}, killed(1, 10), False),
        ({0: oom(None, a=1), 8: oom(None, a=1), 11: oom(None, a=2)}, killed(1, 10), True),
        ({0: oom(3), 8: oom(4), 9: oom(4), 11: oom(4)}, killed(1, 10), True),  # freeing its memory took two seconds
        ({0: oom(3), 2: oom(4), 8: oom(4), 11: oom(4)}, killed(1, 10), False),  # long before
        ({0: oom(3), 8: oom(3), 11: oom(4)}, killed(1, 10, signal.SIGSEGV), False),
        ({0: oom(3), 8: oom(3), 11: oom(4)}, killed(1, 10, None, 1), False),
        ({0: oom(3), 8: oom(3), 11: oom(4)}, killed(1, 10, None, None), True),  # reaped before anybody saw how
        ({}, killed(1, 10), False),
    ],
)
def test_a_kill_is_the_oom_killers_if_the_kernel_counted_one(
    readings: dict[int, list[Sample]], death: ProcessDeath, taken: bool
) -> None:
    ledger = OomLedger()
    for second, samples in readings.items():
        ledger.note(second * S, samples)
    ledger.suspect(death)
    assert ledger.settle(12 * S) == []  # the counters may lag
    assert ledger.settle(13 * S) == ([death.pid] if taken else [])
    assert ledger.settle(14 * S) == []


def test_one_counted_kill_explains_one_death() -> None:
    ledger = OomLedger()
    ledger.note(0, oom(0))
    for pid, second in ((1, 10), (2, 11)):
        ledger.suspect(killed(pid, second))
    ledger.note(12 * S, oom(1))
    assert ledger.settle(12 * S, last=True) == [1]
