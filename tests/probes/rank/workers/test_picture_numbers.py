"""The kind of numbers in a batch of images, from a few hundred of them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from recordings import plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.findings import Saving
from rn50_advisor.advisor.verdict.diagnose import diagnose
from rn50_advisor.advisor.verdict.likely_gain import errors_of, expected
from rn50_advisor.probes.rank.workers.picture_numbers import describe_pictures, on_a_grid

torch = pytest.importorskip("torch")

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def files(count: int = 4, side: int = 64) -> Any:
    """Pictures as they are in files."""
    return torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def scaled() -> Any:
    return files().float() / 255


def normalised() -> Any:
    return (scaled() - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)


def half_as_large() -> Any:
    return torch.nn.functional.interpolate(scaled(), scale_factor=0.5, mode="bilinear", antialias=True)


def few_levels() -> Any:
    return (files() // 64).float()


def every_third_level() -> Any:
    return (files() // 3 * 3).float() / 255


@pytest.mark.parametrize(
    ("pictures", "from_bytes"),
    [
        (scaled(), True),
        (normalised(), True),
        (normalised().contiguous(memory_format=torch.channels_last), True),
        (normalised().permute(0, 2, 3, 1), True),
        (normalised().double(), True),
        (files().float(), True),
        (every_third_level(), True),
        (half_as_large(), False),
        (torch.randn(4, 3, 64, 64), False),
        (torch.rand(4, 1, 28, 28), False),
        (scaled() * torch.rand(1) + 0.3 * scaled().flip(0), False),  # mixed
        (few_levels(), None),
        (torch.zeros(4, 3, 64, 64), None),
        (files(), None),
        (normalised().half(), None),
    ],
)
def test_bytes_are_distinguished_from_numbers(pictures: Any, from_bytes: bool | None) -> None:
    found = describe_pictures([pictures, torch.zeros(4)])
    assert found is not None and found["from_bytes"] is from_bytes
    assert found["bytes"] == pictures.numel() * pictures.element_size() and found["device"] == "cpu"


@pytest.mark.parametrize(
    "batch",
    [
        [torch.zeros(8, 16), torch.zeros(8)],
        (torch.zeros(4, 30, 64, 64),),
        "text",
        None,
        [[[[[torch.zeros(4, 3, 8, 8)]]]]],
        {"tokens": torch.zeros(4, 128)},
    ],
)
def test_what_holds_no_pictures_is_left_alone(batch: Any) -> None:
    assert describe_pictures(batch) is None


def test_pictures_are_found_where_frameworks_put_them() -> None:
    for batch in (
        {"pixel_values": scaled(), "labels": [1, 2]},
        [{"data": scaled()}],
        (scaled(), torch.zeros(4)),
        scaled(),
    ):
        assert describe_pictures(batch)["shape"] == [4, 3, 64, 64]  # type: ignore[index]


def test_the_check_changes_neither_the_batch_nor_random_numbers() -> None:
    pictures = normalised().requires_grad_()
    before = pictures.clone(), torch.get_rng_state(), random.getstate()
    describe_pictures([pictures])
    assert torch.equal(before[0], pictures) and pictures.grad_fn is None
    assert torch.equal(before[1], torch.get_rng_state()) and before[2] == random.getstate()


def test_a_device_is_never_asked_for_values() -> None:
    class OnDevice:
        shape = (8, 3, 224, 224)
        dtype = torch.float32
        device = torch.device("cuda", 0)

        def element_size(self) -> int:
            return 4

        def numel(self) -> int:
            return 8 * 3 * 224 * 224

        def __getitem__(self, key: Any) -> Any:
            raise AssertionError("a device was asked")

    found = describe_pictures([OnDevice()])
    assert found is not None and found["device"] == "cuda" and found["from_bytes"] is None


def test_levels_that_were_not_met_are_no_finer_grid() -> None:
    assert on_a_grid([float(n) for n in range(0, 60, 2)] + [61.0]) is True
    assert on_a_grid([float(n) for n in range(300)]) is False, "more levels than a byte has"
    assert on_a_grid([float(n % 15) for n in range(300)]) is None


PICTURES = {"dtype": "float32", "shape": [64, 3, 224, 224], "device": "cpu", "bytes": 154_140_672, "from_bytes": True}


def job(pictures: dict[str, Any] | None, cuda: dict[str, Any] | None, **phases: float) -> Any:
    facts = {"pictures": pictures, "cuda": cuda}
    return recording({0: plan(40, **phases)}, facts={100: facts})


@pytest.mark.parametrize(
    ("pictures", "cuda", "mb"),
    [
        (PICTURES, {"name": "H200"}, 154.140672),
        ({**PICTURES, "from_bytes": False}, {"name": "H200"}, 0.0),
        ({**PICTURES, "dtype": "uint8", "from_bytes": None}, {"name": "H200"}, 0.0),
        ({**PICTURES, "device": "cuda", "from_bytes": None}, {"name": "H200"}, 0.0),
        ({**PICTURES, "from_bytes": None}, {"name": "H200"}, None),
        (None, {"name": "H200"}, None),
        (PICTURES, None, None),
    ],
)
def test_the_size_of_copied_pictures_is_known_or_missing(pictures: Any, cuda: Any, mb: float | None) -> None:
    analysis = analyse(job(pictures, cuda))
    assert analysis.by_rank("copy.float_pictures_mb") == ({} if mb is None else {0: pytest.approx(mb)})
    assert (mb is None) == ("copy.float_pictures_mb" in analysis.missing)


def test_the_finding_is_in_the_report_of_a_recording() -> None:
    made = job(PICTURES, {"name": "H200"}, micro_batches=2)
    report, diagnosis = diagnose(made), analyse(made)
    assert diagnosis.model is not None
    [finding] = [f for f in report.findings if f.rule == "H2D003"]
    copy_s = 2 * 154.140672 / 52_000
    assert finding.evidence[1].value == pytest.approx(copy_s) and "unknown" in finding.evidence[1].note
    step_s = diagnosis.model.step_s
    alone = Saving((0.0, 0.75 * copy_s), (1.0, step_s / (step_s - 0.75 * copy_s)), "")
    assert finding.saving is not None
    assert finding.saving.seconds_per_step == pytest.approx(expected(alone, errors_of("H2D003")).seconds_per_step)
    on_cpu = diagnose(replace(made, facts={100: {"pictures": PICTURES, "cuda": None}}))
    assert [o.state for o in on_cpu.outcomes if o.rule == "H2D003"] == ["not_measured"]
