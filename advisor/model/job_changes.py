"""Changes that fixes make to a job, as data. The sentence shown, the diff of a file and a trial in a running rank are derived from them."""

from __future__ import annotations

import json
from dataclasses import dataclass

Value = int | float | bool | str | None


@dataclass(frozen=True, slots=True)
class Expression:
    """Python source of an argument that is not a literal, such as `torch.bfloat16`."""

    source: str


Argument = Value | Expression


def source_of(argument: Argument) -> str:
    """The argument as Python source."""
    if isinstance(argument, Expression):
        return argument.source
    return json.dumps(argument, ensure_ascii=False) if isinstance(argument, str) else repr(argument)


def _keywords(arguments: tuple[tuple[str, Argument], ...]) -> list[str]:
    return [f"{name}={source_of(value)}" for name, value in arguments]


@dataclass(frozen=True, slots=True)
class CallChange:
    """New keyword arguments for a call in the job, most important first. `without`: arguments that must be removed.

    `callable` is the last part of the name (`DataLoader`), however it is imported. `arguments` holds Python values.
    """

    callable: str
    arguments: tuple[tuple[str, Argument], ...]
    without: tuple[str, ...] = ()

    @classmethod
    def of(cls, callable: str, /, **arguments: Argument) -> CallChange:
        return cls(callable, tuple(arguments.items()))

    def __str__(self) -> str:
        """For example `DataLoader(..., num_workers=6)`."""
        return f"{self.callable}({', '.join(['...', *_keywords(self.arguments)])})"


@dataclass(frozen=True, slots=True)
class Invocation:
    """A call that the job does not make yet."""

    callable: str
    positional: tuple[Argument, ...] = ()
    arguments: tuple[tuple[str, Argument], ...] = ()

    def __str__(self) -> str:
        return f"{self.callable}({', '.join([*map(source_of, self.positional), *_keywords(self.arguments)])})"


@dataclass(frozen=True, slots=True)
class Assignment:
    """An attribute to set."""

    target: str
    value: Argument

    def __str__(self) -> str:
        return f"{self.target} = {source_of(self.value)}"


@dataclass(frozen=True, slots=True)
class Setup:
    """Statements to run once, before the first step."""

    statements: tuple[Invocation | Assignment, ...]

    def __str__(self) -> str:
        return "; ".join(map(str, self.statements))


@dataclass(frozen=True, slots=True)
class ModelChange:
    """A call that takes the model and returns the model to train."""

    made: Invocation

    def __str__(self) -> str:
        return f"model = {self.made}"


@dataclass(frozen=True, slots=True)
class ForwardContext:
    """A context manager around the forward pass and the loss."""

    manager: Invocation

    def __str__(self) -> str:
        return f"with {self.manager}: loss = ..."


@dataclass(frozen=True, slots=True)
class CallRemoval:
    """The removal of a call: its first argument replaces its result."""

    callable: str
    given: str

    def __str__(self) -> str:
        return f"without the call to {self.callable}({self.given})"


@dataclass(frozen=True, slots=True)
class EnvironmentChange:
    """Environment variables to start the job with; None: unset."""

    variables: tuple[tuple[str, str | None], ...]

    @classmethod
    def unset(cls, name: str) -> EnvironmentChange:
        return cls(((name, None),))

    def __str__(self) -> str:
        """For example `unset A` or `B=1 C=1`."""
        return " ".join(f"unset {name}" if value is None else f"{name}={value}" for name, value in self.variables)


@dataclass(frozen=True, slots=True)
class LauncherChange:
    """Options of the command that starts the ranks."""

    launcher: str
    options: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((self.launcher, *self.options))


@dataclass(frozen=True, slots=True)
class NumbersKept:
    """Numbers kept of a step instead of its tensors, at the statements that keep them."""

    def __str__(self) -> str:
        return "total += loss.item()  # not `total += loss`, which keeps each step's graph"


@dataclass(frozen=True, slots=True)
class GradientsKept:
    """Forward and backward of all but a step's last batch without an exchange of gradients, where the loop accumulates them."""

    def __str__(self) -> str:
        return "with model.no_sync(): loss = ...; loss.backward()  # all but a step's last batch"


@dataclass(frozen=True, slots=True)
class PaddedToLongest:
    """Sequences padded to the longest of their batch, where a tokenizer pads all to one length."""

    def __str__(self) -> str:
        return 'padding="longest"'


@dataclass(frozen=True, slots=True)
class ShrinkFirst:
    """The transform that makes pictures smaller put before others of one list, whose names are in the list's order."""

    shrink: str
    transforms: tuple[str, ...]

    def __str__(self) -> str:
        """For example `[RandomResizedCrop(...), ColorJitter(...)]`."""
        return f"[{', '.join(f'{name}(...)' for name in (self.shrink, *self.transforms))}]"


JobChange = (
    CallChange
    | Setup
    | ModelChange
    | ForwardContext
    | CallRemoval
    | EnvironmentChange
    | LauncherChange
    | NumbersKept
    | GradientsKept
    | PaddedToLongest
    | ShrinkFirst
)
