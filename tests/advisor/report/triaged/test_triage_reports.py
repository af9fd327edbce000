"""The triage in all its formats: the same verdict and numbers, and no string of the machine can break a page; bundle and exit codes."""

from __future__ import annotations

import json
import os
import re
import sys
import tarfile
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from probe_trees import V1_MOUNTS, V2_MOUNTS, write_tree
from rn50_advisor.advisor.commands import triage as command
from rn50_advisor.advisor.model.documents.machine_triage import (
    MADE_AT,
    UNIX_SECONDS,
    Band,
    Triage,
    TriageGap,
    parse_triage,
)
from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.report.triaged import render
from rn50_advisor.advisor.triage import deadline, triage_runner
from rn50_advisor.advisor.triage.found_checks import Found, Remedy, TriageOptions, fact, judged
from rn50_advisor.advisor.triage.ticket_bundle import KERNEL_FILES, write_bundle
from rn50_advisor.advisor.triage.triage_runner import conclude

HOSTILE = "</script><script>alert(1)</script> | `x` \x1b[31m [a](http://b) @you"


def made(remedy: Remedy = "fix") -> Triage:
    slow = judged(
        "disk.sequential_mb_per_s", 20.0, "MB/s", Band(93.75, None, "AWS gp3"), remedy=remedy, hint=HOSTILE, why=HOSTILE
    )
    quota = judged("cpu.steal_share", 0.01, "share", Band(None, 0.05, "rule CPU002"))
    unknown = judged("decode.images_per_core_s", None, "images/s", Band(174.0), hint="busy")
    return conclude([slow, quota, unknown, fact("cpu.model", HOSTILE), TriageGap("gpu.*", HOSTILE, "install")])


def test_the_text_says_verdict_reason_numbers_and_gaps() -> None:
    text = render(made(), "text")
    assert text.startswith("▲ fix a setting\n")
    assert re.search(r"✗ bad +disk\.sequential_mb_per_s +20 MB/s +≥ 93\.8 MB/s", text)
    assert re.search(r"✓ ok +cpu\.steal_share +1 % +≤ 5 %|✓ ok +cpu\.steal_share +1\.0 % +≤ 5\.0 %", text)
    assert "expected: AWS gp3" in text and "NOT MEASURED" in text and "\x1b" not in text
    assert max(map(len, text.split("\n"))) <= 100


@pytest.mark.parametrize(
    ("remedy", "words"),
    [("fix", "fix a setting"), ("hand-back", "hand this machine back"), ("note", "keep this machine")],
)
def test_each_verdict_has_its_words(remedy: Remedy, words: str) -> None:
    for format_ in ("text", "md", "html"):
        assert words in render(made(remedy), format_).lower()


def test_when_it_was_made_is_a_number_for_programs_and_a_time_for_people() -> None:
    triage = conclude([fact(MADE_AT, 1767225600.0, UNIX_SECONDS)])
    assert triage.as_json()["checks"][0]["value"] == 1767225600.0
    for format_ in ("text", "html"):
        assert "2026-01-01 00:00:00 UTC" in render(triage, format_)


def test_the_json_is_read_back() -> None:
    text = render(made(), "json")
    assert parse_triage(text) == made() and text.isascii()


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.data = ""
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.data += data
            self._inside = ""


def test_the_page_loads_nothing_and_nothing_breaks_out() -> None:
    page = render(made(), "html")
    tags = Tags()
    tags.feed(page)
    scripts = [attrs for tag, attrs in tags.seen if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "triage-data"}]
    assert json.loads(tags.data) == made().as_json()
    assert not [attrs for _, attrs in tags.seen if {"src", "href"} & set(attrs)]
    assert len(page) < 400_000


def test_a_table_in_markdown_keeps_its_columns() -> None:
    text = render(made(), "md")
    rows = [line for line in text.split("\n") if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} <= {7, 4}
    assert "<script>" not in text


def test_the_bundle_holds_results_and_kernel_files_for_its_owner_alone(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "proc").mkdir(parents=True)
    (root / "proc" / "stat").write_text("cpu 1 2 3\n")
    target = tmp_path / "ticket.tar.gz"
    write_bundle(target, {"triage.json": "{}"}, root)
    assert target.stat().st_mode & 0o777 == 0o600
    with tarfile.open(target) as archive:
        assert sorted(archive.getnames()) == ["rn50-advisor-triage/kernel/proc/stat", "rn50-advisor-triage/triage.json"]
    with pytest.raises(AdvisorError):
        write_bundle(target, {}, root)
    assert not [name for name in KERNEL_FILES if "environ" in name or "cmdline" in name]


@pytest.mark.parametrize(
    ("mounts", "groups", "held"),
    [
        (V2_MOUNTS, "0::/job\n", {"job/cpu.max", "cpu.max", "job/memory.max", "job/io.max"}),
        (
            V1_MOUNTS,
            "4:memory:/job\n3:cpu,cpuacct:/job\n",
            {"cpu,cpuacct/job/cpu.cfs_quota_us", "cpu,cpuacct/cpu.cfs_quota_us", "memory/job/memory.limit_in_bytes"},
        ),
    ],
)
def test_the_bundle_holds_the_limits_of_our_own_control_group(
    tmp_path: Path, mounts: str, groups: str, held: set[str]
) -> None:
    names = {f"sys/fs/cgroup/{name}": f"{name}\n" for name in held}
    told = {"proc/self/mountinfo": mounts, "proc/self/cgroup": groups, **names}
    kernel = packed(tmp_path, write_tree(tmp_path / "root", told))
    assert {name: kernel[name].decode() for name in names} == names


def test_the_bundle_holds_the_kernels_reports_of_gpus_and_not_whose_program_it_was(tmp_path: Path) -> None:
    lines = [
        "6,1,10,-;usb 1-1: new device",
        "4,2,20,-;NVRM: Xid (PCI:0000:10:00): 79, pid=4711, name=secret.py, GPU has fallen off the bus.",
        "4,3,30,-;NVRM: Xid (PCI:0000:10:00): 94, pid='<unknown>', Contained: ECC error",
    ]
    kernel = packed(tmp_path, write_tree(tmp_path / "root", {"dev/kmsg": "\n".join(lines)}))
    assert kernel["xids.txt"].decode().splitlines() == [
        "4,2,20,-;NVRM: Xid (PCI:0000:10:00): 79, GPU has fallen off the bus.",
        "4,3,30,-;NVRM: Xid (PCI:0000:10:00): 94, Contained: ECC error",
    ]


def packed(folder: Path, root: Path) -> dict[str, bytes]:
    """What a bundle holds of the kernel."""
    write_bundle(folder / "ticket.tar.gz", {}, root)
    prefix = "rn50-advisor-triage/kernel/"
    with tarfile.open(folder / "ticket.tar.gz") as archive:
        return {m.name.removeprefix(prefix): archive.extractfile(m).read() for m in archive}  # type: ignore[union-attr]


def invoke(monkeypatch: pytest.MonkeyPatch, found: Triage, *arguments: str) -> tuple[int, str, list[TriageOptions]]:
    settings: list[TriageOptions] = []

    def examine(setting: TriageOptions, tell: triage_runner.Tell) -> Triage:
        settings.append(setting)
        assert setting.scratch.is_dir()
        tell("the disk", 1, 2)
        return found

    monkeypatch.setattr(triage_runner, "triage", examine)
    done = CliRunner().invoke(command.triage, list(arguments))
    return done.exit_code, done.stdout, settings


@pytest.mark.parametrize(("remedy", "code"), [("note", 0), ("fix", 3), ("hand-back", 4)])
def test_the_exit_code_is_the_verdict(monkeypatch: pytest.MonkeyPatch, remedy: Remedy, code: int) -> None:
    assert invoke(monkeypatch, made(remedy))[0] == code


def test_the_format_is_asked_for_or_told_by_the_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, out, settings = invoke(monkeypatch, made(), "--format", "json")
    assert code == 3 and parse_triage(out) == made()
    assert not settings[0].scratch.exists() and not settings[0].full and not settings[0].large
    assert invoke(monkeypatch, made(), "--format", "markdown")[1].startswith("# ▲ fix a setting")
    target = tmp_path / "x.html"
    assert invoke(monkeypatch, made(), "-o", str(target))[1] == "" and "<!DOCTYPE html>" in target.read_text()


def test_the_interpreter_is_named_from_the_root_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its program is started in the scratch folder."""
    given = os.path.relpath(sys.executable)
    assert Path(invoke(monkeypatch, made(), "--python", given)[2][0].python).is_absolute()


def test_nothing_large_is_done_unless_somebody_agreed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a terminal there is nobody to ask."""
    assert not invoke(monkeypatch, made(), "--full")[2][0].large
    assert invoke(monkeypatch, made(), "--full", "--yes")[2][0].large
    assert not invoke(monkeypatch, made(), "--yes")[2][0].large


def test_data_and_bundle_are_as_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    target = tmp_path / "ticket.tar.gz"
    code, _, settings = invoke(
        monkeypatch, made(), "--data", str(tmp_path), "--scratch", str(tmp_path), "--bundle", str(target)
    )
    assert code == 3 and settings[0].data == tmp_path and settings[0].scratch.parent == tmp_path and target.exists()


def test_the_data_are_named_from_the_root_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever decodes them does so in the scratch folder."""
    monkeypatch.chdir(tmp_path.parent)
    assert invoke(monkeypatch, made(), "--data", tmp_path.name)[2][0].data == tmp_path


@pytest.mark.parametrize("option", ["--data", "--scratch"])
def test_a_folder_that_is_none_is_said_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str
) -> None:
    (tmp_path / "file").write_text("")
    for name in ("absent", "file"):
        code, _, settings = invoke(monkeypatch, made(), option, str(tmp_path / name))
        assert code == 2 and settings == []


@pytest.mark.parametrize("option", ["--data", "--scratch"])
def test_a_folder_that_nobody_may_ask_about_is_none(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    """Not even root gets an answer about a name that is too long; as with PermissionError, Path.is_dir raised before Python 3.14."""
    code, _, settings = invoke(monkeypatch, made(), option, "/" + "x" * 300)
    assert code == 2 and settings == []


def test_a_folder_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of data that is a finding; without a scratch folder nothing can be tried."""
    monkeypatch.setattr(deadline, "within", lambda seconds, ask: None)
    code, _, settings = invoke(monkeypatch, made(), "--data", str(tmp_path))
    assert code == 3 and settings[0].data == tmp_path and 0 < settings[0].left_s <= triage_runner.QUICK_LIMIT_S
    code, _, settings = invoke(monkeypatch, made(), "--scratch", str(tmp_path))
    assert code == 1 and settings == []
    assert invoke(monkeypatch, made(), "--full")[2][0].left_s > triage_runner.QUICK_LIMIT_S


def test_a_result_beside_runs_that_are_yet_to_come_has_its_folder_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = tmp_path / "runs" / "triage.json"
    code, _, settings = invoke(monkeypatch, made(), "-o", str(target))
    assert code == 3 and len(settings) == 1 and parse_triage(target.read_text()) == made()


def test_nothing_is_measured_that_could_not_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for option in ("-o", "--bundle"):
        code, _, settings = invoke(monkeypatch, made(), option, str(tmp_path / "file" / "x.json"))
        assert code not in (0, 3, 4) and settings == []


def test_a_group_that_fails_is_a_gap_and_the_others_go_on() -> None:
    def broken(setting: TriageOptions, idle: object) -> list[Found]:
        raise OSError(5, "Input/output error")

    (gap,) = triage_runner._of_group(triage_runner.CheckGroup("the disk", broken), TriageOptions(Path(), ""), None)  # type: ignore[arg-type]
    assert isinstance(gap, TriageGap) and gap.name == "the disk" and "Input/output error" in gap.reason
