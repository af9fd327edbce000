"""The present moment in a few lines: what each rank does, the host, the GPUs; the views behind it say more."""

from __future__ import annotations

from collections import Counter

from textual.content import Content

from rn50_advisor.advisor.model.report import GpuStrip, HostStrip, RankStrip, Report
from rn50_advisor.advisor.model.wording.quantities import DASH, bytes_, duration, number, percent
from rn50_advisor.advisor.model.wording.rank_words import place
from rn50_advisor.advisor.tui.panels.gpu_panel import fraction
from rn50_advisor.advisor.tui.panels.host_panel import ALARM_PCT, cores, mb_per_s
from rn50_advisor.advisor.tui.panels.panel import Panel
from rn50_advisor.advisor.tui.styles.drawing import fit, line, meter, muted
from rn50_advisor.advisor.tui.styles.phase_styles import ENDED

_MOST_RANKS, _MOST_GPUS = 4, 16


def flow(cells: list[Content], cell_width: int, width: int) -> list[Content]:
    """Cells of one width side by side, read along the lines."""
    columns = max(width // cell_width, 1)
    return [line(*cells[at : at + columns]) for at in range(0, len(cells), columns)]


def rank_cell(strip: RankStrip, width: int) -> Content:
    if not strip.alive:
        mark, style = ("✔", "$text-success") if strip.phase == ENDED else ("✖", "$text-error")
        return line((fit(f"{mark} rank {strip.rank} {strip.phase}", width), style))
    where = fit(place(strip.phase), width - 20)
    return line(
        ("▶ ", "$text-success"),
        fit(f"rank {strip.rank}", 8),
        where,
        (fit(duration(strip.phase_for_s), 8, True), "bold"),
        "  ",
    )


def rank_summary(ranks: tuple[RankStrip, ...], width: int) -> list[Content]:
    """Too many to name: how many are where, and who has been in one place the longest."""
    places = Counter(place(r.phase) if r.alive else "ended" for r in ranks)
    counts = ", ".join(f"{n} {where}" for where, n in sorted(places.items(), key=lambda item: (-item[1], item[0])))
    living = [r for r in ranks if r.alive]
    lines = [line(("▶ ", "$text-success"), fit(f"ranks: {counts}", width - 2))]
    if living:
        longest = max(living, key=lambda r: r.phase_for_s)
        text = f"  longest: rank {longest.rank}, {place(longest.phase)} for {duration(longest.phase_for_s)}"
        lines.append(line(muted(fit(text, width))))
    return lines


def host_cells(host: HostStrip, width: int) -> list[Content]:
    def cell(label: str, text: str, fill: float | None = None, alarm: bool = False) -> Content:
        bar = meter(fill, 6, "$error" if alarm else "$primary") if fill is not None else Content(" " * 6)
        style = "bold $text-error" if alarm else ""
        shown = f"! {text}" if alarm else text
        return line(muted(fit(label, 10)), (fit(shown, width - 19), style), " ", bar, "  ")

    steal, throttled = host.steal_pct, host.throttled_pct
    memory = fraction(host.mem_used_bytes, host.mem_total_bytes)
    shm = fraction(host.shm_used_bytes, host.shm_total_bytes)
    allowed = host.allowed_cores if host.allowed_cores is not None else host.cores
    used = host.job_cores if host.job_cores is not None else host.busy_cores
    return [
        cell("CPU", f"{cores(used)} of {number(allowed)} cores", fraction(used, allowed)),
        cell("memory", f"{bytes_(host.mem_used_bytes)}", memory, (memory or 0) >= 0.95),
        cell("steal", percent(steal), None, (steal or 0) >= ALARM_PCT),
        cell("throttled", percent(throttled), None, (throttled or 0) >= ALARM_PCT),
        cell("/dev/shm", bytes_(host.shm_used_bytes), shm, (shm or 0) >= 0.9),
        cell(
            "disk",
            mb_per_s(host.disk_read_mb_s),
            fraction(host.disk_busy_pct, 100),
            (host.disk_busy_pct or 0) >= 90,
        ),
        cell("network", mb_per_s(host.net_mb_s)),
    ]


def gpu_cell(gpu: GpuStrip, width: int) -> Content:
    memory = fraction(gpu.mem_used_bytes, gpu.mem_total_bytes)
    power = DASH if gpu.power_w is None else f"{gpu.power_w:.0f} W"
    heat = DASH if gpu.temp_c is None else f"{gpu.temp_c:.0f} °C"
    numbers = (
        f"{percent(gpu.util_pct):>6} {percent(None if memory is None else memory * 100):>5} mem {power:>5} {heat:>6}"
    )
    head = f"GPU {gpu.index:<3}"
    bar = max(width - len(head) - len(numbers) - 2, 0)
    shown = (f"▲ {head[4:]:<5}", "bold $text-warning") if gpu.trouble else muted(head)
    return line(shown, meter(fraction(gpu.util_pct, 100), bar), numbers, "  ")


class NowPanel(Panel):
    TITLE = "Now"

    def draw(self, report: Report, width: int) -> list[Content]:
        lines: list[Content] = []
        if len(report.ranks) > _MOST_RANKS:
            lines += rank_summary(report.ranks, width)
        else:
            cell = min(width // 2, 46) if width >= 76 else width
            lines += flow([rank_cell(strip, cell) for strip in report.ranks], cell, width)
        if not report.ranks:
            lines.append(line(muted("no rank seen yet")))
        if report.host:
            columns = max(width // 38, 1)
            lines += flow(host_cells(report.host, width // columns), width // columns, width)
        columns = max(width // 42, 1)
        lines += flow([gpu_cell(gpu, width // columns) for gpu in report.gpus[:_MOST_GPUS]], width // columns, width)
        if len(report.gpus) > _MOST_GPUS:
            lines.append(line(muted(f"and {len(report.gpus) - _MOST_GPUS} GPUs more: see Machine")))
        return lines
