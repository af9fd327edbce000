"""What the rules on communication read in the same way, and what the exchange of gradients would take over other links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.comm.exchanged_bytes import sent_share
from rn50_advisor.advisor.model.findings import Evidence, Saving, Where
from rn50_advisor.rules.analysis_reading import common, cpu_of_workers_s, model_of

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
OF_NIC = 0.5  # of the network card's nominal speed
_NETWORK_LATENCY_S = 0.002
# GB/s that gloo copies, sends and sums on CPUs, whatever the wire, at best and at worst: of two ranks on two cores, messages of 7 to 21 MB
# that were waited for after the backward pass went at 0.77 to 1.1, their latency included.
_GLOO = (1.1, 0.75)
# Times the exposed time, up to which the whole exchange is one stretch. Beyond, a part of it is waiting for the next bucket: with nine
# buckets beside a long backward pass it seemed to carry 0.16 GB/s, with one bucket after it 0.34 over the same wire.
_WHOLE = 2.0


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
    return sent_share((largest_model(a) or {}).get("comm_hook")) != 1.0


def norms_s(a: Analysis) -> float:
    """Of the exposed time on the wire, what synchronised batch norm holds the ranks for, layer by layer."""
    return min(a.value("comm.wire_s"), a.get("collectives.norm_s") or 0.0)


def gradients_s(a: Analysis) -> float:
    """The rest of it."""
    return a.value("comm.wire_s") - norms_s(a)


def exchanges_of(a: Analysis) -> int:
    """How often DDP exchanges the gradients in a step."""
    return round(a.get("comm.exchanges") or 1.0)


def messages_of(a: Analysis) -> float:
    """Messages of a step's exchange: DDP's buckets, or calls from Python."""
    messages = a.get("comm.buckets") or max(a.by_rank("collectives.calls").values(), default=1.0)
    return max(1.0, messages * exchanges_of(a))


def exchange_s(a: Analysis) -> float:
    """The whole exchange of a step's gradients, what the backward pass hides of it included."""
    exposed = gradients_s(a)
    return max(exposed, a.get("comm.span_s") or exposed)


def taken_from_computing(a: Analysis) -> float:
    """Of a second in which the exchange runs beside a rank's computing, what that gets done less.

    0 where cores are left beside those of the training threads. Elsewhere the CPU seconds that the exchange takes: what the job burns in a
    step beyond computing and loading, over the time that the exchange takes.
    """
    whole, work_s = exchange_s(a), _work_s(a)
    return min(1.0, work_s / whole) if work_s is not None and whole > 0 else 0.0


def _work_s(a: Analysis) -> float | None:
    """CPU seconds of a rank's step beyond computing and loading. None where cores are left: computing may take several of them then."""
    model = model_of(a)
    if not model.allowed_cores or model.job_cpu_s is None or model.allowed_cores > model.ranks_of_host:
        return None
    delays, by_workers = a.by_rank("step.run_delay_s"), a.by_rank("loader.workers")
    own = {
        rank: sum(phases.values()) - delays.get(rank, 0.0) - (phases["input_wait"] if by_workers.get(rank) else 0.0)
        for rank, phases in model.own.items()
    }
    beyond = model.job_cpu_s - cpu_of_workers_s(a) - sum(a.of_host(own).values())
    return max(0.0, beyond / model.ranks_of_host)


def computing_s(a: Analysis, *phases: str) -> float:
    """What at least half of the ranks take for these phases by themselves."""
    return common({rank: sum(own[phase] for phase in phases) for rank, own in model_of(a).own.items()})


def backend_of(a: Analysis) -> str:
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


def path_of(a: Analysis, backend: str = "") -> Path | None:
    """That of the job's backend, or of another. None where it cannot be told what lies between the ranks."""
    backend = backend or backend_of(a)
    if several_hosts(a):
        gbit = a.get("net.gbit_per_s")
        return Path(OF_NIC * gbit / 8, _NETWORK_LATENCY_S, f"a card of {gbit:g} Gbit/s") if gbit else None
    if "nccl" in backend:
        return _PEERS
    return _LOOPBACK if "gloo" in backend else None


def path_is_sound(a: Analysis) -> bool | None:
    """Whether the exchange took no longer than this path may for so many messages and bytes; None where one of them is not known."""
    gigabytes, path = _gigabytes(a), path_of(a)
    if gigabytes is None or path is None:
        return None
    return exchange_s(a) <= messages_of(a) * path.latency_s + gigabytes / path.gb_per_s


def carried_evidence(a: Analysis) -> tuple[Evidence, ...]:
    """What each link carried of the exchange, against what it should; nothing where the bytes are not known."""
    carried, path, wire = a.get("comm.bus_gb_per_s"), path_of(a), a.value("comm.wire_s")
    if carried is None:
        return ()
    least = "at least, " if (a.get("comm.span_s") or 0.0) > _WHOLE * wire else ""
    note = f"{least}over each link, 2(N-1)/N of the bytes"
    if path is not None and carried < path.gb_per_s and path_is_sound(a):
        note = "over each link: so few bytes that each message's latency takes the time, not the bandwidth"
    elif path is not None:
        note += f"; {path.why} should carry {path.gb_per_s:.2g} GB/s at least"
    return (Evidence("comm.bus_gb_per_s", carried, "GB/s", path.gb_per_s if path else None, note),)


def _gigabytes(a: Analysis) -> float | None:
    """What each link carries in a step, 2(N-1)/N of the bytes; None where these are not known."""
    carried, wire = a.get("comm.bus_gb_per_s"), a.value("comm.wire_s")
    return None if carried is None else carried * max(wire, a.get("comm.span_s") or wire)  # as the rate was made


def exposed_at(
    a: Analysis, gb_per_s: float, *, least_s: float = 0.0, beside_s: float = 0.0
) -> tuple[float, float] | None:
    """Seconds of a step, at best and at worst, for which the ranks would wait for gradients over links that carry so much each.

    The ring takes t = 2(N-1)/N * bytes / rate, at best no less than `least_s`, at worst `beside_s` more: latencies, and what the ranks'
    CPUs do for each byte, shrink with no wire. Of it backward hides what it hides today, but nothing of the last bucket; at worst as much
    is left of it when backward ends as today. None where the bytes are not known.
    """
    gigabytes, whole, exposed, last = _gigabytes(a), exchange_s(a), gradients_s(a), _last_bucket(a)
    if gigabytes is None or whole <= 0:
        return None
    ring_s = gigabytes / gb_per_s
    best, worst = (
        min(seconds * exposed / whole, max(seconds - (whole - exposed), last * seconds))
        for seconds in (min(whole, max(ring_s, least_s)), min(whole, ring_s + beside_s))
    )
    return best, max(best, worst)


def _last_bucket(a: Analysis) -> float:
    """Share of the gradients in the bucket that is sent last: no backward pass is left to hide it."""
    sizes = [float(size) for size in (largest_model(a) or {}).get("bucket_bytes") or ()]
    return sizes[-1] / sum(sizes) if sum(sizes) > 0 else 1.0 / max(a.get("comm.buckets") or 1.0, 1.0)


def wire_left(
    a: Analysis, most: float | None, least: float | None, remains: tuple[float, float], *, beside_s: float = 0.0
) -> tuple[float, float]:
    """Seconds on the wire that remain, at best and at worst, where links carry `most` and `least` GB/s.

    Of batch norm's collectives, and of all where rate or bytes are not known, it is these shares.
    """
    norms, gradients = norms_s(a), gradients_s(a)
    best = exposed_at(a, most) if most else None
    worst = exposed_at(a, least, beside_s=beside_s) if least else None
    return (
        remains[0] * norms + (remains[0] * gradients if best is None else best[0]),
        remains[1] * norms + (remains[1] * gradients if worst is None else worst[1]),
    )


def on_faster_links(a: Analysis, gb_per_s: float) -> Saving | None:
    """The step with links that carry so much each. None where nobody knows what they carry now, or it may be as much.

    What they carry between buckets that come one by one tells little of what they could: no more than all bytes in the exposed time.
    """
    gigabytes = _gigabytes(a)
    if gigabytes is None or gigabytes >= gb_per_s * gradients_s(a):
        return None
    least_s, beside_s = _own_s(a)
    left = exposed_at(a, gb_per_s, least_s=least_s, beside_s=beside_s)
    if left is None:
        return None
    model, skew_s = model_of(a), a.get("comm.skew_s")
    of_work_s = model.jitter_s if skew_s is None else min(model.jitter_s, skew_s)
    best, worst = (
        model.step_if(
            {},
            wire_s=norms_s(a) + seconds,
            jitter_s=of_work_s + (model.jitter_s - of_work_s) * seconds / gradients_s(a),
        )
        for seconds in left
    )
    return model.saving(model.at_best(best), worst, f"links that carry {8 * gb_per_s:g} Gbit/s each")


def _own_s(a: Analysis) -> tuple[float, float]:
    """Of the exchange, what no link makes shorter: at least, and at most. Messages have their latency, and gloo its work.

    Of DDP's messages the last of each exchange counts: nothing hides its latency.
    """
    path, backend = path_of(a), backend_of(a)
    messages = exchanges_of(a) if largest_model(a) else messages_of(a)
    latency_s = path.latency_s if path else _NETWORK_LATENCY_S
    if "gloo" not in backend or "nccl" in backend:
        return 0.0, messages * latency_s
    gigabytes = _gigabytes(a) or 0.0
    return gigabytes / _GLOO[0], gigabytes / _GLOO[1] + (messages - 1) * latency_s


def _number(text: object) -> int:
    try:
        return int(str(text))
    except ValueError:
        return 0
