"""Processes on a job's GPUs, its own and others."""

from __future__ import annotations

from pathlib import Path

import pytest
from samples.gpus.machines import MACHINES

from gpu_playing import play, processes
from rn50_advisor.probes.host.gpu.gpu_probe import GpuProbe
from rn50_advisor.probes.host.target import Target


def test_an_ended_process_of_the_job_is_not_foreign() -> None:
    probe = GpuProbe()
    assert probe._own_pids([Target(501, "rank", 0)]) == {501}
    assert probe._own_pids([Target(502, "rank", 0)]) == {501, 502}


def test_strangers_on_our_gpus_are_counted(fake_driver: Path, tmp_path: Path) -> None:
    script = processes(tmp_path, (0, 501, 10**10, 60), (0, 77, 2 * 10**9, 25), (0, 78, 10**9, 5), (1, 77, 10**9, 9))
    samples = play(fake_driver, script, 1, tmp_path, own=[501, 502])["samples"][0]
    assert samples["gpu.foreign_processes gpu:0"] == 2
    assert samples["gpu.foreign_mem_bytes gpu:0"] == 3e9
    assert samples["gpu.foreign_sm_pct gpu:0"] == 30
    assert "gpu.foreign_processes gpu:1" not in samples  # not ours


@pytest.mark.parametrize("code", [0, 6])
def test_strangers_that_rest_are_there_all_the_same(fake_driver: Path, tmp_path: Path, code: int) -> None:
    script = processes(tmp_path, (0, 501, 10**10, 0), (0, 77, 2 * 10**9, 0))
    output = play(fake_driver, [*script, f"gpu 0 no_process_use {code}"], 2, tmp_path, own=[501])
    assert [s["gpu.foreign_sm_pct gpu:0"] for s in output["samples"]] == [0, 0]
    assert output["samples"][0]["gpu.foreign_processes gpu:0"] == 1
    assert not [gap for gap in output["gaps"][0] if "foreign" in gap[0]]


def test_use_by_strangers_covers_the_time_since_the_last_sample(fake_driver: Path, tmp_path: Path) -> None:
    script = processes(tmp_path, (0, 501, 10**10, 20), (0, 77, 10**9, 60))
    (tmp_path / "each_tick.py").write_text(
        'file = root / "processes"\nfile.write_text(file.read_text().replace(" 60", " 10"))'
    )
    samples = play(fake_driver, script, 3, tmp_path, own=[501])["samples"]
    assert [s["gpu.foreign_sm_pct gpu:0"] for s in samples] == [60, 10, 10]


def test_without_neighbours_their_number_is_zero(fake_driver: Path, tmp_path: Path) -> None:
    samples = play(fake_driver, processes(tmp_path, (0, 501, 10**10, 60)), 1, tmp_path, own=[501])["samples"][0]
    assert samples["gpu.own_processes gpu:0"] == 1 and samples["gpu.foreign_processes gpu:0"] == 0


def test_who_computes_in_another_instance_of_the_gpu_is_no_stranger(fake_driver: Path, tmp_path: Path) -> None:
    processes(tmp_path, (0, 501, 10**10, 0, 2), (0, 77, 2 * 10**9, 40, 1), (0, 78, 10**9, 5, 2))
    script = [*MACHINES["MIG"](), f"processes {tmp_path / 'processes'}"]
    samples = play(fake_driver, script, 1, tmp_path, own=[501])["samples"][0]
    assert samples["gpu.foreign_processes gpu:0"] == 1 and samples["gpu.foreign_mem_bytes gpu:0"] == 1e9
    assert "gpu.foreign_sm_pct gpu:0" not in samples, "the driver reports it for all instances together"


def test_process_ids_of_another_namespace_are_not_reported(fake_driver: Path, tmp_path: Path) -> None:
    samples = play(fake_driver, processes(tmp_path, (0, 90501, 10**10, 60)), 1, tmp_path, own=[7])["samples"][0]
    assert not any(key.startswith("gpu.foreign") for key in samples)


def test_the_server_of_mps_is_no_stranger(fake_driver: Path, tmp_path: Path) -> None:
    (tmp_path / "proc/88").mkdir(parents=True)
    (tmp_path / "proc/88/comm").write_text("nvidia-cuda-mps\n")
    script = processes(tmp_path, (0, 501, 10**10, 60), (0, 88, 3 * 10**7, 0))
    samples = play(fake_driver, script, 1, tmp_path, own=[501])["samples"][0]
    assert samples["gpu.foreign_processes gpu:0"] == 0


def process(root: Path, pid: int, uid: int, name: str) -> None:
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "status").write_text(f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    (folder / "cmdline").write_text(f"{name}\0--token\0hunter2\0")


def test_processes_are_listed_with_user_and_name_and_without_their_arguments(fake_driver: Path, tmp_path: Path) -> None:
    script = processes(tmp_path, (0, 77, 2 * 10**9, 25), (0, 501, 10**10, 60), (0, 78, 10**9, 5), (1, 77, 10**9, 9))
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n")
    process(tmp_path, 501, 1000, "python")
    process(tmp_path, 77, 4321, "ollama")
    (listing,) = play(fake_driver, script, 1, tmp_path, own=[501])["listings"][0]
    assert listing == {
        "gpu": 0,
        "processes": [
            {"pid": 501, "user": "ann", "name": "python", "mem_bytes": 10**10, "own": True},
            {"pid": 77, "user": "uid 4321", "name": "ollama", "mem_bytes": 2 * 10**9, "own": False},
            {"pid": 78, "user": "", "name": "", "mem_bytes": 10**9, "own": False},  # ended meanwhile
        ],
    }


def test_a_list_is_noted_again_only_when_it_has_changed(fake_driver: Path, tmp_path: Path) -> None:
    script = processes(tmp_path, (0, 501, 10**10, 60), (0, 77, 10**9, 5))
    (tmp_path / "each_tick.py").write_text(
        'file = root / "processes"\n'
        'rows = {1: "0 501 11000000000 60\\n0 77 1000000000 5\\n", 2: "0 501 11000000000 60\\n"}\n'
        "if n in rows:\n    file.write_text(rows[n])"
    )
    listings = play(fake_driver, script, 5, tmp_path, own=[501])["listings"]
    assert [[len(listing["processes"]) for listing in tick] for tick in listings] == [[2], [], [2], [1], []]
