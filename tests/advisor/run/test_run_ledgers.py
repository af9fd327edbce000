"""Small books the agent keeps: rank numbers, OOM kills, its own cost, how often it may look into a process."""

from __future__ import annotations

import signal

import pytest

from rn50_advisor.advisor.model.metrics import Sample
from rn50_advisor.advisor.run.own_usage import SHED_ORDER, WINDOW_S, CostBook
from rn50_advisor.advisor.run.processes.death_causes import OomLedger
from rn50_advisor.advisor.run.rings.ring_followers import RankNumbers
from rn50_advisor.advisor.run.stacks.stack_budget import StackBudget
from rn50_advisor.probes.host.process.death_watch import ProcessDeath

S = 1_000_000_000


def test_ranks_that_know_their_number_keep_it() -> None:
    numbers = RankNumbers()
    assert [numbers.take(claimed, 100 + claimed) for claimed in (3, 0, 2, 1)] == [3, 0, 2, 1]


def test_ranks_that_do_not_get_the_next_free_number_in_order_of_appearance() -> None:
    numbers = RankNumbers()
    assert [numbers.take(-1, pid) for pid in (7, 8, 9)] == [0, 1, 2]


def test_a_successor_takes_up_the_number_of_the_dead() -> None:
    numbers = RankNumbers()
    numbers.take(0, 10)
    numbers.take(1, 11)
    numbers.release(1, 11)
    assert numbers.take(1, 12) == 1
    numbers.release(1, 11)  # late news of the predecessor
    assert numbers.take(-1, 13) == 2


def test_two_living_processes_never_share_a_number() -> None:
    numbers = RankNumbers()
    assert [numbers.take(0, 10), numbers.take(0, 11)] == [0, 1]


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


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def shares(book: CostBook, clock: Clock, cpu_per_s: float, seconds: int) -> list[float]:
    found = []
    for _ in range(seconds):
        clock.now_s += 1.0
        share = book.over_budget(clock.now_s * cpu_per_s)
        if share is not None:
            found.append(share)
    return found


def test_within_budget_nothing_is_given_up() -> None:
    clock = Clock()
    book = CostBook(budget=0.01, grace_s=0.0, clock=clock)
    assert shares(book, clock, 0.009, 300) == []


def test_beyond_budget_it_answers_once_a_window_and_not_in_the_first_minute() -> None:
    clock = Clock()
    book = CostBook(budget=0.01, grace_s=60.0, clock=clock)
    assert shares(book, clock, 0.02, 60) == []
    found = shares(book, clock, 0.02, 4 * round(WINDOW_S))
    assert 2 <= len(found) <= 4
    assert found[0] == pytest.approx(0.02)


def test_things_are_given_up_in_a_fixed_order_and_once() -> None:
    book = CostBook(budget=0.01, grace_s=0.0)
    active = [name for name in SHED_ORDER if name != "gpu"]
    order = [name for _ in range(len(SHED_ORDER)) if (name := book.next_to_shed(active))]
    assert order == active
    assert book.next_to_shed(active) is None


def looks(budget: StackBudget, seconds: float, *, cpu_s: float, hit: bool = True, ranks: int = 1) -> list[float]:
    taken, now_s = [], 0.0
    while now_s < seconds:
        for rank in range(ranks):
            if budget.allows(rank, now_s):
                budget.spent(rank, now_s, cpu_s, hit=hit)
                taken.append(now_s)
        now_s += 0.25
    return taken


def new_budget(first: int = 30) -> StackBudget:
    return StackBudget(now_s=0.0, share=0.005, period_s=2.0, first=first, dense_s=60.0)


def test_a_short_run_gets_evidence_quickly() -> None:
    assert len(looks(new_budget(), 10.0, cpu_s=0.01)) >= 10


def test_beyond_the_first_looks_the_share_holds() -> None:
    taken = looks(new_budget(), 3600.0, cpu_s=0.05)
    later = [t for t in taken if t > 100]
    assert len(later) * 0.05 / 3500 <= 0.0055
    assert later


def test_many_ranks_cost_no_more_at_the_start_than_one() -> None:
    assert len(looks(new_budget(), 30.0, cpu_s=0.01, ranks=8)) <= 31


def test_looking_in_vain_becomes_rare() -> None:
    assert len(looks(new_budget(), 300.0, cpu_s=0.01, hit=False)) < len(looks(new_budget(), 300.0, cpu_s=0.01)) / 2
