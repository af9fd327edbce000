"""Class, tensor cores and short name of a kernel or operator, from its name."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.analysis.kernels.kernel_names import (
    kernel_class,
    operator_class,
    short_name,
    uses_tensor_cores,
)
from traces import ADD, ALL_REDUCE, ATTENTION_FP32, BATCH_NORM, CONV, CONV_FP32, GEMM, LAYOUT, SGD


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
        ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SN_1LDSB0_APM1_WG16_16_1.kd", "matmul", True),
        ("Cijk_Alik_Bljk_SB_MT64x64x16_SN_1LDSB0_APM1_TT4_4_WG16_16_1", "matmul", False),
        ("miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1.kd", "conv", False),
        ("igemm_fwd_gtcx2_nhwc_fp16_bx0_ex0_bt256x64x32_wt32x32x8_ws1x1_wr2x1_ta1x8x4x1_1x4x1x64_tb1x8x1x1_1x4x1x64", "conv", True),
        ("Im2d2Col", "conv", False),
        ("MIOpenBatchNormFwdTrainSpatial.kd", "norm", False),
        ("batched_transpose_32x32_dword", "layout", False),
        ("rcclKernel_AllReduce_RING_LL_Sum_float", "nccl", False),
        ("void ck::kernel_grouped_conv_fwd_xdl_cshuffle<ck::GridwiseGemmMultipleD_xdlops>", "conv", True),
    ],
)  # fmt: skip
def test_class_and_tensor_cores_are_read_from_names(name: str, kind: str, cores: bool) -> None:
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
