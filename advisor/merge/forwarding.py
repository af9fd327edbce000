"""A run writer that also copies what it writes into an outbox; the run file stays the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rn50_advisor.advisor.merge.outbox import Outbox
from rn50_advisor.advisor.model.metrics import ProbeGap, Sample
from rn50_advisor.advisor.model.recording import AnyEvent, Process
from rn50_advisor.advisor.store.run_writer import RunWriter


class ForwardingWriter(RunWriter):
    """A RunWriter that also fills an outbox once it has one. It drops an outbox that fails: the run comes first."""

    outbox: Outbox | None = None

    def put_meta(self, **values: Any) -> None:
        self._lay(lambda outbox: outbox.put_meta(values))
        super().put_meta(**values)

    def put_process(self, process: Process) -> None:
        self._lay(lambda outbox: outbox.put_process(process))
        super().put_process(process)

    def put_facts(self, pid: int, facts: Mapping[str, Any]) -> None:
        self._lay(lambda outbox: outbox.put_facts(pid, facts))
        super().put_facts(pid, facts)

    def put_records(
        self, kind: int, rank: int, rows: Sequence[tuple[int, tuple[int, ...]]], *, pid: int | None = None
    ) -> None:
        self._lay(lambda outbox: outbox.put_records(kind, rank, rows, pid))
        super().put_records(kind, rank, rows, pid=pid)

    def put_samples(self, t_ns: int, samples: Iterable[Sample]) -> None:
        told = tuple(samples)
        self._lay(lambda outbox: outbox.put_samples(told))
        super().put_samples(t_ns, told)

    def put_event(self, event: AnyEvent) -> None:
        self._lay(lambda outbox: outbox.put_event(event))
        super().put_event(event)

    def put_gap(self, gap: ProbeGap) -> None:
        self._lay(lambda outbox: outbox.put_gap(gap))
        super().put_gap(gap)

    def put_position(self, rank: int, phase: str, step: int, since_ns: int) -> None:
        self._lay(lambda outbox: outbox.put_position(rank, phase, step, since_ns))
        super().put_position(rank, phase, step, since_ns)

    def _lay(self, put: Callable[[Outbox], object]) -> None:
        if self.outbox is None:
            return
        try:
            put(self.outbox)
        except Exception as error:  # noqa: BLE001 - the wall: what is not sent is in the run all the same
            self.outbox = None
            super().put_gap(ProbeGap("node.merge", "job", f"sending stopped: {type(error).__name__}: {error}"))
