"""What a trace shows about a rank beside its steps."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.analysis.kernels.chrome_trace import read_trace
from rn50_advisor.advisor.traces.python_stacks import PythonStacks
from rn50_advisor.advisor.traces.traced_facts import WORKERS, batch_size, rank_facts
from rn50_advisor.advisor.traces.traced_steps import find_steps
from rn50_advisor.probes.documents.rank_documents import RankFacts
from traced_loops import SEVERAL, SINGLE, traced_loop
from traces import CONV_FP32, GEMM, TraceBook

V100 = {"id": 0, "name": "Tesla V100", "computeMajor": 7, "computeMinor": 0, "totalGlobalMem": 34_000_000_000}


def facts_of(book: TraceBook, *devices: dict[str, Any]) -> RankFacts:
    trace = read_trace(book.document())
    found = find_steps(trace)
    return rank_facts(trace, found, None, [*devices], PythonStacks(trace, found.thread))


def called_from(book: TraceBook, name: str, at: float, took: float, place: str) -> None:
    """Adds the call of a Python function, with its caller's line."""
    book.host(name, at, took, cat="python_function", CallFrom=place)


def test_the_iterators_name_tells_a_loader_without_workers_from_one_with_some() -> None:
    (single,), (several,) = (facts_of(traced_loop(loader=loader))["loaders"] for loader in (SINGLE, SEVERAL))
    assert (single["num_workers"], single.get("library")) == (0, None)
    assert (several["num_workers"], several["library"]) == (None, WORKERS)
    assert "loaders" not in facts_of(traced_loop(fetch=0.0))


def test_the_line_that_takes_batches_comes_from_the_traces_stacks() -> None:
    book = traced_loop()
    called_from(book, "train.py(30): main", 0.0, 9_000_000.0, "train.py:99")
    called_from(book, "torch/utils/data/dataloader.py(720): __next__", 999_990.0, 2_020.0, "train.py:41")
    (loader,) = facts_of(book)["loaders"]
    assert (loader["fetch_file"], loader["fetch_line"]) == ("train.py", 41)
    assert "file" not in loader


def test_the_gpu_and_what_it_can_do() -> None:
    cuda = facts_of(traced_loop(), V100)["cuda"]
    assert cuda is not None
    assert (cuda["name"], cuda["capability"], cuda["memory_bytes"]) == ("Tesla V100", [7, 0], 34_000_000_000)
    assert cuda["tf32_cudnn"] is False


def test_a_gpu_of_amd_has_no_compute_capability_of_nvidia() -> None:
    amd = {**V100, "name": "AMD Instinct MI250", "computeMajor": 9, "warpSize": 64}
    cuda = facts_of(traced_loop(), amd)["cuda"]
    assert cuda is not None
    assert "capability" not in cuda


def test_without_device_properties_kernels_show_the_least_capability() -> None:
    book = traced_loop()
    book.kernel("volta_sgemm_128x64_nn", 2_000_000, 10.0)
    cuda = facts_of(book)["cuda"]
    assert cuda is not None
    assert cuda["capability"] == [7, 0]


def test_a_compiled_model_is_known_by_its_regions() -> None:
    book = traced_loop()
    book.host("## Call CompiledFxGraph fud64jsrx", 1_003_000.0, 10.0, cat="user_annotation")
    assert (facts_of(book)["compiled_frames"], "compiled_frames" in facts_of(traced_loop())) == (1, False)


def test_waits_and_copies_of_a_job_on_a_gpu_are_facts() -> None:
    facts = facts_of(traced_loop(steps=4), V100)
    assert (facts["syncs"]["looks"], facts["syncs"]["sites"], facts["copies"]) == (4, [], [])


def test_a_job_on_the_cpu_has_no_gpu() -> None:
    facts = facts_of(traced_loop(on_gpu=False))
    assert "cuda" not in facts
    assert "syncs" not in facts


@pytest.mark.parametrize(
    ("kernel", "half"),
    [
        (CONV_FP32, None),
        ("volta_fp16_s884cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1", None),
        (GEMM, None),
    ],
)
def test_precision_needs_a_window(kernel: str, half: None) -> None:
    book = traced_loop(steps=2)
    book.kernel(kernel, 5_000_000, 1_000_000.0)
    assert facts_of(book, V100).get("conv") is half


def test_the_first_layers_shape_gives_the_batch_size() -> None:
    trace = read_trace(traced_loop().document())
    found = find_steps(trace)
    assert batch_size(trace, found.steps[0], found.thread) == 16


def test_the_batch_size_of_a_model_on_features_is_unknown() -> None:
    book = traced_loop(steps=2)
    for event in book.events:
        if event["name"] == "aten::conv2d":
            event["args"]["Input Dims"] = [[16, 512, 7, 7], [512, 512, 3, 3]]
    trace = read_trace(book.document())
    found = find_steps(trace)
    assert batch_size(trace, found.steps[0], found.thread) == 0
