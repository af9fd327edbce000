"""The node as last seen: cores, steal and throttling, memory, disk, network; a dash where nothing was measured."""

from __future__ import annotations

from textual.content import Content

from rn50_advisor.advisor.model.report import HostStrip, NodeStrip, Report, nodes_shown
from rn50_advisor.advisor.model.wording.quantities import DASH, bytes_, duration, number, numbers, percent, rate
from rn50_advisor.advisor.tui.panels.gpu_panel import fraction, why_not
from rn50_advisor.advisor.tui.panels.panel import Panel
from rn50_advisor.advisor.tui.styles.drawing import Part, fit, line, meter, muted

_LABEL, _TEXT = 9, 28
_NODES_SHOWN = 8
ALARM_PCT = 5.0  # the share from which rules speak of steal and throttling


def cores(value: float | None) -> str:
    return DASH if value is None else f"{value:.1f}"


def mb_per_s(value: float | None) -> str:
    """Below a hundredth nothing moves."""
    return rate(None if value is None else round(value, 2), "MB/s")


def _share(part: float | None, whole: float | None) -> float | None:
    share = fraction(part, whole)
    return None if share is None else 100 * share


def _rows(host: HostStrip) -> list[tuple[str, str, float | None, bool]]:
    """Label, text, fill of the bar (None: none), and whether the value alarms."""
    allowed = host.allowed_cores if host.allowed_cores is not None else host.cores
    steal, throttled = host.steal_pct, host.throttled_pct
    return [
        (
            "CPU",
            f"{cores(host.busy_cores)} of {number(host.cores)} cores busy",
            fraction(host.busy_cores, host.cores),
            False,
        ),
        ("job", f"{cores(host.job_cores)} of {number(allowed)} allowed", fraction(host.job_cores, allowed), False),
        ("steal", percent(steal), fraction(steal, 100), (steal or 0) >= ALARM_PCT),
        ("throttled", percent(throttled), fraction(throttled, 100), (throttled or 0) >= ALARM_PCT),
        (
            "memory",
            f"{bytes_(host.mem_used_bytes)} of {bytes_(host.mem_total_bytes)}",
            fraction(host.mem_used_bytes, host.mem_total_bytes),
            (fraction(host.mem_used_bytes, host.mem_total_bytes) or 0) >= 0.95,
        ),
        (
            "/dev/shm",
            f"{bytes_(host.shm_used_bytes)} of {bytes_(host.shm_total_bytes)}",
            fraction(host.shm_used_bytes, host.shm_total_bytes),
            (fraction(host.shm_used_bytes, host.shm_total_bytes) or 0) >= 0.9,
        ),
        (
            "disk",
            f"{mb_per_s(host.disk_read_mb_s)} read, {percent(host.disk_busy_pct)} busy",
            fraction(host.disk_busy_pct, 100),
            (host.disk_busy_pct or 0) >= 90,
        ),
        ("network", mb_per_s(host.net_mb_s), None, False),
    ]


class HostPanel(Panel):
    TITLE = "Host"

    def titled(self, report: Report) -> str:
        if report.nodes:
            return f"Hosts · {len(report.nodes)}"
        return f"Host · {report.host.name}" if report.host and report.host.name else self.TITLE

    def draw(self, report: Report, width: int) -> list[Content]:
        if report.nodes:
            chosen = nodes_shown(report, _NODES_SHOWN)
            left = len(report.nodes) - len(chosen)
            return [
                *(self._node(node, width) for node in chosen),
                *([line(muted(f"… {left} more hosts"))] if left else []),
            ]
        host = report.host
        if host is None:
            return [line(muted("not measured: no host probe has reported")), *why_not(report, ("cpu", "mem"), width)]
        columns = 2 if width >= 2 * (_LABEL + _TEXT + 6) else 1
        cell = (width - 2 * (columns - 1)) // columns
        cells = [self._cell(*row, cell) for row in _rows(host)]
        rows = -(-len(cells) // columns)
        lines = []
        for row in range(rows):
            parts: list[Part] = []
            for content in cells[row::rows]:
                parts += [*(["  "] if parts else []), content]
            lines.append(line(*parts))
        return [*lines, *why_not(report, ("cpu", "cgroup", "mem", "psi", "disk", "net"), width, 3)]

    def _node(self, node: NodeStrip, width: int) -> Content:
        """Returns one line for one of several hosts: its ranks and its scarce resources."""
        name = fit(node.host, 18)
        ranks = fit(f"ranks {numbers(node.ranks, 3)}", 14)
        if node.lost_after_s is not None:
            return line(
                ("! ", "bold $text-error"),
                name,
                " ",
                muted(ranks),
                f" no data since {duration(node.lost_after_s)}",
            )
        strip = node.strip or HostStrip(node.host)
        parts = [
            f"CPU {cores(strip.busy_cores)}/{number(strip.cores)}",
            f"mem {percent(_share(strip.mem_used_bytes, strip.mem_total_bytes))}",
            f"steal {percent(strip.steal_pct)}",
            f"throttled {percent(strip.throttled_pct)}",
            f"disk {percent(strip.disk_busy_pct)}",
            f"net {mb_per_s(strip.net_mb_s)}",
        ]
        mark = ("▶ ", "$primary") if node.shown else ("  ", "")
        return line(mark, name, " ", muted(ranks), " ", fit("  ".join(parts), max(width - 36, 0)).rstrip())

    def _cell(self, label: str, text: str, fill: float | None, alarm: bool, width: int) -> Content:
        bar = max(width - _LABEL - _TEXT - 2, 0)
        colour = "$error" if alarm else "$primary"
        drawn = meter(fill, bar, colour) if fill is not None else Content(" " * bar)
        shown = f"! {text}" if alarm else text
        return line(
            muted(fit(label, _LABEL)), " ", (fit(shown, _TEXT), "bold $text-error" if alarm else ""), " ", drawn
        )
