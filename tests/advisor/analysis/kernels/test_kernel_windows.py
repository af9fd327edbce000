"""A profiler window of a GPU or a CPU: classes of kernels, tensor cores, copies and exchange."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from kernel_traces import STEP_US, plain, two_steps, window
from rn50_advisor.advisor.analysis.kernels.chrome_trace import read_trace
from rn50_advisor.advisor.analysis.kernels.kernel_windows import summary_of, window_of
from rn50_advisor.advisor.model.gpu.kernel_classes import window_from
from traces import ADD, ALL_REDUCE, ATTENTION_FP32, CONV, CONV_FP32, GEMM, TraceBook, convolution


def test_kernels_are_counted_by_class_and_an_optimizers_by_its_launch() -> None:
    found = window(two_steps(plain))
    assert found.device == "cuda" and found.steps == 2 and found.first_step == 12
    assert found.hardware == "NVIDIA A100-SXM4-80GB"
    assert found.step_s == pytest.approx(STEP_US * 1e-6)
    assert found.classes == {
        "conv": pytest.approx(4e-3),
        "norm": pytest.approx(2e-3),
        "elementwise": pytest.approx(1e-3),
        "optimizer": pytest.approx(1e-3),
    }
    assert found.busy_s == pytest.approx(8e-3) and found.launches == 4
    assert found.mean_kernel_s == pytest.approx(2e-3)


def test_tensor_cores_and_precision_are_those_of_products_alone() -> None:
    found = window(two_steps(plain))
    assert found.tensor_core_share == 1.0 and found.precision == "bf16"

    def slow(book: TraceBook, begin: float) -> None:
        operator = convolution(book, begin - 400, kind="float")
        book.kernel(CONV_FP32, begin, 3000, operator=operator)
        book.kernel(GEMM, begin + 3000, 1000, operator=operator)

    found = window(two_steps(slow))
    assert found.tensor_core_share == pytest.approx(0.25) and found.precision == "fp32"
    assert found.rows[0].operator == "aten::convolution" and found.rows[0].shapes == "32×64×56×56, 64×64×3×3"
    assert not found.rows[0].tensor_cores


def product(book: TraceBook, begin: float, kind: str, name: str = "aten::mm", edge: int = 64) -> int:
    return book.host(name, begin - 400, 20, **{"Input Dims": [[edge, edge]] * 2, "Input type": [kind, kind]})


def test_attention_says_nothing_of_the_products_beside_it() -> None:
    def fill(book: TraceBook, begin: float) -> None:
        book.kernel("ampere_sgemm_128x64_tn", begin, 4000, operator=product(book, begin, "float"))
        book.kernel(ATTENTION_FP32, begin + 4000, 1300)

    found = window(two_steps(fill))
    assert found.tensor_core_share == 0.0 and found.classes["matmul"] == pytest.approx(5.3e-3)
    assert [row.tensor_cores for row in found.rows] == [False, True], "each is shown as it is"


def test_what_inductor_fuses_around_a_convolution_is_none() -> None:
    def fill(book: TraceBook, begin: float) -> None:
        book.kernel(CONV, begin, 4000, operator=convolution(book, begin - 400))
        book.kernel("triton_poi_fused_convolution_relu_threshold_backward_6", begin + 4000, 4000)

    found = window(two_steps(fill))
    assert found.tensor_core_share == 1.0
    assert found.classes == pytest.approx({"conv": 4e-3, "elementwise": 4e-3})


@pytest.mark.parametrize(("kind", "share"), [("c10::BFloat16", 1.0), ("c10::Half", 1.0), ("float", 0.0)])
def test_an_inductor_template_is_classified_by_its_product(kind: str, share: float) -> None:
    name = "triton_tem_fused_mm_0"
    found = window(two_steps(lambda b, at: b.kernel(name, at, 4000, operator=product(b, at, kind, name))))
    assert found.tensor_core_share == share
    bare = window(two_steps(lambda b, at: b.kernel(name, at, 4000)))
    assert bare.tensor_core_share == 0.0


def test_precision_is_that_of_most_products_or_none() -> None:
    def fill(book: TraceBook, begin: float) -> None:
        book.kernel(GEMM, begin, 100, operator=product(book, begin, "c10::BFloat16"))
        book.kernel("nvjet_qqtst_128x128_128x6_1x2_h_bz_TNT", begin + 100, 5000)  # launched by a library of its own

    assert window(two_steps(fill)).precision == ""
    eight = "c10::Float8_e4m3fn"
    found = window(two_steps(lambda b, at: b.kernel(GEMM, at, 900, operator=product(b, at, eight, "aten::_scaled_mm"))))
    assert found.precision == "fp8"


def test_without_matrix_products_there_is_no_tensor_core_share() -> None:
    found = window(two_steps(lambda book, begin: book.kernel(ADD, begin, 5000)))
    assert found.tensor_core_share is None and found.flops is None


def test_waits_are_those_of_the_steps_and_not_the_profilers_own() -> None:
    def fill(book: TraceBook, begin: float) -> None:
        plain(book, begin)
        book.call("cudaStreamSynchronize", begin + 1000, 500)
        book.call("cudaFreeAsync", begin + 2000, 500)  # waits for nobody

    book = two_steps(fill)
    book.call("cudaDeviceSynchronize", 1_000_000.0 + 2 * STEP_US - 400, 300)
    found = window(book)
    assert found.syncs == 1 and found.sync_s == pytest.approx(0.5e-3)


def test_pinned_copies_are_counted_apart() -> None:
    def fill(book: TraceBook, begin: float) -> None:
        plain(book, begin)
        book.copy("Memcpy HtoD (Pinned -> Device)", begin + 100, 700, 1_000_000)
        book.copy("Memcpy DtoH (Device -> Pageable)", begin + 7000, 3, 4)

    found = window(two_steps(fill))
    assert (found.pinned_bytes, found.pageable_bytes) == (1_000_000, 0)
    assert found.pinned_mb_per_s is None, "too short to measure the link"


def test_copies_in_every_direction_stand_beside_the_kernels() -> None:
    def fill(book: TraceBook, begin: float) -> None:
        plain(book, begin)
        book.copy("Memcpy HtoD (Pinned -> Device)", begin + 100, 700, 1_000_000)
        book.copy("Memcpy DtoH (Device -> Pageable)", begin + 300, 700, 4)
        book.copy("Memset (Device)", begin + 7000, 200, 4)

    found, without = window(two_steps(fill)), window(two_steps(plain))
    assert found.copy_s == pytest.approx(1.1e-3), "together: two of them overlap"
    assert found.classes == pytest.approx(dict(without.classes)) and found.busy_s == pytest.approx(without.busy_s)
    assert [(row.name, row.kind, row.count) for row in found.rows if row.kind == "copy"] == [
        ("Memcpy HtoD (Pinned -> Device)", "copy", 1.0),
        ("Memcpy DtoH (Device -> Pageable)", "copy", 1.0),
        ("Memset (Device)", "copy", 1.0),
    ]
    assert without.copy_s == 0.0


def test_large_pinned_copies_show_the_links_rate() -> None:
    def fill(book: TraceBook, begin: float) -> None:
        plain(book, begin)
        for n, (us, size) in enumerate([(3000, 77_000_000), (100, 4), (3080, 77_000_000), (9000, 77_000_000)]):
            book.copy("Memcpy HtoD (Pinned -> Device)", begin + 100 + 10 * n, us, size)
        book.copy("Memcpy DtoH (Device -> Pinned)", begin + 200, 1, 77_000_000)

    found = window(two_steps(fill))
    assert found.pinned_mb_per_s == pytest.approx(25_000)
    ends = found.pinned_least_mb_per_s, found.pinned_most_mb_per_s
    assert ends == pytest.approx((77e6 / 9000, 77e6 / 3000))


def test_collectives_are_hidden_as_far_as_other_kernels_run_meanwhile() -> None:
    def fill(book: TraceBook, begin: float) -> None:
        book.kernel(CONV, begin, 6000)
        book.kernel(ALL_REDUCE, begin + 4000, 3000, stream=20)
        book.kernel(ADD, begin + 7000, 3000)

    found = window(two_steps(fill))
    assert found.nccl_s == pytest.approx(3e-3) and found.nccl_overlap_share == pytest.approx(2 / 3)
    assert found.classes["nccl"] == pytest.approx(3e-3) and found.busy_s == pytest.approx(10e-3)


def test_on_a_cpu_operators_own_their_time_once() -> None:
    book = TraceBook()
    for begin in (0.0, 1000.0):
        book.mark(begin)
        book.host("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin + 10, 90, cat="user_annotation")
        book.host("aten::stack", begin + 20, 50)  # collating is loading
        book.host("aten::conv2d", begin + 100, 300)
        convolution(book, begin + 110, 280, kind="float")
        book.host("aten::empty", begin + 120, 30)
        book.host("autograd::engine::evaluate_function: ReluBackward0", begin + 500, 100, tid=4712)
        book.host("aten::threshold_backward", begin + 510, 80, tid=4712)
        book.host("Optimizer.step#SGD.step", begin + 700, 100, cat="user_annotation")
        book.host("aten::add_", begin + 710, 60)
    book.mark(2000.0)
    found = window(book)
    assert found.device == "cpu" and found.step_s == pytest.approx(1e-3)
    assert {kind: round(s * 1e6) for kind, s in found.classes.items()} == {
        "input": 90,
        "conv": 300,
        "elementwise": 80,
        "optimizer": 100,
    }
    assert found.flops == 2.0 * 32 * 64 * 56 * 56 * 64 * 9 and found.precision == "fp32"
    assert found.rows[0].name == "aten::convolution" and found.rows[0].seconds == pytest.approx(250e-6)
    assert found.tensor_core_share is None and not found.idle


def test_on_a_cpu_collectives_are_hidden_as_far_as_other_operators_run_meanwhile() -> None:
    book = TraceBook()
    for begin in (0.0, 1000.0):
        book.mark(begin)
        book.host("DistributedDataParallel.forward", begin + 10, 980, cat="user_annotation")
        book.host("aten::conv2d", begin + 100, 300)
        book.host("c10d::allreduce_", begin + 400, 10)
        book.host("gloo:all_reduce", begin + 400, 400, cat="user_annotation", tid=4713)
        book.host("aten::add_", begin + 410, 90)
    book.mark(2000.0)
    found = window(book)
    assert found.nccl_s == pytest.approx(400e-6) and found.nccl_overlap_share == pytest.approx(90 / 400)


def test_a_window_survives_json() -> None:
    found = window(two_steps(plain))
    assert window_from(json.loads(json.dumps(asdict(found)))) == found


def test_a_step_that_is_not_whole_says_nothing_of_idle_time() -> None:
    book = TraceBook()
    book.mark(999_500.0)
    plain(book, 1_000_000.0)
    book.mark(1_009_500.0)
    found = window(book)
    assert found.idle == {} and found.step_s == pytest.approx(8e-3)


def test_idle_time_is_the_mean_of_all_whole_steps() -> None:
    """Of three steps, the first waits 400 us for a launch, the second 200."""
    book = TraceBook()
    for number, idle in enumerate((400.0, 200.0, 0.0)):
        at = 10_000.0 * number
        book.mark(at)
        book.kernel(ADD, at + 10, 5_000.0, launched=at + 5)
        book.kernel(ADD, at + 5_010 + idle, 5_000.0 - idle, launched=at + 5_000 + idle)
    book.mark(30_000.0)
    found = window_of(book.document(), rank=0)
    assert found.idle["launch"] == pytest.approx(300e-6, rel=0.05)
    assert found.step_s == pytest.approx(0.01)


def test_where_the_gpus_own_time_of_the_steps_is_known_it_is_all_of_them() -> None:
    """The last step's idle time counts, too."""
    book = TraceBook()
    for number, idle in enumerate((400.0, 200.0, 600.0)):
        at = 10_000.0 * number
        book.mark(at)
        book.kernel(ADD, at + 10, 5_000.0, launched=at + 5)
        book.kernel(ADD, at + 5_010 + idle, 5_000.0 - idle, launched=at + 5_000 + idle)
    book.mark(30_000.0)
    found = summary_of(read_trace(book.document()), rank=0, on_gpu=(10.0, 30_010.0))
    assert found.idle["launch"] == pytest.approx(400e-6, rel=0.05)
    assert found.busy_s == pytest.approx(9_600e-6, rel=0.01)


def test_on_a_cpu_annotations_hide_no_collective() -> None:
    book = TraceBook()
    for number in range(2):
        at = 10_000.0 * number
        book.mark(at)
        book.host(f"ProfilerStep#{number}", at, 10_000, cat="user_annotation")
        book.host("my loop", at, 10_000, cat="user_annotation")
        book.host("gloo:all_reduce", at + 1_000, 4_000, cat="user_annotation", tid=5)
        book.host("aten::mm", at + 1_000, 1_000)
    book.mark(20_000.0)
    found = window(book)
    assert found.nccl_overlap_share == pytest.approx(0.25)
    assert not any(row.name.startswith("ProfilerStep") for row in found.rows)
