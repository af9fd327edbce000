"""Whole steps of a plain loop, one fetch, backward pass and update each, taken into the account at once.

The result is the same as mark by mark, at a fraction of the cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..layout import FLAG_NO_LOADER, KIND_STEP, STEP_FIELDS
from .optimizer_turns import INSIDE_BACKWARD
from .step_account import PLAIN_STEP_MARKS, TRAINING
from .step_phases import GAP, INPUT

if TYPE_CHECKING:
    from .step_account import Account

# Runs of fields that are zero in these steps.
_BEFORE_DELAY_NS = (0,) * (STEP_FIELDS.index("run_delay_ns") - STEP_FIELDS.index("gap_ns") - 1)
_BEFORE_SAMPLES = (0,) * (STEP_FIELDS.index("samples") - STEP_FIELDS.index("gc_ns") - 1)


def take_plain_steps(account: Account, times: list[int], samples: list[int], collections: list[tuple[int, int]]) -> int:
    """Processes whole steps of a plain loop, each from its fetch to the next step's fetch, with the same result as mark by mark.

    `times` has each step's marks: batch, backward start and end, optimizer start and end, next fetch; `samples` each batch's size.
    Garbage `collections` (begin, end) within these steps are removed. Returns the number of steps processed: all, or none if they
    may not be plain steps.
    """
    loader, began, steps = account.last_loader, account.since, len(times) // PLAIN_STEP_MARKS
    if (
        not steps
        or account.phase != INPUT
        or began != account.t_start
        or account.fetched != {loader: 1}
        or account.loaders.get(loader) != TRAINING
        or account.optimizer_turns.first is None
        or account.last_optimizer != account.optimizer_turns.first
        or account.optimizer_depth
        or account.fetching.batches
    ):
        return 0
    write, delays = account.ring.write, account.delays
    last = began
    for i in range(0, len(times), PLAIN_STEP_MARKS):
        batch, backward, backward_end, update, update_end, fetch = times[i : i + PLAIN_STEP_MARKS]
        while collections and collections[0][1] <= fetch:
            account.collected(*collections.pop(0))
        # same as `Steps._write`: without clocks and other marks all other fields are zero
        write(
            KIND_STEP,
            account.flags,
            (
                account.step,
                began,
                fetch,
                batch - began,
                backward - batch,
                backward_end - backward,
                update - backward_end,
                update_end - update,
                fetch - update_end,
                *_BEFORE_DELAY_NS,
                account.take_delay(fetch) if delays else 0,
                account.gc_ns,
                *_BEFORE_SAMPLES,
                samples[i // PLAIN_STEP_MARKS],
                1,
                loader,
                account.self_ns - account.self_at_step,
                0,
            ),
        )
        account.self_at_step = account.self_ns
        account.gc_ns = account.flags = 0
        account.step += 1
        last, began = began, fetch
    account.backwards += steps
    account.optimizers += steps
    account.last_step_ns, account.last_forward_ns = began - last, backward - batch
    account.t_start = account.since = began
    return steps


def take_counted_steps(
    account: Account, ends: list[int], parts: list[int], samples: int, collections: list[tuple[int, int]]
) -> int:
    """Processes whole steps of a plain loop of which only the boundaries are known, as one row: see `counted_steps`.

    `ends`: the steps' ends; `parts`: the phases' time in all of them until the end of the update. Returns the number of steps
    processed: all, or none if they may not be plain steps.
    """
    loader, began, steps = account.last_loader, account.since, len(ends)
    fed = loader >= 0
    known = account.fetched == {loader: 1} and account.loaders.get(loader) == TRAINING if fed else not account.fetched
    if not known or not _is_plain(account) or began != account.t_start or account.phase != (INPUT if fed else GAP):
        return 0
    end = ends[-1]
    while collections and collections[0][1] <= end:
        account.collected(*collections.pop(0))
    wait, *computed = parts
    if not fed:
        computed[0] += wait
    account.ring.write(
        KIND_STEP,
        account.flags if fed else account.flags | FLAG_NO_LOADER,
        (
            account.step,
            began,
            end,
            wait if fed else 0,
            *computed,
            end - began - sum(parts),
            *_BEFORE_DELAY_NS,
            account.take_delay(end) if account.delays else 0,
            account.gc_ns,
            *_BEFORE_SAMPLES,
            samples if fed else 0,
            steps if fed else 0,
            loader,
            account.self_ns - account.self_at_step,
            0,
        ),
        steps - 1,
    )
    account.self_at_step = account.self_ns
    account.gc_ns = account.flags = 0
    account.step += steps
    account.backwards += steps
    account.optimizers += steps
    account.last_step_ns = (end - began) // steps
    account.last_forward_ns = computed[0] // steps
    account.t_start = account.since = end
    return steps


def may_be_counted(account: Account) -> bool:
    """True at the start of a step of a plain loop, if steps have been so until now."""
    marks = PLAIN_STEP_MARKS if account.last_loader >= 0 else PLAIN_STEP_MARKS - 2
    return account.fewest_marks == marks and account.fewest_rounds == 1 and _is_plain(account)


def _is_plain(account: Account) -> bool:
    """True at the start of a step of a loop with one optimizer."""
    return (
        account.optimizer_turns.first not in (None, INSIDE_BACKWARD)
        and account.last_optimizer == account.optimizer_turns.first
        and not account.optimizer_depth
        and not account.fetching.batches
    )
