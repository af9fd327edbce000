"""Machines with NVIDIA GPUs as scripts for the fake driver of the tests: sound ones, and the same with one fault.

Each line is an answer of the driver; `+N` is growth per reading, and the advisor reads once a second. No value was copied from a real
machine: they come from data sheets. Queries that a kind of GPU is not known to answer are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_GB = 1_000_000_000
SWITCH = "switch"


@dataclass(frozen=True)
class Kind:
    """One model of GPU. `links`: number of NVLinks, each of `link_mb_s`; `gpm`: it reports GPM metrics (use of its units)."""

    name: str
    capability: str
    mem_bytes: int
    power_w: int
    sm_mhz: int
    mem_mhz: int
    gen: int
    links: int = 0
    link_mb_s: int = 0
    ecc: bool = True
    gpm: bool = False
    throttle_times: bool = True
    remote: str = ""


A100 = Kind("NVIDIA A100-SXM4-40GB", "8.0", 42_949_672_960, 400, 1410, 1215, 4, 12, 25_000, remote=SWITCH)
H100 = Kind("NVIDIA H100 80GB HBM3", "9.0", 85_520_809_984, 700, 1980, 2619, 5, 18, 26_562, gpm=True, remote=SWITCH)
H200 = Kind("NVIDIA H200", "9.0", 150_754_820_096, 700, 1980, 3201, 5, 18, 26_562, gpm=True, remote=SWITCH)
L40S = Kind("NVIDIA L40S", "8.9", 48_305_799_168, 350, 2520, 9001, 4)
T4 = Kind("Tesla T4", "7.5", 16_106_127_360, 70, 1590, 5001, 3)
RTX3090 = Kind("NVIDIA GeForce RTX 3090", "8.6", 25_769_803_776, 350, 2100, 9751, 4, ecc=False, throttle_times=False)


def uuid(index: int) -> str:
    return f"GPU-{index:08x}-0000-4000-8000-{index:012x}"


def bus_id(index: int) -> str:
    return f"00000000:{0x10 + 0x10 * index:02X}:00.0"


def gpu(index: int, kind: Kind, *, cpus: str, numa: int, load: float = 0.9) -> list[str]:
    """One GPU at work: busy for `load` of the time, its power and traffic in proportion."""
    answers: dict[str, object] = {
        "name": kind.name,
        "uuid": uuid(index),
        "pci": bus_id(index),
        "capability": kind.capability,
        "util": round(100 * load),
        "mem_total": kind.mem_bytes,
        "mem_used": round(0.6 * kind.mem_bytes),
        "mem_reserved": 600_000_000,
        "power_mw": round(1000 * kind.power_w * (0.2 + 0.7 * load)),
        "power_limit_mw": 1000 * kind.power_w,
        "power_limit_default_mw": 1000 * kind.power_w,
        "power_limit_min_mw": 300 * kind.power_w,
        "power_limit_max_mw": 1000 * kind.power_w,
        "energy_mj": f"5000000 +{round(1000 * kind.power_w * (0.2 + 0.7 * load))}",
        "sm_clock": round(0.97 * kind.sm_mhz),
        "sm_clock_max": kind.sm_mhz,
        "mem_clock": kind.mem_mhz,
        "temp": 58 + index % 4,
        "clock_reasons": 0,
        "pcie_gen": kind.gen,
        "pcie_width": 16,
        "pcie_gen_max": kind.gen,
        "pcie_gen_gpu_max": kind.gen,
        "pcie_width_max": 16,
        "pcie_rx_kb_s": round(900_000 * load),
        "pcie_tx_kb_s": round(20_000 * load),
        "cpus": cpus,
        "numa": numa,
        "field.74": 0,
        "field.75": 0,
        "field.76": 0,
        "field.94": 0,
    }
    if kind.throttle_times:
        answers |= {"field.269": 0, "field.270": 0, "field.271": 0}
    if kind.ecc:
        answers |= {"ecc": 1, "field.230": 0, **{f"field.{n}": 0 for n in (3, 4, 5, 6, 142, 143, 144, 145)}}
    if kind.gpm:
        shares = {2: 82, 3: 31, 5: 34, 10: 48}
        answers |= {"gpm": 1, **{f"gpm.{n}": round(share * load, 1) for n, share in shares.items()}}
        answers |= {"gpm.20": 20.0, "gpm.21": 900.0 * load, "gpm.60": 18_000.0 * load, "gpm.61": 18_000.0 * load}
    if kind.gen == 5:
        answers |= {"field.197": f"0 +{round(20e6 * load)}", "field.198": f"0 +{round(9e8 * load)}"}
    if kind.links:
        answers |= {"field.90": kind.link_mb_s, "field.91": kind.links}
        answers |= {f"field.{n}": f"0 +{round(1.8e7 * load)}" for n in (138, 139)}  # KiB
        answers |= {f"field.{n}": 0 for n in (38, 45, 52, 59)}
        answers |= {f"nvlink.{link}": f"1 {kind.remote}" for link in range(kind.links)}
    return [f"gpu {index} {key} {value}" for key, value in answers.items()]


def machine(kind: Kind, count: int, *, nodes: int = 1, cores: int = 64, near: int = 30, far: int = 50) -> list[str]:
    """GPUs spread evenly over NUMA nodes; two of one node meet at level `near`, two of different ones at `far`."""
    lines = ["driver 575.57.08", "cuda 12090"]
    for index in range(count):
        node = index * nodes // count
        width = cores // nodes
        lines += gpu(index, kind, cpus=f"{node * width}-{(node + 1) * width - 1}", numa=node)
        for other in range(index):
            lines.append(f"pair {other} {index} level {near if other * nodes // count == node else far}")
    return lines


def without(lines: list[str], *keys: str) -> list[str]:
    """The same machine, whose GPUs answer these keys with NotSupported."""
    return [line for line in lines if not (line.startswith("gpu ") and line.split()[2] in keys)]


def a100x1() -> list[str]:
    return machine(A100, 1, cores=16)


def a100x8() -> list[str]:
    return machine(A100, 8, nodes=2, cores=128, near=20)


def h100x8() -> list[str]:
    return machine(H100, 8, nodes=2, cores=192, near=40)


def l40sx4() -> list[str]:
    return machine(L40S, 4, nodes=2, cores=96, near=30)


def rtx3090x2() -> list[str]:
    """Two RTX 3090 without an NVLink bridge; GeForce refuses peer to peer (2: not supported by this GPU)."""
    return [*machine(RTX3090, 2, cores=32), "pair 0 1 level 30 p2p 2"]


def h200x1() -> list[str]:
    return machine(H200, 1, cores=16)


def t4x1() -> list[str]:
    return machine(T4, 1, cores=8)


def a100_mig() -> list[str]:
    """Two A100, the first split into one 3g and two 1g instances: it then reports neither utilisation nor GPM."""
    lines = machine(A100, 2, cores=64)
    for which, (profile, gigabytes) in enumerate((("3g.20gb", 20), ("1g.5gb", 5), ("1g.5gb", 5))):
        used = round(0.5 * gigabytes * _GB)
        lines += [
            f"gpu 0 mig MIG-{which:08x}-0000-5000-8000-000000000000",
            f"gpu 0 mig {which} name NVIDIA A100-SXM4-40GB MIG {profile}",
            f"gpu 0 mig {which} mem_total {gigabytes * _GB}",
            f"gpu 0 mig {which} mem_used {used}",
        ]
    return [*lines, "fail nvmlDeviceGetUtilizationRates 3 gpu 0"]


def throttled() -> list[str]:
    """GPU 3 of eight A100 is slowed by heat for 60 % of the time and runs at 900 MHz."""
    hot = ["sm_clock 900", "temp 91", "clock_reasons 0x68", "field.269 0 +100000000", "field.270 0 +600000000"]
    return [*a100x8(), *(f"gpu 3 {line}" for line in (*hot, "power_mw 210000"))]


def degraded_link() -> list[str]:
    """GPU 1 of four L40S has come up with four PCIe lanes of sixteen."""
    slow = ["pcie_width 4", "field.94 0 +3", "pcie_rx_kb_s 3600000"]
    return [*l40sx4(), *(f"gpu 1 {line}" for line in slow)]


def narrow_slot() -> list[str]:
    """The only L40S of a machine, in a slot of eight lanes: the driver calls them its maximum."""
    narrow = ("pcie_width 8", "pcie_width_max 8", "pcie_rx_kb_s 9000000")
    return [*machine(L40S, 1, cores=24), *(f"gpu 0 {line}" for line in narrow)]


def failing_memory() -> list[str]:
    """GPU 5 of eight H100 has an uncorrectable error in mid-run: Xid 94, and a pending row remapping."""
    errors = ["field.143 1", "field.144 1", "field.4 0 +1", "field.6 3", "field.230 4"]
    return [*h100x8(), *(f"gpu 5 {line}" for line in errors), "xid 5 94 after 20", "xid 5 63 after 20"]


def lost() -> list[str]:
    """GPU 2 of four L40S falls off the bus."""
    return [*l40sx4(), "xid 2 79 after 19", "fail * 15 gpu 2 after 20"]


def broken_nvlink() -> list[str]:
    """GPU 6 of eight A100 has eight of its twelve links down, and the others recover repeatedly."""
    down = [f"nvlink.{link} 0 {SWITCH}" for link in range(3, 11)]
    return [*a100x8(), *(f"gpu 6 {line}" for line in (*down, "field.59 0 +2", "field.38 0 +400"))]


def capped() -> list[str]:
    """Two RTX 3090 at work; the power limit of the second was lowered to 220 W."""
    low = ["power_limit_mw 220000", "power_mw 219000", "sm_clock 1395", "field.74 0 +930000000", "clock_reasons 4"]
    return [*rtx3090x2(), *(f"gpu 1 {line}" for line in low)]


def locked() -> list[str]:
    """Somebody set the clock of GPU 5 of eight A100 to 1005 MHz and never reset it."""
    low = ["sm_clock 1005", "clock_reasons 2", "power_mw 205000"]
    return [*a100x8(), *(f"gpu 5 {line}" for line in low)]


def restricted() -> list[str]:
    """Eight H100 in a container that is refused many queries (4: no permission)."""
    refused = ("nvmlDeviceGetFieldValues", "nvmlGpmSampleGet", "nvmlDeviceRegisterEvents", "nvmlDeviceGetEccMode")
    return [*h100x8(), *(f"fail {name} 4" for name in refused), "fail nvmlDeviceGetComputeRunningProcesses_v3 4"]


def old_a100x4() -> list[str]:
    """Four A100 for the fake driver's old build, whose only time of throttling is that of the violation status."""
    old = ["driver 470.82.01", "cuda 11040", *(f"gpu {n} violation.1 0" for n in range(4))]
    return [*machine(A100, 4, nodes=2, cores=64, near=20), *old]


def mute() -> list[str]:
    """Four L40S whose driver answers NotSupported to all queries about throttling: times, violations, reasons."""
    kept = [f"field.{n}" for n in (74, 75, 76, 269, 270, 271)]
    return without(l40sx4(), "clock_reasons", *kept)


def mismatch() -> list[str]:
    return [*h100x8(), "fail nvmlInitWithFlags 18"]


MACHINES: dict[str, Callable[[], list[str]]] = {
    "8xA100": a100x8,
    "8xH100": h100x8,
    "4xL40S": l40sx4,
    "2xRTX3090": rtx3090x2,
    "1xH200": h200x1,
    "1xA100": a100x1,
    "1xT4": t4x1,
    "MIG": a100_mig,
    "throttled": throttled,
    "degraded-link": degraded_link,
    "narrow-slot": narrow_slot,
    "failing-memory": failing_memory,
    "lost": lost,
    "broken-nvlink": broken_nvlink,
    "capped": capped,
    "locked": locked,
    "restricted": restricted,
    "old": old_a100x4,
    "mute": mute,
    "mismatch": mismatch,
}
