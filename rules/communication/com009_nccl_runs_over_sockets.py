"""NCCL over TCP sockets.

What it does: finds jobs whose nodes exchange gradients by TCP, or over a slow network card, although communication
costs a good part of the step.

Fires when: nodes exchange gradients by TCP or over a slow network card, and exposed communication is ≥ 5 % of the step.

Why it is slow: over sockets every byte passes through host memory and the kernel's network stack, and few cloud
networks give one connection more than 10 to 25 Gbit/s. InfiniBand, RoCE or EFA with GPUDirect carry 100 to 400.

Evidence: NCCL's log (`NCCL_DEBUG=INFO`, set by the user): `via NET/Socket`, the interface, variables that switch
InfiniBand off. Without a log: ranks on several hosts, a network card of less than 25 Gbit/s, and no InfiniBand, RoCE or
EFA in the host. In both cases exposed communication as a share of the step.

Fix: install or enable the network's plugin (aws-ofi-nccl for EFA, IB verbs in the container, no NCCL_IB_DISABLE=1),
name the fast interface with NCCL_SOCKET_IFNAME, or train on one node. If the card is the only network, use an instance
with a faster one.

Estimate: if the bytes are known, their transfer time at 12.5 GB/s, which is the 100 Gbit/s of the slower of these
networks, and at half of that. Otherwise a fifth to a half of today's transfer time remains.

False alarms: one node. Networks without any such hardware: there the remaining fixes are fewer bytes or fewer nodes
(COM001).
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.job_changes import EnvironmentChange
from rn50_advisor.advisor.model.measures.comm_measures import COMM_WIRE_S, NCCL_SOCKET, NET_GBIT_PER_S
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.communication.comm_cost import (
    OF_NIC,
    backend_of,
    messages_of,
    path_of,
    several_hosts,
    variables_of,
    wire_left,
)
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_FAST_GB_PER_S = 12.5
_LEFT_SHARE = (0.2, 0.5)  # of the transfer time, if its bytes are not known
_ONLY_CARD_NOTE = (
    "of the fastest card; the host shows no InfiniBand, RoCE or EFA, and NCCL's log is off (NCCL_DEBUG=INFO)"
)
_FIXES_OF_CARD = (
    Fix("nodes with a faster network, or training on one node", "", None, "outside the code"),
    Fix.of(
        "check which transport NCCL uses: run once with its log",
        EnvironmentChange((("NCCL_DEBUG", "INFO"),)),
        None,
        "one line",
    ),
)
_SWITCHED_OFF_BY = {"NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none"}


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    wire, step, by_sockets = a.value(COMM_WIRE_S), a.value(STEP_TIME_S), a.get(NCCL_SOCKET)
    gbit = _card_gbit(a) if by_sockets is None else None
    if by_sockets is None and gbit is None:
        return NotMeasured(RULE.id, (NCCL_SOCKET,))
    if by_sockets == 0.0 or (gbit is not None and gbit >= t["card"]) or wire < t["wire"] * step:
        return Clear(RULE.id)
    model = model_of(a)
    best, worst = (model.step_if({}, wire_s=left_s) for left_s in _left(a))
    level = severity((step - best) / step)
    if level is None:
        return Clear(RULE.id)
    return Finding(
        rule=RULE.id,
        title="Gradient exchange over TCP sockets" if gbit is None else "Gradient exchange over a slow network card",
        severity=level,
        confidence=confidence(a, cap=0.9 if gbit is None else 0.8),
        seconds_per_step=step - best,
        evidence=(
            _nccl_evidence(a)
            if gbit is None
            else Evidence.of(NET_GBIT_PER_S, gbit, t["card"], _ONLY_CARD_NOTE, form="continues"),
            Evidence.of(COMM_WIRE_S, wire, t["wire"] * step, f"{100 * wire / step:.0f} % of the step"),
        ),
        fixes=_fixes(a) if gbit is None else _FIXES_OF_CARD,
        saving=model.saving(best, worst, "an RDMA transport for NCCL"),
    )


def _card_gbit(a: Analysis) -> float | None:
    """Speed of the only visible card between the hosts; None if there may be another, or its speed is unknown."""
    if not several_hosts(a) or "nccl" not in backend_of(a) or a.meta.environment.get("rdma_ports") != 0:
        return None
    return a.get(NET_GBIT_PER_S)


def _left(a: Analysis) -> tuple[float, float]:
    """Transfer seconds that remain, at best and at worst."""
    path = path_of(a)
    beside_s = messages_of(a) * path.latency_s if path else 0.0
    return wire_left(a, _FAST_GB_PER_S, OF_NIC * _FAST_GB_PER_S, _LEFT_SHARE, beside_s=beside_s)


def _nccl_evidence(a: Analysis) -> Evidence:
    library = f"NCCL {a.nccl.version}".strip() if a.nccl and a.nccl.version else "NCCL"
    by = f" by {', '.join(a.nccl.interfaces)}" if a.nccl and a.nccl.interfaces else ""
    return Evidence.of(NCCL_SOCKET, "NET/Socket", note=f"{library} connects ranks{by} by TCP")


def _fixes(a: Analysis) -> tuple[Fix, ...]:
    settings = {**variables_of(a), **(a.nccl.switches if a.nccl else {})}
    off = next((name for name, value in _SWITCHED_OFF_BY.items() if settings.get(name) == value), "")
    fast = Fix(
        "install the network's plugin: aws-ofi-nccl for EFA, IB verbs for InfiniBand and RoCE",
        "",
        None,
        "outside the code",
    )
    name = Fix(
        "select the fast interface, or train on one node", "NCCL_SOCKET_IFNAME=<interface>", None, "outside the code"
    )
    if off:
        return (
            Fix.of(f"remove {off} from the job's environment", EnvironmentChange.unset(off), None, "one line"),
            fast,
            name,
        )
    return (fast, name)


RULE = rule(
    __name__,
    "NCCL over TCP sockets",
    check,
    needs=(STEP_TIME_S, COMM_WIRE_S),
    thresholds={
        "wire": Threshold(0.05, "of the step in exposed communication: severity 'medium' begins here"),
        "card": Threshold(
            25.0, "Gbit/s, at which `triage` warns too: with slower cards several hosts train slower than their sum"
        ),
    },
)
