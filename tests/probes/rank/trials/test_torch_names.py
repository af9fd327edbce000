"""Names of a request stand for what a job finds in torch; nothing else can be named."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from rn50_advisor.probes.rank.trials.torch_names import callables, replace, value_of
from rn50_advisor.probes.rank.trials.trial_request import Refused

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("DataLoader", "torch.utils.data"),
        ("DistributedDataParallel", "torch.nn"),
        ("AdamW", "torch.optim"),
        ("compile", "torch"),
        ("EmbeddingBag", "torch.nn"),
        ("set_num_threads", "torch"),
        ("set_detect_anomaly", "torch.autograd"),
        ("torch.optim.SGD", "torch.optim"),
    ],
)
def test_a_callable_is_found_by_its_last_name(name: str, owner: str) -> None:
    [found] = callables(name)
    assert found.owner.__name__.startswith(owner) and callable(found.original) and not found.of_objects


def test_methods_are_found_in_the_classes_that_own_them() -> None:
    assert [found.owner for found in callables("to")] == [torch.nn.Module, torch.Tensor]
    assert all(found.of_objects for found in callables("to"))
    [found] = callables("convert_sync_batchnorm")
    assert found.owner is torch.nn.SyncBatchNorm and found.bound and not found.of_objects
    assert callables("Any") == [] == callables("NoSuchThing")


def test_values_are_found_by_name_and_no_code_is_evaluated() -> None:
    assert value_of(3) == 3 and value_of({"source": "torch.bfloat16"}) is torch.bfloat16
    hook = value_of({"source": "torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook"})
    assert callable(hook)
    assert list(value_of({"source": "range(os.cpu_count())"}))
    for source in ("os.system", "torch._C._cuda_init", "torch.no_such_name", "torch.float32.__class__", "model", None):
        with pytest.raises(Refused):
            value_of({"source": source})


def test_a_replaced_function_is_replaced_wherever_it_was_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def function() -> None: ...

    def wrapper() -> None: ...

    home: Any = ModuleType("torch.home")
    user: Any = ModuleType("user")
    home.made, user.renamed, user.other = function, function, len
    for module in (home, user):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr("rn50_advisor.probes.rank.trials.torch_names._NAMESPACES", ("torch.home",))
    function.__module__ = "torch.home"
    [found] = callables("made")
    replace(found, wrapper)
    assert home.made is wrapper and user.renamed is wrapper and user.other is len


def test_a_replaced_class_method_still_gets_its_class() -> None:
    class Owner:
        @classmethod
        def made(cls, *args: Any) -> Any:
            return cls, args

    from rn50_advisor.probes.rank.trials.torch_names import _of

    found = _of(Owner, "made")
    replace(found, lambda cls, *args: ("wrapped", *found.original(cls, *args)))
    assert Owner.made(1) == ("wrapped", Owner, (1,))
