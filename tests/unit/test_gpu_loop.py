"""The loop for machines with a GPU runs on a CPU too, so that a machine that is lent for minutes meets no mistake of the loop's own."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

LOOP = Path(__file__).resolve().parents[1] / "gpu" / "loop.py"
SMALL = ("--model=resnet18", "--batch-size=2", "--image-size=32", "--steps=2")


@pytest.fixture
def switches() -> Iterator[None]:
    """The loop sets them for its process."""
    import torch

    places = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [place.allow_tf32 for place in places]
    yield
    for place, allowed in zip(places, before, strict=True):
        place.allow_tf32 = allowed


@pytest.mark.usefixtures("switches")
@pytest.mark.parametrize("told", [("none", "amp"), ("item", "fp32"), ("pageable", "tf32")], ids="-".join)
def test_a_habit_runs(told: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    habit, precision = told
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr("sys.argv", ["loop.py", "--habit", habit, "--precision", precision, *SMALL])
    assert runpy.run_path(str(LOOP), run_name="__main__")["arguments"]().habit == habit
