"""The host: processor, sockets, NUMA, memory, kernel, virtualisation and container. Read once per run."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.probes.documents.machine_documents import MachineFacts
from rn50_advisor.probes.host.procfs import parse_cpu_list, parse_keyed, read_text

_SLOW = 2.0  # times as long as with normal numbers: 0.9 to 1.0 on an AMD EPYC; a hundred cycles in place of one where microcode does it
_NUMBERS = 2048  # 8 KiB stay in the nearest cache
_REPEATS = 40  # of a microsecond each; the fastest is one that nothing disturbed
_DENORMAL = np.float32(1e-39)
# x86 and Arm. With AVX512 alone, bfloat16 took 0.8 to 1.4 times as long as single precision in six of eight small nets (torch 2.14).
_HALF_FLAGS = {
    "bfloat16": {"avx512bw", "avx512_bf16", "amx_bf16", "avx_ne_convert", "bf16"},
    "float16": {"avx512_fp16", "amx_fp16", "avx_ne_convert", "asimdhp"},
}
CONTAINER_MARKS = ("docker", "kubepods", "containerd", "libpod", "lxc", "garden")


def host_facts(root: Path = Path("/")) -> MachineFacts:
    """The host's properties as plain JSON values; None: unknown."""
    cpuinfo = _cpuinfo(root)
    meminfo = parse_keyed((read_text(root / "proc/meminfo") or "").encode())
    return {
        "hostname": read_text(root / "proc/sys/kernel/hostname") or os.uname().nodename,
        "kernel": read_text(root / "proc/sys/kernel/osrelease") or os.uname().release,
        "os": _os_name(root),
        "machine": os.uname().machine,
        "cpu_model": _cpu_model(cpuinfo),
        "fast_half": _fast_half(cpuinfo),
        **_cores(root, cpuinfo),
        "numa_nodes": _numa_nodes(root),
        "mem_total_bytes": meminfo[b"MemTotal"] * 1024 if b"MemTotal" in meminfo else None,
        "swap_total_bytes": meminfo[b"SwapTotal"] * 1024 if b"SwapTotal" in meminfo else None,
        "hypervisor": _hypervisor(root, cpuinfo),
        "container": _container(root),
        "clock_source": read_text(root / "sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "cpu_governor": read_text(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "rdma_ports": len(list(root.glob("sys/class/infiniband/*/ports/*"))) if (root / "sys/class").is_dir() else None,
    }


def _fast_half(cpuinfo: list[dict[str, str]]) -> list[str] | None:
    """The half-precision formats that this processor computes in about as fast as in single precision; None: unknown."""
    first = cpuinfo[0] if cpuinfo else {}
    flags = set((first.get("flags") or first.get("Features") or "").split())
    return [name for name, any_of in _HALF_FLAGS.items() if flags & any_of] if flags else None


def slow_denormals() -> bool | None:
    """Whether products of denormal numbers take at least twice as long as others here. Takes less than a millisecond.

    None if this thread takes such numbers for zero, as some libraries set it when they are loaded.

    Most of Intel's processors hand each operation on such a number to microcode; AMD's of today multiply and add it like any other.
    Roots are not looked at: torch takes them by a library whose slow path has nothing to do with the processor.
    """
    usual, denormal = np.ones(_NUMBERS, np.float32), np.full(_NUMBERS, _DENORMAL)
    product = np.empty(_NUMBERS, np.float32)
    rounds = [(_duration_ns(usual, product), _duration_ns(denormal, product)) for _ in range(_REPEATS)]
    if not product.all():  # the latest one, of denormal numbers
        return None
    return min(slow for _, slow in rounds) >= _SLOW * min(fast for fast, _ in rounds)


def _duration_ns(values: NDArray[np.float32], product: NDArray[np.float32]) -> int:
    began_ns = time.perf_counter_ns()
    np.multiply(values, np.float32(0.9), out=product)
    return max(time.perf_counter_ns() - began_ns, 1)


def _cpuinfo(root: Path) -> list[dict[str, str]]:
    """One mapping per processor."""
    processors: list[dict[str, str]] = [{}]
    for line in (read_text(root / "proc/cpuinfo") or "").splitlines():
        key, separator, value = line.partition(":")
        if separator:
            processors[-1][key.strip()] = value.strip()
        else:
            processors.append({})
    return [p for p in processors if "processor" in p]


def _cpu_model(cpuinfo: list[dict[str, str]]) -> str | None:
    if not cpuinfo:
        return None
    first = cpuinfo[0]
    if "model name" in first:
        return first["model name"]
    if "CPU part" in first:  # Arm names implementer and part only
        return f"Arm implementer {first.get('CPU implementer', '?')} part {first['CPU part']}"
    return first.get("cpu")


def _cores(root: Path, cpuinfo: list[dict[str, str]]) -> MachineFacts:
    """Online threads, physical cores, sockets, and whether SMT is on."""
    pairs = set()
    for cpu in sorted(root.glob("sys/devices/system/cpu/cpu[0-9]*/topology")):
        package, core = read_text(cpu / "physical_package_id"), read_text(cpu / "core_id")
        if package is not None and core is not None:
            pairs.add((package, core))
    if not pairs:
        pairs = {(p["physical id"], p["core id"]) for p in cpuinfo if "physical id" in p and "core id" in p}
    threads = len(parse_cpu_list(read_text(root / "sys/devices/system/cpu/online") or "")) or len(cpuinfo) or None
    return {
        "threads": threads,
        "cores": len(pairs) or None,
        "sockets": len({package for package, _ in pairs}) or None,
        "smt": threads > len(pairs) if pairs and threads else None,
    }


def _numa_nodes(root: Path) -> dict[str, list[int]]:
    """CPUs by NUMA node; a memory-only node has none."""
    nodes = {}
    for node in sorted(root.glob("sys/devices/system/node/node[0-9]*"), key=lambda p: int(p.name[4:])):
        nodes[node.name[4:]] = sorted(parse_cpu_list(read_text(node / "cpulist") or ""))
    return nodes


def _os_name(root: Path) -> str | None:
    for line in (read_text(root / "etc/os-release") or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip("\"'")
    return None


def _hypervisor(root: Path, cpuinfo: list[dict[str, str]]) -> str | None:
    """The hypervisor's name; "unknown" if only its presence is visible; None on bare metal or if nothing is visible."""
    dmi = root / "sys/class/dmi/id"
    named = " ".join(text for name in ("sys_vendor", "product_name") if (text := read_text(dmi / name)))
    flagged = bool(cpuinfo) and "hypervisor" in cpuinfo[0].get("flags", "").split()
    if flagged or read_text(root / "sys/hypervisor/type"):
        return named or read_text(root / "sys/hypervisor/type") or "unknown"
    virtual = ("KVM", "QEMU", "VMware", "VirtualBox", "Virtual Machine", "Xen", "Bochs")  # Arm has no such flag
    return named if any(word in named for word in virtual) else None


def _container(root: Path) -> str | None:
    """The kind of container this process runs in; None if there is no sign of one."""
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".singularity.d").exists():
        return "singularity"
    text = read_text(root / "proc/self/cgroup") or ""
    return next((mark for mark in CONTAINER_MARKS if mark in text), None)
