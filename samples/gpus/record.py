"""Records the runs of stories: real GPU probe and bindings over the fake driver, made-up steps and a made-up clock.

`python -m samples.gpus.record` reads from stdin what to record, a JSON list in each line: a story, its run folder, the driver library, the
file to write as the driver's script, and changes to fields of the story. It answers each line with an exit code. Each story gets its own
process, because a driver library is loaded only once; processes are forked, because imports take longer than recording.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.metrics import Sample
from rn50_advisor.advisor.model.recording import Process
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.probes.host.gpu.gpu_probe import GpuProbe
from rn50_advisor.probes.host.procfs import parse_cpu_list
from rn50_advisor.probes.host.target import Target
from samples.gpus.steps import SECOND, steps_of
from samples.gpus.stories import STORIES, Story

SECONDS = 40
START_NS = 1_000_000_000_000
FIRST_STEP_NS = START_NS + 3 * SECOND
FIRST_PID = 5000
CORES = 96  # if no GPU reports its nearby cores
STARTED_UNIX_S = 1_750_000_000.0


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
    until_ns = START_NS + (SECONDS // 2 if story.dies is not None else SECONDS - 1) * SECOND
    steps = steps_of(story, FIRST_STEP_NS, until_ns)
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
    """Drops the probe's cost, which differs in each recording, and every other second, except Xids and lost GPUs: half is enough here."""
    kept = [sample for sample in samples if sample.metric != "gpu.probe_s"]
    rare = ("gpu.xid", "gpu.lost")
    return kept if second % 2 == 0 else [sample for sample in kept if sample.metric in rare]


def _write_script(story: Story, script: Path) -> None:
    on = [*enumerate(_gpus_of(story)), *((0, gpu) for gpu in story.beside)]
    own = [] if story.on_cpu else [f"{gpu} {FIRST_PID + rank} 20000000000 60" for rank, gpu in on]
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
    """CPUs by NUMA node, for the nodes near the GPUs; one node with all cores if no GPU is known."""
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
        on_gpu = None if story.on_cpu else {**cuda, **story.facts.get("cuda", {})}
        about = {"pid": pid, "torch": story.facts.get("torch", "2.8.0"), "cuda": on_gpu}
        others = {name: fact for name, fact in story.facts.items() if name not in ("cuda", "torch")}
        writer.put_facts(pid, {**about, "cpus_allowed": allowed, "threads": 1, **others})


def _host(second: int) -> list[Sample]:
    """Samples of a host with cores and memory to spare."""
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


def serve() -> None:
    for line in sys.stdin:
        name, folder, library, script, changes = json.loads(line)
        child = os.fork()
        if not child:
            os.environ["FAKE_NVML_SCRIPT"] = script
            ctypes.CDLL(library)  # the bindings load it by its name, and get this one
            record(name, Path(folder), Path(script), changes)
            return
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
