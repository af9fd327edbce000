"""Sources over real run files: live readings follow the file, a replay follows its clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.model.metrics import Sample
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.advisor.tui.report_source import RECENT_STEPS, LiveSource, ReplayedRun, ReplaySource, ReportSource
from rn50_advisor.advisor.verdict.diagnose import diagnose
from rn50_advisor.probes.rank.layout import KIND_STEP, STEP_FIELDS
from traced_loops import traced_loop, written_trace

T0_NS = 10**17  # later than this machine's own clock, which the writer reads too
STEP_NS = 100_000_000


def step_row(step: int) -> tuple[int, tuple[int, ...]]:
    start_ns = T0_NS + step * STEP_NS
    values = {
        "step": step,
        "t_start_ns": start_ns,
        "t_end_ns": start_ns + STEP_NS,
        "input_wait_ns": STEP_NS // 10,
        "forward_ns": STEP_NS // 5,
        "backward_ns": STEP_NS // 2,
        "optimizer_ns": STEP_NS // 5,
        "samples": 32,
        "micro_batches": 1,
    }
    return 0, tuple(values.get(name, 0) for name in STEP_FIELDS)


def write_run(folder: Path, steps: int) -> RunWriter:
    meta = {"name": "x", "argv": ["train.py"], "started_ns": T0_NS, "started_unix_s": 1.7e9}
    writer = RunWriter.create(folder, meta=meta)
    writer.put_records(KIND_STEP, 0, [step_row(step) for step in range(steps)])
    writer.commit()
    return writer


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def replay(tmp_path):
    write_run(tmp_path / "run", 200).close()
    clock = Clock()
    return ReplayedRun(tmp_path / "run", clock=clock), clock


def put(writer: RunWriter, first: int, last: int) -> None:
    writer.put_records(KIND_STEP, 0, [step_row(step) for step in range(first, last)])
    writer.commit()


def test_a_live_source_keeps_what_it_saw_over_time(tmp_path):
    writer = write_run(tmp_path / "run", 1000)
    clock = Clock()
    source = LiveSource(tmp_path / "run", clock=clock)
    for first in range(1000, RECENT_STEPS + 4000, 1000):
        clock.now_s += 100.0
        assert source.poll() is not None
        put(writer, first, first + 1000)
    clock.now_s += 100.0
    report = source.poll()
    assert report is not None and report.history is not None
    assert report.history.start_s == 0.0
    assert sum(report.history.steps[0]) == pytest.approx(report.step_time.steps, rel=0.02)
    writer.close()


def test_a_replay_opens_with_the_first_rows_and_samples_and_has_all_with_its_next_report(tmp_path, monkeypatch):
    for bound in ("FIRST_SAMPLES", "FIRST_ROWS"):
        monkeypatch.setattr(f"rn50_advisor.advisor.store.run_reader.{bound}", 10)
    writer = write_run(tmp_path / "run", 200)
    for second in range(20):
        at_ns = T0_NS + second * 1_000_000_000
        writer.put_samples(at_ns, [Sample("gpu.util_pct", "gpu:0", 90.0 if second < 15 else 10.0)])
    writer.put_meta(ended_ns=T0_NS + 20_000_000_000)
    writer.close()
    source = ReplayedRun(tmp_path / "run", clock=Clock())
    first = source.poll()
    assert first is not None and first.step_time.steps == 0
    assert source.duration_s == pytest.approx(20.0)
    source.seek(source.duration_s)
    last = source.poll()
    assert last is not None and last.gpus[0].util_pct == 10.0 and last.step_time.steps == 200


def test_a_screen_that_opens_late_reads_the_whole_past_once(tmp_path):
    writer = write_run(tmp_path / "run", RECENT_STEPS + 1000)
    clock, read = Clock(), []

    def noted(recording):
        read.append(sum(int(rows["count"].sum()) for rows in recording.steps.values()))
        return diagnose(recording)

    source = LiveSource(tmp_path / "run", clock=clock, diagnosis=noted)
    first = source.poll()
    assert first is not None and first.history is not None and first.history.start_s == pytest.approx(100.0)
    for more in range(2):
        put(writer, RECENT_STEPS + 1000 + more, RECENT_STEPS + 1001 + more)
        clock.now_s += 100.0
        later = source.poll()
        assert later is not None and later.history is not None and later.history.start_s == 0.0
    assert read == [RECENT_STEPS, RECENT_STEPS, RECENT_STEPS + 1001, RECENT_STEPS]
    writer.close()


def test_a_live_source_reads_again_only_when_the_file_has_changed(tmp_path):
    writer = write_run(tmp_path / "run", 50)
    source = LiveSource(tmp_path / "run", clock=Clock())
    first = source.poll()
    assert first is not None
    assert first.step_time.steps == 50
    assert source.poll() is None
    writer.put_records(KIND_STEP, 0, [step_row(step) for step in range(50, 80)])
    writer.commit()
    second = source.poll()
    assert second is not None
    assert second.step_time.steps == 80
    writer.close()
    assert source.poll() is not None
    assert source.poll() is None


def test_a_live_source_of_no_run_says_so_each_time(tmp_path):
    source = LiveSource(tmp_path / "nothing")
    for _ in range(2):
        with pytest.raises(NotARun):
            source.poll()


def test_both_are_sources_and_only_one_is_a_replay(tmp_path, replay):
    live = LiveSource(tmp_path)
    assert isinstance(live, ReportSource)
    assert not isinstance(live, ReplaySource)
    assert isinstance(replay[0], ReplaySource)


def test_a_replay_shows_the_run_as_it_was_at_each_moment(replay):
    source, clock = replay
    assert source.poll() is not None
    assert source.duration_s == pytest.approx(20.0)
    clock.now_s += 5.0
    report = source.poll()
    assert source.position_s == pytest.approx(5.0)
    assert report.step_time.steps == 50
    assert source.poll() is None
    source.speed = 4.0
    clock.now_s += 2.0
    assert source.poll().step_time.steps == 130


def test_a_paused_replay_stands_still_and_goes_on_where_it_was(replay):
    source, clock = replay
    source.poll()
    clock.now_s += 3.0
    source.poll()
    source.paused = True
    clock.now_s += 60.0
    assert source.poll() is None
    assert source.position_s == pytest.approx(3.0)
    source.paused = False
    clock.now_s += 1.0
    assert source.position_s == pytest.approx(4.0)


def test_seeking_works_paused_and_stays_within_the_run(replay):
    source, _ = replay
    source.poll()
    source.paused = True
    source.seek(10.0)
    assert source.poll().step_time.steps == 100
    source.seek(5.0)
    assert source.poll().step_time.steps == 50
    source.seek(-7.0)
    assert source.position_s == 0.0
    source.seek(1e9)
    assert source.position_s == pytest.approx(20.0)


def test_a_replay_ends_with_the_whole_run_and_then_is_silent(replay):
    source, clock = replay
    source.poll()
    clock.now_s += 1e6
    assert source.poll().step_time.steps == 200
    assert source.poll() is None
    assert source.position_s == source.duration_s


def test_a_slow_reading_is_followed_by_a_longer_rest(tmp_path):
    clock = Clock()

    def slowly(recording):
        clock.now_s += 0.5
        return diagnose(recording)

    writer = write_run(tmp_path / "run", 50)
    source = LiveSource(tmp_path / "run", clock=clock, diagnosis=slowly)
    assert source.poll() is not None
    writer.put_records(KIND_STEP, 0, [step_row(50)])
    writer.commit()
    for seconds, read in ((1.0, False), (3.0, False), (1.5, True)):
        clock.now_s += seconds
        assert (source.poll() is not None) == read
    writer.close()


def test_the_last_reading_of_an_ended_run_covers_all_of_its_steps(tmp_path):
    steps = RECENT_STEPS + 500
    writer = write_run(tmp_path / "run", steps)
    source = LiveSource(tmp_path / "run", clock=Clock())
    source.poll()
    writer.put_meta(ended_ns=T0_NS + steps * STEP_NS, exit_code=0)
    writer.close()
    report = source.poll()
    assert not report.job.running
    assert report.step_time.steps == steps


def test_a_trace_of_a_profiler_is_shown_like_an_old_run(tmp_path: Path) -> None:
    source = ReplayedRun(written_trace(tmp_path / "t.json", traced_loop(fetch=60_000.0)), clock=lambda: 0.0)
    source.poll()
    source.seek(source.duration_s)
    report = source.poll()
    assert report is not None
    assert report.verdict.rule == "DAT003"
    assert source.duration_s == pytest.approx(5 * 0.1555)
