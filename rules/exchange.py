"""What the rules on communication read in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.core.analysis import Analysis
from advisor.core.findings import Where
from rules.reading import common, cpu_of_workers_s, model_of

DEFAULT_BUCKET_BYTES = 25 << 20  # DDP's, where the user names none


@dataclass(frozen=True, slots=True)
class Path:
    """What the way between two ranks should do at least: GB/s of each link, seconds for a message however small; and why."""

    gb_per_s: float
    latency_s: float
    why: str


# A part of what the slowest sound ones of their kind were seen to do.
_LOOPBACK = Path(0.30, 0.003, "ranks of one host")  # two gloo ranks on two busy cores: 0.5 GB/s, 1 to 3 ms
_PEERS = Path(3.0, 0.0005, "GPUs of one host")  # NCCL: an old PCIe slot of eight lanes has 6 GB/s
_OF_NIC = 0.5  # of the network card's nominal speed
_NETWORK_LATENCY_S = 0.002


def largest_model(a: Analysis) -> Mapping[str, Any] | None:
    """The options of the DistributedDataParallel with the most parameters, of any rank; None where there is none."""
    models = [model for facts in a.facts.values() if isinstance(facts, Mapping) for model in facts.get("ddp") or ()]
    return max(models, key=lambda model: float(model.get("total_parameter_size_bytes") or 0), default=None)


def wrapped_at(a: Analysis) -> Where | None:
    """Where that model is wrapped."""
    model = largest_model(a)
    return Where(str(model["file"]), int(model["line"])) if model and model.get("file") else None


def compresses(a: Analysis) -> bool:
    """A hook sends the gradients in half the bytes already, or in an unknown way of its own."""
    hook = str((largest_model(a) or {}).get("comm_hook") or "")
    return bool(hook) and "allreduce_hook" not in hook


def norms_s(a: Analysis) -> float:
    """Of the exposed time on the wire, what synchronised batch norm holds the ranks for, layer by layer."""
    return min(a.value("comm.wire_s"), a.get("collectives.norm_s") or 0.0)


def gradients_s(a: Analysis) -> float:
    """The rest of it."""
    return a.value("comm.wire_s") - norms_s(a)


def exchanges_of(a: Analysis) -> int:
    """How often DDP exchanges the gradients in a step."""
    return round(a.get("comm.exchanges") or 1.0)


def exchange_s(a: Analysis) -> float:
    """The whole exchange of a step's gradients, what the backward pass hides of it included."""
    exposed = gradients_s(a)
    return max(exposed, a.get("comm.span_s") or exposed)


def taken_from_computing(a: Analysis) -> float:
    """Of a second in which the exchange runs beside a rank's computing, what that gets done less.

    0 where cores are left beside those of the training threads. Elsewhere the CPU seconds that the exchange takes: what the job burns in a
    step beyond computing and loading, over the time that the exchange takes.
    """
    model, whole = model_of(a), exchange_s(a)
    if not model.allowed_cores or model.job_cpu_s is None or model.allowed_cores > model.ranks_of_host or whole <= 0:
        return 0.0
    delays, by_workers = a.by_rank("step.run_delay_s"), a.by_rank("loader.workers")
    own = {
        rank: sum(phases.values()) - delays.get(rank, 0.0) - (phases["input_wait"] if by_workers.get(rank) else 0.0)
        for rank, phases in model.own.items()
    }
    beyond = model.job_cpu_s - cpu_of_workers_s(a) - sum(a.of_host(own).values())
    return min(1.0, max(0.0, beyond / model.ranks_of_host / whole))


def computing_s(a: Analysis, *phases: str) -> float:
    """What at least half of the ranks take for these phases by themselves."""
    return common({rank: sum(own[phase] for phase in phases) for rank, own in model_of(a).own.items()})


def _backend(a: Analysis) -> str:
    """Of DDP's group, or of what is called from Python without it."""
    model = largest_model(a)
    if model is not None:
        return str(model.get("backend_name") or "")
    calls = [
        site for facts in a.facts.values() if isinstance(facts, Mapping) for site in facts.get("collectives") or ()
    ]
    most: Mapping[str, Any] = max(calls, key=lambda site: float(site.get("ns") or 0), default={})
    return str(most.get("backend") or "")


def several_hosts(a: Analysis) -> bool | None:
    """None where neither merged runs nor the launcher tell."""
    known = True if len(a.nodes) > 1 else None
    for facts in a.facts.values():
        told = facts.get("environment_rank") or {} if isinstance(facts, Mapping) else {}
        world, local = _number(told.get("WORLD_SIZE")), _number(told.get("LOCAL_WORLD_SIZE"))
        if world and local:
            known = world > local
    return known


def path_of(a: Analysis) -> Path | None:
    """None where it cannot be told what lies between the ranks."""
    backend = _backend(a)
    if several_hosts(a):
        gbit = a.get("net.gbit_per_s")
        return Path(_OF_NIC * gbit / 8, _NETWORK_LATENCY_S, f"half of the card's {gbit:g} Gbit/s") if gbit else None
    if "nccl" in backend:
        return _PEERS
    return _LOOPBACK if "gloo" in backend else None


def path_is_sound(a: Analysis) -> bool | None:
    """Whether the exchange took no longer than this path may for so many messages and bytes; None where one of them is not known."""
    carried, path = a.get("comm.bus_gb_per_s"), path_of(a)
    if carried is None or path is None:
        return None
    messages = a.get("comm.buckets") or max(a.by_rank("collectives.calls").values(), default=1.0)
    messages *= exchanges_of(a)
    wire = a.value("comm.wire_s")
    gigabytes = carried * max(wire, a.get("comm.span_s") or wire)  # as the rate was made
    return exchange_s(a) <= max(messages, 1.0) * path.latency_s + gigabytes / path.gb_per_s


def _number(text: object) -> int:
    try:
        return int(str(text))
    except ValueError:
        return 0
