"""Plays a described job and writes its run as the agent would: records from the recorder's rings, readings of the driver, facts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rn50_advisor.advisor.model.metrics import Sample
from rn50_advisor.advisor.model.recording import Process
from rn50_advisor.advisor.run.rings.ring_reader import RingReader
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.probes.rank.layout import BATCH_FIELDS, KIND_BATCH
from samples.gpus.machines import bus_id, uuid
from samples.gpus.stories import CUDA, LAYER, healthy_facts
from samples.gpus.streams.description import Job
from samples.gpus.streams.simulated_rank import MS, SimulatedRank
from samples.gpus.streams.stand_ins import EVALUATED, FIRST_PID, LOADER, RESERVED_BYTES, Torch, simulated_clock
from samples.gpus.streams.timelines import Host, World
from samples.gpus.streams.training_script import Ending, train

SECOND = 1_000_000_000
START_NS = 1_000 * SECOND
FIRST_STEP_NS = START_NS + 3 * SECOND
POLL_NS = SECOND // 4  # of the agent
CORES = 96
ACTIVE_SHARE = 0.85  # of its units, while a kernel runs
CONTEXT_BYTES, STRANGER_BYTES = 1_100_000_000, 6_000_000_000
LISTED = ("gpu.own_processes", "gpu.foreign_processes", "gpu.foreign_mem_bytes", "gpu.foreign_sm_pct")
OBSERVED = (
    "syncs",
    "copies",
    "operations",
    "gpu_steps_dropped",
    "replayed_steps",
    "visible_optimizer",
    "ddp",
    "collectives",
    "debugging",
    "save_sites",
)


def play(job: Job) -> float:
    """Seconds per step of the job in the second half of its steps, without recording anything."""
    ends: list[list[int]] = [[] for _ in range(job.ranks)]
    with tempfile.TemporaryDirectory() as folder:
        _run(job, Path(folder), _Ignored(), ends)
    return _step_s(ends)


def record(job: Job, folder: Path, *, name: str) -> float:
    """Writes the run of the job into `folder`. Returns its seconds per step."""
    clock = [START_NS]
    meta = {
        "name": name,
        "argv": ["torchrun", f"--nproc_per_node={job.ranks}", "train.py"],
        "cwd": "/job",
        "host": "gpu-node",
        "started_unix_s": 1_750_000_000.0,
        "started_ns": START_NS,
    }
    writer = RunWriter.create(folder, meta=meta, clock=lambda: clock[0])
    writer.put_meta(environment=_environment(job))
    ends: list[list[int]] = [[] for _ in range(job.ranks)]
    with tempfile.TemporaryDirectory() as rings:
        agent = _Agent(job, Path(rings), writer, clock)
        world, torches = _run(job, Path(rings), agent, ends)
        agent.look(max(host.now_ns for host in world.hosts))
    for torch in torches:
        writer.put_facts(FIRST_PID + torch.own.rank, _facts(job, torch))
    _put_readings(writer, job, world, len(ends[0]), clock)
    for process in _processes(job, clock[0]):
        writer.put_process(process)
    agent_cost = {"cpu_s": 0.3, "wall_s": (clock[0] - START_NS) / 1e9, "startup_s": 0.2, "lost_records": 0}
    writer.put_meta(ended_ns=clock[0], exit_code=0, exit_signal=None, agent=agent_cost)
    writer.commit()
    writer.close()
    return _step_s(ends)


def _step_s(ends: list[list[int]]) -> float:
    """Mean seconds per step of the slowest rank, from the ends of the steps on its GPU."""
    means = [(own[-1] - own[len(own) // 2]) / (len(own) - 1 - len(own) // 2) for own in ends]
    return max(means) / 1e9


class _Ignored:
    def watch(self, now_ns: int) -> None: ...
    def batch(self, rank: int, worker: int, row: dict[str, int]) -> None: ...


class _Agent:
    """Drains the rings every so often, as the agent does, into the run file."""

    def __init__(self, job: Job, rings: Path, writer: RunWriter, clock: list[int]) -> None:
        self._job, self._rings, self._writer, self._clock = job, rings, writer, clock
        self._readers: dict[int, RingReader] = {}
        self._held: list[tuple[int, int, dict[str, int]]] = []

    def watch(self, now_ns: int) -> None:
        self.look(now_ns)

    def look(self, now_ns: int) -> None:
        self._clock[0] = now_ns
        for rank in range(self._job.ranks):
            if rank not in self._readers and (self._rings / f"rank-{rank}.ring").exists():
                self._readers[rank] = RingReader(self._rings / f"rank-{rank}.ring")
        for rank, reader in self._readers.items():
            drained = reader.drain()
            assert not drained.lost, "records were overwritten"
            for kind, rows in drained.rows.items():
                self._writer.put_records(kind, rank, rows)
        for rank, worker, row in self._held:
            pid = _worker_pid(self._job, rank, worker)
            self._writer.put_records(
                KIND_BATCH, rank, [(0, tuple(row.get(field, 0) for field in BATCH_FIELDS))], pid=pid
            )
        self._held.clear()
        self._writer.commit()

    def batch(self, rank: int, worker: int, row: dict[str, int]) -> None:
        self._held.append((rank, worker, row))


def _run(job: Job, rings: Path, agent: Any, ends: list[list[int]]) -> tuple[World, list[Torch]]:
    """Trains on all ranks. `ends` gets the times at which each step's work ends on each GPU."""
    world = World(job.ranks, FIRST_STEP_NS, agent.watch, every_ns=POLL_NS)
    torches: list[Torch] = []
    ending = Ending(FIRST_STEP_NS + round(job.seconds * SECOND), job.steps_max)

    def body(host: Host) -> None:
        rank, tails = host.rank, []
        torch = Torch(SimulatedRank(job, host), rings, world, lambda worker, row: agent.batch(rank, worker, row))
        torches.append(torch)
        train(torch, ending, tails)
        host.wait(host.mark())
        torch.recorder.leaves()
        ends[rank] = [work.end_ns for work in tails]

    with simulated_clock(world):
        world.run(body)
    return world, sorted(torches, key=lambda torch: torch.own.rank)


def _worker_pid(job: Job, rank: int, worker: int) -> int:
    return FIRST_PID + 1000 + rank * job.loader.workers + worker


# -- what surrounds the ranks ---------------------------------------------------------------------------------------------------


def _processes(job: Job, ended_ns: int) -> Iterator[Process]:
    seen_ns = START_NS + SECOND
    for rank in range(job.ranks):
        pid = FIRST_PID + rank
        yield Process(pid, "rank", rank, rank, None, FIRST_PID - 1, "python train.py", seen_ns, ended_ns, 0, None, True)
        for worker in range(job.loader.workers):
            own = _worker_pid(job, rank, worker)
            yield Process(own, "worker", rank, None, worker, pid, "python train.py", seen_ns, ended_ns, 0, None, True)


def _environment(job: Job) -> dict[str, Any]:
    kind = job.gpu.kind
    one = {
        "name": kind.name,
        "mem_total_bytes": kind.mem_bytes,
        "power_limit_default_w": kind.power_w,
        "sm_clock_max_mhz": kind.sm_mhz,
        "pcie_gen_max": kind.gen,
        "pcie_width_max": 16,
        "nvlinks": kind.links,
        "ecc": kind.ecc,
        "numa_node": 0,
        "cpus": f"0-{CORES - 1}",
    }
    gpus = [{"index": n, "uuid": uuid(n), "pci_bus_id": bus_id(n), **one} for n in range(job.ranks)]
    paths = [{"a": a, "b": b, "path": "NV12", "p2p": "ok"} for b in range(job.ranks) for a in range(b)]
    return {
        "gpus": gpus,
        "gpu_paths": paths,
        "driver": "575.57.08",
        "driver_cuda": 12090,
        "numa_nodes": {"0": list(range(CORES))},
        "variables": {},
    }


def _facts(job: Job, torch: Torch) -> dict[str, Any]:
    """The facts of one rank: what the recorder observed, and what the story says of model, precision and loader."""
    rank, kind = torch.own.rank, job.gpu.kind
    capability = [int(part) for part in kind.capability.split(".")]
    about = healthy_facts(cuda=CUDA, conv={**LAYER, "shape": [job.batch, 3, 224, 224]})
    told = {**about, **job.facts}
    loader = {
        "id": LOADER,
        "training": True,
        "file": "/job/train.py",
        "line": 20,
        "class": "DataLoader",
        "batch_size": job.batch,
        "num_workers": job.loader.workers,
        "prefetch_factor": 2,
        "pin_memory": job.pinned,
        "persistent_workers": True,
        "shuffle": True,
        "batch_bytes": round(job.batch_mb * 1e6),
        "dataset": {"class": "job.data.Images", "length": 1_281_167},
    }
    evaluating = [{**loader, "id": EVALUATED, "training": False, "line": 24}] if job.pauses.evaluates_every else []
    cuda = {**told["cuda"], "device": rank, "name": kind.name, "capability": capability}
    cuda |= {"uuid": uuid(rank).removeprefix("GPU-"), "visible": None, "memory_bytes": kind.mem_bytes}
    seen = {name: torch.recorder.facts.values[name] for name in OBSERVED if name in torch.recorder.facts.values}
    own = {"pid": FIRST_PID + rank, "rank": rank, "world_size": job.ranks, "torch": "2.8.0", "run_delay": True}
    if job.compiled_update:
        told = {**told, "compiled_frames": 1}
    del told["copies"], told["syncs"]
    return {
        **told,
        **own,
        "cuda": cuda,
        "cpus_allowed": list(range(CORES)),
        "threads": 1,
        "loaders": [loader, *evaluating],
        **seen,
    }


def _put_readings(writer: RunWriter, job: Job, world: World, steps: int, clock: list[int]) -> None:
    """Puts what the host's and the GPUs' probes read once a second."""
    end_ns = max(host.now_ns for host in world.hosts)
    busy = [_slots(host, job, end_ns) for host in world.hosts]
    active = [ACTIVE_SHARE * _computing_share(host, end_ns) for host in world.hosts]
    received = job.batch_mb * 1e6 * job.micro_batches * steps * SECOND / (end_ns - FIRST_STEP_NS)
    for second in range(1, (end_ns - START_NS) // SECOND + 1):
        t_ns = START_NS + second * SECOND
        samples = [*_host_samples(second)]
        for rank, slots in enumerate(busy):
            samples += _gpu_samples(job, rank, second, _utilisation(slots, job, t_ns))
            samples.append(Sample("gpu.pcie_rx_bytes", f"gpu:{rank}", received * second))
            if job.gpu.kind.gpm:
                samples.append(Sample("gpu.sm_active_pct", f"gpu:{rank}", round(100 * active[rank], 1)))
        writer.put_samples(t_ns, samples)
    writer.commit()
    clock[0] = end_ns + SECOND // 10


def _slots(host: Host, job: Job, end_ns: int) -> Any:
    """Share of each of the driver's time slots in which a kernel ran. Gaps shorter than a slot between kernels are not seen."""
    width_ns = job.gpu.utilisation_slot_ms * MS
    slots = np.zeros(int((end_ns - FIRST_STEP_NS) / width_ns) + 2)
    for began_ns, ended_ns, busy_ns, kernels in host.device.busy():
        apart_ns = (ended_ns - began_ns) / kernels
        share = 1.0 if apart_ns < width_ns else min(1.0, busy_ns / max(1, ended_ns - began_ns))
        first, last = (int((t_ns - FIRST_STEP_NS) / width_ns) for t_ns in (began_ns, ended_ns))
        slots[first : last + 1] = np.maximum(slots[first : last + 1], share)
    return slots


def _computing_share(host: Host, end_ns: int) -> float:
    """Share of the time in which a kernel other than a collective ran."""
    busy = sum(busy_ns for *_, busy_ns, kernels in host.device.busy() if kernels > 1)
    return min(1.0, busy / (end_ns - FIRST_STEP_NS))


def _utilisation(slots: Any, job: Job, t_ns: int) -> float:
    """The driver's utilisation in percent: that of its last window."""
    width_ns = job.gpu.utilisation_slot_ms * MS
    last = (t_ns - FIRST_STEP_NS) / width_ns
    first = last - max(1.0, SECOND * job.gpu.utilisation_window_s / width_ns)
    window = slots[max(0, int(first)) : max(0, int(last))]
    return float(round(100 * window.mean())) if window.size else 0.0


def _gpu_samples(job: Job, rank: int, second: int, util_pct: float) -> list[Sample]:
    gpu, kind, scope = job.gpu, job.gpu.kind, f"gpu:{rank}"
    usual_mhz = round(0.97 * kind.sm_mhz)
    held = gpu.clock.get(rank, 1.0) < 1.0
    load = util_pct / 100
    watts = kind.power_w * (0.2 + 0.6 * load) * (0.7 if held else 1.0)
    if held and gpu.held_by == "own limit":
        watts = kind.power_w * (0.2 + 0.79 * load)
    stranger = gpu.stranger.get(rank, 0.0)
    counted = {"gpu.sw_thermal_s": ("heat",), "gpu.power_cap_s": ("power cap", "own limit")}
    values: dict[str, float] = {
        "gpu.util_pct": util_pct,
        "gpu.sm_clock_mhz": round(usual_mhz * gpu.clock.get(rank, 1.0)),
        "gpu.sm_clock_max_mhz": kind.sm_mhz,
        "gpu.mem_clock_mhz": round(kind.mem_mhz * gpu.memory_clock.get(rank, 1.0)),
        "gpu.power_w": watts,
        "gpu.power_limit_w": kind.power_w * (0.6 if held and gpu.held_by == "power cap" else 1.0),
        "gpu.energy_j": watts * second,
        "gpu.temp_c": 88 if held and gpu.held_by == "heat" else 61,
        "gpu.mem_used_bytes": RESERVED_BYTES + CONTEXT_BYTES + (STRANGER_BYTES if stranger else 0),
        "gpu.mem_total_bytes": kind.mem_bytes,
        "gpu.pcie_gen": kind.gen,
        "gpu.pcie_width": gpu.link_width.get(rank, 16),
        "gpu.hw_thermal_s": 0,
        "gpu.power_brake_s": 0,
        "gpu.xids": 0,
        "gpu.clock_reasons": 0,
        "gpu.own_processes": 1,
        "gpu.foreign_processes": float(stranger > 0),
        "gpu.foreign_mem_bytes": STRANGER_BYTES if stranger else 0,
        "gpu.foreign_sm_pct": 100 * stranger,
        "gpu.ecc_uncorrected": 0,
        "gpu.nvlink_crc_errors": 0,
        "gpu.nvlink_recoveries": 0,
        **{name: 0.95 * second * float(held and gpu.held_by in why) for name, why in counted.items()},
    }
    hidden = () if gpu.lists_processes else LISTED
    return [Sample(name, scope, float(value)) for name, value in values.items() if name not in hidden]


def _host_samples(second: int) -> list[Sample]:
    """A host with cores and memory to spare."""
    counters = {"cpu.busy_s": 24.0, "cpu.idle_s": CORES - 24.0, "cpu.iowait_s": 0.0, "cpu.steal_s": 0.0}
    levels = {"cpu.cores": CORES, "mem.total_bytes": 1e12, "mem.available_bytes": 8e11}
    found = [Sample(name, "host", rate * second) for name, rate in counters.items()]
    found += [Sample(name, "host", float(value)) for name, value in levels.items()]
    return [*found, Sample("job.cpu_s", "job", 22.0 * second), Sample("cpu.allowed_cores", "job", float(CORES))]
