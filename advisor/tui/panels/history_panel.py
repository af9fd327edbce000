"""The run over time: time lost, phases of the step, ranks and GPUs; ranks and GPUs that do not differ share a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from textual.content import Content

from rn50_advisor.advisor.model.history import Curve, GpuHistory, History, mean_curve
from rn50_advisor.advisor.model.opportunities import time_lost
from rn50_advisor.advisor.model.report import GpuStrip, Report
from rn50_advisor.advisor.model.wording.quantities import bytes_, clock, counted, duration, number, numbers, percent
from rn50_advisor.advisor.tui.panels.budget_panel import legend
from rn50_advisor.advisor.tui.panels.gpu_panel import why_not
from rn50_advisor.advisor.tui.panels.panel import Line, Panel
from rn50_advisor.advisor.tui.styles.drawing import fit, line, muted, prose
from rn50_advisor.advisor.tui.styles.history_drawing import SHADE_STYLES, SHADES, heat, phase_strip, sparkline

_LABEL, _VALUE = 16, 10
_FEW = 4  # as many ranks have a row each
_GPUS_MAX = 16  # with curves of their own; each has four, and a refresh draws them all


def _unknown(report: Report) -> str:
    return "no step has ended yet" if report.step_time.steps == 0 else "not measured over time"


class TimeLostPanel(Panel):
    """One line: what the verdict's finding has cost, by the gain predicted for its fix."""

    def draw(self, report: Report, width: int) -> list[Content]:
        lost = time_lost(report)
        so_far = "time lost so far: " if report.job.running else "time lost: "
        if lost.lost_s is None:
            return [line((so_far, "bold"), muted(text)) for text in prose(lost.unknown, width - len(so_far), 1)]
        gpus = f" ({number(lost.gpu_hours)} GPU-hours)" if lost.gpu_hours is not None else ""
        text = f"{duration(lost.lost_s)} of {duration(lost.run_s)}{gpus}"
        rest = (
            f" to {lost.rule}, by its predicted gain" if len(so_far) + len(text) + 34 <= width else f" to {lost.rule}"
        )
        return [line((so_far, "bold"), (text, "bold $text-warning" if lost.lost_s > 0 else "bold"), muted(rest))]


class PhasesPanel(Panel):
    TITLE = "Phases of the step"

    def titled(self, report: Report) -> str:
        ranks = len(report.history.steps) if report.history else 0
        return f"{self.TITLE} over time · mean of {ranks} ranks" if ranks > 1 else f"{self.TITLE} over time"

    def draw(self, report: Report, width: int) -> list[Content]:
        history = report.history
        if history is None or not history.phases:
            return [line(muted(_unknown(report)))]
        height = 4 if self.brief else 6 if self.terminal_lines < 48 else 10
        inner = _inner(width)
        weights = [sum(counts) for counts in zip(*history.steps.values(), strict=True)]
        few_colours = self.app.no_color or self.app.console.color_system == "standard"  # of 16 some phases share one
        strip = phase_strip(history.phases, inner, height, weights=weights, letters=few_colours)
        means = {name: _over_all(curve, weights) for name, curve in history.phases.items()}
        edges = {0: "whole step", height - 1: "0 %"}
        rows = [line(muted(fit(f" {edges.get(row, '')}", _LABEL)), drawn) for row, drawn in enumerate(strip)]
        rows[0] = line(rows[0], f"{duration(_last_step_s(history)):>{_VALUE}}")
        return [*rows, _axis(history, inner), *legend(means, width, self.brief)]


def _inner(width: int) -> int:
    """Cells of a strip between its label and its latest value: all strips of the view share one axis of time."""
    return max(width - _LABEL - _VALUE, 1)


def _last_step_s(history: History) -> float | None:
    whole = (sum(v for v in values if v is not None) for values in zip(*history.phases.values(), strict=True))
    known = [seconds for seconds in whole if seconds > 0]
    return known[-1] if known else None


def _over_all(curve: Curve, weights: Sequence[float]) -> float:
    """Mean over all steps."""
    return sum((value or 0.0) * weight for value, weight in zip(curve, weights, strict=True)) / (sum(weights) or 1.0)


def _axis(history: History, width: int) -> Content:
    begin, end = clock(history.start_s), clock(history.end_s)
    middle = clock((history.start_s + history.end_s) / 2) if width >= 40 else ""
    left = begin + " " * max(width // 2 - len(begin) - len(middle) // 2, 1) + middle
    return line(" " * _LABEL, muted(left + fit(end, max(width - len(left), 0), True)))


@dataclass(frozen=True, slots=True)
class _Heat:
    """One quantity of the ranks: its levels are in units of the median step."""

    title: str
    name: str
    levels: tuple[float, ...]
    words: tuple[str, ...]


_HEATS = (
    _Heat("step time", "step_s", (1.1, 1.25, 1.5, 2.0), ("usual", "≥1.1×", "≥1.25×", "≥1.5×", "≥2×")),
    _Heat("lateness", "late_s", (0.02, 0.05, 0.15, 0.3), ("<2 %", "≥2 %", "≥5 %", "≥15 %", "≥30 %")),
)


class RankHistoryPanel(Panel):
    """Ranks x time, as shades: step time and lateness one below the other, or one of them on a low terminal."""

    TITLE = "Ranks over time"
    chosen = 0  # index of _HEATS on a low terminal
    grouped = True

    def next_heat(self) -> str:
        self.chosen = (self.chosen + 1) % len(_HEATS)
        self.show(self.report)
        return _HEATS[self.chosen].title

    def group(self, grouped: bool) -> None:
        self.grouped = grouped
        self.show(self.report)

    @property
    def _shown(self) -> Sequence[_Heat]:
        return _HEATS if self.terminal_lines >= 36 else _HEATS[self.chosen : self.chosen + 1]

    def titled(self, report: Report) -> str:
        return f"{self.TITLE} · {' and '.join(heat.title for heat in self._shown)}"

    def draw(self, report: Report, width: int) -> list[Line]:
        history = report.history
        usual_s = history.usual_step_s if history else None
        if history is None or not usual_s:
            return [line(muted(_unknown(report)))]
        lines: list[Line] = []
        for shown in self._shown:
            curves = getattr(history, shown.name)
            if not curves:
                lines.append(line((fit(shown.title, _LABEL), "bold"), muted(_no_lateness(history))))
                continue
            lines.append(_key(shown, usual_s, width))
            for row in self._rows(history, curves):
                lines.append(partial(_heat_line, row, shown, usual_s, width))
        return lines

    def _rows(self, history: History, curves: dict[int, Curve]) -> list[_HeatRow]:
        """Ranks that differ first, then the others, in one row if they are many."""
        most = 6 if self.brief else 12
        apart = [rank for rank in history.ranks_apart if rank in curves]
        others = [rank for rank in sorted(curves) if rank not in apart]
        if not self.grouped or len(curves) <= _FEW:
            return [_HeatRow(f"rank {rank}", (curves[rank],), rank in apart) for rank in [*apart, *others]]
        rows = [_HeatRow(f"rank {rank}", (curves[rank],), True) for rank in apart[:most]]
        for some, is_apart in ((sorted(apart[most:]), True), (others, False)):
            if some:
                rows.append(_HeatRow(_named("rank", some), tuple(curves[rank] for rank in some), is_apart))
        return rows


@dataclass(frozen=True, slots=True)
class _HeatRow:
    label: str
    curves: tuple[Curve, ...]  # of several ranks the mean is shown
    apart: bool


def _heat_line(row: _HeatRow, shown: _Heat, usual_s: float, width: int) -> Content:
    curve = mean_curve(row.curves)
    known = [value for value in curve if value is not None]
    value = duration(known[-1]) if known else "–"
    drawn = heat(curve, _inner(width), usual_s, shown.levels)
    style = "bold $text-warning" if row.apart else ""
    label = fit(f"{'▲' if row.apart else ' '}{row.label}", _LABEL)
    return line((label, style), drawn, (f"{value:>{_VALUE}}", style))


def _named(what: str, some: Sequence[int]) -> str:
    """`ranks 0–5, 7`, or `63 ranks` where the numbers are too long."""
    text = f"{what}{'s' if len(some) > 1 else ''} {numbers(some)}"
    return text if len(text) < _LABEL else counted(len(some), what)


def _no_lateness(history: History) -> str:
    alone = len(history.steps) < 2
    return "one rank waits for no other" if alone else "not measured: the ranks' waits for each other were not timed"


def _key(shown: _Heat, usual_s: float, width: int) -> Content:
    of = f" of {duration(usual_s)}" if width >= 90 else ""
    marks = [
        part for g, s, w in zip(SHADES, SHADE_STYLES, shown.words, strict=True) for part in ((g, s), muted(f" {w}  "))
    ]
    return line((fit(shown.title, _LABEL), "bold"), *marks, muted(of))


class GpuHistoryPanel(Panel):
    TITLE = "GPUs over time"
    grouped = True

    def group(self, grouped: bool) -> None:
        self.grouped = grouped
        self.show(self.report)

    def draw(self, report: Report, width: int) -> list[Line]:
        history = report.history
        measured = [gpu for gpu in history.gpus if any(getattr(gpu, r.name) for r in _READINGS)] if history else []
        if history is None or not measured:
            none = "not measured: no GPU seen" if not report.gpus else "not measured yet"
            return [line(muted(none)), *why_not(report, ("gpu",), width, 1)]
        by_index = {gpu.index: gpu for gpu in measured}
        strips = {strip.index: strip for strip in report.gpus}
        lines: list[Line] = []
        for some, apart in self._groups(history, sorted(by_index)):
            lines += _gpu_lines([by_index[i] for i in some], strips.get(some[0]), apart, width)
        missing = [r.title for r in _READINGS if not any(getattr(gpu, r.name) for gpu in measured)]
        if missing:
            lines.append(line(muted(fit(f"not measured: {', '.join(missing)}", width).rstrip())))
        return lines

    def _groups(self, history: History, indices: list[int]) -> list[tuple[list[int], bool]]:
        """(GPUs that share a row, True if apart): those that differ first."""
        most = 2 if self.brief else 6
        apart = [i for i in history.gpus_apart if i in indices]
        others = [i for i in indices if i not in apart]
        if not self.grouped:
            own, rest = [*apart, *others][:_GPUS_MAX], [*apart, *others][_GPUS_MAX:]
            return [*(([i], i in apart) for i in own), *([(sorted(rest), False)] if rest else [])]
        groups = [([i], True) for i in apart[:most]]
        groups += [(some, is_apart) for some, is_apart in ((sorted(apart[most:]), True), (others, False)) if some]
        return groups


@dataclass(frozen=True, slots=True)
class _Reading:
    title: str
    name: str
    top: Callable[[GpuStrip | None], float | None]  # of the scale; None: the largest value
    words: Callable[[float], str]
    style: str


_READINGS = (
    _Reading("use", "util_pct", lambda _: 100.0, percent, "$primary"),
    _Reading(
        "clock", "sm_clock_mhz", lambda s: s.sm_clock_max_mhz if s else None, lambda v: f"{v:.0f} MHz", "$secondary"
    ),
    _Reading("temp", "temp_c", lambda _: 100.0, lambda v: f"{v:.0f} °C", "$warning"),
    _Reading("memory", "mem_used_bytes", lambda s: s.mem_total_bytes if s else None, bytes_, "$success"),
)


def _gpu_lines(gpus: Sequence[GpuHistory], strip: GpuStrip | None, apart: bool, width: int) -> list[Line]:
    """A label, then the curves; of several GPUs the mean."""
    indices = [gpu.index for gpu in gpus]
    label = f"{'GPUs' if len(gpus) > 1 else 'GPU'} {numbers(indices)}"
    told = f"mean of {len(gpus)}" if len(gpus) > 1 else (strip.trouble if strip else "")
    mark = "▲" if apart else " "
    style = "bold $text-warning" if apart else "bold"
    lines: list[Line] = [
        line((fit(f"{mark}{label}", min(len(label) + 1, width)), style), muted(f"  {told}" if told else ""))
    ]
    for reading in _READINGS:
        curves = [getattr(gpu, reading.name) for gpu in gpus]
        if any(value is not None for curve in curves for value in curve):
            lines.append(partial(_reading_line, reading, curves, reading.top(strip), width))
    return lines


def _reading_line(reading: _Reading, curves: Sequence[Curve], top: float | None, width: int) -> Content:
    curve = mean_curve(curves)
    known = [value for value in curve if value is not None]
    drawn = sparkline(curve, _inner(width), top or max(known), reading.style)
    return line(fit(f"   {reading.title}", _LABEL), drawn, f"{reading.words(known[-1]):>{_VALUE}}")
