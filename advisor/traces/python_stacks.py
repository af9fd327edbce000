"""The Python stack at a moment of a trace, and the user's line in it.

Traces since torch 1.11 hold a span for each call of a Python function, named by its file and first line; since torch 2.10 with the caller's
line (`CallFrom`). Traces of torch 1.8 to 1.10 hold the stack of each operator as a string, with exact lines.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rn50_advisor.advisor.analysis.kernels.chrome_trace import Span, Trace
from rn50_advisor.probes.documents.code_places import StackFrame, UserLine

_FRAME = re.compile(r"^(?P<file>[^<>;()]*\.py[cx]?)\((?P<line>\d+)\)(?:: ?(?P<function>[^;]*))?$")
_CALL_FROM = re.compile(r"^(?P<file>.+):(?P<line>\d+)$")
_INSTALLED = ("site-packages/", "dist-packages/", "/lib/python3", "<frozen")
# The profiler removes the prefixes of sys.path, so that installed packages are told by their names.
_PACKAGES = frozenset(
    (
        "torch", "torchvision", "torchaudio", "torchtext", "torchdata", "functorch", "triton", "numpy", "PIL", "cv2", "transformers",
        "accelerate", "datasets", "tokenizers", "peft", "lightning", "pytorch_lightning", "lightning_fabric", "timm", "tqdm", "deepspeed",
        "megatron", "apex", "transformer_engine", "xformers", "flash_attn", "ignite", "fastai", "composer", "webdataset", "ffcv", "nvidia",
        "torchrec", "fbgemm_gpu", "torchtitan", "torchtune", "mmengine", "mmcv", "detectron2", "fvcore", "wandb", "tensorboard", "mlflow",
        "pandas", "scipy", "sklearn", "albumentations", "kornia", "einops", "click", "hydra", "omegaconf", "absl", "habana_frameworks",
    )
)  # fmt: skip
# Names of the standard library that scripts have, too.
_STANDARD = frozenset(sys.stdlib_module_names) - {"test", "code", "profile", "trace", "this", "bench", "token", "main"}
_LOADER = "torch/utils/data/dataloader.py"


@dataclass(frozen=True, slots=True)
class StackLine:
    """A frame. `exact`: the line is the one that runs, not the first one of its function."""

    file: str
    line: int
    function: str
    exact: bool


@lru_cache(maxsize=65536)
def is_users(file: str) -> bool:
    """True if the file is neither an installed package's nor the standard library's."""
    if not file or any(part in file for part in _INSTALLED):
        return False
    first = file.removeprefix("./").partition("/")[0].removesuffix(".py")
    return file.startswith("/") or first not in _PACKAGES | _STANDARD


class PythonStacks:
    """The stacks of one thread."""

    def __init__(self, trace: Trace, thread: str) -> None:
        self._frames = _Nested([frame for frame in trace.frames if frame.thread == thread])
        stacked = (
            [] if trace.frames else [s for s in trace.operators if s.thread == thread and s.args.get("Call stack")]
        )
        self._operators = _Nested(stacked)

    def at(self, moment: float) -> list[StackLine]:
        """The frames at a moment, innermost first; empty if the trace has no stacks."""
        if self._frames.spans:
            return _called(self._frames.around(moment))
        return next((_written(str(span.args["Call stack"])) for span in self._operators.around(moment)), [])

    def within(self, begin: float, end: float) -> list[StackLine]:
        """The frames of the first operator in an interval that has some: an old trace has no stack at other moments."""
        found = self.at(begin)
        operator = None if found or self._frames.spans else self._operators.first(begin, end)
        return found if operator is None else _written(str(operator.args["Call stack"]))

    def fetching_line(self, begin: float, end: float) -> StackLine | None:
        """The user's line that takes a batch from a loader, if it is known exactly."""
        stack = self.within(begin, end)
        last = max((place for place, frame in enumerate(stack) if frame.file.endswith(_LOADER)), default=None)
        found = users_line(stack[last + 1 :]) if last is not None else None
        return found if found is not None and found.exact else None


def users_line(stack: Sequence[StackLine]) -> StackLine | None:
    """The innermost frame of the user's own code."""
    return next((frame for frame in stack if is_users(frame.file)), None)


def as_frames(stack: Sequence[StackLine]) -> list[StackFrame]:
    return [StackFrame(function=frame.function, file=frame.file, line=frame.line) for frame in stack]


def as_user_line(frame: StackLine) -> UserLine:
    return UserLine(function=frame.function, file=frame.file, line=frame.line)


class _Nested:
    """Spans of one thread, sorted by start, and the span around each of them."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = spans
        self._around: list[int] = []
        open_spans: list[int] = []
        for place, span in enumerate(spans):
            while open_spans and spans[open_spans[-1]].end <= span.start:
                open_spans.pop()
            self._around.append(open_spans[-1] if open_spans else -1)
            open_spans.append(place)

    def around(self, moment: float) -> Iterator[Span]:
        """The spans that hold a moment, innermost first."""
        place = bisect_right(self.spans, moment, key=lambda span: span.start) - 1
        while place >= 0:
            if moment < self.spans[place].end:
                yield self.spans[place]
            place = self._around[place]

    def first(self, begin: float, end: float) -> Span | None:
        place = bisect_right(self.spans, begin, key=lambda span: span.start)
        return self.spans[place] if place < len(self.spans) and self.spans[place].start < end else None


def _called(spans: Iterator[Span]) -> list[StackLine]:
    """The frames of nested calls. A frame runs the line from which the call inside it was made."""
    found: list[StackLine] = []
    inner: tuple[str, int] | None = None  # the place of that call
    for span in spans:
        own = _frame(span.name)
        if own is not None:
            at = inner is not None and inner[0] == own.file
            found.append(StackLine(own.file, inner[1] if at and inner else own.line, own.function, at))
        inner = _place(span.args.get("CallFrom"))
    if inner is not None and not (found and found[-1].file == inner[0]):
        found.append(StackLine(inner[0], inner[1], "", True))
    return found


def _written(stack: str) -> list[StackLine]:
    """The frames of an operator's string, innermost first, as torch 1.8 writes them; some versions begin with the module."""
    frames = [frame for part in stack.split(";") if (frame := _frame(part.strip(), exact=True)) is not None]
    return frames[::-1] if frames and frames[0].function == "<module>" else frames


def _frame(name: str, *, exact: bool = False) -> StackLine | None:
    match = _FRAME.match(name)
    return StackLine(match["file"], int(match["line"]), match["function"] or "", exact) if match else None


def _place(text: object) -> tuple[str, int] | None:
    match = _CALL_FROM.match(text) if isinstance(text, str) else None
    return (match["file"], int(match["line"])) if match else None
