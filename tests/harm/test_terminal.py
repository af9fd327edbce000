"""No text of the job, of a run file or of a command line makes a terminal or a page obey, hide or reorder: through every surface."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import sqlite3
import subprocess
import sys
import tarfile
import unicodedata
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]

import report_samples  # noqa: E402
import tui_doubles  # noqa: E402
from rn50_advisor.advisor.cli import _outcome  # noqa: E402
from rn50_advisor.advisor.model import visible_text  # noqa: E402
from rn50_advisor.advisor.report import (  # noqa: E402
    FORMATS,
    inert_text,
    render,
    styled_lines,
    text,
)
from rn50_advisor.advisor.run.launch.output_lines import OutputTail  # noqa: E402
from rn50_advisor.advisor.tui.app import AdvisorApp  # noqa: E402
from rn50_advisor.advisor.tui.styles.drawing import (  # noqa: E402
    fit,
    prose,
    unmarked,
)

ENVIRONMENT = {"PYTHONPATH": str(TESTS.parent / "src"), "PATH": "/bin:/usr/bin"}
HIDDEN_LETTERS = "\u034f\u115f\u1160\u3164\uffa0\u17b4\u17b5" + "".join(map(chr, range(0xFE00, 0xFE0F)))
SIGNS_OF_ARABIC = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
FORMAT_CHARACTERS = "".join(
    chr(n)
    for n in range(sys.maxunicode)
    if unicodedata.category(chr(n)) == "Cf" and n not in SIGNS_OF_ARABIC and not 0x13430 <= n <= 0x1345F
)
CONTROLS = "".join(map(chr, (*range(32), *range(0x7F, 0xA0))))
NASTY = (
    *(f"a{character}b" for character in CONTROLS + HIDDEN_LETTERS + "\u202e\u2066\u200b\u2028\u2029\ud800\udfff\ufffe"),
    FORMAT_CHARACTERS,
    "".join(map(chr, range(0xE0000, 0xE0080))),
    "\x1b]52;c;ZWNobyBib28=\x07clip",
    "\x1b]0;title\x1b\\\\done",
    "\x1b]8;;http://evil\x07link\x1b]8;;\x07",
    "\x1b[?1049h\x1b[2J\x1b[31mred\x9b31m\x9d0;t\x9c",
    "\x1bP$q\x1b\\\\ \x1b",
    "e" + "\u0301" * 400,
    "[x](javascript:alert(1)) ![i](http://evil/x.png) <b>`|`</b> | \\\\| [bold]m[/] @all",
)
ALL = " ".join(NASTY)


BAD = {chr(n) for n in range(sys.maxunicode) if unicodedata.category(chr(n)) in ("Cc", "Cs", "Zl", "Zp")} | {
    *FORMAT_CHARACTERS,
    *HIDDEN_LETTERS,
}
MARKS = {chr(n) for n in range(sys.maxunicode) if unicodedata.category(chr(n)) in ("Mn", "Me")}


def found_in(shown: str, *, colours: bool = False, also: str = "\n\t") -> list[str]:
    """Characters that a terminal would obey, or that a reader would not see."""
    if colours:
        shown = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    bad = [f"U+{ord(c):04X}" for c in sorted(BAD.intersection(shown).difference(also))]
    few = "".join("m" if c in MARKS else " " for c in shown)
    return [*bad, *(["a tower of marks"] if "mmmmm" in few else [])]


def without_breaks(markdown: str) -> str:
    """Our own: a space of no width keeps mentions and links from ringing."""
    return markdown.replace("@\u200b", "@").replace(":\u200b//", "://")


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(report_samples, "HOSTILE", (*NASTY[-12:], ALL[:3000]))
    return report_samples.hostile()


# -- the deciding function ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [visible_text.on_one_line, inert_text.one_line, inert_text.block, inert_text.diff, unmarked]
)
@pytest.mark.parametrize("nasty", [*NASTY[-7:], ALL], ids=range(8))
def test_nothing_that_is_obeyed_or_hides_comes_through(make: Any, nasty: str) -> None:
    assert found_in(make(nasty)) == []


def test_each_single_character_is_either_seen_or_gone() -> None:
    for first in range(0, sys.maxunicode, 4096):
        characters = map(chr, range(first, first + 4096))
        assert found_in(visible_text.on_one_line("a".join(characters)), also="") == []


@pytest.mark.parametrize(
    "words",
    [
        "שלום עולם",
        "בְּרֵאשִׁית",
        "مرحبا بالعالم",
        "नमस्ते दुनिया",
        "größe 日本 한국어",
        "❤️ 👍🏽 🇩🇪 🔥",
        "naïve e\u0301",
        "\u0600١٢",
    ],
)
def test_what_people_write_stays_as_it_is(words: str) -> None:
    assert visible_text.on_one_line(words) == words
    assert visible_text.coloured(f"\x1b[1;31m{words}\x1b[0m") == f"\x1b[1;31m{words}\x1b[0m"


def test_drawing_functions_of_the_screen_let_nothing_through() -> None:
    for nasty in NASTY:
        assert found_in(fit(nasty, 60), also="") == []
        assert [line for line in prose(nasty, 40) if found_in(line, also="")] == []


# -- reports ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_reports_of_all_formats(hostile: Any, format: str) -> None:
    assert found_in(without_breaks(render(hostile, format))) == []


def test_the_summary_and_coloured_lines(hostile: Any) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "xterm")
        patch.delenv("NO_COLOR", raising=False)
        styled_lines.paint(text.summary_lines(hostile, ALL), screen)
        styled_lines.paint([[(nasty, "code")] for nasty in NASTY], screen)
    assert "\x1b[" in screen.getvalue()
    assert found_in(screen.getvalue(), colours=True) == []


def test_markdown_has_no_link_image_or_element_of_the_job(hostile: Any) -> None:
    from markdown_it import MarkdownIt

    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(render(hostile, "md"))
    kinds = {child.type for token in tokens for child in token.children or []}
    assert kinds.isdisjoint({"link_open", "image"})
    html = {child.content for token in tokens for child in (token, *(token.children or [])) if "html" in child.type}
    assert all(re.fullmatch(r"(</?(details|summary)>|[\w ,]|\n)*", element) for element in html), html


def test_the_title_of_the_page_is_plain(hostile: Any) -> None:
    title = re.search(r"<title>(.*?)</title>", render(hostile, "html"), re.S)
    assert title is not None and found_in(title[1]) == [] and "<" not in title[1]


# -- run files and commands ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose every name, argument, path and sentence carries all of it."""
    run = tmp_path_factory.mktemp("spoilt")
    with tarfile.open(Path(__file__).with_name("small_run.tar.gz")) as archive:
        member = next(m for m in archive.getmembers() if m.name.endswith("run.sqlite"))
        source = archive.extractfile(member)
        assert source is not None
        (run / "run.sqlite").write_bytes(source.read())
    nasty = ALL.encode("utf-8", "replace").decode()
    with contextlib.closing(sqlite3.connect(run / "run.sqlite")) as db:
        for table, column in (("facts", "value"), ("events", "data"), ("part_names", "value")):
            for rowid, value in db.execute(f"SELECT rowid, {column} FROM {table}").fetchall():
                document = _spoil(json.loads(value))
                db.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (json.dumps(document), rowid))
        for table, column in (("gaps", "reason"), ("gaps", "hint"), ("gaps", "scope"), ("processes", "command")):
            db.execute(f"UPDATE {table} SET {column} = {column} || ?", (nasty,))
        values = {"name": ALL, "argv": [*NASTY], "host": ALL, "cwd": ALL, "recording_stopped_reason": ALL}
        for key, value in values.items():
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))
        (environment,) = db.execute("SELECT value FROM meta WHERE key = 'environment'").fetchone()
        db.execute(
            "UPDATE meta SET value = ? WHERE key = 'environment'", (json.dumps(_spoil(json.loads(environment))),)
        )
        db.commit()
    return run


def _spoil(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _spoil(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_spoil(inner) for inner in value]
    return f"{value} {ALL}" if isinstance(value, str) and value not in ("stall-1", "cpu") else value


def said_by(capfdbinary: Any, *arguments: str) -> tuple[int, str]:
    code = _outcome(list(arguments))
    sys.stdout.flush()
    out, err = capfdbinary.readouterr()
    return code, (out + err).decode("utf-8")


@pytest.mark.parametrize("format", FORMATS)
def test_the_report_of_a_hostile_run_file(spoilt: Path, capfdbinary: Any, format: str) -> None:
    code, said = said_by(capfdbinary, "report", str(spoilt), "--format", format)
    assert code == 0 and len(said) > 1000
    assert found_in(without_breaks(said)) == []


@pytest.mark.parametrize("format", ["text", "md", "html"])
def test_the_comparison_of_hostile_run_files(spoilt: Path, capfdbinary: Any, format: str) -> None:
    code, said = said_by(capfdbinary, "compare", str(spoilt), str(spoilt), "--format", format)
    assert code == 0
    assert found_in(without_breaks(said)) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", ALL[:200]),
        ("report", "."),
        ("watch", NASTY[-6]),
        ("explain", ALL[:200]),
        ("compare", ALL[:200], "x"),
        ("bundle", NASTY[-5]),
        ("report", "--config", NASTY[-7]),
        ("report", "--format", ALL[:100]),
        (NASTY[-6],),
        ("rules", f"--{NASTY[-7]}"),
    ],
    ids=lambda arguments: arguments[0][:6].encode("ascii", "ignore").decode().strip("\x1b]"),
)
def test_errors_and_hints_of_commands(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    clean = tuple(a.replace("\0", "") for a in arguments)
    code, said = said_by(capfdbinary, *clean)
    assert code != 0 and said
    assert found_in(said) == []


def test_a_command_that_is_not_found_is_named_without_harm(tmp_path: Path) -> None:
    for nasty in NASTY[-6:-1]:
        command = [sys.executable, "-m", "rn50_advisor.advisor.cli", "run", "--no-tui", "--", f"no-such-{nasty}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, env=ENVIRONMENT)
        assert done.returncode in (126, 127)
        assert found_in(done.stderr.decode()) == []


def test_what_the_job_prints_is_the_jobs_without_a_screen(tmp_path: Path) -> None:
    printed = ALL.encode("utf-8", "replace")
    (tmp_path / "printed").write_bytes(printed)
    command = [sys.executable, "-m", "rn50_advisor.advisor.cli", "run", "--no-tui", "--", "cat", "printed"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        check=True,
        env=ENVIRONMENT,
    )
    assert done.stdout == printed


# -- the screen ---------------------------------------------------------------------------------------------------------------------


def shown_by(app: AdvisorApp) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


def test_the_output_pane_and_every_view(hostile: Any, tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_bytes(
        b"".join(nasty.encode("utf-8", "replace") + b"\n" for nasty in NASTY) + b"\x1b[31mthe last\xe2\x80\xae line"
    )

    async def look() -> None:
        source = tui_doubles.Reports(hostile)
        output = OutputTail(log)
        async with tui_doubles.shown(source, (140, 60), output=output, title=ALL) as (app, pilot):
            for key in ("1", "2", "3", "4", "5", "question_mark", "escape", "o"):
                await pilot.press(key)
                await tui_doubles.settle(app, pilot)
                assert found_in(shown_by(app), also="\n") == [], key
            await tui_doubles.until(pilot, lambda: "the last line" in shown_by(app))
            copied: list[str] = []
            app.copy_to_clipboard = copied.append  # type: ignore[method-assign]
            app.action_copy_finding()
            assert copied and found_in(copied[0]) == []

    asyncio.run(look())


def test_an_error_with_hostile_words_is_shown_without_harm() -> None:
    class Broken:
        def poll(self) -> Any:
            raise ValueError(ALL)

    async def look() -> None:
        async with tui_doubles.shown(Broken(), (140, 40)) as (app, pilot):
            await tui_doubles.until(pilot, lambda: "ValueError" in shown_by(app))
            assert found_in(shown_by(app), also="\n") == []

    asyncio.run(look())
