"""The HTML report: well-formed, self-contained, small, complete without its script, accessible; job strings are never markup."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

import report_samples as samples
from document_samples import every_block
from rn50_advisor.advisor.model.findings import Fix
from rn50_advisor.advisor.model.report import SCHEMA, GpuStrip, Segment
from rn50_advisor.advisor.report import document_html, render

VOID = {"meta", "link", "br", "img", "hr", "input"}
WORDS = """html head meta title style body header main section footer div span p b i strong ul li dl dt dd h1 h2 h3 h4 pre code
article details summary table thead tbody tfoot tr th td svg rect text line polygon polyline circle path script"""
OWN_ELEMENTS = set(WORDS.split())
SVG_LEAVES = {"line", "rect", "polygon", "polyline", "circle", "path"}


class Page(HTMLParser):
    """Checks nesting while it reads; keeps elements with their attributes, and text by element."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[tuple[str, str]] = []
        self.comments: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in SVG_LEAVES
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append((self.open[-1] if self.open else "", data))

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def words(self) -> str:
        return " ".join(" ".join(data for tag, data in self.text if tag not in ("script", "style")).split())

    def data(self) -> dict[str, object]:
        document: dict[str, object] = json.loads(self.scripts()[0])
        return document

    def scripts(self) -> list[str]:
        """The content of the data element and of the script."""
        return [data for tag, data in self.text if tag == "script"]

    def policy(self) -> str:
        (found,) = (m for m in self.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
        return str(found["content"])


@pytest.fixture(params=[*samples.ALL, "another result", "a hostile result"])
def page(request: pytest.FixtureRequest) -> Page:
    if request.param in samples.ALL:
        return Page(render(samples.ALL[request.param](), "html"))
    return Page(document_html.render(every_block(" ".join(samples.HOSTILE) if "hostile" in request.param else "said")))


def test_nothing_is_loaded_and_only_the_pages_own_script_runs(page: Page) -> None:
    data, *own = page.all("script")
    assert data in [{"type": "application/json", "id": f"{kind}-data"} for kind in ("report", "sample")]
    assert own == [{}]
    loading = {"src", "href", "srcset", "action", "data", "poster", "background", "xlink:href"}
    for tag, attributes in page.elements:
        assert not loading & attributes.keys(), tag
        assert not any(name.startswith("on") for name in attributes), tag
    assert page.comments == []
    style = "".join(data for tag, data in page.text if tag == "style")
    assert "url(" not in style and "@import" not in style
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in page.scripts()[1:]]
    allowed = [part for part in page.policy().split("; ") if part.startswith("script-src")]
    assert "default-src 'none'" in page.policy() and allowed == [f"script-src 'sha256-{one}'" for one in hashes]


def test_the_script_is_the_same_for_every_report_and_makes_no_markup() -> None:
    (one,), (other,) = (Page(render(report, "html")).scripts()[1:] for report in (samples.healthy(), samples.hostile()))
    assert one == other
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval|Function\(|fetch|XMLHttp|import", one
    )


def test_only_our_own_elements_are_in_it(page: Page) -> None:
    assert {tag for tag, _ in page.elements} <= OWN_ELEMENTS


def test_it_is_accessible(page: Page) -> None:
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("h1")) == 1 and len(page.all("main")) == 1
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), levels
    assert all(cell.get("scope") in ("row", "col") for cell in page.all("th"))
    ids = [str(attributes["id"]) for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert all(section["aria-labelledby"] in ids for section in page.all("section"))
    drawn = [svg for svg in page.all("svg") if "viewbox" not in svg]  # the inner one only stretches the plot
    assert all(svg.get("role") == "img" and svg.get("aria-label") for svg in drawn)


@pytest.mark.parametrize("name", samples.ALL)
def test_it_stays_below_400_kb(name: str) -> None:
    assert len(render(samples.ALL[name](), "html").encode("utf-8", "replace")) <= 400_000


def test_findings_with_long_diffs_are_left_out_before_the_page_grows_too_large() -> None:
    diff = "\n".join(f'-    loader = DataLoader("<{n}>", batch_size={n})' for n in range(400))
    first = replace(samples.LOADER, fixes=(Fix("Change it", diff=diff),))
    others = (replace(first, rule=f"XXX{n:03d}", explained_by=None, explains=()) for n in range(39))
    source = render(replace(samples.bottleneck(), findings=(first, *others)), "html")
    shown = source.count('<article class="finding')
    assert len(source.encode()) <= 400_000 and 1 <= shown < 40
    assert f"{40 - shown} more are in the JSON report" in Page(source).words()


@pytest.mark.parametrize("format", ["text", "md", "html"])
def test_what_is_not_listed_is_counted(format: str) -> None:
    report = replace(
        samples.bottleneck(),
        findings=tuple(replace(samples.LOADER, rule=f"XXX{n:03d}", explained_by=None) for n in range(45)),
        segments=tuple(Segment("epoch", float(n), n + 1.0) for n in range(1000)),
        gpus=tuple(GpuStrip(n, "H100", util_pct=50.0) for n in range(512)),
        environment={f"key{n}": n for n in range(70)},
    )
    shown = Page(render(report, "html")).words() if format == "html" else render(report, format)
    assert shown.count("more are in the JSON report") >= (3 if format == "md" else 4)


def test_a_report_too_large_to_embed_says_what_it_left_out() -> None:
    data = Page(render(samples.hostile(), "html")).data()
    assert data["schema"] == SCHEMA and "verdict" in data and "facts" in data["omitted"]  # type: ignore[operator]


def test_the_embedded_data_is_the_report() -> None:
    report = samples.bottleneck()
    assert Page(render(report, "html")).data() == json.loads(render(report, "json"))


def test_everything_that_matters_is_there_as_text() -> None:
    words = Page(render(samples.bottleneck(), "html")).words()
    for said in (
        "Bottleneck DAT003 Loading happens in the training process",
        "predicted gain about 2.5× 2.1–2.9×",
        "lost per step 412 ms",
        "samples/train.py:142",
        "num_workers=6, pin_memory=True",
        "input wait share 70 % 5.0 % of the steady step",
        "waiting for input 412 ms 70 % 412 ms 70 % 431 ms 72 %",
        "preprocessing ◀ bottleneck 154 148–161",
        "compute ◁ caps the gain 424 410–440",
        "worker-to-loop transfer not measured",
        "workers: 0 → 109 (measured), 1 → 140–160, 2 → 250–300, 3 → 330–390 (point of diminishing returns)",
        "Ranks wait for a straggler COM002 rank 1, since step 40 · costs 48.0 ms per step",
        "CPU002 CPU steal time needs CPU steal",
        "24 Training efficiency 141 ms of a 587 ms step are useful compute",
        "saves 2m 13s – 2m 43s of this run",
        "CPU steal host this kernel does not count stolen time run on the host to see it",
        "torchrun --nproc_per_node=2 samples/train.py --batch-size 32",
        "14.2 µs (<0.1 % of it)",
    ):
        assert said in words, said


def test_the_curve_marks_the_measured_point_and_the_knee_where_they_are() -> None:
    page = Page(render(samples.bottleneck(), "html"))
    (dot,) = page.all("circle")
    assert (dot["cx"], dot["class"]) == ("1.00%", "dot") and float(dot["cy"]) == pytest.approx(
        132 * (1 - 109 / 500), abs=0.1
    )
    (knee,) = [line for line in page.all("line") if line["class"] == "knee"]
    assert knee["x1"] == knee["x2"] == f"{1 + 94 * 3 / 8:.2f}%"
    assert not Page(render(replace(samples.bottleneck(), worker_curve=None), "html")).all("circle")


def test_it_is_in_the_order_of_lighthouse() -> None:
    """https://developer.chrome.com/docs/lighthouse: the score, opportunities, diagnostics, passed audits."""
    ids = [
        str(attributes["id"])
        for tag, attributes in Page(render(samples.bottleneck(), "html")).elements
        if tag in ("h1", "h2") and "id" in attributes
    ]
    chosen = ["verdict", "opportunities", "diagnostics", "budget", "machine", "passed", "unmeasured"]
    assert [name for name in ids if name in chosen] == chosen


def test_opportunities_come_by_saved_time_and_what_saves_nothing_is_a_diagnostic() -> None:
    costly = replace(samples.CHECKPOINT, seconds_per_step=0.5)
    unknown = replace(samples.STRAGGLER, explained_by=None)
    words = Page(render(replace(samples.bottleneck(), findings=(costly, unknown, samples.LOADER)), "html")).words()
    order = ["Opportunities", "critical Loading happens", "low Checkpoints stop", "Diagnostics", "medium Ranks wait"]
    places = [words.index(part) for part in order]
    assert places == sorted(places)


def test_gpu_hours_are_told_where_ranks_have_gpus() -> None:
    report = samples.bottleneck()
    assert "GPU-hours" not in Page(render(report, "html")).words()
    gpus = tuple(replace(samples.gpu(n), ranks=str(n)) for n in range(2))
    assert "0.0741–0.0908 GPU-hours on 2 GPUs" in Page(render(replace(report, gpus=gpus), "html")).words()


def test_a_score_that_is_not_known_says_why() -> None:
    words = Page(render(samples.inconclusive(), "html")).words()
    assert "– Training efficiency not known: 0 steady steps observed, 30 are needed" in words


def test_passed_and_unmeasured_checks_are_folded_and_named() -> None:
    source = render(samples.bottleneck(), "html")
    for name, number in (("passed", 6), ("unmeasured", 2)):
        assert re.search(
            rf'<details class="fold">\s*<summary><h2 id="{name}">[^<]*<span class="quiet">{number}<', source
        )
    assert "DAT001 The job waits for data" not in source  # titles are those of the rules
    assert re.search(r"<b>LOP002</b> [A-Z]?\w+", source)


def test_what_to_type_stands_with_the_fix_and_can_be_copied() -> None:
    fix = replace(samples.LOADER.fixes[0], typed=("--workers 6",), diff="--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y")
    report = replace(samples.bottleneck(), findings=(replace(samples.LOADER, fixes=(fix,)),))
    page = Page(render(report, "html"))
    assert [box["data-copy"] for box in page.all("div") if "data-copy" in box] == [
        *("option", "change", "diff") * 2,
        "command",
    ]
    assert "--workers 6" in page.words()


def test_all_64_ranks_have_a_bar_and_most_are_folded() -> None:
    source = render(samples.many_ranks(64), "html")
    bars = [
        div["data-ranks"]
        for div in Page(source).all("div")
        if (div.get("class") or "").startswith("row") and "data-ranks" in div
    ]
    assert sorted(map(int, filter(None, bars))) == list(range(64))
    assert "48 more ranks" in source and len(source.encode()) <= 400_000


def test_the_evidence_of_the_verdict_is_open_and_the_rest_folded() -> None:
    opened = ["open" in details for details in Page(render(samples.bottleneck(), "html")).all("details")]
    assert opened.count(True) == 1


def test_bars_are_as_long_as_the_time_they_stand_for() -> None:
    page = Page(render(samples.bottleneck(), "html"))
    waits = [rect for rect in page.all("rect") if rect["class"] == "p-input-wait"]
    widths = [float(str(rect["width"]).rstrip("%")) for rect in waits]
    whole = sum(samples.bottleneck().budget.per_rank[1].values())
    assert widths == pytest.approx([100 * s / whole for s in (0.412, 0.412, 0.431)], abs=0.01)


def test_the_rate_of_this_run_is_at_the_same_place_in_every_stage() -> None:
    page = Page(render(samples.bottleneck(), "html"))
    places = {line["x1"] for line in page.all("line") if line["class"] == "measured"}
    assert len(places) == 1


def test_a_gap_in_the_timeline_breaks_the_line() -> None:
    report = replace(samples.bottleneck(), worker_curve=None)
    holed = tuple(replace(p, samples_per_s=None) if 100 <= p.t_s <= 120 else p for p in report.timeline)
    count = [len(Page(render(r, "html")).all("polyline")) for r in (report, replace(report, timeline=holed))]
    assert count == [1 + 3, 2 + 3]  # three sparklines


def test_who_was_late_is_marked_over_the_run() -> None:
    report = samples.bottleneck()
    late = tuple(replace(p, late_rank=1, late_s=0.29) if 100 <= p.t_s < 120 else p for p in report.timeline)
    plain, marked = (Page(render(r, "html")) for r in (report, replace(report, timeline=late)))
    marks = [rect for rect in marked.all("rect") if rect.get("class") == "late" and rect["height"] == "8"]
    assert len(marks) == 10 and {rect["opacity"] for rect in marks} == {"0.62"}  # half of the step
    assert "the others wait 290 ms per step for rank 1" in marked.words()
    assert "a rank that is waited for" in marked.words() and "waited for" not in plain.words()


def test_hostile_strings_are_shown_not_obeyed() -> None:
    source = render(samples.hostile(), "html")
    page = Page(source)
    assert "<script>alert(1)</script>" in page.words()
    assert "{{ 7*7 }}" in page.words() and "49" not in str(page.all("title"))
    assert "<img" not in source and source.count("<script>") == 1  # our own


def test_the_json_report_has_the_score_or_the_reason_why_there_is_none() -> None:
    known, unknown = (
        json.loads(render(r, "json"))["efficiency"] for r in (samples.bottleneck(), samples.inconclusive())
    )
    assert (known["score"], known["unknown"], known["lost_to"]) == (24, None, "DAT003")
    assert known["useful_s"] == pytest.approx(0.141) and known["step_s"] == pytest.approx(0.587)
    assert unknown["score"] is None and "steady steps" in unknown["unknown"] and set(unknown) == {"score", "unknown"}


def test_json_has_the_time_lost_and_what_each_fix_saves_in_the_order_of_the_page() -> None:
    report = samples.bottleneck()
    made = json.loads(render(replace(report, gpus=(replace(samples.gpu(0), ranks="0"),)), "json"))
    lost, first, second = made["time_lost"], *made["opportunities"]
    assert (
        lost["rule"] == "DAT003" and lost["gpu_hours"] == pytest.approx(lost["seconds"] / 3600) and not lost["unknown"]
    )
    assert (first["rule"], second["rule"]) == ("DAT003", "LOP001")
    assert made["findings"][second["finding"]]["rule"] == "LOP001"
    assert first["gpu_hours"] == pytest.approx([seconds / 3600 for seconds in first["saved_s"]])
    unknown = json.loads(render(samples.hang(), "json"))
    assert (
        unknown["time_lost"]["seconds"] is None and unknown["time_lost"]["unknown"] and unknown["opportunities"] == []
    )


def test_lines_of_the_jobs_code_stand_in_rows() -> None:
    lines = {"train.py:34": "14 % of the step", "<b>": "9 %"}
    page = render(replace(samples.healthy(), facts={"lines": lines}), "html")
    assert '<th scope="row"><code>train.py:34</code></th><td>14 % of the step</td>' in page
    assert "<code>&lt;b&gt;</code>" in page
