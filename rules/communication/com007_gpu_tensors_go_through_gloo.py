"""GPU tensors exchanged through Gloo.

What it does: finds models on GPUs whose gradients are exchanged by the gloo backend.

Fires when: gloo exchanges the gradients of GPUs, and exposed communication is ≥ 3 % of the step.

Why it is slow: gloo works in host memory. Each gradient is copied from the GPU to the host, sent by TCP, summed by the
CPU and copied back; NCCL moves it from GPU to GPU.

Evidence: the backend of DistributedDataParallel's process group, the device of the model's parameters, and exposed
communication as a share of the step.

Fix: `init_process_group("nccl")`, or no backend argument at all: torch then chooses the one for the device.

Estimate: the transfer time of the bytes at NCCL's bandwidth: up to 12 GB/s between GPUs of one host over PCIe of the
third generation, and half of the network card's speed or more between hosts. If the bytes or the card are not known, 5
to 30 % of today's transfer time remains.

False alarms: jobs with several processes on one GPU, which NCCL refuses, and tests; below 2 % of the step the rule
stays silent.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.advisor.model.measures.comm_measures import COMM_GLOO_ON_GPU, COMM_WIRE_S
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.communication.comm_cost import OF_NIC, messages_of, path_of, several_hosts, wire_left
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Remaining share of the exchange if its bytes are unknown; gloo over loopback reached 1 GB/s, PCIe of the third generation carries 12.
_LEFT_SHARE = (0.05, 0.30)
_PCIE_GB_PER_S = 12.0
_NCCL = CallChange.of("init_process_group", backend="nccl")


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    wire, step = a.value(COMM_WIRE_S), a.value(STEP_TIME_S)
    ranks = tuple(rank for rank, value in a.by_rank(COMM_GLOO_ON_GPU).items() if value)
    model = model_of(a)
    best, worst = (model.step_if({}, wire_s=left_s) for left_s in _left(a))
    level = severity((step - best) / step)
    if not ranks or wire < t["wire"] * step or level is None:
        return Clear(RULE.id)
    return Finding(
        rule=RULE.id,
        title="Gloo backend for GPU gradients: exchange through host memory",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=step - best,
        scope=Affected(ranks=ranks),
        evidence=(
            Evidence(
                "backend", "gloo", "", None, "in the process group, with parameters on CUDA devices", form="explains"
            ),
            Evidence.of(COMM_WIRE_S, wire, t["wire"] * step, f"{100 * wire / step:.0f} % of the step"),
        ),
        fixes=(Fix("use NCCL for tensors on GPUs", 'init_process_group("nccl")', None, "one line", call=_NCCL),),
        saving=model.saving(best, worst, "direct GPU-to-GPU transfer with NCCL"),
    )


def _left(a: Analysis) -> tuple[float, float]:
    """Transfer seconds that remain, at best and at worst."""
    path = path_of(a, "nccl")
    if path is None:
        return wire_left(a, None, None, _LEFT_SHARE)
    most = path.gb_per_s / OF_NIC if several_hosts(a) else _PCIE_GB_PER_S
    return wire_left(a, most, path.gb_per_s, _LEFT_SHARE, beside_s=messages_of(a) * path.latency_s)


RULE = rule(
    __name__,
    "GPU tensors exchanged through Gloo",
    check,
    needs=(STEP_TIME_S, COMM_WIRE_S, COMM_GLOO_ON_GPU),
    thresholds={"wire": Threshold(0.03, "of the step: below it the gain is too small to report")},
)
