"""Runs a triage: the groups of checks in turn, what disturbed them, and the verdict."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rn50_advisor.advisor.model.documents.machine_triage import (
    BOOT_ID,
    HOSTNAME,
    MADE_AT,
    UNIX_SECONDS,
    Triage,
    TriageGap,
    TriageVerdict,
)
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.triage.deadline import apart, within
from rn50_advisor.advisor.triage.found_checks import RAN_SHARE, Found, Item, TriageOptions, fact, unproved
from rn50_advisor.advisor.triage.gpu.all_gpus import gpus
from rn50_advisor.advisor.triage.host import memory_checks, processor
from rn50_advisor.advisor.triage.host.network_links import limits, links
from rn50_advisor.advisor.triage.host.other_load import LoadInterval, Watch, taken_from_us
from rn50_advisor.advisor.triage.instance_checks import instance
from rn50_advisor.advisor.triage.storage import disk_checks
from rn50_advisor.advisor.triage.storage.decode_speed import decoding
from rn50_advisor.advisor.triage.storage.timed_io import list_files
from rn50_advisor.probes.host.procfs import read_text


# From the checks alone.
def verdict_of(found: Sequence[Found], gaps: Sequence[TriageGap]) -> TriageVerdict:
    """Returns the verdict: keep the machine, fix a setting, or hand it back.

    Hand it back if something is bad that only its owner can change. Fix a setting if its value is outside the band. Values that are only
    low, and bad ones with the remedy `note`, are named (notes last) but are no reason to hand the machine back: sound machines differ too.
    """
    owner = [one for one in found if one.remedy == "hand-back" and one.check.state == "bad"]
    settings = [one for one in found if one.remedy == "fix" and one.check.state in ("bad", "low")]
    weak = [one for one in found if one.remedy == "hand-back" and one.check.state == "low"]
    noted = [f"worth noting: {_reason(one)}" for one in found if one.remedy == "note" and one.check.state == "bad"]
    if owner:
        return TriageVerdict("hand-back", (*(_reason(one) for one in [*owner, *settings]), *noted))
    if settings:
        return TriageVerdict("fix", (*(_reason(one) for one in [*settings, *weak]), *noted))
    judged = [one for one in found if one.check.expected.lo is not None or one.check.expected.hi is not None]
    sound = sum(one.check.state == "ok" for one in judged)
    unknown = sum(one.check.state == "unknown" for one in judged) + len(gaps)
    summary = f"{sound} of {len(judged)} checks with a band are inside it"
    left = (f"{unknown} could not be measured: see the gaps and what is unknown",) if unknown else ()
    return TriageVerdict("keep", (summary, *(f"low: {_reason(one)}" for one in weak), *noted, *left))


def _reason(one: Found) -> str:
    return one.why or f"{one.check.name}: {one.check.hint}"


IDLE_S = 3.0
# From begin to end, with what remains until the last process has gone and the result is written: a quick one ends within two minutes.
# A check that overruns shortens those after it; a check without time left is not started.
QUICK_LIMIT_S, FULL_LIMIT_S = 101.0, 1800.0
_GRACE_S = 4.0  # of what ends by its own clock
_DATA_ANSWERS_S = 10.0  # a folder of which nothing is heard in that time hangs: it is listed for three seconds
Announce = Callable[[str, int, int], None]  # what is done now, its number, how many there are


@dataclass(frozen=True, slots=True)
class CheckGroup:
    """`loads`: what it does itself is work of the kernel for us, and no sign of others."""

    title: str
    checks: Callable[[TriageOptions, LoadInterval], Iterable[Item]]
    loads: bool = False


def triage(setting: TriageOptions, announce: Announce) -> Triage:
    """Raises nothing but KeyboardInterrupt and its like: a group that fails, or hangs, is a gap."""
    watch = Watch(setting.root)
    groups = _groups(watch)
    announce("watching the machine at rest", 1, len(groups) + 1)
    before = watch.now()
    time.sleep(IDLE_S)
    idle = watch.since(before)
    stretches = [idle]
    items: list[Item] = list(_identity(setting))
    if (data := setting.data) is not None:
        setting = replace(setting, listing=within(min(_DATA_ANSWERS_S, setting.left_s), lambda: list_files(data)))
    for number, group in enumerate(groups, start=2):
        announce(group.title, number, len(groups) + 1)
        if setting.left_s <= 0.0:
            items.append(
                TriageGap(group.title, "skipped: the time limit was reached", "the gaps above show what took so long")
            )
            continue
        # later groups need time too
        left = setting.left_s / (1 if group is groups[-1] else 2)
        limited = replace(setting, until_s=time.monotonic() + left)
        before = watch.now()
        found = apart(functools.partial(_of_group, group, limited, idle), group.title, seconds=left + _GRACE_S)
        stretch = watch.since(before)
        if not group.loads:
            stretches.append(stretch)
        items += (_disturbed(item, stretch if not group.loads else idle, watch) for item in found)
    items += processor.load(stretches, watch, idle)
    return conclude(items)


def conclude(items: Sequence[Item]) -> Triage:
    found = [item for item in items if isinstance(item, Found)]
    gaps = tuple(item for item in items if isinstance(item, TriageGap))
    return Triage(verdict_of(found, gaps), tuple(one.check for one in found), gaps)


def _groups(watch: Watch) -> tuple[CheckGroup, ...]:
    return (
        CheckGroup("the processor", lambda of, idle: [*instance(of), *processor.facts(watch, of.root)]),
        CheckGroup(
            "memory and limits",
            lambda of, idle: [*memory_checks.facts(watch, of.root), *limits(of.root), *links(of.root)],
        ),
        CheckGroup("memory bandwidth", lambda of, idle: memory_checks.speed(of, watch)),
        CheckGroup("decoding pictures", lambda of, idle: decoding(of, watch)),
        CheckGroup("the disk", lambda of, idle: disk_checks.disks(of, watch, idle), loads=True),
        CheckGroup("the GPUs", lambda of, idle: gpus(of, watch)),
    )


def _of_group(group: CheckGroup, setting: TriageOptions, idle: LoadInterval) -> Iterator[Item]:
    try:
        yield from group.checks(setting, idle)
    except Exception as error:  # noqa: BLE001 - a machine can be broken in more ways than we know; the other checks go on
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        yield TriageGap(group.title, f"could not be measured: {type(error).__name__}: {reason}")


def _disturbed(item: Item, stretch: LoadInterval, watch: Watch) -> Item:
    """Marks a low result as inconclusive if others used, or may have used, our cores."""
    if not isinstance(item, Found) or not item.needs_cores or item.check.state not in ("low", "bad"):
        return item
    allowed = processor.cores_allowed(watch)
    if stretch.others_cores is None:
        unknown = "it is not known whether others used our cores during the measurement"
        return unproved(item, f"{unknown}: measure on the host") if item.remedy == "hand-back" else item
    others = taken_from_us(stretch.others_cores, len(watch.cores), allowed)
    if others > (processor.others_band(allowed).hi or 0.0):
        busy = f"other processes kept {fmt.number(others)} of the {allowed:g} cores busy while it was measured"
        return unproved(item, f"{busy}: measure again when the machine is idle")
    if item.ran_share is not None and item.ran_share < RAN_SHARE:
        held = f"our processes had a core for {fmt.share(item.ran_share)} of the time, and no other process used them"
        return unproved(item, f"{held}: something outside stops us, such as a quota around this container")
    return item


def _identity(setting: TriageOptions) -> Iterator[Found]:
    """Yields the machine's identity and the time: results are comparable only on the same machine."""
    yield fact(HOSTNAME, read_text(setting.root / "proc/sys/kernel/hostname"))
    yield fact(BOOT_ID, read_text(setting.root / "proc/sys/kernel/random/boot_id"))
    yield fact(MADE_AT, float(round(time.time())), UNIX_SECONDS)
