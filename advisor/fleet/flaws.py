"""Flaws that make a machine an outlier regardless of its numbers: a triage that rejects it, or missing GPUs.

A machine with seven of eight GPUs or with a dead driver is the only one of its kind, so its numbers cannot be compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rn50_advisor.advisor.fleet.machine_readings import group_of
from rn50_advisor.advisor.model.documents.ranked_fleet import ResultFile

SISTERS_LEAST = 3  # normal machines per odd one: with two machines it is unknown which one is normal
ODD_MOST = 5  # six machines of a kind are not odd
# Facts that identify a host model: with another number of cores it is another instance type, with other GPUs.
_HOST_MODEL_FACTS = ("cpu.model", "cpu.cores_seen")

Facts = Mapping[str, str]
Models = tuple[str, ...]  # of a machine's GPUs


def flaws(
    models: Models, results: Sequence[ResultFile], facts: Facts, kinds: Mapping[Models, Sequence[Facts]]
) -> tuple[str, ...]:
    """Returns the flaws of a machine. `kinds`: facts of all machines by their GPUs.

    Only a triage counts, since a job or a benchmark may have been given only some of the GPUs.
    """
    last = next((one for one in reversed(results) if one.kind == "triage"), None)
    if last is None:
        return ()
    # only the last triage counts: faults in earlier ones were fixed
    handed = (
        ("its triage advises to replace it" + f": {last.why}" * bool(last.why),) if last.state == "hand-back" else ()
    )
    fewer = _fewer_gpus(models, facts, kinds)
    return (*handed, fewer) if fewer else handed


def _fewer_gpus(own: Models, facts: Facts, kinds: Mapping[Models, Sequence[Facts]]) -> str:
    if len(set(own)) > 1 or len(kinds[own]) > ODD_MOST:
        return ""
    for other, sisters in kinds.items():
        if len(set(other)) > 1 or len(other) <= len(own) or len(sisters) < SISTERS_LEAST * len(kinds[own]):
            continue
        alike = _alike(facts, sisters)
        if own and own[0] == other[0] and alike is not False:
            return f"{len(own)} GPUs where {len(sisters)} others have {len(other)}: some are lost, or not given to the container"
        if not own and alike:
            seen = f"no GPU is seen where {len(sisters)} such machines have {group_of(other)}"
            return f"{seen}: the driver does not answer, or the container was given none"
    return ""


def _alike(facts: Facts, sisters: Sequence[Facts]) -> bool | None:
    """True if the machine's processors are those of most sisters; None if they are unknown."""
    matches = []
    for name in _HOST_MODEL_FACTS:
        usual = Counter(sister[name] for sister in sisters if name in sister).most_common(1)
        if name in facts and usual:
            matches.append(facts[name] == usual[0][0])
    return all(matches) if matches else None
