"""The recorder's memory in a rank is bounded whatever the job does, and its end costs no more after a long run.

what                                   bound
buffered marks, by kind                `mark_buffer.MARKS_MAX`; a fetch, a backward and an update each find it full
its sizes and other optimizers         one for each batch or update that is buffered
updates by hooks in other threads      `pass_marks.UPDATES_MAX` of one backward, `pass_marks.THREADS_MAX` under way
collections of garbage                 `garbage.EVENTS_MAX`
run-queue delays ahead of their steps  `step_phases._DELAYS_MAX` and those of a flush
an account's dicts by loader           numbers of loaders: `known_loaders.LOADERS_MAX`, and -1
loaders, their first batches           `known_loaders.LOADERS_MAX`
numbers of objects                     living objects of the job: weak references
threads that fetch, fill, train        `recorder._THREADS_MAX`, `known_loaders.LOADERS_MAX`
events of a GPU                        `gpu_events._MARKS_MAX` a step; 4 times as many wait, `_OUTSTANDING_MAX` steps at most
waits of its stream for collectives    `gpu_events._WAITS_MAX` a step that is timed, of those steps
CUDA graphs that are whole steps       living graphs of the job: weak references
places of saves, collectives, syncs    `checkpoint_saves._SITES_MAX`, `collective_marks.SITES_MAX`, `device_syncs.NAMED_MAX`
optimizers and embedding tables made   `optimizer_holdings._MADE_MAX`, `embedding_tables.MADE_MAX`
check sums, parameters without update  `batch_digests._BATCHES_MAX`, `unused_gradients.UPDATED_MAX`
gradients that may be thrown away      `discarded_gradients.OPTIMIZERS_MAX`, `discarded_gradients.SITES_MAX`, passes of `RECORDED` steps
backward passes that repeat            `repeated_passes.LINES_MAX`; numbers of a step's nodes, `repeated_passes.NODES_MAX` in all steps
classes of autograd's nodes            those of a graph of `backward_nodes.NODES_MAX` nodes at most
process groups                         `process_groups.GROUPS_MAX`
parts of transforms, of profiles       `sample_parts.PARTS_MAX`, `sample_profiles._PARTS_MAX`
wrappers of models, misses, in facts   `process_facts.MADE_MAX`, `process_facts._MISSES_MAX`
changes of work                        `work_facts.CHANGES_MAX`
library iterators                      `known_loaders.LOADERS_MAX`
"""

from __future__ import annotations

import json
import subprocess
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest

from rn50_advisor.probes.rank import pass_marks
from rn50_advisor.probes.rank.comm.process_groups import GROUPS_MAX, Groups
from rn50_advisor.probes.rank.facts import process_facts
from rn50_advisor.probes.rank.garbage import EVENTS_MAX
from rn50_advisor.probes.rank.gpu import gpu_events
from rn50_advisor.probes.rank.gpu.gpu_events import GpuTimes
from rn50_advisor.probes.rank.layout import RANK_SLOTS
from rn50_advisor.probes.rank.patches import checkpoint_saves
from rn50_advisor.probes.rank.patches.step_graphs import StepGraphs
from rn50_advisor.probes.rank.steps import step_phases
from rn50_advisor.probes.rank.steps.mark_buffer import MARKS_MAX
from rn50_advisor.probes.rank.steps.step_account import Account

SHAPES = Path(__file__).with_name("shapes.py")
STEPS = 100_000  # of two to ten marks: more than any bound, and twelve times as many as objects that may be held
# In a plain loop the recorder held 3,000 objects with a buffer full of numbers. Events of garbage are four each.
HELD_MAX = {"collections": 8_000 + 4 * EVENTS_MAX}
GROWN_MAX_MB = 1.0  # half of it are the events of garbage; any other shape had grown by nothing


@pytest.mark.parametrize(
    "shape",
    [
        "left_early", "backward_alone", "updates_alone", "updates_that_raise", "fetches_alone", "evaluation", "gan", "closures",
        "accumulation", "inside_backward", "backward_inside_backward", "new_loaders", "new_optimizers", "another_thread",
        "fetching_threads", "graph_replays", "collections",
    ],
)  # fmt: skip
def test_no_shape_of_loop_makes_the_recorder_grow(tmp_path: Path, shape: str) -> None:
    command = [sys.executable, str(SHAPES), shape, str(STEPS), str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout)
    assert found["errors"] == 0
    assert found["grown_mb"] < GROWN_MAX_MB
    assert found["longest"] <= MARKS_MAX
    assert found["held"] < HELD_MAX.get(shape, 8_000)
    assert found["written_at_end"] <= RANK_SLOTS, "what is left to the end fits the ring: none of it is lost"


def test_a_loop_that_leaves_its_loader_is_recorded_step_by_step(tmp_path: Path) -> None:
    command = [sys.executable, str(SHAPES), "left_early", "20000", str(tmp_path)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert found["steps"] >= 22_990  # with those of the warm-up; its turns are known after a few


def test_delays_of_a_loop_whose_steps_never_end_are_summed() -> None:
    account, delay = Account(thread=1), iter(range(10_000_000))
    account.run_delay = lambda: next(delay)
    for number in range(5_000):
        account.read_delay(range(number * 10, number * 10 + 5))
    assert len(account.delays) <= step_phases._DELAYS_MAX + 5
    assert sum(grown for _, grown in account.delays) > 0


def test_updates_by_hooks_have_a_bound() -> None:
    noted = pass_marks.Hooked()
    for number in range(pass_marks.UPDATES_MAX + 10):
        noted.begin()
        noted.end(number)
    assert len(noted.take(0)) == pass_marks.UPDATES_MAX and noted.take(0) == []


def test_places_of_saves_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = iter(range(1000))
    monkeypatch.setattr(checkpoint_saves.process_facts, "call_site", lambda: ("made anew", next(lines)))
    account, known = Account(thread=1), checkpoint_saves.Saves()
    account.ring = SimpleNamespace(phase=lambda *_: None, write=lambda *_: None)
    for _ in range(500):
        token = known.begin(account)
        assert token is not None
        known.end(token)
    assert len(known.facts()) == checkpoint_saves._SITES_MAX


def test_what_does_not_work_is_noted_once_and_not_for_ever(tmp_path: Path) -> None:
    facts = process_facts.Facts(str(tmp_path))
    for number in range(1000):
        facts.miss("ddp: no stamps")
        facts.miss(f"gpu times: {number}")
    assert facts.values["unpatched"].count("ddp: no stamps") == 1 and len(facts.values["unpatched"]) <= 32


class Event:
    def record(self, stream: int) -> None: ...

    def query(self) -> bool:
        return False


class Cuda:
    """A GPU that never gets to the events that it is given. `events`: those that somebody keeps."""

    def __init__(self) -> None:
        self.events = weakref.WeakSet[Event]()

    def current_stream(self, device: int) -> int:
        return device

    def is_current_stream_capturing(self) -> bool:
        return False

    def Event(self, enable_timing: bool) -> Event:
        event = Event()
        self.events.add(event)
        return event


def test_events_around_waits_have_a_bound() -> None:
    cuda = Cuda()
    times = GpuTimes(cuda, 0)
    for step in range(3 * gpu_events._OUTSTANDING_MAX):
        times.times_waits = True
        for _ in range(gpu_events._WAITS_MAX - 1):
            before = times.wait_begins()
            assert before is not None
            times.wait_ends(before, 0)
        times.mark("forward")
        times.close(step, SimpleNamespace())  # type: ignore[arg-type]
    outstanding = gpu_events._OUTSTANDING_MAX * (2 * gpu_events._WAITS_MAX + 1)
    assert len(cuda.events) <= outstanding + 2
    for _ in range(10 * gpu_events._WAITS_MAX):  # a step without end
        if (event := times.wait_begins()) is not None:
            times.wait_ends(event, 0)
    assert len(cuda.events) <= outstanding + 2 * gpu_events._WAITS_MAX + 4


class Graph: ...


def test_graphs_of_whole_steps_end_with_the_job_s(tmp_path: Path) -> None:
    account = SimpleNamespace(ring=object(), backwards=0, optimizers=0)
    recorder = SimpleNamespace(own_account=lambda: account, passes=SimpleNamespace(captured_update=None))
    graphs = StepGraphs(recorder)  # type: ignore[arg-type]
    for captured in (True, False):
        for _ in range(1000):
            graph = Graph()
            graphs.begins(graph)
            account.backwards += 1
            if captured:
                graphs.ends(graph)
    assert len(graphs.known) <= 1 and len(graphs._begun) <= 1


class Group:
    group_name = "g"

    def size(self) -> int:
        return 2


def test_groups_that_are_made_anew_are_forgotten() -> None:
    known = Groups(SimpleNamespace(ProcessGroup=Group, get_backend=lambda _: "gloo"))
    kept = [Group() for _ in range(3 * GROUPS_MAX)]
    for group in kept:
        known.of((group,))
        assert len(known._known) <= GROUPS_MAX
