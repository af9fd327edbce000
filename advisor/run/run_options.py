"""User options for watching a run; the command line fills them, everything below only reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Times in seconds, shares of 1. The defaults are what the promises of cost were measured with."""

    period_s: float = 1.0  # host probes, process tree, commit
    poll_s: float = 0.25  # rings; a rank's ring holds 1024 records, so 1 ms steps still fit four times into one poll
    overhead_budget: float = 0.02  # of the training thread (recorder) and of one core (agent); above it probes are shed
    stacks: bool = True  # py-spy looks at time outside the model
    stack_share: float = 0.005  # of one core, once the first dumps are taken
    stack_first: int = 30  # dumps per rank that are taken at the denser pace
    stack_period_s: float = 2.0  # between two dumps of one rank
    stack_dense_s: float = 60.0  # at the start of a run dumps may come denser, so that short runs get evidence
    stall_after_s: float = 15.0  # without a new step or phase; ten times the p99 of recent steps where that is longer
    stall_refresh_s: float = 10.0
    host_probes: bool = True
    # a window under torch's profiler: early, or later where computing is what takes long
    deep: Literal["off", "now", "auto"] = "off"
    # changes that the ranks make, as `probes/rank/trials/trial_request.py` reads them; None: the job as it is
    trial: Mapping[str, object] | None = None
    # a live merge with other nodes; empty: nothing is sent, and nothing listens
    merge_listen: str = ""
    merge_to: str = ""
    merge_token_file: str = ""
    merge_period_s: float = 10.0
    # what the run is handed to while it goes; empty: nothing leaves it, nothing listens, and no process is started for it
    metrics_file: str = ""
    metrics_listen: str = ""
    otlp: str = field(default="", repr=False)  # may hold a password
    notify: str = field(default="", repr=False)  # is a password
    outlet_period_s: float = 5.0  # rarer where a reading costs more than the overhead budget allows
    thresholds_file: str = ""  # of `--config`, for what is said while the run goes
    close_within_s: float = 10.0  # the end of the recording never keeps the job's exit longer than this

    @property
    def has_outlets(self) -> bool:
        """True if something is to leave the run while it goes."""
        return bool(self.metrics_file or self.metrics_listen or self.otlp or self.notify)
