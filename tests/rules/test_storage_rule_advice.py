"""What the rules on storage say in words, and which of them is the root where several fire."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import storage_rule_cases as jobs
from rule_cases import dat002, rank
from rule_table import warm

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Finding, NotMeasured
from rn50_advisor.advisor.model.input.mounts import DataMount
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import judge, run_rule
from rn50_advisor.rules.registry import all_rules

RULES = {rule.id: rule for rule in all_rules()}
STORAGE = ("DAT002", "DAT010", "DSK001", "DSK002")


def found(rule: str, analysis: Analysis) -> Finding:
    outcome = run_rule(RULES[rule], analysis, Config())
    assert isinstance(outcome, Finding), outcome
    return outcome


def causes(analysis: Analysis) -> dict[str, str | None]:
    judgement = judge(analysis, (RULES[name] for name in STORAGE), Config())
    return {finding.rule: finding.explained_by for finding in judgement.findings}


def both(first: Analysis, second: Analysis) -> Analysis:
    return replace(first, values={**first.values, **second.values})


def plus(analysis: Analysis, **values: float) -> Analysis:
    return replace(analysis, values={**analysis.values, **{(f"storage.{k}", "job"): v for k, v in values.items()}})


def notes(finding: Finding) -> dict[str, str]:
    return {row.metric: row.note for row in finding.evidence}


def test_a_throttled_volume_is_listed_under_the_storage_that_starves() -> None:
    assert causes(jobs.dsk002()) == {"DAT002": None, "DSK002": "DAT002"}


def test_a_disk_that_the_job_itself_saturates_is_listed_under_it_too() -> None:
    assert causes(jobs.dsk001()) == {"DAT002": None, "DSK001": "DAT002"}


def test_a_disk_that_others_saturate_is_the_root() -> None:
    assert causes(jobs.dsk001(own=0.03)) == {"DSK001": None, "DAT002": "DSK001"}
    finding = found("DSK001", jobs.dsk001(own=0.03))
    assert "by other processes: sdb" in finding.title
    assert "who else uses sdb" in finding.fixes[0].title and finding.fixes[0].where is None


def test_nobody_is_accused_where_the_jobs_share_is_unknown() -> None:
    assert "others" not in found("DSK001", jobs.dsk001(own=None)).title


def test_a_memory_limit_below_the_data_set_is_the_root_of_reading_it_again() -> None:
    analysis = both(jobs.dsk002(), jobs.dat010())
    assert causes(analysis) == {"DAT010": None, "DAT002": "DAT010", "DSK002": "DAT010"}
    finding = found("DAT010", analysis)
    assert "90 % of 800 MB is read again" in finding.title
    assert "memory limit by 620 MB" in finding.fixes[0].title  # 1.15 * 800 - 300


@pytest.mark.parametrize("room", [{"host": 500.0, "group": None}, {"host": 500.0, "group": 300.0}, {"group": 900.0}])
def test_where_no_limit_is_to_blame_the_storage_is(room: dict[str, Any]) -> None:
    assert causes(jobs.dat010(**room)) == {"DAT002": None, "DAT010": "DAT002"}
    assert "limit" not in found("DAT010", jobs.dat010(**room)).fixes[0].title


def test_only_what_later_epochs_read_can_be_kept() -> None:
    """Both ranks wait 0.4 s, all of it for reads; of these a half belongs to the first epoch."""
    whole, half = (found("DAT010", jobs.dat010(wait=0.4, blocked=0.8, later_reads=share)) for share in (1.0, 0.5))
    assert whole.seconds_per_step == pytest.approx(0.4)
    assert half.seconds_per_step == pytest.approx(0.2)


def test_a_run_that_is_soon_over_is_mostly_its_first_epoch() -> None:
    """Reads cost later epochs 0.4 of 1 s; the first one, at 2 s a step, has to read whatever the memory."""
    analysis = jobs.dat010(wait=0.4, blocked=0.9, later=1.0)
    cold = {("epoch.cold_steps", "job"): 100.0, ("epoch.cold_step_s", "job"): 2.0}
    plain, told_apart = (found("DAT010", replace(analysis, values={**analysis.values, **m})) for m in ({}, cold))
    assert plain.saving is not None and told_apart.saving is not None
    assert told_apart.saving.speedup[1] == pytest.approx(plain.saving.speedup[1])
    assert plain.saving.speedup[0] == pytest.approx(1 / 0.775), "half of a batch's 0.45 s, of two workers, held"
    assert told_apart.saving.speedup[0] == pytest.approx(3.0 / 2.6), "all of it held, and one epoch more"
    long = replace(analysis, values={**analysis.values, **cold, ("storage.later_epochs", "job"): 50.0})
    assert found("DAT010", long).saving == plain.saving, "over many epochs the first one is nothing"


def test_cached_reads_of_the_training_process_leave_it_its_computing() -> None:
    finding = found("DAT010", jobs.dat010(wait=0.4, blocked=0.5, workers=0))
    assert finding.seconds_per_step == pytest.approx(0.2)


def test_a_job_that_saw_one_epoch_only_is_not_measured() -> None:
    assert run_rule(RULES["DAT010"], dat002(), Config()) == NotMeasured(
        "DAT010",
        ("storage.reread_share", "storage.later_epochs", "storage.epoch_mb", "storage.later_read_share"),
    )


def test_a_job_that_does_not_wait_needs_no_look_at_its_disk() -> None:
    for rule in ("DAT010", "DSK001", "DSK002"):
        assert not isinstance(run_rule(RULES[rule], dat002(wait=0.01), Config()), NotMeasured)


def test_storage_that_nobody_could_look_at_is_not_measured() -> None:
    assert run_rule(RULES["DSK001"], dat002(), Config()) == NotMeasured(
        "DSK001", ("storage.busy_share", "storage.queue")
    )
    assert run_rule(RULES["DSK002"], dat002(), Config()) == NotMeasured("DSK002", ("storage.read_mb_s",))


def test_the_evidence_of_slow_storage_names_mount_rate_reads_files_and_cache() -> None:
    raid = DataMount("/data", "xfs", "/dev/md0", False, "md0", ("nvme1n1", "nvme2n1"))
    analysis = plus(
        dat002(storage=raid),
        read_mb_s=80.0, reads_s=640.0, request_kb=125.0, sample_kb=110.0, cache_hit_share=0.25, job_share=0.4,
    )  # fmt: skip
    finding = found("DAT002", analysis)
    assert finding.title == "Storage cannot deliver the samples: /data (xfs on md0 over nvme1n1, nvme2n1)"
    said = notes(finding)
    assert "640 reads/s of 125 KB, 40 % of it for this job" in said["storage.read_mb_s"]
    assert {"storage.sample_kb", "storage.cache_hit_share"} <= said.keys()
    assert "fetch.read_mb_per_s" not in said


def test_a_limit_of_the_control_group_is_named_with_its_remedy() -> None:
    finding = found("DSK002", jobs.dsk002(reads=198.0, reads_limit=200.0, limit=None))
    assert finding.title == "The volume is throttled: its control group allows 200 reads/s"
    assert "control group" in finding.fixes[0].title and "larger pieces" in finding.fixes[1].title
    assert len(found("DSK002", jobs.dsk002()).fixes) == 1  # larger reads are no fewer bytes


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"device": 0.1}, "the disk itself takes 10 % of the time"),
        ({"rate": 125.0}, "volumes are sold with"),
        ({"reads": 230.0, "spread": 0.004}, "evener than 230 reads"),
    ],
)
def test_an_even_rate_says_why_it_is_a_limit_and_is_less_sure(given: dict[str, Any], words: str) -> None:
    finding = found("DSK002", jobs.dsk002(**{"limit": None, "rate": 87.0, "spread": 0.01, **given}))
    assert words in notes(finding)["storage.mb_spread"]
    assert finding.confidence <= 0.75 < found("DSK002", jobs.dsk002()).confidence


def test_a_provider_that_holds_back_is_named() -> None:
    finding = found("DSK002", jobs.dsk002(limit=None, volume_exceeded_share=0.4))
    assert "this volume" in finding.title and "gp3" in finding.fixes[0].change
    assert "machine receives" in found("DSK002", jobs.dsk002(limit=None, storage=jobs.NFS, link_exceeded_s=9.0)).title


@pytest.mark.parametrize(
    ("seen", "fires"),
    [
        ({"device_share": 0.05, "io_wait_share": 0.05, "blocked": 2.0}, False),
        ({"device_share": 0.05, "io_wait_share": 0.30, "blocked": 2.0}, True),  # a limit before the disk
        ({"device_share": 0.05, "io_wait_share": 0.05, "blocked": 0.4}, True),
        ({"device_share": 0.50, "io_wait_share": 0.05, "blocked": 2.0}, True),
        ({"device_share": 0.05, "blocked": 2.0}, True),  # a kernel without PSI
    ],
)
def test_loaders_that_sleep_between_small_reads_do_not_wait_for_storage(seen: dict[str, float], fires: bool) -> None:
    outcome = run_rule(RULES["DAT002"], plus(dat002(storage=jobs.DATA), **seen), Config())
    assert isinstance(outcome, Finding) is fires


def test_a_network_mount_shows_neither_disk_nor_waiting_and_is_storage_all_the_same() -> None:
    seen = {"device_share": 0.05, "io_wait_share": 0.05, "blocked": 2.0}
    assert isinstance(run_rule(RULES["DAT002"], plus(dat002(storage=jobs.NFS), **seen), Config()), Finding)


@pytest.mark.parametrize(("asked_kb", "fires"), [(110.0, True), (0.6, True), (0.1, False)])
def test_a_loader_that_reads_nothing_does_not_wait_for_the_network(asked_kb: float, fires: bool) -> None:
    """No block is read from a disk; one file on a network mount was seen open."""
    analysis = plus(dat002(read_mb=0.0, storage=jobs.NFS), sample_kb=asked_kb)
    assert isinstance(run_rule(RULES["DAT002"], analysis, Config()), Finding) is fires


@pytest.mark.parametrize(("handed", "fires"), [(0.0, True), (0.04, True), (0.06, False)])
def test_waiting_for_a_batch_that_is_made_is_not_waiting_for_storage(handed: float, fires: bool) -> None:
    """Of 0.1 s a step, in two batches."""
    made = dat002(wait=0.1, storage=jobs.DATA)
    more = {("fetch.hand_over_s", f"rank:{n}"): handed / 2 for n in (0, 1)}
    more |= {("step.batches", f"rank:{n}"): 2.0 for n in (0, 1)}
    outcome = run_rule(RULES["DAT002"], replace(made, values={**made.values, **more}), Config())
    assert isinstance(outcome, Finding) is fires


def test_one_ranks_slow_data_is_not_the_disk_of_all() -> None:
    own = {0: rank(input_wait=0.0), 1: rank(input_wait=0.4)}
    waits = {("step.input_wait_s", f"rank:{n}"): phases["input_wait"] for n, phases in own.items()}
    for made in (jobs.dsk001(), jobs.dsk002(), jobs.dat010()):
        assert causes(replace(made, values={**made.values, **waits})) == {}


def each(analysis: Analysis, values: dict[str, float]) -> Analysis:
    """With these values of both ranks."""
    more = {(name, f"rank:{n}"): value for name, value in values.items() for n in (0, 1)}
    return replace(analysis, values={**analysis.values, **more})


@pytest.mark.parametrize(("rule", "job"), [("DAT002", dat002), ("DSK001", jobs.dsk001), ("DSK002", jobs.dsk002)])
@pytest.mark.parametrize(
    ("given", "values", "after_s"),
    [
        # of a second, 0.2 are the step's own; a batch takes one. At worst half of what reads can spare is spared
        pytest.param({"workers": 2, "blocked": 0.9}, {}, (0.2, 0.6), id="workers that hardly compute"),
        pytest.param({"workers": 1, "blocked": 0.55}, {}, (0.45, 0.725), id="one that computes for 450 ms"),
        pytest.param({"workers": 2, "blocked": 0.5}, {}, (0.25, 0.625), id="two of them"),
        pytest.param({"workers": 2, "blocked": 0.55}, {"step.batches": 2.0}, (0.45, 0.725), id="of two batches a step"),
        pytest.param({"blocked": 0.9, "cores": 2.0, "job_cores": 1.2}, {}, (0.6, 0.6), id="the cores"),
        pytest.param({"blocked": 0.9}, {"step.epoch_start_s": 0.1}, (0.3, 0.65), id="workers that start"),
        pytest.param({"workers": 0, "blocked": 0.6}, {}, (0.52, 0.76), id="in the training process"),
    ],
)
def test_faster_storage_computes_no_batch_faster(
    rule: str, job: Any, given: dict[str, Any], values: dict[str, float], after_s: tuple[float, float]
) -> None:
    saving = found(rule, each(job(**{"wait": 0.8, "job_cores": 1.0, **given}), values)).saving
    assert saving is not None and saving.speedup == pytest.approx((1 / after_s[1], warm(1 / after_s[0])))


def test_memory_for_what_is_read_again_adds_no_cores() -> None:
    few = {"wait": 0.8, "blocked": 0.9, "cores": 2.0}
    roomy, full = (found("DAT010", jobs.dat010(**few, job_cores=cores)) for cores in (0.4, 1.2))
    assert roomy.saving is not None and roomy.saving.speedup[1] == pytest.approx(1 / 0.55)
    assert full.saving is not None and full.saving.speedup[1] == pytest.approx(1 / 0.6)
