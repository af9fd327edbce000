"""The sample training script on real processes: reproducible, the same under every launcher, resumable."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

SAMPLES = Path(__file__).resolve().parents[3] / "samples"
TRAIN = str(SAMPLES / "train.py")
PYTHON = (sys.executable,)
TORCHRUN_TWO = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
SMALL = ("--device", "cpu", "--model", "resnet18", "--image-size", "32", "--batch-size", "4", "--workers", "0")
SYNTHETIC = (*SMALL, "--synthetic", "--synthetic-images", "32", "--print-every", "1")


def train(*command: str, expect: int = 0) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, check=False)
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout + done.stderr if expect else done.stdout


def losses(output: str) -> list[str]:
    return re.findall(r"loss (\S+)", output)


def test_a_seeded_run_is_the_same_twice_and_another_with_another_seed(images: Path) -> None:
    command = (*PYTHON, TRAIN, *SMALL, "--data", str(images), "--steps", "4", "--print-every", "1")
    first = train(*command, "--seed", "3")
    assert len(losses(first)) == 4
    assert re.search(r"validation  top1 \d+\.\d\d %  top5 \d+\.\d\d %", first)
    assert losses(train(*command, "--seed", "3")) == losses(first)
    assert losses(train(*command, "--seed", "4")) != losses(first)


def test_two_ranks_train_the_same_under_torchrun_and_under_spawn(images: Path) -> None:
    job = (*SMALL, "--data", str(images), "--steps", "3", "--print-every", "1")
    under_torchrun = train(*TORCHRUN_TWO, TRAIN, *job)
    assert "resnet18 on 2 x cpu" in under_torchrun
    assert len(losses(under_torchrun)) == 3
    under_spawn = train(*PYTHON, str(SAMPLES / "train_spawn.py"), "--processes", "2", "--", *job)
    assert losses(under_spawn) == losses(under_torchrun)


def test_a_resumed_run_ends_where_an_uninterrupted_one_ends(images: Path, tmp_path: Path) -> None:
    # 16 images and 4 a step: epochs of 4 steps; the schedule must not depend on where the run was cut
    job = (
        *PYTHON,
        TRAIN,
        *SMALL,
        "--data",
        str(images),
        "--print-every",
        "1",
        "--warmup-epochs",
        "0",
        "--schedule",
        "step",
    )
    whole = train(*job, "--steps", "8", "--output", str(tmp_path / "whole"))
    train(*job, "--steps", "4", "--output", str(tmp_path / "cut"))
    resumed = train(
        *job, "--steps", "8", "--output", str(tmp_path / "cut"), "--resume", str(tmp_path / "cut" / "last.pt")
    )
    assert "at step 4" in resumed
    assert losses(resumed) == losses(whole)[4:]
    assert not list(tmp_path.rglob("*.part"))


def test_accumulated_micro_batches_make_fewer_steps_of_the_same_images() -> None:
    output = train(
        *TORCHRUN_TWO, TRAIN, *SYNTHETIC, "--accumulate", "2", "--workers", "1", "--epochs", "1", "--no-eval"
    )
    # 32 images, 2 ranks, 2 micro-batches of 4
    assert "16 images a step, 2 steps" in output
    assert len(losses(output)) == 2
    assert "validation" not in output


@pytest.mark.parametrize(
    "flags",
    [
        ("--amp", "bf16", "--channels-last", "--clip-norm", "1", "--no-decay-norm-bias"),
        # on CPU fp16 convolutions are emulated; this size keeps that short
        ("--amp", "fp16", "--deterministic", "--model", "mobilenet_v3_small"),
    ],
    ids=["bf16", "fp16"],
)
def test_mixed_precision_trains(flags: tuple[str, ...]) -> None:
    output = train(*PYTHON, TRAIN, *SYNTHETIC, "--steps", "2", "--no-eval", *flags)
    assert all(0 < float(loss) < 20 for loss in losses(output))
    assert len(losses(output)) == 2


REFUSED = (
    (("--data", "no/such/folder"), 2, "--data needs a folder"),
    (("--synthetic", "--synthetic-images", "3"), 1, "fewer images than one step needs"),
    (("--synthetic", "--sync-bn"), 1, "--sync-bn needs GPUs"),
    (("--synthetic", "--batch-size", "0"), 2, "must be 1 or more"),
    (("--synthetic", "--model", "resnet51"), 2, "invalid choice"),
)
ONE_AFTER_THE_OTHER = """
import runpy, sys, traceback
file, *lines = sys.argv[1:]
for line in lines:
    sys.argv = [file, *line.split()]
    try:
        runpy.run_path(file, run_name="__main__")
    except SystemExit as refusal:
        if isinstance(refusal.code, str):
            print(refusal.code, file=sys.stderr)
        print("exit", 1 if isinstance(refusal.code, str) else refusal.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
"""


def test_what_makes_no_sense_is_refused_in_one_line() -> None:
    lines = [" ".join((*SMALL, *flags)) for flags, _, _ in REFUSED]
    command = [sys.executable, "-c", ONE_AFTER_THE_OTHER, TRAIN, *lines]
    said = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stderr
    answers = re.split(r"^(exit \d+)$", said, flags=re.MULTILINE)
    assert answers[1::2] == [f"exit {code}" for _, code, _ in REFUSED], said
    assert all(says in answer for (_, _, says), answer in zip(REFUSED, answers[::2], strict=False))
    assert "Traceback" not in said
