"""Tracks batches that were fetched with gradients enabled but got no backward pass, so that their use is unknown.

Replayed CUDA graphs, `torch.autograd.grad` and loops in C++ train without a mark. Evaluations, and a loader that is fast-forwarded to the
resume point, also fetch batches without a backward. A run of such batches ends with the next backward pass. The account checks at growing
intervals whether the run is an evaluation.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..facts.process_facts import call_frames
from ..workers.sample_parts import own

if TYPE_CHECKING:
    from collections.abc import Callable

UNSEEN, SKIPPED = "unseen", "skipped"
REPORTED_FROM = 8  # batches; fewer may be prefetched, or accumulated for one backward
_BODY_SHARE = 0.25  # share of the time: a loop that skips batches does nothing between fetches, apart from our marks
_EVALUATES = re.compile(
    r"(?:^|_)(?:eval\w*|val|valid\w*|test\w*|infer\w*|predict\w*|calibrat\w*)(?:_|$)", re.IGNORECASE
)


class UntrainedBatches:
    """The current run of such batches. `evaluates()`: True if the fetching thread appears to evaluate."""

    def __init__(self) -> None:
        self.evaluates: Callable[[], bool] = lambda: False
        self.batches = 0
        self.walls: tuple[int, ...] = ()  # the account's waiting, forward and evaluation at the run's start, in ns
        self._evaluating: set[int] = set()  # loaders known to feed an evaluation
        self._check_at = REPORTED_FROM
        self._first_loader = -1  # the loader whose new iterator began the run, or will begin the next one
        self._body_ns = self._since = 0

    def new_iterator(self, loader: int) -> None:
        """Called for a new iterator. Within a run it is a second pass, so the run is no fast-forward."""
        self._first_loader = -1 if self.batches else loader

    def add(self, loader: int, came: int, now: int, walls: tuple[int, ...]) -> bool:
        """Adds a batch that came at `came`; the next one is requested `now`. True if the run is to be reported or checked."""
        if loader in self._evaluating:
            return False
        if not self.batches:
            self._since, self._body_ns, self.walls = came, 0, walls
        self.batches += 1
        self._body_ns += now - came
        return self.batches >= self._check_at

    def is_evaluation(self, loader: int) -> bool:
        """True if the run is an evaluation; otherwise the next check comes when it is twice as long."""
        if self.evaluates():
            self._evaluating.add(loader)
            self.batches = 0
            return True
        self._check_at = 2 * self.batches
        return False

    @property
    def since(self) -> int:
        return self._since

    def end(self, loader: int, now: int) -> tuple[str, int]:
        """Ends the run when a batch of this loader gets a backward pass. Returns its kind and number of batches; 0: nothing to report.

        If each backward has as many batches as the previous one, the runs are the job's normal training and are not reported.
        """
        batches, self.batches = self.batches, 0
        reported = batches if batches >= REPORTED_FROM and 2 * batches > self._check_at else 0
        fast_forward = loader == self._first_loader and self._body_ns <= _BODY_SHARE * (now - self._since)
        self._check_at = max(REPORTED_FROM, 2 * batches)
        self._first_loader = -1
        return (SKIPPED if fast_forward else UNSEEN), reported


def shows_evaluation(model: Any) -> bool:
    """True if the model is in `eval()` mode, or the fetching function is named like an evaluation: `validate`, `run_test`.

    Frame variables are not read: before Python 3.13 that keeps their values alive.
    """
    wrapped = (own(model).get("_modules") or {}).get("module")  # the model inside DistributedDataParallel
    if any(own(each).get("training") is False for each in (model, wrapped)):
        return True
    frame, _ = call_frames(2)
    name = "" if frame is None else frame.f_code.co_name
    return _EVALUATES.search(name) is not None and "train" not in name.lower()
