"""All patches of torch, and those of functions that are called rarely.

Each patch is outside compiled regions, and keeps types and signatures.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from ..facts.affinity_facts import threads_are_set
from ..gpu.graph_captures import watch
from ..hidden_frames import hide_frame, wraps
from .loader_patches import patch_loaders, patch_pinning, patch_worker_loop
from .mark_wrappers import mark_backward, mark_scaled_updates, mark_updates
from .step_graphs import mark_replays
from .wrappers import BuiltIn, around, once_made

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..recorder import Recorder


# Other functions that write checkpoints: (module, function).
SAVERS = (("safetensors.torch", "save_file"), ("torch.distributed.checkpoint.state_dict_saver", "save"))


def apply(torch: Any, recorder: Recorder) -> list[Any]:
    """Patches torch. The facts record patches that fail (other torch versions). Returns the wrappers."""
    missing: list[str] = []
    wrappers: list[Any] = []
    for name, patch in (
        ("loader", patch_loaders),
        ("worker_loop", patch_worker_loop),
        ("pin_loop", patch_pinning),
        ("backward", mark_backward),
        ("optimizer", mark_updates),
        ("scaler", mark_scaled_updates),
        ("ddp", _ddp),
        ("data_parallel", _data_parallel),
        ("tables", _tables),
        ("evaluation", _evaluation),
        ("save", _save),
        ("fsync", _fsync),
        ("threads", _threads),
        ("collector", _collector),
        ("graphs", _graphs),
    ):
        try:
            wrappers += patch(torch, recorder)
        except Exception as error:  # a patch without its target must not prevent the others
            missing.append("%s: %s" % (name, error))
    if missing:
        recorder.facts.values["unpatched"] = missing
    return wrappers


def _ddp(torch: Any, recorder: Recorder) -> list[Any]:
    if not torch.distributed.is_available():
        return []
    return [once_made(recorder, torch.nn.parallel.DistributedDataParallel, recorder.ddp_made)]


def _data_parallel(torch: Any, recorder: Recorder) -> list[Any]:
    return [once_made(recorder, torch.nn.DataParallel, recorder.precision.data_parallel)]


def _tables(torch: Any, recorder: Recorder) -> list[Any]:
    def made(table: Any) -> None:
        recorder.passes.tables.made(table)

    return [once_made(recorder, kind, made) for kind in (torch.nn.Embedding, torch.nn.EmbeddingBag)]


def _nothing(_: Any) -> None:
    """An `end` for calls of which only the beginning is recorded."""


def _evaluation(torch: Any, recorder: Recorder) -> list[Any]:
    """Marks the outermost `train(False)`, which `eval()` calls, too: transformers has an `eval()` of its own. Each calls itself for the
    submodules.
    """
    module = torch.nn.Module
    switching: list[bool] = []  # not empty while a switch is under way

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if recorder.active:
            recorder.evaluation_begins(args[0])

    def to_train(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool | None:
        return True if recorder.active else None

    original = module.train
    evaluates = around(recorder, original, begin, _nothing)
    trains = around(recorder, original, to_train, recorder.evaluation_ends, raised_too=False)

    @wraps(original)
    def train(*args: Any, **kwargs: Any) -> Any:
        try:
            if switching or not args:
                return original(*args, **kwargs)
            switching.append(True)
            try:
                if not (args[1] if len(args) > 1 else kwargs.get("mode", True)):
                    return evaluates(*args, **kwargs)
                model = recorder.evaluations.model
                known = model is not None and model() is args[0]
                return (trains if known else original)(*args, **kwargs)
            finally:
                switching.pop()
        except BaseException as error:
            hide_frame(error)
            raise

    module.train = train
    return [train]


def _saving(recorder: Recorder, original: Callable[..., Any]) -> Any:
    whole = original.__module__ == "torch.serialization"  # writes whole storages, other libraries the tensors alone

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        saved, file = (args[n] if len(args) > n else kwargs.get(name) for n, name in enumerate(("obj", "f")))
        return recorder.save_begin(file, saved if whole else None) if recorder.active else None

    return around(recorder, original, begin, recorder.save_end)


def _save(torch: Any, recorder: Recorder) -> list[Any]:
    torch.save = torch.serialization.save = _saving(recorder, torch.save)
    return [torch.save]


def save_of_library(recorder: Recorder, module: str, name: str) -> None:
    """Called after the import of a library with a function that writes checkpoints."""
    owner: Any = sys.modules[module]
    setattr(owner, name, _saving(recorder, getattr(owner, name)))


def _fsync(torch: Any, recorder: Recorder) -> list[Any]:
    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return recorder.fsync_begin() if recorder.active else None

    call = around(recorder, os.fsync, begin, recorder.fsync_end)
    os.fsync = BuiltIn(os.fsync, call, "os")
    return [call, BuiltIn]


def _threads(torch: Any, recorder: Recorder) -> list[Any]:
    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args if recorder.active and recorder.worker is None else None

    call = around(
        recorder, torch.set_num_threads, begin, lambda args: threads_are_set(recorder.facts, args), raised_too=False
    )
    torch.set_num_threads = BuiltIn(torch.set_num_threads, call, "torch")
    return [call, BuiltIn]


def _collector(torch: Any, recorder: Recorder) -> list[Any]:
    recorder.garbage.listen()
    return []


def _graphs(torch: Any, recorder: Recorder) -> list[Any]:
    return [*watch(torch, recorder.captures, recorder.failed), *mark_replays(torch, recorder)]
