"""What rules say once they fired: numbers of workers, places, names of ranks, and what their estimates rest on."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import input_rule_cases as jobs_of_input
import pytest
import rule_cases as jobs
from rule_cases import SCRIPT, death, loader, rank, stands
from rule_tables import TABLES

from rn50_advisor.advisor.model.analysis import Analysis, Coincidence, Death, Failure
from rn50_advisor.advisor.model.findings import Affected, Clear, Finding, NotMeasured, Where
from rn50_advisor.advisor.model.input.sample_cost import SampleLine
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import judge, run_rule
from rn50_advisor.rules import analysis_reading
from rn50_advisor.rules.registry import all_rules

RULES = {rule.id: rule for rule in all_rules()}
SAVED = 1.0  # seconds of a step, in all these jobs


def found(rule: str, analysis: Analysis | None = None, **given: Any) -> Finding:
    result = run_rule(RULES[rule], analysis or TABLES[rule].job(**given), Config())
    assert isinstance(result, Finding), result
    return result


def warm(after_s: float) -> float:
    """What is left at best of a step of one second, with the caches warm."""
    return after_s * (1 - 0.15 * (1 - after_s))


def best_step_s(finding: Finding) -> float:
    assert finding.saving is not None
    return SAVED - finding.saving.seconds_per_step[1]


# wait, seconds to make one batch, cores of the job, workers advised
@pytest.mark.parametrize(
    ("wait", "wall", "cores", "workers"),
    [
        (0.4, 0.4, 16.0, 1),  # beside a step of 0.6 s
        (0.8, 0.8, 16.0, 4),  # beside 0.2 s, and both a tenth slower beside each other
        (0.9, 0.9, 16.0, 8),  # nine would be worth it, but 16 cores carry eight a rank
        (0.9, 0.9, 2.0, 1),  # no room at all: one worker at least
        (0.05, 0.05, 16.0, 1),
        (0.4, 0.4, None, 1),  # cores unknown: nothing is shared
    ],
)
def test_dat003_advises_the_knee_of_the_forecast(wait: float, wall: float, cores: float | None, workers: int) -> None:
    fix = found("DAT003", wait=wait, wall=wall, cores=cores, job_cores=1.0).fixes[0]
    assert fix.title.startswith(f"num_workers=0 → {workers},")
    assert f"num_workers={workers}, persistent_workers=True" in fix.change


def test_dat003_says_when_the_cores_leave_too_little_room() -> None:
    short = found("DAT003", wait=0.9, wall=0.9, job_cores=1.0).fixes[0].change
    assert "9 workers would be needed, this machine has room for 8" in short
    assert "would be needed" not in found("DAT003", wait=0.4).fixes[0].change


def test_workers_that_sleep_through_their_batches_may_outnumber_the_cores() -> None:
    asleep = {"fetch.cpu_share": {0: 0.05, 1: 0.05}, "fetch.wall_s": {0: 0.9, 1: 0.9}, "loader.workers": {0: 0, 1: 0}}
    fix = found(
        "DAT003", jobs.job({0: rank(input_wait=0.9), 1: rank(input_wait=0.9)}, values=asleep, cores=4.0, job_cores=0.2)
    )
    assert fix.fixes[0].title.startswith("num_workers=0 → 8,")


def test_another_limit_than_cores_binds_however_little_workers_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis_reading, "worker_cap", lambda a: 3)  # memory, say
    assert found("DAT003", wait=0.9, wall=0.9, job_cores=1.0).fixes[0].title.startswith("num_workers=0 → 3,")


def test_dat003_pins_memory_only_where_there_is_a_gpu() -> None:
    assert "pin_memory" not in found("DAT003").fixes[0].change
    assert "pin_memory=True" in found("DAT003", facts={"0": {"cuda": "12.4"}, "1": {}}).fixes[0].change


def test_dat003_advises_cheaper_samples_where_no_core_is_idle() -> None:
    finding = found("DAT003", cores=2.0, job_cores=2.0)
    assert finding.fixes[0].title.startswith("make samples cheaper")
    assert finding.saving is not None and finding.saving.speedup == pytest.approx((1.0, 1 / 0.6))


def test_dat003_without_a_place_still_says_what_to_do() -> None:
    fix = found("DAT003", loaders=()).fixes[0]
    assert fix.where is None and "num_workers=1" in fix.change


def test_dat001_gives_workers_back_that_make_nothing_faster() -> None:
    """Eight workers a rank on two cores; one of them would do as well, for the cores would be as full."""
    crowded = {"allowed": 2.0, "busy": 2.0, "workers": 8, "wall": 8.0, "cpu": 0.05, "delay": 0.95}
    *_, fewer, cores = found("DAT001", **crowded).fixes
    assert fewer.title == "num_workers=8 → 1: as fast, with less memory" and fewer.effort == "one line"
    assert fewer.change.startswith("DataLoader(..., num_workers=1):") and "7 processes" in fewer.change
    assert cores.title.startswith("more CPU cores")
    assert not any(
        "num_workers" in fix.title for fix in found("DAT001", **{**crowded, "workers": 1, "wall": 1.0}).fixes
    )
    assert not any("num_workers" in fix.title for fix in found("DAT001").fixes), "four that all have to work"


def test_dat003_names_the_loader_that_trains() -> None:
    loaders = (loader(0, 0, line=10, training=False), loader(0, 0, line=42))
    where = found("DAT003", loaders=loaders).fixes[0].where
    assert where is not None and where.line == 42


# workers there are, seconds to make a batch, idle cores, workers advised
@pytest.mark.parametrize(
    ("present", "wall", "idle", "advised"),
    [
        (2, 1.9, 11.5, 4),  # beside a step of 0.6 s: 1.9 / 3 would be as long, and batches a little slower
        (2, 1.9, 2.5, 3),  # one idle core a rank
        (6, 1.9, 2.5, 7),  # always at least one more than there are
    ],
)
def test_dat004_advises_the_knee_of_the_forecast(present: int, wall: float, idle: float, advised: int) -> None:
    fix = found("DAT004", workers=present, wall=wall, idle=idle).fixes[0]
    assert fix.title == f"num_workers={present} → {advised}, persistent_workers=True"


def test_dat004_asks_for_workers_that_live_on_only_where_they_do_not() -> None:
    lasting = tuple(loader(n, 2, persistent=True) for n in (0, 1))
    fix = found("DAT004", loaders=lasting).fixes[0]
    assert fix.title == "num_workers=2 → 4" and "persistent_workers=True" in fix.change


def test_dat004_says_nothing_where_more_workers_would_gain_nothing() -> None:
    crowd = {
        "workers": 64,
        "wall": 61.0,
        "allowed": 200.0,
        "idle": 100.0,
    }  # nobody has measured how more of them share a machine
    assert run_rule(RULES["DAT004"], jobs.dat004(**crowd), Config()) == Clear("DAT004")
    served = found("DAT004", **crowd, values_too={"loader.asking_share": 0.6})
    assert served.saving is not None and served.saving.speedup == (1.0, 1.0)


def test_input_rules_promise_what_the_forecast_says() -> None:
    for rule, analysis in (("DAT003", jobs.dat003(wait=0.8, wall=0.8, job_cores=1.0)), ("DAT004", jobs.dat004())):
        finding = found(rule, analysis)
        workers = int(re.findall(r"num_workers=\d+ → (\d+)", finding.fixes[0].title)[0])
        assert analysis.forecast is not None and finding.saving is not None
        best, worst = analysis.forecast.step_s(workers)
        assert finding.saving.seconds_per_step == pytest.approx((SAVED - worst, SAVED - best))


def test_dat004_finds_room_on_busy_cores_for_workers_that_sleep() -> None:
    few = {"loader.busy_share": {0: 0.95, 1: 0.95}, "cpu.host_busy_cores": 15.5, "cpu.allowed_cores": 16.0}
    fed = {"fetch.wall_s": {0: 1.9, 1: 1.9}, "loader.workers": {0: 2, 1: 2}}
    own = {0: rank(input_wait=0.4), 1: rank(input_wait=0.4)}
    for share, says in ((1.0, Clear), (0.1, Finding)):
        values = {**few, **fed, "fetch.cpu_share": {0: share, 1: share}}
        assert isinstance(run_rule(RULES["DAT004"], jobs.job(own, values=values), Config()), says)


def test_dat004_judges_a_rank_whose_batches_nobody_saw_by_the_others() -> None:
    # rank 1 waits longest, but only rank 0's batches were seen being made
    values = {("fetch.wall_s", "rank:1"), ("loader.workers", "rank:1"), ("loader.busy_share", "rank:1")}
    analysis = jobs.dat004()
    own = {**analysis.values, ("step.input_wait_s", "rank:1"): 0.5}
    partly = {key: value for key, value in own.items() if key not in values}
    finding = run_rule(RULES["DAT004"], replace(analysis, values=partly), Config())
    assert isinstance(finding, Finding), finding


def test_dat002_names_mount_and_rate_of_all_loaders_together() -> None:
    finding = found("DAT002", read_mb=2.0, workers=3)
    assert "/data (ext4)" in finding.title
    assert {e.metric: e.value for e in finding.evidence}["fetch.read_mb_per_s"] == 12.0  # 2 MB/s, 2 ranks, 3 workers


def test_dat002_leaves_the_cpu_work_of_loading_in_the_training_process() -> None:
    finding = found("DAT002", wait=0.4, blocked=0.6, workers=0)
    assert best_step_s(finding) == pytest.approx(warm(0.6 + 0.4 * 0.4))  # what a batch computes stays where it is


def test_dat008_and_cmp007_are_about_jobs_of_several_ranks() -> None:
    alone = {0: rank(input_wait=0.5)}
    values = {"comm.late_share": {0: 1.0}}
    for rule in ("DAT008", "CMP007"):
        assert run_rule(RULES[rule], jobs.job(alone, values=values), Config()) == Clear(rule)


def test_dat008_shows_what_making_a_batch_takes_there_and_elsewhere() -> None:
    row = {e.metric: e for e in found("DAT008").evidence}["fetch.wall_s"]
    assert (row.value, row.threshold) == (0.5, 0.1)


@pytest.mark.parametrize(("blocked", "in_copies"), [(0.051, True), (0.049, False)])
def test_cmp007_tells_slow_copies_from_slow_computing(blocked: float, in_copies: bool) -> None:
    """Half of the 0.4 s by which rank 1 is slower: 0.15 in pageable copies, the rest in blocking ones."""
    compute = {0: 0.6, 1: 1.0}
    values = {"step.compute_s": compute, "copy.pageable_s": {0: 0.05, 1: 0.2}, "copy.blocking_s": {1: blocked}}
    finding = found("CMP007", values=values)
    rows = {e.metric: e for e in finding.evidence}
    assert (rows["phase"].value == "copies to the GPU") == in_copies
    assert ("copies of rank 1" in finding.fixes[0].title) == in_copies


def test_cmp007_names_the_phase_in_which_the_time_is_lost() -> None:
    rows = {e.metric: e for e in found("CMP007").evidence}
    assert rows["phase"].value == "backward"  # of forward, backward, optimizer as 3 : 6 : 1
    assert "240 ms" in rows["phase"].note  # 0.6 of the 400 ms more


def test_com001_states_the_rate_of_the_whole_exchange() -> None:
    # what shows of it takes less time than all of it: bytes over that would be more than any link carried
    known = {"comm.megabytes": 100.0, "comm.span_s": 0.4, "comm.bus_gb_per_s": 0.25}
    _, size, rate = found("COM001", values=known).evidence
    assert (size.value, rate.value) == (100.0, 0.25) and rate.note.startswith("over each link")
    hidden = found("COM001", values={**known, "comm.span_s": 0.7})
    assert hidden.evidence[2].note.startswith("at least"), "a part of that is waiting for the next bucket"
    assert not any(e.metric == "comm.bus_gb_per_s" for e in found("COM001").evidence)
    assert len(found("COM001", values={}).evidence) == 1  # bytes unknown: no rate


def test_com002_names_the_late_rank_and_where_it_loses_the_time() -> None:
    finding = found("COM002")
    assert "rank 1" in finding.title and "backward" in finding.fixes[0].title
    turns = found("COM002", skew=0.3, late=0.5, other=0.5)
    assert turns.scope.ranks == () and "take turns" in turns.title
    assert turns.confidence < finding.confidence


def test_com002_shows_the_line_it_judged_by() -> None:
    assert found("COM002", skew=0.3).evidence[0].threshold == pytest.approx(0.15)
    assert found("COM002", skew=0.3, late=0.5, other=0.5).evidence[0].threshold == pytest.approx(0.25)


def test_cpu001_says_whom_the_quota_holds_back() -> None:
    assert "0.35 cores throttles rank 1" in found("CPU001").title
    everybody = found("CPU001", everybody=True)
    assert "the job" in everybody.title and everybody.scope.ranks == ()


def test_cpu001_survives_a_throttled_rank_without_a_step() -> None:
    analysis = jobs.cpu001()
    late_comer = {(name, "rank:2"): 0.5 for name in ("quota.cores", "quota.throttled_share", "quota.throttled_s_per_s")}
    finding = run_rule(RULES["CPU001"], replace(analysis, values={**analysis.values, **late_comer}), Config())
    assert isinstance(finding, Finding), finding
    assert finding.scope.ranks == (1,)


def test_cpu001_gives_the_pauses_of_one_rank_back_with_its_quota() -> None:
    analysis = jobs.cpu001(rest=0.5)
    assert analysis.model is not None
    # the rank's usual step is half as long again as the other's; pauses in some steps double the mean
    bursts = replace(analysis.model, step_s=1.5, own={0: rank(0.5), 1: rank(0.75)})
    held = {**analysis.values, ("quota.throttled_s_per_s", "rank:1"): 0.6}
    finding = run_rule(RULES["CPU001"], replace(analysis, model=bursts, values=held), Config())
    assert isinstance(finding, Finding) and finding.saving is not None
    assert finding.saving.speedup[1] > 2.7, "what is left of the pauses is no part of the best case"


def test_cpu001_on_all_ranks_leaves_them_their_work() -> None:
    analysis = jobs.cpu001(everybody=True)
    assert analysis.model is not None
    cores = {**analysis.values, ("cpu.host_cores", "job"): 2.0}
    finding = run_rule(
        RULES["CPU001"], replace(analysis, model=replace(analysis.model, job_cpu_s=1.8), values=cores), Config()
    )
    assert not isinstance(finding, Finding) or best_step_s(finding) >= 0.9 * 0.9


def test_cpu003_names_the_ranks_that_get_no_core() -> None:
    assert found("CPU003").scope.ranks == ()
    analysis = jobs.cpu003(only=0.0)
    assert analysis.model is not None
    slowest = replace(analysis.model, own={0: rank(0.5), 1: rank(1.0)})
    one = run_rule(RULES["CPU003"], replace(analysis, model=slowest), Config())
    assert isinstance(one, Finding) and one.scope.ranks == (1,) and set(one.explains) == {"CMP007", "COM002"}
    assert found("CPU003").explains == (), "what slows all alike makes none of them late"


def test_cpu003_promises_nothing_for_a_rank_that_nobody_waits_for() -> None:
    analysis = jobs.cpu003(only=0.0)
    assert analysis.model is not None
    idle = replace(analysis.model, own={0: rank(1.0), 1: rank(0.6)})  # rank 1 gets no core, and waits for rank 0
    finding = run_rule(RULES["CPU003"], replace(analysis, model=idle), Config())
    assert not isinstance(finding, Finding) or best_step_s(finding) >= 0.99


@pytest.mark.parametrize(
    ("rule", "phase", "left"), [("LOP001", "gap.checkpoint", 0.0), ("LOP003", "gap.evaluation", 0.1)]
)
def test_what_interrupts_the_steps_lets_their_caches_go_cold(rule: str, phase: str, left: float) -> None:
    analysis, finding = getattr(jobs, rule.lower())(spent=0.3), found(rule, spent=0.3)
    model, saving = analysis.model, finding.saving
    after_s = model.step_if({(number, phase): left * own[phase] for number, own in model.own.items()})
    assert saving is not None and saving.speedup[1] == pytest.approx(model.step_s / model.at_best(after_s))


def test_lop001_counts_the_checkpoints_and_lop003_the_evaluations() -> None:
    assert [e.value for e in found("LOP001").evidence][1:] == [6.0]
    assert len(found("LOP001", seen=False).evidence) == 1
    rows = {e.metric: e for e in found("LOP003").evidence}
    assert rows["evaluations"].value == 4.0
    assert f"{SCRIPT}:60" in rows["loader.workers"].note  # the loader that evaluates


def test_lop003_advises_to_divide_what_one_rank_does_for_all() -> None:
    assert "divide" not in found("LOP003").fixes[0].title
    alone = replace(
        jobs.lop003(), model=replace(jobs.lop003().model, own={0: rank(**{"gap.evaluation": 0.3}), 1: rank(0.7)})
    )
    fix = found("LOP003", alone).fixes[0]
    assert "divide" in fix.title and "DistributedSampler" in fix.change


@pytest.mark.parametrize(
    ("phase", "words"), [("ended", "step 12"), ("forward", "step 12, in forward"), (None, "an unknown phase")]
)
def test_run002_tells_where_a_rank_stood_but_not_of_one_that_ended_itself(phase: str | None, words: str) -> None:
    assert found("RUN002", deaths=(death(1, phase=phase),)).evidence[0].note.endswith(words)


def test_lop004_without_stack_samples_is_less_sure() -> None:
    assert "smooth_weights" in found("LOP004").fixes[0].title
    loose = jobs.lop004()
    lines = tuple(replace(line, function="<module>") for line in loose.hot_lines)
    assert found("LOP004", replace(loose, hot_lines=lines)).fixes[0].title.startswith("move this line out")
    blind = found("LOP004", output=None, seen=False)
    assert blind.fixes[0].where is None and blind.confidence < found("LOP004").confidence


def test_run001_names_the_culprit_and_who_waits() -> None:
    finding = found("RUN001")
    assert f"rank 1 stands in find_batch ({SCRIPT}:33)" in finding.title
    assert finding.fatal and finding.scope.since_step == 12
    assert {e.metric: e.value for e in finding.evidence}["rank 0"] == "waits for others"
    over = found("RUN001", ended=True)
    assert not over.fatal and "hung" in over.title


@pytest.mark.parametrize(("died_s", "fatal"), [(15.0, False), (39.9, False), (40.0, True), (64.0, True), (66.0, False)])
def test_run001_is_what_a_job_died_of_that_was_ended_while_it_hung(died_s: float, fatal: bool) -> None:
    """It stood still from the 10th to the 50th second."""
    for first in (0, 1):  # a victim's watchdog, or the culprit
        deaths = (death(first, t_s=died_s, signal=6, first=True),)
        hung = jobs.unjudged(stalls=jobs.run001(ended=True).stalls, deaths=deaths)
        assert found("RUN001", hung).fatal == fatal
        judgement = judge(hung, [RULES["RUN001"], RULES["RUN002"]], Config())
        assert judgement.verdict.state == "failed" and judgement.verdict.rule == ("RUN001" if fatal else "RUN002")


def test_run001_waits_for_a_rank_that_computes_unless_the_job_died_meanwhile() -> None:
    computes = (jobs.stands(0, waits=True), jobs.stands(1, culprit=True, working=True))
    stalls = jobs.run001(ended=True, ranks=computes).stalls
    assert isinstance(run_rule(RULES["RUN001"], jobs.unjudged(stalls=stalls), Config()), Clear)
    died = found("RUN001", jobs.unjudged(stalls=stalls, deaths=(death(0, t_s=45.0, signal=6, first=True),)))
    assert {e.metric: e.value for e in died.evidence}["rank 1"] == "computes"
    beside = (jobs.stands(0, culprit=True), jobs.stands(1, waits=True, working=True))
    assert found("RUN001", ranks=beside).fatal, "only of who keeps the others"


def test_run001_takes_the_last_stall_that_is_long_enough() -> None:
    stalls = (*jobs.run001(stalled=90.0).stalls, *jobs.run001(stalled=5.0).stalls)
    assert found("RUN001", jobs.unjudged(stalls=stalls)).evidence[0].value == 90.0


def test_run001_without_stacks_still_names_the_rank() -> None:
    nowhere: dict[str, Any] = {"file": "", "line": 0, "function": "", "leaf": ""}
    finding = found("RUN001", ranks=(stands(0, waits=True), stands(1, culprit=True, **nowhere)))
    assert finding.fixes[0].where is None and "rank 1 stands" in finding.title


def test_run001_accuses_nobody_when_all_wait_in_a_collective() -> None:
    finding = found("RUN001", ranks=(stands(0, waits=True), stands(1, waits=True)))
    assert finding.scope.ranks == () and "all ranks wait in a collective" in finding.title


def test_run001_says_for_whom_it_cannot_see_a_rank_waits() -> None:
    finding = found("RUN001", ranks=(stands(2, waits=True),), group_size=4)
    assert "rank 2 waits in a collective for 3 of 4 that were not seen here" in finding.title
    assert finding.scope.ranks == () and "missing here" in finding.fixes[0].title


def test_run001_sends_nobody_to_a_rank_that_only_waits() -> None:
    finding = found("RUN001", ranks=(stands(0, waits=True), stands(1, waits=True)))
    assert "only wait for it" not in finding.fixes[0].title


def test_run001_calls_what_sleeps_no_hang_yet() -> None:
    sleeps = (stands(0, waits=True, phase="backward"), stands(1, culprit=True, halted="asleep"))
    finding = found("RUN001", ranks=sleeps, stalled=18.0, is_running=True)
    assert finding.title.startswith("Rank 1 has not moved for 18 s") and f"find_batch ({SCRIPT}:33)" in finding.title
    assert "hang" not in finding.title and finding.urgent and not finding.fatal and finding.confidence < 0.7
    assert found("RUN001", ranks=sleeps, stalled=31.0, is_running=True).fatal


def test_run001_sends_nobody_to_the_line_of_a_rank_that_was_stopped() -> None:
    stopped = (stands(0, waits=True, phase="backward"), stands(1, culprit=True, halted="stopped"))
    finding = found("RUN001", ranks=stopped, stalled=18.0, is_running=True)
    assert "stopped by a signal" in finding.title
    assert finding.fixes[0].where is None and "kill -CONT" in finding.fixes[0].title


def test_run001_calls_a_pause_a_pause() -> None:
    finding = found("RUN001", ended=True, resumed=True)
    assert finding.title.startswith("Nothing moved for 40 s, then the job went on") and not finding.fatal


def test_run001_adds_what_the_watchdog_said_in_the_end() -> None:
    gave_up = Failure("watchdog", "the NCCL watchdog gave up on a collective", "", 3, "[Rank 0] Watchdog caught …")
    told = found("RUN001", jobs.unjudged(stalls=jobs.run001(ended=True).stalls, failure=gave_up)).evidence[-1]
    assert told.value == "watchdog" and told.note.startswith("rank 3: the NCCL watchdog gave up")
    assert found("RUN001", jobs.unjudged(stalls=jobs.run001().stalls, failure=OOM)).evidence[-1].metric == "rank 1"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"signal": 9, "exit_code": None}, "was killed by SIGKILL"),
        ({"signal": 9, "exit_code": None, "oom_killed": True}, "was killed by the OOM killer"),
        ({"signal": 250, "exit_code": None}, "was killed by signal 250"),
        ({"exit_code": 3}, "ended with exit code 3"),
        ({"exit_code": None}, "vanished without shutting down"),
    ],
)
def test_run002_says_how_the_first_rank_died(how: dict[str, Any], said: str) -> None:
    finding = found("RUN002", deaths=(death(1, **how), death(0, signal=15, exit_code=None)))
    assert finding.title == f"Rank 1 {said}" and finding.fatal


def test_run002_shows_the_exception_and_all_deaths_in_their_order() -> None:
    finding = found("RUN002", deaths=(death(1, exception="ValueError: no such class"), death(0, t_s=12.0)))
    assert [e.metric for e in finding.evidence] == ["rank 1", "rank 0", "exception"]
    assert finding.evidence[2].value == "ValueError: no such class"
    assert "the exception above" in finding.fixes[0].title


OOM = Failure("GPU memory", "the GPU's memory ran out", "a smaller batch", 1, "CUDA out of memory.")


def test_run002_says_why_where_a_known_failure_tells() -> None:
    finding = found("RUN002", jobs.unjudged(deaths=(death(1), death(0, t_s=12.0)), failure=OOM))
    assert finding.title == "Rank 1 ended with exit code 1: the GPU's memory ran out"
    assert finding.fixes[0].title == "a smaller batch" and finding.evidence[-1].note == "CUDA out of memory."


def test_run002_tells_a_rank_that_ran_out_of_data_to_make_as_many_steps() -> None:
    gone = death(0, t_s=11.0, exception="RuntimeError: Connection closed by peer", follows=True)
    finding = found("RUN002", jobs.unjudged(deaths=(death(1, exit_code=0), gone)))
    assert finding.title == "Rank 1 left while other ranks still trained"
    assert "drop_last" in finding.fixes[0].title


def test_run002_blames_the_rank_that_follows_no_other() -> None:
    gone = death(0, t_s=9.0, exception="RuntimeError: Connection closed by peer", follows=True)
    finding = found("RUN002", jobs.unjudged(deaths=(gone, death(1, t_s=10.0)), failure=OOM))
    assert finding.scope.ranks == (1,) and [e.metric for e in finding.evidence][:2] == ["rank 1", "rank 0"]
    assert "it follows" in finding.evidence[1].note


@pytest.mark.parametrize(
    ("first", "failure"),
    [
        (death(1, signal=9, exit_code=None), OOM),
        (death(1, signal=9, exit_code=None, oom_killed=True), replace(OOM, rank=None)),
        (death(0), OOM),
        (death(1), replace(OOM, kind="exception")),
    ],
)
def test_run002_takes_no_reason_that_is_not_this_ranks(first: Death, failure: Failure) -> None:
    assert "memory ran out" not in found("RUN002", jobs.unjudged(deaths=(first,), failure=failure)).title


def test_run002_tells_of_a_job_that_failed_before_it_trained() -> None:
    taken = Failure("address in use", "the port for the rendezvous is taken", "another port", None, "EADDRINUSE")
    finding = found("RUN002", jobs.unjudged(failure=taken))
    assert finding.title == "The job failed before its first step: the port for the rendezvous is taken"
    assert finding.fatal and finding.fixes[0].title == "another port"
    assert found("RUN002", jobs.unjudged(failure=replace(taken, rank=2))).scope.ranks == (2,)


def test_run002_tells_of_a_death_that_came_before_the_users_ctrl_c() -> None:
    killed, stopped = death(1, signal=9, exit_code=None), death(0, signal=2, exit_code=None, t_s=70.0)
    assert found("RUN002", deaths=(killed, stopped)).scope.ranks == (1,)


def test_run003_says_when_where_and_by_how_much() -> None:
    finding = found("RUN003")
    assert finding.title == "The job became 1.4× slower at step 200, on rank 1"
    assert finding.scope == Affected(ranks=(1,), since_step=200)
    assert finding.evidence[0].note == "since 3:32 (1.00 s before, over 200 steps)"
    assert "rank 1 does since step 200" in finding.fixes[0].title
    everywhere = found("RUN003", number=None, until=500.0, lost=0.2)
    assert everywhere.scope.ranks == () and "until 8:20" in everywhere.evidence[0].note
    assert not everywhere.explains and finding.explains == ("COM002",)


def test_run003_promises_of_the_step_as_it_is_now_and_of_the_whole_run_once_it_is_over() -> None:
    lasting = found("RUN003", lost=0.02).saving
    assert lasting is not None and lasting.speedup == pytest.approx((1.4 / 1.2, 1.4 / (1 - 0.15 * 0.4 / 1.4)))
    over = found("RUN003", until=500.0, lost=0.2).saving
    assert over is not None and over.speedup == pytest.approx((1 / 0.9, 1 / (0.8 * (1 - 0.15 * 0.2))))


def test_run003_tells_of_the_costliest_change_and_mentions_the_others() -> None:
    small, large = jobs.run003(after=1.2).changes[0], jobs.run003(after=1.6).changes[0]
    finding = found("RUN003", jobs.run003(changes=(replace(small, step=90), large)))
    assert finding.scope.since_step == 200 and "1.6×" in finding.title
    assert finding.evidence[-1].metric == "another change" and "at step 90, on rank 1" in finding.evidence[-1].note


@pytest.mark.parametrize(
    ("metric", "scope", "values", "said"),
    [
        ("quota.throttled_s_per_s", "rank:1", (0.0, 0.6), "raise the CPU quota"),
        ("cpu.other_cores", "job", (0.1, 1.9), "keep 1.9 cores busy"),
        ("gpu.sm_clock_mhz", "gpu:3", (1980.0, 1200.0), "the clock of GPU 3 fell"),
    ],
)
def test_run003_follows_what_changed_at_that_moment(
    metric: str, scope: str, values: tuple[float, float], said: str
) -> None:
    finding = found("RUN003", seen=(Coincidence(metric, scope, *values, ""),))
    assert said in finding.fixes[0].title and any(e.metric == metric for e in finding.evidence)


@pytest.mark.parametrize(
    ("phase", "said"), [("input_wait", "data loading"), ("gap", "after each step"), ("comm_exposed", "network")]
)
def test_run003_looks_where_the_time_went(phase: str, said: str) -> None:
    assert said in found("RUN003", phase=phase).fixes[0].title


@pytest.mark.parametrize("cause", ["CMP007", "CPU001", "CPU003", "GPU001", "DAT002"])
def test_run003_leaves_the_why_to_its_causes(cause: str) -> None:
    phase = "input_wait" if cause == "DAT002" else "forward"
    assert cause in found("RUN003", phase=phase).causes


def test_cpu003_names_what_the_job_computes_besides() -> None:
    finding = found("CPU003", others=1.0, helpers=7.0)
    assert "that the job started itself keep 8.0 cores busy" in finding.title
    assert "python embed.py" in finding.evidence[1].note and "beside training elsewhere" in finding.fixes[0].title
    neighbours = found("CPU003", others=7.0, helpers=1.0)
    assert neighbours.title.startswith("Other processes keep 8.0") and "stop or move" in neighbours.fixes[0].title
    assert neighbours.seconds_per_step == pytest.approx(found("CPU003", others=8.0).seconds_per_step)


def test_run003_blames_no_loop_whose_steps_may_have_become_longer_episodes() -> None:
    """Of a loop that no DataLoader feeds nobody knows how much a step has to do."""
    episodes = found("RUN003", number=None, loaders=())
    assert episodes.severity == "low" and any("episodes" in e.note for e in episodes.evidence)
    hotter = Coincidence("gpu.sm_clock_mhz", "gpu:3", 1980.0, 1200.0, "MHz")
    for explained in ({"seen": (hotter,)}, {"loaders": (loader(0, 2),)}, {"phase": "gap"}, {"number": 1}):
        other = found("RUN003", **{"number": None, "loaders": (), **explained})
        assert other.severity in ("high", "critical") and not any("episodes" in e.note for e in other.evidence)


def test_run003_is_but_a_note_where_the_job_has_more_to_do() -> None:
    (grown,) = jobs.run003(after=2.0).changes
    meant = replace(grown, work="35,130 parameters learn, 650 before", step=100, lost_share=0.4)
    finding = found("RUN003", changes=(meant,))
    assert finding.severity == "info" and finding.saving is None
    assert finding.fixes[0].title == "none is needed where this is meant: 35,130 parameters learn, 650 before"
    both = found("RUN003", changes=(meant, grown))
    assert both.severity == "critical" and both.scope.since_step == 200, "one with another reason comes first"


def test_run004_names_period_phase_and_line() -> None:
    finding = found("RUN004")
    assert finding.title == "Every 25 steps a step stalls"
    assert found("RUN004", number=1).title.endswith(", on rank 1") and found("RUN004", number=1).explains == ("COM002",)
    assert "every 25 steps after the optimizer" in finding.fixes[0].title
    assert found("RUN004", phase="forward").fixes[0].where is None, "stack samples are taken between steps"
    assert "runs on this machine every 26.0 s" in found("RUN004", steps=None).fixes[0].title
    assert "write less at once" in found("RUN004", coincides="a disk flush").fixes[0].title


@pytest.mark.parametrize(
    ("coincides", "rule"),
    [
        ("an epoch begins", "DAT006"),
        ("a checkpoint", "LOP001"),
        ("an evaluation", "LOP003"),
        ("a garbage collection", "CPU006"),
    ],
)
def test_run004_is_but_a_note_where_another_rule_judges(coincides: str, rule: str) -> None:
    finding = found("RUN004", coincides=coincides, share=0.4)
    assert finding.severity == "info" and rule in finding.causes
    assert finding.evidence[2].note == f"coincides with: {coincides}"


def test_run004_needs_nothing_done_where_the_model_computes_more() -> None:
    finding = found("RUN004", coincides="more work for the model", share=0.4, phase="backward")
    assert finding.severity == "info" and finding.title == "Every 25 steps a step computes more"
    assert finding.fixes[0].title.startswith("none is needed") and finding.saving is None
    assert found("RUN004", coincides="an evaluation").saving is not None


def test_dat005_advises_the_workers_that_keep_up_when_nobody_waits_for_a_core() -> None:
    # a batch takes 4 s, 2.4 s without the waiting, beside a step of one second
    assert found("DAT005").fixes[0].title == "num_workers=16 → 3"
    assert found("DAT005", cpu=0.4).evidence[0].value == pytest.approx(0.5)


def test_dat005_gives_back_what_the_begin_of_epochs_owes_to_the_crowd() -> None:
    """Of four seconds, what a batch takes alone would stay: 60 % of the four that it takes in the crowd."""
    finding = found("DAT005", delay=0.0, start=0.4)
    begin = {e.metric: e for e in finding.evidence}["step.epoch_start_s"]
    assert begin.value == pytest.approx(0.16) and "each begins with 4000 ms" in begin.note
    assert finding.saving is not None and finding.saving.seconds_per_step == pytest.approx((0.08, 0.16))
    long = found("DAT005", delay=0.0, start=0.4, wall=1.0)  # two batches of each of 32 workers on 16 cores take 2.4 s
    assert {e.metric: e.value for e in long.evidence}["step.epoch_start_s"] == pytest.approx(0.4 * (2.4 - 0.6) / 4)


def test_dat005_is_the_root_of_stalls_that_come_with_its_epochs() -> None:
    stalls = jobs.run004(phase="input_wait", share=0.3).pulse
    made = jobs_of_input.dat005(delay=0.2, start=0.3, pulse=stalls)
    told = {finding.rule: finding.explained_by for finding in judge(made, all_rules(), Config()).findings}
    assert told["DAT005"] is None and told["RUN004"] == "DAT005"


def test_dat006_expects_nothing_of_workers_whose_first_batch_is_what_takes_long() -> None:
    map_style, stream = found("DAT006", first=1.2), found("DAT006", first=1.2, length=None)
    assert map_style.saving is not None and stream.saving is not None
    assert map_style.saving.speedup[0] == pytest.approx(stream.saving.speedup[0])
    assert map_style.saving.speedup[1] > stream.saving.speedup[1], "an iterable begins anew either way"


def test_dat006_is_less_sure_of_two_epochs() -> None:
    assert found("DAT006", epochs=1.0).confidence < found("DAT006", epochs=2.0).confidence


def test_dat009_takes_batches_out_of_order_only_where_torch_can() -> None:
    assert found("DAT009").fixes[0].title == "in_order=False"
    assert found("DAT009", torch="2.6.1").fixes[0].title == "prefetch_factor=2 → 4"
    assert found("DAT009", facts={}).fixes[0].title == "prefetch_factor=2 → 4"


def test_dat009_names_the_rank_whose_batches_are_slow() -> None:
    assert found("DAT009", only=0.0).scope.ranks == (1,)


def test_dat012_speaks_of_a_death_with_the_words_of_the_rank() -> None:
    dead = death(1, exception="RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.", step=3)
    finding = found("DAT012", full=0.3, deaths=(dead,))
    assert finding.fatal and finding.scope.ranks == (1,) and "64 MB" in finding.title
    assert "Bus error" in str(finding.evidence[0].value)
    assert not found("DAT012").fatal


@pytest.mark.parametrize(
    ("dead", "line"),
    [
        pytest.param((), 42, id="nearly full: what trains"),
        pytest.param((death(1, role="worker", signal=7),), 42, id="a worker of which nobody knows whose it was"),
        pytest.param((death(1, role="worker", signal=7, loader=42),), 42, id="the training loader's worker"),
        pytest.param((death(1, role="worker", signal=7, loader=60),), 60, id="the evaluation loader's"),
        pytest.param((death(1, role="worker", signal=15, loader=60),), 42, id="one that was merely ended"),
    ],
)
def test_dat012_names_the_loader_whose_worker_died_else_the_one_that_trains(dead: tuple[Death, ...], line: int) -> None:
    said = death(1, exception="RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.")
    loaders = tuple(loader(r, 2, line=at, training=at == 42) for r in (0, 1) for at in (30, 60, 42))
    deaths = (*dead, said) if dead else ()
    where = found("DAT012", deaths=deaths, loaders=loaders).fixes[0].where
    assert where is not None and where.line == line


def test_dat012_says_that_it_could_not_look() -> None:
    unseen = replace(jobs.unjudged(), loaders=(loader(0, 2),))
    assert run_rule(RULES["DAT012"], unseen, Config()) == NotMeasured("DAT012", ("shm.used_share",))


def test_dat006_waits_for_each_worker_at_the_begin_of_an_epoch_at_worst() -> None:
    # ten steps: 0.1 of the 0.2 s is the first batch's 0.4 s and two hand-overs of 0.3 s
    usual = jobs_of_input.dat006()
    values = {**usual.values, **{("step.input_wait_s", f"rank:{n}"): 0.3 for n in (0, 1)}}
    finding = found("DAT006", replace(usual, values=values))
    assert finding.saving is not None
    assert finding.saving.seconds_per_step[0] == pytest.approx(0.75 * 0.1)
    assert best_step_s(finding) == pytest.approx(warm(1 - 0.18))


def test_dat006_gives_back_what_starting_workers_take_from_the_first_steps_compute() -> None:
    usual = jobs_of_input.dat006()
    values = {**usual.values, **{("epoch.start_compute_s", f"rank:{n}"): 0.5 for n in (0, 1)}}
    plain, slowed = found("DAT006", usual), found("DAT006", replace(usual, values=values))
    assert plain.saving is not None and slowed.saving is not None
    gained = slowed.saving.seconds_per_step[0] - plain.saving.seconds_per_step[0]
    assert gained == pytest.approx(0.75 * 0.025), "half of it at worst, a tenth of that in each step"
    assert [best_step_s(f) for f in (plain, slowed)] == pytest.approx([warm(0.82), warm(0.77)]), "at best all of it"


def test_dat007_gives_back_at_best_what_workers_keep_the_training_thread_waiting() -> None:
    waited = jobs_of_input.dat007(delay=0.0)
    values = {**waited.values, **{("step.run_delay_s", f"rank:{n}"): 0.2 for n in (0, 1)}}
    late = jobs.played(replace(waited, values=values))
    assert best_step_s(found("DAT007", waited)) == pytest.approx(warm(0.0494 + 0.6))
    assert best_step_s(found("DAT007", late)) == pytest.approx(warm(0.0494 + 0.4))  # 0.2 of 0.6 s were spent in line


def test_dat007_gives_back_at_best_what_shared_memory_costs_inside_the_kernel() -> None:
    busy = jobs_of_input.dat007(delay=0.0)
    kernel = {"fetch.system_share": 0.4, "step.system_s": 0.1}
    values = {**busy.values, **{(name, f"rank:{n}"): v for name, v in kernel.items() for n in (0, 1)}}
    best = 0.6 * 0.05 - 0.0006 + 0.6 - 0.4 * 0.05
    assert best_step_s(found("DAT007", jobs.played(replace(busy, values=values)))) == pytest.approx(
        warm(best), rel=1e-3
    )


def test_dat007_knows_that_a_batch_made_in_place_takes_no_shared_memory() -> None:
    slow = jobs_of_input.dat007(delay=0.0, wall=0.4)
    values = {**slow.values, **{("fetch.system_share", f"rank:{n}"): 0.9 for n in (0, 1)}}
    assert run_rule(RULES["DAT007"], slow, Config()) == Clear("DAT007")
    assert found("DAT007", jobs.played(replace(slow, values=values))).evidence[1].value == pytest.approx(
        0.094, abs=0.001
    )


def test_what_workers_that_start_take_is_no_preprocessing() -> None:
    several = jobs.dat001(wait=0.4)
    values = {**several.values, **{("step.epoch_start_s", f"rank:{n}"): 0.3 for n in (0, 1)}}
    finding = found("DAT001", replace(several, values=values))
    assert finding.seconds_per_step == pytest.approx(0.1)
    assert best_step_s(finding) == pytest.approx(0.9)


@pytest.mark.parametrize(("span", "best"), [(0.2, 0.88), (0.3, 0.85), (0.5, 0.8)])
def test_of_an_exchange_that_backward_partly_hides_half_the_bytes_save_more_than_half_of_what_shows(
    span: float, best: float
) -> None:
    finding = found("COM001", jobs.com001(values={"comm.megabytes": 100.0, "comm.span_s": span}))
    assert finding.saving is not None
    assert finding.saving.speedup == pytest.approx((1 / 0.92, 1 / best))


@pytest.mark.parametrize(("ranks", "said"), [(1, False), (2, True)])
def test_only_where_there_are_other_ranks_did_they_follow(ranks: int, said: bool) -> None:
    alone = jobs.job({n: rank() for n in range(ranks)}, deaths=(death(0, exit_code=1),))
    assert ("followed" in found("RUN002", alone).fixes[0].title) is said


def test_dat001_blames_no_workers_for_waits_that_neighbours_may_have_caused() -> None:
    crowded = jobs.dat001(wait=0.01, crowd=0.4)
    assert isinstance(run_rule(RULES["DAT001"], crowded, Config()), Finding)
    assert isinstance(run_rule(RULES["DAT001"], jobs.without(crowded, "cpu.other_cores"), Config()), Clear)


@pytest.mark.parametrize(
    ("rule", "nothing", "steps"), [("RUN003", {"changes": ()}, 80), ("RUN004", {"pulse": None}, 30)]
)
def test_too_few_steps_hide_a_change_and_a_period(rule: str, nothing: dict[str, Any], steps: int) -> None:
    for steady, says in ((steps - 1, NotMeasured(rule, ("step.steady",))), (steps, Clear(rule))):
        assert run_rule(RULES[rule], TABLES[rule].job(**nothing, steady=steady), Config()) == says


def test_a_hang_of_ranks_that_nobody_saw_is_not_ruled_out() -> None:
    unseen = replace(jobs.run001(), stalls=(), world_size=0)
    assert run_rule(RULES["RUN001"], unseen, Config()) == NotMeasured("RUN001", ("step.time_s",))
    assert run_rule(RULES["RUN001"], replace(unseen, world_size=1), Config()) == Clear("RUN001")


def test_of_a_host_that_is_half_idle_more_is_stolen_from_whoever_runs() -> None:
    # the job keeps 3.1 of 8 cores busy, somebody else half a one
    half_idle = jobs.cpu002(0.1, cores=8.0, job_cores=3.1)
    known = replace(half_idle, values={**half_idle.values, ("cpu.host_cores", "job"): 8.0})
    assert best_step_s(found("CPU002", known)) == pytest.approx(1 - 0.8 / (0.8 + 3.6))
    assert best_step_s(found("CPU002", half_idle)) == pytest.approx(0.9)


def test_within_a_quota_workers_are_missing_however_busy_the_rest_of_the_host_is() -> None:
    busy = {"cpu.host_busy_cores": 44.0, "cpu.other_cores": 40.0, "cpu.host_cores": 64.0, "cpu.affinity_cores": 64.0}
    for rule, job, says in (
        ("DAT004", jobs.dat004, Finding),
        ("DAT001", jobs.dat001, Clear),
        ("CPU003", jobs.cpu003, Clear),
    ):
        within = job()
        values = {**within.values, ("cpu.job_cores", "job"): 4.0, **{(name, "job"): v for name, v in busy.items()}}
        assert isinstance(run_rule(RULES[rule], replace(within, values=values), Config()), says), rule


def test_a_quota_that_is_used_up_leaves_no_core_for_more_workers() -> None:
    within = jobs.dat001()
    about = {"cpu.job_cores": 15.9, "cpu.host_busy_cores": 20.0, "cpu.host_cores": 64.0}
    used_up = replace(within, values={**within.values, **{(name, "job"): value for name, value in about.items()}})
    rows = {e.metric: e for e in found("DAT001", used_up).evidence}
    assert rows["cpu.job_cores"].value == 15.9 and "of 16 allowed" in rows["cpu.job_cores"].note


def test_dat001_gives_back_waits_for_a_core_where_they_are_and_waits_for_input_apart_from_them() -> None:
    """Who waits for a batch stands in no line: of a second, 0.4 s for input and 0.3 s for a core leave 0.3 s at best."""
    saving = found("DAT001", jobs.dat001(wait=0.4, crowd=0.3, wall=6.0)).saving
    assert saving is not None and saving.speedup == pytest.approx((1 / 0.65, 1 / 0.3))


def test_dat001_goes_by_idle_cores_where_no_forecast_is() -> None:
    squeezed = jobs.dat001(allowed=2.0, workers=1, wall=0.95, busy=1.6, working=0.95)
    assert run_rule(RULES["DAT001"], squeezed, Config()) == Clear("DAT001"), "another worker helps"
    assert isinstance(run_rule(RULES["DAT001"], replace(squeezed, forecast=None), Config()), Finding)


def test_stolen_cores_are_no_room_for_workers() -> None:
    analysis = jobs.dat004(idle=4.0, allowed=8.0)
    about = {"cpu.host_cores": 8.0, "cpu.steal_share": 0.45}
    stolen = replace(analysis, values={**analysis.values, **{(name, "job"): value for name, value in about.items()}})
    assert isinstance(run_rule(RULES["DAT004"], analysis, Config()), Finding)
    assert run_rule(RULES["DAT004"], stolen, Config()) == Clear("DAT004")


def test_a_job_that_crowds_the_cores_it_is_bound_to_blames_no_neighbours_elsewhere() -> None:
    crowded = jobs.cpu003(others=30.0, busy=34.0)
    about = {"cpu.allowed_cores": 4.0, "cpu.affinity_cores": 4.0, "cpu.host_cores": 64.0}
    bound = replace(crowded, values={**crowded.values, **{(name, "job"): value for name, value in about.items()}})
    assert run_rule(RULES["CPU003"], bound, Config()) == Clear("CPU003")
    # it uses half of its cores and yet waits for one: somebody else is on them
    shared = replace(bound, values={**bound.values, ("cpu.job_cores", "job"): 2.0})
    assert found("CPU003", shared).evidence[1].value == pytest.approx(2.0)


@pytest.mark.parametrize(("quota", "said"), [(1.0, "of 1 core throttles"), (0.35, "of 0.35 cores throttles")])
def test_cpu001_counts_its_cores(quota: float, said: str) -> None:
    held = jobs.cpu001()
    finding = found("CPU001", replace(held, values={**held.values, ("quota.cores", "rank:1"): quota}))
    assert said in finding.title and said.removesuffix(" throttles").removeprefix("of ") in finding.fixes[1].title


@pytest.mark.parametrize(
    ("others", "ranks", "title"), [(0.05, (0,), "on rank 0"), (0.07, (), "steps"), (0.2, (), "steps")]
)
def test_time_between_steps_is_that_of_the_ranks_that_spend_it(
    others: float, ranks: tuple[int, ...], title: str
) -> None:
    given = jobs.job({0: rank(gap=0.2), 1: rank(gap=others), 2: rank(gap=others)}, values={"gap.io_share": 0.1})
    finding = found("LOP004", given)
    assert finding.scope.ranks == ranks and finding.title.endswith(title)
    model, saving = given.model, finding.saving
    assert model is not None and saving is not None
    after_s = model.step_if({(number, "gap"): 0.0 for number in model.own})
    assert saving.speedup[1] == pytest.approx(model.step_s / model.at_best(after_s))


@pytest.mark.parametrize(("others", "hosts", "computes_s"), [(0.0, 1, 0.6), (0.0, 2, 0.7), (0.2, 1, 0.7)])
def test_ranks_wait_for_cores_by_turns_once_none_works_while_the_others_wait(
    others: float, hosts: int, computes_s: float
) -> None:
    own = {0: rank(0.7, gap=0.2), 1: rank(0.7 + others, gap=others)}
    values = {"gap.io_share": 0.1, "step.run_delay_s": {0: 0.0, 1: 0.2}}
    given = jobs.job(own, values=values)
    assert given.model is not None
    model = replace(given.model, hosts=hosts)
    saving = found("LOP004", replace(given, model=model)).saving
    assert saving is not None
    # rank 0 computes 0.5 s and rank 1 0.7 s, of which it waits 0.2 s for a core; a wire of nothing, and no less jitter than work
    after_s = model.step_if({(n, "gap"): 0.0 for n in own}) * computes_s / 0.7
    assert saving.speedup[1] == pytest.approx(model.step_s / model.at_best(after_s))


@pytest.mark.parametrize("rule", ["LOP002", "LOP004"])
@pytest.mark.parametrize("share", [0.6, 0.59])
def test_what_came_once_between_steps_is_promised_nothing_of(rule: str, share: float) -> None:
    io = 0.9 if rule == "LOP002" else 0.1
    once = {"step.gap_s": {0: 0.4, 1: 0.0}, "step.longest_gap_s": {0: 18.0}, "step.longest_gap_share": {0: share}}
    finding = found(rule, jobs.job({0: rank(gap=0.4), 1: rank(0.6)}, values={"gap.io_share": io, **once}))
    assert finding.saving is not None
    if share >= 0.6:
        assert finding.severity == "medium" and finding.saving.speedup[0] == 1.0
        assert [e.value for e in finding.evidence if e.metric == "step.longest_gap_s"] == [18.0]
    else:
        assert finding.severity == "critical" and finding.saving.speedup[0] > 1.3


def test_lop001_counts_what_is_written_after_a_checkpoint_was_made_in_memory() -> None:
    finding = found("LOP001", spent=0.1, gap=0.2, saving=0.9)
    assert finding.seconds_per_step == pytest.approx(0.1 + 0.18)
    assert finding.saving is not None and finding.saving.seconds_per_step[0] == pytest.approx(0.14)
    measured = [(e.metric, e.value, e.threshold) for e in finding.evidence]
    assert measured[:2] == [("step.checkpoint_s", 0.1, 0.03), ("gap.save_share", 0.9, 0.5)]
    assert "another 18 %" in finding.evidence[1].note
    assert "gap.save_share" not in {e.metric for e in found("LOP001", gap=0.2, saving=0.4).evidence}


@pytest.mark.parametrize(
    ("saved", "once", "severity"), [(0.1, 0.6, "medium"), (0.1, 0.59, "high"), (0.2, 0.6, "critical")]
)
def test_what_is_written_once_between_steps_may_never_be_written_again(
    saved: float, once: float, severity: str
) -> None:
    values = {"gap.save_share": 0.9, "step.gap_s": {0: 0.2, 1: 0.0}}
    values |= {"step.longest_gap_s": {0: 18.0}, "step.longest_gap_share": {0: once}}
    finding = found("LOP001", spent=saved, gap=0.2, values=values)
    assert finding.severity == severity and finding.saving is not None
    assert (finding.saving.speedup[0] == 1.0) == (severity == "medium")


@pytest.mark.parametrize("rule", ["LOP002", "LOP004"])
def test_what_is_a_checkpoints_is_neither_logging_nor_anybodys_line(rule: str) -> None:
    given = jobs.lop001(spent=0.1, gap=0.2, saving=0.9, values={"gap.save_share": 0.9, "gap.io_share": 0.1})
    assert run_rule(RULES[rule], given, Config()) == Clear(rule)


def test_dat004_promises_nothing_for_sure_where_workers_wait_for_a_server() -> None:
    line = SampleLine("__getitem__", SCRIPT, 61, 7, 10)
    asks, plain = (found("DAT004", values_too={"loader.asking_share": share}, asking=line) for share in (0.5, 0.49))
    assert asks.saving is not None and plain.saving is not None
    assert asks.saving.speedup[0] == 1.0 < plain.saving.speedup[0] and asks.saving.speedup[1] == plain.saving.speedup[1]
    assert "if the server can answer more at once" in asks.fixes[0].title and "server" not in plain.fixes[0].title
    assert asks.fixes[1].where == Where(SCRIPT, 61) and len(plain.fixes) == 1
    assert asks.confidence < plain.confidence and any("7 of 10 looks" in e.note for e in asks.evidence)


@pytest.mark.parametrize(("died_s", "fires"), [(56.0, False), (54.0, True)])
def test_ranks_that_leave_with_code_1_as_the_job_is_interrupted_were_interrupted(died_s: float, fires: bool) -> None:
    meta = replace(jobs.META, exit_signal=2, started_ns=0, ended_ns=60_000_000_000)
    given = jobs.unjudged(deaths=(death(1, t_s=died_s), death(0, t_s=died_s)), meta=meta)
    rule = next(rule for rule in all_rules() if rule.id == "RUN002")
    assert isinstance(run_rule(rule, given, Config()), Finding) == fires


@pytest.mark.parametrize(
    "own",
    [
        {"exception": "RuntimeError: nan"},
        {"exit_code": None, "signal": 11},
        {"exit_code": None, "signal": 9, "oom_killed": True},
    ],
    ids=["exception", "crash", "no memory"],
)
def test_a_rank_that_failed_just_before_somebody_interrupted_the_rest_has_failed(own: dict[str, Any]) -> None:
    meta = replace(jobs.META, exit_signal=2, started_ns=0, ended_ns=60_000_000_000)
    given = jobs.unjudged(deaths=(death(1, t_s=57.0, **own), death(0, t_s=59.0)), meta=meta)
    assert not given.stopped_from_outside


ASKED_S = 10.0


@pytest.mark.parametrize(
    ("first", "stopped"),
    [
        pytest.param({"t_s": 12.0}, True, id="it leaves with a code of its own"),
        pytest.param({"t_s": 130.0}, True, id="it saves for two minutes before"),
        pytest.param({"t_s": 130.1}, False, id="it went on, and failed later"),
        pytest.param({"t_s": 9.9}, False, id="it had failed before"),
        pytest.param({"t_s": 40.0, "signal": 9, "exit_code": None}, True, id="patience ended"),
        pytest.param({"t_s": 40.0, "signal": 9, "exit_code": None, "oom_killed": True}, False, id="no memory"),
        pytest.param({"t_s": 12.0, "exception": "OSError: No space left on device"}, False, id="it cannot save"),
        pytest.param({"t_s": 12.0, "exception": "RuntimeError: peer gone", "follows": True}, True, id="it follows"),
    ],
)
def test_what_was_asked_to_end_did_not_fail(first: dict[str, Any], stopped: bool) -> None:
    meta = replace(jobs.META, exit_code=1)
    given = jobs.unjudged(deaths=(death(1, **first), death(0, t_s=140.0)), meta=meta, asked_to_end_s=(ASKED_S,))
    rule = next(rule for rule in all_rules() if rule.id == "RUN002")
    assert given.stopped_from_outside == stopped != isinstance(run_rule(rule, given, Config()), Finding)
    assert not replace(given, asked_to_end_s=()).stopped_from_outside


@pytest.mark.parametrize(("lasted_s", "why", "stopped"), [(15.0, None, True), (131.0, None, False), (15.0, OOM, False)])
def test_a_job_whose_ranks_leave_in_order_was_stopped_too(lasted_s: float, why: Failure | None, stopped: bool) -> None:
    given = jobs.unjudged(duration_s=lasted_s, failure=why, asked_to_end_s=(ASKED_S,))
    assert given.stopped_from_outside == stopped


@pytest.mark.parametrize(("best_s", "workers"), [(1 / 1.03, True), (1 / 1.01, False)])
def test_dat003_advises_no_workers_where_none_would_help(best_s: float, workers: bool) -> None:
    given = jobs.dat003()
    assert given.forecast is not None
    n = len(given.forecast.best_s)
    forecast = replace(given.forecast, best_s=(1.0, *[best_s] * (n - 1)), worst_s=(1.0, *[1.2] * (n - 1)))
    finding = found("DAT003", replace(given, forecast=forecast))
    assert (
        finding.fixes[0].title.startswith("num_workers=0 →" if workers else "make samples cheaper") and finding.saving
    )
    assert (finding.saving.speedup == pytest.approx((1.0, 1.0 / 0.6))) != workers
