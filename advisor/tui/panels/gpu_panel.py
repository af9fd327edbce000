"""The GPUs as the driver saw them last. Utilisation says that some kernel was resident, nothing about why."""

from __future__ import annotations

import math
from dataclasses import replace

from textual.content import Content

from rn50_advisor.advisor.model.alike import ALIKE, alike_gpus, one_gpu
from rn50_advisor.advisor.model.gpu.gpu_memory_rows import memory_rows
from rn50_advisor.advisor.model.gpu.kernel_classes import DeepTable, deep_tables
from rn50_advisor.advisor.model.gpu.roofline import roofline_rows
from rn50_advisor.advisor.model.report import GpuProcessRow, GpuStrip, Report
from rn50_advisor.advisor.model.wording.quantities import DASH, bytes_, number, percent
from rn50_advisor.advisor.tui.panels.panel import Panel
from rn50_advisor.advisor.tui.styles.drawing import Part, fit, line, meter, muted, prose


def fraction(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def why_not(report: Report, prefixes: tuple[str, ...], width: int, most: int = 2) -> list[Content]:
    """The recorded reasons why metrics of these families are missing."""
    hints = {}
    for gap in report.gaps:
        if gap.metric.startswith(prefixes):
            hints[gap.reason or "no reason recorded"] = gap.hint
    lines = [
        text
        for reason, hint in hints.items()
        for text in prose(f"– {reason}{f' ({hint})' if hint else ''}", width, 2, "  ")
    ]
    return [line(muted(text)) for text in lines[:most]]


def alarming(report: Report) -> list[GpuStrip]:
    """The GPUs that a finding on GPUs names, or whose trouble is known."""
    named = {index for f in report.findings if f.rule.startswith("GPU") for index in f.scope.gpus}
    return [gpu for gpu in report.gpus if gpu.index in named or gpu.trouble]


_MANY_GPUS = 4  # from here on those that are alike share a row


class GpusPanel(Panel):
    TITLE = "GPUs"
    HOLDS_HEIGHT = True
    grouped = True

    def titled(self, report: Report) -> str:
        names = {gpu.name for gpu in report.gpus}
        title = f"GPUs · {len(report.gpus)} × {names.pop()}" if len(names) == 1 and "" not in names else self.TITLE
        shared = self._sharing(report, alarming(report))
        return f"{title} · {len(shared)} alike in one row (a: all)" if shared else title

    def draw(self, report: Report, width: int) -> list[Content]:
        if not report.gpus:
            return [line(muted("not measured: no GPU seen")), *why_not(report, ("gpu",), width)]
        named = len({gpu.name for gpu in report.gpus}) > 1
        troubles = [_trouble(gpu, width) for gpu in report.gpus if gpu.trouble]
        lines: list[Content] = []
        alarms, host = alarming(report), ""
        shared = self._sharing(report, alarms)
        alike = {gpu.index for gpu in shared}
        apart = [gpu for gpu in report.gpus if gpu.index not in alike]
        for gpu in [*apart, one_gpu(shared)] if shared else report.gpus:
            if gpu.host != host:
                host = gpu.host
                lines.append(line(muted(fit(host, width).rstrip())))
            label = f"{len(shared)}×" if gpu.index == ALIKE else f"{gpu.index:>2}{'▲' if gpu in alarms else ' '}"
            row = self._row(gpu, width, named, label)
            lines.append(row.stylize("bold $text-warning") if gpu in alarms else row)
        return [*lines, *troubles]

    def group(self, grouped: bool) -> None:
        self.grouped = grouped
        self.show(self.report)

    def _sharing(self, report: Report, alarms: list[GpuStrip]) -> list[GpuStrip]:
        """Of many GPUs, those that share a row."""
        if not self.grouped or len(report.gpus) < _MANY_GPUS:
            return []
        over_time = report.history.gpus_apart if report.history else ()
        return alike_gpus(report.gpus, {*(gpu.index for gpu in alarms), *over_time})

    def _row(self, gpu: GpuStrip, width: int, named: bool, label: str) -> Content:
        """The bars take what the numbers leave; names only where GPUs differ and there is room."""
        name = fit(gpu.name, 18) + " " if named and width >= 110 else ""
        memory = fraction(gpu.mem_used_bytes, gpu.mem_total_bytes)
        occupied = f"{bytes_(gpu.mem_used_bytes):>8}/{bytes_(gpu.mem_total_bytes):<8} " if width >= 76 else ""
        occupied += f"{percent(None if memory is None else memory * 100):>5} mem"
        power = f"{number(_whole(gpu.power_w))}/{number(_whole(gpu.power_limit_w))} W"
        tail = f"  {power:>9}  {number(_whole(gpu.temp_c)):>3} °C"
        if width >= 100:
            tail += f"  {_mhz(gpu.sm_clock_mhz):>4}/{_mhz(gpu.sm_clock_max_mhz):<4} MHz"
        if width >= 120:
            tail += f"  {_link(gpu):>7}"
        if width >= 140 and gpu.sm_active_pct is not None:
            tail += f"  SM {percent(gpu.sm_active_pct):>5}  tensor {percent(gpu.tensor_active_pct):>5}"
        used = f" {percent(gpu.util_pct):>6}  "
        bar = max(min((width - 3 - len(name) - len(used) - len(occupied) - len(tail) - 1) // 2, 30), 0)
        parts: list[Part] = [(fit(label, 3), "bold"), name, meter(fraction(gpu.util_pct, 100.0), bar), used]
        return line(*parts, meter(memory, bar, "$success"), " ", occupied, tail)


class AlarmingGpusPanel(GpusPanel):
    """On the overview, where the screen has no room for all GPUs: those that findings name. Hidden while there are none."""

    def show(self, report: Report | None) -> None:
        alarms = alarming(report) if report is not None else []
        self.set_class(not alarms, "-none")  # not `display`, which the style sheet sets by width
        super().show(replace(report, gpus=tuple(alarms[:_ALARMS_SHOWN])) if report is not None else None)

    def titled(self, report: Report) -> str:
        return "GPUs of the findings"


_ALARMS_SHOWN = 4


def _trouble(gpu: GpuStrip, width: int) -> Content:
    """A line of its own: what is wrong must not hide in a column."""
    whose = f" ({'ranks' if ',' in gpu.ranks else 'rank'} {gpu.ranks})" if gpu.ranks else ""
    return line(
        (
            fit(f" ▲ GPU {gpu.index}{f' ({gpu.place})' if gpu.place else ''}{whose}: {gpu.trouble}", width),
            "bold $text-warning",
        )
    )


def _link(gpu: GpuStrip) -> str:
    """`g4 x16`: generation and lanes."""
    if gpu.pcie_gen is None or gpu.pcie_width is None:
        return DASH
    return f"g{gpu.pcie_gen:.0f} x{gpu.pcie_width:.0f}"


def _whole(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(round(value))


def _mhz(value: float | None) -> str:
    return DASH if value is None or not math.isfinite(value) else f"{value:.0f}"


_NUMBER = 10
_SHARE = 7


class GpuProcessesPanel(Panel):
    """Hidden where the driver listed none: in containers it often sees no process of the job."""

    TITLE = "Processes on the GPUs"

    def show(self, report: Report | None) -> None:
        self.display = report is not None and any(gpu.processes for gpu in report.gpus)
        super().show(report)

    def draw(self, report: Report, width: int) -> list[Content]:
        rows = [(gpu.index, process) for gpu in report.gpus for process in gpu.processes]
        rows.sort(key=lambda row: row[1].own)  # others first: they are why one looks here
        heading = f"{'':<9} {'GPU':>4} {'PID':>8}  {'user':<12} {'memory':>9}  process"
        return [line(muted(fit(heading, width).rstrip())), *(_process(gpu, process, width) for gpu, process in rows)]


def _process(gpu: int, process: GpuProcessRow, width: int) -> Content:
    whose = "this job" if process.own else "▲ other"
    text = f"{whose:<9} {gpu:>4} {process.pid:>8}  {fit(process.user or DASH, 12)} {bytes_(process.mem_bytes):>9}  "
    row = line(fit(text + (process.name or DASH), width).rstrip())
    return row if process.own else row.stylize("bold $text-warning")


# A rank's achieved FLOP/s and its kernels in profiler windows; without a window, how to request one.
class DeepPanel(Panel):
    TITLE = "Arithmetic, memory and kernels"

    def draw(self, report: Report, width: int) -> list[Content]:
        tables = deep_tables(report.facts)
        reached = [
            line(muted(text))
            for label, value in (*roofline_rows(report.facts), *memory_rows(report.facts))
            for text in prose(f"{label}: {value}", width, 3, "  ")
        ]
        if not tables:
            hint = prose("not profiled: run with --deep for kernels by class and the GPU's idle time", width)
            return [*reached, *(why_not(report, ("kernel.window",), width) or [line(muted(text)) for text in hint])]
        return [*reached, *(content for table in tables for content in _drawn(table, width))]


def _drawn(table: DeepTable, width: int) -> list[Content]:
    name = max(width - _NUMBER - _SHARE - 2, 8)
    out = [line((fit(table.title, width).rstrip(), "bold"))]
    for label, took, part in table.classes:
        out.append(line(fit(label, name), f"{took:>{_NUMBER}}", muted(f"{part:>{_SHARE}}")))
    for note in table.notes:
        out += [line(muted(text)) for text in prose(f"– {note}", width, 2, "  ")]
    for label, kind, took, _, _ in table.rows:
        label_width = max(name - 14, 8)
        out.append(
            line(fit(label, label_width), " ", muted(fit(kind, max(name - label_width - 1, 0))), f"{took:>{_NUMBER}}")
        )
    return out
