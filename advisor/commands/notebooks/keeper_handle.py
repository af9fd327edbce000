"""The recorded process's handle on its keeper. Nothing here may hold the process up: every wait has a bound."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.run.launch.own_processes import start_module

_MODULE = "rn50_advisor.advisor.commands.notebooks.recording_keeper"
_STARTS_WITHIN_S = 10.0
_ENDS_WITHIN_S = 15.0  # the keeper itself waits 10 s for the recording


class NoKeeper(Exception):
    """It did not start; says why."""


@dataclass(frozen=True, slots=True)
class KeptRun:
    """Where the ranks' rings go, and the run's folder."""

    rings: str
    run: Path


class RunKeeper:
    def __init__(self, *, name: str, run_dir: Path) -> None:
        """Starts it and waits until it is ready. Raises NoKeeper or OSError."""
        child_in, self._orders = os.pipe()
        self._answers, child_out = os.pipe()
        self._unread = b""
        try:
            started = start_module(_MODULE, [str(child_in), str(child_out)], descriptors=(child_in, child_out))
        except BaseException:
            self.close()
            raise
        finally:
            os.close(child_in)
            os.close(child_out)
        try:
            self._post(event="begin", pid=os.getpid(), argv=sys.orig_argv, name=name, run_dir=os.fspath(run_dir))
            answer = self._heard("ready", _STARTS_WITHIN_S)
        except BaseException:
            self.close()
            raise
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.wait(1.0)  # it has left a child of its own behind
        self.place = KeptRun(answer["rings"], Path(answer["run"]))

    def asked_to_end(self, number: int) -> None:
        with contextlib.suppress(OSError):
            self._post(event="asked_to_end", signal=number)

    def finish(self, *, exit_code: int | None, number: int | None) -> tuple[bool, str]:
        """Ends the recording. Returns whether there is one, and what went wrong."""
        try:
            self._post(event="ended", exit_code=exit_code, signal=number, t_ns=time.perf_counter_ns())
            done = self._heard("done", _ENDS_WITHIN_S)
            return bool(done["recorded"]), str(done["complaint"] or "")
        except (NoKeeper, OSError) as error:
            return False, f"the recording's end is unknown: {error}"
        finally:
            self.close()

    def close(self) -> None:
        """The keeper ends the recording when nobody is left to talk to."""
        for descriptor in (self._orders, self._answers):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _post(self, **what: Any) -> None:
        os.write(self._orders, json.dumps(what).encode() + b"\n")  # shorter than a pipe holds, and it is read at once

    def _heard(self, event: str, within_s: float) -> Mapping[str, Any]:
        until_s = time.monotonic() + within_s
        while (left_s := until_s - time.monotonic()) > 0:
            poller = select.poll()
            poller.register(self._answers, select.POLLIN)
            if not poller.poll(1000 * left_s):
                break
            data = os.read(self._answers, 65536)
            if not data:
                raise NoKeeper("the process beside it ended")
            *lines, self._unread = (self._unread + data).split(b"\n")
            for answer in map(json.loads, lines):
                if answer["event"] == event:
                    return dict(answer)
                if answer["event"] == "failed":
                    raise NoKeeper(answer["reason"])
        raise NoKeeper(f"the process beside it did not answer in {within_s:g} s")
