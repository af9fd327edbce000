"""What makes a machine an outlier whatever its numbers are: its own triage gives it back, or GPUs are missing that its sisters have.

A machine with seven of eight GPUs, or with a dead driver, is of a kind of its own: among its numbers nothing can be unusual.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rn50_advisor.advisor.fleet.machine_readings import NO_GPU
from rn50_advisor.advisor.model.documents.ranked_fleet import ResultFile

SISTERS_LEAST = 3  # for each of the odd ones: of two machines nobody can tell which is as it should be
ODD_MOST = 5  # six of a kind are a kind
# Of the same host model: another number of cores is another instance, sold with other GPUs.
_ALIKE = ("cpu.model", "cpu.cores_seen")

Facts = Mapping[str, str]


def flaws(
    group: str, results: Sequence[ResultFile], facts: Facts, kinds: Mapping[str, Sequence[Facts]]
) -> tuple[str, ...]:
    """`kinds`: the facts of all machines, by group. A job, or a benchmark, may have been given a part of the GPUs: only a triage counts."""
    last = next((one for one in reversed(results) if one.kind == "triage"), None)
    if last is None:
        return ()
    # what was mended since an earlier triage is mended
    handed = ("its triage hands it back" + f": {last.why}" * bool(last.why),) if last.state == "hand-back" else ()
    fewer = _fewer_gpus(group, facts, kinds)
    return (*handed, fewer) if fewer else handed


def _fewer_gpus(group: str, facts: Facts, kinds: Mapping[str, Sequence[Facts]]) -> str:
    own = _gpus(group)
    if own is None or len(kinds[group]) > ODD_MOST:
        return ""
    for other, sisters in kinds.items():
        theirs = _gpus(other)
        if theirs is None or theirs[0] <= own[0] or len(sisters) < SISTERS_LEAST * len(kinds[group]):
            continue
        alike = _alike(facts, sisters)
        if own[0] and own[1] == theirs[1] and alike is not False:
            return f"{own[0]} GPUs where {len(sisters)} others have {theirs[0]}: lost, or a container was given a part"
        if not own[0] and alike:
            return f"no GPU is seen where {len(sisters)} such machines have {other}: the driver does not answer, or none was given"
    return ""


def _gpus(group: str) -> tuple[int, str] | None:
    """(how many, of which kind); None for GPUs of several kinds."""
    if group == NO_GPU:
        return 0, ""
    count, _, kind = group.partition(" × ")
    return (int(count), kind) if count.isdigit() and ", " not in kind else None


def _alike(facts: Facts, sisters: Sequence[Facts]) -> bool | None:
    """Whether its processors are those that most sisters have; None where nothing is told of them."""
    told = []
    for name in _ALIKE:
        usual = Counter(sister[name] for sister in sisters if name in sister).most_common(1)
        if name in facts and usual:
            told.append(facts[name] == usual[0][0])
    return all(told) if told else None
