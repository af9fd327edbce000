"""The HTML report in headless Chromium: the console stays empty, nothing is cut off on a phone, copy buttons and the rank filter work."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import report_samples as samples
import trial_samples
from document_samples import every_block
from rn50_advisor.advisor.model.history import History, compared
from rn50_advisor.advisor.model.report import Report, TimelinePoint
from rn50_advisor.advisor.model.trials import Tried
from rn50_advisor.advisor.report import document_html, render
from rn50_advisor.advisor.report.trials import trial_pages

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.chromium, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]
TIMEOUT_S = 120
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=5000")
WIDTHS = (400, 1400)
PAPER_PAGES_MOST = 12  # of the report in the tests; twice as many if everything were on a page of its own

# A page around the report, whose script may look into it: a frame of the same origin and of a chosen width.
AROUND = r"""<!DOCTYPE html><body><iframe style="width: {width}px; height: 900px; border: 0" srcdoc="{page}"></iframe>
<script>
document.querySelector("iframe").addEventListener("load", (event) => {{
  const page = event.target.contentDocument;
  const all = (selector) => [...page.querySelectorAll(selector)];
  const shown = () => all(".row[data-ranks]").filter((row) => !row.hidden).map((row) => row.dataset.ranks);
  for (const fold of all("details")) fold.open = true;
  const colour = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (box) => {{
    for (let at = box; at; at = at.parentElement) {{
      const found = colour(page.defaultView.getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] > 0.5) return found;
    }}
    return [255, 255, 255];
  }};
  // WCAG 2.1, 1.4.3: text has a contrast of 4.5 at least; what is switched off need not
  const faint = (box) => {{
    if (!box.offsetParent || box.disabled || ![...box.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) return false;
    const [text, back] = [light(colour(page.defaultView.getComputedStyle(box).color)), light(behind(box))];
    return (Math.max(text, back) + 0.05) / (Math.min(text, back) + 0.05) < 4.5;
  }};
  const found = {{
    sideways: page.documentElement.scrollWidth - page.documentElement.clientWidth,
    cut: all("pre, .fix, .fix p, h1, h3, .tiles dd, .evidence td").filter((box) => box.scrollWidth > box.clientWidth + 1)
      .map((box) => box.textContent.slice(0, 80)),
    boxes: all("[data-copy]").length,
    buttons: all("[data-copy] > button.copy").length,
    filters: all(".rank-filter input").length,
    rows: shown(),
    faint: all("p, h1, h2, h3, h4, dt, dd, li, th, td, summary, button, label, input, span").filter(faint)
      .map((box) => box.className + ": " + box.textContent.slice(0, 60)),
  }};
  const chart = page.querySelector(".zoomable");
  if (chart) {{
    const drawn = chart.querySelector(".drawn");
    const svg = drawn.querySelector("svg");
    const box = drawn.getBoundingClientRect();
    const {{ PointerEvent, KeyboardEvent, WheelEvent }} = page.defaultView;
    const at = (kind, share) => drawn.dispatchEvent(new PointerEvent(kind, {{ clientX: box.left + share * box.width, bubbles: true }}));
    const turned = (options) => new WheelEvent("wheel", {{ deltaY: -100, clientX: box.left, bubbles: true, cancelable: true, ...options }});
    const values = () => [...chart.querySelectorAll(".value")].map((cell) => cell.textContent);
    const [reset] = all(".zoom button").filter((button) => button.textContent === "Reset");
    const press = (key) => chart.dispatchEvent(new KeyboardEvent("keydown", {{ key, bubbles: true }}));
    const timed = {{ before: values(), whole: svg.style.width }};
    at("pointermove", 0.3);
    timed.pointed = values();
    at("pointerleave", 0.3);
    timed.left = values();
    at("pointerdown", 0.25); at("pointermove", 0.5); at("pointerup", 0.5);
    timed.dragged = [svg.style.width, svg.style.marginLeft, reset.disabled];
    timed.axis = chart.querySelector(".x-axis").textContent;
    press("+");
    timed.nearer = svg.style.width;
    reset.click();
    timed.reset = [svg.style.width, reset.disabled];
    press("-");
    timed.out = svg.style.width;
    const turn = turned({{ ctrlKey: true }});
    drawn.dispatchEvent(turn);
    timed.wheel = [svg.style.width, turn.defaultPrevented];
    press("Escape");
    const scrolled = turned();
    drawn.dispatchEvent(scrolled);
    timed.scrolls = !scrolled.defaultPrevented;
    found.timed = timed;
  }}
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


def over_time() -> Report:
    """Two ranks over a minute: one waits for input at first, and is waited for later."""
    report = replace(
        samples.many_ranks(2, slow=1), timeline=tuple(TimelinePoint(6.0 * n, 30.0, 0.6) for n in range(10))
    )
    history = History(
        start_s=0.0,
        slice_s=0.6,
        phases={"input_wait": (0.1,) * 50 + (0.2,) * 50, "backward": (0.5,) * 50 + (0.4,) * 50},
        steps={0: (1.0,) * 100, 1: (1.0,) * 100},
        step_s={0: (0.6,) * 100, 1: (0.6,) * 100},
        late_s={0: (0.0,) * 100, 1: (0.3,) * 100},
    )
    job = replace(report.job, duration_s=60.0)
    return replace(report, job=job, segments=(), history=compared(history))


REPORTS = {
    "a run over time": over_time,
    "a bottleneck": samples.bottleneck,
    "a healthy job": samples.healthy,
    "64 ranks": wide,
    "a dead rank": samples.dead_rank,
    "no step": samples.inconclusive,
    "hostile strings": samples.hostile,
}


def shown_by_chromium(source: str, folder: Path, *options: str) -> tuple[str, list[str]]:
    """The document as it is after its scripts have run, and what the console said."""
    assert CHROMIUM is not None
    page = folder / "page.html"
    page.write_text(source, encoding="utf-8", errors="replace")
    done = subprocess.run(
        [CHROMIUM, *OPTIONS, *options, f"--user-data-dir={folder / 'profile'}", "--dump-dom", page.as_uri()],
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


def looked_at(report: Report, folder: Path, *options: str, width: int = 1400) -> Any:
    return seen(render(report, "html").encode("utf-8", "replace").decode(), folder, *options, width=width)


def seen(source: str, folder: Path, *options: str, width: int) -> Any:
    shown, console = shown_by_chromium(AROUND.format(width=width, page=html.escape(source)), folder, *options)
    answer = re.search('data-found="([^"]*)"', shown)
    assert console == [] and answer, (console, shown[-500:])
    return json.loads(html.unescape(answer[1]))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["a bottleneck", "a healthy job", "64 ranks", "a dead rank"])
def test_all_text_has_the_contrast_of_wcag_aa(name: str, scheme: str, tmp_path: Path) -> None:
    number = {"dark": 0, "light": 1}[scheme]  # blink::mojom::PreferredColorScheme
    found = looked_at(REPORTS[name](), tmp_path, f"--blink-settings=preferredColorScheme={number}")
    assert found["faint"] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_tables_of_other_results_are_whole_on_a_phone(width: int, tmp_path: Path) -> None:
    page = html.escape(document_html.render(every_block("a-word-of-" * 12)))
    inside = AROUND.replace(
        "sideways:",
        'hidden: all("table.stacking").filter((t) => t.scrollWidth > t.parentElement.clientWidth).length, sideways:',
    )
    shown, console = shown_by_chromium(inside.format(width=width, page=page), tmp_path)
    answer = re.search('data-found="([^"]*)"', shown)
    assert console == [] and answer, shown[-500:]
    found = json.loads(html.unescape(answer[1]))
    assert found["sideways"] <= 0 and (found["hidden"] == 0 or width > 400)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("made", [trial_samples.several, trial_samples.undecided])
def test_a_page_of_trials_is_whole_and_its_changes_can_be_copied(
    made: Callable[[], Tried], width: int, tmp_path: Path
) -> None:
    found = seen(trial_pages.render(made(), "html"), tmp_path, width=width)
    assert found["sideways"] <= 0 and found["cut"] == [] and found["faint"] == []
    copies = sum(bool(trial.change) + bool(trial.diff) for trial in made().trials if trial.outcome == "faster")
    assert found["buttons"] == found["boxes"] == copies


@pytest.mark.parametrize("width", WIDTHS)
def test_the_timeline_shows_values_at_the_pointer_and_zooms(width: int, tmp_path: Path) -> None:
    found = looked_at(over_time(), tmp_path, width=width)
    timed = found["timed"]
    assert (
        timed["pointed"][0] == "30 samples/s"
        and "100 ms" in timed["pointed"]
        and "600 ms, 300 ms late" in timed["pointed"]
    )
    assert timed["left"] == timed["before"] and timed["whole"] == timed["out"] == "100%"
    assert timed["dragged"] == ["400%", "-100%", False] and timed["axis"].startswith("15.0 s")
    assert timed["nearer"] == "800%" and timed["reset"] == ["100%", True]
    assert timed["wheel"] == ["125%", True] and timed["scrolls"]
    assert found["sideways"] <= 0


def test_on_paper_everything_is_unfolded_but_the_environment(tmp_path: Path) -> None:
    assert CHROMIUM is not None
    page, paper = tmp_path / "page.html", tmp_path / "paper.pdf"
    page.write_text(render(samples.bottleneck(), "html"), encoding="utf-8")
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    command = [CHROMIUM, *OPTIONS, profile, f"--print-to-pdf={paper}", page.as_uri()]
    subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=True)
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", paper.read_bytes())) <= PAPER_PAGES_MOST


def test_a_script_that_slips_in_does_not_run(tmp_path: Path) -> None:
    """The page's policy names the hash of its own script."""
    source = render(samples.bottleneck(), "html")
    spoilt = source.replace("</main>", "<script>document.title = 'spoilt'</script></main>")
    shown, console = shown_by_chromium(spoilt, tmp_path)
    assert "<title>spoilt" not in shown and "Content Security Policy" in " ".join(console)
