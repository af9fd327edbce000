"""NCCL runs over sockets.

What it does: finds jobs whose nodes exchange gradients by TCP, or over a slow network card, although the wire costs a good part of the
step.

Why it is slow: over sockets every byte goes through host memory and the kernel's network stack, and few cloud networks give one connection
more than 10 to 25 Gbit/s. InfiniBand, RoCE or EFA with GPUDirect carry 100 to 400.

Evidence: NCCL's own words (`NCCL_DEBUG=INFO`, set by the user): `via NET/Socket`, the interface, variables that switch InfiniBand off.
Where NCCL says nothing: ranks on several hosts, a network card of less than 25 Gbit/s, and no InfiniBand, RoCE or EFA in the host. And
exposed communication as a share of the step.

Fix: install or allow the network's plugin (aws-ofi-nccl for EFA, IB verbs in the container, no NCCL_IB_DISABLE=1), name the fast interface
with NCCL_SOCKET_IFNAME, or train on one node. Where the card is all there is: an instance with a faster one.

Estimate: the bytes at 12.5 GB/s, the 100 Gbit/s that the slower of these networks carry, and at half of that, where the bytes are known; a
fifth to a half of today's wire time otherwise.

False alarms: one node. Networks without any such hardware: then fewer bytes or fewer nodes are what is left (COM001).
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.communication.comm_cost import (
    OF_NIC,
    backend_of,
    messages_of,
    path_of,
    several_hosts,
    wire_left,
)
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_FAST_GB_PER_S = 12.5
_REMAINS = (0.2, 0.5)  # of the wire time, where its bytes are not known
_NO_OTHER = "of the fastest card; the host shows no InfiniBand, RoCE or EFA, and NCCL says nothing (NCCL_DEBUG=INFO)"
_FIXES_OF_CARD = (
    Fix("hosts with a faster network between them, or train on one node", "", None, "outside the code"),
    Fix("see what NCCL uses: run once with its own words", "NCCL_DEBUG=INFO", None, "one line"),
)
_OFF = {"NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none"}


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    wire, step, by_sockets = a.value("comm.wire_s"), a.value("step.time_s"), a.get("nccl.socket")
    gbit = _card_gbit(a) if by_sockets is None else None
    if by_sockets is None and gbit is None:
        return NotMeasured(RULE.id, ("nccl.socket",))
    if by_sockets == 0.0 or (gbit is not None and gbit >= t["card"]) or wire < t["wire"] * step:
        return Clear(RULE.id)
    model = model_of(a)
    best, worst = (model.step_if({}, wire_s=left_s) for left_s in _left(a))
    level = severity((step - best) / step)
    if level is None:
        return Clear(RULE.id)
    return Finding(
        rule=RULE.id,
        title="The nodes exchange gradients over TCP sockets"
        if gbit is None
        else "The nodes exchange gradients over a slow network card",
        severity=level,
        confidence=confidence(a, cap=0.9 if gbit is None else 0.8),
        seconds_per_step=step - best,
        evidence=(
            _of_nccl(a) if gbit is None else Evidence("net.gbit_per_s", gbit, "Gbit/s", t["card"], _NO_OTHER),
            Evidence("comm.wire_s", wire, "s", t["wire"] * step, f"{100 * wire / step:.0f} % of the step"),
        ),
        fixes=_fixes(a) if gbit is None else _FIXES_OF_CARD,
        saving=model.saving(best, worst, "a network that NCCL needs no sockets for"),
    )


def _card_gbit(a: Analysis) -> float | None:
    """Of the card that is the only way between the hosts, as far as anybody sees; None: there may be another, or it has no known speed."""
    if not several_hosts(a) or "nccl" not in backend_of(a) or a.meta.environment.get("rdma_ports") != 0:
        return None
    return a.get("net.gbit_per_s")


def _left(a: Analysis) -> tuple[float, float]:
    """Seconds on the wire that remain, at best and at worst."""
    path = path_of(a)
    beside_s = messages_of(a) * path.latency_s if path else 0.0
    return wire_left(a, _FAST_GB_PER_S, OF_NIC * _FAST_GB_PER_S, _REMAINS, beside_s=beside_s)


def _of_nccl(a: Analysis) -> Evidence:
    told = f"NCCL {a.nccl.version}".strip() if a.nccl and a.nccl.version else "NCCL"
    by = f" by {', '.join(a.nccl.interfaces)}" if a.nccl and a.nccl.interfaces else ""
    return Evidence("nccl.socket", "NET/Socket", "", None, f"{told} connects ranks{by} by TCP")


def _fixes(a: Analysis) -> tuple[Fix, ...]:
    said = {**(a.meta.environment.get("variables") or {}), **(a.nccl.switches if a.nccl else {})}
    off = next((name for name, value in _OFF.items() if said.get(name) == value), "")
    fast = Fix(
        "bring in the network's plugin: aws-ofi-nccl for EFA, IB verbs for InfiniBand and RoCE",
        "",
        None,
        "outside the code",
    )
    name = Fix(
        "name the fast interface, or train on one node", "NCCL_SOCKET_IFNAME=<interface>", None, "outside the code"
    )
    if off:
        return (Fix(f"remove {off} from the job's environment", f"unset {off}", None, "one line"), fast, name)
    return (fast, name)


RULE = rule(
    __name__,
    "NCCL runs over sockets",
    check,
    needs=("step.time_s", "comm.wire_s"),
    explains=("COM001", "COM003", "COM010"),
    thresholds={
        "wire": Threshold(0.05, "of the step on the wire: severity 'medium' begins here"),
        "card": Threshold(
            25.0, "Gbit/s, where `triage` warns too: with slower cards several hosts train slower than their sum"
        ),
    },
)
