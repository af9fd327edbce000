"""The HTML report in headless Chromium: the console stays empty, nothing is cut off on a phone, copy buttons and the rank filter work."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import report_samples as samples
from rn50_advisor.advisor.model.report import Report, TimelinePoint
from rn50_advisor.advisor.report import render

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.chromium, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]
TIMEOUT_S = 120
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=5000")
WIDTHS = (400, 1400)

# A page around the report, whose script may look into it: a frame of the same origin and of a chosen width.
AROUND = """<!DOCTYPE html><body><iframe style="width: {width}px; height: 900px; border: 0" srcdoc="{page}"></iframe>
<script>
document.querySelector("iframe").addEventListener("load", (event) => {{
  const page = event.target.contentDocument;
  const all = (selector) => [...page.querySelectorAll(selector)];
  const shown = () => all(".row[data-ranks]").filter((row) => !row.hidden).map((row) => row.dataset.ranks);
  for (const fold of all("details")) fold.open = true;
  const found = {{
    sideways: page.documentElement.scrollWidth - page.documentElement.clientWidth,
    cut: all("pre, .fix, .fix p, h1, h3, .tiles dd").filter((box) => box.scrollWidth > box.clientWidth + 1)
      .map((box) => box.textContent.slice(0, 80)),
    boxes: all("[data-copy]").length,
    buttons: all("[data-copy] > button.copy").length,
    filters: all(".rank-filter input").length,
    rows: shown(),
  }};
  const input = page.querySelector(".rank-filter input");
  if (input) {{
    input.value = "40-41";
    input.dispatchEvent(new Event("input"));
    found.filtered = shown();
    input.value = "";
    input.dispatchEvent(new Event("input"));
    found.again = shown();
  }}
  document.body.dataset.found = JSON.stringify(found);
}});
</script></body>"""


def wide() -> Report:
    """64 ranks, one of which the others wait for, and a fix with a long option and long lines of a diff."""
    report = samples.many_ranks(64)
    points = tuple(TimelinePoint(float(n), 30.0, 0.5, 0.1, 41, 0.2) for n in range(60))
    fix = replace(
        samples.LOADER.fixes[0],
        typed=("--workers 6 --prefetch-factor 4 --persistent-workers --pin-memory-device cuda:0",),
        diff="\n".join(["--- a/train.py", "+++ b/train.py", "@@ -1 +1 @@", f"-x = {'y' * 200}", f"+{'z, ' * 80}"]),
    )
    return replace(report, timeline=points, findings=(replace(samples.LOADER, fixes=(fix,)), *report.findings))


REPORTS = {
    "a bottleneck": samples.bottleneck,
    "a healthy job": samples.healthy,
    "64 ranks": wide,
    "a dead rank": samples.dead_rank,
    "no step": samples.inconclusive,
    "hostile strings": samples.hostile,
}


def shown_by_chromium(source: str, folder: Path) -> tuple[str, list[str]]:
    """The document as it is after its scripts have run, and what the console said."""
    assert CHROMIUM is not None
    page = folder / "page.html"
    page.write_text(source, encoding="utf-8", errors="replace")
    done = subprocess.run(
        [CHROMIUM, *OPTIONS, f"--user-data-dir={folder / 'profile'}", "--dump-dom", page.as_uri()],
        capture_output=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    said = done.stderr.decode(errors="replace").splitlines()
    return done.stdout.decode(errors="replace"), [line for line in said if "CONSOLE" in line]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", REPORTS)
def test_the_console_is_empty_and_nothing_is_cut_off(name: str, width: int, tmp_path: Path) -> None:
    source = render(REPORTS[name](), "html").encode("utf-8", "replace").decode()
    shown, console = shown_by_chromium(AROUND.format(width=width, page=html.escape(source)), tmp_path)
    assert console == []
    answer = re.search('data-found="([^"]*)"', shown)
    assert answer, shown[-500:]
    found = json.loads(html.unescape(answer[1]))
    assert found["sideways"] <= 0
    assert found["cut"] == []
    assert found["buttons"] == found["boxes"] > 0
    if name == "64 ranks":
        assert set(found["filtered"]) == {"40", "41"} < set(found["rows"])
        assert found["again"] == found["rows"] and len(set(found["rows"])) == 64


def test_a_script_that_slips_in_does_not_run(tmp_path: Path) -> None:
    """The page's policy names the hash of its own script."""
    source = render(samples.bottleneck(), "html")
    spoilt = source.replace("</main>", "<script>document.title = 'spoilt'</script></main>")
    shown, console = shown_by_chromium(spoilt, tmp_path)
    assert "<title>spoilt" not in shown and "Content Security Policy" in " ".join(console)
