"""`bench`: trains a known model in several settings and compares the speeds with published ones and with an earlier result."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rn50_advisor.advisor.commands import common_options, result_output
from rn50_advisor.advisor.model.errors import AdvisorError, NotARun, Regressed, UsageError
from rn50_advisor.advisor.report import FORMATS

if TYPE_CHECKING:
    from rn50_advisor.advisor.bench.bench_machine import TorchDevices
    from rn50_advisor.advisor.bench.bench_plan import BenchPlan, Measure
    from rn50_advisor.advisor.model.documents.benchmark import Benchmark, Cell, Options, Setting

QUICK_S, USUAL_S = 3.0, 10.0
_NUMBERS = re.compile(r"\d+(,\d+)*")


def _numbers(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Parses `1,2,4`; returns the numbers sorted, without duplicates."""
    if value is None:
        return None
    found = tuple(sorted({int(part) for part in value.split(",")})) if _NUMBERS.fullmatch(value) else (0,)
    if found[0] < 1:
        raise click.BadParameter(f"{value!r} is not a list of whole numbers such as 1,2,4", ctx, param)
    return found


@click.command
@click.option("--model", default="resnet50", show_default=True, help="Any classifier of torchvision.")
@click.option("--image-size", type=click.IntRange(16, 1024), default=224, show_default=True, metavar="PIXELS")
@click.option("--classes", type=click.IntRange(2), default=1000, show_default=True)
@click.option("--device", "wanted", type=click.Choice(("auto", "cpu", "cuda")), default="auto", show_default=True)
@click.option(
    "--precisions", metavar="P,P,…", help="Of fp32, tf32, bf16, fp16. Default: those that the device has units for."
)
@click.option(
    "--layout", type=click.Choice(("both", "last", "first")), help="Channels-last or channels-first. Default: both."
)
@click.option("--batch", type=click.IntRange(1), help="Batch per device where precisions and layouts are compared.")
@click.option(
    "--batches", callback=_numbers, metavar="N,N,…", help="Batches to sweep, until one does not fit in memory."
)
@click.option("--no-sweep", is_flag=True, help="No sweep over batches.")
@click.option(
    "--devices",
    callback=_numbers,
    metavar="N,N,…",
    help="Numbers of devices (on CPUs: of ranks). Default: 1, 2, 4, … and all.",
)
@click.option(
    "--data", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Images, one folder per class."
)
@click.option("--workers", type=click.IntRange(0), help="Loader workers per device with --data. Default: its cores.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.1),
    help=f"Length of each measurement. Default: {USUAL_S:g}, quick {QUICK_S:g}.",
)
@click.option("--quick", is_flag=True, help="Fewer settings, shorter measurements.")
@click.option(
    "--all-combinations", is_flag=True, help="Every combination, not one dimension at a time around the fastest."
)
@click.option(
    "--against", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="An earlier result (JSON)."
)
@click.option(
    "--max-regression",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="With --against: end with exit code 3 when a setting is significantly slower, by more than this.",
)
@click.option("--metadata", is_flag=True, help="Ask the cloud provider's metadata service for the instance type.")
@click.option("--python", "python", help="The interpreter to train with. Default: the one that runs the advisor.")
@click.option("--format", "format_", type=click.Choice(FORMATS), default="text", show_default=True, help="On stdout.")
@click.option(
    "-o",
    "--output",
    "outputs",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    help="Write to this file too, in the format of its name; may be given several times.",
)
@common_options.run_dir
@common_options.config
def bench(
    *,
    model: str,
    image_size: int,
    classes: int,
    wanted: str,
    precisions: str | None,
    layout: str | None,
    batch: int | None,
    batches: tuple[int, ...] | None,
    no_sweep: bool,
    devices: tuple[int, ...] | None,
    data: Path | None,
    workers: int | None,
    seconds: float | None,
    quick: bool,
    all_combinations: bool,
    against: Path | None,
    max_regression: float | None,
    metadata: bool,
    python: str | None,
    format_: str,
    outputs: tuple[Path, ...],
    run_dir: Path,
    config: Path | None,
) -> None:
    """Train ResNet50 (or another model) setting by setting: precision, layout, batch, devices, real data.

    Each setting is a job of its own under the advisor, so that each has a speed with an interval and a verdict. Results stand beside
    what others have measured on this GPU, and beside an earlier result. Recordings are kept in a folder below --run-dir.

    \b
    rn50-advisor bench --quick
    rn50-advisor bench --data IMAGES -o bench.json -o bench.html
    rn50-advisor bench --model vgg19 --image-size 32 --classes 10 --batches 128,256,512,1024,2048
    rn50-advisor bench --against last-month.json --max-regression 5
    """
    import sys

    from rn50_advisor.advisor.bench import bench_machine as machines
    from rn50_advisor.advisor.bench.bench_launch import Bench
    from rn50_advisor.advisor.config_file import load_config
    from rn50_advisor.advisor.model.documents.benchmark import Options
    from rn50_advisor.advisor.report import format_of
    from rn50_advisor.advisor.report.benched import document
    from rn50_advisor.advisor.store.run_folders import new_run_folder

    for output in outputs:
        format_of(str(output))  # fails now, not after an hour
    result_output.check_writable(*outputs)
    earlier = _earlier(against) if against else None
    settings = load_config(config)
    folder = new_run_folder(run_dir, "bench", time.time()).resolve()
    asked = Options(model, image_size, classes, seconds or (QUICK_S if quick else USUAL_S), 0)
    job = Bench(folder, asked, "cpu", python or sys.executable, config=settings)
    found = machines.parse_devices(job.probe(), wanted)
    if model not in found.models:
        raise UsageError(f"torchvision has no model {model!r}", f"it has {', '.join(found.models[:8])}, …")
    plan = _plan(
        found,
        image_size=image_size,
        precisions=precisions,
        layout=layout,
        batch=batch,
        batches=() if no_sweep else batches,
        devices=devices,
        real=data is not None,
        quick=quick,
        every=all_combinations,
    )
    machine = machines.machine_of(found, devices=len(found.names) or max(plan.devices), metadata=metadata)
    if data is not None:
        each = workers if workers is not None else machines.workers_each(machine, plan.devices)
        job = replace(job, data=data.resolve())
        asked = replace(asked, workers=each, data=str(job.data))
    job = replace(job, options=asked, device=found.device, cores=machine.cores)
    try:
        cells = _measure_all(plan, job.measure)
    except _Interrupted as cut:
        result_output.write(_concluded(machine, asked, cut.cells), folder / "bench.json", "json", document)
        click.echo(f"what was measured so far: {folder / 'bench.json'}", err=True)
        raise KeyboardInterrupt from None
    made = _concluded(machine, asked, cells)
    if earlier is not None and against is not None:
        from rn50_advisor.advisor.bench.conclude import against as put_beside

        made = put_beside(made, earlier, against.name)
    for output in (folder / "bench.json", *outputs):
        result_output.write(made, output, format_of(str(output)), document)
    result_output.show(made, format_, None, document)
    _judge(made, max_regression)


def _earlier(file: Path) -> Benchmark:
    """Reads an earlier result. Raises NotARun for any other file."""
    from rn50_advisor.advisor.model.documents.benchmark import parse_benchmark

    try:
        return parse_benchmark(file.read_text(encoding="utf-8", errors="replace"))
    except NotARun as error:
        raise NotARun(f"{file}: {error.message}", error.hint) from error


class _Interrupted(Exception):
    """Ctrl-C; carries the cells measured so far."""

    def __init__(self, cells: list[Cell]) -> None:
        super().__init__()
        self.cells = cells


def _plan(
    found: TorchDevices,
    *,
    image_size: int,
    precisions: str | None,
    layout: str | None,
    batch: int | None,
    batches: tuple[int, ...] | None,
    devices: tuple[int, ...] | None,
    real: bool,
    quick: bool,
    every: bool,
) -> BenchPlan:
    from rn50_advisor.advisor.bench import bench_machine as machines
    from rn50_advisor.advisor.bench.bench_plan import BenchPlan

    possible = machines.possible_precisions(found)
    chosen = tuple(dict.fromkeys(precisions.split(","))) if precisions else None
    if chosen and (unknown := [name for name in chosen if name not in possible]):
        raise UsageError(f"{unknown[0]} is not for this device", f"supported: {', '.join(possible)}")
    count = len(found.names) or 1
    if devices and found.device == "cuda" and devices[-1] > count:
        raise UsageError(f"{devices[-1]} devices were requested, but there are {count}")
    layouts = {"both": (True, False), "last": (True,), "first": (False,), None: (True,) if quick else (True, False)}
    usual = batch or machines.usual_batch(found.device, image_size)
    kept = tuple(p for p in possible if p in (chosen or machines.precisions_of(found)))
    if quick and chosen is None:
        kept = tuple(dict.fromkeys(("tf32" if "tf32" in kept else "fp32", kept[min(2, len(kept) - 1)])))
    return BenchPlan(
        precisions=kept,
        layouts=layouts[layout],
        batch=usual,
        batches=machines.usual_batches(found.device, usual, quick=quick) if batches is None else batches,
        devices=devices or machines.usual_devices(count, quick=quick),
        data=("synthetic", "real") if real else ("synthetic",),
        every_combination=every,
    )


def _measure_all(plan: BenchPlan, measure: Measure) -> tuple[Cell, ...]:
    """Measures all cells and prints a line to stderr for each. Raises _Interrupted."""
    from rn50_advisor.advisor.bench.bench_plan import carry_out
    from rn50_advisor.advisor.report.benched.wording import outcome

    done: list[Cell] = []

    def announced(setting: Setting) -> Cell:
        begun = time.monotonic()
        click.echo(f"[{len(done) + 1}] {setting.words} … ", nl=False, err=True)
        cell = measure(setting)
        done.append(cell)
        click.echo(f"{outcome(cell)} ({time.monotonic() - begun:.0f} s)", err=True)
        return cell

    try:
        return carry_out(plan, announced)
    except KeyboardInterrupt:
        click.echo(err=True)
        raise _Interrupted(done) from None


def _concluded(machine: Any, asked: Options, cells: Any) -> Benchmark:
    from rn50_advisor.advisor.bench.conclude import conclude

    return conclude(machine, asked, cells, made_unix_s=time.time())


def _judge(made: Benchmark, max_regression: float | None) -> None:
    """Raises AdvisorError if nothing was measured, Regressed if a setting is too slow."""
    from rn50_advisor.advisor.bench.conclude import slower_than

    if made.best is None:
        why = next((cell.why for cell in made.cells if cell.why), "no setting was tried")
        raise AdvisorError(f"nothing could be measured: {why}")
    if max_regression is not None and (slower := slower_than(made, max_regression / 100)):
        cell = made.cells[slower[0].now]
        raise Regressed(
            f"{len(slower)} settings are slower by more than {max_regression:g} %: "
            f"{cell.setting.words} is {slower[0].speed.value:.2f}× of before"
        )
