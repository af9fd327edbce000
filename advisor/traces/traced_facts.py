"""What a trace shows about a rank beside its steps: its loader, GPU, precision, layout and batch size."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from rn50_advisor.advisor.analysis.kernels.chrome_trace import Span, Trace, operators_behind
from rn50_advisor.advisor.analysis.kernels.kernel_names import is_attention, kernel_class, operator_class
from rn50_advisor.advisor.model.gpu.kernel_classes import DeepWindow
from rn50_advisor.advisor.traces.python_stacks import PythonStacks
from rn50_advisor.advisor.traces.traced_calls import copies, waits
from rn50_advisor.advisor.traces.traced_steps import TracedStep, TracedSteps, within_step
from rn50_advisor.probes.documents.loader_documents import RecordedLoader
from rn50_advisor.probes.documents.model_documents import LayerFacts
from rn50_advisor.probes.documents.rank_documents import CudaFacts, RankFacts, SyncFacts

LOADER = 1
WORKERS = "the DataLoader's workers"
_SINGLE = re.compile(r"#_SingleProcess")
_AMD = re.compile(r"\bAMD\b|Radeon|Instinct|^gfx\d", re.IGNORECASE)
_ROCM_CALL = re.compile(r"^hip")
_ARCHITECTURES = (
    (re.compile(r"sm100|blackwell", re.IGNORECASE), (10, 0)),
    (re.compile(r"sm90|hopper|gmma", re.IGNORECASE), (9, 0)),
    (re.compile(r"ampere|sm8[06]|_80_|s16816", re.IGNORECASE), (8, 0)),
    (re.compile(r"turing|sm75|_75_", re.IGNORECASE), (7, 5)),
    (re.compile(r"volta|sm70|_70_", re.IGNORECASE), (7, 0)),
)
# Precision by a product kernel's name, where the trace has no types of inputs; the first that fits.
_PRECISIONS = (
    ("bf16", re.compile(r"bf16|bfloat16|_BBS_|_BB_", re.IGNORECASE)),
    ("fp16", re.compile(r"[hf]16f?16|[hs]884|h1688|hgemm|f16_|_f16|half|_HHS_|_HB_|_HH_", re.IGNORECASE)),
    ("tf32", re.compile(r"tf32|s1688|s16816", re.IGNORECASE)),
    ("fp32", re.compile(r"sgemm|scudnn|ffma|f32|float|_SB_|_S_", re.IGNORECASE)),
)
_HALF = {"bf16": "bfloat16", "fp16": "float16", "fp8": "bfloat16", "fp4": "bfloat16"}
_FIRST_CONVOLUTIONS = ("aten::conv2d", "aten::convolution", "aten::conv3d", "aten::conv1d")
_PICTURE_CHANNELS = (1, 3, 4)
_LAYOUT_CHANGES_MIN = 4  # in a step: one or two may belong to a single layer


def rank_facts(
    trace: Trace, found: TracedSteps, window: DeepWindow | None, devices: Any, stacks: PythonStacks
) -> RankFacts:
    """The facts of a rank that its trace shows; what it does not show is absent."""
    facts = RankFacts()
    if loader := _loader(found, stacks):
        facts["loaders"] = [loader]
    if compiled := sum(operator_class(span.name) == "compiled" for span in trace.operators):
        facts["compiled_frames"] = compiled
    if trace.on_gpu:
        precision = _precision(trace, window)
        facts["cuda"] = _cuda(trace, devices, precision)
        if window is not None:
            facts.update(_layers(trace, found, window, precision))
        facts["syncs"] = SyncFacts(looks=len(found.steps), sites=waits(trace, found, stacks))
        facts["copies"] = copies(trace, found, stacks)
    return facts


def batch_size(trace: Trace, step: TracedStep, thread: str) -> int:
    """Samples of a step's first batch, by the shapes of its first layer; 0 if unknown."""
    for span in within_step(trace.operators, step, thread):
        if span.name in _FIRST_CONVOLUTIONS:
            dims = _shape(span, 0)
            return dims[0] if len(dims) >= 4 and dims[1] in _PICTURE_CHANNELS else 0
        if span.name == "aten::embedding":
            dims = _shape(span, 1)
            return dims[0] if len(dims) == 2 else 0
    return 0


def _shape(span: Span, place: int) -> list[int]:
    dims = span.args.get("Input Dims")
    try:
        return [int(size) for size in dims[place]]  # type: ignore[index]
    except (IndexError, TypeError, ValueError):
        return []


def _loader(found: TracedSteps, stacks: PythonStacks) -> RecordedLoader | None:
    """The loader whose iterator fetches most; one without workers is known as such, one with workers by no number of them."""
    fetches = [mark for step in found.steps for mark in step.fetches]
    if not fetches:
        return None
    single = sum(bool(_SINGLE.search(mark.name)) for mark in fetches) * 2 > len(fetches)
    loader = RecordedLoader(id=LOADER, training=True, num_workers=0 if single else None)
    if not single:
        loader["library"] = WORKERS
    lines = (stacks.fetching_line(mark.start, mark.end) for mark in fetches)
    if line := next(filter(None, lines), None):
        loader["fetch_file"], loader["fetch_line"] = line.file, line.line
    return loader


def _cuda(trace: Trace, devices: Any, precision: str) -> CudaFacts:
    known = next(
        (d for d in devices if isinstance(d, Mapping) and d.get("id") == trace.device)
        if isinstance(devices, list)
        else iter(()),
        {},
    )
    facts = CudaFacts(device=trace.device if isinstance(trace.device, int) else 0)
    if name := str(known.get("name", ""))[:80]:
        facts["name"] = name
    if isinstance(memory := known.get("totalGlobalMem"), int) and memory > 0:
        facts["memory_bytes"] = memory
    rocm = (
        bool(_AMD.search(name))
        or known.get("warpSize") == 64
        or any(_ROCM_CALL.match(c.name) for c in trace.calls[:200])
    )
    major, minor = known.get("computeMajor"), known.get("computeMinor")
    if not rocm and isinstance(major, int) and isinstance(minor, int):
        facts["capability"] = [major, minor]
    elif not rocm and (least := _least_capability(trace)):
        facts["capability"] = list(least)
    if precision:
        facts["tf32_cudnn"] = facts["tf32_matmul"] = precision == "tf32"
    return facts


def _least_capability(trace: Trace) -> tuple[int, int] | None:
    """The compute capability that the newest kernel was written for: the GPU has at least this one."""
    names = {kernel.name for kernel in trace.kernels}
    return next((found for pattern, found in _ARCHITECTURES if any(pattern.search(name) for name in names)), None)


def _precision(trace: Trace, window: DeepWindow | None) -> str:
    """fp32, tf32, fp16, bf16: what most of the products compute in; empty if neither types nor names show it."""
    if window is not None and window.precision:
        return window.precision
    behind = operators_behind(trace)
    taken: dict[str, float] = defaultdict(float)
    for kernel in trace.kernels:
        operator = behind.get(kernel.external)
        if kernel_class(kernel.name, operator.name if operator else "") in ("conv", "matmul") and not is_attention(
            kernel.name
        ):
            named = next((name for name, pattern in _PRECISIONS if pattern.search(kernel.name)), "")
            taken[named] += kernel.end - kernel.start
    return max(taken, key=lambda name: taken[name], default="")


def _layers(trace: Trace, found: TracedSteps, window: DeepWindow, precision: str) -> RankFacts:
    """The first convolution or matrix product, as far as its precision, shape and layout are known."""
    if not precision:
        return RankFacts()
    dtype = _HALF.get(precision, "float32")
    layer = LayerFacts(device="cuda", input=dtype, weight=dtype, autocast=None)
    convolves = window.classes.get("conv", 0.0) >= window.classes.get("matmul", 0.0)
    if not convolves:
        return RankFacts(linear=layer)
    first = next(
        (
            span
            for step in found.steps
            for span in within_step(trace.operators, step, found.thread)
            if span.name in _FIRST_CONVOLUTIONS
        ),
        None,
    )
    shape = _shape(first, 0) if first is not None else []
    if len(shape) == 4:
        layer["shape"] = shape
    if layout := _layout(trace, found, first):
        layer["input_layout"] = layout
    return RankFacts(conv=layer)


def _layout(trace: Trace, found: TracedSteps, first: Span | None) -> str:
    """channels_last or channels_first; empty if neither strides nor kernels that reorder channels show it."""
    strides = first.args.get("Input Strides") if first is not None else None
    try:
        steps = [int(number) for number in strides[0]]  # type: ignore[index]
        if len(steps) == 4:
            return "channels_last" if steps[1] == 1 and steps[3] != 1 else "channels_first"
    except (IndexError, TypeError, ValueError):
        pass
    reorders = sum(kernel_class(kernel.name) == "layout" for kernel in trace.kernels)
    return "channels_first" if reorders >= _LAYOUT_CHANGES_MIN * max(len(found.steps), 1) else ""
