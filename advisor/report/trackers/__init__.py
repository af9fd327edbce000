"""Sends a run's report to an experiment tracker: W&B, MLflow or TensorBoard.

The libraries are the user's own, and loaded only when something is sent. A tracker gets at most a few hundred points of a few curves, the
verdict, the findings as a table and the HTML page, however long the run.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from rn50_advisor.advisor.model.errors import AdvisorError, TrackerRefused, UsageError
from rn50_advisor.advisor.report.inert_text import one_line
from rn50_advisor.advisor.report.trackers.parcel import Parcel
from rn50_advisor.advisor.store.secrets.masking import redact_text

_MESSAGE_MAX = 300  # characters of what a tracker's library says


@dataclass(frozen=True, slots=True)
class _Kind:
    needs: str  # the library
    place: str  # what may follow the colon
    sender: str  # a module of this package


_KINDS = {
    "wandb": _Kind("wandb", "[[ENTITY/]PROJECT[/RUN_ID]]", "to_wandb"),
    "mlflow": _Kind("mlflow", "[RUN_ID]", "to_mlflow"),
    "tensorboard": _Kind("tensorboard", "DIR", "to_tensorboard"),
}


@dataclass(frozen=True, slots=True)
class Destination:
    """`place`: what follows the colon; each tracker reads it in its own way."""

    kind: str
    place: str


def destination_of(text: str) -> Destination:
    """Reads `wandb`, `mlflow:RUN_ID`, `tensorboard:DIR`. Raises UsageError."""
    kind, _, place = text.partition(":")
    if kind not in _KINDS:
        raise UsageError(f"unknown tracker {kind!r}", "trackers: wandb, mlflow, tensorboard:DIR")
    if kind == "tensorboard" and not place:
        raise UsageError("tensorboard needs a folder", "for example --to tensorboard:runs/tensorboard")
    if kind == "tensorboard" and "://" in place:
        raise UsageError(f"{place} is no folder of this machine", "write to one, and copy it")
    return Destination(kind, place)


def check_installed(destinations: Sequence[Destination]) -> None:
    """Raises AdvisorError if a library is absent, before anything is read or sent."""
    for destination in destinations:
        needs = _KINDS[destination.kind].needs
        if find_spec(needs) is None:
            raise AdvisorError(f"--to {destination.kind} needs {needs}, which is not installed", f"pip install {needs}")


def send(destination: Destination, parcel: Parcel) -> str:
    """Sends all of it and says in a line where it is now. Raises AdvisorError."""
    module = import_module(f"{__name__}.{_KINDS[destination.kind].sender}")
    sender: Callable[[str, Parcel], str] = module.send
    try:
        with contextlib.redirect_stdout(sys.stderr):  # MLflow prints where a run is; our stdout may be the report
            return sender(destination.place, parcel)
    except AdvisorError:
        raise
    except Exception as error:  # each library has a tree of errors of its own, and those of its HTTP library
        said = one_line(redact_text(str(error)), _MESSAGE_MAX) or type(error).__name__
        raise TrackerRefused(f"{destination.kind} did not take the report: {said}") from error
