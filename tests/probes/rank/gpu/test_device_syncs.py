"""Observes in single steps which calls wait for the device and what is copied there; afterwards torch is restored."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch not installed: pip install '.[train]'")
pytestmark = pytest.mark.torch

dynamo = pytest.importorskip("torch._dynamo")
from torch import nn  # noqa: E402

from rn50_advisor.probes.rank.gpu.device_syncs import (  # noqa: E402
    CALLS_MAX,
    COPYING,
    FIRST_OBSERVED_STEP,
    NEVER,
    WAITING,
    Syncs,
)
from rn50_advisor.probes.rank.install import own_code  # noqa: E402
from rn50_advisor.probes.rank.steps.step_phases import (  # noqa: E402
    EVALUATION,
    FORWARD,
    GAP,
)

HERE = str(Path(__file__))
METHODS = (*WAITING, *COPYING)
# as they are without a recorder
OWN = {name: vars(torch.Tensor).get(name) for name in METHODS}
SYNCHRONIZE = torch.cuda.synchronize


class Account(SimpleNamespace):
    thread = threading.get_ident()
    self_ns = 0
    phase = GAP


class Job:
    """Steps of a loop whose device is the host, or the one that holds nothing."""

    def __init__(self, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RN50_ADVISOR_SYNC_DEVICE", device)
        self.failures = 0
        self.syncs = Syncs(torch, self.failed)
        self.account: Any = Account()
        self.values: dict[str, Any] = {}
        self.step = 0

    def failed(self) -> None:
        self.failures += 1

    def next_step(self) -> None:
        self.step += 1
        if self.step >= self.syncs.due:
            self.syncs.turn(self.step, self.account, self.values)

    def open(self) -> None:
        while not self.syncs.open:
            self.next_step()

    def close(self) -> None:
        while self.syncs.open:
            self.next_step()

    @property
    def sites(self) -> list[dict[str, Any]]:
        found = self.values["syncs"]["sites"]
        assert isinstance(found, list)
        return found


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Job("cpu", monkeypatch)
    yield made
    made.syncs.forget()
    assert {name: vars(torch.Tensor).get(name) for name in METHODS} == OWN
    assert torch.cuda.synchronize is SYNCHRONIZE


@pytest.fixture
def copying(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Job("meta", monkeypatch)
    yield made
    made.syncs.forget()


def line_of(text: str) -> int:
    """The line of this file that holds the text, and no other does."""
    (found,) = [
        n for n, line in enumerate(Path(HERE).read_text().splitlines(), 1) if text in line and "line_of" not in line
    ]
    return found


def test_each_waiting_call_is_listed_with_its_line(job: Job) -> None:
    loss = torch.tensor(2.5)
    job.open()
    assert loss.item() == 2.5
    assert float(loss) == 2.5
    assert bool(loss)
    assert torch.ones(2).tolist() == [1.0, 1.0]
    assert "2.5" in repr(loss)  # the printed one
    job.close()
    sites = {site["call"]: site for site in job.sites}
    assert sites.keys() == {"item", "__float__", "__bool__", "tolist", "__repr__"}
    assert all(site["file"] == HERE and site["count"] == site["looks"] == 1 for site in job.sites)
    assert sites["__repr__"]["line"] == line_of("the printed " + "one")
    assert sites["item"]["function"] == "test_each_waiting_call_is_listed_with_its_line"
    assert sites["item"]["phase"] == "gap" and sites["item"]["blocked_ns"] >= sites["item"]["least_ns"] > 0


def test_waiting_for_all_queued_work_is_listed(job: Job) -> None:
    torch.cuda.synchronize = lambda: None
    try:
        job.open()
        torch.cuda.synchronize()
        job.close()
    finally:
        torch.cuda.synchronize = SYNCHRONIZE
    assert [(site["call"], site["line"]) for site in job.sites] == [("synchronize", job.sites[0]["line"])]


def test_calls_of_tensors_elsewhere_are_no_waits(job: Job) -> None:
    job.open()
    job.syncs._device = "cuda"
    for _ in range(CALLS_MAX + 1):
        torch.tensor(1.0).item()  # as optimizers do with their counts
    assert vars(torch.Tensor).get("item") is not OWN["item"], "it goes on"
    job.syncs._device = "cpu"
    job.close()
    assert job.sites == []


def test_calls_add_up_over_observed_steps_and_a_step_counts_once(job: Job) -> None:
    loss = torch.tensor(1.0)
    for count in (2, 3):
        job.open()
        for _ in range(count):
            loss.item()
        job.close()
    (site,) = job.sites
    assert (site["count"], site["looks"], job.values["syncs"]["looks"]) == (5, 2, 2)


def test_between_observed_steps_nothing_is_patched_or_counted(job: Job) -> None:
    job.open()
    job.close()
    assert vars(torch.Tensor).get("item") is OWN["item"]
    torch.tensor(1.0).item()
    job.open()
    job.close()
    assert job.sites == []


def test_observed_steps_become_ever_rarer(job: Job) -> None:
    observed = []
    while job.step < 10_000:
        job.next_step()
        if job.syncs.open and (not observed or observed[-1] != job.step):
            observed.append(job.step)
    assert FIRST_OBSERVED_STEP <= observed[0] <= FIRST_OBSERVED_STEP + 1
    assert len(observed) == job.syncs.observed_steps + job.syncs.open < 40
    assert observed[-1] - observed[-2] > 1000


def test_what_evaluation_and_checkpoints_do_is_no_habit_of_the_loop(job: Job) -> None:
    job.open()
    job.account.phase = EVALUATION
    torch.tensor(1.0).item()
    job.account.phase = FORWARD
    torch.tensor(1.0).item()
    job.close()
    assert [(site["phase"], site["count"]) for site in job.sites] == [("forward", 1)]


def test_other_threads_pass_unobserved(job: Job) -> None:
    job.open()
    thread = threading.Thread(target=lambda: torch.tensor(1.0).item())
    thread.start()
    thread.join()
    job.close()
    assert job.sites == []


def test_a_call_that_fails_fails_as_it_would_and_shows_no_frame_of_the_recorder(job: Job) -> None:
    def printed() -> str:
        try:
            torch.ones(2).item()
        except RuntimeError as error:
            return "".join(traceback.format_exception(type(error), error, error.__traceback__))
        raise AssertionError

    alone = printed()
    job.open()
    watched = printed()
    job.close()
    assert watched == alone and job.failures == 0


def test_a_wrapper_is_found_in_a_set_that_holds_the_method(job: Job) -> None:
    kept, table = {torch.Tensor.to, torch.Tensor.item}, {torch.Tensor.cpu: "cpu"}
    job.open()
    assert torch.Tensor.to in kept and torch.Tensor.item in kept
    assert table[torch.Tensor.cpu] == "cpu"
    assert torch.Tensor.item == next(f for f in kept if f.__name__ == "item") and torch.Tensor.item.__name__ == "item"
    job.close()


def test_subclasses_with_functions_of_their_own_see_what_they_know(job: Job) -> None:
    asked = []

    class Mine(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            asked.append(getattr(func, "__name__", str(func)))
            return super().__torch_function__(func, types, args, kwargs or {})

    tensor = torch.ones(1).as_subclass(Mine)
    tensor.item()
    usual = list(asked)
    asked.clear()
    job.open()
    tensor.item()
    job.close()
    assert asked == usual == ["item"]


def test_torchvision_keeps_its_kinds_of_tensors(job: Job) -> None:
    vision = pytest.importorskip("torchvision.tv_tensors")
    picture = vision.Image(torch.zeros(3, 4, 4))
    job.open()
    assert type(picture.to(torch.float64)) is type(picture)
    job.close()


def test_what_the_job_puts_there_itself_stays(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.open()
    own = lambda tensor: 7  # noqa: E731
    monkeypatch.setattr(torch.Tensor, "item", own)
    job.close()
    assert torch.tensor(1.0).item() == 7
    monkeypatch.undo()  # puts our stand-in back, as code would that restores what it had found
    delattr(torch.Tensor, "item")


def test_a_child_forked_in_an_observed_step_has_the_original_torch(job: Job) -> None:
    job.open()
    os.register_at_fork(after_in_child=job.syncs.forget)
    child = os.fork()
    if child == 0:
        os._exit(0 if vars(torch.Tensor).get("item") is OWN["item"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert job.syncs.open


def test_after_the_last_step_observation_ends_by_itself(job: Job) -> None:
    job.open()
    loss = torch.tensor(1.0)
    for _ in range(CALLS_MAX + 1):
        loss.item()
    assert vars(torch.Tensor).get("item") is OWN["item"]


def test_an_error_in_the_recorder_ends_all_observation(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job.syncs, "_note", lambda *_: 1 / 0)
    job.open()
    assert torch.tensor(1.0).item() == 1.0
    assert job.failures == 1 and job.syncs.due == NEVER and vars(torch.Tensor).get("item") is OWN["item"]
    assert job.values["syncs"] == {"looks": 0, "device": "cpu", "sites": [], "unseen": "failed"}


def test_what_was_seen_before_an_error_stays(job: Job) -> None:
    job.open()
    torch.tensor(1.0).item()
    job.close()
    job.syncs.fail()
    assert job.values["syncs"]["looks"] == 1 and len(job.sites) == 1


def test_before_dynamo_is_loaded_no_step_is_observed_and_the_facts_have_the_reason(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as unloaded:
        unloaded.delitem(sys.modules, "torch._dynamo.variables.tensor")
        while job.step < 20:
            job.next_step()
        assert not job.syncs.open and job.values["syncs"]["unseen"] == "dynamo"
    job.open()
    job.close()
    assert job.values["syncs"] == {"looks": 1, "device": "cpu", "sites": []}


def test_while_each_step_compiles_no_step_is_observed_and_the_facts_have_the_reason(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = itertools.count()
    monkeypatch.setattr("rn50_advisor.probes.rank.gpu.device_syncs.compiled_frames", lambda: next(frames))
    while job.step < FIRST_OBSERVED_STEP:
        job.next_step()
    assert not job.values, "whether it compiles is not known yet"
    while job.step < 20:
        job.next_step()
    assert not job.syncs.open and job.values["syncs"]["unseen"] == "compiling"


def test_without_a_gpu_no_step_is_observed(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job.syncs, "_device", "cuda")
    for _ in range(20):
        job.next_step()
    assert job.syncs.due == NEVER and not job.values


def test_dynamo_makes_the_same_graphs_in_an_observed_step(job: Job) -> None:
    for code in own_code([]):  # as it is in a job
        dynamo.eval_frame.skip_code(code)

    def count(whole: bool) -> tuple[int, int]:
        def run(x: Any) -> Any:
            y = x.to(torch.float64) * 2
            return y.sum() if whole else y.sum().item()

        dynamo.reset()
        dynamo.utils.counters.clear()
        torch.compile(run, backend="eager", fullgraph=whole)(torch.ones(3))
        counters = dynamo.utils.counters
        return counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())

    usual = [count(True), count(False)]
    job.open()
    watched = [count(True), count(False)]
    job.close()
    assert watched == usual
    dynamo.reset()


def test_a_step_after_one_that_compiled_is_left_alone(job: Job) -> None:
    while job.step < FIRST_OBSERVED_STEP:
        job.next_step()
    dynamo.reset()
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    job.next_step()
    assert not job.syncs.open
    job.next_step()
    assert job.syncs.open
    dynamo.reset()


def test_copies_are_listed_with_properties_that_make_them_slow(copying: Job) -> None:
    pictures = torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)
    labels = torch.zeros(2, dtype=torch.long)
    copying.open()
    copying.account.phase = FORWARD
    pictures.to("meta", non_blocking=True)
    labels.to("meta")
    pictures.to(torch.float64)  # stays on the host
    copying.close()
    by_bytes = {copy["bytes"]: copy for copy in copying.values["copies"]}
    assert by_bytes.keys() == {2 * 3 * 4 * 4 * 4, 2 * 8}
    large, small = by_bytes[2 * 3 * 4 * 4 * 4], by_bytes[16]
    assert (large["pinned"], large["non_blocking"], large["channels_last"], large["phase"]) == (
        False,
        True,
        True,
        "forward",
    )
    assert (small["non_blocking"], small["channels_last"], small["aside"]) == (False, None, False)
    assert copying.sites == []


def test_a_buffer_that_is_filled_is_a_copy_to_where_it_lies(copying: Job) -> None:
    """As prefetchers do it: the same tensors on the device for all batches."""
    buffer, pictures = torch.empty(2, 3, 4, 4, device="meta"), torch.zeros(2, 3, 4, 4)
    copying.open()
    buffer.copy_(pictures)
    buffer.copy_(pictures, True)
    torch.zeros(4).copy_(torch.ones(4))  # stays on the host
    buffer.copy_(torch.empty(2, 3, 4, 4, device="meta"))  # and this one on the device
    copying.close()
    copies = [(copy["call"], copy["non_blocking"], copy["pinned"], copy["bytes"]) for copy in copying.values["copies"]]
    assert sorted(copies) == [("copy_", False, False, 384), ("copy_", True, False, 384)]
    assert copying.sites == []


def test_a_buffer_on_the_host_that_is_filled_from_the_device_is_a_wait(job: Job) -> None:
    kept, loss = torch.zeros(3), torch.ones(3)
    job.open()
    kept.copy_(loss)
    kept.copy_(loss, non_blocking=True)
    job.close()
    assert [(site["call"], site["count"]) for site in job.sites] == [("copy_", 1)]


@pytest.mark.parametrize("call", ["plain", "positional", "with_type"])
def test_the_argument_is_read_in_any_position(copying: Job, call: str) -> None:
    x = torch.zeros(4)
    copying.open()
    if call == "plain":
        x.to("meta")
    elif call == "positional":
        x.to(torch.empty(0, device="meta"), True)
    else:
        x.to("meta", torch.float16, True)
    copying.close()
    assert [copy["non_blocking"] for copy in copying.values["copies"]] == [call != "plain"]


def test_a_wait_inside_torch_is_listed_with_the_users_line_and_torchs_module(job: Job) -> None:
    scaler = torch.amp.GradScaler("cpu")
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler.scale(model(torch.ones(1, 2)).sum()).backward()
    job.open()
    scaler.step(optimizer)  # asks for infinities
    job.close()
    found = [site for site in job.sites if site["through"] == "torch.amp.grad_scaler"]
    assert found and found[0]["call"] == "item" and found[0]["line"] == line_of("asks for " + "infinities")


def test_a_kept_wrapper_calls_the_original_method(job: Job) -> None:
    job.open()
    taken = torch.Tensor.item
    job.close()
    job.open()
    job.close()
    before = job.values["syncs"]
    assert taken(torch.tensor(3)) == 3
    job.open()
    job.close()
    assert job.values["syncs"]["sites"] == before["sites"]
