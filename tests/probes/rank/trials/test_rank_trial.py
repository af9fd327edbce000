"""A trial in real ranks: changes from the start and switched in blocks, at the same step in each, and told in the facts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.probes.rank.trials.trial_request import TrialRequest
from tried_jobs import outcomes, tried

pytestmark = pytest.mark.torch

STEPS = 40
# Each rank writes what it sees in each step: compute threads, autocast's type in its model's forward, its samples and who loaded them.
JOB = """
import gc, json, os
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, get_worker_info

class Numbers(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, item):
        return torch.full((3, 6, 6), float(item)), item, -1 if get_worker_info() is None else get_worker_info().id

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(64, 4)

    def forward(self, x):
        halves.append(str(torch.get_autocast_dtype("cpu")) if torch.is_autocast_enabled("cpu") else None)
        return self.head(self.conv(x).flatten(1))

rank, ranks, halves, seen = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), [], []
torch.manual_seed(5)
model = Net()
if os.environ["WRAPPED"] == "1":
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
sampler = DistributedSampler(Numbers(), ranks, rank, seed=3)
loader = DataLoader(Numbers(), batch_size=4, sampler=sampler)
for epoch in range(5):
    sampler.set_epoch(epoch)
    for pictures, items, workers in loader:
        threads, frozen = torch.get_num_threads(), gc.get_freeze_count() > 0
        loss = model(pictures).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append([threads, frozen, halves[-1], items.tolist(), workers[0].item(), str(loss.dtype)])
with open("rank-%d.json" % rank, "w") as file:
    json.dump({"seen": seen, "threshold": gc.get_threshold(), "benchmark": torch.backends.cudnn.benchmark}, file)
if os.environ["WRAPPED"] == "1":
    torch.distributed.destroy_process_group()
"""
SETUP = [
    {"call": "torch.set_num_threads", "positional": [2], "arguments": {}},
    {"call": "gc.collect", "positional": [], "arguments": {}},
    {"call": "gc.freeze", "positional": [], "arguments": {}},
]
VARIANT = [
    {"kind": "setup", "statements": SETUP},
    {"kind": "context", "call": "torch.autocast", "positional": ["cpu", {"source": "torch.bfloat16"}]},
    {"kind": "call", "callable": "DataLoader", "arguments": {"num_workers": 1}, "without": [], "file": None},
    {"kind": "call", "callable": "DataLoader", "arguments": {"persistent_workers": True}, "file": None},
    {"kind": "model", "call": "torch.compile"},
]
REQUEST = {
    "changes": [
        {"kind": "setup", "statements": [{"call": "gc.set_threshold", "positional": [90_000, 20, 20]}]},
        {"kind": "setup", "statements": [{"assign": "torch.backends.cudnn.benchmark", "value": True}]},
        {"kind": "environment", "variables": {"A": "1"}},
        {"kind": "call", "callable": "DistributedDataParallel", "arguments": {"gradient_as_bucket_view": True}},
    ],
    "live": {"variants": [[], VARIANT], "from_step": 6, "block_steps": 4, "order": [0, 1, 1, 0]},
}


def samples_of(rank: int) -> list[list[int]]:
    """The batches of a rank in their order, as its sampler draws them."""
    from torch.utils.data import DistributedSampler

    sampler: Any = DistributedSampler(range(64), 2, rank, seed=3)  # type: ignore[arg-type]
    drawn: list[int] = []
    for epoch in range(5):
        sampler.set_epoch(epoch)
        drawn += sampler
    return [drawn[at : at + 4] for at in range(0, len(drawn), 4)]


@pytest.mark.parametrize("wrapped", ["0", "1"])
def test_all_ranks_switch_at_the_same_steps_and_compute_on(tmp_path: Path, wrapped: str) -> None:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    job = tried(tmp_path, JOB, REQUEST, launcher=launcher, WRAPPED=wrapped)
    variants = [TrialRequest(REQUEST).variant_at(step) for step in range(STEPS)]
    switches = [[10, 1], [18, 0], [26, 1], [34, 0]]
    for rank in (0, 1):
        told = json.loads((tmp_path / f"rank-{rank}.json").read_text())
        threads, frozen, halves, items, workers, dtypes = zip(*told["seen"], strict=True)
        assert list(threads) == [1 + variant for variant in variants]
        assert list(frozen) == [variant == 1 for variant in variants]
        assert list(halves) == ["torch.bfloat16" if variant else None for variant in variants]
        assert set(dtypes) == {"torch.float32"}
        assert list(items) == samples_of(rank), "no sample is lost, and none comes twice"
        assert workers[10] == 0 and set(workers[:10]) == {-1} and workers[-1] == -1
        assert told["threshold"] == [90_000, 20, 20] and told["benchmark"] is True
        trial = job.trials[rank]
        applied, refused = outcomes(trial)
        assert trial["switches"] == switches
        assert applied == {0: 1, 1: 1, 2: 0, 3: int(wrapped), 4: 2, 5: 2, 6: 2, 7: 0, 8: 0}
        assert [each["gradient_as_bucket_view"] for each in job.facts[rank].get("ddp", ())] == [True] * int(wrapped)
        assert refused == {
            2: "a rank makes no change of kind environment",
            7: "only by a restart: persistent_workers of a loader",
            8: "only by a restart: a change of kind model",
        }


ALONE = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(), torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randint(0, 4, (64,)))
for epoch in range(6):
    for x, y in torch.utils.data.DataLoader(data, batch_size=4, shuffle=True):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(float(loss).hex())
"""
EMPTY_BLOCKS = {"variants": [[], []], "from_step": 6, "block_steps": 4, "order": [0, 1, 1, 0]}


def test_losses_are_bit_identical_where_nothing_is_changed(tmp_path: Path) -> None:
    requests = {"none": None, "empty": {"changes": [], "live": None}, "blocks": {"changes": [], "live": EMPTY_BLOCKS}}
    jobs = {name: tried(tmp_path / name, ALONE, request) for name, request in requests.items()}
    assert jobs["none"].out == jobs["empty"].out == jobs["blocks"].out and len(jobs["none"].out.split()) == 96
    assert jobs["none"].trials == {-1: None}
    assert jobs["empty"].trials == {-1: {"applied": [], "refused": [], "switches": []}}
    switches = [[10 + 8 * block, 1 - block % 2] for block in range(11)]
    assert jobs["blocks"].trials == {-1: {"applied": [], "refused": [], "switches": switches}}


def test_a_setting_that_the_job_sets_again_itself_is_refused(tmp_path: Path) -> None:
    again = ALONE.replace("optimizer.step()", "optimizer.step(); torch.set_num_threads(1)")
    change = {"kind": "setup", "statements": [SETUP[0]]}
    for job, why in ((again, "the job sets it again itself, after torch.set_num_threads"), (ALONE, None)):
        request = {"changes": [], "live": {**EMPTY_BLOCKS, "variants": [[], [change]]}}
        _, refused = outcomes(tried(tmp_path / str(why is None), job, request).trials[-1])
        assert refused == ({0: why} if why else {})


def test_a_request_that_cannot_be_read_is_refused_as_a_whole(tmp_path: Path) -> None:
    job = tried(tmp_path, ALONE, {"changes": "all"})
    assert job.trials == {
        -1: {"applied": [], "refused": [[-1, "ValueError: its changes are no list of objects"]], "switches": []}
    }
