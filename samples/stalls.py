"""Measures data stalls of ResNet50 as DS-Analyzer does: storage, preparation and compute each alone, and the limit they predict.

    python -m samples.stalls [--only GLOB] [--markdown FILE]

Each setup runs in four ways, and again in reverse order: the files alone from a cold disk (F), files and transforms alone from the page
cache (P), training on random tensors (G), and the unchanged training under the advisor. The rate of that last run is compared with the
prediction min(F, P, G), and with the limit that the advisor reports from that run alone. Method: Mohan et al., "Analyzing and Mitigating
Data Stalls in DNN Training", VLDB 2021.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import click

from samples.faults.fixtures import Images, SlowDisk, control_group, entering, forget, loop_disk
from samples.faults.observe import JobWentWrong, observe
from samples.faults.results import advisor_state, grid, machine
from samples.faults.runner import STEADY_HEAP, Bench, Interrupted, held, open_bench
from samples.faults.scenario import CannotBeMade, Conditions, Fixture, Job

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".faults"
ENVIRONMENT = {"OMP_NUM_THREADS": "1", **STEADY_HEAP}
LIMIT_S = 240.0
HEAD = ("setup", "F", "P", "P a core", "G", "min", "measured", "off", "stalled on", "the advisor", "its capacities")


@dataclass(frozen=True, slots=True)
class WarmImages:
    """Provides `{images}`: pictures in the page cache."""

    images: Images

    @contextlib.contextmanager
    def hold(self, folder: Path) -> Iterator[Conditions]:
        with self.images.hold(folder) as conditions:
            for file in Path(conditions.values["images"]).rglob("*.jpg"):
                file.read_bytes()
            yield conditions


@dataclass(frozen=True, slots=True)
class ColdImages:
    """Provides `{images}`: pictures on a separate disk, not in the page cache. The job reads at most `bytes_per_s` (0: no limit)."""

    bytes_per_s: int
    images: Images

    @contextlib.contextmanager
    def hold(self, folder: Path) -> Iterator[Conditions]:
        with contextlib.ExitStack() as stack:
            made = Path(stack.enter_context(self.images.hold(folder)).values["images"])
            size = sum(file.stat().st_size + 8192 for file in made.rglob("*.jpg"))
            device, mounted = stack.enter_context(loop_disk(folder, "disk", size * 5 // 4 + (32 << 20)))
            group = stack.enter_context(control_group("io"))
            SlowDisk(self.bytes_per_s, 0).throttle(group, device)
            shutil.copytree(made, mounted / "data")
            forget(device, mounted)
            yield Conditions(prefix=entering(group), values={"images": str(mounted / "data")})


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    name: str
    images: Images
    disk: int = 0  # bytes/s; 0: the page cache
    arguments: tuple[str, ...]
    steps: int
    workers: int = 1

    def command_line(self, *more: str) -> tuple[str, ...]:
        arguments = ("--data={images}", "--model=resnet50", "--no-eval", *self.arguments)
        return (*arguments, f"--steps={self.steps}", f"--workers={self.workers}", *more)


SMALL, LARGE = Images(per_class=40), Images(per_class=16, scale=3.0)
# camera images: decoding one costs twice the net's compute for a small crop
HUGE = Images(per_class=16, scale=6.0, classes=4)
SETUPS = (
    Setup(name="500x375, in memory", images=SMALL, arguments=("--image-size=64", "--batch-size=16"), steps=60),
    Setup(
        name="500x375, disk of 4 MB/s",
        images=SMALL,
        disk=4_000_000,
        arguments=("--image-size=32", "--batch-size=8"),
        steps=45,
        workers=3,
    ),
    Setup(
        name="500x375, disk of 2 MB/s",
        images=SMALL,
        disk=2_000_000,
        arguments=("--image-size=32", "--batch-size=8"),
        steps=45,
        workers=3,
    ),
    Setup(name="1500x1125, in memory", images=LARGE, arguments=("--image-size=32", "--batch-size=8"), steps=60),
    Setup(name="1500x1125, in memory, 224 pixels", images=LARGE, arguments=("--batch-size=4",), steps=40),
    Setup(name="3000x2250, in memory", images=HUGE, arguments=("--image-size=32", "--batch-size=8"), steps=40),
)


@dataclass(frozen=True, slots=True)
class Row:
    """Images/s. `files` is None where no disk is read."""

    setup: str
    files: float | None
    preparation: float
    compute: float
    measured: float
    verdict: str
    capacities: Mapping[str, float]  # as the advisor estimates them
    workers: int  # each on its own core, as far as there are cores

    @property
    def preparation_of_core(self) -> float:
        return self.preparation / min(self.workers, len(os.sched_getaffinity(0)))

    @property
    def predicted(self) -> float:
        return min(self.preparation, self.compute, *(() if self.files is None else (self.files,)))

    @property
    def off(self) -> float:
        return self.predicted / self.measured - 1

    @property
    def stalled_on(self) -> str:
        known = {"storage": self.files, "preparation": self.preparation, "nothing: compute": self.compute}
        return min((name for name in known if known[name] is not None), key=lambda name: known[name] or 0.0)


def measure(setup: Setup, bench: Bench) -> Row:
    """Runs each part twice and returns the mean rates. Raises CannotBeMade, JobWentWrong."""
    memory = (WarmImages(setup.images),)
    disk = (ColdImages(setup.disk, setup.images),) if setup.disk else memory
    files, preparation, compute, measured, reports = list[float](), list[float](), list[float](), list[float](), []

    def whole() -> None:
        reports.append(trained(setup, disk, bench))
        measured.append(float(reports[-1]["throughput"]["samples_per_s"]))

    parts: list[Callable[[], None]] = [
        lambda: preparation.append(loaded(setup, memory, bench)),
        lambda: compute.append(float(trained(setup, memory, bench, "--synthetic")["throughput"]["samples_per_s"])),
        whole,
    ]
    if setup.disk:
        parts.insert(0, lambda: files.append(loaded(setup, disk, bench, "--files-only")))
    for part in (*parts, *reversed(parts)):  # both orders, so that machine drift affects all parts alike
        part()
    verdicts = [report["verdict"]["rule"] or report["verdict"]["state"] for report in reports]
    stages = [{c["stage"]: c["samples_per_s"] for c in report["capacities"]} for report in reports]
    return Row(
        setup.name,
        fmean(files) if files else None,
        *(fmean(rates) for rates in (preparation, compute, measured)),
        " / ".join(dict.fromkeys(verdicts)),
        {stage: fmean([rates[stage] for rates in stages]) for stage in stages[0] if all(r.get(stage) for r in stages)},
        setup.workers,
    )


def loaded(setup: Setup, fixtures: Sequence[Fixture], bench: Bench, *more: str) -> float:
    with under(fixtures, bench) as (conditions, _):
        words = [word.format_map(conditions.values) for word in setup.command_line(*more)]
        command = [*conditions.prefix, sys.executable, "-m", "samples.pipelines.loads", *words]
        done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        raise JobWentWrong(done.stderr[-2000:])
    return float(done.stdout)


def trained(setup: Setup, fixtures: Sequence[Fixture], bench: Bench, *more: str) -> Mapping[str, Any]:
    job = Job("train.py", setup.command_line(*more), environment=ENVIRONMENT)
    with under(fixtures, bench) as (conditions, folder):
        return observe(job, conditions, folder / "job").report


@contextlib.contextmanager
def under(fixtures: Sequence[Fixture], bench: Bench) -> Iterator[tuple[Conditions, Path]]:
    with (
        tempfile.TemporaryDirectory(dir=bench.folder, ignore_cleanup_errors=True) as name,
        held(tuple(fixtures), Path(name)) as conditions,
    ):
        yield conditions, Path(name)


def cells(row: Row) -> tuple[str, ...]:
    known = ", ".join(f"{stage} {rate:.0f}" for stage, rate in row.capacities.items())
    rates = (row.files, row.preparation, row.preparation_of_core, row.compute, row.predicted, row.measured)
    return (
        row.setup,
        *("" if rate is None else f"{rate:.0f}" for rate in rates),
        f"{row.off:+.0%}",
        row.stalled_on,
        row.verdict,
        known,
    )


def markdown(rows: Sequence[Row]) -> str:
    known, off = machine(), [abs(row.off) for row in rows]
    system = f"Python {known['python']}, torch {known['torch']}, Linux {known['kernel']}"
    lines = [
        "# Where ResNet50 stalls, part by part and as a whole",
        "",
        "Made by `python -m samples.stalls --markdown`; run it again instead of editing this.",
        "",
        f"{known['date']}: {known['cores']} cores, {known['memory_gib']} GiB, {system}. Advisor: {advisor_state()}.",
        "",
        f"{len(rows)} setups of ResNet50 on one core, images/s, means of two runs.",
        "The least of F (files off the disk), P (files and transforms) and G",
        f"(training on random tensors) is off from the training as a whole by {median(off):.0%} in the median,",
        f"{max(off):.0%} at most (DS-Analyzer's own: 4 %). The last two columns are the advisor's, which has seen",
        "only the training as a whole. Decoding a picture of 500x375 and all transforms to 224 pixels with Pillow was measured",
        "elsewhere at 437 images/s a core.",
        "",
        grid(HEAD, [cells(row) for row in rows]),
    ]
    return "\n".join(lines) + "\n"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", default="*", metavar="GLOB", help="These setups.")
@click.option("--markdown", "markdown_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=FOLDER, help="Where jobs run.")
def main(*, only: str, markdown_file: Path | None, folder: Path) -> None:
    """Hold storage, preparation and compute, each alone, against ResNet50's training."""
    rows = []
    try:
        with open_bench(folder) as bench:
            for setup in SETUPS:
                if not fnmatch.fnmatch(setup.name, only):
                    continue
                try:
                    rows.append(measure(setup, bench))
                except (CannotBeMade, JobWentWrong) as reason:
                    click.echo(f"{setup.name}: not measured: {reason}")
                    continue
                click.echo(" · ".join(cells(rows[-1])))
    except Interrupted as stopped:
        click.echo(f"Stopped by {stopped}. Nothing is left running.")
        sys.exit(128 + stopped.signum)
    if markdown_file and rows:
        markdown_file.write_text(markdown(rows))


if __name__ == "__main__":
    main()
