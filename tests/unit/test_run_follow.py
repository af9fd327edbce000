"""What a follower makes of the steps that it reads."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.run.follow import Follower, _note_steps
from advisor.run.rings import Position
from probes.rank.layout import FLAG_NO_LOADER, FLAG_TAIL, STEP_FIELDS


def row(flags: int, **ms: int) -> tuple[int, tuple[int, ...]]:
    """A step of 100 ms, from its phases in milliseconds."""
    given = {"t_end_ns": 100_000_000, **{f"{name}_ns": value * 1_000_000 for name, value in ms.items()}}
    return flags, tuple(given.get(name, 0) for name in STEP_FIELDS)


@pytest.mark.parametrize(
    ("flags", "share"),
    [
        pytest.param(0, 0.1, id="with a loader, what lies between the phases of the model"),
        pytest.param(FLAG_NO_LOADER, 0.7, id="without one, the forward too: it may be a fetch"),
        pytest.param(FLAG_TAIL, 0.0, id="what follows the last step is none"),
    ],
)
def test_where_only_a_stack_can_tell_is_looked_into(flags: int, share: float) -> None:
    reader: Any = None
    follower = Follower(7, "rank", 1, 0, reader, Position("gap", 1, 0, 0, 0, False), 0)
    _note_steps(follower, [row(flags, forward=60, backward=30, gap=8, clip=2)])
    assert follower.outside_share == pytest.approx(share)
