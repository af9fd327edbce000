"""The pipelines: the job, the workers of the watched run, and the workers of the second run if no other number is advised."""

from __future__ import annotations

from dataclasses import dataclass

from samples.faults.fixtures import Images, SlowDisk
from samples.faults.scenario import Fixture, Job

ONE_THREAD = {"OMP_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    name: str
    what: str
    job: Job  # without its number of workers
    workers: int  # in the first, watched run
    otherwise: int  # in the second run, if the first is already at the knee
    fixtures: tuple[Fixture, ...] = ()

    def with_workers(self, workers: int) -> Job:
        job = self.job
        return Job(job.script, (*job.arguments, f"--workers={workers}"), ranks=job.ranks, environment=job.environment)


def fed(*arguments: str, ranks: int = 0) -> Job:
    return Job("pipelines/fed.py", arguments, ranks=ranks)


def jpegs(*arguments: str) -> Job:
    return Job("train.py", ("--data={images}", "--no-eval", *arguments), environment=ONE_THREAD)


PIPELINES = (
    Pipeline(
        name="jpegs-before-a-larger-net",
        what="JPEGs of 500x375, ResNet18 on 64 pixels",
        job=jpegs("--model=resnet18", "--image-size=64", "--batch-size=16", "--steps=70"),
        workers=0,
        otherwise=1,
        fixtures=(Images(per_class=32),),
    ),
    Pipeline(
        name="large-jpegs-before-a-small-net",
        what="JPEGs of 1000x750, SqueezeNet on 48 pixels",
        job=jpegs("--model=squeezenet1_1", "--image-size=48", "--batch-size=16", "--steps=90"),
        workers=1,
        otherwise=2,
        fixtures=(Images(per_class=32, scale=2.0),),
    ),
    Pipeline(
        name="augmentation-in-memory",
        what="filters over arrays of 64x64 in memory",
        job=fed("--side=64", "--passes=12", "--width=40", "--steps=160"),
        workers=0,
        otherwise=1,
    ),
    Pipeline(
        name="samples-from-afar",
        what="each sample waits 4 ms for an answer",
        job=fed("--wait=4", "--steps=200"),
        workers=1,
        otherwise=4,
    ),
    Pipeline(
        name="samples-from-afar-in-process",
        what="each sample waits 3 ms, loaded in the training process",
        job=fed("--wait=3", "--width=32", "--steps=120"),
        workers=0,
        otherwise=2,
    ),
    Pipeline(
        name="samples-from-afar-two-ranks",
        what="each sample waits 5 ms, two ranks",
        job=fed("--wait=5", "--steps=150", ranks=2),
        workers=2,
        otherwise=4,
    ),
    Pipeline(
        name="late-ones-among-them",
        what="one sample in 100 waits 150 ms",
        job=fed("--wait=1", "--late=150", "--late-every=100", "--steps=240"),
        workers=1,
        otherwise=4,
    ),
    Pipeline(
        name="large-batches",
        what="batches of 19 MB, made in a moment and handed over",
        job=fed("--side=224", "--batch=32", "--wait=1", "--width=24", "--steps=120"),
        workers=0,
        otherwise=1,
    ),
    Pipeline(
        name="throttled-disk",
        what="files of 60 KB from a disk of 12 MB/s",
        job=Job("faults/jobs/input/loading.py", ("--files={disk}", "--width=24", "--steps=90", "--persistent")),
        workers=1,
        otherwise=2,
        fixtures=(SlowDisk(12_000_000, files=1700),),
    ),
    Pipeline(
        name="more-workers-than-it-takes",
        what="filters over arrays in memory, six workers",
        job=fed("--side=64", "--passes=12", "--width=40", "--steps=160"),
        workers=6,
        otherwise=2,
    ),
)
