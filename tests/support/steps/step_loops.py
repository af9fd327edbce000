"""Training loops that mark their steps on a fake clock. Not a test."""

from __future__ import annotations

from typing import Any

from rn50_advisor.probes.rank.layout import FLAG_CLOCKED, KIND_SPAN, KIND_STEP, SPAN_FIELDS, SPAN_LABELS, STEP_FIELDS
from rn50_advisor.probes.rank.steps.step_account import Account

PLAIN = {"input_wait": 10, "forward": 5, "backward": 7, "optimizer": 2, "gap": 1}

MS = 1_000_000


TRAIN, OTHER, EVAL = 0, 1, 2  # loader ids


class Paper:
    """Stands in for the ring: keeps what was written."""

    def __init__(self):
        self.steps, self.flags, self.clocked, self.spans, self.more = [], [], [], [], []

    def write(self, kind, flags, values, more=0):
        if kind == KIND_STEP:
            self.more.append(more)
            assert len(values) == len(STEP_FIELDS)
            self.steps.append(dict(zip(STEP_FIELDS, values, strict=True)))
            self.flags.append(flags & ~FLAG_CLOCKED)
            self.clocked.append(bool(flags & FLAG_CLOCKED))
        elif kind == KIND_SPAN:
            row = dict(zip(SPAN_FIELDS, values, strict=True))
            self.spans.append((SPAN_LABELS[row["label"]], (row["t_end_ns"] - row["t_start_ns"]) / MS))

    def phase(self, code, step, since_ns):
        pass

    def cost(self, self_ns, errors):
        pass

    def end(self):
        self.ended = True


class Loop:
    """A training loop whose parts take as long as the test says, in milliseconds."""

    def __init__(self):
        self.now = 0
        self.account = Account(thread=1, clock=lambda: self.now, cpu_clock=lambda: self.now)
        self.paper = Paper()
        self.account.become_rank(self.paper, lambda: 0)

    def spend(self, ms):
        self.now += int(ms * MS)

    def fetch(self, loader=TRAIN, ms=10, *, evaluating=False, first=False, samples=4):
        training = self.account.fetch_begin(loader, evaluating, first)
        self.spend(ms)
        self.account.fetch_end(training, samples)

    def exhaust(self, loader=TRAIN, *, evaluating=False):
        self.account.fetch_stop(self.account.fetch_begin(loader, evaluating, False), loader)

    def forward(self, ms=5):
        self.spend(ms)

    def backward(self, ms=7):
        assert self.account.backward_begin()
        self.spend(ms)
        self.account.backward_end()

    def optimize(self, ms=2, optimizer=100, *, clip=0):
        self.spend(clip)
        self.account.optimizer_begin(optimizer)
        self.spend(ms)
        self.account.optimizer_end(optimizer)

    def train_on_batch(self):
        self.forward()
        self.backward()
        self.optimize()

    def step(self, gap=1):
        self.fetch()
        self.train_on_batch()
        self.spend(gap)

    def phases(self, index=-1):
        """The non-zero phases of a step in milliseconds; proves that they sum to its length."""
        step = self.paper.steps[index]
        names = [f for f in STEP_FIELDS if f in EXCLUSIVE]
        assert sum(step[name] for name in names) == step["t_end_ns"] - step["t_start_ns"]
        return {name[:-3]: step[name] / MS for name in names if step[name]}


EXCLUSIVE = (
    "input_wait_ns", "forward_ns", "backward_ns", "clip_ns", "optimizer_ns", "gap_ns", "evaluation_ns", "checkpoint_ns",
)  # fmt: skip


def mode(loop: Loop) -> dict[str, Any]:
    """The trained model's mode, switched by the test; `reports` counts reports of training in eval mode."""
    state = {"eval": False, "reports": 0}
    loop.account.in_eval_mode = lambda: state["eval"]
    loop.account.trained_in_eval_mode = lambda: state.update(reports=state["reports"] + 1)
    return state
