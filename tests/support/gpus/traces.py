"""Made-up GPU traces in Kineto's form: the host's calls, and the time of each kernel. Not a test."""

from __future__ import annotations

from typing import Any

from rn50_advisor.advisor.analysis.kernels.chrome_trace import STEP_MARK

CONV = "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16"
CONV_FP32 = (
    "void implicit_convolve_sgemm<float, float, 128, 5, 5, 3, 3, 3, 1, true, false, true>(int, int, int, float const*)"
)
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
BATCH_NORM = "void cudnn::bn_fw_tr_1C11_kernel_NCHW<__nv_bfloat16, float, int, 512, true, 1, true>(cudnnTensorStruct)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int)"
LAYOUT = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)0>(cudnn::ops::nchw2nhwc_params_t)"
SGD = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<3> >"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ATTENTION_FP32 = "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::Params)"
HOST = {"pid": 4711, "tid": 4711}


class TraceBook:
    """Writes a trace; times in microseconds. Each kernel is launched `ahead` of its begin unless the test gives the launch time."""

    def __init__(self, device: str = "NVIDIA A100-SXM4-80GB") -> None:
        self.events: list[dict[str, Any]] = []
        self.device = device
        self._number = 0

    def document(self) -> dict[str, Any]:
        described = {
            "id": 0,
            "name": self.device,
            "totalGlobalMem": 85_000_000_000,
            "computeMajor": 8,
            "computeMinor": 0,
        }
        meta = {"ph": "M", "name": "process_name", "ts": 0, "pid": 4711, "tid": 0, "args": {"name": "python"}}
        return {"schemaVersion": 1, "deviceProperties": [described], "traceEvents": [meta, *self.events]}

    def mark(self, at: float) -> None:
        self.host(STEP_MARK, at, 1.0, cat="user_annotation")

    def host(self, name: str, at: float, took: float, *, cat: str = "cpu_op", tid: int = 4711, **args: Any) -> int:
        self._number += 1
        args = {"External id": self._number, "Record function id": 0, "Ev Idx": self._number, **args}
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, **HOST, "tid": tid, "ts": at, "dur": took, "args": args}
        )
        return self._number

    def call(self, name: str, at: float, took: float) -> int:
        """Adds a call of the CUDA runtime; returns its correlation number."""
        self._number += 1
        args = {"External id": 0, "cbid": 211, "correlation": self._number}
        self.events.append(
            {"ph": "X", "cat": "cuda_runtime", "name": name, **HOST, "ts": at, "dur": took, "args": args}
        )
        return self._number

    def kernel(
        self, name: str, at: float, took: float, *, launched: float | None = None, operator: int = 0, stream: int = 7
    ) -> None:
        correlation = self.call("cudaLaunchKernel", at - 100.0 if launched is None else launched, 5.0)
        args = {
            "External id": operator,
            "device": 0,
            "context": 1,
            "stream": stream,
            "correlation": correlation,
            "grid": [64, 1, 1],
            "block": [256, 1, 1],
            "est. achieved occupancy %": 50,
        }
        self.events.append(
            {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": at, "dur": took, "args": args}
        )

    def copy(
        self, name: str, at: float, took: float, size: int, *, called: float | None = None, held: float = 5.0
    ) -> None:
        correlation = self.call("cudaMemcpyAsync", at - 50.0 if called is None else called, held)
        args = {"External id": 0, "device": 0, "context": 1, "stream": 7, "correlation": correlation, "bytes": size}
        self.events.append(
            {"ph": "X", "cat": "gpu_memcpy", "name": name, "pid": 0, "tid": 7, "ts": at, "dur": took, "args": args}
        )


def convolution(book: TraceBook, at: float, took: float = 20.0, *, batch: int = 32, kind: str = "c10::BFloat16") -> int:
    """Adds the call of `nn.Conv2d(64, 64, 3, padding=1)` on 56×56."""
    return book.host(
        "aten::convolution",
        at,
        took,
        **{
            "Input Dims": [[batch, 64, 56, 56], [64, 64, 3, 3], [], [], [], [], [], [], []],
            "Input type": [kind, kind, "", "", "", "", "", "", ""],
            "Concrete Inputs": ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"],
        },
    )
