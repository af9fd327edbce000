"""Identifies a run file's job and node, from the environment that launchers give ranks and from the agent's own environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.model.recording import Recording

_NO_ELASTIC_ID = ("", "none")  # torchrun's default does not identify a job
_LOCAL = ("127.0.0.1", "localhost", "::1", "0.0.0.0")
# The agents of one job start within this time, even if a person starts them one by one.
STARTS_WITHIN_S = 900.0


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a run. `keys`: names of the job, each sufficient; empty if ranks found each other by an address in the script."""

    keys: frozenset[str]
    host: str
    node_rank: int | None
    world_size: int | None
    ranks: tuple[int, ...]
    script: str
    began_unix_s: float
    last_unix_s: float


def identity_of(recording: Recording) -> Identity:
    meta, environments = recording.meta, list(_environments(recording))
    return Identity(
        keys=frozenset(key for variables in environments for key in _keys(variables)),
        host=meta.host,
        node_rank=next((n for variables in environments if (n := _node_rank(variables)) is not None), None),
        world_size=_world_size(recording, environments),
        ranks=tuple(sorted(process_by_rank(recording.processes).keys() | recording.steps.keys())),
        script=next((word.rpartition("/")[2] for word in meta.argv if word.endswith(".py")), ""),
        began_unix_s=meta.started_unix_s,
        last_unix_s=meta.started_unix_s + (meta.last_ns - meta.started_ns) / 1e9,
    )


def same_job(a: Identity, b: Identity) -> bool:
    """True if both are nodes of one job: close in time, without common ranks, and with a common key or, without keys, of one world."""
    together = a.began_unix_s <= b.last_unix_s + STARTS_WITHIN_S and b.began_unix_s <= a.last_unix_s + STARTS_WITHIN_S
    near = abs(a.began_unix_s - b.began_unix_s) <= STARTS_WITHIN_S
    distinct = not takes_place(a, b)
    parts = a.world_size == b.world_size and (a.world_size or 0) >= len(a.ranks) + len(b.ranks)
    one_world = not a.keys and not b.keys and parts and a.script == b.script != ""
    return together and near and distinct and (bool(a.keys & b.keys) or one_world)


def takes_place(a: Identity, b: Identity) -> bool:
    """True if both occupy the same place: a common rank, or the same host while ranks are unknown."""
    return bool(set(a.ranks) & set(b.ranks)) or (a.host == b.host and not (a.ranks and b.ranks))


def _environments(recording: Recording) -> Iterator[Mapping[str, Any]]:
    """Yields the environment of each rank, then the agent's."""
    for process in process_by_rank(recording.processes).values():
        yield recording.facts.get(process.pid, {}).get("environment_rank") or {}
    yield recording.meta.environment.get("variables") or {}


def _world_size(recording: Recording, environments: list[Mapping[str, Any]]) -> int | None:
    """Returns the largest world size that launchers or DDP report; DDP also knows a group that was made without a launcher."""
    models = [model for facts in recording.facts.values() for model in facts.get("ddp") or ()]
    sizes = [variables.get("WORLD_SIZE") for variables in environments] + [model.get("world_size") for model in models]
    return max((n for size in sizes if (n := _number(size))), default=None)


def _keys(variables: Mapping[str, Any]) -> Iterator[str]:
    address, port = str(variables.get("MASTER_ADDR") or ""), str(variables.get("MASTER_PORT") or "")
    elastic = str(variables.get("TORCHELASTIC_RUN_ID") or "")
    if address and port and address not in _LOCAL:
        yield f"master:{address}:{port}"
    if elastic not in _NO_ELASTIC_ID:
        yield f"elastic:{elastic}"
    if variables.get("SLURM_JOB_ID"):
        yield f"slurm:{variables['SLURM_JOB_ID']}.{variables.get('SLURM_STEP_ID', '')}"


def _node_rank(variables: Mapping[str, Any]) -> int | None:
    found = (_number(variables.get(name)) for name in ("GROUP_RANK", "NODE_RANK", "SLURM_NODEID"))
    return next((number for number in found if number is not None), None)


def _number(text: Any) -> int | None:
    try:
        return int(text)
    except (TypeError, ValueError):
        return None
