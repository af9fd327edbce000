"""Output of NCCL and its watchdog: lines, `NCCL_DEBUG_FILE`, and flight recorder dumps, read without trust."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from rn50_advisor.advisor.run.sidefiles.flight_files import found_dumps, read_dump

RECORDED = Path(__file__).with_name("gloo_flight_dump.pickle").read_bytes()  # of torch 2.15


def test_a_dump_without_end_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "trace_0").open("wb") as file:
        file.write(RECORDED)
        file.truncate(1 << 40)
    assert not found_dumps({"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/trace_"}, 0.0)


def test_a_dump_of_torchs_own_is_read() -> None:
    dump = read_dump(RECORDED)
    assert dump is not None
    assert [entry["profiling_name"] for entry in dump["entries"]] == ["gloo:all_reduce", "gloo:barrier"]
    assert dump["entries"][0]["input_sizes"] == [[4]] and dump["pg_status"]


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch evil",)


@pytest.mark.parametrize(
    "data",
    [b"", b"\x80\x02", pickle.dumps(Evil()), pickle.dumps([1]), pickle.dumps({"entries": 3}), RECORDED[:200]],
    ids=["empty", "cut off", "a call", "a list", "no entries", "half"],
)
def test_what_is_no_dump_is_refused(data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_dump(data) is None and not list(tmp_path.iterdir())


def test_dumps_of_this_job_are_found_by_rank(tmp_path: Path) -> None:
    for rank in (0, 3):
        (tmp_path / f"trace_{rank}").write_bytes(RECORDED)
    (tmp_path / "trace_x").write_bytes(RECORDED)
    os.utime(tmp_path / "trace_3", (50, 50))
    variables = {"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/trace_"}
    assert list(found_dumps(variables, 0.0)) == [0, 3]
    assert list(found_dumps(variables, 1000.0)) == [0]
    assert not found_dumps({"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/none_"}, 0.0)
