"""Looks into samples, in real training with real pictures: what they find, and that the job does not notice them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rn50_advisor.advisor.run.rings.own_folder import hold
from rn50_advisor.advisor.run.rings.ring_reader import RingReader
from rn50_advisor.probes.rank.layout import KIND_PART, KIND_PROFILED, PART_FIELDS, PROFILED_FIELDS

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[3]


def run(*arguments: object, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if folder is not None:
        hold(folder)  # until this process ends
        environment |= {
            "RN50_ADVISOR_DIR": str(folder),
            "PYTHONPATH": str(ROOT / "src" / "rn50_advisor" / "probes" / "rank" / "inject"),
        }
    command = [sys.executable, str(ROOT / "tests" / "jobs" / "pipelines.py"), *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize(
    ("style", "workers", "parts"),
    [
        ("plain", 1, {"default_loader", "RandomResizedCrop", "ToTensor", "Slow"}),
        ("own", 0, {"Pictures.__getitem__", "Resize", "Lambda(hue)", "hue", "ToTensor", "Slow"}),
    ],
)
def test_order_pixels_and_random_numbers_are_the_same(
    tmp_path: Path, images: Path, style: str, workers: int, parts: set[str]
) -> None:
    alone = run(style, workers, images / "train")
    watched = run(style, workers, images / "train", folder=tmp_path)
    assert watched.returncode == alone.returncode == 0, watched.stderr
    assert (watched.stdout, watched.stderr) == (alone.stdout, alone.stderr)
    assert not list(tmp_path.glob("error-*"))
    [ring] = tmp_path.glob("worker-*.ring" if workers else "rank-*.ring")
    rows = RingReader(ring).drain().rows
    profiled = [dict(zip(PROFILED_FIELDS, values, strict=True)) for _, values in rows[KIND_PROFILED]]
    named = {int(path.stem[5:]): json.loads(path.read_text())["name"] for path in tmp_path.glob("part-*.json")}
    seen = {named[dict(zip(PART_FIELDS, values, strict=True))["part"]] for _, values in rows[KIND_PART]}
    assert seen >= parts
    assert all(row["batch_bytes"] == 4 * (3 * 32 * 32 * 4 + 8) and row["loader"] == 0 for row in profiled)
    assert all(row["width"] > 100 and row["height"] > 100 for row in profiled)
    assert all(row["file_bytes"] > 1000 for row in profiled) or style == "own"


@pytest.mark.parametrize("workers", [0, 1])
def test_a_failing_transform_ends_the_job_with_the_same_words(tmp_path: Path, images: Path, workers: int) -> None:
    alone = run("plain", workers, images / "train", 5)
    watched = run("plain", workers, images / "train", 5, folder=tmp_path)
    assert watched.returncode == alone.returncode == 1
    assert "this picture cannot be transformed" in alone.stderr
    assert (watched.stdout, watched.stderr) == (alone.stdout, alone.stderr)


RANKS = """
import os
import sys
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method="file://" + os.path.abspath("store"), rank=rank, world_size=2)
torch.manual_seed(0)
data = TensorDataset(torch.rand(400, 8), torch.rand(400, 1))
sampler = DistributedSampler(data) if "own" in sys.argv else None
loader = DataLoader(data, batch_size=8, sampler=sampler, shuffle=sampler is None)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for epoch in range(2):
    for x, y in loader:
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
sys.stdout.write(f"{rank} {losses} {torch.rand(1).item().hex()}\\n")
sys.stdout.flush()
dist.barrier()
os._exit(0)  # gloo's threads abort a Python that is being finalized now and then: pytorch/pytorch#190489
"""


def run_ranks(tmp_path: Path, *arguments: str, folder: Path | None = None) -> list[str]:
    """What two ranks print, started as torchrun would."""
    (job := tmp_path / "train.py").write_text(RANKS)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": "2"}
    if folder is not None:
        folder.mkdir(mode=0o700)
        hold(folder)
        environment |= {
            "RN50_ADVISOR_DIR": str(folder),
            "PYTHONPATH": str(ROOT / "src" / "rn50_advisor" / "probes" / "rank" / "inject"),
        }
    (tmp_path / "store").unlink(missing_ok=True)
    command = [sys.executable, str(job), *arguments]
    ranks = [
        subprocess.Popen(
            command, env={**environment, "RANK": rank}, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for rank in "01"
    ]
    outputs = [rank.communicate(timeout=300) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    return [printed.decode() for printed, _ in outputs]


def test_ranks_that_train_on_the_same_batches_are_known_by_their_check_sums(tmp_path: Path) -> None:
    alone, watched = run_ranks(tmp_path), run_ranks(tmp_path, folder=tmp_path / "same")
    assert len(watched) == 2 and watched == alone
    run_ranks(tmp_path, "own", folder=tmp_path / "own")
    digests = {}
    for name in ("same", "own"):
        assert not list((tmp_path / name).glob("error-*"))
        facts = [json.loads(path.read_text()) for path in sorted((tmp_path / name).glob("facts-*.json"))]
        digests[name] = [known["first_batches"]["digests"] for known in facts]
        assert [len(set(of_rank)) for of_rank in digests[name]] == [16, 16]
    assert digests["same"][0] == digests["same"][1]
    assert set(digests["own"][0]).isdisjoint(digests["own"][1])
