"""Ranks machines by their distance from others of their kind. Pure.

A component is an outlier if it is both unusual and worse than the baseline by more than 5 %: of two hundred equal
machines some are always the slowest, and some components differ by 10 % among good machines. A value is unusual if
chance would produce it in one of a hundred fleets. The fewer machines there are, the less their own spread is trusted.
Flaws make an outlier without any numbers (`flaws`).
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from statistics import NormalDist, median

from rn50_advisor.advisor.fleet.baseline import DROP, baseline_of
from rn50_advisor.advisor.fleet.flaws import flaws
from rn50_advisor.advisor.fleet.machine_readings import MachineResult, group_of, worth_ranking
from rn50_advisor.advisor.model.documents.ranked_fleet import (
    Baseline,
    Deviation,
    Difference,
    Fleet,
    FleetMachine,
    MachineNumber,
    ResultFile,
    Unread,
)

MACHINES_MIN = 6  # among five, an outlier would have to be 14 median deviations away
_FALSE_OUTLIER_CHANCE = 0.01
# With few machines the worst one is farther from their median, in their own median deviations, than for normal values: 3.5 times for 6
# machines, 1.75 for 20, 1.1 for 200. From 400,000 random values per number of machines, with ten components each.
_FEW_MACHINES_SIGMAS = 15.0
USUAL_SHARE = 0.8  # of a group: a fact that this many machines share is usual
_SCORE_MAX = 99.0
_SEES_ALL = {"bench": 1, "triage": 2}


@dataclass(slots=True)
class _Machine:
    name: str
    models: tuple[str, ...]
    sources: list[ResultFile] = field(default_factory=list)
    readings: dict[str, list[MachineNumber]] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def group(self) -> str:
        return group_of(self.models)

    def reading(self, component: str) -> MachineNumber | None:
        """Returns the median of several results: one machine measured three times is one machine."""
        found = self.readings.get(component)
        if not found or len(found) == 1:
            return found[0] if found else None
        return MachineNumber(median(r.value for r in found), found[0].unit, found[0].better, found[0].scale)


def rank(
    results: Sequence[MachineResult],
    unread: Sequence[Unread] = (),
    *,
    stored: Mapping[tuple[str, str], Baseline] | None = None,
) -> Fleet:
    """Ranks the machines, worst first. `stored`: baselines to use instead of the fleet's own."""
    machines = _machines(_apart(results))
    groups: dict[str, list[_Machine]] = {}
    for machine in machines:
        groups.setdefault(machine.group, []).append(machine)
    kinds = {members[0].models: [member.facts for member in members] for members in groups.values()}
    baselines: list[Baseline] = []
    ranked: list[FleetMachine] = []
    notes: list[str] = []
    for group, members in sorted(groups.items()):
        own = _baselines(group, members, stored or {})
        baselines += own.values()
        usual = _usual(members)
        enough = len(members) >= MACHINES_MIN
        if not enough and not any(one.source == "file" for one in own.values()):
            few = f"{len(members)} machine{'s' if len(members) > 1 else ''}"
            notes.append(f"{group}: {few}, fewer than the {MACHINES_MIN} needed to call one an outlier; only ranked")
        notes += _of_few(group, own.values())
        for machine in members:
            one = _ranked(machine, own, usual, values=len(own) * len(members), enough=enough)
            found = flaws(machine.models, machine.sources, machine.facts, kinds)
            ranked.append(replace(one, flaws=found, outlier=one.outlier or bool(found)))
    ordered = sorted(ranked, key=lambda machine: (not machine.outlier, machine.score, machine.name))
    return Fleet(tuple(ordered), tuple(baselines), tuple(unread), tuple(notes))


def _of_few(group: str, baselines: Iterable[Baseline]) -> list[str]:
    """Returns a note on stored baselines from too few machines to judge by."""
    stored = [one for one in baselines if one.source == "file"]
    few = [one.machines for one in stored if one.machines < MACHINES_MIN]
    if not few:
        return []
    of = f"all {len(few)}" if len(few) == len(stored) else f"{len(few)} of {len(stored)}"
    least = f"{min(few)} machine{'s' if min(few) > 1 else ''}"
    needed = f"fewer than the {MACHINES_MIN} whose spread can be trusted: so nothing is called an outlier by them"
    return [f"{group}: {of} stored baselines are of {least}, {needed}"]


@functools.cache
def unusual_from(machines: int, values: int) -> float:
    """Returns the number of deviations that makes a value unusual among `values`, with a spread measured on `machines`."""
    return NormalDist().inv_cdf(1 - _FALSE_OUTLIER_CHANCE / max(values, 1)) * (1 + _FEW_MACHINES_SIGMAS / machines)


def _apart(results: Sequence[MachineResult]) -> list[MachineResult]:
    """Separates machines that share a host name, as cloned images do, by their boots.

    Boots that share a GPU belong to one machine. Only its last boot counts, since faults may have been fixed before it. A machine without
    GPUs that was restarted between two results appears twice, which hides nothing.
    """
    hosts: dict[str, list[MachineResult]] = {}
    for one in sorted(results, key=_made):
        hosts.setdefault(one.machine, []).append(one)
    return [one for of_host in hosts.values() for one in _of_host(of_host)]


def _of_host(results: Sequence[MachineResult]) -> Iterator[MachineResult]:
    machines = _boots(results)
    for one in results:
        own = next((boots for boots in machines if one.boot in boots), [one.boot])
        name = f"{one.machine} (boot {own[-1][:8]})" if one.boot and len(machines) > 1 else one.machine
        yield replace(one, machine=name) if one.boot == own[-1] else replace(one, machine=name, readings={}, facts={})


def _boots(results: Sequence[MachineResult]) -> list[list[str]]:
    """Returns the boots of each machine, the last one at the end."""
    gpus: dict[str, frozenset[str]] = {}
    for one in results:
        if one.boot:
            gpus[one.boot] = gpus.get(one.boot, frozenset()) | one.gpus
    machines: list[list[str]] = []
    for boot, own in gpus.items():
        same = [boots for boots in machines if any(gpus[other] & own for other in boots)]
        machines = [boots for boots in machines if boots not in same] + [[*chain.from_iterable(same), boot]]
    return machines


def _made(one: MachineResult) -> float:
    return one.source.made or 0.0


def _machines(results: Sequence[MachineResult]) -> list[_Machine]:
    """Joins results of one host. Triage determines the machine's kind, else bench: a job may have been given only some of the GPUs."""
    named: dict[str, tuple[str, ...]] = {}
    for one in sorted(results, key=lambda result: (_SEES_ALL.get(result.source.kind, 0), _made(result))):
        if one.models or one.machine not in named:
            named[one.machine] = one.models
    found: dict[str, _Machine] = {}
    for one in sorted(results, key=_made):
        machine = found.setdefault(one.machine, _Machine(one.machine, named[one.machine]))
        machine.sources.append(one.source)
        machine.facts.update(one.facts)
        for component, reading in one.readings.items():
            machine.readings.setdefault(component, []).append(reading)
    return list(found.values())


def _baselines(
    group: str, members: Sequence[_Machine], stored: Mapping[tuple[str, str], Baseline]
) -> dict[str, Baseline]:
    found = {}
    for component in sorted({component for machine in members for component in machine.readings}):
        readings = {m.name: r for m in members if (r := m.reading(component)) is not None}
        if (group, component) in stored:
            found[component] = stored[group, component]
        elif worth_ranking(component, readings):
            found[component] = baseline_of(group, component, list(readings.values()))
    return found


def _ranked(
    machine: _Machine, baselines: Mapping[str, Baseline], usual: Mapping[str, str], *, values: int, enough: bool
) -> FleetMachine:
    deviations = []
    for component, base in baselines.items():
        reading = machine.reading(component)
        if reading is not None:
            deviations.append(_deviation(reading, base, values=values, enough=enough))
    deviations.sort(key=lambda one: (not one.outlier, one.score, one.deviation or 0.0, one.component))
    worst = deviations[0] if deviations else None
    differing = [
        Difference(name, machine.facts[name], most)
        for name, most in usual.items()
        if machine.facts.get(name, most) != most
    ]
    missing = [c for c, base in baselines.items() if c not in machine.readings and base.machines >= MACHINES_MIN]
    return FleetMachine(
        name=machine.name,
        group=machine.group,
        score=min(0.0, worst.score) if worst else 0.0,
        outlier=any(one.outlier for one in deviations),
        worst=worst.component if worst is not None and worst.score < 0 else None,
        results=tuple(machine.sources),
        deviations=tuple(deviations),
        differences=tuple(differing),
        missing=tuple(missing),
    )


def _deviation(reading: MachineNumber, base: Baseline, *, values: int, enough: bool) -> Deviation:
    sign = 1.0 if base.better == "higher" else -1.0
    apart = sign * (reading.value - base.median)
    score = apart / base.spread if base.spread > 0 else math.copysign(_SCORE_MAX, apart) if apart else 0.0
    whole = abs(base.baseline) if base.scale is None else base.scale
    share = sign * (reading.value - base.baseline) / whole if whole > 0 else None
    judged = (enough or base.source == "file") and base.machines >= MACHINES_MIN
    outlier = judged and score <= -unusual_from(base.machines, values) and (share is None or share < -DROP)
    return Deviation(
        base.component,
        reading.value,
        base.unit,
        base.baseline,
        share,
        max(-_SCORE_MAX, min(_SCORE_MAX, score)),
        outlier,
    )


def _usual(members: Sequence[_Machine]) -> dict[str, str]:
    """Returns the facts that nearly all machines of a group share."""
    found = {}
    for name in sorted({name for machine in members for name in machine.facts}):
        values = Counter(machine.facts[name] for machine in members if name in machine.facts)
        value, count = values.most_common(1)[0]
        if len(members) >= MACHINES_MIN and count >= USUAL_SHARE * sum(values.values()):
            found[name] = value
    return found
