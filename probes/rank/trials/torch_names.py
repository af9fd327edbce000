"""Finds what a request names: values and functions of torch, of `gc`, and the callables that a job calls by their last name."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from ..patches.wrappers import BuiltIn
from .trial_request import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

# Where a job finds what it calls, in this order: a name may stand for something else in an inner module.
_NAMESPACES = (
    "torch", "torch.utils.data", "torch.nn", "torch.nn.parallel", "torch.optim", "torch.optim.lr_scheduler", "torch.distributed",
    "torch.autograd", "torch.amp", "torch.cuda", "torch.cuda.amp", "torch.backends.cudnn", "torch.backends.cuda", "torch.backends.mkldnn",
    "torch.nn.utils", "torch.nn.functional", "torch.nn.init", "torch.utils.checkpoint", "torch.multiprocessing", "torch.random",
    "torch.distributed.fsdp",
)  # fmt: skip
# Classes with methods that a job calls by name.
_OWNERS = ("torch.nn.Module", "torch.Tensor", "torch.nn.SyncBatchNorm")
# Expressions that are no dotted name.
_EXPRESSIONS = {"range(os.cpu_count())": lambda: range(os.cpu_count() or 1)}


class FoundCallable(NamedTuple):
    """A callable where it is looked up. `bound`: it gets the object or class that it is called on first."""

    owner: Any
    name: str
    original: Any
    bound: bool

    @property
    def of_objects(self) -> bool:
        """It is called on objects of the class that owns it, which may be many."""
        return self.bound and not isinstance(_raw(self.owner, self.name), classmethod)


def value_of(argument: Any) -> Any:
    """The value of an argument of a request: a JSON value, or `{"source": "torch.bfloat16"}`. Evaluates no code."""
    if not isinstance(argument, dict):
        return argument
    source = argument.get("source")
    if source in _EXPRESSIONS:
        return _EXPRESSIONS[source]()
    return named(source)


def named(path: Any) -> Any:
    """What a dotted name under torch or `gc` stands for."""
    root, *names = path.split(".") if isinstance(path, str) else [""]
    if root not in ("torch", "gc") or not names or any(name.startswith("_") for name in names):
        raise Refused("%s is no name under torch" % (path,))
    found: Any = sys.modules[root]
    at = root
    for name in names:
        at += "." + name
        if not hasattr(found, name) and root == "torch":
            try:
                importlib.import_module(at)
            except ImportError:
                pass
        try:
            found = getattr(found, name)
        except AttributeError:
            raise Refused("this torch has no %s" % at) from None
    return found


def plain(function: Any) -> Any:
    """The function below our own stand-ins: its call is none of the job's."""
    while isinstance(function, BuiltIn):
        function = function._original
    return function


def callables(name: str) -> list[FoundCallable]:
    """The callables of torch with this last name, or with this whole name if it is dotted."""
    if name.startswith("torch."):
        above, _, last = name.rpartition(".")
        owner = sys.modules["torch"] if above == "torch" else named(above)
        return [_of(owner, last)] if hasattr(owner, last) else []
    last = name.rpartition(".")[2]
    for module in _modules():
        found = vars(module).get(last)
        if callable(found) and _is_torchs(found):
            return [_of(module, last)]
    methods: dict[int, FoundCallable] = {}
    for owner in map(named, _OWNERS):
        if callable(getattr(owner, last, None)):
            methods.setdefault(
                id(_raw(owner, last)), _of(owner, last)
            )  # one that is inherited is wrapped where it is defined
    return list(methods.values())


def _modules() -> Iterator[Any]:
    for name in _NAMESPACES:
        module = sys.modules.get(name)
        if module is not None:
            yield module


def _is_torchs(found: Any) -> bool:
    """False for what a module of torch has only imported, such as `typing.Any`."""
    module = getattr(found, "__module__", None)
    return module is None or str(module).partition(".")[0] == "torch"


def _of(owner: Any, name: str) -> FoundCallable:
    if not isinstance(owner, type):
        return FoundCallable(owner, name, getattr(owner, name), bound=False)
    raw = _raw(owner, name)
    original = raw.__func__ if isinstance(raw, (classmethod, staticmethod)) else raw
    return FoundCallable(owner, name, original, bound=not isinstance(raw, staticmethod))


def _raw(owner: type, name: str) -> Any:
    """The attribute as the class holds it: a class method, say."""
    return next((vars(base)[name] for base in owner.__mro__ if name in vars(base)), None)


def replace(found: FoundCallable, wrapper: Any) -> None:
    """Puts the wrapper in the callable's place, in every module that has it by now. Modules imported later find the wrapper in torch."""
    if isinstance(found.owner, type):
        raw = _raw(found.owner, found.name)
        kind = type(raw) if isinstance(raw, (classmethod, staticmethod)) else None
        setattr(found.owner, found.name, wrapper if kind is None else kind(wrapper))
        return
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if type(names) is not dict:
            continue
        for name, value in list(names.items()):
            if value is found.original:
                names[name] = wrapper
