"""NCCL runs over sockets.

What it does: finds jobs whose nodes exchange gradients by TCP although the wire costs a good part of the step.

Why it is slow: over sockets every byte goes through host memory and the kernel's network stack, and few cloud networks give one connection
more than 10 to 25 Gbit/s. InfiniBand, RoCE or EFA with GPUDirect carry 100 to 400.

Evidence: NCCL's own words (`NCCL_DEBUG=INFO`, set by the user): `via NET/Socket`, the interface, variables that switch InfiniBand off; and
exposed communication as a share of the step.

Fix: install or allow the network's plugin (aws-ofi-nccl for EFA, IB verbs in the container, no NCCL_IB_DISABLE=1), name the fast interface
with NCCL_SOCKET_IFNAME, or train on one node.

Estimate: the bytes at 12.5 GB/s, the 100 Gbit/s that the slower of these networks carry, where the bytes are known; a fifth to a half of
today's wire time otherwise.

False alarms: one node. Networks without any such hardware: then fewer bytes or fewer nodes are what is left (COM001).
"""

from __future__ import annotations

from advisor.core.analysis import Analysis
from advisor.core.findings import Clear, Evidence, Finding, Fix
from rules.reading import model_of
from rules.rule import Threshold, Thresholds, confidence, rule, severity

_FAST_GB_PER_S = 12.5
_REMAINS = (0.2, 0.5)  # of the wire time, where its bytes are not known
_OFF = {"NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none"}


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    wire, step, facts = a.value("comm.wire_s"), a.value("step.time_s"), a.nccl
    if not a.value("nccl.socket") or wire < t["wire"] * step:
        return Clear(RULE.id)
    model, carried = model_of(a), a.get("comm.bus_gb_per_s")
    remains = _REMAINS
    if carried is not None and carried < _FAST_GB_PER_S:
        remains = (carried / _FAST_GB_PER_S, max(_REMAINS[1], carried / _FAST_GB_PER_S))
    best, worst = (model.step_if({}, wire_s=share * wire) for share in remains)
    level = severity((step - best) / step)
    if level is None:
        return Clear(RULE.id)
    told = f"NCCL {facts.version}".strip() if facts and facts.version else "NCCL"
    by = f" by {', '.join(facts.interfaces)}" if facts and facts.interfaces else ""
    return Finding(
        rule=RULE.id,
        title="The nodes exchange gradients over TCP sockets",
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=step - best,
        evidence=(
            Evidence("nccl.socket", "NET/Socket", "", None, f"{told} connects ranks{by} by TCP"),
            Evidence("comm.wire_s", wire, "s", t["wire"] * step, f"{100 * wire / step:.0f} % of the step"),
        ),
        fixes=_fixes(a),
        saving=model.saving(best, worst, "a network that NCCL needs no sockets for"),
    )


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
    needs=("step.time_s", "comm.wire_s", "nccl.socket"),
    explains=("COM001", "COM003", "COM010"),
    thresholds={"wire": Threshold(0.05, "of the step on the wire: severity 'medium' begins here")},
)
