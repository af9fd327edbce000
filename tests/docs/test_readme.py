"""README is a first page: short, complete in what it names, and its sample is the recorded run."""

from __future__ import annotations

from pathlib import Path

from rn50_advisor.advisor.commands.demo.demo import RUN
from rn50_advisor.advisor.merge.job_reading import read_job
from rn50_advisor.advisor.report import phrases
from rn50_advisor.advisor.verdict.diagnose import diagnose
from rn50_advisor.rules.registry import all_rules

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LINES_MAX = 150


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= LINES_MAX


def test_it_names_every_family_of_rules() -> None:
    families = {rule.id[:3] for rule in all_rules()}
    assert {family for family in families if f"`{family}`" not in README} == set()


def test_the_two_commands_for_a_fresh_clone_are_targets() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("demo", "test"):
        assert f"\nmake {target} " in README and f"\n{target}: " in makefile


def test_its_sample_is_the_verdict_on_the_run_that_demo_shows() -> None:
    report = diagnose(read_job(RUN))
    finding = next(found for found in report.findings if found.rule == report.verdict.rule)
    assert f"{report.verdict.title} ({report.verdict.rule})" in README
    assert f"\ngain    {phrases.gain(finding.saving)}\n" in README
    assert f"\nspeed   {report.throughput.samples_per_s:.1f} samples/s" in README
