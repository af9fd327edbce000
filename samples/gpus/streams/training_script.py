"""The user's script of a simulated job: its loop, with what interrupts it. The recorder sees it as code of a file of the user's."""

from __future__ import annotations

import itertools
from typing import Any

from samples.gpus.streams.simulated_rank import EAGER_STEPS, MS
from samples.gpus.streams.stand_ins import Torch, from_file
from samples.gpus.streams.timelines import Work

SCRIPT = "/job/train.py"


class Ending:
    """When training ends: all ranks make the same steps, and none begins one much later than `until_ns`."""

    def __init__(self, until_ns: int, steps: int) -> None:
        self._until_ns, self._last, self._begun = until_ns, steps - 1, 0

    def is_last(self, step: int, now_ns: int) -> bool:
        self._begun = max(self._begun, step)
        if now_ns >= self._until_ns:
            self._last = min(self._last, self._begun + 1)
            self._until_ns = 1 << 62
        return step >= self._last


def _pause(torch: Torch, step: int, loss: Any) -> None:
    own, job = torch.own, torch.own.job
    if _is_due(step, job.pauses.evaluates_every) and not (job.pauses.alone and own.rank):
        own.graded = False
        for images, *_ in torch.evaluated():
            images.to("cuda", non_blocking=job.non_blocking)
            own.evaluate()
        loss.item()
        own.graded = True
    if _is_due(step, job.pauses.saves_every) and own.rank == 0:
        torch.save({}, "/job/last.pt")


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == every - 1


def _train(torch: Torch, ending: Ending, ends: list[Work]) -> None:
    own, job, host = torch.own, torch.own.job, torch.own.host
    backward, graph = torch.module.autograd.backward, None
    if job.ranks > 1 and job.exchange.style == "ddp":
        torch.recorder.ddp_made(torch.model)
    for step in itertools.count():
        own.step = step
        for micro in range(job.micro_batches):
            own.exchanging = job.exchanges_each or micro == job.micro_batches - 1
            batch = next(torch.batches)[0]
            images = batch.to("cuda", non_blocking=job.non_blocking)
            if graph is not None:
                graph.replay()
                continue
            if job.graph == "step" and step == EAGER_STEPS:
                graph = torch.module.cuda.CUDAGraph()
                graph.capture_begin()
            own.forward()
            if job.exchange.style == "pipeline":
                continue
            backward(images)
            if job.reads_each_batch:
                images.item()
                host.work(job.read_ms * MS)
        for _ in range(job.micro_batches if job.exchange.style == "pipeline" else 0):
            backward(images)
        loss = images
        if graph is None or own.capturing:
            update(torch, loss, graph)
        if _is_due(step, job.reads_every):
            loss.item()
            host.work(job.read_ms * MS)
        pause(torch, step, loss)
        ends.append(host.mark())
        host.work(job.gap_ms * MS)
        if ending.is_last(step, host.now_ns):
            return


def _update(torch: Torch, loss: Any, graph: Any) -> None:
    own, job = torch.own, torch.own.job
    if job.scaled:
        loss.item()
    if not job.update_in_backward:
        torch.optimizer.step()
    if own.capturing:
        graph.capture_end()
        graph.replay()


pause, update, train = (from_file(function, SCRIPT) for function in (_pause, _update, _train))
