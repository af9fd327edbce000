"""Transforms of whole pictures before the one that makes them smaller: which lists of transforms are advised to change, and by how much."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import input_rule_cases as input_jobs
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Where
from rn50_advisor.advisor.model.input.sample_cost import SampleCost, SamplePart
from rn50_advisor.advisor.model.job_changes import ShrinkFirst
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rn50_advisor.rules.data_loading.transform_order import LateShrink, late_shrink
from rule_cases import SCRIPT, loader
from rule_runs import RULES, found

JITTER, ROTATION = "ColorJitter(brightness=0.3)", "RandomRotation(degrees=[-20.0, 20.0], expand=False)"
CROP = "RandomResizedCrop(size=(128, 128), scale=(0.4, 1.0))"
FLIP, BLUR, TO_TENSOR = "RandomHorizontalFlip(p=0.5)", "GaussianBlur(kernel_size=(5, 5))", "ToTensor()"
LATE = (JITTER, ROTATION, CROP, TO_TENSOR)


def dataset(*steps: str) -> dict[str, Any]:
    names = [step.partition("(")[0] for step in steps]
    return {"transforms": names, "transform_settings": [step if "(" in step else None for step in steps]}


def cost(*steps: str, width: float | None = 1280.0, each_s: float = 0.02, rest_s: float = 0.02) -> SampleCost:
    """Each name among the transforms takes as long, and so does opening the picture."""
    names = dict.fromkeys(step.partition("(")[0] for step in steps)
    cpu_s = each_s * len(names) + rest_s
    parts = [SamplePart("transform", name, "", 0, each_s, each_s, each_s / cpu_s) for name in names]
    parts.append(SamplePart("rest", "Photos.__getitem__", SCRIPT, 9, rest_s, rest_s, rest_s / cpu_s))
    return SampleCost(100, cpu_s, cpu_s, tuple(parts), width=width, height=960.0 if width else None)


def late(*steps: str, **more: Any) -> LateShrink | None:
    return late_shrink(cost(*steps, **more), loader(0, 2, dataset=dataset(*steps)))


def test_the_time_for_pixels_that_are_dropped_is_saved() -> None:
    seen = late(*LATE)
    assert seen is not None
    assert (seen.shrink, seen.transforms) == ("RandomResizedCrop", ("ColorJitter", "RandomRotation"))
    kept = 128 * 128 / (1280 * 960)
    assert seen.cpu_s == pytest.approx(2 * 0.02 * (1 - kept)) and seen.share == pytest.approx(seen.cpu_s / 0.1)
    assert seen.shares_saved == (seen.share, pytest.approx(0.8 * seen.share))
    assert seen.words.endswith(
        "ColorJitter and RandomRotation, for pixels that RandomResizedCrop drops (1280×960 → 128×128)"
    )


@pytest.mark.parametrize(
    ("steps", "shrink", "moved"),
    [
        ((JITTER, ROTATION, "Resize(size=[256], antialias=True)", "CenterCrop(size=(224, 224))"), "Resize", 2),
        ((JITTER, "RandomCrop(size=(224, 224), padding=None)"), "RandomCrop", 1),
        ((ROTATION, JITTER, "CenterCrop(size=(224, 224))"), "CenterCrop", 1),
        ((BLUR, JITTER, CROP), "RandomResizedCrop", 1),
        ((TO_TENSOR, "Normalize(mean=[0.5])", "RandomGrayscale(p=0.1)", CROP), "RandomResizedCrop", 2),
        (("HueSaturationValue(p=0.5)", "HorizontalFlip(p=0.5)", "Resize(p=1.0, height=224, width=224)"), "Resize", 2),
        (("HueSaturationValue(p=0.5)", "RandomResizedCrop(p=1.0, size=(224, 224))"), "RandomResizedCrop", 1),
        (("RandomGamma(p=0.5)", "SmallestMaxSize(p=1.0, max_size=256)"), "SmallestMaxSize", 1),
        (
            ("ColorJiggle(p=1.0)", "RandomAffine(p=0.5)", "RandomResizedCrop(p=1.0, size=(64, 64))"),
            "RandomResizedCrop",
            2,
        ),
        (("Resize(size=(900, 900))", JITTER, ROTATION, "Resize(size=(224, 224))"), "Resize", 2),
    ],
)
def test_other_lists_of_the_libraries(steps: tuple[str, ...], shrink: str, moved: int) -> None:
    seen = late(*steps, rest_s=0.0)
    assert seen is not None and (seen.shrink, len(seen.transforms)) == (shrink, moved)


@pytest.mark.parametrize(
    "steps",
    [
        (CROP, JITTER, ROTATION),
        (JITTER, "Resize(size=(1024, 1280))"),
        (JITTER, "Resize(size=2000, antialias=True)"),
        ("Resize(size=256)", "RandomCrop(size=(224, 224))", JITTER),
        ("Resize(size=256)", "CenterCrop(size=(100, 100))"),
        ("Resize(size=256)", JITTER, "RandomCrop(size=(224, 224))"),
        (ROTATION, "CenterCrop(size=(224, 224))"),
        ("RandomRotation(degrees=[-20.0, 20.0], expand=True)", CROP),
        (JITTER, "Mine", CROP),
        (BLUR, CROP),
        (JITTER, "RandomResizedCrop"),
        (JITTER, "RandomResizedCrop(p=0.5, size=(64, 64))"),
        (),
    ],
    ids=[
        "small pictures first", "no smaller", "enlarged", "nothing costly before", "a crop of a resized picture", "hardly smaller",
        "corners cut off", "corners kept", "the user's own between them", "blur counts in pixels", "size unknown", "not always", "no list",
    ],
)  # fmt: skip
def test_lists_that_are_left_alone(steps: tuple[str, ...]) -> None:
    assert late(*steps) is None


def test_without_sizes_samples_or_loader_nothing_is_advised() -> None:
    assert late(*LATE, width=None) is None
    assert late_shrink(None, loader(0, 2, dataset=dataset(*LATE))) is None
    assert late_shrink(cost(*LATE), None) is None


def test_small_costs_are_left_to_other_advice() -> None:
    assert late(*LATE, rest_s=0.077) is not None and late(*LATE, rest_s=0.079) is None


def test_a_transform_that_is_in_the_list_twice_counts_in_part() -> None:
    once, twice = late(JITTER, ROTATION, CROP), late(JITTER, ROTATION, CROP, JITTER)
    assert once is not None and twice is not None and twice.cpu_s == pytest.approx(0.75 * once.cpu_s)


def test_transforms_of_a_wrapped_data_set_count_unless_its_parts_differ() -> None:
    wrapped: dict[str, Any] = {"length": 10, "inner": dataset(*LATE)}
    alike, different = ({"parts": [dataset(*LATE), dataset(*other)]} for other in (LATE, (CROP, JITTER)))
    seen = [late_shrink(cost(*LATE), loader(0, 2, dataset=each)) for each in (wrapped, alike, different)]
    assert [each is not None for each in seen] == [True, True, False]


def job(*steps: str, **more: Any) -> Analysis:
    made = input_jobs.dat011(0.2, **{"sample": replace(cost(*steps), cpu_s=0.38), **more})
    scaled = replace(cost(*steps, each_s=0.076, rest_s=0.38 - 0.076 * len({s.partition("(")[0] for s in steps})))
    loaders = tuple(replace(known, dataset=dataset(*steps)) for known in made.loaders)
    return replace(made, sample=scaled, loaders=loaders)


def test_dat011_says_what_to_put_first() -> None:
    finding = found("DAT011", job(JITTER, ROTATION, FLIP, CROP))
    assert finding.title == "Data loading: 59 % of each sample's CPU time spent on pixels that RandomResizedCrop drops"
    fix = finding.fixes[0]
    assert fix.title == "put RandomResizedCrop before ColorJitter, RandomRotation and RandomHorizontalFlip"
    assert fix.call == ShrinkFirst("RandomResizedCrop", ("ColorJitter", "RandomRotation", "RandomHorizontalFlip"))
    assert fix.where == Where(SCRIPT, 42) and "128×128" in fix.change and "corners" in fix.change
    saved = finding.saving
    assert saved is not None and 1.0 < saved.speedup[0] < saved.speedup[1]


def test_dat011_names_the_order_also_where_the_transform_alone_takes_more() -> None:
    made = replace(job(JITTER, CROP), sample=cost(JITTER, CROP, each_s=0.17, rest_s=0.04))
    assert found("DAT011", made).fixes[0].title == "put RandomResizedCrop before ColorJitter"


def test_dat011_leaves_the_right_order_alone() -> None:
    assert run_rule(RULES["DAT011"], job(CROP, JITTER, ROTATION, FLIP), Config()) == Clear("DAT011")


def test_dat001_puts_the_order_before_other_ways_and_estimates_by_it() -> None:
    wrong, right = found("DAT001", job(JITTER, ROTATION, CROP)), found("DAT001", job(CROP, JITTER, ROTATION))
    assert wrong.fixes[0].title == "put RandomResizedCrop before ColorJitter and RandomRotation"
    assert wrong.fixes[1:] == right.fixes and any("1280×960 → 128×128" in e.note for e in wrong.evidence)
    assert wrong.saving is not None and right.saving is not None
    assert wrong.saving.speedup[1] < right.saving.speedup[1], "samples keep the rest of their work"
