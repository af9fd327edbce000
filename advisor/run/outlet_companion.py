"""The agent's handle on the process that hands the run to outlets while it goes; without an outlet there is no such process.

The agent names that process's module and never imports it: what diagnoses and sends must not be loaded where the run is recorded.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.run.child_talk import ChildTalk
from rn50_advisor.advisor.run.launch.job_end import describe_error, describe_status
from rn50_advisor.advisor.run.recording_plan import RecordingPlan

_MODULE = "rn50_advisor.advisor.outlets.outlet_process"
ENDS_WITHIN_S = 4.0  # the job's exit waits no longer for the last reading

Report = Callable[[ProbeGap], object]


class OutletCompanion:
    """Used by the agent's thread; no method raises. `report` gets what failed, in gaps."""

    def __init__(self, plan: RecordingPlan, report: Report) -> None:
        self._plan = plan
        self._report = report
        self._talk: ChildTalk | None = None
        self._ending_since_s: float | None = None
        self.cpu_s = 0.0  # as far as it has said

    def start(self) -> None:
        """The run's file exists."""
        if self._plan.run_folder is None or not self._plan.options.has_outlets:
            return
        try:
            self._talk = ChildTalk(_MODULE, plan=self._plan.as_json())
        except Exception as error:  # noqa: BLE001 - the recording goes on
            self._complain(f"its process could not be started: {describe_error(error)}")

    @property
    def started(self) -> bool:
        return self._talk is not None

    def look(self) -> None:
        """Takes what the process says, without waiting; reaps it if it has ended."""
        if self._talk is None:
            return
        with contextlib.suppress(OSError):
            self._talk.send()
            for answer in self._talk.heard():
                self._take(answer)
            had_ended = self._talk.status is not None
            status = self._talk.reap()
            if status and not had_ended:
                self._complain(f"its process {describe_status(status)}")

    def end(self) -> None:
        """The end of the job is committed, or nothing more is recorded: asks for a last reading and returns at once."""
        if self._talk is not None and self._ending_since_s is None:
            self._ending_since_s = time.monotonic()
            with contextlib.suppress(OSError):
                self._talk.post(event="ended")

    def finish(self) -> None:
        """Waits, with a bound, until the last reading has been delivered."""
        self.end()
        if self._talk is None or self._ending_since_s is None:
            return
        deadline_s = self._ending_since_s + ENDS_WITHIN_S
        while True:
            self.look()
            left_s = deadline_s - time.monotonic()
            if self._talk.status is not None:
                return
            if left_s <= 0:
                self._complain(f"the last reading was not out {ENDS_WITHIN_S:.0f} s after the end")
                self._talk.resume()
                return
            with contextlib.suppress(OSError):
                self._talk.await_news(left_s)

    def _take(self, answer: dict[str, object]) -> None:
        if answer.get("event") == "gap":
            metric, reason, hint = (str(answer.get(name, "")) for name in ("metric", "reason", "hint"))
            self._report(ProbeGap(metric, "job", reason, hint))
        elif answer.get("event") == "cost" and isinstance(spent_s := answer.get("cpu_s"), float):
            self.cpu_s = spent_s

    def _complain(self, reason: str) -> None:
        self._report(ProbeGap("outlets", "job", reason, "the job and its recording do not wait for this"))
