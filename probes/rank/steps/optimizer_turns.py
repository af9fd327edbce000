"""Turns of the optimizers in a loop: where a step of a loop without loader ends.

Several optimizers may step in one turn of the loop (a generator and a discriminator), and successive loops may have their own optimizers.
"""

from __future__ import annotations

INSIDE_BACKWARD = 0  # id for all per-parameter optimizers that gradient hooks run (PyTorch's memory tutorial, LOMO)
# Turns without a fetch after which the loop counts as having no loader (in-memory tensors, one fixed batch).
TURNS_WITHOUT_LOADER = 2
# Steps of other optimizers after which the first one is considered gone (successive loops with their own optimizers).
FIRST_IS_GONE_AFTER = 20


class OptimizerTurns:
    """Optimizers by id, in the order of their steps. `first`: the one that begins a turn."""

    def __init__(self) -> None:
        self.first: int | None = None
        self._last: int | None = None  # the last optimizer in one turn of a loop without loader
        self._turns = 0  # since the last training fetch
        self._without_first = 0  # steps of other optimizers since the first one's last
        self._in_turn: set[int] = set()  # the other optimizers of a loop without loader
        self._newcomers: set[int] = set()  # optimizers outside such a loop that have stepped since its first one

    def fetched(self) -> None:
        """Called when a batch for training is requested: the loop has a loader, whose fetches end its steps."""
        self._turns = 0

    def begin(self, optimizer: int, before: int | None, *, stepped: bool) -> None:
        """Called at a step of this optimizer. `before`: the one that stepped last; `stepped`: one has, in this step of the loop."""
        if self.first is None:
            self.first = optimizer
        elif optimizer != self.first:
            self._count_others(optimizer, before)
        else:
            self._without_first = 0
            self._newcomers.clear()
            if stepped:
                self._turns += 1
                self._last = before

    def ends_with(self, optimizer: int) -> bool:
        """True if the end of this optimizer's step ends a turn of a loop without loader."""
        return self._turns >= TURNS_WITHOUT_LOADER and optimizer == self._last

    def _count_others(self, optimizer: int, before: int | None) -> None:
        self._without_first += 1
        if optimizer in self._newcomers:  # the previous loop and the first iteration of this one have ended
            self.first, self._last = optimizer, before
            self._in_turn, self._newcomers = self._newcomers, set()
            self._without_first = 0
        elif self._without_first > FIRST_IS_GONE_AFTER:
            self.first, self._last = optimizer, None
            self._in_turn, self._newcomers = set(), set()
            self._without_first = self._turns = 0
        elif self._turns < TURNS_WITHOUT_LOADER:
            self._in_turn.add(optimizer)
        elif optimizer not in self._in_turn:
            self._newcomers.add(optimizer)
