"""A training thread on a fake clock whose marks are buffered as the wrappers would. Not a test."""

from __future__ import annotations

import random
from types import SimpleNamespace

from rn50_advisor.probes.rank.layout import FLAG_CLOCKED, PHASE_BITS, STEP_FIELDS
from rn50_advisor.probes.rank.steps.mark_buffer import (
    BACKWARD,
    BACKWARD_END,
    BATCH,
    FETCH,
    OPTIMIZER,
    OPTIMIZER_END,
    MarkBuffer,
)
from rn50_advisor.probes.rank.steps.step_account import Account
from rn50_advisor.probes.rank.steps.step_phases import GAP
from step_loops import MS, Paper

SAME = tuple(name for name in STEP_FIELDS if not name.endswith(("cpu_ns", "self_ns", "system_ns", "delay_ns")))
LOADER, ADAM = 3, 77


class Rank:
    """A training thread on a clock of its own; with `buffered`, it buffers the marks that the wrappers of `patches` would buffer."""

    def __init__(self, *, buffered: bool) -> None:
        self.now, self.buffered, self.noted = 0, buffered, 0
        self.account = Account(thread=1, clock=lambda: self.now, cpu_clock=lambda: self.now, system_clock=lambda: 0)
        self.paper = Paper()
        self.paper.words = [0] * 32
        self.account.become_rank(self.paper, lambda: 0)
        self.buffer, self.until, self.beyond = MarkBuffer(), 0, 0
        self.account.on_step = self.begin_step

    def begin_step(self, step: int) -> None:
        account = self.account
        if self.buffered and not account.replaying and not account.clocked and account.fewest_rounds:
            self.until = step + 1 + step % 5
            self.buffer.start(account, self.until - step, None)

    def read(self) -> None:
        if self.buffer.on:
            self.buffer.flush_into(self.account)
            self.beyond = max(self.beyond, self.account.step - self.until)

    def mark(self, what: int, argument: int, otherwise) -> None:
        buffer = self.buffer
        if buffer.on and not (what == OPTIMIZER_END and len(buffer.marks[what]) >= buffer.updates_max):
            if what == BATCH:
                buffer.note_batch_size(self.now, [SimpleNamespace(size=lambda _: argument)])
            elif what == OPTIMIZER and argument != buffer.optimizer:
                buffer.others[self.now] = argument
            buffer.marks[what].append(self.now)
            self.noted += 1
            if len(buffer.marks[FETCH]) >= buffer.fetches_max and what == FETCH:
                self.read()
                if self.account.begin_step():
                    self.begin_step(self.account.step)
            return
        self.read()
        otherwise()

    def play(self, script: list[tuple[str, int, int]]) -> list[dict[str, int]]:
        account = self.account
        for what, ms, argument in script:
            self.now += ms * MS + 1  # no two marks have the same time
            if what == "fetch":
                first = account.step == 0 and not account.fetched
                self.mark(FETCH, 0, lambda first=first: account.fetch_begin(LOADER, False, first))
            elif what == "batch":
                self.mark(BATCH, argument, lambda n=argument: account.fetch_end(True, n))
            elif what == "backward":
                self.mark(BACKWARD, 0, account.backward_begin)
            elif what == "backward end":
                self.mark(BACKWARD_END, 0, account.backward_end)
            elif what == "optimizer":
                self.mark(OPTIMIZER, argument, lambda o=argument: account.optimizer_begin(o))
            elif what == "optimizer end":
                self.mark(OPTIMIZER_END, argument, lambda o=argument: account.optimizer_end(o))
            elif what == "collected":
                thread = account.thread
                account.garbage.events.extend(((self.now - 2 * MS, thread, True), (self.now, thread, False)))
            else:  # a mark that is never noted
                self.read()
                account.checkpoint_end(account.checkpoint_begin(), self.now, 0)
        self.read()
        return [{name: row[name] for name in SAME} for row in self.paper.steps]


def loop(
    draw: random.Random,
    steps: int,
    *,
    micro: int = 1,
    loader: bool = True,
    optimizers: int = 1,
    odd: float = 0.1,
    inside: bool = False,
    twice: float = 0.0,
    raises: float = 0.0,
):
    """The marks of a training loop, some of its steps interrupted by what interrupts steps.

    `inside`: hooks of the backward update. `twice`: so many batches are trained on twice. `raises`: so many updates tell of no end.
    """
    script: list[tuple[str, int, int]] = []
    for _ in range(steps):
        for _ in range(micro):
            if loader:
                script += [("fetch", draw.randint(0, 2), 0), ("batch", draw.randint(0, 3), draw.randint(1, 9))]
            ended = [("backward end", draw.randint(0, 3), 0)]
            script += [("backward", draw.randint(0, 3), 0), *([] if inside else ended)]
        for number in range(optimizers):
            script.append(("optimizer", draw.randint(0, 1), ADAM + number))
            script += [] if draw.random() < raises else [("optimizer end", 1, ADAM + number)]
        script += script[-4:] if draw.random() < twice else []
        script += ended if inside else []
        if draw.random() < odd:
            script.insert(len(script) - draw.randint(0, 4), ("collected", 3, 0))
        if draw.random() < odd:
            script.append(("checkpoint", 1, 0))
    return [*script, ("fetch", 1, 0)] if loader else script


def counted(*, fed: bool) -> Rank:
    """A rank at the start of a step, after some that were marked, whose buffer counts the next ten: each takes 10 ms."""
    rank = Rank(buffered=False)
    rank.play(loop(random.Random(0), 8, odd=0.0, loader=fed)[: None if fed else -1])
    if not fed:
        rank.now += MS
        rank.account.optimizer_end(ADAM)
    rank.account.clocked = False
    rank.account.flags &= ~FLAG_CLOCKED
    rank.buffer.usual.offsets = [0 if not fed else 2 * MS, 4 * MS, 6 * MS, 7 * MS, 8 * MS]
    rank.buffer.start(rank.account, 10, None, counted=True)
    rank.paper.steps.clear()
    return rank


def count(rank: Rank, steps: int, *, samples: int = 4) -> None:
    """Notes what the wrappers note in counted steps."""
    buffer = rank.buffer
    for _ in range(steps):
        if buffer.loader >= 0:
            buffer.note_batch_size(buffer.counted_at >> PHASE_BITS, [SimpleNamespace(size=lambda _: samples)])
        rank.now += 8 * MS
        buffer.marks[OPTIMIZER_END].append(rank.now)
        buffer.counted_at, buffer.phase = rank.now << PHASE_BITS, GAP
        if buffer.loader >= 0:
            rank.now += 2 * MS
            buffer.marks[FETCH].append(rank.now)
            buffer.counted_at = rank.now << PHASE_BITS
