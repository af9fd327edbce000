"""Calls of torch get other arguments, at their place, as if the file had been edited; what torch does not take changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.probes.rank.trials.call_changes import changed_arguments
from rn50_advisor.probes.rank.trials.trial_request import Refused
from tried_jobs import line_of, outcomes, tried

JOB = """
import gc, json, pickle
import torch
from torch.nn import SyncBatchNorm
from torch import compile as compiled, set_num_threads
from torch.utils.data import DataLoader, TensorDataset

class Own(DataLoader):
    def __init__(self, data, **more):
        super().__init__(data, batch_size=4, **more)  # own

torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 8), torch.randint(0, 4, (32,)))
several_lines = DataLoader(
    data,
    4,  # positional
    False, num_workers=0,
)
plain = DataLoader(data, batch_size=4)  # plain
own = Own(data)
table = torch.nn.Embedding(10, 4)
layer = torch.nn.Linear(8, 4)
model = SyncBatchNorm.convert_sync_batchnorm(torch.nn.Sequential(layer, torch.nn.BatchNorm1d(4)))
adam = torch.optim.Adam(table.parameters(), lr=0.01)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, foreach=True)
groups = [{"params": table.parameters(), "lr": 0.2}]
refusing = torch.optim.SGD(groups, lr=0.1, differentiable=True)
set_num_threads(1)
for x, y in several_lines:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
@compiled
def doubled(x):
    return 2 * x

moved = torch.zeros(2).to(torch.float64)  # moved
print(json.dumps({
    "several_lines": [several_lines.num_workers, several_lines.persistent_workers, several_lines.batch_size],
    "plain": [plain.num_workers, plain.prefetch_factor],
    "own": [own.num_workers, own.batch_size, type(own).__name__, isinstance(own, DataLoader)],
    "adam": [adam.defaults["fused"], adam.defaults["foreach"]],
    "adamw": [optimizer.defaults["fused"], optimizer.defaults["foreach"], len(optimizer.param_groups[0]["params"])],
    "refusing": [refusing.param_groups[0]["fused"], len(refusing.param_groups[0]["params"]), refusing.param_groups[0]["lr"]],
    "threads": torch.get_num_threads(),
    "norm": type(model[1]).__name__,
    "table": table.padding_idx,
    "pickled": pickle.loads(pickle.dumps((torch.optim.AdamW, set_num_threads))) == (torch.optim.AdamW, set_num_threads),
    "moved": str(moved.dtype),
    "doubled": doubled(torch.ones(1)).item(),
}))
"""


def call(name: str, text: str | None = None, *, without: tuple[str, ...] = (), file: str = "", **arguments: Any) -> Any:
    line = line_of(JOB, text) if text else None
    place = {"file": file or None, "line": line}
    return {"kind": "call", "callable": name, "arguments": arguments, "without": list(without), **place}


@pytest.mark.torch
def test_calls_of_a_job_get_the_arguments_that_an_edit_would_give_them(tmp_path: Path) -> None:
    file = str(tmp_path / "job.py")
    changes = [
        call("DataLoader", "4,  # positional", file=file, num_workers=2, persistent_workers=True, batch_size=8),
        call("DataLoader", "# own", file=file, num_workers=1),
        call("DataLoader", "# plain", file=file, prefetch_factor=3),
        call("AdamW", fused=True, without=("foreach",)),
        call("Adam", fused=True),
        {"kind": "removal", "callable": "convert_sync_batchnorm"},
        call("torch.set_num_threads", num_threads=2),
        call("NoSuchCall", fused=True),
        call("Embedding", no_such_argument=3),
        call("SGD", fused=True),
        call("to", "# moved", file=file, dtype={"source": "torch.float16"}),
        {"kind": "removal", "callable": "DistributedDataParallel"},
        call("to", non_blocking=True),
        call("compile", backend="eager"),
    ]
    job = tried(tmp_path, JOB, {"changes": changes, "live": None})
    assert json.loads(job.out) == {
        "several_lines": [2, True, 8],
        "plain": [0, None],
        "own": [1, 4, "Own", True],
        "adam": [True, None],
        "adamw": [True, None, 4],
        "refusing": [None, 1, 0.2],
        "threads": 2,
        "norm": "BatchNorm1d",
        "table": None,
        "pickled": True,
        "moved": "torch.float64",
        "doubled": 2.0,
    }
    applied, refused = outcomes(job.trials[-1])
    assert applied == {0: 1, 1: 1, 2: 0, 3: 1, 4: 1, 5: 1, 6: 1, **dict.fromkeys(range(7, 13), 0), 13: 1}
    assert refused == {
        2: "prefetch_factor has no effect with num_workers=0",
        7: "this torch has no NoSuchCall",
        8: "it has no argument no_such_argument",
        9: "RuntimeError: `fused` does not support `differentiable`",
        10: refused[10],
        11: "the job needs what DistributedDataParallel makes",
        12: "the place of this call of to is not known",
    }
    assert refused[10].startswith("TypeError: ")


def loader(
    data: Any, size: int = 1, *, num_workers: int = 0, prefetch_factor: Any = None, persistent_workers: bool = False
) -> Any:
    return data, size, num_workers, prefetch_factor, persistent_workers


def optimizer(parameters: Any, lr: float = 0.1, *, foreach: Any = None, fused: Any = None) -> Any:
    return parameters, lr, foreach, fused


def anything(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


TABLE = [
    (loader, ("d", 4), {}, {"num_workers": 2}, (), ("d", 4, 2, None, False)),
    (loader, ("d", 4), {"num_workers": 2}, {"size": 8}, (), ("d", 8, 2, None, False)),
    (loader, ("d",), {"num_workers": 2, "prefetch_factor": 4}, {"num_workers": 0}, (), ("d", 1, 0, None, False)),
    (loader, ("d",), {"num_workers": 2, "persistent_workers": True}, {"num_workers": 0}, (), ("d", 1, 0, None, False)),
    (loader, ("d",), {"num_workers": 2, "prefetch_factor": 4}, {}, ("prefetch_factor",), ("d", 1, 2, None, False)),
    (loader, ("d",), {}, {"num_workers": 1, "prefetch_factor": 4}, (), ("d", 1, 1, 4, False)),
    (optimizer, ("p",), {"foreach": True}, {"fused": True}, (), ("p", 0.1, None, True)),
    (optimizer, ("p",), {"fused": True}, {"foreach": True}, (), ("p", 0.1, True, None)),
    (optimizer, ("p",), {"lr": 0.5}, {"fused": True}, ("no_such_one",), ("p", 0.5, None, True)),
    (anything, (1, 2), {"a": 3}, {"b": 4}, ("a",), ((1, 2), {"b": 4})),
    (round, (2.5,), {}, {"ndigits": 0}, (), 2.0),
]  # fmt: skip


@pytest.mark.parametrize("row", TABLE)
def test_new_arguments_take_the_place_of_those_that_they_exclude(row: Any) -> None:
    function, args, kwargs, new, without, made = row
    [(new_args, new_kwargs)] = changed_arguments(function, args, kwargs, new, without)
    assert function(*new_args, **new_kwargs) == made


def test_a_change_of_which_nothing_is_left_is_refused() -> None:
    with pytest.raises(Refused, match="persistent_workers has no effect with num_workers=0"):
        changed_arguments(loader, ("d",), {}, {"persistent_workers": True}, ())
    with pytest.raises(Refused, match="it has no argument workers"):
        changed_arguments(loader, ("d",), {}, {"workers": 1}, ())
    with pytest.raises(TypeError):
        changed_arguments(loader, (), {}, {"num_workers": 1}, ())


def test_a_function_in_c_gets_its_only_argument_by_position_if_not_by_name() -> None:
    torch = pytest.importorskip("torch")
    attempts = changed_arguments(torch._C.set_num_threads, (4,), {}, {"num": 2}, ())
    assert attempts == [((4,), {"num": 2}), ((2,), {})]
