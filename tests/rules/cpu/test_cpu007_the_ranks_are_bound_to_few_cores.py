"""CPU007, the ranks are bound to few cores: its table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.advisor.trials.knobs import Knob, knob_of
from rule_cases import job, rank
from rule_runs import found
from rule_table import Table, waits, warm
from table_checks import Check, checks


def cpu007(
    delay: float = 0.3,
    bound: float = 1.0,
    free: float = 12.0,
    *,
    in_fetch: float = 0.0,
    wait: float = 0.0,
    allowed: float = 16.0,
    given: float | None = None,
    lost: Mapping[str, Any] | None = None,
    about: Mapping[str, Any] | None = None,
    **more: Any,
) -> Analysis:
    """Ranks wait so long for the cores that they are bound to; their workers for `in_fetch` of making a batch."""
    values: dict[str, Any] = {
        "step.run_delay_s": {0: delay, 1: delay},
        "cpu.affinity_cores": bound,
        "cpu.allowed_cores": allowed,
        "cpu.host_busy_cores": allowed - free,
        "fetch.delay_share": {0: in_fetch, 1: in_fetch},
    }
    values |= {} if given is None else {"cpu.given_cores": given}
    alike = {**(about or {}), **({"cpus_lost": dict(lost)} if lost else {})}
    facts = {str(number): {"cpus_allowed": list(range(int(bound))), **alike} for number in (0, 1)}
    own = {number: rank(input_wait=wait) for number in (0, 1)}
    return job(own, **{"values": values, "facts": facts, **more})


TABLE = Table(
    "CPU007",
    cpu007,
    lines={
        "beyond": ({"bound": 15.0}, {"bound": 15.01}),
        "free": ({"free": 0.5}, {"free": 0.49}),
        "in_fetch": ({"delay": 0.0, "wait": 0.6, "in_fetch": 0.2}, {"delay": 0.0, "wait": 0.6, "in_fetch": 0.1999}),
        "delay": ({"delay": 0.10}, {"delay": 0.0999}),
    },
    false_alarms={
        "each has a core of its own": {"delay": 0.01},
        "all cores are busy": {"free": 0.2},
        "a container that has no more": {"allowed": 1.0, "free": 0.5},
    },
    severities=waits("delay"),
    best=({"delay": 0.3}, warm(1 / 0.7)),
    also_fires={
        "workers on the core of their rank": {"delay": 0.02, "in_fetch": 0.8, "wait": 0.5},
        "a job that binds itself": {"allowed": 1.0, "free": 0.0, "given": 16.0},
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


LOST = {
    "file": "/job/train.py",
    "line": 3,
    "before": 16,
    "after": 1,
    "module": "binder",
    "by_import": True,
    "seen": {"file": "/job/train.py", "line": 20},
}
BINDING = {"OMP_PROC_BIND": "close", "KMP_AFFINITY": "verbose,none"}


def test_the_import_that_took_the_cores_is_named_and_they_are_given_back_after_it() -> None:
    finding = found("CPU007", cpu007(lost=LOST))
    assert (finding.evidence[1].value, finding.evidence[1].note) == (
        16,
        "until the import of binder at train.py:3, then 1",
    )
    (fix,) = finding.fixes
    assert (fix.title, fix.where) == ("restore the affinity after the import of binder", Where("/job/train.py", 3))
    assert fix.change == "os.sched_setaffinity(0, range(os.cpu_count())) right after it"
    knob = knob_of(fix)
    assert isinstance(knob, Knob) and knob.can_switch and knob.name == "os.sched_setaffinity(0, range(os.cpu_count()))"
    fix = found("CPU007", cpu007(lost=LOST, about={"binding_variables": BINDING})).fixes[0]
    assert fix.change.endswith("; or unset OMP_PROC_BIND=close")


def test_the_line_that_sets_a_variable_of_openmp_is_the_place() -> None:
    lines = {"OMP_PROC_BIND": {"file": "/job/train.py", "line": 2}}
    bound = cpu007(lost=LOST, about={"binding_variables": BINDING}, binding_lines=lines)
    (fix,) = found("CPU007", bound).fixes
    assert (fix.title, fix.where) == ("leave out OMP_PROC_BIND=close", Where("/job/train.py", 2))
    assert isinstance(knob_of(fix), Knob), "the same can be tried"
    unbound = cpu007(lost=LOST, about={"binding_variables": {"OMP_PROC_BIND": "false"}}, binding_lines=lines)
    assert found("CPU007", unbound).fixes[0].title.startswith("restore")
    other = {"KMP_AFFINITY": lines["OMP_PROC_BIND"]}
    by_other = cpu007(lost=LOST, about={"binding_variables": BINDING}, binding_lines=other)
    assert found("CPU007", by_other).fixes[0].title.startswith("restore"), "this line sets no variable that binds"
    before = cpu007(about={"cpus_at_start": 1, "binding_variables": BINDING}, binding_lines=lines)
    assert found("CPU007", before).fixes[0].where is None, "bound before the line ran"


def test_a_rank_with_cores_of_its_own_gets_no_more_back_than_these() -> None:
    fix = found("CPU007", cpu007(lost={**LOST, "before": 4})).fixes[0]
    assert fix.call is None, "nobody else knows which ones"
    assert fix.change.startswith(
        "os.sched_setaffinity(0, before) right after it, with before = os.sched_getaffinity(0)"
    )


def test_where_a_call_may_have_taken_them_both_lines_are_told() -> None:
    finding = found("CPU007", cpu007(lost={**LOST, "by_import": False}))
    assert (
        finding.evidence[1].note
        == "until the import of binder at train.py:3, or a call between it and train.py:20, then 1"
    )
    assert [fix.where for fix in finding.fixes] == [None, Where("/job/train.py", 3)]
    unknown = {"before": 16, "after": 1, "module": "", "by_import": False, "seen": {}}
    finding = found("CPU007", cpu007(lost=unknown))
    assert finding.evidence[1].note == "until a call before the first step, then 1"
    assert [fix.where for fix in finding.fixes] == [None]
    (fix,) = found("CPU007", cpu007(lost={**LOST, "file": "", "line": 0})).fixes
    assert fix.where is None, "the script may have come from standard input"


def test_cores_that_were_given_back_in_part_are_no_loss() -> None:
    assert len(found("CPU007", cpu007(bound=2.0, lost=LOST)).evidence) == 2


def test_a_binding_from_before_python_started_is_called_so() -> None:
    started = found("CPU007", cpu007(about={"cpus_at_start": 1, "binding_variables": BINDING}))
    assert started.evidence[0].note.startswith("core 0 for all ranks together, already when Python started, of 16")
    assert started.fixes[0].change.startswith("unset OMP_PROC_BIND=close; srun")
    unbound = {"OMP_PROC_BIND": "false", "OMP_PLACES": "cores"}
    later = found("CPU007", cpu007(about={"cpus_at_start": 16, "binding_variables": unbound}))
    assert "already" not in later.evidence[0].note and later.fixes[0].change.startswith("srun")
