"""A run on a machine that was triaged since its last boot cites it; any other file beside the runs changes nothing."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from probe_trees import write_tree
from rn50_advisor.advisor import triage as triage_package
from rn50_advisor.advisor.model.documents.machine_triage import BOOT_ID, DATA_PLACE, MADE_AT, UNIX_SECONDS, Band, Triage
from rn50_advisor.advisor.model.findings import Affected, Evidence, Finding
from rn50_advisor.advisor.run.machine_results import FILE_NAME, known_machine
from rn50_advisor.advisor.triage.found_checks import Found, fact, judged, unproved
from rn50_advisor.advisor.triage.storage import decode_speed
from rn50_advisor.advisor.triage.triage_runner import conclude
from rn50_advisor.advisor.verdict.triage_evidence import with_machine, without_triage
from rn50_advisor.rules.registry import all_rules

RULES = all_rules()
BOOT = "6f1d2f6e-0000-4000-8000-000000000001"


def triage(boot: str = BOOT) -> Triage:
    slow = judged(
        "disk.sequential_mb_per_s", 20.0, "MB/s", Band(93.75, None, "AWS gp3"), remedy="fix", hint="slow", why="slow"
    )
    return conclude(
        [
            fact(BOOT_ID, boot),
            fact(MADE_AT, 1767225600.0, UNIX_SECONDS),
            slow,
            unproved(
                judged("disk.small_reads_per_s", 3.0, "files/s", Band(800.0, None, "AWS gp3")), "others were busy"
            ),
            judged("gpu.3.throttled_share", 0.6, "share", Band(None, 0.02, "rule GPU001"), hint="hot"),
            fact("gpu.3.sustained_share", 0.9, "share"),
        ]
    )


def machine(tmp_path: Path, text: str) -> dict[str, object]:
    root = write_tree(tmp_path / "root", {"proc/sys/kernel/random/boot_id": f"{BOOT}\n"})
    (tmp_path / FILE_NAME).write_text(text)
    return known_machine(tmp_path, root)


def finding(rule: str, *gpus: int) -> Finding:
    return Finding(rule, "t", "high", 0.9, 1.0, Affected(gpus=gpus), (Evidence("own", 1.0),))


def test_the_same_machine_is_cited(tmp_path: Path) -> None:
    known = machine(tmp_path, json.dumps(triage().as_json()))
    assert known["verdict"] == "fix" and known["made_at"] == 1767225600.0
    disk, gpu, other = with_machine(
        (finding("DSK001"), finding("GPU001", 3), finding("DAT003")), {"triage": known}, RULES
    )
    own, cited = disk.evidence
    assert own.metric == "own" and (cited.metric, cited.value, cited.unit, cited.threshold) == (
        "disk.sequential_mb_per_s",
        20.0,
        "MB/s",
        93.75,
    )
    assert "bad, at least 93.8 MB/s expected (AWS gp3)" in cited.note
    assert cited.note.startswith("triage of this machine of 2026-01-01 00:00 UTC: ")
    assert [e.metric for e in gpu.evidence] == ["own", "gpu.3.throttled_share", "gpu.3.sustained_share"]
    assert len(other.evidence) == 1
    assert without_triage({"triage": known, "host": "x"}) == {"triage": "fix", "host": "x"}


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "[" * 100_000, json.dumps(triage("another").as_json()), json.dumps(conclude([]).as_json())]
)
def test_anything_else_beside_the_runs_is_left_alone(tmp_path: Path, text: str) -> None:
    assert machine(tmp_path, text) == {}


def test_without_a_triage_nothing_changes(tmp_path: Path) -> None:
    assert known_machine(tmp_path) == {}
    findings = (finding("DSK001"),)
    for environment in (
        {},
        {"triage": {"verdict": "keep"}},
        {"triage": {"checks": {"disk.sequential_mb_per_s": {"state": "unknown", "value": 1.0}}}},
        {"triage": {"checks": {"disk.sequential_mb_per_s": {"state": "ok"}}}},
    ):
        assert with_machine(findings, environment, RULES) == findings
    assert without_triage({"triage": {"verdict": "keep"}}) == {"triage": "keep"}


def test_another_hosts_findings_do_not_cite_it() -> None:
    known = {"checks": {"cpu.steal_share": {"value": 0.2, "unit": "share", "state": "bad", "lo": None, "hi": 0.05}}}
    stolen = finding("CPU002")
    by_hosts = {hosts: replace(stolen, scope=Affected(hosts=hosts)) for hosts in ((), ("a",), ("b",), ("a", "b"))}
    cited = {
        hosts: len(with_machine((f,), {"triage": known}, RULES, host="a")[0].evidence) - 1
        for hosts, f in by_hosts.items()
    }
    assert cited == {(): 1, ("a",): 1, ("b",): 0, ("a", "b"): 0}


def rate(gpu: int, value: float) -> Found:
    return judged(f"gpu.{gpu}.hbm_gb_per_s", value, "GB/s", Band(1275.0, None, "a table"), hint="slow")


def test_a_finding_that_names_no_gpu_cites_the_worst_of_the_job(tmp_path: Path) -> None:
    rates = [rate(0, 600.0), rate(1, 1400.0), rate(2, 1200.0), rate(3, 1500.0)]
    known = machine(tmp_path, json.dumps(conclude([fact(BOOT_ID, BOOT), *rates]).as_json()))

    def cited(*gpus: int) -> list[str]:
        (found,) = with_machine((finding("CMP008"),), {"triage": known}, RULES, gpus=gpus)
        return [evidence.metric for evidence in found.evidence[1:]]

    assert cited(1, 2, 3) == ["gpu.2.hbm_gb_per_s"], "GPU 0 is not one of the job's"
    assert cited(1, 3) == ["gpu.1.hbm_gb_per_s"] and cited() == [] and cited(7) == []


@pytest.mark.parametrize("made_at", [None, "yesterday", 1e300, float("nan")])
def test_an_unreadable_time_is_left_out(made_at: object) -> None:
    check = {"value": 0.2, "unit": "share", "state": "bad", "lo": None, "hi": 0.05}
    known = {"checks": {"cpu.steal_share": check}, "made_at": made_at}
    (found,) = with_machine((finding("CPU002"),), {"triage": known}, RULES)
    assert found.evidence[1].note.startswith("triage of this machine: bad")


def test_a_gpu_without_units_for_bf16_is_cited_with_fp16(tmp_path: Path) -> None:
    half, full = (fact(f"gpu.0.matmul_{name}_tflop_per_s", 20.0, "TFLOP/s") for name in ("fp16", "bf16"))
    for checks, expected in (((half,), half), ((half, full), full)):
        known = machine(tmp_path, json.dumps(conclude([fact(BOOT_ID, BOOT), *checks]).as_json()))
        (found,) = with_machine((finding("CMP008"),), {"triage": known}, RULES, gpus=(0,))
        assert [evidence.metric for evidence in found.evidence[1:]] == [expected.check.name]


def test_decoding_is_cited_with_the_usual_rate(tmp_path: Path) -> None:
    """`CPU003` and `DAT001` cite it."""
    slow = decode_speed._per_core(310.0, Band(174.0, None, "a table"), 437.0)
    known = machine(tmp_path, json.dumps(conclude([fact(BOOT_ID, BOOT), slow]).as_json()))
    (found,) = with_machine((finding("DAT001"),), {"triage": known}, RULES)
    assert "a core prepares 310 images/s here, 437 are usual" in found.evidence[1].note
    assert "at least 174 images/s expected" in found.evidence[1].note


def test_a_disk_is_cited_with_its_place(tmp_path: Path) -> None:
    placed = conclude([fact(BOOT_ID, BOOT), fact(DATA_PLACE, "/data (ext4 on /dev/sdb)"), *_disk_and_cpu()])
    known = machine(tmp_path, json.dumps(placed.as_json()))
    disk, cpu = with_machine((finding("DSK001"), finding("CPU002")), {"triage": known}, RULES)
    assert "/data (ext4 on /dev/sdb)" in disk.evidence[1].note and "/data" not in cpu.evidence[1].note


def _disk_and_cpu() -> list[Found]:
    slow = judged("disk.sequential_mb_per_s", 20.0, "MB/s", Band(93.75, None, "AWS gp3"))
    return [slow, judged("cpu.steal_share", 0.2, "share", Band(None, 0.05, "rule CPU002"))]


def test_every_check_that_a_rule_names_is_one_that_triage_makes() -> None:
    """The sources of `triage` fill precision and size into the names of some."""
    sources = "".join(path.read_text() for path in Path(triage_package.__path__[0]).rglob("*.py"))
    declared = [check for rule in RULES for check in rule.triage_checks]
    named = [name for check in declared for name in ([check] if isinstance(check, str) else check)]
    assert len(named) > 30
    for name in named:
        family, *_, measure = name.split(".")
        assert f"{family}." in sources
        assert all(part in sources for part in re.split("_(?:bf16|fp16|1024)_", measure)), name
