"""NCCL's lines, found where the job prints or the user has them written."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from rn50_advisor.advisor.run.sidefiles.flight_files import found_dumps
from rn50_advisor.advisor.run.sidefiles.nccl_lines import NcclLines, pattern_of, take
from rn50_advisor.advisor.run.sidefiles.own_evidence import open_own
from rn50_advisor.advisor.run.sidefiles.stderr_files import Printed

SAID = (
    "node:919:1150 [0] NCCL INFO Using network Socket\n"
    "epoch 1 loss 0.3\n"
    "\x1b[31mnode:920:1151 [1] NCCL INFO Using network Socket\x1b[0m\n"
    "node:919:1150 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0\n"
    "node:919:1150 [0] NCCL INFO Setting affinity for GPU 0 to ffff\n"
)

RECORDED = Path(__file__).with_name("gloo_flight_dump.pickle").read_bytes()  # of torch 2.15


def lines(folder: Path, variables: dict[str, str] | None = None) -> NcclLines:
    return NcclLines(folder / "output.log", variables or {}, now_s=100.0)


def test_relevant_lines_are_kept_once_whichever_rank_prints_them(tmp_path: Path) -> None:
    (tmp_path / "output.log").write_text(SAID)
    words = lines(tmp_path)
    assert words.look() == [
        "node:919:1150 [0] NCCL INFO Using network Socket",
        "node:919:1150 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0",
    ]
    assert words.look() is None, "nothing new"
    (tmp_path / "output.log").write_text(SAID + "NCCL version 2.21.5+cuda12.4\n")
    assert len(words.look() or ()) == 3


def test_files_that_the_user_named_are_read(tmp_path: Path) -> None:
    (tmp_path / "nccl.host.77").write_text(SAID)
    found = lines(tmp_path, {"NCCL_DEBUG_FILE": f"{tmp_path}/nccl.%h.%p"}).look()
    assert found is not None and len(found) == 2
    assert lines(tmp_path).look() is None


def test_files_that_ranks_print_to_are_read_from_where_this_job_begins(tmp_path: Path) -> None:
    before = "node:9:9 [0] NCCL INFO Using network IB\n"
    (tmp_path / "slurm-7.out").write_text(before + SAID)
    printed = Printed(0, str(tmp_path / "slurm-7.out"), len(before))
    found = lines(tmp_path).look((printed, Printed(1, str(tmp_path / "gone"))))
    assert found is not None and len(found) == 2 and not any("IB" in line for line in found)
    assert len(lines(tmp_path).look((replace(printed, begin=0),)) or ()) == 3


def test_a_server_that_no_longer_answers_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, asked = threading.Event(), []

    def hangs(path: Path, **known: Any) -> BinaryIO:
        asked.append(path)
        answers.wait(30.0)
        return open_own(path, **known)

    (tmp_path / "output.log").write_text(SAID)
    monkeypatch.setattr("rn50_advisor.advisor.run.sidefiles.nccl_lines.open_own", hangs)
    monkeypatch.setattr("rn50_advisor.advisor.run.sidefiles.nccl_lines.ANSWERS_WITHIN_S", 0.01)
    words = lines(tmp_path)
    assert words.look() is None and words.look() is None
    assert len(asked) == 1
    answers.set()
    assert words._reader is not None
    words._reader.join(30.0)
    assert len(words.look() or ()) == 2


def test_files_of_earlier_runs_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "nccl.host.7").write_text(SAID)
    (tmp_path / "nccl.host.77").write_text("node:9:9 [0] NCCL INFO Using network IB\n")
    os.utime(tmp_path / "nccl.host.7", (50, 50))
    words = NcclLines(
        tmp_path / "output.log", {"NCCL_DEBUG_FILE": f"{tmp_path}/nccl.%h.%p"}, now_s=0.0, since_unix_s=1000.0
    )
    assert words.look() == ["node:9:9 [0] NCCL INFO Using network IB"]


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def link(path: Path) -> None:
    path.rename(path.parent / "theirs")
    path.symlink_to(path.parent / "theirs")


def given_away(path: Path) -> None:
    os.chown(path, 12345, 12345)


FOREIGN = [
    fifo, link,
    pytest.param(given_away, marks=pytest.mark.skipif(os.geteuid() != 0, reason="OTHER USERS ARE NOT TESTED: root is needed")),
]  # fmt: skip


@pytest.mark.parametrize("spoil", FOREIGN)
def test_what_anybody_may_have_put_there_is_no_evidence(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    (tmp_path / "nccl.host.7").write_text(SAID)
    (tmp_path / "trace_0").write_bytes(RECORDED)
    variables = {"NCCL_DEBUG_FILE": f"{tmp_path}/nccl.%h.%p", "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/trace_"}
    assert lines(tmp_path, variables).look() and found_dumps(variables, 0.0)
    spoil(tmp_path / "nccl.host.7")
    spoil(tmp_path / "trace_0")
    assert lines(tmp_path, variables).look() is None and not found_dumps(variables, 0.0)


@pytest.mark.parametrize(
    ("name", "pattern"), [("", ""), ("/dev/stderr", ""), ("/tmp/n.%h.%p", "/tmp/n.*.*"), ("/a[1]/n", "/a[[]1]/n")]
)
def test_names_of_files_become_patterns(name: str, pattern: str) -> None:
    assert pattern_of(name) == pattern


def test_secrets_in_a_line_are_masked() -> None:
    found: dict[str, str] = {}
    take("h:1:1 [0] NCCL INFO NCCL_CONF_PASSWORD=hunter2 set by environment to x\n", found)
    assert "hunter2" not in "".join(found.values())


def test_looks_are_due_a_few_times(tmp_path: Path) -> None:
    words = lines(tmp_path)
    assert [words.due(second) for second in (105.0, 110.0, 110.5, 131.0, 500.0, 900.0)] == [
        False, True, False, True, True, False,
    ]  # fmt: skip
