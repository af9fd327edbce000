"""Batches that were fetched with gradients on and met no backward pass: what became of them, nobody saw.

Replayed CUDA graphs, `torch.autograd.grad` and loops in C++ train without a mark; evaluations and a data loader that is wound forward to
where a job goes on fetch without one, too. A run of such batches ends with the next backward pass. The account asks once in a while whether
the run is an evaluation, never at each fetch.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .facts.process_facts import call_frames
from .workers.sample_parts import own

if TYPE_CHECKING:
    from collections.abc import Callable

UNSEEN, SKIPPED = "unseen", "skipped"
TOLD_FROM = 8  # batches: fewer are looked ahead for, or gathered for one backward
_BODY_SHARE = 0.25  # of the time: a loop that throws its batches away does nothing between two fetches, and our marks take some of that
_EVALUATES = re.compile(
    r"(?:^|_)(?:eval\w*|val|valid\w*|test\w*|infer\w*|predict\w*|calibrat\w*)(?:_|$)", re.IGNORECASE
)


class Unmet:
    """The run that goes on. `evaluates()` says whether the thread that fetches is at an evaluation, as far as that shows."""

    def __init__(self) -> None:
        self.evaluates: Callable[[], bool] = lambda: False
        self.batches = 0
        self.walls: tuple[int, ...] = ()  # of the account when the run began: waiting, forward, evaluation, in ns
        self._shown: set[int] = set()  # loaders that were found to feed an evaluation
        self._tell_at = TOLD_FROM
        self._begun_with = -1  # the loader whose iterator's first batch began the run, or would
        self._body_ns = self._since = 0

    def iterator_begins(self, loader: int) -> None:
        """One iterator that is begun within a run is a second pass: such a run winds nothing forward."""
        self._begun_with = -1 if self.batches else loader

    def add(self, loader: int, came: int, now: int, walls: tuple[int, ...]) -> bool:
        """A batch of this loader came, and the next is asked for `now`. Returns whether the run is to be told of, or looked into."""
        if loader in self._shown:
            return False
        if not self.batches:
            self._since, self._body_ns, self.walls = came, 0, walls
        self.batches += 1
        self._body_ns += now - came
        return self.batches >= self._tell_at

    def looked(self, loader: int) -> bool:
        """Whether it shows to be an evaluation; if not, the next time to ask is when it is twice as long."""
        if self.evaluates():
            self._shown.add(loader)
            self.batches = 0
            return True
        self._tell_at = 2 * self.batches
        return False

    @property
    def since(self) -> int:
        return self._since

    def met(self, loader: int, now: int) -> tuple[str, int]:
        """A batch of this loader meets a backward pass, which ends the run. Returns what it was, and how many batches; 0: nothing to tell.

        Where each backward has as many batches as the one before, that is how the job trains.
        """
        batches, self.batches = self.batches, 0
        told = batches if batches >= TOLD_FROM and 2 * batches > self._tell_at else 0
        wound = loader == self._begun_with and self._body_ns <= _BODY_SHARE * (now - self._since)
        self._tell_at = max(TOLD_FROM, 2 * batches)
        self._begun_with = -1
        return (SKIPPED if wound else UNSEEN), told


def shows_evaluation(model: Any) -> bool:
    """By the model, in the thread that fetches: it is in `eval()`. Or by the name of the function that fetches: `validate`, `run_test`.

    Variables of frames are not asked for: before Python 3.13 that keeps alive what they hold.
    """
    wrapped = (own(model).get("_modules") or {}).get("module")  # what DistributedDataParallel wraps
    if any(own(each).get("training") is False for each in (model, wrapped)):
        return True
    frame, _ = call_frames(2)
    name = "" if frame is None else frame.f_code.co_name
    return _EVALUATES.search(name) is not None and "train" not in name.lower()
