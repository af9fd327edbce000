"""Options of optimizers, wrappers and layers that live: exchanged in blocks, taken back, and refused where torch would raise."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rn50_advisor.probes.rank.trials.object_options import ObjectOptions
from rn50_advisor.probes.rank.trials.trial_request import Outcomes, Refused
from tried_jobs import outcomes, tried

torch = pytest.importorskip("torch")

FROM, BLOCK = 6, 5
JOB = """
import json
import torch
from torch.nn.parallel import DistributedDataParallel

class Own(torch.optim.AdamW):
    pass

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(50, 8)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, words):
        return self.table(words).mean(1) * self.scale

torch.manual_seed(0)
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
model = DistributedDataParallel(Net())
table = model.module.table
norm = torch.nn.SyncBatchNorm.convert_sync_batchnorm(torch.nn.BatchNorm1d(8)).eval()  # torch synchronises GPUs alone
optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
own = Own(norm.parameters(), lr=0.1)
seen = []
for step in range(30):
    optimizer.zero_grad()
    own.zero_grad()
    norm(model(torch.randint(0, 50, (16, 4)))).square().mean().backward()
    seen.append([
        own.param_groups[0]["fused"], own.param_groups[0]["foreach"], model.broadcast_buffers,
        "forward" in vars(norm), table.sparse,
    ])
    optimizer.step()
    own.step()
print(json.dumps({"seen": seen, "count": own.state[norm.weight]["step"].item()}))
torch.distributed.destroy_process_group()
"""


def call(name: str, *, without: tuple[str, ...] = (), **arguments: Any) -> Any:
    return {
        "kind": "call",
        "callable": name,
        "arguments": arguments,
        "without": list(without),
        "file": None,
        "line": None,
    }


REMOVAL = {"kind": "removal", "callable": "convert_sync_batchnorm"}


def test_options_of_living_objects_are_exchanged_in_blocks(tmp_path: Path) -> None:
    changes = [
        call("AdamW", fused=True, without=("foreach",)),
        call("DistributedDataParallel", broadcast_buffers=False),
        REMOVAL,
        call("Embedding", sparse=True),
        call("SGD", momentum=0.9),
        call("RMSprop", foreach=True),
    ]
    live = {"variants": [[], changes], "from_step": FROM, "block_steps": BLOCK, "order": [0, 1, 1, 0]}
    job = tried(tmp_path, JOB, {"changes": [], "live": live})
    found = json.loads(job.out)
    [trial] = job.trials.values()
    applied, refused = outcomes(trial)
    assert "agreed on" in refused.pop(3), "it would have ended in torch's reducer"
    assert set(refused) == {4, 5} and "only by a restart" in refused[4] and "has made no RMSprop" in refused[5]
    assert all(applied[index] for index in range(3))
    changed = [row == [True, None, False, True, False] for row in found["seen"]]
    as_made = [row == [None, None, True, False, False] for row in found["seen"]]
    begin = changed.index(True)
    assert begin >= FROM
    assert changed[begin : begin + 2 * BLOCK] == [True] * 2 * BLOCK
    assert as_made == [not each for each in changed], "nothing else was changed, and all was taken back"
    assert found["count"] == 30, "no update was lost"


def options(made: Any, change: Any) -> tuple[ObjectOptions, Outcomes]:
    outcomes = Outcomes(1)
    recorder: Any = SimpleNamespace(torch=torch, worker=None, failed=lambda: None, active=True)
    options = ObjectOptions(recorder, outcomes, 0, change)
    options._ended(made)
    return options, outcomes


def test_an_optimizer_counts_as_changed_once_it_has_updated_so() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([weight], foreach=True)
    changed, found = options(optimizer, call("Adam", fused=True, without=("foreach",)))
    weight.grad = torch.ones(3)
    optimizer.step()
    [put_back] = changed.switch()
    assert found.facts()["applied"] == [[0, 0]] and optimizer._step_supports_amp_scaling
    optimizer.step()
    assert found.facts()["applied"] == [[0, 1]]
    put_back()
    optimizer.step()
    assert found.facts()["applied"] == [[0, 1]] and not hasattr(optimizer, "_step_supports_amp_scaling")
    group = optimizer.param_groups[0]
    assert (group["fused"], group["foreach"], optimizer.state[weight]["step"].item()) == (None, True, 3.0)


def test_a_form_that_cannot_be_set_whole_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(3))], foreach=True)
    before = [dict(group) for group in optimizer.param_groups]
    calls = iter([MemoryError])

    def no_memory(_: Any) -> None:
        for error in calls:
            raise error

    monkeypatch.setattr("rn50_advisor.probes.rank.trials.object_options._place_counts", no_memory)
    changed, found = options(optimizer, call("Adam", fused=True))
    with pytest.raises(MemoryError):
        changed.switch()
    optimizer.step()
    assert [dict(group) for group in optimizer.param_groups] == before
    assert not hasattr(optimizer, "_step_supports_amp_scaling") and found.facts()["applied"] == [[0, 0]]


def test_counts_of_updates_lie_where_the_implementation_wants_them() -> None:
    weight = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    optimizer = torch.optim.Adam([weight])
    weight.grad = torch.ones(3, dtype=torch.float64)
    optimizer.step()
    state = optimizer.state[weight]
    state["step"] = state["step"].double()  # as of a job whose default is double
    changed, _ = options(optimizer, call("Adam", fused=True))
    changed.switch()
    optimizer.step()
    assert (state["step"].dtype, state["step"].item()) == (torch.float32, 2.0)


@pytest.mark.parametrize(
    ("made", "change", "reason"),
    [
        (
            torch.optim.Adam([torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))]),
            call("Adam", fused=True),
            "complex64",
        ),
        (torch.optim.LBFGS([torch.nn.Parameter(torch.ones(2))]), call("LBFGS", fused=True), "has no fused form"),
    ],
)
def test_what_torch_would_refuse_later_is_refused_at_once(made: Any, change: Any, reason: str) -> None:
    changed, _ = options(made, change)
    before = [dict(group) for group in made.param_groups]
    with pytest.raises(Refused, match=reason):
        changed.switch()
    assert [dict(group) for group in made.param_groups] == before


def test_gradients_of_a_table_become_sparse_and_dense_again() -> None:
    table = torch.nn.Embedding(4, 2)
    changed, found = options(table, call("Embedding", sparse=True))
    [put_back] = changed.switch()
    table(torch.tensor([1])).sum().backward()
    assert table.weight.grad is not None and table.weight.grad.is_sparse and found.facts()["applied"] == [[0, 1]]
    put_back()
    table.weight.grad = None
    table(torch.tensor([1])).sum().backward()
    assert table.weight.grad is not None and not table.weight.grad.is_sparse


def test_sparse_gradients_are_not_fused() -> None:
    table = torch.nn.Embedding(4, 2, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    table(torch.tensor([1])).sum().backward()
    changed, _ = options(optimizer, call("SGD", fused=True))
    with pytest.raises(Refused, match="sparse"):
        changed.switch()


def test_objects_that_are_gone_are_none() -> None:
    changed, _ = options(torch.nn.Embedding(2, 2), call("Embedding", sparse=True))
    with pytest.raises(Refused, match="has made no Embedding"):
        changed.switch()
    with pytest.raises(Refused, match="only by a restart"):
        options(None, call("Embedding", padding_idx=0))
    with pytest.raises(Refused, match="only by a restart"):
        options(None, {"kind": "removal", "callable": "torch.compile"})
