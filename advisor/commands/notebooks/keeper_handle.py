"""The recorded process's handle on its keeper. Nothing here may hold the process up: every wait has a bound."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.run.child_talk import ChildTalk

_MODULE = "rn50_advisor.advisor.commands.notebooks.recording_keeper"
_STARTS_WITHIN_S = 10.0
_LEAVES_WITHIN_S = 1.0
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
        order = {"pid": os.getpid(), "argv": sys.orig_argv, "name": name, "run_dir": os.fspath(run_dir)}
        self._talk = ChildTalk(_MODULE, event="begin", **order)
        try:
            answer = self._heard("ready", _STARTS_WITHIN_S)
        except BaseException:
            self.close()
            raise
        finally:
            with contextlib.suppress(ChildProcessError):  # the process may reap all of its children by itself
                self._talk.wait(time.monotonic() + _LEAVES_WITHIN_S)  # it has left a child of its own behind
        self.place = KeptRun(answer["rings"], Path(answer["run"]))

    def asked_to_end(self, number: int) -> None:
        self._talk.post(event="asked_to_end", signal=number)

    def finish(self, *, exit_code: int | None, number: int | None) -> tuple[bool, str]:
        """Ends the recording. Returns whether there is one, and what went wrong."""
        try:
            self._talk.post(event="ended", exit_code=exit_code, signal=number, t_ns=time.perf_counter_ns())
            done = self._heard("done", _ENDS_WITHIN_S)
            return bool(done["recorded"]), str(done["complaint"] or "")
        except (NoKeeper, OSError) as error:
            return False, f"the recording's end is unknown: {error}"
        finally:
            self.close()

    def close(self) -> None:
        """The keeper ends the recording when nobody is left to talk to."""
        self._talk.hang_up()

    def _heard(self, event: str, within_s: float) -> Mapping[str, Any]:
        until_s = time.monotonic() + within_s
        while (left_s := until_s - time.monotonic()) > 0:
            self._talk.send()
            for answer in self._talk.heard():
                if answer["event"] == event:
                    return answer
                if answer["event"] == "failed":
                    raise NoKeeper(answer["reason"])
            if self._talk.answers is None:
                raise NoKeeper("the process beside it ended")
            self._talk.await_news(left_s)
        raise NoKeeper(f"the process beside it did not answer in {within_s:g} s")
