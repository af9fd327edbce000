"""Classifies kernels and operators by name, and recognises tensor-core kernels.

Names are those of cuDNN, cuBLAS, CUTLASS, NCCL, ATen, Apex and Triton, and on AMD of MIOpen, Tensile, CK and RCCL, as they appear in
traces. The patterns for tensor cores start from PyProf's (`pyprof/prof/tc.py`), which torch's TensorBoard plugin took over (pytorch/kineto,
`tb_plugin/torch_tb_profiler/profiler/tensor_core.py`). Added are those of CUTLASS (`tensorop`, `wmma`), of cuDNN since 8 (`tensor16x8x16`,
`implicit_gemm_bf16…`), of Hopper and later (`gmma`, `nvjet`, `sm100`), and of AMD's matrix cores (`_MI32x32x8`, `gtcx`, `xdlops`). A kernel
whose name matches none of them does not count as using tensor cores.
"""

from __future__ import annotations

import re
from functools import lru_cache

_NCCL = re.compile(r"^(?:void )?(?:nccl|rccl|msccl)", re.IGNORECASE)
_ATTENTION = re.compile(r"sdpa|flash_|flash_?attn|fmha|attention|^_?attn_(?:fwd|bwd)", re.IGNORECASE)
# The order matters: cuDNN's batch norm has "nhwc" in its name, a fused convolution "relu", cuDNN's attention "flash_fprop". Inductor's
# kernels for pointwise operations and reductions contain the names of the products before and after them.
_CLASSES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "layout",
        re.compile(r"nchwtonhwc|nhwctonchw|nhwcaddpadding|convertTensor_kernel|batched_transpose_\d", re.IGNORECASE),
    ),
    ("optimizer", re.compile(r"multi_tensor_apply|fused_?adam|fused_?sgd|adam_?w?_|lamb_", re.IGNORECASE)),
    (
        "norm",
        re.compile(
            r"batch_?norm|layer_?norm|group_?norm|rms_?norm|instance_?norm|bn_(?:fw|bw)|welford"
            r"|gamma_?beta|RowwiseMoments|FusedParamsCUDA|InternalGradientsCUDA",
            re.IGNORECASE,
        ),
    ),
    ("elementwise", re.compile(r"^triton_(?:poi|red|per)_", re.IGNORECASE)),
    ("matmul", _ATTENTION),
    (
        "conv",
        re.compile(
            r"conv(?!ert)|fprop|dgrad|wgrad|implicit_gemm|winograd|[s\d]cudnn|im2col|col2im|im2d2col|igemm_(?:fwd|bwd|wrw)",
            re.IGNORECASE,
        ),
    ),
    (
        "matmul",
        re.compile(r"gemm|gemv|nvjet|cublas|cutlass|splitk|triton_tem_|matmul|^Cijk_", re.IGNORECASE),
    ),
    (
        "elementwise",
        re.compile(
            r"elementwise|reduce|softmax|nll_loss|copy|fill|cat|dropout|index|gather|scatter|pointwise|threshold",
            re.IGNORECASE,
        ),
    ),
)
# Attention in single precision uses plain arithmetic before Ampere, and three TF32 products since.
_PLAIN_CORES = re.compile(
    r"simt|sgemm|dgemm|scudnn|ffma|fft|gemv|winograd|cgemm|fmha.*_f32_.*sm(?:50|70|75)", re.IGNORECASE
)
_TENSOR_CORES = re.compile(
    r"[hsic]884|[hscif]1688|i8816|16816|161616|hmma|imma|[qwhu]?gmma|wmma|tcgen05|tensorop|tensor(?:8|16|32)x"
    r"|nvjet|sm100_|xmma_(?:sparse_)?gemm|xmma_sparse_conv|warp_specialized|implicit_gemm_(?:indexed_)?(?:bf16|f16|tf32|i8)"
    r"|_MI\d+x\d+x\d|_gtcx|xdlops|mfma|flash_(?:fwd|bwd)|FlashAttn(?:Fwd|Bwd)Sm\d|fmha|native_sdpa|conv2d_c1_k1|conv1x1|first_layer_wgrad_kernel|dgrad_1x1_stride_2x2",
    re.IGNORECASE,
)
_TEMPLATE = re.compile(r"^triton_tem_")
_RECURRENT = re.compile(r"RNN_?\w*persist|persist\w*RNN", re.IGNORECASE)
_OPERATORS = {
    "conv": re.compile(r"convolution|^aten::(?:_?conv|slow_conv|thnn_conv|mkldnn_conv|_slow_conv)"),
    "matmul": re.compile(
        r"^aten::(?:mm|bmm|addmm|baddbmm|addmv|mv|dot|matmul|linear|mkldnn_linear|einsum|addbmm|_addmm|_scaled_mm)"
        r"|scaled_dot_product|attention"
    ),
    "norm": re.compile(r"batch_norm|layer_norm|group_norm|instance_norm|rms_norm"),
    "nccl": re.compile(r"^(?:nccl|gloo|c10d):"),
    "copy": re.compile(r"^aten::(?:copy_|_to_copy|to|contiguous|clone|pin_memory)$"),
    "compiled": re.compile(r"^Torch-Compiled Region|^## Call CompiledFxGraph|^CompiledFunction"),
}
_OPTIMIZER_STEP = re.compile(r"^Optimizer\.(?:step|zero_grad)")
_FETCH = re.compile(r"^enumerate\(DataLoader\)")
_ELEMENTWISE_OPERATOR = re.compile(r"^aten::")
_SCAFFOLD = re.compile(
    r"^(?:ProfilerStep#|autograd::|torch::|DistributedDataParallel|PythonCustom|\[|nn\.Module)|Backward\d*$"
)
_ARGUMENTS_MAX = 160


@lru_cache(maxsize=4096)
def kernel_class(name: str, operator: str = "") -> str:
    """The class of a kernel. `operator` is the operator that launched it: cuDNN runs 1×1 convolutions as plain matrix products."""
    if _NCCL.match(name):
        return "nccl"
    found = next((kind for kind, pattern in _CLASSES if pattern.search(name)), "other")
    if found == "matmul" and operator_class(operator) == "conv":
        return "conv"
    return found


@lru_cache(maxsize=4096)
def uses_tensor_cores(name: str) -> bool:
    return bool(_TENSOR_CORES.search(name)) and not _PLAIN_CORES.search(name)


@lru_cache(maxsize=4096)
def is_attention(name: str) -> bool:
    return bool(_ATTENTION.search(name))


@lru_cache(maxsize=4096)
def is_template(name: str) -> bool:
    """True for a matrix product that torch.compile generated while autotuning: its name does not show its arithmetic."""
    return bool(_TEMPLATE.match(name))


@lru_cache(maxsize=4096)
def is_recurrent(name: str) -> bool:
    """True for a cuDNN kernel that computes a whole recurrent layer, including its matrix products."""
    return bool(_RECURRENT.search(name))


@lru_cache(maxsize=4096)
def operator_class(name: str) -> str | None:
    """The class of an operator; None if it has none of its own, in which case its parent's counts."""
    if is_optimizer_step(name):
        return "optimizer"
    if is_fetch(name):
        return "input"
    return next((kind for kind, pattern in _OPERATORS.items() if pattern.search(name)), None)


def is_elementwise_operator(name: str) -> bool:
    """True for any ATen operator. One without a class of its own is elementwise, a reduction or an allocation."""
    return bool(_ELEMENTWISE_OPERATOR.match(name))


def is_scaffold(name: str) -> bool:
    """True if the name stands for a stretch of time, not for an operator."""
    return bool(_SCAFFOLD.search(name))


def is_optimizer_step(name: str) -> bool:
    return bool(_OPTIMIZER_STEP.match(name))


def is_fetch(name: str) -> bool:
    """True for the name that torch's DataLoader gives its own fetch."""
    return bool(_FETCH.match(name))


@lru_cache(maxsize=4096)
def short_name(name: str) -> str:
    """A kernel's name without return type and nested template arguments, so that it has only one: `at::native::reduce_kernel<…>`."""
    plain = name.removeprefix("void ")
    head, bracket, rest = plain.partition("<")
    if bracket:
        inner = re.search(r"(\w+(?:Functor|Ops?|functor|Op)\b)", rest)
        plain = f"{head}<{inner[1] if inner else '…'}>"
    else:
        plain = plain.partition("(")[0]
    return plain[:_ARGUMENTS_MAX]
