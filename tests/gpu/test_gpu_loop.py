"""The loop for GPU machines also runs on a CPU, so that its own mistakes are found before a GPU machine is borrowed for minutes."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]
LOOP = ROOT / "samples" / "faults" / "jobs" / "compute" / "gpu.py"
SMALL = ("--model=shufflenet_v2_x0_5", "--batch-size=2", "--image-size=32", "--steps=2")


@pytest.fixture
def switches() -> Iterator[None]:
    """Restores the backend switches that the loop sets for its process; computes on one core, beside other tests."""
    import torch

    places, threads = (torch.backends.cuda.matmul, torch.backends.cudnn), torch.get_num_threads()
    before, tried = [place.allow_tf32 for place in places], torch.backends.cudnn.benchmark
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = tried
    for place, allowed in zip(places, before, strict=True):
        place.allow_tf32 = allowed


@pytest.mark.usefixtures("switches")
@pytest.mark.parametrize(
    "options",
    [("none", "amp"), ("item", "fp32", "--every=2"), ("none", "amp", "--channels-last", "--tuned", "--floats")],
    ids="-".join,
)
def test_a_fault_runs(options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault, precision, *more = options
    monkeypatch.delenv("RANK", raising=False)
    took = tmp_path / "took"
    monkeypatch.setattr(
        "sys.argv", ["gpu.py", "--fault", fault, "--precision", precision, f"--took={took}", *SMALL, *more]
    )
    assert runpy.run_path(str(LOOP), run_name="__main__")["parse"]().fault == fault
    assert float(took.read_text()) > 0


@pytest.mark.usefixtures("switches")
def test_the_loop_starts_one_epoch_and_keeps_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU a few batches take 0.2 s: epochs of that length would start all the time, and that would become the verdict."""
    from torch.utils.data import DataLoader

    begun: list[Any] = []
    begin = DataLoader.__iter__

    def counting(loader: Any) -> Any:
        begun.append(loader)
        return begin(loader)

    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(DataLoader, "__iter__", counting)
    monkeypatch.setattr("sys.argv", ["gpu.py", *SMALL, "--steps=9"])
    runpy.run_path(str(LOOP), run_name="__main__")
    (loader,) = begun
    assert (len(loader), loader.persistent_workers, loader.num_workers > 0) == (9, True, True)
    assert loader.dataset[0][0].element_size() == 1, "floats are four times as much to load and to copy"


@pytest.mark.parametrize(("share", "code"), [(0.0099, 0), (0.0101, 1)])
def test_the_check_of_costs_judges_by_the_recorders_own_clock(
    share: float, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check = runpy.run_path(str(ROOT / "tests" / "gpu" / "cost_check.py"))
    monkeypatch.setattr("sys.argv", ["cost_check.py", str(tmp_path / "cost"), "--pairs", "2", "--steps=8"])
    pairs = iter([(0.005, 0.0051), (0.005, 0.0049)])

    def pair(folder: Path, arguments: list[str]) -> tuple[float, float, dict[str, float]]:
        assert folder.is_dir() and arguments == ["--steps=8"]
        return *next(pairs), {"step_share": share, "us_per_step": 5000 * share}

    check["main"].__globals__["pair"] = pair
    assert check["main"]() == code
    assert f"5.00 ms a step; the recorder took {100 * share:.2f} % of it" in capsys.readouterr().out
