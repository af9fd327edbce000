"""Memory of torch's allocator on each rank's GPU, in parts, and its wording."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recordings import plan, recording, table
from report_samples import bottleneck
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.gpu.gpu_memory_rows import memory_rows
from rn50_advisor.advisor.report import html, markdown, text
from rn50_advisor.probes.rank.layout import GPU_STEP_FIELDS

GIB = 1 << 30
FACTS = {
    100: {
        "rank": 0,
        "cuda": {"name": "NVIDIA H200", "memory_bytes": 100 * GIB},
        "optimizer": {"parameter_bytes": GIB, "gradient_bytes": GIB, "state_bytes": 2 * GIB},
    }
}
UNSEEN = {"allocated_bytes": -1, "reserved_bytes": -1, "peak_bytes": -1, "alloc_retries": -1}


def looked_at(*looks: tuple[int, int, int, int], facts=FACTS):
    """(allocated, peak, reserved in GiB, retries) at looks with unseen steps between."""
    rows = []
    for number, (allocated, peak, reserved, retries) in enumerate(looks):
        sizes = {"allocated_bytes": allocated * GIB, "peak_bytes": peak * GIB, "reserved_bytes": reserved * GIB}
        rows += [{"step": 2 * number, **sizes, "alloc_retries": retries}, {"step": 2 * number + 1, **UNSEEN}]
    return analyse(recording({0: plan()}, facts=facts, gpu_steps={0: table((*GPU_STEP_FIELDS, "flags"), rows)}))


def test_the_peak_is_split_into_its_parts() -> None:
    [found] = looked_at((4, 40, 50, 1), (5, 60, 80, 3)).facts["gpu_memory"]
    assert (found["allocated"], found["peak"], found["reserved"], found["retries"]) == (5 * GIB, 60 * GIB, 80 * GIB, 2)
    [(label, words)] = memory_rows({"gpu_memory": [found]})
    assert label == "memory of rank 0"
    assert words == (
        "tensors 60.0 GiB at their peak, 60 % of the GPU (56.0 GiB activations and the rest, 1.00 GiB parameters, "
        "1.00 GiB gradients, 2.00 GiB optimizer state); 5.00 GiB at the end of steps; "
        "80.0 GiB reserved, 25 % of it never used; 2 allocations emptied the cache first"
    )


def test_unknown_parts_are_left_out() -> None:
    bare = {100: {"rank": 0, "cuda": {"name": "NVIDIA H200"}}}
    found = looked_at((4, 40, 50, 0), facts=bare)
    [(_, words)] = memory_rows(found.facts)
    assert (
        words
        == "tensors 40.0 GiB at their peak; 4.00 GiB at the end of steps; 50.0 GiB reserved, 20 % of it never used"
    )
    assert "gpu_memory" not in analyse(recording({0: plan()}, facts=FACTS)).facts


def test_ranks_with_the_same_memory_share_a_row() -> None:
    [alike] = looked_at((4, 40, 50, 0)).facts["gpu_memory"]
    ranks = [{**alike, "rank": rank} for rank in (0, 1, 3)]
    others = [{**alike, "rank": 10 + n, "peak": alike["peak"] - n * GIB} for n in range(1, 11)]
    labels = [label for label, _ in memory_rows({"gpu_memory": [*ranks, {**others[0], "rank": 2}]})]
    assert labels == ["memory of ranks 0–1, 3", "memory of rank 2"]
    *shown, rest = memory_rows({"gpu_memory": [*ranks, *others]})
    assert len(shown) == 8 and rest == ("memory of other ranks", "3 more ranks are in the JSON report")


@pytest.mark.parametrize("entries", [7, [7], [{"rank": 0}], {"rank": 0}])
def test_what_is_of_another_shape_is_passed_over(entries) -> None:
    assert memory_rows({"gpu_memory": entries}) == []


def test_every_report_shows_it_once() -> None:
    made = bottleneck()
    report = replace(made, facts={**made.facts, "gpu_memory": looked_at((4, 40, 50, 0)).facts["gpu_memory"]})
    for render in (text.render, markdown.render, html.render):
        rendered = render(report).split('type="application/json"')[0]
        assert "memory of rank 0" in rendered and "gpu_memory" not in rendered and '"peak"' not in rendered
