"""Public training scripts, unmodified: with the advisor they print the same losses, write the same files, and their steps are counted."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from cli_process import environment
from rn50_advisor.advisor.store.run_reader import Recording, read_recording
from rn50_advisor.advisor.verdict.diagnose import diagnose
from rn50_advisor.probes.rank.layout import FLAG_TAIL

pytestmark = pytest.mark.torch

SCRIPTS = Path(__file__).parents[2] / "jobs" / "public"
TORCHRUN = (str(Path(sys.executable).with_name("torchrun")), "--standalone", "--nproc-per-node=2")
TRAINING_IMAGES, TEST_IMAGES = 1000, 100
# Durations, rates and process ids: the only output in which two runs of one seeded script differ.
VARIES = re.compile(
    r"(Time|Data) +[\d.]+ +\( *[\d.]+\)|(ms/batch|time:) +[\d.]+|[\d.]+ ?ms\b|mfu [-\d.]+%|^\d+(?=\tTrain Epoch)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Published:
    script: str  # in SCRIPTS
    arguments: str = ""
    # Closed steps of each rank; None: no optimizer in its own process. Without a loader a step begins with an update and is closed by the
    # one after the next.
    steps: int | None = None
    launcher: tuple[str, ...] = (sys.executable,)
    seeded: bool = True  # two runs of it compute the same


PUBLISHED = {
    "mnist": Published("pytorch_examples/mnist/main.py", "--epochs 1 --no-accel --save-model", steps=16),
    "mnist_rnn": Published("pytorch_examples/mnist_rnn/main.py", "--epochs 1 --save-model", steps=16),
    "mnist_forward_forward": Published("pytorch_examples/mnist_forward_forward/main.py", "--no_accel --epochs 20", seeded=False),
    "mnist_hogwild": Published(
        "pytorch_examples/mnist_hogwild/main.py", "--epochs 1 --num-processes 1 --save_model", steps=16
    ),
    "vae": Published("pytorch_examples/vae/main.py", "--epochs 2 --no-accel --batch-size 100", steps=2 * 10),
    "dcgan": Published(
        "pytorch_examples/dcgan/main.py",
        "--dataset fake --niter 1 --manualSeed 1 --batchSize 64 --ngf 8 --ndf 8 --workers 2",
        steps=16,
    ),
    "siamese_network": Published(
        "pytorch_examples/siamese_network/main.py", "--epochs 1 --batch-size 100 --no-accel --save-model", steps=10, seeded=False
    ),
    "word_language_model": Published(
        "pytorch_examples/word_language_model/main.py",
        "--data ../data/text --epochs 2 --emsize 32 --nhid 32 --log-interval 20",
    ),
    "imagenet": Published(
        "pytorch_examples/imagenet/main.py",
        "../data/images -a squeezenet1_1 -b 8 -j 2 --epochs 1 --lr 0.001 --seed 1 --no-accel "
        "--world-size 2 --dist-url env:// --dist-backend gloo -p 1",
        steps=10,
        launcher=TORCHRUN,
        seeded=False,  # four runs without the advisor gave four checkpoints
    ),
    "rpc_rnn": Published("pytorch_examples/rpc_rnn/main.py", seeded=False),
    "nanogpt": Published(
        "nanogpt/train.py",
        "--device=cpu --compile=False --dataset={data}/tokens --max_iters=40 --eval_interval=20 --eval_iters=5 --block_size=32 "
        "--batch_size=4 --n_layer=2 --n_head=2 --n_embd=32 --gradient_accumulation_steps=2",
        steps=39,
    ),
    "mingpt": Published(
        "mingpt/adder.py",
        "--data.ndigit=1 --trainer.max_iters=60 --trainer.num_workers=0 --model.model_type=gpt-nano",
        steps=59,
    ),
}  # fmt: skip


def write_digits(folder: Path, kind: str, count: int, rng: np.random.Generator) -> None:
    """Writes `count` images of noise and their labels where and how torchvision keeps MNIST."""
    images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
    labels = rng.integers(0, 10, count, dtype=np.uint8)
    (folder / f"{kind}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 2051, count, 28, 28) + images.tobytes())
    (folder / f"{kind}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 2049, count) + labels.tobytes())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with what the scripts train on, random and small."""
    image = pytest.importorskip("PIL.Image")
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(1)
    (folder / "MNIST" / "raw").mkdir(parents=True)
    write_digits(folder / "MNIST" / "raw", "train", TRAINING_IMAGES, rng)
    write_digits(folder / "MNIST" / "raw", "t10k", TEST_IMAGES, rng)
    for part, count in (("train", 80), ("val", 20)):
        for kind in ("cat", "dog"):
            (folder / "images" / part / kind).mkdir(parents=True)
            for index in range(count):
                pixels = rng.integers(0, 256, (96, 96, 3), dtype=np.uint8)
                image.fromarray(pixels).save(folder / "images" / part / kind / f"{index}.jpg")
    (folder / "text").mkdir()
    words = [f"w{index}" for index in range(200)]
    for part, lines in (("train", 1500), ("valid", 100), ("test", 100)):
        text = "\n".join(" ".join(rng.choice(words, 20)) for _ in range(lines))
        (folder / "text" / f"{part}.txt").write_text(text + "\n")
    (folder / "tokens").mkdir()
    for part in ("train", "val"):
        rng.integers(0, 50257, 20_000, dtype=np.uint16).tofile(folder / "tokens" / f"{part}.bin")
    return folder


def trained(published: Published, folder: Path, data: Path, *before: str) -> subprocess.CompletedProcess[str]:
    """Runs a copy of the script in `folder`, from which it finds `../data` and `data`; `before`: what launches the whole job."""
    script = SCRIPTS / published.script
    shutil.copytree(script.parent, folder)
    for at in (folder / "data", folder.parent / "data"):
        if not at.exists():
            at.symlink_to(data)
    if "save_image" in script.read_text():
        (folder / "results").mkdir()
    job = [*published.launcher, script.name, *published.arguments.format(data=data).split()]
    return subprocess.run(
        [*before, *job],
        cwd=folder,
        env=environment(OMP_NUM_THREADS="1"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def files(folder: Path) -> dict[str, bytes]:
    """Returns what a job's folder holds, without Python's caches and the data."""
    kept = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


def steps_of(recording: Recording) -> list[int]:
    """Returns the closed steps of each rank."""
    return [int(((rows["flags"] & FLAG_TAIL) == 0).sum()) for _, rows in sorted(recording.steps.items())]


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_public_script_trains_the_same_and_its_steps_are_seen(name: str, tmp_path: Path, data: Path) -> None:
    published = PUBLISHED[name]
    advisor = (
        str(Path(sys.executable).with_name("rn50-advisor")),
        "run",
        "--no-tui",
        "--run-dir",
        str(tmp_path / "runs"),
    )
    alone = trained(published, tmp_path / "alone", data)
    watched = trained(published, tmp_path / "watched", data, *advisor, "--")
    assert alone.returncode == 0, alone.stderr
    assert watched.returncode == 0, watched.stderr
    if published.seeded:
        lines = [
            sorted(VARIES.sub("", run.stdout).splitlines()) for run in (alone, watched)
        ]  # ranks print side by side
        assert lines[1] == lines[0]
        assert files(tmp_path / "watched") == files(tmp_path / "alone")
    [run_file] = (tmp_path / "runs").glob("*/run.sqlite")
    recording = read_recording(run_file.parent)
    ranks = 2 if published.launcher == TORCHRUN else 1
    if published.steps is not None:
        assert steps_of(recording) == [published.steps] * ranks
    report = diagnose(recording)
    assert report.verdict.state != "failed"
