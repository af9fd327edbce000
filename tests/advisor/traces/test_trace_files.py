"""Which files are the traces of a job's ranks, and what their reports say."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.traces import trace_files
from rn50_advisor.advisor.traces.trace_files import read_traces, traces_in
from rn50_advisor.advisor.verdict.diagnose import diagnose
from traced_loops import SEVERAL, traced_loop, written_trace
from traces import GEMM, TraceBook

FIXTURES = Path(__file__).parent / "fixtures"


def report_of(*paths: Path) -> Report:
    return diagnose(read_traces(paths))


def states(report: Report) -> dict[str, str]:
    return {outcome.rule: outcome.state for outcome in report.outcomes}


def test_resnet50_without_workers_is_held_back_by_loading_in_the_training_process() -> None:
    """pytorch/kineto's own sample, which nobody here made."""
    report = report_of(FIXTURES / "resnet50_num_workers_0.json.gz")
    assert (report.verdict.state, report.verdict.rule) == ("bottleneck", "DAT003")
    assert report.findings[0].saving is not None
    assert 1.4 < report.findings[0].saving.speedup[0] < report.findings[0].saving.speedup[1] < 1.8
    assert report.throughput.batch_size == 32
    assert "cores are free for them was not measured" in report.findings[0].fixes[0].change


def test_resnet50_with_workers_is_held_back_by_single_precision_and_launches() -> None:
    report = report_of(FIXTURES / "resnet50_num_workers_4.json.gz")
    assert {finding.rule for finding in report.findings} == {"CMP001", "CMP003"}
    (single,) = (finding for finding in report.findings if finding.rule == "CMP001")
    assert "kernels for float32" in single.evidence[0].note
    assert not any(rule.startswith("DAT") and state == "fired" for rule, state in states(report).items())


def test_a_trace_of_rocm_is_read() -> None:
    recording = read_traces([FIXTURES / "rocm_mi250.json.gz"])
    assert recording.steps[0]["step"].tolist() == [1]
    cuda = recording.facts[1]["cuda"]
    assert cuda is not None
    assert (cuda["name"], cuda.get("capability")) == ("AMD Radeon Graphics", None)


@pytest.mark.parametrize("name", ["rocm_mi250", "no_profiler_step"])
def test_a_tiny_model_waits_for_launches(name: str) -> None:
    """Both are toys of a few layers; the second trains without a loader and without profiler.step()."""
    assert report_of(FIXTURES / f"{name}.json.gz").verdict.rule == "CMP003"


def test_the_file_tells_its_rank_and_the_size_of_the_job() -> None:
    recording = read_traces([FIXTURES / "gloo_rank34.json.gz"])
    assert list(recording.steps) == [34]
    assert recording.facts[35]["world_size"] == 300


def test_a_report_says_that_few_steps_were_traced(tmp_path: Path) -> None:
    report = report_of(written_trace(tmp_path / "t.json", traced_loop(steps=2, fetch=60_000.0)))
    assert report.verdict.rule == "DAT003"
    assert "Judged by 2 steps of a profiler's trace" in report.verdict.summary


def test_a_wait_for_workers_is_told_without_guessing_why(tmp_path: Path) -> None:
    report = report_of(written_trace(tmp_path / "t.json", traced_loop(fetch=60_000.0, loader=SEVERAL)))
    assert (report.verdict.state, report.verdict.rule) == ("inconclusive", None)
    assert report.verdict.title == "The loop waits for the DataLoader's workers"


def test_a_sound_loop_is_not_called_healthy_because_clocks_are_not_in_a_trace(tmp_path: Path) -> None:
    book = traced_loop(fetch=100.0, loader=SEVERAL)
    for event in book.events:
        event["name"] = event["name"].replace("implicit_convolve_sgemm<float", "sm80_xmma_fprop_implicit_gemm_bf16bf16")
    report = report_of(written_trace(tmp_path / "t.json", book))
    assert (report.verdict.state, report.findings) == ("inconclusive", ())
    assert report.verdict.title == "Compute-bound, as far as a trace shows"


def test_a_trace_without_steps_says_what_it_lacks(tmp_path: Path) -> None:
    book = traced_loop(steps=1, fetch=0.0, profiler_step=False)
    report = report_of(written_trace(tmp_path / "t.json", book))
    assert report.verdict.state == "inconclusive"
    assert "profiler.step()" in report.verdict.summary


def test_stacks_between_steps_name_the_line_that_takes_the_time(tmp_path: Path) -> None:
    book = traced_loop(steps=5, between=40_000.0)
    for number in range(5):
        at = 1_000_000 + number * 137_000 + 97_000
        book.host("train.py(7): report", at, 39_000.0, cat="python_function", CallFrom="train.py:50")
        book.host("PIL/Image.py(9): save", at + 10, 38_000.0, cat="python_function", CallFrom="train.py:8")
    report = report_of(written_trace(tmp_path / "t.json", book))
    (finding,) = (finding for finding in report.findings if finding.rule == "LOP004")
    assert finding.fixes[0].where is not None
    assert (finding.fixes[0].where.file, finding.fixes[0].where.line) == ("train.py", 8)


def test_a_value_that_is_read_back_in_each_step_is_named_by_its_line(tmp_path: Path) -> None:
    """The host is done after 30 ms and waits for the GPU until 102; the work after that leaves the GPU idle until the next step."""
    book, at = TraceBook(), 1_000_000.0
    for number in range(6):
        book.host(f"ProfilerStep#{number}", at, 130_000, cat="user_annotation")
        book.host(SEVERAL, at, 200, cat="user_annotation")
        book.host("autograd::engine::evaluate_function: A", at + 10_000, 15_000, tid=9)
        book.host("Optimizer.step#SGD.step", at + 25_000, 5_000, cat="user_annotation")
        for begin, took, launched in ((12_000, 38_000, 9_000), (50_000, 50_000, 20_000), (100_000, 2_000, 28_000)):
            book.kernel(GEMM, at + begin, took, launched=at + launched)
        name = "<built-in method item of Tensor object at 0x7f>"
        book.host(name, at + 30_000, 72_100, cat="python_function", CallFrom="train.py:77")
        book.host("aten::item", at + 30_010, 72_050)
        book.call("cudaStreamSynchronize", at + 30_020, 72_000)
        at += 130_000
    report = report_of(written_trace(tmp_path / "t.json", book))
    assert report.verdict.rule == "CMP004"
    where = report.findings[0].fixes[0].where
    assert where is not None
    assert (where.file, where.line) == ("train.py", 77)


def test_a_pause_in_a_single_traced_step_is_no_finding_about_all_steps(tmp_path: Path) -> None:
    report = report_of(written_trace(tmp_path / "t.json", traced_loop(steps=1, between=40_000.0, loader=SEVERAL)))
    assert states(report)["LOP004"] == "clear"
    assert "LOP004" not in {finding.rule for finding in report.findings}


def test_a_folder_holds_one_trace_of_each_rank(tmp_path: Path) -> None:
    for rank in (1, 0):
        written_trace(tmp_path / f"rank-{rank}.json.gz", traced_loop(exchange=3_000.0))
    (tmp_path / "notes.json").write_text('{"schema": "other"}')
    assert [path.name for path in traces_in(tmp_path)] == ["rank-0.json.gz", "rank-1.json.gz"]
    assert list(read_traces([tmp_path]).steps) == [0, 1]


def test_of_several_traces_of_one_worker_the_newest_counts(tmp_path: Path) -> None:
    written_trace(tmp_path / "host_7.1623143089861.pt.trace.json", traced_loop(steps=3))
    written_trace(tmp_path / "host_7.1623143566756.pt.trace.json", traced_loop(steps=4))
    recording = read_traces([tmp_path])
    assert [table.size for table in recording.steps.values()] == [4]
    assert "1623143089861" in recording.gaps[-1].reason


def test_of_a_log_folder_the_run_that_was_written_last_counts(tmp_path: Path) -> None:
    for place, name in enumerate(("new", "old")):
        path = written_trace(tmp_path / name / "rank-0.json", traced_loop(steps=2))
        os.utime(path, (1000.0 - place, 1000.0 - place))
    (tmp_path / "empty").mkdir()
    assert traces_in(tmp_path) == [tmp_path / "new" / "rank-0.json"]


def test_traces_of_an_earlier_run_in_the_same_folder_are_left_out(tmp_path: Path) -> None:
    """TensorBoard's handler names files by process, so that each run of one rank leaves another worker's file."""
    written_trace(tmp_path / "host_7.1623143089861.pt.trace.json", traced_loop(steps=3))
    written_trace(tmp_path / "host_9.1623143566756.pt.trace.json", traced_loop(steps=4, begin=900_000_000.0))
    recording = read_traces([tmp_path])
    assert {rank: table.size for rank, table in recording.steps.items()} == {0: 4}
    assert "host_7" in recording.gaps[-1].reason


def test_traces_at_the_same_time_without_a_rank_are_ranks(tmp_path: Path) -> None:
    for worker in ("host_7", "host_9"):
        written_trace(tmp_path / f"{worker}.1623143089861.pt.trace.json", traced_loop(steps=3))
    recording = read_traces([tmp_path])
    assert list(recording.steps) == [0, 1]
    assert [event.rank for event in recording.events] == [0, 1]


def test_of_two_traces_of_one_rank_the_newer_counts(tmp_path: Path) -> None:
    for name, steps, begin in (("a", 3, 1_000_000.0), ("b", 4, 900_000_000.0)):
        book = traced_loop(steps=steps, begin=begin)
        written_trace(tmp_path / f"{name}.json", book, distributedInfo={"rank": 0, "world_size": 2})
    assert {rank: table.size for rank, table in read_traces([tmp_path]).steps.items()} == {0: 4}


def test_nodes_that_name_their_files_by_local_rank_keep_all_ranks(tmp_path: Path) -> None:
    for rank, name in enumerate(("node0_rank0", "node0_rank1", "node1_rank0", "node1_rank1")):
        written_trace(tmp_path / f"{name}.json", traced_loop(), distributedInfo={"rank": rank, "world_size": 4})
    assert list(read_traces([tmp_path]).steps) == [0, 1, 2, 3]


def test_ranks_of_an_earlier_run_with_more_of_them_are_left_out(tmp_path: Path) -> None:
    """Eight ranks, then four in the same folder, whose files take the place of the first four."""
    for rank in range(4):
        begin, world = (900_000_000.0, 2) if rank < 2 else (1_000_000.0, 4)
        header = {"rank": rank, "world_size": world}
        written_trace(tmp_path / f"rank-{rank}.json", traced_loop(begin=begin), distributedInfo=header)
    recording = read_traces([tmp_path])
    assert list(recording.steps) == [0, 1] and "rank-3.json" in recording.gaps[-1].reason


def test_a_node_whose_clock_is_behind_belongs_to_the_run(tmp_path: Path) -> None:
    for rank, begin in ((0, 90_000_000.0), (1, 1_000_000.0)):
        header = {"rank": rank, "world_size": 2}
        written_trace(tmp_path / f"rank-{rank}.json", traced_loop(begin=begin), distributedInfo=header)
    assert list(read_traces([tmp_path]).steps) == [0, 1]


def test_the_newest_of_very_many_runs_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_files, "_FOLDERS_MAX", 1)
    for place, name in enumerate(("a", "b")):
        written_trace(tmp_path / name / "rank-0.json", traced_loop(steps=2))
        os.utime(tmp_path / name, (1000.0 + place, 1000.0 + place))
    assert traces_in(tmp_path) == [tmp_path / "b" / "rank-0.json"]


def test_a_trace_that_nests_too_deeply_is_told_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text('{"traceEvents": [{"ph": "X", "args": ' + "[" * 200_000 + "]" * 200_000 + "}]}")
    with pytest.raises(NotARun):
        read_traces([path])


def test_the_header_wins_over_the_files_name(tmp_path: Path) -> None:
    path = written_trace(tmp_path / "rank-0.json", traced_loop(), distributedInfo={"rank": 5, "world_size": 8})
    assert list(read_traces([path]).steps) == [5]


def test_a_straggler_is_told_from_the_wire(tmp_path: Path) -> None:
    """Rank 1 computes 20 ms longer; rank 0 waits for it in the all-reduce, whose transfer takes 3 ms."""
    written_trace(tmp_path / "rank-0.json", traced_loop(steps=6, exchange=23_000.0))
    written_trace(tmp_path / "rank-1.json", traced_loop(steps=6, exchange=3_000.0, late=20_000.0))
    report = report_of(tmp_path)
    assert "COM002" in {finding.rule for finding in report.findings}
    assert report.budget.critical["comm_exposed"] == pytest.approx(0.003, rel=0.1)
    (finding,) = (finding for finding in report.findings if finding.rule == "COM002")
    assert finding.scope.ranks == (1,)


@pytest.mark.parametrize(
    ("slow", "rule"),
    [({"fetch": 42_000.0}, "DAT008"), ({"forward": 70_000.0}, "CMP007"), ({"late": 40_000.0}, "COM002")],
    ids=["its loader", "its compute", "its own code"],
)
def test_what_makes_a_rank_the_last_is_named(tmp_path: Path, slow: dict[str, float], rule: str) -> None:
    written_trace(tmp_path / "rank-0.json", traced_loop(steps=6, exchange=42_000.0, loader=SEVERAL))
    written_trace(tmp_path / "rank-1.json", traced_loop(**{"steps": 6, "exchange": 2_000.0, "loader": SEVERAL, **slow}))  # type: ignore[arg-type]
    found = {finding.rule: finding for finding in report_of(tmp_path).findings}
    assert found[rule].scope.ranks == (1,)
    assert "COM002" in found


def test_a_slow_wire_is_told_from_a_straggler(tmp_path: Path) -> None:
    for rank in (0, 1):
        written_trace(tmp_path / f"rank-{rank}.json", traced_loop(steps=6, exchange=40_000.0))
    report = report_of(tmp_path)
    assert "COM001" in {finding.rule for finding in report.findings}
    assert states(report)["COM002"] == "clear"


def test_traces_of_different_times_have_no_step_in_common(tmp_path: Path) -> None:
    written_trace(tmp_path / "rank-0.json", traced_loop(steps=3))
    later = traced_loop(steps=3)
    for event in later.events:
        event["name"] = event["name"].replace("ProfilerStep#", "ProfilerStep#9")
    written_trace(tmp_path / "rank-1.json", later)
    report = report_of(tmp_path)
    assert report.verdict.state == "inconclusive"
    assert "no step is in the traces of all ranks" in report.verdict.summary


def test_progress_ends_with_the_last_file(tmp_path: Path) -> None:
    for rank in (0, 1):
        written_trace(tmp_path / f"rank-{rank}.json", traced_loop(steps=2))
    seen: list[float] = []
    read_traces([tmp_path], seen.append)
    assert seen == sorted(seen)
    assert seen[-1] <= 1.0


def test_rules_about_what_no_trace_shows_are_not_measured() -> None:
    report = report_of(FIXTURES / "resnet50_num_workers_0.json.gz")
    found = states(report)
    looked = {rule for rule, state in found.items() if state in ("clear", "fired")}
    assert looked <= {"DAT003", "CMP001", "CMP002", "CMP003", "CMP004", "CMP022", "H2D001", "H2D002", "LOP004"}
    assert "crashed" not in found.values()


def test_an_empty_folder_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(NotARun, match="holds no trace"):
        read_traces([tmp_path])


def test_one_bad_file_is_named(tmp_path: Path) -> None:
    shutil.copy(FIXTURES / "gloo_rank34.json.gz", tmp_path / "a.json.gz")
    (tmp_path / "b.json").write_text('{"traceEvents": [{"ph": "X"')
    with pytest.raises(NotARun, match=r"b\.json is cut off"):
        read_traces([tmp_path])


def test_events_that_no_profiler_writes_are_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise TypeError("no number")

    monkeypatch.setattr("rn50_advisor.advisor.traces.trace_files.traced_rank", fails)
    with pytest.raises(NotARun, match=r"t\.json holds events that no profiler writes: TypeError: no number"):
        read_traces([written_trace(tmp_path / "t.json", traced_loop(steps=2))])
