"""Single events and stalls: deaths, stalls and their culprits, lines of code between the steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recordings import FIRST_STEP_NS, SECOND, batches, plan, rank_process, recording, stack, stall, stall_end, step
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Death, HotLine, Stall
from rn50_advisor.advisor.model.recording import Event, Process, Source

T_DEATH = FIRST_STEP_NS + 3 * SECOND


def died(*processes: Process, **more: Any) -> list[Death]:
    return list(analyse(recording({0: plan(30), 1: plan(30)}, processes=processes, **more)).deaths)


def ended(rank: int, after_s: float, **how: Any) -> Process:
    return rank_process(rank, ended_ns=T_DEATH + round(after_s * SECOND), **how)


def test_deaths_come_in_their_order_and_the_first_is_marked() -> None:
    facts = {101: {"exception": {"type": "ValueError", "message": "no such class"}}}
    positions = {1: ("forward", 17, T_DEATH)}
    found = died(ended(0, 2.0, exit_signal=15), ended(1, 0.5, exit_code=1), facts=facts, positions=positions)
    assert [(d.rank, d.first) for d in found] == [(1, True), (0, False)]
    assert (found[0].t_s, found[0].step, found[0].phase) == (5.5, 17, "forward")
    assert found[0].exception == "ValueError: no such class" and found[1].exception == ""


def test_the_phase_of_a_rank_that_marked_its_end_comes_from_the_exception() -> None:
    facts = {101: {"exception": {"type": "ValueError", "message": "no such class", "phase": "backward"}}}
    found = died(ended(1, 0.5, exit_code=1), facts=facts, positions={1: ("ended", 17, T_DEATH)})
    assert (found[0].phase, found[0].step) == ("backward", 17)


@pytest.mark.parametrize(
    ("how", "is_death"),
    [
        pytest.param({"exit_code": 0}, False, id="code 0"),
        pytest.param({"exit_code": 0, "clean_exit": True}, False, id="code 0 and shut down by itself"),
        pytest.param({"clean_exit": True}, False, id="nobody saw the code, but it shut down by itself"),
        pytest.param({}, False, id="nothing known"),
        pytest.param({"clean_exit": False}, True, id="nobody saw the code, and it did not shut down"),
        pytest.param({"exit_code": 3, "clean_exit": True}, True, id="shut down with an error"),
        pytest.param({"exit_signal": 11}, True, id="a signal"),
        pytest.param({"oom_killed": True}, True, id="the OOM killer"),
    ],
)
def test_who_died_is_who_did_not_end_well(how: dict[str, Any], is_death: bool) -> None:
    assert bool(died(ended(0, 1.0, **how))) == is_death


def test_a_rank_that_runs_has_not_died() -> None:
    assert died(rank_process(0, exit_code=None, clean_exit=False)) == []


def test_workers_die_by_signals_and_are_never_first_while_others_are_no_deaths() -> None:
    worker = ended(0, 0.1, role="worker", pid=300, worker=0, exit_signal=9, oom_killed=True)
    unseen = ended(0, 0.2, role="worker", pid=301, worker=1, clean_exit=False)
    helper = replace(ended(0, 0.0, exit_code=1), role="other", pid=302, rank=None)
    found = died(worker, unseen, helper, ended(1, 1.0, exit_code=1))
    assert [(d.role, d.pid, d.oom_killed, d.first) for d in found] == [
        ("worker", 300, True, False),
        ("rank", 101, False, True),
    ]


def test_a_worker_that_died_is_known_by_the_batches_it_made() -> None:
    workers = [ended(0, 0.1, role="worker", pid=pid, worker=0, exit_signal=7) for pid in (300, 301)]
    made = batches([{"start": 0.1 * n, "wall": 50, "pid": 300, "loader": 1} for n in range(3)])
    assert [d.loader for d in died(*workers, batches={0: made})] == [1, None]


def stalled(*events: Event) -> Stall:
    (found,) = analyse(recording({0: plan(), 1: plan()}, events=events)).stalls
    return found


TORCH = "/lib/site-packages/torch/distributed/distributed_c10d.py"
WAITS = {"phase": "gap", "frames": [{"function": "barrier", "file": TORCH, "line": 4800}]}
USER = {"file": "/job/train.py", "line": 33, "function": "find_batch"}
STANDS = {"user": USER, "frames": [{"function": "read", "file": "/lib/io.py", "line": 9}, USER]}


@pytest.mark.parametrize(
    ("rows", "culprits"),
    [
        pytest.param([{"phase": "backward"}, STANDS], [1], id="the one outside the collective"),
        pytest.param([STANDS, WAITS], [0], id="a barrier in the loop is waiting too"),
        pytest.param([WAITS, {"phase": "backward"}], [], id="all wait: nobody in particular"),
        pytest.param([STANDS], [0], id="one rank alone"),
        pytest.param([{**STANDS, "step": 9}, {**STANDS, "step": 8}], [1], id="nobody waits: who is furthest behind"),
        pytest.param([STANDS, STANDS, {"phase": "backward"}], [0, 1], id="two stand, one waits"),
    ],
)
def test_the_culprit_of_a_stall(rows: list[dict[str, Any]], culprits: list[int]) -> None:
    found = stalled(stall(40.0, *({"rank": n, **row} for n, row in enumerate(rows))))
    assert [r.rank for r in found.ranks if r.culprit] == culprits
    assert not any(r.culprit and r.waiting_in_collective for r in found.ranks)


@pytest.mark.parametrize(
    ("function", "file"),
    [("wait", "/lib/python3.11/threading.py"), ("recv", "/lib/python3.11/multiprocessing/connection.py")],
)
def test_waiting_for_a_lock_or_a_pipe_is_no_collective(function: str, file: str) -> None:
    locked = {"user": USER, "frames": [{"function": function, "file": file, "line": 320}, USER]}
    found = stalled(stall(40.0, {"rank": 0, "phase": "backward"}, {"rank": 1, **locked}))
    assert [r.rank for r in found.ranks if r.culprit] == [1]


def test_a_stall_names_place_and_time_of_each_rank() -> None:
    found = stalled(stall(40.0, {"rank": 0, "phase": "backward"}, {"rank": 1, **STANDS}))
    waits, stands = found.ranks
    assert (stands.file, stands.line, stands.function, stands.leaf) == (*USER.values(), "read (io.py:9)")
    assert (stands.since_s, stands.step) == (40.0, 7)
    assert (waits.file, waits.leaf, waits.waiting_in_collective) == ("", "", True), "no stack could be had"
    assert found.typical_step_s == pytest.approx(0.1) and found.p99_step_s >= 0.1


def test_a_stall_counts_once_as_last_seen_and_knows_its_end() -> None:
    rows = ({"rank": 0, **STANDS},)
    found = stalled(stall(31.0, *rows), stall(50.0, *rows), stall_end())
    assert (found.stalled_s, found.ended) == (50.0, True)
    assert not stalled(stall(31.0, *rows), stall_end("stall-9")).ended
    two = analyse(recording({0: plan()}, events=(stall(31.0, *rows), stall(32.0, *rows, number="stall-2")))).stalls
    assert [s.stalled_s for s in two] == [31.0, 32.0]


def hot(*events: Event) -> tuple[HotLine, ...]:
    return analyse(recording({0: plan()}, events=events)).hot_lines


def test_lines_come_by_how_often_they_were_found() -> None:
    often, rarely = [stack("/job/a.py", 7, "smooth")] * 3, stack("/job/a.py", 9, "other")
    found = hot(rarely, *often)
    assert [(line.line, line.samples, line.share) for line in found] == [(7, 3, 0.75), (9, 1, 0.25)]
    assert found[0].leaf == "smooth (a.py:7)"


def test_a_line_in_a_loop_over_the_models_tensors_is_known_by_its_source() -> None:
    code = "def smooth(model, kept):\n    for p, q in zip(model.parameters(), kept):\n        q.lerp_(p, 0.1)\n    log(kept)\n"
    events = [stack("/job/a.py", 3, "smooth")] * 2 + [stack("/job/a.py", 4, "smooth")]
    given = recording({0: plan()}, events=events, sources=(Source("/job/a.py", "", code),))
    assert [line.each_tensor for line in analyse(given).hot_lines] == ["in place", ""]
    assert [line.each_tensor for line in hot(*events)] == ["", ""], "without its source"


@pytest.mark.parametrize(
    ("given", "counts"),
    [
        ({"phase": "gap"}, True),
        ({"phase": "clip"}, True),
        ({"phase": "evaluation"}, False),
        ({"phase": "checkpoint"}, False),
        ({"phase": "forward"}, False),
        ({"phase": "gap", "step": 0}, False),
        ({"phase": "gap", "user": None}, False),
    ],
)
def test_only_samples_between_the_phases_after_the_first_step_count(given: dict[str, Any], counts: bool) -> None:
    assert bool(hot(stack("/job/a.py", 7, "smooth", **given))) == counts


@pytest.mark.parametrize(
    ("callees", "io"),
    [
        pytest.param([("emit", "/usr/lib/python3/logging/__init__.py", 1100)], True, id="a logger"),
        pytest.param([("add_scalar", "/site-packages/tensorboard/writer.py", 5)], True, id="a tracker"),
        pytest.param([("Journal.write", "/site-packages/x/files.py", 5)], True, id="a method that writes"),
        pytest.param([("refresh", "/site-packages/tqdm/std.py", 5)], True, id="a progress bar"),
        pytest.param([("fsync", "/site-packages/x/files.py", 5)], True, id="a write to disk"),
        pytest.param([("matmul", "/site-packages/numpy/core.py", 5)], False, id="computing"),
        pytest.param([], False, id="the line itself"),
    ],
)
def test_output_is_distinguished_from_computing_by_the_functions_that_the_line_calls(
    callees: list[tuple[str, str, int]], io: bool
) -> None:
    (line,) = hot(stack("/job/a.py", 7, "step_done", *callees))
    assert line.io is io


@pytest.mark.parametrize(
    ("text", "io"),
    [
        ("logger.info('loss %.3f', loss)", True),
        ("self.log('loss', loss)", True),
        ("run.log({'loss': loss})", True),
        ("print(loss, flush=True)", True),
        ("file.write(f'{loss}')", True),
        ("math_log.info(loss)", True),
        ("entropy = -(p * np.log(p)).sum()", False),
        ("x = math.log(perplexity)", False),
        ("x = torch.log(p) * p", False),
        ("x = jax.numpy.log(p)", False),
        ("x = F.log(p)", False),
        ("x = (p * p.log()).sum()", False),
        ("x = log(p)", False),
        ("frames = torchaudio.info(path).num_frames", False),
        ("text = json.dumps(row)", False),
        ("limits = torch.finfo(p.dtype)", False),
        ("free, total = torch.cuda.mem_get_info()", False),
        ("x = catalog(row)", False),
    ],
)
def test_output_is_distinguished_from_logarithms_by_the_text_of_the_line(text: str, io: bool) -> None:
    user = {"function": "step_done", "file": "/job/a.py", "line": 7, "text": text}
    (line,) = hot(stack("/job/a.py", 7, "step_done", user=user))
    assert line.io is io


@pytest.mark.parametrize(
    ("text", "collects"), [("gc.collect()", True), ("gc.disable()", False), ("collect(rows)", False)]
)
def test_a_line_that_calls_the_garbage_collector_is_known_by_its_text(text: str, collects: bool) -> None:
    user = {"function": "step_done", "file": "/job/a.py", "line": 7, "text": text}
    (line,) = hot(stack("/job/a.py", 7, "step_done", user=user))
    assert line.collects is collects


def test_a_function_of_the_users_that_writes_is_output() -> None:
    (line,) = hot(stack("/job/a.py", 7, "write"))
    assert line.io


def test_a_line_is_output_when_most_of_its_samples_are() -> None:
    logs = stack("/job/a.py", 7, "done", ("emit", "/logging/__init__.py", 3))
    computes = stack("/job/a.py", 7, "done")
    assert [line.io for line in hot(logs, logs, computes)] == [True]
    assert [line.io for line in hot(logs, computes)] == [False]


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(stack("/home/rich/train.py", 7, "smooth"), id="the user's own folder"),
        pytest.param(
            stack("/job/a.py", 7, "smooth", callers=[{"function": "dump", "file": "/job/main.py", "line": 3}]),
            id="a caller",
        ),
    ],
)
def test_where_the_user_lives_and_who_calls_is_no_output(event: Event) -> None:
    assert [line.io for line in hot(event)] == [False]


def test_the_share_of_output_is_a_value_only_where_stacks_were_taken() -> None:
    logs = stack("/job/a.py", 7, "done", ("emit", "/logging/__init__.py", 3))
    assert analyse(recording({0: plan()}, events=(logs, logs, stack("/job/a.py", 9, "x")))).get("gap.io_share") == (
        pytest.approx(2 / 3)
    )
    assert analyse(recording({0: plan()})).get("gap.io_share") is None


SAVER = {"function": "keep", "file": "/job/a.py", "line": 12}
LOOP = {"function": "train", "file": "/job/a.py", "line": 9}
WRITES = stack("/job/a.py", 14, "Keeper.keep", ("write", "/site-packages/fsspec/local.py", 5), callers=[LOOP])


def profile(*rows: list[dict[str, Any]]) -> Event:
    stacks = [{"count": 9, "frames": frames, "user": frames[-1]} for frames in rows]
    return Event(FIRST_STEP_NS, "profile", 100, 0, {"outside_share": 0.3, "looks": 90, "stacks": stacks})


TORCH_SAVE = {"function": "save", "file": "/env/torch/serialization.py", "line": 900}
ENGINE = {"function": "_engine_run_backward", "file": "/env/torch/autograd/graph.py", "line": 1100}
TORCH_BACKWARD = {"function": "Tensor.backward", "file": "/env/torch/_tensor.py", "line": 640}


@pytest.mark.parametrize(
    ("events", "facts", "share"),
    [
        pytest.param([profile([TORCH_SAVE, SAVER, LOOP])], {}, 1.0, id="a profile saw the function save"),
        pytest.param(
            [profile([ENGINE, TORCH_BACKWARD, LOOP])],
            {"save_sites": [{"file": "/job/a.py", "line": 1, "count": 1, "caller": ["/job/a.py", "keep"]}]},
            1.0,
            id="the rank recorded who saves",
        ),
        pytest.param(
            [profile([TORCH_SAVE, LOOP], [ENGINE, TORCH_BACKWARD, LOOP])], {}, 0.0, id="the loop saves by itself"
        ),
        pytest.param(
            [
                profile(
                    [TORCH_SAVE, SAVER, LOOP],
                    *[[ENGINE, TORCH_BACKWARD, LOOP]] * 30,
                    [ENGINE, TORCH_BACKWARD, SAVER, LOOP],
                )
            ],
            {},
            1.0,
            id="a torn stack",
        ),
        pytest.param([profile([ENGINE, TORCH_BACKWARD, LOOP])], {}, 0.0, id="nobody saw anything save"),
    ],
)
def test_what_a_function_that_saves_writes_is_no_logging(
    events: list[Event], facts: dict[str, Any], share: float
) -> None:
    found = analyse(recording({0: plan()}, events=(WRITES, WRITES, *events), facts={100: facts}))
    assert found.get("gap.save_share") == share and found.get("gap.io_share") == 1.0 - share
    assert bool(found.hot_lines) == (share == 0.0)


def test_checkpoint_places_come_by_how_often_they_write() -> None:
    sites = [{"file": "/job/a.py", "line": 5, "count": 1}, {"file": "/job/a.py", "line": 9, "count": 7}]
    found = analyse(recording({0: plan()}, facts={100: {"save_sites": sites}})).save_sites
    assert [site["line"] for site in found] == [9, 5]


@pytest.mark.parametrize(("long", "share"), [((20,), 900 / 929), ((10, 20), 900 / 1828)])
def test_a_single_pause_between_steps_is_distinguished_from_recurring_time(long: tuple[int, ...], share: float) -> None:
    steps = [step(gap=900.0 if number in long else 1.0) for number in range(33)]
    analysis = analyse(recording({0: steps}))
    assert analysis.value("step.longest_gap_s", 0) == pytest.approx(0.9)
    assert analysis.value("step.longest_gap_share", 0) == pytest.approx(share, rel=0.01)


OUTPUT = [
    "step 7",
    "[rank0]: RuntimeError: Connection closed by peer",
    *(f"[rank1]: frame {n}" for n in range(6)),
    "[rank1]: ValueError: no such class",
    "",
    "the end",
]


@pytest.mark.parametrize(
    ("lines", "last"),
    [
        pytest.param(OUTPUT, OUTPUT[4:9], id="its own, the last five"),
        pytest.param(["a", "", "b", "====", "c"], ["a", "b", "c"], id="nobody marks whose they are"),
        pytest.param(["[default1]: of its own", "x"], ["[default1]: of its own"], id="torchrun marks by local rank"),
        pytest.param([], [], id="nothing was kept"),
    ],
)
def test_the_last_lines_of_a_rank_are_its_own_where_that_is_known(lines: list[str], last: list[str]) -> None:
    output = Event(T_DEATH, "output", None, None, {"lines": lines})
    (found,) = died(replace(ended(1, 0.5, exit_code=1), local_rank=1), events=(output,))
    assert found.last_lines == tuple(last)


@pytest.mark.parametrize(
    ("callers", "called_at"),
    [
        pytest.param([LOOP], "/job/a.py:9", id="by the loop"),
        pytest.param(
            [{"function": "log", "file": "/job/log.py", "line": 3}, LOOP], "/job/a.py:9", id="through another function"
        ),
        pytest.param([], "", id="by no function that trains"),
    ],
)
def test_the_line_of_the_loop_that_calls_a_function_is_known(callers: list[dict[str, Any]], called_at: str) -> None:
    trains = profile([ENGINE, TORCH_BACKWARD, LOOP])
    lines = hot(stack("/job/metrics.py", 21, "Auc.compute", callers=callers), trains)
    assert next(line for line in lines if line.line == 21).called_at == called_at
    own = next(line for line in hot(stack("/job/a.py", 9, "train"), trains) if line.line == 9)
    assert own.called_at == "", "it is the loop's line"
