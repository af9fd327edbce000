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
from rn50_advisor.probes.rank.layout import KIND_LOOK, KIND_PART, LOOK_FIELDS, PART_FIELDS

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
    looks = [dict(zip(LOOK_FIELDS, values, strict=True)) for _, values in rows[KIND_LOOK]]
    named = {int(path.stem[5:]): json.loads(path.read_text())["name"] for path in tmp_path.glob("part-*.json")}
    seen = {named[dict(zip(PART_FIELDS, values, strict=True))["part"]] for _, values in rows[KIND_PART]}
    assert seen >= parts
    assert all(look["batch_bytes"] == 4 * (3 * 32 * 32 * 4 + 8) and look["loader"] == 0 for look in looks)
    assert all(look["width"] > 100 and look["height"] > 100 for look in looks)
    assert all(look["file_bytes"] > 1000 for look in looks) or style == "own"


@pytest.mark.parametrize("workers", [0, 1])
def test_a_failing_transform_ends_the_job_with_the_same_words(tmp_path: Path, images: Path, workers: int) -> None:
    alone = run("plain", workers, images / "train", 5)
    watched = run("plain", workers, images / "train", 5, folder=tmp_path)
    assert watched.returncode == alone.returncode == 1
    assert "this picture cannot be transformed" in alone.stderr
    assert (watched.stdout, watched.stderr) == (alone.stdout, alone.stderr)
