"""Throughput of the job, now and over the run."""

from __future__ import annotations

import math

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Digits

from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.report import Throughput as ThroughputValues
from rn50_advisor.advisor.model.wording.quantities import DASH, clock, duration, metric_words, number, rate
from rn50_advisor.advisor.model.wording.rank_words import place
from rn50_advisor.advisor.tui.panels.panel import Panel
from rn50_advisor.advisor.tui.styles.drawing import Part, chart, fit, line, muted

_SEGMENT_MARKS = {
    "start": "b", "warm-up": "w", "run-ahead": "w", "epoch": "e", "epoch start": "s", "evaluation": "v", "checkpoint": "k",
    "deep window": "d", "change": "!", "stall": "!",
}  # fmt: skip


def waiting_lines(report: Report, width: int) -> list[Content]:
    """Lines for a run in which no step has ended yet."""
    job = report.job
    if not job.running:
        return [line(("no step was seen", "bold"), muted(f"   the job ended after {clock(job.duration_s)}"))]
    lines = [line(("… waiting for the first step", "bold"), muted(f"   {clock(job.duration_s)} since the start"))]
    seen = [f"rank {r.rank}: {place(r.phase)} for {duration(r.phase_for_s)} (pid {r.pid})" for r in report.ranks[:3]]
    if len(report.ranks) > 3:
        seen.append(f"and {len(report.ranks) - 3} ranks more")
    if not seen:
        seen = ["no process trains yet: the job is starting, or its Python keeps the recorder out (-I, -S, -E)"]
    return [*lines, *(Content(fit(text, width).rstrip()) for text in seen)]


def failed_lines(report: Report, width: int, most: int = 5) -> list[Content]:
    """Lines for a job that hangs or died: its last step, the ranks that the verdict names, and their stack; its rates are history."""
    finding = next((f for f in report.findings if f.rule == report.verdict.rule), None)
    named = set(finding.scope.ranks) if finding is not None else set()
    strips = [strip for strip in report.ranks if strip.rank in named] or list(report.ranks)
    last = max((strip.step for strip in report.ranks), default=report.step_time.steps)
    lines = [line((fit(f"✖ last step {number(last)}", width).rstrip(), "bold $text-error"))]
    for strip in strips[:2]:
        where = (
            f"{place(strip.phase)} for {duration(strip.phase_for_s)}"
            if strip.alive
            else f"gone, last {place(strip.phase)}"
        )
        lines.append(
            Content(fit(f"rank {strip.rank}: {where}, step {number(strip.step)} (pid {strip.pid})", width).rstrip())
        )
    told = [e for e in finding.evidence if isinstance(e.value, str)] if finding is not None else []
    stacks = sorted(told, key=lambda e: not e.metric.startswith("stack"))
    for item in stacks[:2]:
        lines.append(Content(fit(f"{metric_words(item.metric)}: {item.value}", width).rstrip()))
    before = f"before: {rate(report.throughput.samples_per_s, 'samples/s')}, step {duration(report.step_time.median_s)}"
    return [*lines[: most - 1], line(muted(fit(before, width).rstrip()))]


def _if_it_fits(text: str, more: str, width: int) -> str:
    return text + more if len(text) + len(more) <= width else text


def _batch(speed: ThroughputValues) -> str:
    return f"batch {number(speed.batch_size)} × {speed.world_size or DASH} rank{'' if speed.world_size == 1 else 's'}"


class ThroughputFacts(Panel):
    """Rates and step times; the rate itself only where no large digits show it."""

    compact = True

    def draw(self, report: Report, width: int) -> list[Content]:
        if report.step_time.steps == 0 and report.throughput.samples_per_s is None:
            return waiting_lines(report, width)
        if report.verdict.state == "failed":
            return failed_lines(report, width, 4 if self.brief else 6)
        speed, step = report.throughput, report.step_time
        steps_per_s = fit(rate(speed.steps_per_s, "steps/s"), 14)
        batch = _batch(speed)
        counted = f"{number(step.steps)} steps"
        steady = f"{number(step.steady_steps)} steady"
        spent = "" if speed.joules_per_sample is None else f"   {rate(speed.joules_per_sample, 'J/sample')}"
        times: list[Part] = [(fit(duration(step.median_s), 8, True), "bold"), " median  "]
        times += [(fit(duration(step.p95_s), 8, True), "bold"), " p95"]
        if self.brief:
            now = fit(rate(speed.samples_per_s, "samples/s"), 19)
            return [line((now, "bold $text-primary"), steps_per_s, muted("step "), *times)]
        if self.compact:
            now = fit(rate(speed.samples_per_s, "samples/s"), 20)
            return [
                line((now, "bold $text-primary"), steps_per_s, muted(f"  {batch}")),
                line(muted("step "), *times, muted(_if_it_fits(f"   {counted}, {steady}", spent, width - 34))),
            ]
        return [
            line(("samples/s", "bold $text-primary"), "   ", steps_per_s, muted(batch)),
            line(muted("step "), *times),
            line(muted(_if_it_fits(f"{counted}, {steady}", spent, width))),
        ]


class ThroughputChart(Panel):
    """Samples a second over the whole run, from zero, with the run's segments below where there is room."""

    rows = 1

    def draw(self, report: Report, width: int) -> list[Content]:
        values = [p.samples_per_s for p in report.timeline]
        known = [v for v in values if v is not None and math.isfinite(v)]
        if not known:
            return [line(muted(fit("no rate over time yet", width)))] + [Content("")] * (self.rows - 1)
        top = fit(f"{number(max(known))}/s", 9, True)
        lines = [
            line(columns, " ", muted(top) if i == 0 else "")
            for i, columns in enumerate(chart(values, width - 10, self.rows))
        ]
        return [*lines, self._axis(report, width - 10)] if self.rows > 1 else lines

    def _axis(self, report: Report, width: int) -> Content:
        drawn = min(width, len(report.timeline))
        first, last = report.timeline[0].t_s, report.timeline[-1].t_s
        span = max(last - first, 1e-9)
        marks = [" "] * drawn
        for segment in report.segments:
            at = int((segment.start_s - first) / span * (drawn - 1))
            if 0 <= at < drawn:
                marks[at] = _SEGMENT_MARKS.get(segment.kind, "·")
        start, end = clock(first), clock(last)
        axis = start + "".join(marks)[len(start) : max(drawn - len(end), len(start))] + end
        return line(muted(fit(axis, width)))


class ThroughputPanel(Vertical):
    """Large digits where the terminal is high enough."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows, self._compact = 1, True

    def compose(self) -> ComposeResult:
        self.border_title = "Throughput"
        with Horizontal(id="rate"):
            yield Digits(DASH, id="digits")
            yield ThroughputFacts(id="facts")
        yield ThroughputChart(id="chart")

    def on_mount(self) -> None:
        self.add_class("report")
        self.fit_to(self._rows, self._compact)  # the size may have arrived before the parts inside were made

    def show(self, report: Report | None) -> None:
        """The panels inside show themselves; the digits are this widget's."""
        value = report.throughput.samples_per_s if report else None
        self._title(report)
        self.query_one(Digits).update(f"{number(value):>7}" if value is not None else DASH)
        self.set_class(value is None or (report is not None and report.verdict.state == "failed"), "-unknown")

    def _title(self, report: Report | None) -> None:
        title = "Last progress" if report is not None and report.verdict.state == "failed" else "Throughput"
        if report and self.query_one(ThroughputFacts).brief and report.step_time.steps:
            speed = report.throughput
            title += f" · {_batch(speed)} · {number(report.step_time.steps)} steps"
        self.border_title = title

    def fit_to(self, rows: int, compact: bool) -> None:
        self._rows, self._compact = rows, compact
        for chart_panel in self.query(ThroughputChart):
            chart_panel.rows = rows
        for facts in self.query(ThroughputFacts):
            facts.compact = compact
        self.set_class(compact, "-compact")
