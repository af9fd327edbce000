"""The parts of sample loading: transforms, loader, the rest of the dataset's code; their names and their places in the job's objects.

A part has a number computed from its name and place, so it is the same in every worker. One small file for all workers has the name.
Objects of the job are read only through `__dict__`: their properties, `__getattr__` and `__len__` are never called.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import types
import zlib
from typing import TYPE_CHECKING, Any

from .. import rank_ring_folder
from ..side_files import PART
from ..signal_exceptions import reraise_signal_exception

if TYPE_CHECKING:
    from collections.abc import Iterator

REST, LOAD, TRANSFORM = "rest", "load", "transform"
PARTS_MAX = 100  # a job may keep creating functions
_DATASETS_MAX = 16
_CONTAINERS_MAX = 32
_DEPTH_MAX = 5
_LIBRARIES = ("site-packages", "dist-packages")
_STANDARD = os.path.dirname(os.__file__)
_FILES_MAX = 4
_GLOBALS_MAX = 1000
_OWN_PARTS = ("__main__", "builtins")
_transform_files: dict[tuple[frozenset[int], int], list[str]] = {}  # a job may create a loader for each epoch
# Methods that do a transform's work, innermost first: torchvision v2 and Albumentations have their own names.
_METHODS = ("transform", "_transform", "apply", "forward", "__call__")
# Containers that iterate over `self.transforms`, wherever the job keeps their instances.
_KNOWN_CONTAINERS = (
    ("torchvision.transforms.transforms", "Compose"),
    ("torchvision.transforms.transforms", "RandomApply"),
    ("torchvision.transforms.v2._container", "Compose"),
    ("torchvision.transforms.v2._container", "RandomApply"),
    ("albumentations.core.composition", "BaseCompose"),
)


class Names:
    """Numbers of parts. Writes the name of a new part to the ring folder unless another worker has written it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: dict[Any, int] = {}

    def number(self, item: Any, kind: str) -> int:
        """The number of a transform, a loader or (kind REST) the dataset's class; 0 if it gets none. Never raises."""
        try:
            key = (_key(item), kind)
            found = self._known.get(key)
        except Exception:
            reraise_signal_exception()
            return 0  # runs inside the job's code: no exception of ours may escape
        if found is None:
            if len(self._known) >= PARTS_MAX:
                return 0
            try:
                found = self._write_name(kind, *described(item, kind))
            except Exception:
                reraise_signal_exception()
                found = 0
            self._known[key] = found
        return found

    def _write_name(self, kind: str, name: str, file: str, line: int) -> int:
        text = json.dumps({"kind": kind, "name": name, "file": file, "line": line})
        number = zlib.crc32(text.encode())
        name = PART % number
        if not os.path.exists(os.path.join(self._folder, name)):
            rank_ring_folder.put(self._folder, name, text)
        return number


def _key(item: Any) -> Any:
    function = _function(item)
    if function is not None:
        return function.__code__, type(item).__name__ == "Lambda"
    if isinstance(item, types.BuiltinFunctionType):
        return item.__qualname__
    return item if isinstance(item, type) else type(item)


def _function(item: Any) -> Any:
    """The item if it is a Python function, or the function that it wraps (`partial`, a bound method, torchvision's `Lambda`); else None."""
    for _ in range(3):
        if isinstance(item, functools.partial):
            item = item.func
        elif isinstance(item, types.MethodType):
            item = item.__func__
        elif type(item).__name__ == "Lambda" and "lambd" in own(item):
            item = own(item)["lambd"]
    return item if isinstance(item, types.FunctionType) else None


def described(item: Any, kind: str) -> tuple[str, str, int]:
    """Name, file and line of a part; file "" and line 0 if the code is not the user's."""
    function = _function(item)
    if function is not None:
        name, code = function.__qualname__, function.__code__
        if type(item).__name__ == "Lambda":
            name = "Lambda(%s)" % name
        return name, *_place(code)
    if isinstance(item, types.BuiltinFunctionType):
        return item.__qualname__.rpartition(".")[2], "", 0
    owner = item if isinstance(item, type) else type(item)
    if kind == REST:
        method = "__iter__" if any(base.__name__ == "IterableDataset" for base in owner.__mro__) else "__getitem__"
        return "%s.%s" % (owner.__qualname__, method), *_own_place(owner, (method, "__getitems__"))
    return owner.__qualname__, *_own_place(owner, _METHODS)


def _own_place(owner: type, methods: tuple[str, ...]) -> tuple[str, int]:
    for base in owner.__mro__:
        for method in methods:
            code = getattr(vars(base).get(method), "__code__", None)
            if code is not None:
                file, line = _place(code)
                if file:
                    return file, line
    return "", 0


def _place(code: types.CodeType) -> tuple[str, int]:
    file = code.co_filename
    return ("", 0) if is_foreign(file) else (file, code.co_firstlineno)


def is_foreign(file: str) -> bool:
    """True for the standard library's and installed packages' files, and for code that has none."""
    return file.startswith(("<", _STANDARD)) or any(part in file for part in _LIBRARIES)


def own(item: Any) -> dict[str, Any]:
    """The instance's attributes, read without running its code."""
    try:
        found = object.__getattribute__(item, "__dict__")
    except AttributeError:
        return {}
    return found if type(found) is dict else {}


def datasets(dataset: Any) -> list[Any]:
    """The loader's dataset and the datasets inside it (Subset, ConcatDataset, most wrappers), outermost first."""
    found = [dataset]
    for each in found:
        inside = own(each)
        several = inside.get("datasets")
        below = [inside.get("dataset"), *(several[:_DATASETS_MAX] if isinstance(several, (list, tuple)) else ())]
        found += [d for d in below if d is not None and not any(d is known for known in found)]
        if len(found) >= _DATASETS_MAX:
            break
    return found[:_DATASETS_MAX]


def makes_samples(dataset: Any) -> Any:
    """The dataset whose code makes the samples: the innermost one, or a user-defined wrapper."""
    for _ in range(_DEPTH_MAX):
        inside = own(dataset)
        inner = inside.get("dataset")
        if inner is None and isinstance(inside.get("datasets"), (list, tuple)) and inside["datasets"]:
            inner = inside["datasets"][0]
        if inner is None or _place_of_class(dataset):
            return dataset
        dataset = inner
    return dataset


def _place_of_class(dataset: Any) -> bool:
    """True for a user-defined wrapper, which does work of its own."""
    return bool(_own_place(type(dataset), ("__getitem__", "__iter__"))[0])


def containers(found_in: list[Any]) -> list[Any]:
    """Objects in the datasets that apply a list of transforms, including nested ones."""
    found: list[Any] = []
    waiting = [(value, 0) for dataset in found_in for value in _kept(dataset)]
    waiting += [(dataset, _DEPTH_MAX) for dataset in found_in]  # the dataset itself may have the list (multi-crop)
    while waiting and len(found) < _CONTAINERS_MAX:
        item, depth = waiting.pop(0)
        inside = steps_of(item)
        if inside is None or any(item is known for known in found):
            if inside is None and depth < 2:  # VisionDataset also keeps its transform in another object
                waiting += [(value, depth + 1) for value in _kept(item) if steps_of(value) is not None]
            continue
        found.append(item)
        if depth < _DEPTH_MAX:
            waiting += [(step, depth + 1) for step in inside]
    return found


def _kept(item: Any) -> Iterator[Any]:
    for value in list(own(item).values())[:100]:
        if type(value) in (dict, list, tuple):
            several = list(value.values() if type(value) is dict else value[:16])[:16]
            yield from (v for v in several if type(v).__module__ != "builtins")
        elif type(value).__module__ != "builtins":
            yield value


def steps_of(item: Any) -> Any:
    """The steps of a container of transforms; None for other objects."""
    if is_sequential(item):
        return list(own(item)["_modules"].values())
    steps = own(item).get("transforms")
    if type(steps) not in (list, tuple) or not steps or len(steps) > 100:
        return None
    return steps if all(callable(step) for step in steps) else None


def is_sequential(item: Any) -> bool:
    """True for an `nn.Sequential` or an instance of a subclass; False for a scripted one, which must not be changed."""
    torch = sys.modules.get("torch")
    if torch is None or type(item).__module__.startswith("torch.jit") or "_modules" not in own(item):
        return False
    return isinstance(item, torch.nn.Sequential)


def known_containers() -> Iterator[type]:
    for module, name in _KNOWN_CONTAINERS:
        found = getattr(sys.modules.get(module), name, None)
        if isinstance(found, type):
            yield found


def is_folder(dataset: Any) -> bool:
    """True if torchvision's own `DatasetFolder.__getitem__` makes the samples."""
    folder = getattr(sys.modules.get("torchvision.datasets.folder"), "DatasetFolder", None)
    return folder is not None and getattr(type(dataset), "__getitem__", None) is folder.__getitem__


def transform_files(steps: list[Any]) -> list[str]:
    """The files of the job's modules that can have built these library transforms, whose names are on no stack.

    One of their classes, or a module of their package, is among a module's globals; those with classes come first. Runs none of their code.
    """
    classes = {id(type(step)) for step in steps if type(step).__module__ not in _OWN_PARTS}
    packages = {type(step).__module__.partition(".")[0] for step in steps} - {*_OWN_PARTS}
    key = (frozenset(classes), len(sys.modules))  # a look at 2,295 modules took 2.2 ms
    if key not in _transform_files:
        _transform_files.clear()
        _transform_files[key] = _files_with(classes, packages) if packages else []
    return _transform_files[key]


def _files_with(classes: set[int], packages: set[str]) -> list[str]:
    named, imported = [], []
    for module in list(sys.modules.values()):
        known = _globals(module)
        file = known.get("__file__")
        if type(file) is not str or not file.endswith(".py") or is_foreign(file):
            continue
        values = list(known.values())[:_GLOBALS_MAX]
        if any(id(value) in classes for value in values):
            named.append(file)
        elif any(_is_of(value, packages) for value in values):
            imported.append(file)
    return list(dict.fromkeys([*named, *imported]))[:_FILES_MAX]


def _globals(module: Any) -> dict[str, Any]:
    """Of plain modules alone: a lazy one may load what it stands for."""
    return object.__getattribute__(module, "__dict__") if type(module) is types.ModuleType else {}


def _is_of(value: Any, packages: set[str]) -> bool:
    return type(value) is types.ModuleType and str(_globals(value).get("__name__")).partition(".")[0] in packages
