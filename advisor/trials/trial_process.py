"""The process that starts and records one job of a trial; a module of its own, since the launcher wants a main thread without others."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.run.launch.launcher import run_job
from rn50_advisor.advisor.run.run_options import RunOptions


def main() -> None:
    """Arguments: the order as JSON (`argv`, `run_folder`, `trial`, `news`: a descriptor). Says there `job PID`, then `end CODE REASON`."""
    order = json.loads(sys.argv[1])
    tell = _teller(order["news"])
    try:
        end = run_job(
            order["argv"],
            run_folder=Path(order["run_folder"]),
            options=RunOptions(trial=order["trial"], overhead_budget=order["overhead_budget"]),
            name="trial",
            on_start=lambda pid: tell(f"job {pid}"),
        )
    except AdvisorError as error:
        tell(f"end 127 {error.message}")
        return
    code = end.exit_code if end.exit_code is not None else -(end.signal or 0)
    tell(f"end {code} {end.complaint}")


def _teller(descriptor: int) -> Callable[[str], None]:
    os.set_inheritable(descriptor, False)

    def tell(line: str) -> None:
        os.write(descriptor, f"{line}\n".encode(errors="replace"))

    return tell
