"""A trial of changes in one process: from the start, or switched in blocks of steps. Only on request.

The request is a small file in the ring folder, read when torch has been imported. A change that cannot be made is refused in the facts,
with the reason, and the job goes on as it was. No exception escapes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ..patches.wrappers import quietly
from ..signal_exceptions import reraise_signal_exception
from .call_changes import ChangedCall
from .loader_swap import LoaderSwap
from .object_options import ObjectOptions
from .root_modules import ChangedModel, EnteredContext, RootModules
from .setup_statements import SetupStatements, take_back
from .torch_names import value_of
from .trial_request import NEVER, WHOLE_REQUEST, Outcomes, Refused, TrialRequest, read_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...documents.trial_documents import TrialFacts
    from ..recorder import Recorder
    from ..steps.step_account import Account
    from .trial_request import Change

_LOADER = "DataLoader"
_BETWEEN_BATCHES = ("num_workers", "prefetch_factor", "pin_memory", "multiprocessing_context")
_ONLY_BY_RESTART = "only by a restart: %s"


class RankTrial:
    """A process's trial. `next_step`: the step at which to call `at_step`."""

    def __init__(self, recorder: Recorder) -> None:
        self.next_step = NEVER
        self._recorder = recorder
        self._request = TrialRequest({})
        self._outcomes = Outcomes(0)
        try:
            self._request = read_request(recorder.folder)
            self._outcomes = Outcomes(self._request.count)
        except Exception as error:
            reraise_signal_exception()
            self._outcomes.refused(WHOLE_REQUEST, error)
        self._outcomes.changed = self._write
        self._roots = RootModules(recorder, self._outcomes)
        self._wrappers: list[Any] = []
        self._swap: LoaderSwap | None = None
        self._setups: list[tuple[int, SetupStatements]] = []
        # by variant: functions that make a change and return functions that take it back
        self._switches: list[list[tuple[int, Callable[[], list[Callable[[], Any]]]]]] = []
        self._variant = 0
        self._undo: list[Callable[[], Any]] = []

    def facts(self) -> TrialFacts:
        return self._outcomes.facts()

    def install(self) -> list[Any]:
        """Called when torch has been imported, before its own patches. Returns the wrappers."""
        for index, change in self._request.changes:
            self._tried(index, self._prepare, index, change)
        for variant in self._request.variants:
            switches = [(index, self._tried(index, self._switch_of, index, change)) for index, change in variant]
            self._switches.append([each for each in switches if each[1] is not None])
        self._wrappers += self._tried(WHOLE_REQUEST, self._roots.install) or []
        return self._wrappers

    def joins(self) -> None:
        """Called when the process becomes a rank, at its first backward pass."""
        self._tried(WHOLE_REQUEST, self._roots.found_all)
        for index, setup in self._setups:
            self._make(index, setup)
        if self._switches:
            self._variant, self.next_step = 0, self._request.from_step
            self._switch(0)  # nothing, unless a parent process was a rank before its fork
        self._recorder.facts.values["trial"] = self.facts()

    def at_step(self, account: Account) -> None:
        """Called at the start of `next_step`, in the training thread."""
        step = account.step
        variant = self._request.variant_at(step)
        self.next_step = self._request.next_block(step)
        if variant == self._variant:
            return
        self._variant = variant
        self._outcomes.changed = None
        try:
            self._switch(variant)
            self._outcomes.switched(step, variant)
        finally:
            self._outcomes.changed = self._write
            self._write()

    def _switch(self, variant: int) -> None:
        self._tried(WHOLE_REQUEST, take_back, self._undo)
        for index, switch in self._switches[variant]:
            undo = self._tried(index, switch)
            if undo is not None:
                self._undo += undo

    def _tried(self, index: int, call: Callable[..., Any], *args: Any) -> Any:
        """The call's result; None if it fails, and then the change is refused."""
        try:
            return call(*args)
        except Exception as error:
            reraise_signal_exception()
            self._outcomes.refused(index, error)
            return None

    def _write(self) -> None:
        facts = self._recorder.facts
        facts.values["trial"] = self.facts()
        if facts.active:
            quietly(self._recorder, facts.write)

    # -- changes from the start ------------------------------------------------------------------------------------------------

    def _prepare(self, index: int, change: Change) -> None:
        kind = change.get("kind")
        if kind in ("call", "removal"):
            self._wrappers += ChangedCall(self._recorder, self._outcomes, index, change).install()
        elif kind == "setup":
            setup = SetupStatements(self._recorder.torch, change)
            if setup.early:
                self._make(index, setup)
            else:
                self._setups.append((index, setup))
        elif kind == "model":
            self._roots.changes.append(ChangedModel(index, change))
        elif kind == "context":
            context = EnteredContext(index, change)
            context.on = True
            self._roots.contexts.append(context)
        else:
            raise Refused("a rank makes no change of kind %s" % kind)

    def _make(self, index: int, setup: SetupStatements) -> None:
        if self._tried(index, setup.make) is not None:
            self._outcomes.applied(index)

    # -- variants --------------------------------------------------------------------------------------------------------------

    def _switch_of(self, index: int, change: Change) -> Any:
        kind = change.get("kind")
        if kind == "setup":
            return partial(self._set_up, index, SetupStatements(self._recorder.torch, change))
        if kind == "context":
            context = EnteredContext(index, change)
            self._roots.contexts.append(context)
            return partial(self._enter, context)
        if kind == "call" and str(change["callable"]).rpartition(".")[2] == _LOADER:
            return partial(self._swap_loaders, index, *self._options(change))
        if kind in ("call", "removal"):
            objects = ObjectOptions(self._recorder, self._outcomes, index, change)
            self._wrappers += objects.install()
            return objects.switch
        raise Refused(_ONLY_BY_RESTART % ("a change of kind %s" % kind))

    def _set_up(self, index: int, setup: SetupStatements) -> list[Callable[[], Any]]:
        undo = setup.make(undone=True)
        self._outcomes.applied(index)
        return [*undo, partial(self._tried, index, setup.verify)]  # called first

    def _enter(self, context: EnteredContext) -> list[Callable[[], Any]]:
        if self._outcomes.is_refused(context.index):
            return []
        context.on = True
        if context.proven:
            self._outcomes.applied(context.index)
        return [partial(setattr, context, "on", False)]

    def _options(self, change: Change) -> tuple[dict[str, Any], tuple[str, int] | None]:
        options = {name: value_of(value) for name, value in (change.get("arguments") or {}).items()}
        options.update(dict.fromkeys(name for name in change.get("without") or () if name in _BETWEEN_BATCHES))
        others = sorted(set(options) - set(_BETWEEN_BATCHES))
        if others:
            raise Refused(_ONLY_BY_RESTART % ("%s of a loader" % others[0]))
        if self._swap is None:
            recorder = self._recorder
            swap = LoaderSwap(recorder.torch, recorder.failed, lambda: recorder.loading.loaders)
            self._wrappers += swap.install()
            self._swap = swap
        file = change.get("file")
        return options, (str(file), int(change.get("line") or 0)) if file else None

    def _swap_loaders(
        self, index: int, options: dict[str, Any], where: tuple[str, int] | None
    ) -> list[Callable[[], Any]]:
        swap: Any = self._swap
        refusals = swap.use(options, where)
        if refusals:
            self._outcomes.refused(index, "; ".join(refusals))
        else:
            self._outcomes.applied(index)
        return [partial(swap.use, None, where)]
