"""Network-bound gradient exchange.

What it does: finds steps in which even the rank that arrives last still waits for the gradient exchange.

Fires when: exposed communication of the last rank, less two standard errors, ≥ 15 % of the step; or all but one of a step's exchanges, with
the CPU time that they take from the backward pass which hides them.

Why it is slow: the all-reduce takes longer than the backward pass that hides it. Waiting for a straggler is not
counted: for one collective, the shortest duration over the ranks is the transfer; the rest is waiting for the last
arrival.

Evidence: the last rank's exposed communication as a share of the step, from DistributedDataParallel's own timestamps;
the gradient bytes; the bandwidth that each link reached, against what the path between the ranks should reach.

Fix: fewer bytes (bf16 or fp16 compression hook), fewer exchanges (gradient accumulation under `no_sync`), more compute
per exchange (a larger batch per rank), or a faster path (NVLink, InfiniBand; fewer nodes). Of many small collectives that the job's own
code calls one after the other: one for all gradients.

Estimate: half the bytes take half the transfer time, and accumulating over two batches halves it too. The gain never
exceeds the exposed communication. If backward hides part of the exchange, half of the whole exchange comes off the
exposed part. For libraries that exchange on a stream of their own (FSDP, DeepSpeed) that part is not known: at best the
passes hide as much as they can. FSDP between CPUs is advised to keep its parameters gathered first, a third of the bytes: not every CPU
computes in bfloat16. A loop that already accumulates but exchanges after each of its batches only needs to exchange after the
last: one such exchange remains, and at best the caches stay warm. Both forward and backward of the others belong under
`no_sync`: a forward outside it has its gradients exchanged all the same.

One collective instead of many small ones takes at worst three tenths of their time.

A faster path has its own estimate if the bytes are known. It follows the ring, with 2(N-1)/N of the bytes over the new
rate. Latencies, and gloo's CPU work for each byte, do not shrink with a faster link. The rates are those that each link
reaches in practice, not the nominal ones. On a single host whose path is sound already there is no such estimate.

Synchronised batch norm makes the ranks wait in collectives of its own. If these dominate, the finding names them and
their fix (from 32 samples per rank on, COM006 reports that they are not needed).

False alarms: waiting for a straggler (COM002 names it). A slow rank explains a slow exchange only if it costs nearly as
much, because the time counted here already excludes waiting for it.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, Saving, Where
from rn50_advisor.advisor.model.job_changes import Expression, GradientsKept, Invocation, Setup
from rn50_advisor.advisor.model.measures.comm_measures import (
    COLLECTIVES_HELD_S,
    COLLECTIVES_MEGABYTES,
    COLLECTIVES_NORM_S,
    COLLECTIVES_STREAM_S,
    COMM_BUS_GB_PER_S,
    COMM_MEGABYTES,
    COMM_SPAN_S,
    COMM_WIRE_S,
)
from rn50_advisor.advisor.model.measures.host_measures import THREADS_INTRA_OP
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration, seconds_range, speedup_range
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.communication.comm_cost import (
    buffers_s,
    carried_evidence,
    compresses,
    exchange_s,
    exchanges_of,
    gradients_s,
    hidden_at_most_s,
    largest_model,
    library_of,
    messages_of,
    metrics_s,
    model_s,
    norms_s,
    on_faster_links,
    others_s,
    path_is_sound,
    path_of,
    proven_s,
    python_calls,
    several_hosts,
    taken_from_computing,
    wrapped_at,
)
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Exposed time of the only exchange in a step, relative to each of several. Three jobs with 4 and 8 exchanges in a
# step, at 1 and 3 Gb/s: 0.93 to 1.01.
_SINGLE_EXCHANGE_RATIO = (0.8, 1.2)
# Of three exchanges of the model's size (parameters twice, gradients once) two are left, if the wire carries each as fast as before. Two
# ranks on one host became 1.06 to 1.10 times as fast.
_LEFT_GATHERED_ONCE = (0.6, 0.8)
_CALLS_MIN = 8
# Time of one collective beside that of many small ones, its copies included. Two gloo ranks, both by turns: 0.02 to 0.10 for 10, 34 and 100
# tensors of 4 to 80 kB, 0.26 for 34 of 240 kB.
_LEFT_OF_ONE_MESSAGE_MAX = 0.3
# Ethernet speeds. Speeds that gain nothing, or no more than the speed before, are not shown.
_RATES_GBIT_PER_S = (10.0, 25.0, 100.0)


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    wire, step = a.value(COMM_WIRE_S) - metrics_s(a) - buffers_s(a) - model_s(a), a.value(STEP_TIME_S)
    exposed, needless = proven_s(a, wire) >= t["wire"] * step, _needless_s(a)
    level = severity((wire if exposed else needless) / step)
    if not (exposed or needless >= t["wire"] * step) or level is None:
        return Clear(RULE.id)
    by_norms = exposed and norms_s(a) > gradients_s(a)
    saving = _saving_of_norms(a) if by_norms else _saving(a, hidden_too=not exposed)
    title = "Network transfer: gradient exchange longer than the backward pass"
    if by_norms:
        title = "Synchronized batch norm: ranks wait at every layer"
    elif not exposed:
        title = f"Gradient exchange after each of a step's {exchanges_of(a)} batches"
    return Finding(
        rule=RULE.id,
        title=title,
        severity=level,
        confidence=confidence(a),
        # other advice may gain more than half the bytes do
        seconds_per_step=sum(saving.seconds_per_step) / 2,
        evidence=_evidence(a, t) if exposed else (_needless_evidence(a, t), *_evidence(a, t)[1:]),
        fixes=_FIXES_OF_NORMS if by_norms else _fixes(a),
        saving=saving,
    )


def _needless_s(a: Analysis) -> float:
    """Seconds of a step, less two standard errors, that all but one of its exchanges take, with what they take from computing."""
    times = exchanges_of(a)
    # with several threads for one operation the job's CPU time is theirs, too, not only that of the exchange
    alone = set(a.by_rank(THREADS_INTRA_OP).values()) == {1.0}
    return proven_s(a, gradients_s(a)) * (1 - 1 / times) + (_beside_s(a) if alone else 0.0)


def _beside_s(a: Analysis) -> float:
    """What all but one of a step's exchanges take from the computing that hides them: it is not free if the same cores send the bytes."""
    return taken_from_computing(a) * (exchange_s(a) - gradients_s(a)) * (1 - 1 / exchanges_of(a))


def _needless_evidence(a: Analysis, t: Thresholds) -> Evidence:
    step, times, beside = a.value(STEP_TIME_S), exchanges_of(a), _beside_s(a)
    note = (
        f"of a {duration(step)} step, in {times - 1} of {times} exchanges: {duration(beside)} of CPU time that they take from the "
        "backward pass, and what follows it"
    )
    return Evidence("needless exchanges", _needless_s(a), "s", t["wire"] * step, note)


def _saving(a: Analysis, *, hidden_too: bool = False) -> Saving:
    """The saving with half the gradient bytes; other collectives stay as they are.

    `hidden_too`: the finding rests on what hidden exchanges take from computing, of which at worst half comes back.
    """
    model, others, wire, times = model_of(a), others_s(a), gradients_s(a), exchanges_of(a)
    if calls := _small_calls(a):
        best, worst = (model.step_if({}, wire_s=others + left * wire) for left in (1 / calls, _LEFT_OF_ONE_MESSAGE_MAX))
        return model.saving(best, worst, f"one collective per step instead of {calls:.0f}")
    if times > 1:
        best, worst = (
            model.step_if({}, wire_s=others + min(wire, share * wire / times)) for share in _SINGLE_EXCHANGE_RATIO
        )
        beside_s = _beside_s(a)
        worst -= 0.5 * beside_s if hidden_too else 0.0
        return model.saving(model.at_best(best - beside_s), worst, f"one exchange per step instead of {times}")
    if _gathers_once_first(a):
        best, worst = (model.step_if({}, wire_s=others + left * wire) for left in _LEFT_GATHERED_ONCE)
        return model.saving(best, worst, "a third fewer bytes: parameters are gathered once per step")
    half = max(0.0, wire - 0.5 * (a.get(COMM_SPAN_S) or wire + hidden_at_most_s(a)))
    return model.saving(
        model.step_if({}, wire_s=others + min(0.4 * wire, half)),
        model.step_if({}, wire_s=others + 0.6 * wire),
        "half the exchanges: gradients accumulated over two batches"
        if compresses(a)
        else "half the bytes on the network",
    )


def _saving_of_norms(a: Analysis) -> Saving:
    model, norms = model_of(a), norms_s(a)
    rest = a.value(COMM_WIRE_S) - norms
    best, worst = (model.step_if({}, wire_s=rest + share * norms) for share in (0.0, 0.5))
    return model.saving(best, worst, "no batch norm collectives, or half of them")


def _evidence(a: Analysis, t: Thresholds) -> tuple[Evidence, ...]:
    wire = a.value(COMM_WIRE_S) - metrics_s(a) - buffers_s(a) - model_s(a)
    step, norms = a.value(STEP_TIME_S), norms_s(a)
    size, called = a.get(COMM_MEGABYTES), max(a.by_rank(COLLECTIVES_MEGABYTES).values(), default=0.0)
    found = [Evidence.of(COMM_WIRE_S, wire, t["wire"] * step, f"{100 * wire / step:.0f} % of the step, {_when(a)}")]
    if norms > 0:
        note = f"{100 * norms / step:.0f} % of the step, in collectives of synchronised batch norm"
        found.append(Evidence.of(COLLECTIVES_NORM_S, norms, note=note))
    if size:
        found.append(Evidence.of(COMM_MEGABYTES, size, note="per step", form="explains"))
    elif called and _by_python(a):
        found.append(
            Evidence.of(
                COLLECTIVES_MEGABYTES, called, note="per step in collectives called from Python", form="explains"
            )
        )
    # the time includes other collectives, so a rate would be meaningless
    return (*found, *(carried_evidence(a) if norms < gradients_s(a) else ()))


def _when(a: Analysis) -> str:
    if norms_s(a) > gradients_s(a):
        return "in collectives that all ranks wait for"
    return "in collectives called from Python" if _by_python(a) else "after the last gradient"


def _by_python(a: Analysis) -> bool:
    """No DDP timestamps: the collectives that were timed are the job's own calls."""
    return largest_model(a) is None and bool(a.by_rank(COLLECTIVES_HELD_S) or a.by_rank(COLLECTIVES_STREAM_S))


_FIXES_OF_NORMS = (
    Fix(
        "a larger batch per rank, or GroupNorm, which needs no statistics from other ranks",
        "plain BatchNorm from 32 samples per rank on, GroupNorm below",
        None,
        "small change",
    ),
    Fix(
        "a faster interconnect between the ranks: many small messages are sent one after the other",
        "",
        None,
        "outside the code",
    ),
)


# Half the bytes, and fewer exchanges, of parameters and gradients that a library exchanges by calls of its own.
_FIXES_OF_LIBRARIES = {
    "FSDP": (
        Fix(
            "halve the bytes: exchange parameters and gradients in bfloat16",
            "MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16), or MixedPrecisionPolicy for fully_shard",
            None,
            "small change",
        ),
        Fix(
            "gather each unit's parameters once per step, if memory allows",
            "ShardingStrategy.SHARD_GRAD_OP, or fully_shard(..., reshard_after_forward=False)",
            None,
            "small change",
        ),
    ),
    "DeepSpeed": (
        Fix("halve the bytes: exchange in bfloat16", '"communication_data_type": "bf16"', None, "one line"),
        Fix(
            "exchange less often, and overlapped with the backward pass",
            '"gradient_accumulation_steps": 2, "zero_optimization": {"overlap_comm": true}',
            None,
            "small change",
        ),
    ),
}


def _fixes(a: Analysis) -> tuple[Fix, ...]:
    """Half the bytes first, unless they are halved already: this takes one line and keeps the batch size. Of small messages fewer first."""
    if calls := _small_calls(a):
        return (_in_one_call(a, calls),)
    compress = Expression("torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook")
    hook = Setup((Invocation("model.register_comm_hook", (None, compress)),))
    halve = Fix.of("halve the bytes: register a bf16 compression hook", hook, wrapped_at(a), "one line")
    if _by_python(a):
        halve = Fix(
            "halve the bytes: exchange in bfloat16", "pass tensor.bfloat16() to the collective", None, "small change"
        )
    rarely = Fix("exchange less often: accumulate gradients under model.no_sync()", "", None, "small change")
    if library := _FIXES_OF_LIBRARIES.get(library_of(a) if _by_python(a) else ""):
        halve, rarely = reversed(library) if _gathers_once_first(a) else library
    if exchanges_of(a) > 1:
        title = f"exchange once per step, not after each of its {exchanges_of(a)} batches"
        rarely = Fix.of(title, GradientsKept(), None, "small change")
    larger = Fix(
        "a larger batch per rank: twice the samples, half the exchange per sample",
        "",
        None,
        "small change",
    )
    paths = (*_faster(a), larger)
    if compresses(a):
        return rarely, *paths
    return (rarely, halve, *paths) if exchanges_of(a) > 1 else (halve, rarely, *paths)


def _gathers_once_first(a: Analysis) -> bool:
    """FSDP between CPUs: those without instructions for bfloat16 would compute several times as long in it."""
    return not a.on_gpu and _by_python(a) and library_of(a) == "FSDP"


def _small_calls(a: Analysis) -> float:
    """Collectives of a step that the job's own code calls one after the other, if they are so small that messages take the time, and not
    bytes; else 0.
    """
    calls = messages_of(a)
    small = _by_python(a) and not library_of(a) and calls >= _CALLS_MIN and path_is_sound(a)
    carried, path = a.get(COMM_BUS_GB_PER_S), path_of(a)
    return calls if small and carried and path and carried < path.gb_per_s else 0.0


def _in_one_call(a: Analysis, calls: float) -> Fix:
    site = max(python_calls(a), key=lambda site: site.get("bytes", 0))
    file, line = site.get("file"), site.get("line")
    return Fix(
        f"one collective for all gradients instead of {calls:.0f}",
        "all_reduce one flat tensor, torch.cat([p.grad.flatten() for p in parameters]), and copy its parts back; or "
        "DistributedDataParallel, which exchanges in buckets while the backward pass goes on",
        Where(file, line) if file and line else None,
        "small change",
    )


def _faster(a: Analysis) -> tuple[Fix, ...]:
    """Faster links; none on one host with a sound path, whose rate is set by memory and cores."""
    if path_is_sound(a) and not several_hosts(a):
        return ()
    lines, spared_s = [], 0.0
    for gbit in _RATES_GBIT_PER_S:
        saving = on_faster_links(a, gbit / 8)
        middle_s = sum(saving.seconds_per_step) / 2 if saving else 0.0
        if saving and severity((middle_s - spared_s) / a.value(STEP_TIME_S)):
            spared_s = middle_s
            lines.append(_step_at(a, gbit, saving))
    title = "a faster interconnect between the ranks"
    return (Fix(f"{title}: {lines[0]}" if lines else title, "\n".join(lines[1:]), None, "outside the code"),)


def _step_at(a: Analysis, gbit: float, saving: Saving) -> str:
    least, most = (a.value(STEP_TIME_S) - seconds for seconds in reversed(saving.seconds_per_step))
    return f"at {gbit:g} Gbit/s the step would take {seconds_range((least, most))} ({speedup_range(saving.speedup)})"


RULE = rule(
    __name__,
    "Network-bound gradient exchange",
    check,
    needs=(STEP_TIME_S, COMM_WIRE_S),
    thresholds={
        "wire": Threshold(
            0.15, "two gloo ranks of one machine exchange a ResNet's gradients in 2-13 % of a step with nothing wrong"
        )
    },
    traced=True,
)
