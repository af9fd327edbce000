"""The rate each stage could sustain alone, marked by what the verdict says of it, and the job's rate by number of loader workers."""

from __future__ import annotations

from textual.content import Content

from rn50_advisor.advisor.model.forecast.worker_curve import KNEE_WORDS, WorkerCurve
from rn50_advisor.advisor.model.report import Capacity, Report
from rn50_advisor.advisor.model.wording import stage_words
from rn50_advisor.advisor.model.wording.loader_words import loader_rows
from rn50_advisor.advisor.model.wording.quantities import DASH, number
from rn50_advisor.advisor.tui.panels.panel import Panel
from rn50_advisor.advisor.tui.styles.drawing import Part, fit, interval, line, muted, prose

_SHORT_TITLES = {"loader": "worker-to-loop", "copy": "copy to device", stage_words.SERIAL_TITLE: "in turn"}
_LABEL, _LONG_LABEL, _VALUE, _RANGE, _MARK = 17, 24, 9, 15, 16
_ROOMY = 76  # cells of a panel that has room for the long labels
_HIGH = 40  # lines of a terminal with room for the forecast as bars
_REACH = 4.0  # the scale ends at this many times the smallest: beyond it a stage is out of the way, however far


class CapacitiesPanel(Panel):
    TITLE = f"{stage_words.TITLE}, samples/s"

    def titled(self, report: Report) -> str:
        achieved = report.throughput.samples_per_s
        return f"{self.TITLE} · achieved {number(achieved)}" if self.brief and achieved else self.TITLE

    def draw(self, report: Report, width: int) -> list[Content]:
        known = [c for c in report.capacities if c.samples_per_s is not None and c.samples_per_s > 0]
        if not report.capacities:
            return [line(muted("not measured yet" if report.step_time.steps == 0 else "not measured"))]
        ranked = sorted(known, key=lambda c: c.samples_per_s or 0.0)
        achieved = report.throughput.samples_per_s
        values = [c.samples_per_s or 0.0 for c in ranked]
        scale = min(values[-1], values[0] * _REACH) if values else achieved or 1.0
        lines = []
        if achieved and not self.brief:
            lines.append(self._row("achieved", achieved, None, scale, width, mark="", colour="$foreground"))
        marks = stage_words.stage_marks(report)
        for capacity in stage_words.rows(report):
            lines.append(self._stage(capacity, marks.get(capacity.stage), scale, width))
        return [*lines, *self._workers(report.worker_curve, width)]

    def _workers(self, curve: WorkerCurve | None, width: int) -> list[Content]:
        """Draws the worker curve as bars if there is room for them, else in words."""
        if curve is None:
            return []
        if self.terminal_lines < _HIGH:
            summary = f"workers: {curve.words}"
            return [line(muted(text)) for text in prose(summary, width, 1 if self.brief else 2, "  ")]
        top = max(point.samples_per_s[1] for point in curve.points)
        lines = [line(""), line(muted(fit(f"by loader workers per rank (◁ {KNEE_WORDS})", width)))]
        for point in curve.shown():
            lo, hi = point.samples_per_s
            known, knee = point.workers == curve.measured, point.workers == curve.knee
            mark = "◀ measured" if known else ""
            mark = f"{mark} ◁".strip() if knee else mark
            label = f"{point.workers} worker{'' if point.workers == 1 else 's'}"
            bounds = None if known else Capacity("", None, lo, hi, "")
            colour = "$foreground" if known else "$success"
            lines.append(self._row(label, (lo + hi) / 2, bounds, top, width, mark=mark, colour=colour))
        return lines

    def _stage(self, capacity: Capacity, mark: stage_words.Mark | None, scale: float, width: int) -> Content:
        label = stage_words.stage_title(capacity.stage)
        label = _SHORT_TITLES.get(capacity.stage, label) if width < _ROOMY else label
        if capacity.samples_per_s is None or not capacity.samples_per_s > 0:
            reason = f"not measured: {capacity.basis}" if capacity.basis else "not measured"
            cells = _label_cells(width)
            return line(muted(fit(label, cells)), muted(fit(reason, width - cells)))
        colour = "$warning" if mark == "bottleneck" else "$success"
        words = stage_words.MARK_WORDS[mark] if mark else ""
        return self._row(label, capacity.samples_per_s, capacity, scale, width, mark=words, colour=colour)

    def _row(
        self, label: str, value: float, capacity: Capacity | None, scale: float, width: int, *, mark: str, colour: str
    ) -> Content:
        span = _RANGE if width >= 68 else 0
        bar_width = max(width - _label_cells(width) - _VALUE - span - _MARK - 1, 4)
        lo = capacity.lo if capacity and capacity.lo is not None else value
        hi = capacity.hi if capacity and capacity.hi is not None else value
        style = "bold" if mark == stage_words.MARK_WORDS["bottleneck"] else ""
        parts: list[Part] = [
            (fit(label, _label_cells(width)), style),
            interval((lo, value, hi), scale, bar_width, colour),
            (fit(number(value), _VALUE, True), style or "$foreground"),
        ]
        if span:
            known = capacity is not None and capacity.lo is not None and capacity.hi is not None
            text = f" {_short(lo)}–{_short(hi)}" if known else f" {DASH}" if capacity else ""
            parts.append(muted(fit(text, span)))
        return line(*parts, " ", (fit(mark, _MARK), "bold $text-warning" if style else "$foreground 62%"))


def _label_cells(width: int) -> int:
    return _LABEL if width < _ROOMY else _LONG_LABEL


def _short(value: float) -> str:
    return f"{value / 1000:,.0f}k" if value >= 99_950 else number(round(value)) if value >= 10 else number(value)


_LOADER_LABEL = 24


# The DataLoaders of the job: what each was made with, where, and of what data.
class LoadersPanel(Panel):
    TITLE = "Data loaders"

    def draw(self, report: Report, width: int) -> list[Content]:
        rows = loader_rows(report.facts)
        if not rows:
            return [line(muted("no DataLoader was seen"))]
        label = min(_LOADER_LABEL, max(width // 3, 8))
        lines = []
        for row in rows:
            lines.append(line((fit(f"{row.place}  {row.role}", width).rstrip(), "bold")))
            for name, value in row.details:
                first, *more = prose(value, width - label - 4) or ["–"]
                lines.append(line("  ", muted(fit(name, label)), "  ", first))
                lines += [Content(" " * (label + 4) + text) for text in more]
        return lines
