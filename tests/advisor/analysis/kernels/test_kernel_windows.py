"""What a traced window says of a GPU: classes of kernels, tensor cores, causes of idle time, copies, exchange, FLOPs."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from kernel_traces import STEP_US, plain, two_steps
from rn50_advisor.advisor.analysis.kernels.chrome_trace import common, length, union, without
from rn50_advisor.advisor.analysis.kernels.kernel_names import (
    kernel_class,
    operator_class,
    short_name,
    uses_tensor_cores,
)
from rn50_advisor.advisor.analysis.kernels.kernel_windows import window_of
from rn50_advisor.advisor.analysis.kernels.operator_flops import operator_flops
from rn50_advisor.advisor.model.gpu.kernel_classes import window_from
from traces import ADD, ALL_REDUCE, BATCH_NORM, CONV, CONV_FP32, GEMM, LAYOUT, SGD, TraceBook, convolution


def window(book: TraceBook):
    return window_of(book.document(), rank=0, first_step=12)


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


ATTENTION_FP32 = "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::Params)"


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
def test_a_template_of_inductors_is_told_by_what_it_multiplies(kind: str, share: float) -> None:
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


def test_without_products_nothing_is_said_of_tensor_cores() -> None:
    found = window(two_steps(lambda book, begin: book.kernel(ADD, begin, 5000)))
    assert found.tensor_core_share is None and found.flops is None


def ends_dry(book: TraceBook, begin: float, **last) -> None:
    """6 ms of kernels, 3 ms of nothing, one more kernel of 1 ms."""
    book.kernel(CONV, begin, 6000)
    book.kernel(ADD, begin + 9000, 1000, **last)


def idle(fill) -> dict[str, float]:
    """Milliseconds by cause, those that are none left out."""
    return {cause: round(s * 1e3, 3) for cause, s in window(two_steps(fill)).idle.items() if s > 0}


def test_a_kernel_launched_after_the_gpu_ran_dry_came_too_late() -> None:
    assert idle(lambda book, begin: ends_dry(book, begin, launched=begin + 8990)) == {"launch": 3.0}


def test_a_kernel_launched_before_waited_for_another_stream() -> None:
    assert idle(lambda book, begin: ends_dry(book, begin, launched=begin + 100)) == {"other": 3.0}


def test_after_the_host_waited_for_the_gpu_the_wait_is_the_cause() -> None:
    def fill(book: TraceBook, begin: float) -> None:
        book.call("cudaStreamSynchronize", begin + 1000, 5050)  # returns just after the kernel has ended
        ends_dry(book, begin, launched=begin + 8990)

    assert idle(fill) == {"sync": 3.0}


def test_a_wait_that_had_long_ended_is_no_cause() -> None:
    def fill(book: TraceBook, begin: float) -> None:
        book.call("cudaStreamSynchronize", begin + 1000, 2000)
        ends_dry(book, begin, launched=begin + 8990)

    assert idle(fill) == {"launch": 3.0}


def test_a_wait_is_the_cause_of_no_more_than_it_held_the_host() -> None:
    def fill(book: TraceBook, begin: float) -> None:
        book.call("cudaStreamSynchronize", begin + 5950, 60)  # then 3 ms of Python
        ends_dry(book, begin, launched=begin + 8990)

    assert idle(fill) == {"sync": 0.06, "launch": 2.94}


def test_waits_are_those_of_the_steps_and_not_the_profilers_own() -> None:
    def fill(book: TraceBook, begin: float) -> None:
        plain(book, begin)
        book.call("cudaStreamSynchronize", begin + 1000, 500)
        book.call("cudaFreeAsync", begin + 2000, 500)  # waits for nobody

    book = two_steps(fill)
    book.call("cudaDeviceSynchronize", 1_000_000.0 + 2 * STEP_US - 400, 300)
    found = window(book)
    assert found.syncs == 1 and found.sync_s == pytest.approx(0.5e-3)


def test_what_overlaps_a_fetch_is_for_input_and_the_rest_is_not() -> None:
    def fill(book: TraceBook, begin: float) -> None:
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        book.host(name, begin + 5000, 3000, cat="user_annotation")  # the first millisecond is hidden behind the kernel
        ends_dry(book, begin, launched=begin + 8990)

    assert idle(fill) == {"input": 2.0, "launch": 1.0}


def test_copies_and_the_hosts_part_in_them_are_told_from_launches() -> None:
    def fill(book: TraceBook, begin: float) -> None:
        book.copy("Memcpy HtoD (Pageable -> Device)", begin + 7000, 1500, 19_267_584, called=begin + 6500, held=2000)
        ends_dry(book, begin, launched=begin + 8990)

    found = window(two_steps(fill))
    assert {cause: round(s * 1e3, 3) for cause, s in found.idle.items() if s} == {"copy": 2.0, "launch": 1.0}
    assert found.pageable_bytes == 19_267_584 and found.pageable_s == pytest.approx(1.5e-3) and found.pinned_bytes == 0


def test_pinned_copies_are_counted_apart() -> None:
    def fill(book: TraceBook, begin: float) -> None:
        plain(book, begin)
        book.copy("Memcpy HtoD (Pinned -> Device)", begin + 100, 700, 1_000_000)
        book.copy("Memcpy DtoH (Device -> Pageable)", begin + 7000, 3, 4)

    found = window(two_steps(fill))
    assert (found.pinned_bytes, found.pageable_bytes) == (1_000_000, 0)
    assert found.pinned_mb_per_s is None, "too short to tell what the link carries"


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


def test_large_pinned_copies_tell_what_the_link_carries() -> None:
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


def test_flops_come_from_the_shapes_or_not_at_all() -> None:
    found = window(two_steps(plain))
    assert found.flops == 2.0 * 32 * 64 * 56 * 56 * 64 * 9

    def bare(book: TraceBook, begin: float) -> None:
        plain(book, begin)
        book.host("aten::mm", begin + 10, 5)  # its shapes were not kept

    assert window(two_steps(bare)).flops is None


@pytest.mark.parametrize(
    ("kernel", "operator"),
    [
        ("triton_tem_fused_addmm_relu_0", ""),
        ("triton_tem_fused_addmm_relu_0", "triton_tem_fused_addmm_relu_0"),
        ("nvjet_qqtst_128x128_128x6_1x2_h_bz_TNT", ""),
        ("void RNN_blockPersist_fp_LSTM<__half>", "aten::_cudnn_rnn"),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64> >", "flash_attn::_flash_attn_forward"),
    ],
)
def test_what_no_counted_operator_launched_leaves_no_sum(kernel: str, operator: str) -> None:
    def beside(took: float):
        def fill(book: TraceBook, begin: float) -> None:
            plain(book, begin)  # 4 ms of a convolution
            behind = book.host(operator, begin - 200, 20) if operator else 0
            book.kernel(kernel, begin + 8000, took, operator=behind)

        return fill

    assert window(two_steps(beside(500))).flops is None
    assert window(two_steps(beside(200))).flops == window(two_steps(plain)).flops, "less than its error"


def test_what_a_counted_operator_calls_is_counted() -> None:
    def fill(book: TraceBook, begin: float) -> None:
        convolution(book, begin - 400, 50)
        inner = book.host("aten::cudnn_convolution", begin - 390, 30)
        book.kernel(CONV, begin, 4000, launched=begin - 380, operator=inner)

    assert window(two_steps(fill)).flops == 2.0 * 32 * 64 * 56 * 56 * 64 * 9


@pytest.mark.parametrize(
    ("name", "dims", "concrete", "expected"),
    [
        ("aten::mm", [[8, 16], [16, 4]], None, 2 * 8 * 16 * 4),
        ("aten::addmm", [[4], [8, 16], [16, 4], [], []], None, 2 * 8 * 16 * 4),
        ("aten::_scaled_mm", [[8, 16], [16, 4], [], []], None, 2 * 8 * 16 * 4),
        ("aten::_addmm_activation", [[4], [8, 16], [16, 4], [], []], None, 2 * 8 * 16 * 4),
        ("aten::bmm", [[3, 8, 16], [3, 16, 4]], None, 2 * 3 * 8 * 16 * 4),
        (
            "aten::convolution",  # the first layer of ResNet50: 118,013,952 multiply-adds an image
            [[2, 3, 224, 224], [64, 3, 7, 7], [], [], [], [], [], [], []],
            ["", "", "", "[2, 2]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1"],
            2 * 2 * 118_013_952,
        ),
        (
            "aten::convolution",  # depthwise
            [[1, 32, 10, 10], [32, 1, 3, 3], [], [], [], [], [], [], []],
            ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "32"],
            2 * 32 * 100 * 9,
        ),
        (
            "aten::convolution_backward",
            [[2, 64, 112, 112], [2, 3, 224, 224], [64, 3, 7, 7], [], [], [], [], [], [], [], []],
            ["", "", "", "[0]", "[2, 2]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1", "[False, True, False]"],
            2 * 2 * 118_013_952,  # no gradient for the pictures
        ),
        (
            "aten::_scaled_dot_product_flash_attention",
            [[2, 12, 197, 64], [2, 12, 197, 64], [2, 12, 197, 64], [], [], []],
            None,
            4 * 2 * 12 * 197 * 197 * 64,
        ),
        ("aten::mm", None, None, None),
        ("aten::convolution", [[2, 3, 224, 224], [64, 3, 7, 7]], None, None),
        ("aten::relu", [[2, 3]], None, None),
    ],
)
def test_operations_by_shape(name, dims, concrete, expected) -> None:
    args = {"Input Dims": dims, "Concrete Inputs": concrete}
    assert operator_flops(name, {key: value for key, value in args.items() if value is not None}) == expected


@pytest.mark.parametrize(
    ("name", "kind", "cores"),
    [
        (CONV, "conv", True),
        (CONV_FP32, "conv", False),
        (GEMM, "matmul", True),
        ("ampere_sgemm_128x64_nt", "matmul", False),
        ("volta_scudnn_128x64_relu_xregs_medium_nn_v1", "conv", False),
        ("volta_fp16_s884cudnn_fp16_256x64_ldg8_relu_f2f_exp_small_nhwc2nchw_tn_v1", "conv", True),
        ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", "matmul", True),
        ("void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_128x128_16x4_nhwc_align4>", "conv", True),
        ("cutlass_80_simt_sgemm_128x128_8x4_nn_align1", "matmul", False),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_kernel__5x_cublas", "matmul", True),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "matmul", True),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::half_t> >", "matmul", True),
        ("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64> >", "matmul", True),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_cga1x1x1_kernel0_0", "matmul", True),
        ("cudnn_generated_fort_native_sdpa_sm100_flash_fprop_f16_knob_1_128x128x128_4x1x1_cga1x1x1_kernel0_0", "matmul", True),
        ("cudnn_generated_fort_native_sdpa_sm80_flash_bprop_wmma_f16_knob_3_64x64x128_4x1x1_kernel0_0", "matmul", True),
        (BATCH_NORM, "norm", False),
        ("void cudnn::batchnorm_bwtr_nhwc_semiPersist<__half, float>", "norm", False),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>", "norm", False),
        (LAYOUT, "layout", False),
        ("void cudnn::engines_precompiled::nhwcToNchwKernel<__half, __half, float, true, false>", "layout", False),
        (SGD, "optimizer", False),
        (ALL_REDUCE, "nccl", False),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "nccl", False),
        (ADD, "elementwise", False),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float> > >", "elementwise", False),
        ("triton_poi_fused_add_relu_3", "elementwise", False),
        ("triton_poi_fused_addmm_relu_0", "elementwise", False),
        ("triton_poi_fused__scaled_dot_product_flash_attention_2", "elementwise", False),
        ("triton_red_fused_native_layer_norm_backward_7", "norm", False),
        ("triton_per_fused__native_batch_norm_legit_functional_convolution_4", "norm", False),
        ("void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel<c10::BFloat16, float>", "norm", False),
        ("void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>", "norm", False),
        ("void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<2> > >", "matmul", True),
        (ATTENTION_FP32, "matmul", True),
        ("fmha_cutlassB_f32_aligned_64x64_k64_sm75(PyTorchMemEffAttention::AttentionBackwardKernel<float>::Params)", "matmul", False),
        ("fmha_cutlassF_f16_aligned_64x64_rf_sm75(PyTorchMemEffAttention::AttentionKernel<cutlass::half_t>::Params)", "matmul", True),
        ("void at::native::(anonymous namespace)::max_pool_backward_nhwc<float, float>", "other", False),
    ],
)  # fmt: skip
def test_names_tell_class_and_tensor_cores(name: str, kind: str, cores: bool) -> None:
    assert kernel_class(name) == kind
    assert uses_tensor_cores(name) is cores


def test_a_product_that_a_convolution_launched_is_its_convolution() -> None:
    assert kernel_class(GEMM, "aten::cudnn_convolution") == "conv"
    assert kernel_class(GEMM, "aten::addmm") == "matmul"
    assert kernel_class(ADD, "aten::cudnn_convolution") == "elementwise"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::mkldnn_convolution", "conv"),
        ("aten::convolution_backward", "conv"),
        ("aten::addmm", "matmul"),
        ("aten::native_batch_norm_backward", "norm"),
        ("aten::relu", None),
        ("Optimizer.step#AdamW.step", "optimizer"),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "input"),
        ("aten::to", "copy"),
        ("Torch-Compiled Region: 0/0", "compiled"),
        ("## Call CompiledFxGraph fx7 ##", "compiled"),
    ],
)
def test_operators_have_classes_too(name: str, kind: str | None) -> None:
    assert operator_class(name) == kind


def test_one_kernel_has_one_short_name() -> None:
    assert short_name(ADD) == "at::native::vectorized_elementwise_kernel<…>"
    assert short_name(CONV) == CONV[:160]


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


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"traceEvents": {}},
        {"traceEvents": []},
        {"traceEvents": [None, {"ph": "X"}, {"ph": "X", "ts": "a", "cat": "kernel"}]},
    ],
)
def test_what_is_no_trace_is_refused(document) -> None:
    with pytest.raises(ValueError, match="in it"):
        window_of(document, rank=0)


def test_damaged_events_are_passed_over() -> None:
    book = two_steps(plain)
    whole = window(book)
    book.events += [
        {"ph": "X", "cat": "kernel", "name": "torn", "ts": None, "args": 3},
        {"ph": "X", "cat": "kernel"},
        {"ph": "i", "cat": "kernel", "ts": 5},
        7,  # type: ignore[list-item]
    ]
    assert window(book) == whole


def test_a_step_that_is_not_whole_says_nothing_of_idle_time() -> None:
    book = TraceBook()
    book.mark(999_500.0)
    plain(book, 1_000_000.0)
    book.mark(1_009_500.0)
    found = window(book)
    assert found.idle == {} and found.step_s == pytest.approx(8e-3)


def test_intervals() -> None:
    ones = union([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)])
    assert ones == [(0.0, 3.0), (5.0, 6.0)] and length(ones) == 4.0
    assert common(ones, [(2.0, 5.5)]) == [(2.0, 3.0), (5.0, 5.5)]
    assert without(ones, [(1.0, 2.0), (5.5, 9.0)]) == [(0.0, 1.0), (2.0, 3.0), (5.0, 5.5)]
