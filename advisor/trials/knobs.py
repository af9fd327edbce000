"""What of a fix can be tried from outside, and how: a `Fix`'s change as a request to the ranks, variables or options of the command.

Nothing is read from a sentence: a fix without a change as data cannot be tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rn50_advisor.advisor.model.findings import Fix, Where
from rn50_advisor.advisor.model.job_changes import (
    Argument,
    Assignment,
    CallChange,
    CallRemoval,
    EnvironmentChange,
    Expression,
    ForwardContext,
    GradientsKept,
    Invocation,
    JobChange,
    LauncherChange,
    ModelChange,
    NumbersKept,
    PaddedToLongest,
    Setup,
    ShrinkFirst,
    source_of,
)
from rn50_advisor.advisor.model.trials import Numbers

# Arguments of a DataLoader that can be exchanged between two batches.
_BETWEEN_BATCHES = {"num_workers", "prefetch_factor", "pin_memory", "multiprocessing_context"}
_AT_EPOCHS = {"persistent_workers"}  # of no effect between batches
# Arguments that the object made by the call reads anew at each use.
_OF_OBJECTS = {"fused", "foreach", "broadcast_buffers", "forward_sync_buffers", "sparse"}
_REPLACED = {"fused", "foreach", "broadcast_buffers"}
_SYNCHRONISING = "convert_sync_batchnorm"
# Settings that the recorder can take back, by the name of the call, or by the place of the attribute.
_UNDONE = {
    "torch.set_num_threads",
    "torch.set_flush_denormal",
    "torch.set_float32_matmul_precision",
    "torch.autograd.set_detect_anomaly",
    "gc.collect",
    "gc.freeze",
    "gc.set_threshold",
    "os.sched_setaffinity",
}
_UNDONE_UNDER = "torch.backends."
_OF_THE_MODEL = "model."
# Changes after which the job computes other numbers than before: its accuracy has to be looked at.
_OTHER_NUMBERS = {"autocast", "set_float32_matmul_precision", "set_default_dtype", "register_comm_hook"}
# Changes that sum up in another order.
_OTHER_ROUNDING = {"fused", "foreach", "compile", "memory_format", "mode", "set_flush_denormal", "sparse"}
_BATCH = "batch_size"
_LAUNCHERS = {"torchrun": ("torchrun", "torch.distributed.run", "torch.distributed.launch")}
REWRITES = "it rewrites the training loop: edit it, then compare two runs"
NO_CHANGE = "its fix is no change that can be applied from outside"
TOO_LATE = "it has to stand before the model is made: edit it, then compare two runs"
OTHER_TRAINING = "it changes the batch, and with it the training"


@dataclass(frozen=True, slots=True)
class Knob:
    """A change that can be tried. `changes` are those of a request to the ranks (see `probes/rank/trials`)."""

    name: str
    can_switch: bool  # while the job runs, and back
    numbers: Numbers
    changes: tuple[Mapping[str, Any], ...] = ()
    environment: Mapping[str, str | None] = field(default_factory=dict)
    options: tuple[str, ...] = ()  # of the launcher
    launcher: str = ""

    @property
    def switched(self) -> tuple[Mapping[str, Any], ...]:
        """`changes` without what has no effect in a running job."""

        def of(change: Mapping[str, Any]) -> Mapping[str, Any]:
            if change["kind"] != "call":
                return change
            left = {name: value for name, value in change["arguments"].items() if name not in _AT_EPOCHS}
            return {**change, "arguments": left}

        return tuple(map(of, self.changes))

    def argv(self, argv: Sequence[str]) -> list[str]:
        """The job's command line with the launcher's options. Raises ValueError if the launcher does not stand in it."""
        if not self.options:
            return list(argv)
        names = _LAUNCHERS.get(self.launcher, (self.launcher,))
        for place, word in enumerate(argv):
            if word.rpartition("/")[2] in names:
                return [*argv[: place + 1], *self.options, *argv[place + 1 :]]
        raise ValueError(f"{self.launcher} does not start this job")


def knob_of(fix: Fix, *, also_other_training: bool = False) -> Knob | str:
    """The knob of a fix, or in a few words why it has none.

    `also_other_training`: the user has named this fix, so that its change of the batch is wanted.
    """
    change = fix.call
    if change is None:
        return NO_CHANGE
    if why_not := _why_not(change, also_other_training):
        return why_not
    numbers = numbers_of(change)
    if isinstance(change, EnvironmentChange):
        return Knob(str(change), False, numbers, environment=dict(change.variables))
    if isinstance(change, LauncherChange):
        return Knob(str(change), False, numbers, options=change.options, launcher=change.launcher)
    return Knob(str(change), _can_switch(change), numbers, (_request(change, fix.where),))


def _why_not(change: JobChange, also_other_training: bool) -> str:
    if isinstance(change, (NumbersKept, GradientsKept, PaddedToLongest, ShrinkFirst)):
        return REWRITES
    if isinstance(change, CallChange) and _BATCH in dict(change.arguments) and not also_other_training:
        return OTHER_TRAINING
    if isinstance(change, Setup) and not all(map(_can_be_made_later, change.statements)):
        return TOO_LATE
    return ""


def numbers_of(change: JobChange) -> Numbers:
    """What the change does to the numbers that the job computes."""
    if isinstance(change, CallRemoval):
        return "accuracy"  # as of norms that are no longer synchronised
    words = set(_words(change))
    if words & _OTHER_NUMBERS or any(word.startswith("allow_") for word in words):
        return "accuracy"
    return "rounding" if words & _OTHER_ROUNDING else "same"


def _words(change: JobChange) -> list[str]:
    """Last names of what is called or assigned, and names of arguments."""
    if isinstance(change, CallChange):
        return [change.callable.rpartition(".")[2], *(name for name, _ in change.arguments), *change.without]
    calls: Sequence[Invocation | Assignment] = ()
    if isinstance(change, Setup):
        calls = change.statements
    elif isinstance(change, ModelChange):
        calls = (change.made,)
    elif isinstance(change, ForwardContext):
        calls = (change.manager,)
    words = []
    for call in calls:
        if isinstance(call, Assignment):
            words.append(call.target.rpartition(".")[2])
        else:
            words += [call.callable.rpartition(".")[2], *(name for name, _ in call.arguments)]
    return words


def _can_switch(change: JobChange) -> bool:
    """Whether the change can be made and taken back while the job runs."""
    if isinstance(change, ForwardContext):
        return True
    if isinstance(change, CallChange):
        return _can_exchange(change)
    if isinstance(change, CallRemoval):
        return change.callable.rpartition(".")[2] == _SYNCHRONISING
    return isinstance(change, Setup) and all(map(_can_be_undone, change.statements))


def _can_exchange(change: CallChange) -> bool:
    """Whether the arguments can be exchanged on the object that the call has made."""
    names = {name for name, _ in change.arguments} - _AT_EPOCHS
    if change.callable == "DataLoader":
        return not change.without and bool(names) and names <= _BETWEEN_BATCHES
    return bool(names) and names <= _OF_OBJECTS and set(change.without) <= _REPLACED


def _can_be_made_later(statement: Invocation | Assignment) -> bool:
    """Whether it has its effect, too, if it is made once the job trains."""
    return _can_be_undone(statement) or (
        isinstance(statement, Invocation) and statement.callable.startswith(_OF_THE_MODEL)
    )


def _can_be_undone(statement: Invocation | Assignment) -> bool:
    if isinstance(statement, Assignment):
        return statement.target.startswith(_UNDONE_UNDER)
    return statement.callable in _UNDONE


def _request(change: JobChange, where: Where | None) -> Mapping[str, Any]:
    if isinstance(change, CallChange):
        return {
            "kind": "call",
            "callable": change.callable,
            "arguments": {name: _plain(value) for name, value in change.arguments},
            "without": list(change.without),
            "file": where.file if where else None,
            "line": where.line if where else None,
        }
    if isinstance(change, Setup):
        if isinstance(of_model := change.statements[0], Invocation) and of_model.callable.startswith(_OF_THE_MODEL):
            return {"kind": "model", **_statement(of_model)}
        return {"kind": "setup", "statements": [_statement(one) for one in change.statements]}
    if isinstance(change, ModelChange):
        return {"kind": "model", **_statement(change.made)}
    if isinstance(change, ForwardContext):
        return {"kind": "context", **_statement(change.manager)}
    assert isinstance(change, CallRemoval)
    return {"kind": "removal", "callable": change.callable.rpartition(".")[2]}


def _statement(statement: Invocation | Assignment) -> dict[str, Any]:
    if isinstance(statement, Assignment):
        return {"assign": statement.target, "value": _plain(statement.value)}
    return {
        "call": statement.callable,
        "positional": [_plain(value) for value in statement.positional],
        "arguments": {name: _plain(value) for name, value in statement.arguments},
    }


def _plain(argument: Argument) -> Any:
    return {"source": source_of(argument)} if isinstance(argument, Expression) else argument
