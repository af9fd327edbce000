"""One triage: the groups of checks one after the other, who disturbed them, and the verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from advisor.core import format as fmt
from advisor.core.triage import BOOT_ID, HOSTNAME, MADE_AT, UNIX_SECONDS, Triage, TriageGap
from advisor.triage import disk, memory, processor
from advisor.triage.decode import decoding
from advisor.triage.found import Found, Item, Setting, fact, unproved
from advisor.triage.gpus import gpus
from advisor.triage.instance import instance
from advisor.triage.limits import limits
from advisor.triage.links import links
from advisor.triage.load import Stretch, Watch, taken_from_us
from advisor.triage.verdict import verdict_of
from probes.host.procfs import read_text

IDLE_S = 3.0
Tell = Callable[[str, int, int], None]  # what is done now, its number, how many there are


@dataclass(frozen=True, slots=True)
class Group:
    """`loads`: what it does itself is work of the kernel for us, and no sign of others."""

    title: str
    checks: Callable[[Stretch], Iterable[Item]]
    loads: bool = False


def triage(setting: Setting, tell: Tell) -> Triage:
    """Raises nothing but KeyboardInterrupt and its like: a group that fails is a gap."""
    watch = Watch(setting.root)
    groups = _groups(setting, watch)
    tell("watching the machine at rest", 1, len(groups) + 1)
    before = watch.now()
    time.sleep(IDLE_S)
    idle = watch.since(before)
    stretches = [idle]
    items: list[Item] = list(_identity(setting))
    for number, group in enumerate(groups, start=2):
        tell(group.title, number, len(groups) + 1)
        before = watch.now()
        found = list(_of_group(group, idle))
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


def _groups(setting: Setting, watch: Watch) -> tuple[Group, ...]:
    root = setting.root
    return (
        Group("the processor", lambda idle: [*instance(setting), *processor.facts(watch, root)]),
        Group("memory and limits", lambda idle: [*memory.facts(watch, root), *limits(root), *links(root)]),
        Group("memory bandwidth", lambda idle: memory.speed(setting, watch)),
        Group("decoding pictures", lambda idle: decoding(setting, watch)),
        Group("the disk", lambda idle: disk.disks(setting, watch, idle), loads=True),
        Group("the GPUs", lambda idle: gpus(setting, watch)),
    )


def _of_group(group: Group, idle: Stretch) -> Iterator[Item]:
    try:
        yield from group.checks(idle)
    except Exception as error:  # noqa: BLE001 - a machine can be broken in more ways than we know; the other checks go on
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        yield TriageGap(group.title, f"could not be measured: {type(error).__name__}: {reason}")


def _disturbed(item: Item, stretch: Stretch, watch: Watch) -> Item:
    """What is low while others use our cores proves nothing about the machine."""
    if not isinstance(item, Found) or not item.needs_cores or item.check.state not in ("low", "bad"):
        return item
    allowed = processor.cores_allowed(watch)
    others = taken_from_us(stretch.others_cores or 0.0, len(watch.cores), allowed)
    if others > (processor.others_band(allowed).hi or 0.0):
        busy = f"others kept {fmt.number(others)} of our {allowed:g} cores busy while it was measured"
        return unproved(item, f"{busy}: measure again when the machine is idle")
    return item


def _identity(setting: Setting) -> Iterator[Found]:
    """Which machine this was, and when: a result is worth something on the same machine only."""
    yield fact(HOSTNAME, read_text(setting.root / "proc/sys/kernel/hostname"))
    yield fact(BOOT_ID, read_text(setting.root / "proc/sys/kernel/random/boot_id"))
    yield fact(MADE_AT, float(round(time.time())), UNIX_SECONDS)
