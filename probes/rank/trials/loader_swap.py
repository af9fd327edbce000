"""Exchanges the options of DataLoaders while they are read: from the next fetch on, and in epochs that begin later.

Patches only `DataLoader._get_iterator`, and only in a process that tries changes. Nothing here raises into the job: a loader whose options
cannot be exchanged goes on as it is.
"""

from __future__ import annotations

import os
import sys
import types
import weakref
from _thread import get_ident
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ..facts.batch_contents import batch_bytes, batch_tensors
from ..facts.known_loaders import KnownLoaders
from ..hidden_frames import hide_frame, passed_over, wraps
from ..patches.wrappers import once_made, quietly
from ..signal_exceptions import reraise_signal_exception
from .loader_relay import LoaderOptions, LoaderParts, LoaderRelay, close, fill, made
from .swap_refusals import fault_of, why_not

if TYPE_CHECKING:
    from collections.abc import Callable

_REFUSALS_MAX = 16
_LOADERS_MAX = 100


class SwapPlan(NamedTuple):
    """Options by the place where loaders are made; None: those of all that feed training. Other loaders are used as the job made them."""

    options: dict[tuple[str, int] | None, dict[str, Any]]

    def of(self, place: tuple[str, int] | None, trains: bool) -> dict[str, Any] | None:
        for where, options in self.options.items():
            if where is not None and place is not None and _same_place(where, place):
                return options
        return self.options.get(None) if trains else None


class LoaderSwap:
    """The loaders of one process and the options that are to be used. `fetching`: threads within a fetch, whose loaders are a dataset's."""

    def __init__(
        self, torch: Any, failed: Callable[[], None], loaders: Callable[[], KnownLoaders] | None = None
    ) -> None:
        """`loaders`: the recorder's, for their numbers and places; by default they are noted here."""
        self.torch = torch
        self.failed = failed
        self.active = True
        self.plan = SwapPlan({})
        self.fetching: set[int] = set()
        self._loaders = loaders
        self._relays: dict[int, weakref.ref[LoaderRelay]] = {}
        self._read: dict[int, bool] = {}  # loader -> whether it feeds training
        self._batches: dict[int, tuple[int, int]] = {}  # loader -> bytes and tensors of a batch
        self._swapped: dict[int, dict[str, Any]] = {}  # loader -> what was done to it
        self._refusals: list[str] = []
        self._installed = False

    # -- interface -------------------------------------------------------------------------------------------------------------

    def install(self) -> list[Any]:
        """Follows the loaders from now on. Returns the wrappers; frames of this package are hidden as the recorder's other ones."""
        if self._installed:
            return []
        self._installed = True
        from torch.utils.data import dataloader

        for function in _functions():
            function.__code__ = passed_over(function.__code__)
        kind: Any = dataloader.DataLoader
        wrappers = [LoaderSwap, LoaderParts, LoaderRelay, made, fill, close]
        if self._loaders is None:
            known = KnownLoaders()
            self._loaders = lambda: known
            me: Any = self
            wrappers.append(once_made(me, kind, known.add))
        kind._get_iterator = self._epochs(kind._get_iterator)
        os.register_at_fork(after_in_child=self._forked)
        return [*wrappers, kind._get_iterator]

    def use(self, options: dict[str, Any] | None, where: tuple[str, int] | None = None) -> list[str]:
        """From the next fetch on, loaders made at `where` (file, line; None: all that feed training) use these arguments of a DataLoader.

        Without options they are used as the job made them; without both, all are. Returns refusals as sentences: a loader that is refused
        goes on as it is.
        """
        try:
            return self._use(options or {}, where)
        except Exception:
            reraise_signal_exception()
            self.quietly(self.failed)
            return ["The loaders go on as they are: an error of the recorder."]

    def facts(self) -> dict[str, Any]:
        """Swaps so far, the options asked for, each exchanged loader with its options in use, and what was refused."""
        loaders = [{"loader": number, **done} for number, done in sorted(self._swapped.items())]
        return {
            "swaps": sum(done["swaps"] for done in loaders),
            "active": [{"where": where, **options} for where, options in self.plan.options.items()],
            "loaders": loaders,
            "refused": list(self._refusals),
        }

    # -- called by relays ------------------------------------------------------------------------------------------------------

    def before_fetch(self, relay: LoaderRelay) -> Any:
        """Makes the relay follow a new plan. Returns the iterator that takes over, which is to be filled, or None."""
        relay.trains = self.torch.is_grad_enabled()
        return self.quietly(self._follow_plan, relay) if relay.plan is not self.plan else None

    def weigh(self, relay: LoaderRelay, batch: Any) -> None:
        """Called with an iterator's first batch."""
        relay.weighed = True
        if len(self._read) < _LOADERS_MAX:
            self._read[relay.number] = relay.trains
            self.quietly(self._weigh, relay.number, batch)

    def quietly(self, call: Callable[..., Any], *args: Any) -> Any:
        me: Any = self
        return quietly(me, call, *args)

    # -- the plan --------------------------------------------------------------------------------------------------------------

    def _use(self, options: dict[str, Any], where: tuple[str, int] | None) -> list[str]:
        fault = fault_of(options)
        asked = {} if where is None and not options else dict(self.plan.options)
        asked.pop(where, None)
        if options and not fault:
            asked[where] = options
        plan = self.plan = SwapPlan(asked)
        if fault:
            return self._refuse(["The loaders go on as they are: %s." % fault])
        if not options:
            return []
        alive = [relay for reference in list(self._relays.values()) if (relay := reference()) is not None]
        known = {**{relay.number: relay.trains for relay in alive}, **self._read}
        if not any(plan.of(self._place(number), trains) is options for number, trains in known.items()):
            which = "made at %s:%d" % where if where else "that feeds training"
            return self._refuse(["No loader %s is read by an iterator of torch's own." % which])
        concerned = [relay for relay in alive if plan.of(self._place(relay.number), relay.trains) is options]
        return self._refuse([said for relay in concerned if (said := self._verdict(plan, relay)[1])])

    def _verdict(self, plan: SwapPlan, relay: LoaderRelay) -> tuple[LoaderOptions, str]:
        """The options that a relay should use, and the sentence that refuses others. The first verdict under a plan stays."""
        if relay.judged is None or relay.judged[0] is not plan:
            relay.judged = plan, self._judge(plan, relay.parts, relay.number, relay.trains, relay.worker())
        verdict: tuple[LoaderOptions, str] = relay.judged[1]
        return verdict

    def _judge(
        self, plan: SwapPlan, parts: LoaderParts, number: int, trains: bool, worker: int | None
    ) -> tuple[LoaderOptions, str]:
        as_made = parts.options()
        options = plan.of(self._place(number), trains)
        if not options:
            return as_made, ""
        wanted = as_made.changed(options)
        if options.get("prefetch_factor") is not None and not wanted.num_workers:
            reason = "it has no workers that could prefetch"
        else:
            reason = why_not(parts, wanted, batch=self._batches.get(number, (0, 0)), worker=worker)
        return (as_made, self._sentence(number, reason)) if reason else (wanted, "")

    def _follow_plan(self, relay: LoaderRelay) -> Any:
        plan = relay.plan = self.plan
        if relay.process != os.getpid():
            return None  # a forked child shares the iterator's workers with its parent
        wanted, refusal = self._verdict(plan, relay)
        self._refuse([refusal] if refusal else [])
        if wanted == relay.options:
            return None
        try:
            entering = relay.turn(wanted)
        except Exception as error:  # no process could be started, or nothing pickled
            reraise_signal_exception()
            self._refuse([self._sentence(relay.number, "%s: %s" % (type(error).__name__, error))])
            return None
        self._note(relay.number, wanted, swaps=1)
        return entering

    # -- epochs ----------------------------------------------------------------------------------------------------------------

    def _epochs(self, original: Any) -> Any:
        @wraps(original)
        def _get_iterator(*args: Any, **kwargs: Any) -> Any:
            try:
                loader = args[0] if args else kwargs["self"]
                begun = None if get_ident() in self.fetching else self.quietly(self._begin, loader)
                if begun is None:
                    return original(*args, **kwargs)
                parts, number, plan, iterator, options = begun
                if iterator is None:
                    iterator = original(*args, **kwargs)
                else:
                    self._draw(parts, iterator)
                self.quietly(self._follow, iterator, parts, options, number, plan)
                return iterator
            except BaseException as error:
                hide_frame(error)
                raise

        return _get_iterator

    def _begin(self, loader: Any) -> tuple[LoaderParts, int, SwapPlan, Any, LoaderOptions]:
        """What begins a new epoch: its iterator, still without indices, or None for the one that the loader makes itself; its options."""
        known, plan = self._loaders(), self.plan  # type: ignore[misc]
        parts, number = LoaderParts(loader), known.numbers.get(loader)
        as_made = parts.options()
        wanted, refusal = self._judge(plan, parts, number, self.torch.is_grad_enabled(), None)
        if refusal:
            self._refuse([refusal])
        if wanted != as_made:
            try:
                standing_in = parts.with_options(wanted)
                known.numbers.put(standing_in, number)
                iterator = made(standing_in, number, begins=True)
                self._note(number, wanted, epochs=1)
                return parts, number, plan, iterator, wanted
            except Exception as error:
                reraise_signal_exception()
                self._refuse([self._sentence(number, "%s: %s" % (type(error).__name__, error))])
        return parts, number, plan, None, as_made

    def _draw(self, parts: LoaderParts, iterator: Any) -> None:
        """Gives an iterator its indices. Raises what the job's sampler raises."""
        try:
            iterator._index_sampler = parts._index_sampler  # for its length
            iterator._sampler_iter = parts.draw()
            fill(iterator)
        except BaseException:
            self.quietly(close, iterator)
            raise

    def _follow(self, iterator: Any, parts: LoaderParts, options: LoaderOptions, number: int, plan: SwapPlan) -> None:
        module: Any = sys.modules["torch.utils.data.dataloader"]
        kinds = (module._SingleProcessDataLoaderIter, module._MultiProcessingDataLoaderIter)
        if type(iterator) not in kinds or "_next_data" in vars(iterator):
            return  # of another library, or the job has replaced it
        relay = LoaderRelay(self, iterator, parts, options, number)
        relay.plan = plan  # the recorder may have started a step, and with it another plan, while the iterator was made
        key, relays = id(relay), self._relays
        relays[key] = weakref.ref(relay, partial(relays.pop, key))

    def _forked(self) -> None:
        """In a forked child, perhaps a rank or a worker: nothing is to be exchanged until it asks for it."""
        self.plan = SwapPlan({})
        for known in (self.fetching, self._swapped, self._read):
            known.clear()

    # -- what is said ----------------------------------------------------------------------------------------------------------

    def _place(self, number: int) -> tuple[str, int] | None:
        known = self._loaders().described.get(number)  # type: ignore[misc]
        return None if known is None else (known["file"], known["line"])

    def _sentence(self, number: int, reason: str) -> str:
        place = self._place(number)
        name = "The loader made at %s:%d" % place if place is not None and place[1] else "A loader"
        return "%s goes on as it is: %s." % (name, reason.rstrip("."))

    def _refuse(self, sentences: list[str]) -> list[str]:
        new = [said for said in dict.fromkeys(sentences) if said not in self._refusals]
        self._refusals += new[: max(0, _REFUSALS_MAX - len(self._refusals))]
        return list(dict.fromkeys(sentences))

    def _note(self, number: int, options: LoaderOptions, *, swaps: int = 0, epochs: int = 0) -> None:
        if number not in self._swapped and len(self._swapped) >= _LOADERS_MAX:
            return
        done = self._swapped.setdefault(number, {"swaps": 0, "epochs": 0})
        file, line = self._place(number) or ("", 0)
        done.update(options.facts(), file=file, line=line, swaps=done["swaps"] + swaps, epochs=done["epochs"] + epochs)

    def _weigh(self, number: int, batch: Any) -> None:
        self._batches[number] = batch_bytes(batch), batch_tensors(batch)


def _same_place(one: tuple[str, int], other: tuple[str, int]) -> bool:
    return one[1] == other[1] and os.path.abspath(one[0]) == os.path.abspath(other[0])


def _functions() -> list[types.FunctionType]:
    """This package's functions that may run between frames of the job."""
    values = [*vars(sys.modules[LoaderSwap.__module__]).values(), made, fill, close]
    members = [each for value in (LoaderSwap, LoaderParts, LoaderRelay) for each in vars(value).values()]
    return [each for each in (*values, *members) if isinstance(each, types.FunctionType)]
