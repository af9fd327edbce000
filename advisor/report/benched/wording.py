"""Wording of a benchmark's cells, sweeps and comparisons, the same in every output."""

from __future__ import annotations

from rn50_advisor.advisor.model.documents.benchmark import Against, Benchmark, Cell, CellChange, Scaling, Sweep
from rn50_advisor.advisor.model.documents.comparison import Change, Estimate
from rn50_advisor.advisor.model.forecast.worker_curve import KNEE_WORDS
from rn50_advisor.advisor.model.wording import quantities as fmt

CELL_COLUMNS = ("setting", "images/s", "95 %", "step", "memory", "typical", "meaning")
SWEEP_COLUMNS = ("batch", "images/s", "of the best", "")
SCALING_COLUMNS = ("devices", "efficiency", "interval")
AGAINST_COLUMNS = ("setting", "before", "now", "speed", "interval", "")
CHANGE_WORDS: dict[Change, str] = {
    "improved": "faster",
    "regressed": "slower",
    "same": "no difference",
    "unknown": "unknown",
}


def title(benchmark: Benchmark) -> str:
    """`resnet50 at 224 px on 8 × NVIDIA A100-SXM4-40GB`."""
    machine, options = benchmark.machine, benchmark.options
    name = machine.names[0] if machine.names else f"CPU, {fmt.number(machine.cores)} cores"
    what = f"{machine.devices} × {name}" if machine.device == "cuda" else name
    return f"{options.model} at {options.image_size} px on {what}"


def circumstances(benchmark: Benchmark) -> tuple[tuple[str, str], ...]:
    machine, options = benchmark.machine, benchmark.options
    pairs = (
        ("host", machine.host),
        ("instance", f"{machine.instance} (by {machine.instance_source})" if machine.instance else ""),
        (
            "torch",
            f"{machine.torch}, torchvision {machine.torchvision}" + f", CUDA {machine.cuda}" * bool(machine.cuda),
        ),
        ("cores", fmt.number(machine.cores)),
        ("each measurement", fmt.duration(options.seconds)),
    )
    return tuple((name, value) for name, value in pairs if value)


def outcome(cell: Cell) -> str:
    """`2,310 images/s (2,290–2,325), Compute-bound`, or why there is none."""
    if cell.images_per_s is None:
        return f"{state(cell)}: {cell.why}"
    return f"{rate(cell.rate)} images/s ({interval(cell.images_per_s)})" + (
        f", {verdict(cell)}" if verdict(cell) else ""
    )


def state(cell: Cell) -> str:
    return {"oom": "does not fit in memory", "failed": "failed", "measured": "measured"}[cell.state]


def rate(images_per_s: float | None) -> str:
    """Four digits: cells differ by less than what three show."""
    return fmt.DASH if images_per_s is None else fmt.number(float(f"{images_per_s:.4g}"))


def interval(estimate: Estimate) -> str:
    low, high = rate(estimate.lo), rate(estimate.hi)
    return low if low == high else f"{low}–{high}"


def verdict(cell: Cell) -> str:
    """The rule and its title where there is one; of a sound cell, that compute-bound."""
    found = cell.verdict
    if found is None:
        return ""
    return f"{found.rule}: {found.title}" if found.rule else found.title


def reference(cell: Cell) -> str:
    """`1,450–2,470`, the typical band."""
    typical = next((r for r in cell.reference if r.tier == "typical"), None)
    return fmt.DASH if typical is None else interval(Estimate(typical.lo, typical.lo, typical.hi))


def references(benchmark: Benchmark) -> tuple[tuple[str, str, str, str], ...]:
    """(precisions and devices, tier, images/s, source) of each band that a cell has beside it, each once."""
    found: dict[tuple[int, str, str, str], dict[str, None]] = {}
    for cell in benchmark.cells:
        for r in cell.reference:
            key = (cell.setting.devices, r.tier, interval(Estimate(r.lo, r.lo, r.hi)), r.source)
            found.setdefault(key, {})[cell.setting.precision] = None
    return tuple(
        (f"{' and '.join(precisions)}, {fmt.counted(devices, 'device')}", tier, span, source)
        for (devices, tier, span, source), precisions in found.items()
    )


def cell_row(cell: Cell) -> list[str]:
    measured = cell.images_per_s
    return [
        cell.setting.words,
        rate(measured.value) if measured else fmt.DASH,
        interval(measured) if measured else fmt.DASH,
        fmt.duration(cell.step_s),
        fmt.bytes_(cell.memory_bytes),
        reference(cell),
        verdict(cell) if measured else f"{state(cell)}{': ' * bool(cell.why)}{cell.why}",
    ]


def sweep_title(sweep: Sweep) -> str:
    layout = "channels-last" if sweep.channels_last else "channels-first"
    devices = f"{sweep.devices} device{'s' if sweep.devices > 1 else ''}"
    return f"{sweep.precision}, {layout}, {devices}" + (", real data" * (sweep.data == "real"))


def sweep_rows(sweep: Sweep) -> list[list[str]]:
    best = max(sweep.images_per_s)
    rows = [
        [str(batch), rate(value), fmt.share(value / best), KNEE_WORDS if batch == sweep.knee else ""]
        for batch, value in zip(sweep.batches, sweep.images_per_s, strict=True)
    ]
    return rows + ([[str(sweep.oom_at), fmt.DASH, fmt.DASH, "does not fit"]] if sweep.oom_at else [])


def scaling_title(line: Scaling) -> str:
    layout = "channels-last" if line.channels_last else "channels-first"
    return f"{line.precision}, {layout}, batch {line.batch}" + (", real data" * (line.data == "real"))


def scaling_rows(line: Scaling) -> list[list[str]]:
    return [
        [str(devices), fmt.share(e.value), f"{fmt.share(e.lo)} to {fmt.share(e.hi)}"]
        for devices, e in zip(line.devices, line.efficiency, strict=True)
    ]


def against_row(benchmark: Benchmark, change: CellChange) -> list[str]:
    cell, speed = benchmark.cells[change.now], change.speed
    return [
        cell.setting.words,
        rate(cell.rate / speed.value),
        rate(cell.rate),
        f"{speed.value:.2f}×",
        f"{speed.lo:.2f}–{speed.hi:.2f}×",
        CHANGE_WORDS[change.change],
    ]


def against_summary(against: Against) -> str:
    """`against last.json: 3 slower, 9 no difference`."""
    counts = [
        (word, sum(1 for cell in against.cells if cell.change == change)) for change, word in CHANGE_WORDS.items()
    ]
    counted = ", ".join(f"{count} {word}" for word, count in counts if count)
    return f"against {against.name}: {counted or 'no setting in common'}"
