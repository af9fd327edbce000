"""A command of ours in a process of its own, for an agent: output kept and masked, a time limit, stopped as Ctrl-C would stop it.

It survives the server: nothing that it writes goes through us, and no signal but an interrupt or a termination is sent to it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Literal

from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.run.launch import output_relay
from rn50_advisor.advisor.run.launch.job_environment import inherited_environment
from rn50_advisor.advisor.run.launch.output_lines import OutputTail
from rn50_advisor.advisor.run.launch.own_processes import module_command, start_file

GRACE_S = 30.0  # torchrun gives its ranks as long to end, before it kills them
TAIL_LINES = 60
TAIL_CHARS = 6_000
_LOOK_S = 0.2
_WRITTEN_WITHIN_S = (
    5.0  # what the job printed last is masked and written; a process that it left may hold the pipe for ever
)


@dataclass(frozen=True, slots=True)
class Ending:
    """`exit_code`: negative for a signal, None while it still runs. `stopped`: why it was asked to end."""

    exit_code: int | None
    stopped: Literal["time limit", "cancelled"] | None = None


class AgentJob:
    """Started by the constructor, in a session and process group of its own. `output`: a file that does not exist yet."""

    def __init__(self, arguments: Sequence[str], *, folder: Path, output: Path) -> None:
        """`arguments` of our command line; `folder`: the job's working directory. Raises AdvisorError."""
        self._output = output
        reading, writing = os.pipe()
        try:
            # A pipe to us would break the job when we are killed, and a file would keep the job's secrets.
            self._relay = start_file(Path(output_relay.__file__), [str(reading), str(output)], descriptors=(reading,))
            self._process = subprocess.Popen(
                module_command("rn50_advisor.entry", arguments),
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                cwd=folder,
                env=inherited_environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise AdvisorError(f"the job could not be started: {error.strerror or error}") from error
        finally:
            os.close(reading)
            os.close(writing)

    @property
    def pid(self) -> int:
        return self._process.pid

    def running(self) -> bool:
        return self._process.poll() is None

    def interrupt(self) -> None:
        """SIGINT to the whole process group, like Ctrl-C on a terminal. Safe in a signal handler."""
        if self._process.returncode is None:  # not reaped, so the number is still its own
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGINT)

    def wait(self, limit_s: float, stop: Event, *, grace_s: float = GRACE_S) -> Ending:
        """Waits for the end; after `limit_s`, or once `stop` is set, interrupts it, and `grace_s` later terminates it.

        A job that survives both is left alone, as on a terminal, and the ending has no exit code.
        """
        began_s, asked_s, terminated = time.monotonic(), 0.0, False
        stopped: Literal["time limit", "cancelled"] | None = None
        while not self._ended():
            now_s = time.monotonic()
            if stopped is None:
                if stop.is_set() or now_s - began_s >= limit_s:
                    stopped, asked_s = "cancelled" if stop.is_set() else "time limit", now_s
                    self.interrupt()
            elif not terminated and now_s - asked_s >= grace_s:
                terminated = True
                self._process.terminate()  # the launcher passes it on to the job
            elif now_s - asked_s >= 2 * grace_s:
                return Ending(None, stopped)
        return Ending(self._process.returncode, stopped)

    def tail(self) -> str:
        """The last lines of what it printed, with secrets masked; what progress bars overwrote is left out."""
        if not self.running():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._relay.wait(_WRITTEN_WITHIN_S)
        lines = OutputTail(self._output, colours=False, lines_max=TAIL_LINES)
        try:
            return "\n".join(lines.lines_since(0).lines[-TAIL_LINES:])[-TAIL_CHARS:]
        finally:
            lines.close()

    def _ended(self) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LOOK_S)
        return self._process.returncode is not None
