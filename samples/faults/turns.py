"""Runs a job with its fault and the job with the fix in turns: while one computes, every process of the other is stopped.

A machine's speed can differ by half from one minute to the next, so that two runs one after the other tell as much about the minute as
about the fix. Of equal jobs, measured in turns of half a second, one was 0.95 to 1.05 times as fast as the other (five pairs); in turns of
two seconds 0.81 to 1.35 times (four).
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.trials.resting import Family, without_rests
from samples.faults.observe import JobWentWrong, command, last_words, run_folder, running, stop
from samples.faults.scenario import Conditions, Job

TURN_S = 0.5
LONGEST_S = 45.0  # that either job computes


class Player(Family):
    """A job that computes and rests."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        super().__init__(process.pid)
        self.process = process
        self.folder = folder

    def turn(self) -> bool:
        """Computes for one turn. Returns False if the job has ended. Raises JobWentWrong if it failed."""
        self.compute()
        try:
            code = self.process.wait(TURN_S)
        except subprocess.TimeoutExpired:
            self.rest()
            return True
        if code != 0:
            raise JobWentWrong(f"exit code {code}{last_words(self.folder)}")
        return False


def in_turns(jobs: Sequence[Job], conditions: Conditions, folder: Path) -> list[Recording]:
    """Runs the jobs until one has ended, or each has computed for LONGEST_S. Returns their recordings, on clocks without the rests.

    `folder` exists. Raises JobWentWrong if a job fails or records nothing.
    """
    players = list[Player]()
    with contextlib.ExitStack() as stack:
        try:
            for number, job in enumerate(jobs):
                place = folder / f"turns-{number}"
                (place / "out").mkdir(parents=True)
                process = stack.enter_context(running(command(job, conditions, place), job.environment, place))
                players.append(Player(process, place))
                players[-1].rest()
            rounds = int(LONGEST_S / TURN_S)
            while rounds and all(player.turn() for player in players):
                rounds -= 1
        finally:
            for (
                player
            ) in players:  # a job that rests does not hear that it is to end, and the first one left kills the other
                player.compute()
                stop(player.process)
    return [without_rests(read_recording(run_folder(player.folder)), player.rests) for player in players]
