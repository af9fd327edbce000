"""Precision and memory layout of a rank's computation, observed while its model runs.

In a few early steps convolutions, linear layers and the first `autocast` of a step are patched with a wrapper that records the first of
them and the models that they belong to, and restores the original once the first layer is met again. If these layers run outside autocast,
later ones are checked once, too. Layers are patched only if dynamo has compiled nothing; other steps run none of this. Compiled code enters
autocast only while it is traced, so autocast is watched from the first fetch on. For compiled layers, the optimizer's weights show the
precision.
"""

from __future__ import annotations

import functools
import sys
import types
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from ..hidden_frames import hide_frame
from ..workers.sample_parts import own
from ..workers.sample_standins import put
from .layer_facts import autocast_dtype, describe_model, layout_of, outermost, plain, weight_of
from .process_facts import MADE_MAX, call_site, frames_from, is_users

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from ...documents.code_places import CodePlace
    from ...documents.model_documents import LayerFacts, LayerKind
    from ...documents.rank_documents import AutocastFacts, CudaFacts, RankFacts

    Inspect = Callable[[Any, Any, Callable[[], None]], None]  # (layer, its input, function that restores the original)

ARMINGS_MAX = 8
_ARMED_STEPS = 2  # facts may be written after a step's last layer, so one more whole step is needed
NEVER = 1 << 62
_ENTERED_MAX = 8  # a disabled autocast may contain an enabled one
_CALLED_MAX = 4
_WITHOUT_GRADIENTS_MAX = 200  # entries without gradients before any step: the process only evaluates


def fast_paths(torch: Any) -> CudaFacts:
    """Current switches of cuBLAS and cuDNN. Avoids attributes that warn, or that raise if the job mixes old and new names."""
    cudnn = torch.backends.cudnn
    found: CudaFacts = {
        "cudnn_benchmark": bool(cudnn.benchmark),
        "cudnn_deterministic": bool(cudnn.deterministic),
        "cudnn_enabled": bool(cudnn.enabled),
    }
    precision = getattr(torch._C, "_get_fp32_precision_getter", None)  # from torch 2.9 on
    try:
        if precision is not None:
            found["tf32_matmul"] = precision("cuda", "matmul") == "tf32"
            found["tf32_cudnn"] = precision("cuda", "conv") == "tf32"
        else:
            found["tf32_matmul"] = bool(torch.backends.cuda.matmul.allow_tf32)
            found["tf32_cudnn"] = bool(cudnn.allow_tf32)
    except RuntimeError:
        pass  # unknown then
    return found


def compiled_frames() -> int:
    """Number of code objects that dynamo has compiled or given up on; with `fullgraph=True`, number of graphs."""
    utils = sys.modules.get("torch._dynamo.utils")
    counters = getattr(utils, "counters", None)
    if counters is None:
        return 0
    frames, stats = counters.get("frames") or {}, counters.get("stats") or {}
    return int(sum(frames.values()) + stats.get("unique_graphs", 0))


def is_observed(torch: Any) -> bool:
    """True where others would see what is done here: a profiler, a mode that dispatches operations."""
    modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
    return bool(torch.autograd._profiler_enabled() or (modes is not None and modes()))


def leave_to_dynamo(layers: list[Callable[[], None]], failed: Callable[[], None]) -> Callable[[], None] | None:
    """Has these wrappers removed before dynamo compiles: code compiled with one would be recompiled without it. Returns what ends that."""
    handler = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
    called = getattr(handler, "start_callbacks", None)
    if not layers or not isinstance(called, list):
        return None

    def compiles(*about: Any) -> None:
        try:
            for put_back in layers:
                put_back()
        except Exception:
            failed()

    def forget() -> None:  # not inside the callback, since dynamo is iterating over its list
        if compiles in called:  # dynamo's reset clears the list
            called.remove(compiles)

    called.append(compiles)
    return forget


class CalledModel(NamedTuple):
    """An outermost module that was called with gradients enabled. `trains`: in `train()` mode. `place`: of the user's call."""

    of: weakref.ref[Any]
    trains: bool
    place: CodePlace


class Precision:
    """The observed precision of one rank's model. Results go into `values`, which are written with the facts.

    `until`: the step at whose start all patches are removed, whatever was observed.
    """

    def __init__(
        self,
        torch: Any,
        values: Callable[[], RankFacts],
        failed: Callable[[], None],
        layer_called: Callable[[Any], None] = lambda _: None,
    ) -> None:
        self._torch = torch
        self._values = values
        self._failed = failed
        self._layer_called = layer_called  # called with each layer while they are patched
        self._undo: list[Callable[[], None]] = []
        self.forget()

    def forget(self) -> None:
        """Resets in a new or forked process."""
        self.disarm()
        self._armings = 0
        self._armed_at = -1
        self._compiled = 0  # code objects compiled so far
        self._entered = self._without_gradients = 0
        self._called: list[CalledModel] = []

    def trained(self) -> Any:
        """The outermost module that ran in `train()` mode with gradients enabled; None if there is none or it is gone."""
        # if it is fine-tuned in `eval()` mode, that mode shows no evaluation
        return next((each.of() for each in self._called if each.trains), None)

    def called(self) -> list[CalledModel]:
        """The outermost modules of the first steps that were looked at: with what is trained teachers, encoders, judges."""
        return self._called

    def begin(self) -> None:
        """Called at the first fetch, before the first step is traced. Layers are not patched yet, since dynamo would keep the wrappers."""
        if self._armings or self._armed_at >= 0 or self._without_gradients or not hasattr(self._torch, "compile"):
            return  # torch before 2.0 compiles nothing
        try:
            self._armed_at, self._compiled = 0, compiled_frames()
            self._arm(compiled=True, values=self._values())
        except Exception:
            self._give_up()

    def refresh(self, step: int) -> None:
        """Called before the facts are written. Never raises, since its caller must continue."""
        try:
            self._refresh(step)
        except Exception:
            self._give_up()

    def _give_up(self) -> None:
        self.disarm()
        self._armings = ARMINGS_MAX
        self._failed()

    def _refresh(self, step: int) -> None:
        values = self._values()
        cuda = values.get("cuda")
        if cuda:
            cuda.update(fast_paths(self._torch))
        compiled = compiled_frames()
        if compiled:
            values["compiled_frames"] = compiled
        # no autocast was entered in a whole step or while its code was traced
        if 0 <= self._armed_at < step and not self._entered and not self._compiled and "autocast" not in values:
            values["autocast"] = self._around("cuda" if values.get("cuda") else "cpu")
        self.disarm()
        if self._armings < ARMINGS_MAX:
            self._armings += 1
            self._armed_at, self._compiled = step, compiled
            self.until = step + _ARMED_STEPS
            self._arm(compiled=bool(compiled), values=values)

    def _around(self, device: str) -> AutocastFacts:
        """Autocast facts of a loop that never enters it: it runs entirely inside autocast, enables it by other means, or has none."""
        dtype = autocast_dtype(self._torch, device)
        return {"enabled": True, "device": device, "dtype": dtype} if dtype else {"enabled": False}

    def disarm(self) -> None:
        self.until = NEVER
        while self._undo:
            self._undo.pop()()

    def _arm(self, *, compiled: bool, values: RankFacts) -> None:
        nn = self._torch.nn
        entered = values["autocast"].get("enabled") if "autocast" in values else False
        if not entered:
            self._entered = 0
            self._patch(self._torch.amp.autocast_mode.autocast, "__enter__", self._autocast)
        if compiled:
            return
        armed = len(self._undo)
        layers: tuple[tuple[LayerKind, Any], ...] = (("conv", nn.Conv2d), ("linear", nn.Linear))
        for kind, owner in layers:
            known = values.get(kind)
            if known is None or (kind == "conv" and not known["again"]):
                self._patch(owner, "forward", self._layer(self._first(kind)))
            elif entered and not known["autocast"] and not known.get("after_autocast"):
                self._patch(owner, "forward", self._layer(self._within_autocast(known)))
        forget = leave_to_dynamo(self._undo[armed:], self._failed)
        if forget is not None:
            self._undo.append(forget)

    def _patch(self, owner: Any, name: str, make: Callable[[Any, Callable[[], None], list[bool]], Any]) -> None:
        """Installs the wrapper that `make(original, put_back, done)` returns, until `put_back`. Afterwards `done` is not empty, for
        references to the wrapper that the job has kept.
        """
        original = vars(owner)[name]
        back: list[Callable[[], None]] = []
        done: list[bool] = []

        def put_back() -> None:
            done.append(True)
            back[0]()

        wrapper = functools.wraps(original)(make(original, put_back, done))
        wrapper.__annotations__ = {}
        back.append(put(owner, name, wrapper))
        self._undo.append(put_back)

    def _autocast(self, original: Any, put_back: Callable[[], None], done: list[bool]) -> Any:
        grad_enabled = self._torch.is_grad_enabled

        def __enter__(mode: Any) -> Any:
            try:
                result = original(mode)
            except BaseException as error:
                hide_frame(error)
                raise
            if done:
                return result
            try:
                if grad_enabled():
                    self._entered += 1
                    if mode._enabled or self._entered >= _ENTERED_MAX:
                        put_back()
                    self._values()["autocast"] = {
                        "enabled": bool(mode._enabled),
                        "device": str(mode.device),
                        "dtype": plain(mode.fast_dtype) if mode._enabled else None,
                    }
                elif not self._armings:
                    self._without_gradients += 1
                    if self._without_gradients >= _WITHOUT_GRADIENTS_MAX:
                        put_back()
                        self._armed_at = -1
            except Exception:
                self._failed()
            return result

        return __enter__

    def _first(self, kind: LayerKind) -> Inspect:
        torch = self._torch

        first: weakref.ref[Any] | None = None  # once this layer is met again, all networks of a step were
        trained = False  # a layer of a network in training was recorded

        def inspect(layer: Any, given: Any, put_back: Callable[[], None]) -> None:
            nonlocal first, trained
            if not self._holds_numbers(given):
                return
            if first is not None and first() in (None, layer):
                put_back()
                return
            model, call = outermost(sys._getframe(1))
            trains = model is None or bool(own(model).get("training"))
            with torch._C.DisableTorchFunction():
                if first is None or (trains and not trained):  # a teacher in `eval()` mode may come first
                    self._record_layer(kind, layer, given)
                if model is not None:
                    self._record_model(model, call, trains=trains)
            first = first or weakref.ref(layer)
            trained |= trains

        return inspect

    def _record_model(self, model: Any, call: FrameType, *, trains: bool) -> None:
        values = self._values()
        if len(self._called) >= _CALLED_MAX or any(each.of() is model for each in self._called):
            return
        if "model" not in values or (trains and self.trained() is None):
            values["model"] = describe_model(self._torch, model)
        frame = next((each for each in frames_from(call) if is_users(each.f_code.co_filename)), None)
        place: CodePlace = {"file": frame.f_code.co_filename, "line": frame.f_lineno} if frame is not None else {}
        self._called.append(CalledModel(weakref.ref(model), trains, place))

    def _within_autocast(self, known: LayerFacts) -> Inspect:
        """Checks later layers, because the first one of its kind, `known`, ran outside autocast, which the job enters elsewhere."""

        def inspect(layer: Any, given: Any, put_back: Callable[[], None]) -> None:
            known["after_autocast"] = True
            known["autocast"] = autocast_dtype(self._torch, known["device"])
            if known["autocast"]:
                put_back()

        return inspect

    def _layer(self, inspect: Inspect) -> Callable[..., Any]:
        torch = self._torch
        tracing = torch.compiler.is_compiling  # traced by dynamo, or by an export without it
        hide, layer_called = hide_frame, self._layer_called

        def make(original: Any, put_back: Callable[[], None], done: list[bool]) -> Any:
            def forward(self_: Any, *args: Any, **kwargs: Any) -> Any:
                if tracing():
                    return original(self_, *args, **kwargs)
                try:
                    if not done:
                        layer_called(self_)
                    if not done and torch.is_grad_enabled():
                        inspect(self_, args[0] if args else kwargs["input"], put_back)
                except Exception:
                    self._failed()
                try:
                    return original(self_, *args, **kwargs)
                except BaseException as error:
                    hide(error)
                    raise

            # TorchScript compiles the original's source and resolves its names in these globals
            return types.FunctionType(
                forward.__code__, getattr(original, "__globals__", {}), forward.__name__, None, forward.__closure__
            )

        return make

    def _holds_numbers(self, given: Any) -> bool:
        """True for a real tensor, not a tracing proxy: reading a proxy's sizes would specialise them or add guards."""
        torch = self._torch
        wrapped = getattr(torch._C._functorch, "is_functorch_wrapped_tensor", None)
        if not isinstance(given, torch.Tensor) or (wrapped is not None and wrapped(given)):
            return False
        try:
            with torch._C.DisableTorchFunction():
                return all(type(n) is int for n in given.shape)
        except RuntimeError:
            return False  # nested tensors have no shape; this runs in every forward, so the error is not counted

    def _record_layer(self, kind: LayerKind, layer: Any, given: Any) -> None:
        values, torch = self._values(), self._torch
        device, weight = given.device.type, weight_of(layer)
        half = autocast_dtype(torch, device)
        found: LayerFacts = {
            "device": device,
            "input": plain(given.dtype),
            "weight": plain(weight.dtype),
            "autocast": half,
        }
        if kind == "conv":
            found["input_layout"] = layout_of(torch, given)
            found["weight_layout"] = layout_of(torch, weight)
            found["shape"] = [int(n) for n in given.shape]
            found["varies"] = "conv" in values and values["conv"]["shape"][1:] != found["shape"][1:]
            # a loop may switch to channels-last or autocast after its first steps: check once more
            found["again"] = "conv" in values
        found["weight_shape"] = [int(n) for n in weight.shape]
        values[kind] = found

    def data_parallel(self, model: Any) -> None:
        """Records a DataParallel when it is created."""
        file, line = call_site()
        devices = getattr(model, "device_ids", None) or ()
        made = self._values().setdefault("data_parallel", [])
        if len(made) < MADE_MAX:
            made.append({"devices": len(devices), "file": file, "line": line})
