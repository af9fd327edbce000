"""The catalogue of seeded faults: every scenario is well-formed, and every job understands its command line."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner
from samples.faults.__main__ import main
from samples.faults.catalogue import SCENARIOS
from samples.faults.observe import SAMPLES
from samples.faults.scenario import HEALTHY, Job, Recorded, Remedy, Scenario, fault
from samples.gpus.stories import STORIES

from rn50_advisor.rules.registry import all_rules

each = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)


def jobs(scenario: Scenario) -> list[Job]:
    fixed = scenario.remedy.job if scenario.remedy else None
    return [job for job in (scenario.job, fixed) if isinstance(job, Job)]


def test_there_are_enough_scenarios_with_names_of_their_own() -> None:
    names = [scenario.name for scenario in SCENARIOS]
    assert len(set(names)) == len(names) >= 40
    assert sum(scenario.strength == "none" for scenario in SCENARIOS) >= 8
    assert 8 <= sum(scenario.suite == "fast" for scenario in SCENARIOS) <= 15


# Rules with scenarios clearly above, just above and just below their threshold.
AT_ALL_STRENGTHS = (
    *("CMP007", "COM001", "CPU001", "CPU005", "CPU006", "CPU007", "CPU008"),
    *(f"DAT{number:03}" for number in range(1, 16)),
    *(
        "DSK001",
        "DSK002",
        "LOP001",
        "LOP002",
        "LOP003",
        "LOP004",
        "LOP005",
        "LOP006",
        "LOP007",
        "LOP008",
        "LOP009",
        "RUN003",
        "RUN004",
    ),
    *(
        "CMP001",
        "CMP002",
        "CMP003",
        "CMP004",
        "CMP005",
        "CMP006",
        "CMP008",
        "CMP009",
        "CMP010",
        "CMP011",
        "COM005",
        "COM008",
        "CPU004",
    ),
    *(f"GPU{number:03}" for number in range(1, 9)),
    *("H2D001", "H2D002", "H2D003", "MEM002"),
)


@pytest.mark.parametrize("rule", AT_ALL_STRENGTHS)
def test_a_rule_keeps_its_three_strengths(rule: str) -> None:
    usual = [s for s in SCENARIOS if s.suite != "all"]
    about = [s for s in usual if rule in (*s.truth.roots[:1], *s.truth.noted, *s.truth.never)]
    assert {s.strength for s in about} == {"clear", "just above", "just below"}


def test_what_runs_only_with_all_has_a_rule_that_the_usual_suite_tries_too() -> None:
    roots = {rule for s in SCENARIOS if s.suite != "all" for rule in (*s.truth.roots, *s.truth.never)}
    more = [s for s in SCENARIOS if s.suite == "all"]
    assert all({*s.truth.roots, *s.truth.never} & roots for s in more)
    assert not any(s.strength == "none" for s in more)


def test_two_of_three_faults_run_with_their_fix_as_well() -> None:
    """A recorded story has no job to run."""
    faults = [s for s in SCENARIOS if s.strength in ("clear", "just above") and not isinstance(s.job, Recorded)]
    assert sum(s.remedy is not None for s in faults) >= 2 / 3 * len(faults)


def test_an_option_that_a_job_has_already_gets_its_new_value() -> None:
    job = Job("train.py", ("--steps=100", "--persistent"), ranks=2, start="one by one")
    assert job("--workers=1", "--steps=50") == Job(
        "train.py", ("--steps=50", "--persistent", "--workers=1"), ranks=2, start="one by one"
    )
    assert job(ranks=0).ranks == 0


@pytest.mark.parametrize("fixed", ["--workers=4", ("--workers=4",), Job("train.py", ("--workers=4",))])
def test_a_fix_is_another_job_or_what_changes_in_its_arguments(fixed: Job | str | tuple[str, ...]) -> None:
    scenario = fault(
        "too-few-workers", "DAT001", Job("train.py", ("--workers=1",)), fixed=fixed, untouched=("forward",)
    )
    assert scenario.remedy == Remedy(job=Job("train.py", ("--workers=4",)), untouched=("forward",))


@each
def test_a_scenario_names_rules_that_exist(scenario: Scenario) -> None:
    truth = scenario.truth
    known = {rule.id for rule in all_rules()}
    assert {*truth.roots, *truth.also, *truth.never, *truth.noted, *truth.silent} <= known | {HEALTHY}
    assert not isinstance(scenario.job, Recorded) or scenario.job.story in STORIES


@each
def test_a_scenario_is_of_one_kind(scenario: Scenario) -> None:
    truth = scenario.truth
    assert not (truth.roots and truth.never)
    assert bool(truth.never) == (scenario.strength == "just below")
    if scenario.strength == "none":
        assert not truth.roots
    assert len(truth.roots) < 2 or scenario.note, "more than one true root needs its reason"
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", scenario.name)


@each
def test_a_scenario_asks_only_for_what_its_fixtures_bring(scenario: Scenario) -> None:
    brought = {"CpuQuota": {"group"}, "SlowDisk": {"disk"}, "Images": {"images"}}
    fixtures = [type(fixture).__name__ for fixture in scenario.fixtures]
    known = {"out"}.union(*(brought.get(name, set()) for name in fixtures))
    for job in jobs(scenario):
        assert (SAMPLES / job.script).is_file()
        assert set(re.findall(r"{(\w+)}", " ".join(job.arguments))) <= known


@pytest.mark.torch
@each
def test_a_job_understands_its_command_line(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train").mkdir()
    for job in jobs(scenario):
        monkeypatch.syspath_prepend(str((SAMPLES / job.script).parent))
        values = {name: str(tmp_path) for name in ("out", "disk", "group", "images")}
        monkeypatch.setattr(sys, "argv", [job.script, *(argument.format_map(values) for argument in job.arguments)])
        module = load(SAMPLES / job.script)
        (getattr(module, "parse", None) or module.parse_arguments)()


def load(path: Path) -> ModuleType:
    name = f"faults_job_{path.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec and spec.loader
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def test_the_list_names_every_scenario_and_runs_none() -> None:
    shown = CliRunner().invoke(main, ["--list", "--all"])
    assert shown.exit_code == 0
    assert [line.split()[0] for line in shown.output.splitlines()] == [scenario.name for scenario in SCENARIOS]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--only", "pause"], {"pause"}),
        (["--only", "pause*", "--fast"], {"pause"}),
        (["--only", "pause*"], {"pause", "pause-a-little", "pause-hardly"}),
        ([], {scenario.name for scenario in SCENARIOS if scenario.suite != "all"}),
        (["--only", "in-process-stream"], {"in-process-stream"}),
        (["--fast"], {scenario.name for scenario in SCENARIOS if scenario.suite == "fast"}),
    ],
)
def test_a_selection_is_by_name_or_pattern(options: list[str], names: set[str]) -> None:
    shown = CliRunner().invoke(main, ["--list", *options])
    assert {line.split()[0] for line in shown.output.splitlines()} == names


def test_a_pattern_that_fits_nothing_is_refused() -> None:
    refused = CliRunner().invoke(main, ["--only", "no-such-fault"])
    assert refused.exit_code == 2 and "no-such-fault" in refused.output
