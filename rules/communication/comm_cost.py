"""Shared by the rules on communication: the cost of the gradient exchange, and its estimate over other links."""

from __future__ import annotations

from dataclasses import dataclass

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.comm.exchanged_bytes import broadcasts_of, sent_share
from rn50_advisor.advisor.model.findings import Evidence, Fix, Saving, Where
from rn50_advisor.advisor.model.measures.comm_measures import (
    COLLECTIVES_BUFFERS_S,
    COLLECTIVES_BY_HAND_S,
    COLLECTIVES_CALLS,
    COLLECTIVES_MEGABYTES,
    COLLECTIVES_METRICS_S,
    COLLECTIVES_MODEL_S,
    COLLECTIVES_NORM_S,
    COLLECTIVES_STREAM_S,
    COMM_BUCKETS,
    COMM_BUS_GB_PER_S,
    COMM_EXCHANGES,
    COMM_MEGABYTES,
    COMM_SKEW_S,
    COMM_SPAN_S,
    COMM_WIRE_ERROR,
    COMM_WIRE_S,
    NET_GBIT_PER_S,
)
from rn50_advisor.advisor.model.measures.input_measures import LOADER_WORKERS
from rn50_advisor.advisor.model.measures.step_measures import STEP_RUN_DELAY_S
from rn50_advisor.probes.documents.collective_documents import CollectiveSite, DdpFacts
from rn50_advisor.rules.analysis_reading import common, cpu_of_workers_s, model_of

DEFAULT_BUCKET_BYTES = 25 << 20  # DDP's default


@dataclass(frozen=True, slots=True)
class Path:
    """The minimum that the path between two ranks should reach: GB/s per link, latency of a message in seconds, and the reason."""

    gb_per_s: float
    latency_s: float
    why: str


# A fraction of the slowest sound path of each kind that was measured.
_LOOPBACK = Path(0.30, 0.003, "ranks of one host")  # two gloo ranks on two busy cores: 0.5 GB/s, 1 to 3 ms
_PEERS = Path(3.0, 0.0005, "GPUs of one host")  # NCCL: an old PCIe slot of eight lanes has 6 GB/s
OF_NIC = 0.5  # of the network card's nominal speed
_NETWORK_LATENCY_S = 0.002
# Rates at which gloo copies, sends and sums on CPUs over any link, at best and at worst: for two ranks on two cores, messages of 7 to 21 MB
# that were waited for after the backward pass reached 0.77 to 1.1, their latency included.
_GLOO_GB_PER_S = (1.1, 0.75)
# Up to this multiple of the exposed time the exchange is continuous. Beyond it, part of it is waiting for the next bucket: over
# one link, nine buckets during a long backward pass seemed to carry 0.16 GB/s, one bucket after it 0.34.
_EXCHANGE_RATIO_MAX = 2.0


def largest_model(a: Analysis) -> DdpFacts | None:
    """The options of the DistributedDataParallel with the most parameters on any rank; None if there is none."""
    models = [model for facts in a.rank_facts.values() for model in facts.get("ddp", ())]
    return max(models, key=lambda model: model.get("total_parameter_size_bytes", 0), default=None)


def wrapped_at(a: Analysis) -> Where | None:
    """The line that wraps that model."""
    model = largest_model(a)
    return Where(model["file"], model["line"]) if model and model.get("file") else None


def compresses(a: Analysis) -> bool:
    """A hook already halves the gradient bytes, or sends them in an unknown way."""
    return sent_share((largest_model(a) or DdpFacts()).get("comm_hook")) != 1.0


def norms_s(a: Analysis) -> float:
    """The part of the exposed transfer time that belongs to synchronised batch norm's collectives."""
    return min(a.value(COMM_WIRE_S), a.get(COLLECTIVES_NORM_S) or 0.0)


def metrics_s(a: Analysis) -> float:
    """The part that belongs to collectives for metrics, where gradients are exchanged too: by DDP, or by hand."""
    if largest_model(a) is None and not a.get(COLLECTIVES_BY_HAND_S):
        return 0.0
    return min(a.value(COMM_WIRE_S) - norms_s(a), a.get(COLLECTIVES_METRICS_S) or 0.0)


def buffers_s(a: Analysis) -> float:
    """The part that belongs to DDP's broadcasts of buffers before the forward pass."""
    return min(a.value(COMM_WIRE_S) - norms_s(a) - metrics_s(a), a.get(COLLECTIVES_BUFFERS_S) or 0.0)


def model_s(a: Analysis) -> float:
    """The part that belongs to what the model or its loss exchanges itself, where gradients are exchanged too: by DDP, or by hand."""
    if largest_model(a) is None and not a.get(COLLECTIVES_BY_HAND_S):
        return 0.0
    left = a.value(COMM_WIRE_S) - norms_s(a) - metrics_s(a) - buffers_s(a)
    return min(left, a.get(COLLECTIVES_MODEL_S) or 0.0)


def others_s(a: Analysis) -> float:
    """The exposed transfer time of everything but gradients."""
    return norms_s(a) + metrics_s(a) + buffers_s(a) + model_s(a)


def gradients_s(a: Analysis) -> float:
    """The exposed transfer time of gradients: the rest."""
    return a.value(COMM_WIRE_S) - others_s(a)


def proven_s(a: Analysis, seconds: float) -> float:
    """Seconds of exposed transfer time less two standard errors: few or uneven steps do not prove their mean."""
    return seconds * (1.0 - (a.get(COMM_WIRE_ERROR) or 0.0))


def exchanges_of(a: Analysis) -> int:
    """Gradient exchanges of DDP per step."""
    return round(a.get(COMM_EXCHANGES) or 1.0)


def messages_of(a: Analysis) -> float:
    """Messages of a step's exchange: DDP's buckets, or calls from Python."""
    messages = a.get(COMM_BUCKETS) or max(a.by_rank(COLLECTIVES_CALLS).values(), default=1.0)
    return max(1.0, messages * exchanges_of(a))


def exchange_s(a: Analysis) -> float:
    """The whole gradient exchange of a step, including the part that the backward pass hides."""
    exposed = gradients_s(a)
    return max(exposed, a.get(COMM_SPAN_S) or exposed)


def library_of(a: Analysis) -> str:
    """The library that moves most bytes by collectives called from Python; empty if the job's own code does."""
    most = max(python_calls(a), key=lambda site: site.get("bytes", 0), default=CollectiveSite())
    return most.get("library", "")


def hidden_at_most_s(a: Analysis) -> float:
    """Seconds of a step's collectives that passes may hide: those that a library calls on a stream of its own. Their length is not known.

    Sharded parameters are gathered in both passes, gradients exchanged in the backward pass.
    """
    if largest_model(a) is not None or not a.by_rank(COLLECTIVES_STREAM_S):
        return 0.0
    library = library_of(a)
    return computing_s(a, "backward", *(("forward",) if library == "FSDP" else ())) if library else 0.0


def taken_from_computing(a: Analysis) -> float:
    """The share of computing lost while the exchange overlaps with it.

    0 if the training threads leave cores free. Otherwise the CPU seconds of the exchange: what the job uses in a
    step beyond computing and loading, divided by the length of the exchange.
    """
    whole, work_s = exchange_s(a), _work_s(a)
    return min(1.0, work_s / whole) if work_s is not None and whole > 0 else 0.0


def _work_s(a: Analysis) -> float | None:
    """CPU seconds of a rank's step beyond computing and loading. None if cores are left over: computing may then use several."""
    model = model_of(a)
    if not model.allowed_cores or model.job_cpu_s is None or model.allowed_cores > model.ranks_of_host:
        return None
    delays, by_workers = a.by_rank(STEP_RUN_DELAY_S), a.by_rank(LOADER_WORKERS)
    own = {
        rank: sum(phases.values()) - delays.get(rank, 0.0) - (phases["input_wait"] if by_workers.get(rank) else 0.0)
        for rank, phases in model.own.items()
    }
    beyond = model.job_cpu_s - cpu_of_workers_s(a) - sum(a.of_host(own).values())
    return max(0.0, beyond / model.ranks_of_host)


def computing_s(a: Analysis, *phases: str) -> float:
    """The time that at least half of the ranks take for these phases by themselves."""
    return common({rank: sum(own[phase] for phase in phases) for rank, own in model_of(a).own.items()})


def backend_of(a: Analysis) -> str:
    """The backend of DDP's group, or of collectives called from Python without DDP."""
    model = largest_model(a)
    if model is not None:
        return model.get("backend_name") or ""
    most = max(python_calls(a), key=lambda site: site.get("ns", 0), default=CollectiveSite())
    return most.get("backend", "")


def python_calls(a: Analysis) -> list[CollectiveSite]:
    """Lines that call collectives from Python, of all ranks."""
    every = a.rank_facts.values()
    return [site for facts in every for site in facts.get("collectives", ()) if site not in broadcasts_of(facts)]


def several_hosts(a: Analysis) -> bool | None:
    """True if the job spans hosts; None if neither merged runs nor the launcher show it."""
    known = True if len(a.nodes) > 1 else None
    for facts in a.rank_facts.values():
        variables = facts.get("environment_rank", {})
        world, local = _number(variables.get("WORLD_SIZE")), _number(variables.get("LOCAL_WORLD_SIZE"))
        if world and local:
            known = world > local
    return known


def variables_of(a: Analysis) -> dict[str, str]:
    """The environment in which the job was started, and what its ranks have beyond that: a script in between may set it."""
    ranks = [facts.get("environment_rank", {}) for _, facts in sorted(a.rank_facts.items())]
    of_ranks = {name: value for variables in reversed(ranks) for name, value in variables.items() if value is not None}
    return {**a.meta.environment.get("variables", {}), **of_ranks}


def path_of(a: Analysis, backend: str = "") -> Path | None:
    """The path of the job's backend, or of another. None if the connection between the ranks is unknown."""
    backend = backend or backend_of(a)
    if several_hosts(a):
        gbit = a.get(NET_GBIT_PER_S)
        return Path(OF_NIC * gbit / 8, _NETWORK_LATENCY_S, f"a card of {gbit:g} Gbit/s") if gbit else None
    if "nccl" in backend:
        return _PEERS
    return _LOOPBACK if "gloo" in backend else None


def path_is_sound(a: Analysis) -> bool | None:
    """True if the exchange took no longer than this path may take for its messages and bytes; None if one of these is unknown."""
    gigabytes, path = gigabytes_of(a), path_of(a)
    if gigabytes is None or path is None:
        return None
    return exchange_s(a) <= messages_of(a) * path.latency_s + gigabytes / path.gb_per_s


def carried_evidence(a: Analysis) -> tuple[Evidence, ...]:
    """The bandwidth that each link reached, against what it should reach; nothing if the bytes are not known."""
    carried, path, wire = a.get(COMM_BUS_GB_PER_S), path_of(a), a.value(COMM_WIRE_S)
    if carried is None:
        return ()
    least = "at least, " if (a.get(COMM_SPAN_S) or 0.0) > _EXCHANGE_RATIO_MAX * wire else ""
    note = f"{least}over each link, 2(N-1)/N of the bytes"
    if path is None:
        return (Evidence.of(COMM_BUS_GB_PER_S, carried, note=note),)
    if carried < path.gb_per_s and path_is_sound(a):
        note = "over each link: latency-bound, too few bytes for the bandwidth to matter"
        return (Evidence.of(COMM_BUS_GB_PER_S, carried, path.gb_per_s, note, form="explains"),)
    note += f"; {path.why} should reach {path.gb_per_s:.2g} GB/s at least"
    return (Evidence.of(COMM_BUS_GB_PER_S, carried, path.gb_per_s, note),)


def gigabytes_of(a: Analysis) -> float | None:
    """Gigabytes that each link carries in a step, 2(N-1)/N of the bytes; None if these are not known."""
    carried, wire = a.get(COMM_BUS_GB_PER_S), a.value(COMM_WIRE_S)
    return None if carried is None else carried * max(wire, a.get(COMM_SPAN_S) or wire)  # as the rate was computed


def averages_by_hand(a: Analysis, share: float) -> bool:
    """True if at least this share of the exposed transfer time lies in calls between backward and optimizer that the job's own code makes.

    A library that averages there (DeepSpeed) cannot be changed.
    """
    found = python_calls(a)
    total = sum(site.get("ns", 0) for site in found)
    own = sum(site.get("ns", 0) for site in found if not site.get("library"))
    return (a.get(COLLECTIVES_BY_HAND_S) or 0.0) >= share * gradients_s(a) and (total == 0 or own >= 0.5 * total)


def megabytes_of(a: Analysis) -> float:
    """Gradient megabytes of a rank's step, as DDP counts them or as Python's calls carry them; 0 if they are not known."""
    return a.get(COMM_MEGABYTES) or max(a.by_rank(COLLECTIVES_MEGABYTES).values(), default=0.0)


def _called_at(a: Analysis) -> Where | None:
    """The job's line with the most time in collectives."""
    own = [site for site in python_calls(a) if not site.get("library") and site.get("file")]
    most = max(own, key=lambda site: site.get("ns", 0), default=None)
    return Where(most["file"], most["line"]) if most else None


def wrapping(a: Analysis, bucket_cap_mb: int | None = None) -> Fix:
    """The fix of a loop that averages gradients by calls of its own."""
    cap = "" if bucket_cap_mb is None else f", bucket_cap_mb={bucket_cap_mb}"
    return Fix(
        "wrap the model in DistributedDataParallel and remove the loop that averages gradients",
        f"model = torch.nn.parallel.DistributedDataParallel(model{cap})",
        _called_at(a),
        "small change",
    )


def exposed_at(
    a: Analysis, gb_per_s: float, *, least_s: float = 0.0, beside_s: float = 0.0
) -> tuple[float, float] | None:
    """Seconds per step, at best and at worst, for which the ranks would wait for gradients over links of this bandwidth.

    The ring takes t = 2(N-1)/N * bytes / rate, at best no less than `least_s`, at worst `beside_s` more: latencies and the ranks' CPU
    work per byte do not shrink with a faster link. Backward hides as much as today, but nothing of the last bucket; at worst the same
    share of the exchange as today remains when backward ends. None if the bytes are not known.
    """
    gigabytes, whole, exposed, last = gigabytes_of(a), exchange_s(a), gradients_s(a), _last_bucket(a)
    if gigabytes is None or whole <= 0:
        return None
    ring_s = gigabytes / gb_per_s
    best, worst = (
        min(seconds * exposed / whole, max(seconds - (whole - exposed), last * seconds))
        for seconds in (min(whole, max(ring_s, least_s)), min(whole, ring_s + beside_s))
    )
    return best, max(best, worst)


def _last_bucket(a: Analysis) -> float:
    """Share of the gradients in the bucket that is sent last, when no backward pass remains to hide it."""
    sizes = (largest_model(a) or DdpFacts()).get("bucket_bytes", [])
    return sizes[-1] / sum(sizes) if sum(sizes) > 0 else 1.0 / max(a.get(COMM_BUCKETS) or 1.0, 1.0)


def wire_left(
    a: Analysis, most: float | None, least: float | None, remains: tuple[float, float], *, beside_s: float = 0.0
) -> tuple[float, float]:
    """Transfer seconds that remain, at best and at worst, if links carry `most` and `least` GB/s.

    `remains`: the shares that remain of other collectives, and of everything if rate or bytes are not known.
    """
    others, gradients = others_s(a), gradients_s(a)
    best = exposed_at(a, most) if most else None
    worst = exposed_at(a, least, beside_s=beside_s) if least else None
    return (
        remains[0] * others + (remains[0] * gradients if best is None else best[0]),
        remains[1] * others + (remains[1] * gradients if worst is None else worst[1]),
    )


def on_faster_links(a: Analysis, gb_per_s: float) -> Saving | None:
    """The saving with links of this bandwidth. None if today's is unknown or may be as high.

    Buckets that come one by one do not load the links fully, so today's upper bound is all bytes in the exposed time.
    """
    gigabytes = gigabytes_of(a)
    if gigabytes is None or gigabytes >= gb_per_s * gradients_s(a):
        return None
    least_s, beside_s = _own_s(a)
    left = exposed_at(a, gb_per_s, least_s=least_s, beside_s=beside_s)
    if left is None:
        return None
    model, skew_s = model_of(a), a.get(COMM_SKEW_S)
    of_work_s = model.jitter_s if skew_s is None else min(model.jitter_s, skew_s)
    best, worst = (
        model.step_if(
            {},
            wire_s=others_s(a) + seconds,
            jitter_s=of_work_s + (model.jitter_s - of_work_s) * seconds / gradients_s(a),
        )
        for seconds in left
    )
    return model.saving(model.at_best(best), worst, f"links that reach {8 * gb_per_s:g} Gbit/s each")


def _own_s(a: Analysis) -> tuple[float, float]:
    """The part of the exchange that no link shortens, at least and at most: message latency, and gloo's CPU work.

    For DDP only the last message of each exchange counts: nothing hides its latency.
    """
    path, backend = path_of(a), backend_of(a)
    messages = exchanges_of(a) if largest_model(a) else messages_of(a)
    latency_s = path.latency_s if path else _NETWORK_LATENCY_S
    if "gloo" not in backend or "nccl" in backend:
        return 0.0, messages * latency_s
    gigabytes = gigabytes_of(a) or 0.0
    return gigabytes / _GLOO_GB_PER_S[0], gigabytes / _GLOO_GB_PER_S[1] + (messages - 1) * latency_s


def _number(text: object) -> int:
    try:
        return int(str(text))
    except ValueError:
        return 0
