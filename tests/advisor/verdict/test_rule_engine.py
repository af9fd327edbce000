"""From outcomes to a verdict: causes before consequences, what is worth reporting, and what cannot be judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import JOB, Analysis, Death, HotLine
from rn50_advisor.advisor.model.findings import (
    Affected,
    Clear,
    Crashed,
    Evidence,
    Finding,
    Fix,
    NotMeasured,
    Saving,
    Where,
)
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.recording import Meta
from rn50_advisor.advisor.model.report import Budget, OutcomeRow, StepTime, Throughput
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.model.wording.gain_words import speedup
from rn50_advisor.advisor.verdict.likely_gain import errors_of, expected
from rn50_advisor.advisor.verdict.rule_engine import WATCHED_RUN, Judgement, judge, run_rule
from rn50_advisor.rules.rule import Rule, Threshold, Thresholds

ENDED = Meta("job", ("python", "train.py"), "/job", "node", 0.0, 0, 10**11, ended_ns=10**11, exit_code=0)


def analysis(*, compute: float = 0.9, steady: int = 50, steps: int = 60, **more: Any) -> Analysis:
    """A job whose second-long steps are forward, backward and optimizer to this share."""
    own = {0: {"forward": compute, "gap": 1.0 - compute}}
    made = Analysis(
        ENDED,
        1,
        StepTime(1.0, 1.0, steps, steady),
        Throughput(8.0, 1.0, 8.0, 1),
        values={("step.time_s", JOB): 1.0},
        model=StepModel(1.0, own),
        budget=Budget({**own[0]}, own),
    )
    return replace(made, **more)


def finding(rule: str, lost_s: float = 0.2, *ranks: int, **more: Any) -> Finding:
    return Finding(rule, f"{rule} fired", more.pop("severity", "high"), 0.9, lost_s, Affected(tuple(ranks)), **more)


def rule_saying(outcome: Finding | Clear, *explains: str) -> Rule:
    return Rule(outcome.rule, "a rule", lambda a, t: outcome, explains=explains)


def judged(*findings: Finding, explains: Mapping[str, tuple[str, ...]] | None = None, **about: Any) -> Judgement:
    """The judgement over these findings: by the table, and by what rules of other distributions explain."""
    explained = explains or {}
    return judge(analysis(**about), [rule_saying(f, *explained.get(f.rule, ())) for f in findings], Config())


def linked(*findings: Finding, explains: Mapping[str, tuple[str, ...]] | None = None) -> dict[str, Finding]:
    return {f.rule: f for f in judged(*findings, explains=explains).findings}


def test_a_cause_explains_its_consequences_on_the_same_rank_only() -> None:
    found = linked(
        finding("CPU001", 0.3, 1), finding("CMP007", 0.4, 1), finding("COM002", 0.2, 1), finding("DAT008", 0.1, 0)
    )
    assert found["CPU001"].explains == ("CMP007", "COM002")
    assert found["CPU001"].explained_by is None
    assert found["CMP007"].explained_by == found["COM002"].explained_by == "CPU001"
    assert found["DAT008"].explained_by is None


def test_findings_about_the_whole_job_overlap_with_every_rank() -> None:
    assert linked(finding("CPU001", 0.3), finding("CMP007", 0.4, 1))["CMP007"].explained_by == "CPU001"
    assert linked(finding("DAT008", 0.3, 1), finding("COM002", 0.4))["COM002"].explained_by == "DAT008"


def test_some_causes_have_a_condition() -> None:
    assert linked(finding("CPU003", 0.3, 1), finding("CMP007", 0.4, 1))["CMP007"].explained_by == "CPU003"
    assert linked(finding("CPU003", 0.3), finding("CMP007", 0.4, 1))["CMP007"].explained_by is None


def test_a_rule_of_another_distribution_says_itself_what_it_explains() -> None:
    late = finding("CMP007", 0.4, 1)
    assert linked(finding("ACM001", 0.3, 1), late, explains={"ACM001": ("CMP007",)})["ACM001"].explains == ("CMP007",)
    assert linked(finding("ACM001", 0.3, 1, explains=("CMP007",)), late)["CMP007"].explained_by == "ACM001"
    assert linked(finding("ACM001", 0.3, 1), late)["CMP007"].explained_by is None


def test_what_says_when_is_explained_by_what_says_why() -> None:
    when = finding("RUN003", 0.4, 1, circumstances=frozenset({"input grew"}))
    found = linked(when, finding("CMP007", 0.3, 1), finding("DAT008", 0.3, 0), finding("LOP004", 0.3))
    assert found["RUN003"].explained_by == "CMP007" and found["CMP007"].explains == ("RUN003",)
    assert linked(when, finding("DAT008", 0.3, 0))["RUN003"].explained_by is None


def test_of_several_causes_the_one_that_costs_most_explains() -> None:
    found = linked(finding("DAT008", 0.1, 1), finding("CMP007", 0.3, 1), finding("COM002", 0.4, 1))
    assert found["COM002"].explained_by == "CMP007"
    assert found["DAT008"].explains == ()


def test_a_chain_leads_to_its_root() -> None:
    chain = {"A": ("B",), "B": ("C",)}
    found = linked(finding("A", 0.1), finding("B", 0.2), finding("C", 0.3), explains=chain)
    assert found["A"].explains == ("B", "C")
    assert found["B"].explained_by == found["C"].explained_by == "A"
    assert found["B"].explains == ()


@pytest.mark.parametrize("ring", [{"A": ("B",), "B": ("A",)}, {"A": ("B",), "B": ("C",), "C": ("A",)}])
def test_rules_that_explain_each_other_leave_one_root(ring: dict[str, tuple[str, ...]]) -> None:
    found = linked(*(finding(name, 0.1 * n) for n, name in enumerate(ring, 1)), explains=ring)
    roots = [name for name, f in found.items() if f.explained_by is None]
    assert len(roots) == 1


@pytest.mark.parametrize(("costs", "root"), [((0.3, 0.4), "COM002"), ((0.4, 0.3), "RUN003")])
def test_of_a_slower_rank_and_the_waiting_for_it_the_costlier_is_the_root(
    costs: tuple[float, float], root: str
) -> None:
    grew = frozenset({"exchange grew"})
    found = linked(finding("RUN003", costs[0], 1, circumstances=grew), finding("COM002", costs[1], 1))
    assert [name for name, f in found.items() if f.explained_by is None] == [root]


def test_linking_ends_in_a_ring() -> None:
    ring = {"A": ("B",), "B": ("C",), "C": ("A",)}
    assert len(linked(finding("A"), finding("B"), finding("C"), explains=ring)) == 3


def test_roots_come_by_what_they_cost_each_followed_by_what_it_explains() -> None:
    found = judged(
        finding("LOP002", 0.15), finding("CMP007", 0.5, 1), finding("CPU001", 0.3, 1), finding("COM002", 0.2, 1)
    )
    assert [f.rule for f in found.findings] == ["CPU001", "CMP007", "COM002", "LOP002"]


def test_a_root_of_unknown_cost_has_that_of_what_it_explains() -> None:
    unknown = finding("A", 0.0, severity="medium")
    costly, other = finding("B", 0.4), finding("C", 0.2)
    explained = judged(unknown, costly, other, explains={"A": ("B",)})
    assert [f.rule for f in explained.findings] == ["A", "B", "C"] and explained.verdict.rule == "A"
    assert judged(unknown, costly, other).verdict.rule == "B"


def test_what_ends_the_job_within_minutes_comes_before_what_costs_time() -> None:
    soon = finding("MEM002", 0.0, urgent=True, severity="critical")
    judgement = judged(finding("DAT003", 0.7), soon)
    assert [f.rule for f in judgement.findings] == ["MEM002", "DAT003"]
    assert (judgement.verdict.state, judgement.verdict.rule) == ("bottleneck", "MEM002")
    mild = finding("MEM002", 0.0, severity="high")
    assert judged(mild, finding("DAT003", 0.06, severity="medium")).verdict.rule == "DAT003"
    assert judged(mild).verdict.rule == "MEM002"


def test_what_is_fatal_comes_first_and_is_the_verdict() -> None:
    fatal = finding("RUN001", 0.0, 1, fatal=True, severity="critical")
    judgement = judged(finding("DAT003", 0.7), fatal)
    assert [f.rule for f in judgement.findings] == ["RUN001", "DAT003"]
    assert (judgement.verdict.state, judgement.verdict.rule) == ("failed", "RUN001")


def test_a_death_explains_the_hang_it_caused() -> None:
    died = finding("RUN002", 0.0, 1, fatal=True)
    death = Death(1, 100, 10.0, 1, None, False, "forward", 60)
    judgement = judged(finding("RUN001", 0.0, 1, fatal=True), died, deaths=(death,))
    assert judgement.verdict.rule == "RUN002"
    assert [f.explained_by for f in judgement.findings] == [None, "RUN002"]


def test_the_root_that_costs_most_is_the_bottleneck() -> None:
    fix = Fix("num_workers=4", "", Where("train.py", 42), "one line")
    root = finding(
        "DAT003",
        0.4,
        evidence=(Evidence("w", 0.4, "s", None, "a 40 % share"),),
        fixes=(fix,),
        saving=Saving((0.2, 0.3), (1.25, 1.43), "why"),
    )
    verdict = judged(finding("LOP002", 0.2), root).verdict
    assert (verdict.state, verdict.rule, verdict.title) == ("bottleneck", "DAT003", "DAT003 fired")
    assert root.saving is not None
    gain = speedup(expected(root.saving, errors_of("DAT003")))
    assert verdict.summary == f"A 40 % share. Fix: num_workers=4 (train.py:42). Predicted: {gain}."


def test_a_saving_is_corrected_by_the_errors_of_its_rule() -> None:
    given = Saving((0.2, 0.5), (1.25, 2.0), "why")
    judgement = judged(finding("DAT003", saving=given), finding("XYZ001", saving=given))
    assert {f.rule: f.saving for f in judgement.findings} == {
        rule: expected(given, errors_of(rule)) for rule in ("DAT003", "XYZ001")
    }


@pytest.mark.parametrize(
    ("evidence", "summary"),
    [
        (
            Evidence("cpu.steal_share", 0.2, "", 0.05, "of the host's CPU time", form="continues"),
            "20 % of the host's CPU time.",
        ),
        (
            Evidence("step.samples", 8.0, "samples", None, "of one rank in a step", form="continues"),
            "8 samples of one rank in a step.",
        ),
        (
            Evidence("step.samples", 1.0, "samples", None, "of one rank in a step", form="continues"),
            "1 sample of one rank in a step.",
        ),
        (Evidence("stall", 1.0, "s", None, "beyond the usual step", form="continues"), "1.00 s beyond the usual step."),
        (
            Evidence("comm.megabytes", 100.0, "MB", None, "of gradients; 9 GB/s", form="continues"),
            "100 MB of gradients; 9 GB/s.",
        ),
        (
            Evidence("comm.megabytes", 100.0, "MB", None, "gradients per step", form="explains"),
            "Gradient bytes: 100 MB, gradients per step.",
        ),
        (Evidence("backend", "gloo", "", None, "of the process group", form="continues"), "Gloo of the process group."),
        (
            Evidence("step.gap_s", 0.4, "s", 0.1, "40 % of the step"),
            "Time between steps: 40 % of the step.",
        ),  # it has its number
        (Evidence("layout.channels_first", 1.0, "", None, "input and weights"), "Input and weights."),  # a switch
        (Evidence("phase", "backward", "", None, "most of it there"), "Most of it there."),
    ],
)
def test_a_note_that_continues_its_value_is_shown_with_it(evidence: Evidence, summary: str) -> None:
    assert judged(finding("LOP004", 0.4, evidence=(evidence,))).verdict.summary == summary


def test_a_finding_of_low_severity_is_listed_and_is_no_verdict() -> None:
    judgement = judged(finding("LOP001", 0.03, severity="low"))
    assert judgement.verdict.state == "healthy"
    assert [f.rule for f in judgement.findings] == ["LOP001"]


def test_a_small_cause_hides_no_large_finding() -> None:
    judgement = judged(
        finding("LOP001", 0.03, severity="low"), finding("LOP004", 0.3, severity="critical"), compute=0.6
    )
    assert judgement.verdict.state == "bottleneck"


def test_healthy_is_a_step_of_compute_and_names_what_was_not_measured() -> None:
    blind = Rule("GPU001", "a rule", lambda a, t: Clear("GPU001"), needs=("gpu.throttle",))
    verdict = judge(analysis(compute=0.9), [blind, rule_saying(Clear("DAT003"))], Config()).verdict
    assert verdict.state == "healthy" and verdict.rule is None
    assert "90 %" in verdict.summary and "; 1 check on GPUs left out, all others made." in verdict.summary
    on_gpu = judge(analysis(compute=0.9, facts={"0": {"cuda": {"device": 0}}}), [blind], Config()).verdict
    assert "not measured: GPU001." in on_gpu.summary


def test_many_checks_without_a_result_are_counted_and_the_command_that_lists_them_is_named() -> None:
    rules = [Rule(f"DAT00{n}", "a rule", lambda a, t: Clear(""), needs=("loader.busy_share",)) for n in range(1, 5)]
    summary = judge(analysis(compute=0.9), rules, Config()).verdict.summary
    assert "; 4 checks could not be made (`rn50-advisor report --full` lists the reasons)." in summary
    assert "DAT00" not in summary
    assert "; all checks were made." in judge(analysis(compute=0.9), [], Config()).verdict.summary


def test_checks_on_what_the_job_has_none_of_are_counted_not_named() -> None:
    rules = [
        Rule(name, "a rule", lambda a, t: Clear(""), needs=(need,))
        for name, need in (("COM001", "comm.wire_s"), ("CMP003", "gpu.host_paced_s"), ("DAT004", "loader.busy_share"))
    ]
    summary = judge(analysis(compute=0.9), rules, Config()).verdict.summary
    assert "not measured: DAT004; 2 checks on GPUs or several ranks left out." in summary
    ranks = judge(analysis(compute=0.9, world_size=2), rules, Config()).verdict.summary
    assert "not measured: COM001, DAT004; 1 check on GPUs left out." in ranks


def test_time_that_no_rule_explains_is_inconclusive() -> None:
    verdict = judged(compute=0.4).verdict
    assert verdict.state == "inconclusive" and "40 % of the step is compute" in verdict.summary
    assert "between steps 60 %" in verdict.summary


@pytest.mark.parametrize(("phase", "words"), [("input_wait", "waiting for input"), ("gap", "between steps")])
@pytest.mark.parametrize(("left", "state"), [(0.16, "inconclusive"), (0.15, "inconclusive"), (0.14, "healthy")])
def test_a_wait_that_no_rule_explains_is_named_beside_any_share_of_compute(
    phase: str, words: str, left: float, state: str
) -> None:
    row = {"forward": 1.0 - left, phase: left}
    verdict = judged(budget=Budget(row, {0: row})).verdict
    assert verdict.state == state
    assert state == "healthy" or f"explains the rest ({words} {100 * left:.0f} %)" in verdict.summary


@pytest.mark.parametrize("phase", ["gap.evaluation", "gap.checkpoint", "comm_exposed"])
def test_what_has_a_name_or_a_rule_of_its_own_is_not_unexplained(phase: str) -> None:
    row = {"forward": 0.8, phase: 0.2}
    assert judged(budget=Budget(row, {0: row})).verdict.state == "healthy"


def sharded(**more: float) -> Any:
    """Two ranks whose library gathers and scatters on GPUs: calls are counted but not timed."""
    about = {"collectives.calls": 12.0, **more}
    values = {
        ("step.time_s", JOB): 1.0,
        **{(name, n): value for name, value in about.items() for n in (0, 1)},
    }
    return judged(world_size=2, values=values).verdict


def test_untimed_collectives_leave_open_whether_compute_takes_the_time() -> None:
    verdict = sharded()
    assert verdict.state == "inconclusive" and "12 collectives a step" in verdict.summary
    assert sharded(**{"collectives.calls": 0.1}).state == "healthy"  # a loss that is averaged now and then
    assert sharded(**{"comm.wire_s": 0.01}).state == "healthy"


def joined(ranks: float, **more: float) -> Any:
    """Two processes train, and so many have joined one group; of no collective is anything known."""
    values = {("step.time_s", JOB): 1.0, ("comm.joined", JOB): ranks}
    values |= {(name, n): value for name, value in more.items() for n in (0, 1)}
    return judged(world_size=2, values=values).verdict


def test_ranks_of_one_group_with_an_unobserved_exchange_are_not_called_healthy() -> None:
    """Functional collectives (tensor parallelism) and Horovod's are not recorded."""
    verdict = joined(4.0)
    assert verdict.state == "inconclusive" and "its 4 ranks have joined one process group" in verdict.summary
    assert joined(4.0, **{"collectives.calls": 0.1}).state == "inconclusive", "a loss that is averaged is not all"
    assert joined(0.0).state == "healthy", "processes that joined none exchange nothing"
    assert joined(1.0).state == "healthy"
    assert joined(2.0, **{"comm.exposed_s": 0.01}).state == "healthy", "DDP stamped it"
    assert joined(2.0, **{"kernel.nccl_s": 0.05}).state == "healthy", "a deep window has seen it"


@pytest.mark.parametrize(("share", "state"), [(0.14, "healthy"), (0.15, "inconclusive")])
def test_collectives_that_nccl_timed_hold_the_gpu_no_longer_than_they_run(share: float, state: str) -> None:
    timed = {"collectives.timed_share": share}
    assert sharded(**timed).state == state and joined(4.0, **timed).state == state


@pytest.mark.parametrize(("overlap", "state"), [(0.7, "healthy"), (0.2, "inconclusive")])
def test_a_deep_window_measures_how_long_collectives_hold_the_gpu(overlap: float, state: str) -> None:
    assert sharded(**{"kernel.nccl_s": 0.4, "kernel.nccl_overlap_share": overlap}).state == state


@pytest.mark.parametrize(("waited", "state"), [(0.14, "healthy"), (0.16, "inconclusive")])
def test_waiting_for_unrecorded_ranks_is_no_compute(waited: float, state: str) -> None:
    calm = {"collectives.calls": 0.0, "comm.exposed_s": waited}
    verdict = sharded(**calm)
    assert verdict.state == state
    assert state == "healthy" or "16 % of the step is waiting in exchanges" in verdict.summary
    assert sharded(**calm, **{"comm.wire_s": waited}).state == "healthy", "COM001 has looked at it"


NOTHING: dict[str, Any] = {"model": None, "steady": 0, "values": {}}


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({**NOTHING, "steps": 3}, "3 steps observed, 0 of them steady: too few"),
        ({"steady": 4, "steps": 7}, "7 steps observed, 4 of them steady: too few"),
        ({**NOTHING, "steps": 0, "running": True}, "has not completed a step yet"),
        ({**NOTHING, "steps": 0}, "no training step was observed: the job ran no backward pass"),
        (
            {**NOTHING, "steps": 0, "recorder_error": "the recorder met an error in pid 7: KeyError"},
            "no training step was observed: the recorder met an error in pid 7: KeyError.",
        ),
    ],
)
def test_too_few_steps_are_inconclusive(about: dict[str, Any], words: str) -> None:
    verdict = judged(**about).verdict
    assert verdict.state == "inconclusive" and words in verdict.summary
    assert verdict.title.endswith("yet") == about.get("running", False)


def test_five_steady_steps_are_enough() -> None:
    assert judged(steady=5, steps=8).verdict.state == "healthy"


def test_an_exit_code_fails_the_job_before_any_bottleneck() -> None:
    verdict = judged(finding("DAT003"), meta=replace(ENDED, exit_code=3)).verdict
    assert (verdict.state, verdict.rule) == ("failed", None)
    assert "exit code 3" in verdict.title and "after 60 steps" in verdict.summary
    early = judged(meta=replace(ENDED, exit_code=3), **NOTHING, steps=0).verdict
    assert "before its first step" in early.summary


def test_a_job_that_could_not_start_failed() -> None:
    verdict = judged(
        meta=replace(ENDED, exit_code=127, launch_error="no such command: trian"), **NOTHING, steps=0
    ).verdict
    assert (verdict.state, verdict.summary) == ("failed", "no such command: trian")


def test_a_job_the_user_interrupted_is_judged_by_its_steps() -> None:
    stopped = Death(0, 100, 10.0, None, 2, False, "forward", 60)
    verdict = judged(finding("DAT003"), meta=replace(ENDED, exit_code=130), deaths=(stopped,)).verdict
    assert (verdict.state, verdict.rule) == ("bottleneck", "DAT003")


def test_a_job_that_a_signal_killed_failed() -> None:
    verdict = judged(meta=replace(ENDED, exit_code=None, exit_signal=11), **NOTHING, steps=0).verdict
    assert verdict.state == "failed" and "SIGSEGV" in verdict.title


def broken(a: Analysis, t: Thresholds) -> Clear:
    raise ZeroDivisionError("by its own fault")


def test_a_broken_rule_is_an_outcome_and_the_others_go_on() -> None:
    rules = [Rule("AAA001", "breaks", broken), rule_saying(finding("DAT003"))]
    judgement = judge(analysis(), rules, Config())
    assert judgement.verdict.rule == "DAT003"
    assert judgement.outcomes == (
        OutcomeRow("AAA001", "crashed", ("ZeroDivisionError: by its own fault",)),
        OutcomeRow("DAT003", "fired"),
    )


def test_every_kind_of_outcome_has_its_row() -> None:
    rules = [
        rule_saying(Clear("DAT001")),
        rule_saying(finding("DAT002")),
        Rule("DAT003", "a rule", lambda a, t: Clear("DAT003"), needs=("fetch.wall_s", "step.time_s")),
    ]
    states = {row.rule: (row.state, row.missing) for row in judge(analysis(), rules, Config()).outcomes}
    assert states == {
        "DAT001": ("clear", ()),
        "DAT002": ("fired", ()),
        "DAT003": ("not_measured", ("fetch.wall_s",)),
    }


def test_a_disabled_rule_is_not_asked_at_all() -> None:
    rules = [Rule("AAA001", "breaks", broken), rule_saying(finding("DAT003"))]
    judgement = judge(analysis(), rules, Config(disabled=frozenset({"AAA001", "DAT003"})))
    assert judgement.outcomes == () and judgement.findings == ()
    assert judgement.verdict.state == "healthy"


def test_a_disabled_cause_explains_nothing() -> None:
    rules = [rule_saying(finding("CPU001", 0.3, 1), "CMP007"), rule_saying(finding("CMP007", 0.4, 1))]
    judgement = judge(analysis(), rules, Config(disabled=frozenset({"CPU001"})))
    assert judgement.verdict.rule == "CMP007"


def test_thresholds_come_from_the_rule_unless_the_user_gives_them() -> None:
    seen: list[dict[str, float]] = []

    def look(a: Analysis, t: Thresholds) -> Clear:
        seen.append(dict(t))
        return Clear("AAA001")

    rule = Rule("AAA001", "looks", look, thresholds={"wait": Threshold(0.05, "why"), "busy": Threshold(0.8, "why")})
    for given in ({}, {"AAA001": {"wait": 0.5}}, {"OTHER1": {"wait": 0.9}}):
        run_rule(rule, analysis(), Config(given))
    assert seen == [{"wait": 0.05, "busy": 0.8}, {"wait": 0.5, "busy": 0.8}, {"wait": 0.05, "busy": 0.8}]


def test_missing_values_and_steps_are_named_together() -> None:
    rule = Rule("AAA001", "looks", broken, needs=("step.time_s", "fetch.wall_s", "comm.wire_s"))
    assert run_rule(rule, analysis(steady=2), Config()) == NotMeasured(
        "AAA001", ("step.steady", "fetch.wall_s", "comm.wire_s")
    )
    never = replace(rule, needs=(), steady_steps=0)
    assert isinstance(run_rule(never, analysis(steady=0), Config()), Crashed)  # it was asked


def test_a_healthy_verdict_says_which_part_of_the_step_computes() -> None:
    own = {0: {"forward": 0.1, "backward": 0.2, "optimizer": 0.65, "gap": 0.05}}
    why = judged(budget=Budget({**own[0]}, own)).verdict.summary
    assert why.startswith("95 % of a 1.00 s step is compute (forward 10 %, backward 20 %, optimizer 65 %)")


@pytest.mark.parametrize(
    ("function", "part", "says"),
    [
        ("gcn_norm", 0.19, "; 19 % of the time is gcn_norm's own operations, mostly at /job/layers.py:27;"),
        ("<module>", 0.19, "; 19 % of the time is the script's own operations,"),
        ("gcn_norm", 0.09, ""),
    ],
)
def test_a_healthy_verdict_names_the_function_that_computes_much_by_itself(
    function: str, part: float, says: str
) -> None:
    line = HotLine("/job/layers.py", 27, function, "", 80, part, io=False)
    summary = judge(analysis(compute=0.9, computing_functions=(line,)), [], Config()).verdict.summary
    assert (says in summary) if says else ("own operations" not in summary)


SLEEPS = {("step.time_s", JOB): 1.0, ("step.asleep_s", 0): 0.3}


@pytest.mark.parametrize(
    ("more", "state", "says"),
    [
        ({("step.asleep_s", 0): 0.14}, "healthy", ""),
        (
            {("step.asleep_s", 0): 0.15},
            "inconclusive",
            "In 15 % of the step rank 0's training thread sleeps in them; the reason is not known: not permitted.",
        ),
        ({("interpreter.waiting_share", 0): 0.0}, "inconclusive", "sleeps in them; not for the interpreter."),
    ],
)
def test_compute_is_not_what_takes_the_time_in_which_its_thread_sleeps(
    more: dict[tuple[str, int | str], float], state: str, says: str
) -> None:
    verdict = judged(values={**SLEEPS, **more}, reasons={("interpreter.waiting_share", 0): "not permitted"}).verdict
    assert verdict.state == state
    assert verdict.summary.endswith(says) and ("sleeps" in verdict.summary) == bool(says)


TRACE = Meta("trace", (), "", "", 0.0, 0, 1, traced=True)
LOOKED = Rule("CMP001", "", lambda a, t: Clear("CMP001"), needs=(), traced=True)


@pytest.mark.parametrize(
    ("rule", "steady", "state"),
    [
        (LOOKED, 1, Clear("CMP001")),
        (LOOKED, 0, NotMeasured("CMP001", ("step.steady",))),
        (replace(LOOKED, traced=False), 9, NotMeasured("CMP001", (WATCHED_RUN,))),
    ],
)
def test_a_trace_is_judged_by_few_steps_and_by_rules_that_it_shows_enough_for(
    rule: Rule, steady: int, state: Clear | NotMeasured
) -> None:
    assert run_rule(rule, analysis(meta=TRACE, steady=steady), Config()) == state


def test_the_verdict_on_a_trace_says_by_how_many_steps_it_was_judged() -> None:
    verdict = judged(meta=TRACE, steady=2).verdict
    assert verdict.state == "inconclusive"
    assert verdict.title == "Compute-bound, as far as a trace shows"
    assert "Judged by 2 steps of a profiler's trace" in verdict.summary


def test_a_trace_without_steps_says_what_marks_them() -> None:
    assert "profiler.step()" in judged(meta=TRACE, steady=0, steps=0).verdict.summary
