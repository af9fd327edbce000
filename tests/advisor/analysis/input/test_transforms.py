"""The cost of a sample: shares of its parts, for training batches in the steady steps."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from recordings import FIRST_STEP_NS, MS, plan, recording, table
from rn50_advisor.advisor.analysis.input.transforms import place_of_transform
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.forecast.worker_model import WorkerFeed, WorkerModel, step_with_cheaper_batches
from rn50_advisor.advisor.model.input.sample_cost import SampleCost, SampleLine, sample_facts, sample_table
from rn50_advisor.advisor.model.recording import Event, Recording, Source
from rn50_advisor.probes.documents.loader_documents import DescribedDataset
from rn50_advisor.probes.rank.layout import PART_FIELDS, PROFILED_FIELDS

NAMES = {
    1: {"kind": "transform", "name": "Blur", "file": "/job/data.py", "line": 7},
    2: {"kind": "load", "name": "default_loader", "file": "", "line": 0},
    3: {"kind": "rest", "name": "ImageFolder.__getitem__", "file": "", "line": 0},
    4: {"kind": "transform", "name": "Blur", "file": "/job/data.py", "line": 7},
}
LOADERS = {"loaders": [{"id": 0, "training": True, "file": "t.py", "line": 3, "num_workers": 1, "batch_size": 8}]}


def looked(
    parts: Sequence[Mapping[int, float]], *, every_ms: float = 100, start_ms: float = 1000, **more: Any
) -> Recording:
    """One look for each of these, into a sample whose parts took so many milliseconds."""
    looks, rows = [], []
    for n, each in enumerate(parts):
        end = FIRST_STEP_NS + round((start_ms + n * every_ms) * MS)
        given = {"collate_ns": 2 * MS, "batch_bytes": 4_000_000, "width": 500, "height": 375, "file_bytes": -1, **more}
        spent = round(sum(each.values()) * MS)
        looks.append({"t_end_ns": end, "samples": 8, "covered": 1, "cpu_ns": spent, "wall_ns": 2 * spent, **given})
        rows += [
            {
                "t_end_ns": end,
                "part": part,
                "cpu_ns": round(ms * MS),
                "wall_ns": 2 * round(ms * MS),
                "loader": given.get("loader", 0),
            }
            for part, ms in each.items()
        ]
    made = recording({0: plan(60)}, facts={100: LOADERS})
    tables = {
        "looks": {0: table((*PROFILED_FIELDS, "flags"), looks)},
        "parts": {0: table((*PART_FIELDS, "flags"), rows)},
    }
    return replace(made, part_names=NAMES, **tables)


def cost(made: Recording) -> SampleCost:
    found = analyse(made).sample
    assert found is not None
    return found


def test_shares_are_those_of_the_sums_and_one_name_is_one_part() -> None:
    found = cost(looked([{1: 3, 2: 4, 3: 1, 4: 2}] * 30))
    parts = [(part.kind, part.name, part.line, round(part.share, 6), round(part.cpu_s, 6)) for part in found.parts]
    assert parts == [
        ("transform", "Blur", 7, 0.5, 0.005),
        ("load", "default_loader", 0, 0.4, 0.004),
        ("rest", "ImageFolder.__getitem__", 0, 0.1, 0.001),
    ]
    assert (found.looks, found.cpu_s, found.wall_s, found.picture) == (30, 0.01, 0.02, "500×375")
    assert (found.collate_s, found.batch_bytes, found.file_bytes) == (0.002, 4e6, None)
    assert all(part.error == pytest.approx(0, abs=1e-9) for part in found.parts)


def test_samples_unlike_each_other_make_a_share_less_sure() -> None:
    even, uneven = cost(looked([{1: 5, 2: 5}] * 40)), cost(looked([{1: 1, 2: 5}, {1: 9, 2: 5}] * 20))
    assert even.parts[0].share == uneven.parts[0].share == 0.5
    assert even.parts[0].error < 0.001
    assert 0.02 < uneven.parts[0].error < 0.1


def test_values_are_there_for_rules() -> None:
    analysis = analyse(looked([{1: 3, 2: 7}] * 30))
    assert analysis.get("sample.transform_share") == pytest.approx(0.3)
    assert analysis.get("sample.looks") == 30 and analysis.get("batch.megabytes") == 4
    assert analysis.get("sample.file_kb") is None
    assert analysis.get("sample.megapixels") == pytest.approx(0.1875)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (recording({0: plan(60)}), "no sample was seen being loaded"),
        (looked([{1: 3, 2: 4}] * 7), "only 7 samples"),
        (looked([{1: 3, 2: 4}, {1: 9, 2: 4}] * 7), "only 14 samples"),  # unlike each other
        (looked([{1: 3, 2: 4}] * 34, start_ms=-2500), "only "),  # while the job warmed up
        (looked([{1: 3, 2: 4}] * 40, loader=1), "no sample was seen being loaded"),  # of an evaluation
    ],
)
def test_too_few_samples_are_reported_with_a_reason(made: Recording, why: str) -> None:
    analysis = analyse(made)
    assert analysis.sample is None and not analysis.has("sample.transform_share")
    assert why in analysis.missing["sample.transform_share"]


def test_a_few_samples_that_are_alike_are_enough() -> None:
    assert cost(looked([{1: 3, 2: 4}, {1: 3.1, 2: 3.9}] * 4)).looks == 8


def test_a_part_whose_name_did_not_come_through_is_other_code() -> None:
    found = cost(replace(looked([{1: 3, 2: 7}] * 30), part_names={2: NAMES[2]}))
    assert [(part.kind, part.name) for part in found.parts] == [("load", "default_loader"), ("rest", "other code")]


def test_lines_come_from_single_stacks_and_from_profiles() -> None:
    lines = [{"function": "blur", "file": "/job/data.py", "line": line} for line in (21, 22)]
    rows = [
        {"user": user, "awaits": None, "count": count} for user, count in zip([*lines, None], (5, 12, 3), strict=True)
    ]
    at = FIRST_STEP_NS + 2000 * MS
    events = (
        Event(at, "making", 100, 0, {"user": lines[0], "awaits": None}),
        Event(at, "profile", 100, 0, {"looks": 400, "stacks": [], "making": rows}),
    )
    found = cost(replace(looked([{1: 3, 2: 7}] * 30), events=events))
    assert found.lines == (SampleLine("blur", "/job/data.py", 22, 18, 21),)


def making(count: int, *lines: int) -> dict[str, Any]:
    """Stack samples in lines of one file, outermost first."""
    frames = [{"function": f"f{line // 10}", "file": "/job/data.py", "line": line} for line in reversed(lines)]
    return {"user": frames[0] if frames else None, "callers": frames[1:], "awaits": None, "count": count}


@pytest.mark.parametrize(
    ("rows", "path"),
    [
        pytest.param(
            [making(40, 12, 21, 31), making(20, 12, 21, 32), making(40, 12, 25)], [(12, 100), (21, 60)], id="the fork"
        ),
        pytest.param([making(60, 12, 21), making(40, 13, 21)], [(12, 60), (21, 60)], id="the heavier of two callers"),
        pytest.param([making(60, 12), making(40, 12, 12)], [(12, 100)], id="one that calls itself"),
        pytest.param([making(40, 12), making(60)], [], id="library code"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_the_calls_that_most_samples_go_through(rows: list[dict[str, Any]], path: list[tuple[int, int]]) -> None:
    event = Event(FIRST_STEP_NS + 2000 * MS, "profile", 100, 0, {"looks": 400, "stacks": [], "making": rows})
    found = cost(replace(looked([{1: 3, 2: 7}] * 30), events=(event,)))
    assert [(line.line, line.seen) for line in found.path] == path


def test_the_report_reads_its_table_from_the_facts() -> None:
    found = cost(looked([{1: 3, 2: 7}] * 30))
    shown = sample_table(sample_facts(found))
    assert shown is not None
    assert shown.rows == (
        ("default_loader (open and decode)", "7.00 ms", "70 %", ""),
        ("Blur", "3.00 ms", "30 %", "/job/data.py:7"),
    )
    assert "10.0 ms of CPU time per sample (30 profiled)" in shown.notes and "500×375" in shown.notes


@pytest.mark.parametrize(
    "facts", [{}, {"sample": None}, {"sample": {"parts": 3}}, {"sample": {"looks": 1, "parts": [{"x": 1}]}}]
)
def test_facts_of_another_shape_make_no_table(facts: dict[str, Any]) -> None:
    assert sample_table(facts) is None


def feeds(workers: int, computing_s: float, rest_s: float, **step: Any) -> WorkerModel:
    wait = max(0.0, computing_s / workers - rest_s) if workers else computing_s
    own = {0: {"input_wait": wait, "forward": rest_s, "backward": 0.0, "optimizer": 0.0, "gap": 0.0}}
    model = StepModel(wait + rest_s, own, **step)
    feed = WorkerFeed(workers=workers, computing_s=(computing_s,), waiting_s=(0.0,), rest_s=(rest_s,))
    return WorkerModel(model, {0: feed})


@pytest.mark.parametrize(
    ("workers", "remaining", "step_s"),
    [(2, 0.5, 0.10), (2, 0.25, 0.06), (2, 1.0, 0.20), (0, 0.5, 0.26), (0, 0.0, 0.06)],
)
def test_cheaper_batches_shorten_the_step_until_the_training_bounds_it(
    workers: int, remaining: float, step_s: float
) -> None:
    found = step_with_cheaper_batches(feeds(workers, 0.4, 0.06), remaining)
    assert found is not None
    assert found[1] == pytest.approx(step_s, rel=0.02) and 0.8 * found[1] < found[0] <= found[1]


def test_cores_bound_what_cheaper_batches_give() -> None:
    crowded = feeds(2, 0.4, 0.06, job_cpu_s=0.46, allowed_cores=2.4)
    found = step_with_cheaper_batches(crowded, 0.5)
    assert found is not None and found[0] <= found[1] <= crowded.step.step_s
    assert found[1] >= (0.46 - 0.2) / 2.4 - 1e-9


def test_helper_threads_of_workers_are_spared_what_the_batches_are_spared() -> None:
    alone = feeds(2, 0.4, 0.06, job_cpu_s=0.86, allowed_cores=4.3)
    helped = replace(alone, feeds={0: replace(alone.feeds[0], threads=2.0)})
    unknown, known = (step_with_cheaper_batches(model, 0.1) for model in (alone, helped))
    assert unknown is not None and unknown[0] == pytest.approx((0.86 - 0.36) / 4.3, rel=0.02)
    assert known is not None and known[1] == pytest.approx(0.06, rel=0.02)


def test_a_librarys_transform_has_the_line_that_makes_it() -> None:
    made = looked([{1: 3, 2: 7}] * 30)
    loader = {**LOADERS["loaders"][0], "dataset": {"class": "d.D", "length": 9, "transforms": ["GaussianBlur"]}}
    names = {**NAMES, 1: {"kind": "transform", "name": "GaussianBlur", "file": "", "line": 0}}
    text = Source("/job/presets.py", "", "import torchvision.transforms as T\nblur = T.Compose([T.GaussianBlur(9)])\n")
    facts = {**made.facts, 100: {**made.facts[100], "loaders": [loader]}}
    part = cost(replace(made, facts=facts, part_names=names, sources=(text,))).parts[1]
    assert (part.name, part.file, part.place) == ("GaussianBlur", "", "/job/presets.py:2")
    own = cost(replace(made, sources=(text,))).parts[1]
    assert (own.file, own.made_file, own.place) == ("/job/data.py", "", "/job/data.py:7")


PRESETS = "/job/presets.py"
BUILT = textwrap.dedent("""\
    from torchvision import transforms as T

    def training(size):
        return T.Compose([
            T.RandomHorizontalFlip(),
            T.GaussianBlur(21),
            T.ToTensor(),
        ])

    def testing(size):
        return T.Compose([T.GaussianBlur(3), T.ToTensor()])

    def more(size):
        steps = [T.Resize(size)]
        steps.append(T.ColorJitter(0.4))
        return T.Compose(steps)
    """)


def built_at(name: str, *steps: str, text: str = BUILT, **dataset: object) -> tuple[str, int] | None:
    described: DescribedDataset = {"class": "data.Pictures", "length": 9, "transforms": [*steps], **dataset}  # type: ignore[typeddict-item]
    return place_of_transform(
        (Source("/job/train.py", "", "import presets\n"), Source(PRESETS, "", text)), described, name
    )


def test_the_list_with_the_same_transforms_is_the_place() -> None:
    assert built_at("GaussianBlur", "RandomHorizontalFlip", "GaussianBlur", "ToTensor") == (PRESETS, 6)
    assert built_at("GaussianBlur", "GaussianBlur", "ToTensor") == (PRESETS, 11)


def test_a_list_of_a_data_set_inside_counts() -> None:
    inner = {"class": "data.Pictures", "length": 9, "transforms": ["GaussianBlur", "ToTensor"]}
    assert built_at("GaussianBlur", inner=inner) == (PRESETS, 11)
    assert built_at("GaussianBlur", parts=[inner]) == (PRESETS, 11)


def test_without_such_a_list_the_only_call_is_the_place() -> None:
    assert built_at("ColorJitter", "Resize", "ColorJitter") == (PRESETS, 15)
    assert built_at("GaussianBlur", "Resize", "GaussianBlur") is None
    assert built_at("Pad", "Pad") is None


def test_two_lists_alike_are_no_place() -> None:
    again = BUILT + "other = T.Compose([T.GaussianBlur(3), T.ToTensor()])\n"
    assert built_at("GaussianBlur", "GaussianBlur", "ToTensor", text=again) is None
    assert built_at("GaussianBlur", "GaussianBlur", "ToTensor", text="def broken(:") is None
