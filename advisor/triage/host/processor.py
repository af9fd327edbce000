"""The processors: how many there are and how many of them are ours, what the machine is, and what others and limits take of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from rn50_advisor.advisor.model.documents.machine_triage import Band, TriageGap
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.triage.found_checks import Found, Item, fact, judged
from rn50_advisor.advisor.triage.host.other_load import LoadInterval, Watch, mean_others, taken_from_us
from rn50_advisor.probes.documents.machine_documents import MachineFacts
from rn50_advisor.probes.host.procfs import parse_cpu_list, read_text
from rn50_advisor.probes.host.topology import host_facts
from rn50_advisor.rules.cpu.cpu001_a_cpu_quota_throttles_the_job import RULE as QUOTA
from rn50_advisor.rules.cpu.cpu002_the_hypervisor_steals_cpu import RULE as STEAL
from rn50_advisor.rules.memory.mem001_host_memory_is_short import RULE as MEMORY

# Share of the allowed cores that others may use: beside more, no number is accurate to a tenth.
OTHERS_SHARE, OTHERS_LEAST_CORES = 0.1, 0.2
# The base clock is what a vendor promises for all cores under load; AVX-512 may take a tenth of it, heat or a power limit a quarter.
_BASE_CLOCK_SHARE, _HELD_CLOCK_SHARE = 0.9, 0.75
_NOT_SHOWN = "some containers hide it, and sandboxes like gVisor write zeros: run it on the host"
_NOMINAL = re.compile(r"@ ?([\d.]+) ?GHz")


def others_band(allowed_cores: float) -> Band:
    hi = max(OTHERS_LEAST_CORES, OTHERS_SHARE * allowed_cores)
    return Band(None, hi, f"{OTHERS_SHARE:.0%} of the allowed cores: measurements on a machine in use prove nothing")


def cores_allowed(watch: Watch) -> float:
    """Returns the smallest of affinity, cpuset and quota, in cores."""
    state = watch.limits()
    quota = state.cpu.quota_cores if state and state.cpu else None
    return min(float(len(watch.cores)), quota) if quota else float(len(watch.cores))


def facts(watch: Watch, root: Path = Path("/")) -> Iterator[Item]:
    """The machine's processors, and the part that is ours."""
    machine = host_facts(root)
    yield fact("cpu.model", machine["cpu_model"])
    yield fact("machine.hypervisor", machine["hypervisor"] or "none seen")
    yield fact("machine.container", machine["container"] or "none seen")
    yield fact("machine.kernel", machine["kernel"])
    governor = machine["cpu_governor"]
    yield fact("cpu.governor", governor or "none seen", hint="" if governor else "usual in virtual machines")
    online = parse_cpu_list(read_text(root / "sys/devices/system/cpu/online") or "")
    seen = float(len(online) or len(watch.cores))
    yield fact("cpu.cores_seen", seen, "cores")
    yield _smt(machine)
    part = f"of {seen:.0f}: a cpuset or CPU affinity excludes the others; torch and DataLoader respect it"
    yield fact("cpu.cores_affinity", float(len(watch.cores)), "cores", hint=part if len(watch.cores) < seen else "")
    yield _quota(watch)
    nodes = [cpus for cpus in machine["numa_nodes"].values() if cpus]
    yield fact(
        "numa.nodes",
        float(len(nodes)) if nodes else None,
        "nodes",
        hint="" if nodes else "/sys does not show NUMA nodes",
    )


def _smt(machine: MachineFacts) -> Found:
    threads, cores = machine["threads"], machine["cores"]
    per_core = threads / cores if threads and cores else None
    shared = "two threads share a core: together they do about 1.3 times the work of one"
    hint = shared if machine["smt"] else "" if per_core else "/sys does not show cores"
    return fact("cpu.threads_per_core", per_core, "threads", hint=hint)


def _quota(watch: Watch) -> Item:
    state = watch.limits()
    if state is None or state.cpu is None:
        hint = "mount /sys/fs/cgroup into the container: a CPU quota could throttle the job unnoticed"
        return TriageGap("cpu.cores_allowed", "our CPU control group cannot be seen", hint)
    affinity = float(len(watch.cores))
    allowed = cores_allowed(watch)
    band = Band(affinity, None, "the visible cores: thread pools and workers are sized for them (rule CPU001)")
    what = f"a CPU quota of {allowed:g} cores where {affinity:.0f} are seen"
    hint = (
        f"{what}: raise it (docker --cpus, Kubernetes limits.cpu, cpu.max), or fit OMP_NUM_THREADS and workers to it; "
        "beyond it the kernel stops all threads for the rest of each period"
    )
    return judged("cpu.cores_allowed", allowed, "cores", band, remedy="fix", strict=True, hint=hint, why=hint)


def load(stretches: Sequence[LoadInterval], watch: Watch, idle: LoadInterval) -> Iterator[Item]:
    """CPU time that others, the hypervisor and limits took during the other measurements."""
    yield _others(stretches, watch)
    whole = LoadInterval(stretches[0].before, stretches[-1].after)
    steal = whole.steal_share
    if steal is None:
        yield TriageGap("cpu.steal_share", "/proc/stat does not show it", _NOT_SHOWN)
    else:
        limit = STEAL.thresholds["steal"]
        taken = f"the hypervisor gave {fmt.share(steal)} of the CPU time requested here to another virtual machine"
        hint = f"{taken}: another instance type (dedicated cores) or another host"
        band = Band(None, limit.value, f"rule CPU002: {limit.why}")
        yield judged("cpu.steal_share", steal, "share", band, remedy="hand-back", strict=True, hint=hint, why=hint)
    held = whole.throttled_share
    if held is not None:
        limit = QUOTA.thresholds["periods"]
        hint = f"a CPU quota throttled triage in {fmt.share(held)} of its periods: raise or remove it"
        band = Band(None, limit.value, f"rule CPU001: {limit.why}")
        yield judged("cpu.throttled_share", held, "share", band, remedy="fix", strict=True, hint=hint, why=hint)
    yield from _pressure(idle)
    yield from _heat(whole)


def _others(stretches: Sequence[LoadInterval], watch: Watch) -> Item:
    others = mean_others(stretches)
    if others is None:
        return TriageGap("cpu.others_cores", "/proc/stat has no account of the cores that we may use", _NOT_SHOWN)
    allowed = cores_allowed(watch)
    taken = taken_from_us(others, len(watch.cores), allowed)
    hint = (
        f"other processes keep {fmt.number(taken)} of the {allowed:g} cores busy: end them (see top), "
        "or measure again when the machine is idle"
    )
    return judged(
        "cpu.others_cores", taken, "cores", others_band(allowed), remedy="fix", strict=True, hint=hint, why=hint
    )


def _pressure(idle: LoadInterval) -> Iterator[Item]:
    """Before we did anything: what we cause ourselves proves nothing."""
    memory = idle.pressure_share("memory")
    if memory is None:
        yield TriageGap("psi.memory_share", "no /proc/pressure", "Linux 4.20 with CONFIG_PSI, or psi=1 at boot")
        return
    hint = "processes wait for memory while nothing trains: find what uses it, or add memory"
    limit = MEMORY.thresholds["pressure"]
    band = Band(None, limit.value, f"rule MEM001: {limit.why}")
    yield judged("psi.memory_share", memory, "share", band, remedy="fix", hint=hint, why=hint)
    for name in ("cpu", "io"):
        yield fact(f"psi.{name}_share", idle.pressure_share(name), "share", hint="before anything was measured")


def _heat(whole: LoadInterval) -> Iterator[Item]:
    events = whole.thermal_events
    if events is None:
        yield TriageGap(
            "cpu.thermal_events", "this processor or hypervisor does not count them", "usual on AMD and in VMs"
        )
        return
    hint = "cores lowered their clocks because of heat while they were measured"
    yield judged(
        "cpu.thermal_events", float(events), "events", Band(None, 0.0, "none with sufficient cooling"), hint=hint
    )


def nominal_mhz(root: Path = Path("/")) -> float | None:
    """The base clock: by cpufreq, by ACPI on AMD, else as the model's name has it."""
    khz = read_text(root / "sys/devices/system/cpu/cpu0/cpufreq/base_frequency")
    if khz and khz.isdigit():
        return int(khz) / 1e3
    mhz = read_text(root / "sys/devices/system/cpu/cpu0/acpi_cppc/nominal_freq")
    if mhz and mhz.isdigit() and int(mhz):
        return float(mhz)
    named = _NOMINAL.search(host_facts(root)["cpu_model"] or "")
    return 1e3 * float(named[1]) if named else None


def working_mhz(cores: Collection[int], working: int, root: Path = Path("/")) -> float | None:
    """Mean clock of as many of our cores as have work, the fastest ones: idle ones rest at a lower clock, and others' cores are not ours.

    None where only /proc/cpuinfo has it and a hypervisor writes that: there it is the nominal clock, whatever the cores do.
    """
    clocks = [_by_cpufreq(core, root) for core in cores]
    known = [mhz for mhz in clocks if mhz is not None]
    by_core = {} if known or host_facts(root)["hypervisor"] else _by_cpuinfo(read_text(root / "proc/cpuinfo") or "")
    fastest = sorted(known or [by_core[core] for core in cores if core in by_core], reverse=True)[: max(1, working)]
    return sum(fastest) / len(fastest) if fastest else None


def _by_cpufreq(core: int, root: Path) -> float | None:
    khz = read_text(root / f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq")
    return int(khz) / 1e3 if khz and khz.isdigit() else None


def _by_cpuinfo(text: str) -> dict[int, float]:
    found, core = {}, -1
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "processor" and value.strip().isdigit():
            core = int(value)
        elif name.strip() == "cpu MHz":
            found[core] = float(value)
    return found


def clock(loaded_mhz: float | None, root: Path = Path("/")) -> Item:
    """The clock of the cores that had work, while as many had as we may use."""
    nominal = nominal_mhz(root)
    if loaded_mhz is None or nominal is None:
        missing = "the clock" if loaded_mhz is None else "the base clock"
        hint = "usual in virtual machines: judge by decoding and memory speed instead"
        return TriageGap("cpu.clock_mhz", f"{missing} of these cores is not reported", hint)
    band = Band(
        _BASE_CLOCK_SHARE * nominal, None, f"the base clock of {nominal:.0f} MHz is guaranteed for all cores under load"
    )
    saves = _governor_that_saves(root)
    why_slow = f"its governor is {saves} (cpupower frequency-set -g performance)" if saves else "heat, or a power limit"
    hint = f"{loaded_mhz:.0f} MHz with our cores busy: {why_slow}"
    return judged(
        "cpu.clock_mhz",
        loaded_mhz,
        "MHz",
        band,
        remedy="fix" if saves else "hand-back",
        bad_share=_HELD_CLOCK_SHARE / _BASE_CLOCK_SHARE,
        needs_cores=True,
        hint=hint,
        why=hint,
    )


def _governor_that_saves(root: Path) -> str:
    """Empty where the processor chooses its clocks by itself: to the drivers of newer ones powersave is a preference."""
    folder = root / "sys/devices/system/cpu/cpu0/cpufreq"
    governor, driver = (read_text(folder / name) or "" for name in ("scaling_governor", "scaling_driver"))
    return governor if governor in ("powersave", "userspace") and "pstate" not in driver else ""
