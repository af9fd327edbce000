"""Records the run of one story: real GPU probe and bindings over the fake driver, made-up steps, a clock of its own.

`LD_LIBRARY_PATH=FOLDER FAKE_NVML_SCRIPT=FILE python -m samples.gpus.record STORY RUN_FOLDER FILE [CHANGES]`, in a process of its own: a
driver library is loaded once. FILE is written here, as the script that the driver then reads; CHANGES are fields of the story, as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from advisor.core.metrics import Sample
from advisor.core.recording import Process
from advisor.store.writer import RunWriter
from probes.host.gpu import GpuProbe
from probes.host.procfs import parse_cpu_list
from probes.host.target import Target
from probes.rank.layout import (
    COMM_FIELDS,
    FLAG_COMM_SAMPLED,
    GPU_STEP_FIELDS,
    KIND_COMM,
    KIND_GPU_STEP,
    KIND_STEP,
    STEP_FIELDS,
)
from samples.gpus.stories import STORIES, Story

SECONDS = 40
START_NS = 1_000_000_000_000
FIRST_STEP_NS = START_NS + 3_000_000_000
SECOND, MS = 1_000_000_000, 1_000_000
STAMP_EVERY = 5
FIRST_PID = 5000
CORES = 96  # where no GPU tells what is near it
STARTED_UNIX_S = 1_750_000_000.0

Record = tuple[int, int, int, tuple[int, ...]]  # kind, rank, flags, payload


def record(name: str, folder: Path, script: Path, changes: Mapping[str, Any]) -> None:
    """Writes the run of a story into `folder`."""
    story = dataclasses.replace(STORIES[name], **changes)
    _write_script(story, script)
    clock = [START_NS]
    meta = {
        "name": name,
        "argv": ["torchrun", f"--nproc_per_node={story.ranks}", "train.py"],
        "cwd": "/job",
        "host": "gpu-node",
        "started_unix_s": STARTED_UNIX_S,
        "started_ns": START_NS,
    }
    probe = GpuProbe(script.parent)
    writer = RunWriter.create(folder, meta=meta, clock=lambda: clock[0])
    writer.put_meta(environment=_environment(story, probe))
    _put_ranks(writer, story, probe)
    targets = [Target(FIRST_PID + rank, "rank", rank) for rank in range(story.ranks)]
    steps = _steps(story)
    waiting = next(steps, None)
    for second in range(SECONDS + 1):
        clock[0] = START_NS + second * SECOND
        while waiting is not None and waiting[0] <= clock[0]:
            for kind, rank, flags, payload in waiting[1]:
                writer.put_records(kind, rank, [(flags, payload)])
            waiting = next(steps, None)
        reading = probe.sample(clock[0], targets)
        writer.put_samples(clock[0], [*_thin(reading.samples, second), *_host(second)])
        for gap in reading.gaps:
            writer.put_gap(gap)
        writer.commit()
    _end(writer, story, clock[0])
    writer.close()


def _thin(samples: tuple[Sample, ...], second: int) -> list[Sample]:
    """The probe's cost is this machine's and no two recordings' alike; every other second is enough for a sample of a run."""
    kept = [sample for sample in samples if sample.metric != "gpu.probe_s"]
    rare = ("gpu.xid", "gpu.lost")
    return kept if second % 2 == 0 else [sample for sample in kept if sample.metric in rare]


def _write_script(story: Story, script: Path) -> None:
    own = [f"{gpu} {FIRST_PID + rank} 20000000000 60" for rank, gpu in enumerate(_gpus_of(story))]
    listed = script.with_suffix(".processes")
    listed.write_text("\n".join([*own, *story.strangers]) + "\n")
    script.write_text("\n".join([*story.machine(), f"processes {listed}", *story.extra]) + "\n")


def _gpus_of(story: Story) -> tuple[int, ...]:
    return story.on or tuple(range(story.ranks))


def _environment(story: Story, probe: GpuProbe) -> dict[str, Any]:
    return {
        "gpus": [dataclasses.asdict(device) for device in probe.devices()],
        "gpu_paths": [dataclasses.asdict(path) for path in probe.paths()],
        "driver": probe.driver_version,
        "driver_cuda": probe.cuda_version,
        "numa_nodes": _nodes(probe),
        "variables": dict(story.variables),
    }


def _nodes(probe: GpuProbe) -> dict[str, list[int]]:
    """The host's nodes are those that its GPUs are near."""
    near = {str(device.numa_node): sorted(parse_cpu_list(device.cpus or "")) for device in probe.devices()}
    return near or {"0": list(range(CORES))}


def _put_ranks(writer: RunWriter, story: Story, probe: GpuProbe) -> None:
    devices = {device.index: device for device in probe.devices()}
    for rank, gpu in enumerate(_gpus_of(story)):
        pid = FIRST_PID + rank
        writer.put_process(Process(pid, "rank", rank, rank, None, FIRST_PID - 1, "python train.py", START_NS + SECOND))
        device = devices.get(gpu)
        uuid = story.mig or (device.uuid if device else "")
        total = next((m.mem_total_bytes for d in devices.values() for m in d.mig_instances if m.uuid == uuid), None)
        cuda = {
            "device": rank,
            "name": device.name if device else "",
            "uuid": uuid.removeprefix("GPU-").removeprefix("MIG-") or None,
            "visible": None,
            "memory_bytes": total or (device.mem_total_bytes if device else None),
        }
        everywhere = [cpu for node in _nodes(probe).values() for cpu in node]
        allowed = sorted(parse_cpu_list(story.cpus[str(rank)])) if str(rank) in story.cpus else everywhere
        about = {"pid": pid, "torch": "2.8.0", "cuda": {**cuda, **story.facts.get("cuda", {})}}
        seen = {name: fact for name, fact in story.facts.items() if name != "cuda"}
        writer.put_facts(pid, {**about, "cpus_allowed": allowed, "threads": 1, **seen})


def _steps(story: Story) -> Iterator[tuple[int, list[Record]]]:
    """(end, records) of each step: ranks leave the backward together, when the last has come and the wire is through."""
    begin, number = FIRST_STEP_NS, 0
    memory_at = 0
    ends = START_NS + (SECONDS // 2 if story.dies is not None else SECONDS - 1) * SECOND
    while begin < ends:
        compute = {r: story.compute_ms * story.slow.get(r, 1.0) * _wobble(number, r) for r in range(story.ranks)}
        arrive = {r: 4.0 + 0.88 * ms for r, ms in compute.items()}
        leave = max(arrive.values()) + (story.wire_ms if story.ranks > 1 else 0.0)
        took = leave + 0.12 * story.compute_ms + story.gap_ms
        records: list[Record] = []
        stamped = story.ranks > 1 and number % STAMP_EVERY == 0
        for rank, ms in compute.items():
            waits = leave - arrive[rank]
            phases = {"input_wait": 4.0, "forward": 0.33 * ms, "backward": 0.55 * ms + waits}
            phases |= {"optimizer": 0.12 * story.compute_ms, "gap": story.gap_ms}
            host = _host_ms(phases, story)
            records.append((KIND_STEP, rank, FLAG_COMM_SAMPLED * stamped, _step(number, begin, took, host, story)))
            if stamped:
                records.append((KIND_COMM, rank, 0, _stamp(number, begin, arrive[rank], leave)))
            memory = number == 0 or begin - memory_at >= SECOND
            records.append(
                (KIND_GPU_STEP, rank, 0, _gpu_step(number, phases, _memory(story, number) if memory else {}))
            )
        if number == 0 or begin - memory_at >= SECOND:
            memory_at = begin
        begin += round(took * MS)
        yield begin, records
        number += 1


def _host_ms(phases: Mapping[str, float], story: Story) -> dict[str, float]:
    """The host's times of a step whose GPU takes these."""
    if not story.launch_ms:
        return dict(phases)
    launching = {
        name: phases[name] / story.compute_ms * story.launch_ms for name in ("forward", "backward", "optimizer")
    }
    held = sum(phases.values()) - sum(launching.values()) - phases["input_wait"]
    return {"input_wait": phases["input_wait"], **launching, "gap": held}


def _wobble(number: int, rank: int) -> float:
    """A percent or two, the same in every recording."""
    return 1.0 + 0.02 * ((number * 7919 + rank * 104_729) % 1000) / 1000


def _row(fields: tuple[str, ...], values: Mapping[str, float]) -> tuple[int, ...]:
    return tuple(round(values.get(name, 0)) for name in fields)


def _step(number: int, begin: int, took_ms: float, phases: Mapping[str, float], story: Story) -> tuple[int, ...]:
    times = {f"{name}_ns": ms * MS for name, ms in phases.items()}
    about = {"step": number, "t_start_ns": begin, "t_end_ns": begin + round(took_ms * MS)}
    return _row(STEP_FIELDS, {**about, **times, "samples": story.samples, "micro_batches": 1, "self_ns": 30_000})


def _stamp(number: int, begin: int, arrive_ms: float, leave_ms: float) -> tuple[int, ...]:
    arrived, left = begin + round(arrive_ms * MS), begin + round(leave_ms * MS)
    stamps = {"backward_start_ns": begin, "compute_end_ns": arrived, "comm_start_ns": arrived, "comm_end_ns": left}
    return _row(COMM_FIELDS, {"step": number, "iteration": number, "comm_ns": left - arrived, **stamps})


def _gpu_step(number: int, phases: Mapping[str, float], memory: Mapping[str, float]) -> tuple[int, ...]:
    times = {f"{name}_ns": ms * MS for name, ms in phases.items()}
    told = dict.fromkeys(("allocated_bytes", "reserved_bytes", "peak_bytes", "alloc_retries"), -1)
    return _row(GPU_STEP_FIELDS, {"step": number, **times, **told, **memory})


def _memory(story: Story, number: int) -> dict[str, float]:
    held = story.memory_gb * 1e9 + number * story.creep_mb * 1e6
    retries = number // story.retry_every if story.retry_every else 0
    return {"allocated_bytes": 0.6 * held, "reserved_bytes": held, "peak_bytes": 0.95 * held, "alloc_retries": retries}


def _host(second: int) -> list[Sample]:
    """A host at ease."""
    counters = {"cpu.busy_s": 20.0, "cpu.idle_s": CORES - 20.0, "cpu.iowait_s": 0.0, "cpu.steal_s": 0.0}
    levels = {"cpu.cores": CORES, "mem.total_bytes": 1e12, "mem.available_bytes": 8e11}
    found = [Sample(name, "host", rate * second) for name, rate in counters.items()]
    found += [Sample(name, "host", float(value)) for name, value in levels.items()]
    return [*found, Sample("job.cpu_s", "job", 19.0 * second), Sample("cpu.allowed_cores", "job", float(CORES))]


def _end(writer: RunWriter, story: Story, now_ns: int) -> None:
    code = 0 if story.dies is None else 1
    for rank in range(story.ranks):
        ended = Process(FIRST_PID + rank, "rank", rank, rank, None, FIRST_PID - 1, "python train.py", START_NS + SECOND)
        gone_ns = now_ns if story.dies is None else START_NS + (SECONDS // 2 + 1 + (rank != story.dies)) * SECOND
        writer.put_process(dataclasses.replace(ended, ended_ns=gone_ns, exit_code=code, clean_exit=code == 0))
    agent = {"cpu_s": 0.3, "wall_s": float(SECONDS), "startup_s": 0.2, "lost_records": 0}
    writer.put_meta(ended_ns=now_ns, exit_code=code, exit_signal=None, agent=agent)


if __name__ == "__main__":
    record(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), json.loads(sys.argv[4]) if len(sys.argv) > 4 else {})
