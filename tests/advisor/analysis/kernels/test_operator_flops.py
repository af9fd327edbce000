"""Operations of operators by their shapes, and of a step where all products are counted."""

from __future__ import annotations

import pytest

from kernel_traces import plain, two_steps, window
from rn50_advisor.advisor.analysis.kernels.operator_flops import operator_flops
from traces import CONV, TraceBook, convolution


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
