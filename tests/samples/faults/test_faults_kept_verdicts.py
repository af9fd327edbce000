"""What was said of seeded faults stands on the screen's first view: why, what to type or change, and the gain, at 80x24 and 120x36."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from samples.faults.__main__ import main
from samples.faults.catalogue import SCENARIOS
from samples.faults.fixtures import SlowDenormals
from samples.faults.kept_verdicts import CLONE, ROOT, document, read, reports, write

import report_samples as samples
from first_views import FIRST_VIEW_SIZES, missing_of
from rn50_advisor.advisor.model.recorded_report import from_json
from rn50_advisor.advisor.tui.panels.verdict_lines import fix_line, gain_line, why_line
from tui_doubles import Reports, screen_lines, settle, shown


@pytest.mark.parametrize("size", FIRST_VIEW_SIZES)
async def test_why_what_to_type_and_the_gain_stand_on_the_first_view_of_each_seeded_fault(
    size: tuple[int, int],
) -> None:
    kept = reports()
    missing = {}
    async with shown(Reports(samples.empty()), size) as (app, pilot):
        for name, report in kept.items():
            app._receive_report(report, "")
            await settle(app, pilot)
            if found := missing_of(screen_lines(app), report):
                missing[name] = found
    assert missing == {}


def test_right_verdicts_are_kept_of_each_fault() -> None:
    """All but those that the processor of the machine may not have."""
    named = {scenario.name: scenario for scenario in SCENARIOS}
    kept = reports()
    assert set(kept) <= set(named)
    assert {name for name, report in kept.items() if report.verdict.rule not in named[name].truth.roots} == set()
    faults = {s.name: s for s in SCENARIOS if s.truth.roots and "healthy" not in s.truth.roots}
    missing = {name for name in set(faults) - set(kept) if SlowDenormals() not in faults[name].fixtures}
    assert missing == set()


@pytest.mark.parametrize("width", [80, 120])
def test_a_document_draws_the_same_lines_as_the_report_that_it_is_of(width: int) -> None:
    report = samples.bottleneck()
    again = from_json(document(report))
    for draw in (why_line, fix_line, gain_line):
        assert draw(again, width).plain == draw(report, width).plain
    assert len(str(document(report))) < 4000


@pytest.mark.parametrize("wanted", [True, False])
def test_a_pass_keeps_the_right_verdicts_where_they_are_asked_for(tmp_path: Path, *, wanted: bool) -> None:
    file = tmp_path / "verdicts.json.gz"
    asked = [f"--verdicts={file}"] if wanted else []
    done = CliRunner().invoke(main, ["--only=recorded-blocking-copies", f"--folder={tmp_path / 'jobs'}", *asked])
    assert done.exit_code == 0, done.output
    assert list(read(file)) == (["recorded-blocking-copies"] if wanted else [])


def test_documents_are_added_to_a_file_and_name_no_folder_of_this_machine(tmp_path: Path) -> None:
    file = tmp_path / "verdicts.json.gz"
    assert read(file) == {}
    report = samples.bottleneck()
    moved = document(replace(report, environment={"cwd": f"{ROOT}/.faults"}))
    assert moved["environment"]["cwd"] == f"{CLONE}/.faults"
    write({"one": moved}, file)
    write({**read(file), "two": moved}, file)
    assert list(read(file)) == ["one", "two"]
    before = file.read_bytes()
    write(read(file), file)
    assert file.read_bytes() == before
