"""The process that reads a run while it goes and hands what is known to each outlet.

It is beside the job and beside its recording: neither waits for it, and it ends with them. It yields the cores to the job and spends no
more of one than the overhead budget.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.outlets.asked_outlets import asked_outlets
from rn50_advisor.advisor.outlets.outlet import Outlet, RunReading
from rn50_advisor.advisor.outlets.outlet_thread import OutletThread, describe_failure
from rn50_advisor.advisor.run.recording_plan import RecordingPlan

FIRST_READING_S = 2.0  # a job that starts needs its cores, and nothing is known before
RECENT_STEPS = 2000  # raw steps a rank that one reading carries, as for the screen
_LAST_DELIVERED_WITHIN_S = 3.0
_GONE_WITHIN_S = 15.0  # after the run's end, whatever hangs
_NICENESS = 19
_FIRST_TO_GO = "1000"  # oom_score_adj: where memory ends, this process goes before one of the job


def main() -> None:
    """Arguments: the descriptors of the two pipes."""
    orders, answers = int(sys.argv[1]), int(sys.argv[2])
    for descriptor in (orders, answers):
        os.set_inheritable(descriptor, False)
    os.set_blocking(answers, False)
    _give_way()
    with os.fdopen(orders) as lines:
        first = lines.readline()
        if first.endswith("\n"):
            plan = RecordingPlan.from_json(json.loads(first)["plan"])
            line = AgentLine(answers)
            over = threading.Event()
            threading.Thread(target=_listen, args=(lines, over), name="rn50-orders", daemon=True).start()
            try:
                serve(plan, asked_outlets(plan.options), over, line)
            except Exception as error:  # noqa: BLE001 - the wall: the report says it
                line.report(_stopped(describe_failure(error)))
        os._exit(0)  # threads that wait for an endpoint are not waited for


class AgentLine:
    """What this process says to the one that records: gaps, and what it has cost."""

    def __init__(self, answers: int) -> None:
        self._answers = answers

    def report(self, gap: ProbeGap) -> None:
        self._say(event="gap", metric=gap.metric, reason=gap.reason, hint=gap.hint)

    def account(self) -> None:
        self._say(event="cost", cpu_s=time.process_time())

    def _say(self, **what: Any) -> None:
        with contextlib.suppress(OSError):  # nobody reads any more, or not fast enough
            os.write(self._answers, json.dumps(what).encode() + b"\n")


def serve(
    plan: RecordingPlan,
    outlets: Iterable[Outlet],
    over: threading.Event,
    line: AgentLine,
    *,
    read: Callable[[RecordingPlan], RunReading] | None = None,
) -> None:
    """Reads until `over` is set, then once more. Every outlet gets each reading that it has time for, and the last one."""
    assert plan.run_folder is not None
    read, period_s = read or read_run, plan.options.outlet_period_s
    threads = [OutletThread(outlet, plan.run_folder, line.report) for outlet in outlets]
    for thread in threads:
        thread.start()
    reading, complained, spent_s, rest_s = None, False, 0.0, FIRST_READING_S
    while not over.wait(rest_s):
        try:
            reading = read(plan)
        except Exception as error:  # noqa: BLE001 - a run that cannot be read now may be readable in a moment
            if not complained:
                line.report(_stopped(describe_failure(error)))
            complained = True
        else:
            for thread in threads:
                thread.offer(replace(reading, is_last=False))
        line.account()
        before_s, spent_s = spent_s, time.process_time()
        # what the first reading imports is paid once
        rest_s = max(period_s, (spent_s - before_s) / plan.options.overhead_budget if before_s else 0.0)
    with contextlib.suppress(Exception):  # the reading before is then the last one
        reading = read(plan)
    for thread in threads:
        thread.end(None if reading is None else replace(reading, is_last=True))
    until_s = time.monotonic() + _LAST_DELIVERED_WITHIN_S
    for thread in threads:
        thread.finish(until_s - time.monotonic())
    line.account()


def read_run(plan: RecordingPlan) -> RunReading:
    """Reads and judges the run as it is now. Raises AdvisorError."""
    # heavy imports, in a process that has time
    from rn50_advisor.advisor.config_file import load_config  # noqa: PLC0415
    from rn50_advisor.advisor.merge.job_reading import read_job  # noqa: PLC0415
    from rn50_advisor.advisor.verdict.diagnose import diagnose  # noqa: PLC0415

    assert plan.run_folder is not None
    recording = read_job(plan.run_folder, recent_steps=RECENT_STEPS)
    thresholds = load_config(Path(plan.options.thresholds_file) if plan.options.thresholds_file else None)
    return RunReading(
        report=diagnose(recording, thresholds),
        run=plan.run_folder.name,
        host=recording.meta.host,
        at_unix_s=time.time(),
        started_unix_s=recording.meta.started_unix_s,
    )


def _listen(lines: Iterable[str], over: threading.Event) -> None:
    """Waits for the run's end, or for that of the process that records it."""
    with contextlib.suppress(OSError, ValueError):
        for order in lines:
            if json.loads(order)["event"] == "ended":
                break
    over.set()
    time.sleep(_GONE_WITHIN_S)
    os._exit(1)


def _stopped(why: str) -> ProbeGap:
    return ProbeGap("outlets", "job", f"no reading of the run for what leaves it: {why}", "")


def _give_way() -> None:
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO)
