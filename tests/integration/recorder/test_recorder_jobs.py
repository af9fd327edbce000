"""The recorder in real training processes: what it sees, and that the job does not notice it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from rn50_advisor.advisor.run.rings.own_folder import hold
from rn50_advisor.advisor.run.rings.ring_reader import RingReader, Row
from rn50_advisor.probes.rank.layout import (
    BATCH_FIELDS,
    FLAG_BITS,
    FLAG_CLOCKED,
    FLAG_EPOCH_START,
    FLAG_NO_LOADER,
    FLAG_SKIPPED_UPDATE,
    FLAG_TAIL,
    KIND_BATCH,
    KIND_COMM,
    KIND_GPU_STEP,
    KIND_SPAN,
    KIND_STEP,
    SPAN_FIELDS,
    SPAN_LABELS,
    STEP_FIELDS,
)
from rn50_advisor.probes.rank.rank_ring_folder import put
from rn50_advisor.probes.rank.side_files import BUDGET
from rn50_advisor.probes.rank.steps.mark_buffer import BUFFERED_NS

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[3]
INJECT = ROOT / "src" / "rn50_advisor" / "probes" / "rank" / "inject"
JOBS = ROOT / "tests" / "jobs"
AT_LOADER = BATCH_FIELDS.index("loader")


def run(job: str, *arguments: object, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if folder is not None:
        hold(folder)  # until this process ends
        environment |= {"RN50_ADVISOR_DIR": str(folder), "PYTHONPATH": str(INJECT)}
    command = [sys.executable, str(JOBS / job), *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def run_sound(job: str, scratch: Path, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Again where gloo aborts a rank at its very end, as it does now and then with nobody watching: pytorch/pytorch#190489."""
    for _ in range(3):
        (scratch / "store").unlink(missing_ok=True)
        for path in folder.glob("*-[0-9]*") if folder else ():  # what the ranks before have left
            path.unlink()
        done = run(job, scratch, folder=folder)
        if "SIGABRT" not in done.stderr:
            break
    return done


def rings(folder: Path, role: str = "rank") -> list[RingReader]:
    assert not list(folder.glob("error-*")), [path.read_text() for path in folder.glob("error-*")]
    return [RingReader(path) for path in sorted(folder.glob(f"{role}-*.ring"))]


def steps(reader: RingReader) -> list[tuple[int, dict[str, int]]]:
    rows = reader.drain().rows.get(KIND_STEP, [])
    return [(flags, dict(zip(STEP_FIELDS, values, strict=True))) for flags, values in rows if not flags & FLAG_TAIL]


@pytest.mark.parametrize("workers", [0, 2])
def test_losses_sample_order_weights_and_rng_are_bit_identical(tmp_path: Path, workers: int) -> None:
    alone, watched = run("seeded.py", workers), run("seeded.py", workers, folder=tmp_path)
    assert watched.returncode == alone.returncode == 0, watched.stderr
    assert watched.stdout == alone.stdout and watched.stderr == alone.stderr
    assert len(alone.stdout.splitlines()) == 17
    assert len(steps(rings(tmp_path)[0])) == 16  # it was watched indeed


def test_dynamo_makes_the_same_graphs_and_no_more_breaks(tmp_path: Path) -> None:
    alone, watched = run("compiled.py"), run("compiled.py", folder=tmp_path)
    assert watched.returncode == 0, watched.stderr
    made, usual = ([line.split() for line in job.stdout.splitlines()] for job in (watched, alone))
    assert [row[:2] for row in made] == [row[:2] for row in usual] and len(usual) == 4
    # Python 3.13 counts one of torch's own breaks around the optimizer less where there are hooks
    assert all(int(mine) <= int(theirs) for (*_, mine), (*_, theirs) in zip(made, usual, strict=True))
    assert alone.stdout.startswith("model 1 0")
    assert watched.stderr.count("Warning") == alone.stderr.count("Warning"), watched.stderr
    assert steps(rings(tmp_path)[0])


def test_ranks_started_by_spawn_are_found_by_their_deeds(tmp_path: Path) -> None:
    folder = tmp_path / "rings"
    folder.mkdir(mode=0o700)
    done = run_sound("spawned.py", tmp_path, folder)
    assert done.returncode == 0, done.stderr
    found = rings(folder)
    assert [reader.identity.rank for reader in found] in ([0, 1], [1, 0])
    for reader in found:
        assert reader.position().ended
        drained = reader.drain().rows
        assert len([flags for flags, _ in drained[KIND_STEP] if not flags & FLAG_TAIL]) == 20
        assert drained[KIND_COMM], "DDP's stamps were read"


def test_workers_write_their_batches(tmp_path: Path) -> None:
    assert run("variants.py", "workers", folder=tmp_path).returncode == 0
    assert len(steps(rings(tmp_path)[0])) == 12
    batches = [len(reader.drain().rows[KIND_BATCH]) for reader in rings(tmp_path, "worker")]
    assert batches == [6, 6]


def test_persistent_workers_are_followed_over_epochs(tmp_path: Path) -> None:
    assert run("variants.py", "persistent", folder=tmp_path).returncode == 0
    assert len(steps(rings(tmp_path)[0])) == 36
    assert [len(reader.drain().rows[KIND_BATCH]) for reader in rings(tmp_path, "worker")] == [36]


def test_workers_that_were_not_forked_here_know_their_loader(tmp_path: Path) -> None:
    assert run("variants.py", "served", folder=tmp_path).returncode == 0
    made = [[payload[AT_LOADER] for _, payload in r.drain().rows[KIND_BATCH]] for r in rings(tmp_path, "worker")]
    assert sorted(made) == [[0] * 24, [1] * 12]


def test_accumulated_micro_batches_are_one_step(tmp_path: Path) -> None:
    folder = tmp_path / "rings"
    folder.mkdir(mode=0o700)
    done = run("variants.py", "accumulation", tmp_path / "store", folder=folder)
    assert done.returncode == 0, done.stderr
    found = steps(rings(folder)[0])
    assert [step["micro_batches"] for _, step in found] == [4, 4, 4]
    assert [step["samples"] for _, step in found] == [32, 32, 32]


def test_updates_skipped_by_the_scaler_are_flagged_steps(tmp_path: Path) -> None:
    done = run("variants.py", "scaler", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = [bool(flags & FLAG_SKIPPED_UPDATE) for flags, _ in steps(rings(tmp_path)[0])]
    assert found == [number % 4 == 1 for number in range(12)]


def test_tensors_in_memory_make_steps_whose_input_is_unknown(tmp_path: Path) -> None:
    assert run("variants.py", "memory", folder=tmp_path).returncode == 0
    found = steps(rings(tmp_path)[0])
    assert len(found) >= 9
    assert all(flags & FLAG_NO_LOADER for flags, _ in found)


def test_short_steps_are_noted_and_read_together_without_losing_one(tmp_path: Path) -> None:
    assert run("variants.py", "short", folder=tmp_path).returncode == 0
    found = steps(rings(tmp_path)[0])
    assert [step["step"] for _, step in found] == list(range(505))
    assert [step["samples"] for _, step in found] == [*[8] * 100, 4] * 5
    assert all(a["t_end_ns"] == b["t_start_ns"] for (_, a), (_, b) in pairwise(found))
    assert all(step["backward_ns"] and step["optimizer_ns"] and step["input_wait_ns"] for _, step in found)
    assert [n for n, (_, step) in enumerate(found) if step["evaluation_ns"]] == [101, 202, 303, 404]
    assert sum(bool(step["gc_ns"]) for _, step in found) >= 10
    assert sum(bool(flags & FLAG_EPOCH_START) for flags, _ in found) == 5
    assert 4 <= sum(bool(flags & FLAG_CLOCKED) for flags, _ in found) < 200, "the marks of most steps were buffered"


def test_thinned_steps_are_counted_without_losing_one(tmp_path: Path) -> None:
    hold(tmp_path)
    put(str(tmp_path), BUDGET, "0.0001")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RN50_ADVISOR_DIR": str(tmp_path), "PYTHONPATH": str(INJECT)}
    job = subprocess.Popen([sys.executable, str(JOBS / "variants.py"), "shortest"], env=environment)
    rows: dict[int, list[Row]] = {KIND_STEP: [], KIND_SPAN: []}
    reader, running = None, True
    while running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(0.02)
        running = job.returncode is None
        if reader is None and (found := rings(tmp_path)):
            reader = found[0]
        drained = None if reader is None else reader.drain()
        for kind in rows if drained is not None else ():
            rows[kind] += drained.rows.get(kind, [])
    assert job.returncode == 0 and reader is not None and reader.position().errors == 0
    found = [
        (flags >> FLAG_BITS, flags, dict(zip(STEP_FIELDS, payload, strict=True)))
        for flags, payload in rows[KIND_STEP]
        if not flags & FLAG_TAIL
    ]
    assert all(b["step"] == a["step"] + 1 + more for (more, _, a), (_, _, b) in pairwise(found)), (
        "no step twice, none missing"
    )
    assert all(a["t_end_ns"] == b["t_start_ns"] for (_, _, a), (_, _, b) in pairwise(found))
    assert sum(1 + more for more, _, _ in found) == 24 * 501
    assert sum(step["samples"] for _, _, step in found) == 24 * 4004
    assert sum(step["micro_batches"] for _, _, step in found) == 24 * 501
    assert sum(more for more, _, _ in found) > 1000, "many were only counted"
    assert sum(bool(flags & FLAG_EPOCH_START) for _, flags, _ in found) == 24
    assert all(step["backward_ns"] and step["optimizer_ns"] and step["input_wait_ns"] for _, _, step in found)
    phases = STEP_FIELDS[3 : STEP_FIELDS.index("checkpoint_ns") + 1]
    assert all(sum(step[name] for name in phases) == step["t_end_ns"] - step["t_start_ns"] for _, _, step in found)
    labels = [SPAN_LABELS[payload[SPAN_FIELDS.index("label")]] for _, payload in rows[KIND_SPAN]]
    assert labels.count("checkpoint") == 24 * 3
    thinned = next(n for n, (more, _, _) in enumerate(found) if more)
    assert any(flags & FLAG_CLOCKED for _, flags, _ in found[thinned:]), "CPU clocks are read in marked blocks"


@pytest.mark.parametrize("job", ["first-only", "first-only-persistent"])
def test_where_each_step_begins_an_epoch_all_of_them_say_so(tmp_path: Path, job: str) -> None:
    assert run("variants.py", job, folder=tmp_path).returncode == 0
    found = steps(rings(tmp_path)[0])
    assert len(found) >= 199 and all(flags & FLAG_EPOCH_START for flags, _ in found)


def test_a_workers_exception_reaches_the_job_with_its_traceback(tmp_path: Path) -> None:
    alone, watched = run("variants.py", "broken"), run("variants.py", "broken", folder=tmp_path)
    assert watched.returncode == alone.returncode == 1
    for text in (
        "KeyError: Caught KeyError in DataLoader worker process 0.",
        "no such picture",
        'raise KeyError("no such picture")',
    ):
        assert text in alone.stderr and text in watched.stderr
    [facts] = [json.loads(path.read_text()) for path in tmp_path.glob("facts-*.json")]
    assert facts["exception"]["type"] == "KeyError"


def test_what_a_killed_rank_wrote_is_there(tmp_path: Path) -> None:
    killed = run("variants.py", "killed", folder=tmp_path)
    assert killed.returncode == -signal.SIGKILL
    [reader] = rings(tmp_path)
    found = [step for _, step in steps(reader)]
    position = reader.position()
    assert not position.ended and position.phase == "gap" and position.step == 10
    assert position.since_ns > int(killed.stdout), "the header holds the last mark, also of one that is only noted"
    assert [step["step"] for step in found] == list(range(len(found)))
    longest_ns = max(step["t_end_ns"] - step["t_start_ns"] for step in found)
    assert position.since_ns - found[-1]["t_end_ns"] <= BUFFERED_NS + 2 * longest_ns, (
        "only what was noted last is missing"
    )


def test_a_rank_killed_in_short_steps_is_known_to_its_last_mark(tmp_path: Path) -> None:
    assert run("variants.py", "killed in short steps", folder=tmp_path).returncode == -signal.SIGKILL
    [reader] = rings(tmp_path)
    assert 1 <= len(steps(reader)) <= 10, "the last milliseconds may be missing"
    position = reader.position()
    assert not position.ended and position.phase == "gap" and position.step in (10, 11)


def test_short_steps_have_events_now_and_then_and_are_all_recorded(tmp_path: Path) -> None:
    """Between blocks of steps with events marks are buffered, from one step's start to another's."""
    assert run("cuda_double.py", 600, folder=tmp_path).returncode == 0
    [reader] = rings(tmp_path)
    rows = reader.drain().rows
    recorded = [
        dict(zip(STEP_FIELDS, values, strict=True)) for flags, values in rows[KIND_STEP] if not flags & FLAG_TAIL
    ]
    assert [step["step"] for step in recorded] == list(range(600))
    assert all(one["t_end_ns"] == after["t_start_ns"] for one, after in pairwise(recorded))
    events = [values[0] for _, values in rows[KIND_GPU_STEP]]
    # the first all; then twelve after at most 32 times as many without, but for the first of them, whose begin is not known
    assert events == [*range(2, 60), *range(445, 456)]


def test_facts_name_the_loader_its_line_and_its_purpose(tmp_path: Path) -> None:
    assert run("seeded.py", 2, folder=tmp_path).returncode == 0
    [facts] = [json.loads(path.read_text()) for path in tmp_path.glob("facts-*.json")]
    training, evaluation = facts["loaders"]
    assert training["file"].endswith("tests/jobs/seeded.py")
    assert (
        "DataLoader(Noise(), batch_size=8, shuffle=True"
        in Path(training["file"]).read_text().splitlines()[training["line"] - 1]
    )
    assert (training["num_workers"], training["training"], evaluation["training"]) == (2, True, False)
    assert facts["optimizer"]["class"] == "AdamW"
    assert facts["run_delay"] is Path("/proc/self/schedstat").exists()


def test_a_loader_made_anew_for_each_evaluation_is_known_again(tmp_path: Path) -> None:
    assert run("variants.py", "remade", folder=tmp_path).returncode == 0
    [facts] = [json.loads(path.read_text()) for path in tmp_path.glob("facts-*.json")]
    assert [loader["training"] for loader in facts["loaders"]] == [True, False]
    found = [step for _, step in steps(rings(tmp_path)[0])]
    # from the second epoch on nothing of an evaluation is taken for input
    assert all(step["evaluation_ns"] > 0 for step in found[12::12])
    assert len(found) == 4 * 12


def test_a_ring_folder_that_is_full_or_gone_leaves_the_job_alone(tmp_path: Path) -> None:
    alone = run("variants.py", "plain")
    (tmp_path / "x").touch()
    for folder in (tmp_path / "gone", tmp_path / "x"):
        environment = {**os.environ, "RN50_ADVISOR_DIR": str(folder), "PYTHONPATH": str(INJECT)}
        command = [sys.executable, str(JOBS / "variants.py"), "plain"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0 and done.stderr == alone.stderr
