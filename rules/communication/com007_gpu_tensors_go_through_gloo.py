"""GPU tensors go through gloo.

What it does: finds models on GPUs whose gradients are exchanged by the gloo backend.

Why it is slow: gloo works in host memory. Each gradient is copied from the GPU to the host, sent by TCP, summed by the CPU and copied back;
NCCL moves it from GPU to GPU.

Evidence: the backend of the process group that DistributedDataParallel uses, the device of the model's parameters, and exposed
communication as a share of the step.

Fix: `init_process_group("nccl")`, or no backend at all: torch then takes the one that fits the device.

Estimate: the bytes at what NCCL carries: between GPUs of one host that is up to 12 GB/s by PCIe of the third generation, between hosts half
of the network card's speed and more. Where bytes or card are not known, 5 to 30 % of today's wire time remains.

False alarms: jobs on one GPU in several processes, which NCCL refuses, and tests; below 2 % of the step nothing is said.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.communication.comm_cost import OF_NIC, messages_of, path_of, several_hosts, wire_left
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Of the wire time, where its bytes are not known; gloo over loopback was seen at 1 GB/s, PCIe of the third generation carries 12.
_REMAINS = (0.05, 0.30)
_PCIE_GB_PER_S = 12.0


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    wire, step = a.value("comm.wire_s"), a.value("step.time_s")
    ranks = tuple(rank for rank, value in a.by_rank("comm.gloo_on_gpu").items() if value)
    model = model_of(a)
    best, worst = (model.step_if({}, wire_s=left_s) for left_s in _left(a))
    level = severity((step - best) / step)
    if not ranks or wire < t["wire"] * step or level is None:
        return Clear(RULE.id)
    return Finding(
        rule=RULE.id,
        title="Gradients of GPUs are exchanged by gloo, through host memory",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=step - best,
        scope=Affected(ranks=ranks),
        evidence=(
            Evidence("backend", "gloo", "", None, "of the process group, with parameters on CUDA devices"),
            Evidence("comm.wire_s", wire, "s", t["wire"] * step, f"{100 * wire / step:.0f} % of the step"),
        ),
        fixes=(Fix("use NCCL for tensors on GPUs", 'init_process_group("nccl")', None, "one line"),),
        saving=model.saving(best, worst, "NCCL from GPU to GPU"),
    )


def _left(a: Analysis) -> tuple[float, float]:
    """Seconds on the wire that remain, at best and at worst."""
    path = path_of(a, "nccl")
    if path is None:
        return wire_left(a, None, None, _REMAINS)
    most = path.gb_per_s / OF_NIC if several_hosts(a) else _PCIE_GB_PER_S
    return wire_left(a, most, path.gb_per_s, _REMAINS, beside_s=messages_of(a) * path.latency_s)


RULE = rule(
    __name__,
    "GPU tensors go through gloo",
    check,
    needs=("step.time_s", "comm.wire_s", "comm.gloo_on_gpu"),
    explains=("COM001", "COM003", "COM010"),
    thresholds={"wire": Threshold(0.03, "of the step: below it the change would bring less than is worth saying")},
)
