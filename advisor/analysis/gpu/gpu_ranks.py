"""The host's GPUs, the ranks on each, and the connections between them, as recorded by the agent and the ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rn50_advisor.advisor.analysis.host.node_window import Window, process_by_rank
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu, GpuPath, Xid
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_CLOCK_MHZ, GPU_THROTTLED_SHARE
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.peaks.gpu_peaks import pcie_width
from rn50_advisor.probes.documents.machine_documents import GpuDeviceFacts
from rn50_advisor.probes.documents.rank_documents import CudaFacts
from rn50_advisor.probes.host.gpu.gpu_devices import GpuDevice, MigInstance
from rn50_advisor.probes.host.gpu.gpu_visibility import same_uuid, visible_devices
from rn50_advisor.probes.host.procfs import parse_cpu_list

_DEFAULTS = {"name": "", "uuid": "", "pci_bus_id": "", "mem_total_bytes": None}
# Every driver reports one of these.
_BASICS = frozenset({"gpu.sm_clock_mhz", "gpu.power_w", "gpu.mem_used_bytes", "gpu.temp_c"})
# Evidence that GPU001 and GPU002 need. Foreign processes and errors are not required: a container hides other processes on the GPU, so no
# run in one would be healthy. The report says beside the verdict that they were not checked.
_HELD_BACK = {GPU_THROTTLED_SHARE: "what held its clocks down", GPU_CLOCK_MHZ: "its clock under load"}


def gpus_of(recording: Recording) -> tuple[Gpu, ...]:
    """The GPUs of this host with the ranks that run on them."""
    devices = _listed_devices(recording)
    on = rank_devices(recording, devices)
    also, places = _of_one_rank(recording, on), gpu_places(recording)
    found = []
    for device in devices:
        host, number = places.get(device.index, ("", device.index))
        ranks = tuple(sorted({r for r, i in [*on.items(), *also] if i == device.index}))
        first_of = tuple(sorted(r for r, i in on.items() if i == device.index))
        gpu = _gpu(recording, device, ranks)
        found.append(replace(gpu, first_of=first_of, host=host, index_on_host=number))
    return tuple(_as_its_kind(gpu, found) for gpu in found)


def _listed_devices(recording: Recording) -> list[GpuDevice]:
    return [_device(entry) for entry in recording.meta.environment.get("gpus", ())]


def gpu_places(recording: Recording) -> dict[int, tuple[str, int]]:
    """Host of each GPU and its index there, by its index in the job. Empty if the job ran on one host."""
    return {
        gpu["index"]: (node.host, gpu.get("index_on_host", gpu["index"]))
        for node in recording.nodes
        for gpu in node.recording.meta.environment.get("gpus", ())
    }


def paths_of(recording: Recording) -> tuple[GpuPath, ...]:
    paths = recording.meta.environment.get("gpu_paths", ())
    return tuple(GpuPath(path["a"], path["b"], path["path"], path["p2p"]) for path in paths)


def unmonitored_ranks(recording: Recording, gpus: tuple[Gpu, ...], values: Measured) -> tuple[tuple[int, ...], str]:
    """(ranks whose GPU was not watched for throttling during most steps, the reason).

    The driver reports neither clocks nor power for a MIG instance. The whole GPU's also depend on its other instances.
    """
    read = _read_scopes(recording)
    blind = {rank for gpu in gpus if not _is_monitored(gpu, read, values) for rank in gpu.ranks}
    seen = {rank for gpu in gpus for rank in gpu.ranks} - blind
    facts = {rank: recording.facts.get(p.pid, {}) for rank, p in process_by_rank(recording.processes).items()}
    unmonitored = tuple(sorted(rank for rank, own in facts.items() if own.get("cuda") and rank not in seen))
    return unmonitored, _why_unmonitored(recording, gpus, unmonitored, read, values) if unmonitored else ""


def _is_monitored(gpu: Gpu, read: set[str], values: Measured) -> bool:
    reported = all((measure, gpu.index) in values for measure in _HELD_BACK)
    return reported and not gpu.mig and f"gpu:{gpu.index}" in read


def _read_scopes(recording: Recording) -> set[str]:
    tables = [table for table in recording.steps.values() if table.size]
    start_ns = min((int(table["t_start_ns"].min()) for table in tables), default=recording.meta.started_ns)
    end_ns = max((int(table["t_end_ns"].max()) for table in tables), default=recording.meta.last_ns)
    window = Window(recording, start_ns, end_ns)
    return {scope for metric, scope in recording.samples if metric in _BASICS and window.covers(metric, scope)}


def _why_unmonitored(
    recording: Recording, gpus: tuple[Gpu, ...], unmonitored: tuple[int, ...], read: set[str], values: Measured
) -> str:
    on = [gpu for gpu in gpus if set(gpu.ranks) & set(unmonitored)]
    if on and all(gpu.mig for gpu in on):
        return "for a slice of a GPU (MIG) the driver reports neither clocks nor power"
    missing = [
        f"{what} is not reported ({why})" for measure, what in _HELD_BACK.items() if (why := values.why(measure))
    ]
    if on and missing and all(f"gpu:{gpu.index}" in read for gpu in on):
        return missing[0]
    reason = next((gap.reason for gap in recording.gaps if gap.metric == "gpu.*"), "")
    return reason or ("its readings stopped early" if on else "it is not known which GPU they use")


def rank_devices(recording: Recording, devices: Iterable[GpuDevice]) -> dict[int, int]:
    """NVML index of each rank's GPU: by the UUID that CUDA reports, else by CUDA_VISIBLE_DEVICES. Ranks without a GPU are absent.

    A UUID that no listed GPU has, or a gap in the indices, means that the driver did not list all GPUs. CUDA_VISIBLE_DEVICES is not used
    then, because counting in it could give another rank's GPU.
    """
    known, found = tuple(devices), {}
    if recording.nodes:  # CUDA_VISIBLE_DEVICES counts the GPUs of its own host
        on_hosts = [(node.recording, {d.index for d in _listed_devices(node.recording)}) for node in recording.nodes]
        return {
            r: i for own, here in on_hosts for r, i in rank_devices(own, [d for d in known if d.index in here]).items()
        }
    variables = recording.meta.environment.get("variables", {})
    named, complete = any(d.uuid for d in known), _is_complete(recording)
    for rank, process in process_by_rank(recording.processes).items():
        cuda = recording.facts.get(process.pid, {}).get("cuda")
        if cuda is None:
            continue
        uuid = cuda.get("uuid") or ""
        index = next((d.index for d in known if any(same_uuid(uuid, name) for name in (d.uuid, *d.mig_uuids))), None)
        if index is None and complete and not (uuid and named):
            index = _by_environment(cuda, variables, known)
        if index is not None:
            found[rank] = index
    return found


def _is_complete(recording: Recording) -> bool:
    """True if this host's GPU indices have no hole. CUDA_VISIBLE_DEVICES also counts GPUs that the driver did not list."""
    devices = recording.meta.environment.get("gpus", ())
    numbers = {entry.get("index_on_host", entry["index"]) for entry in devices}
    return numbers == set(range(len(devices)))


def _of_one_rank(recording: Recording, on: Mapping[int, int]) -> list[tuple[int, int]]:
    """(rank, GPU) pairs of a one-rank job, which may use several GPUs (DataParallel): all that its processes were listed on."""
    ranks = list(process_by_rank(recording.processes))
    if len(ranks) != 1:
        return []
    listed = [scope for metric, scope in recording.samples if metric == "gpu.own_processes"]
    return [(ranks[0], int(scope.removeprefix("gpu:"))) for scope in listed]


def _by_environment(cuda: CudaFacts, variables: Mapping[str, str], devices: tuple[GpuDevice, ...]) -> int | None:
    setting = {
        "CUDA_VISIBLE_DEVICES": cuda.get("visible"),
        "CUDA_DEVICE_ORDER": cuda.get("order") or variables.get("CUDA_DEVICE_ORDER"),
    }
    visible = visible_devices({name: value for name, value in setting.items() if value is not None}, devices)
    place = cuda.get("device", -1)
    return visible[place] if visible and 0 <= place < len(visible) else None


def _device(entry: GpuDeviceFacts) -> GpuDevice:
    """A GPU as the agent recorded it. Older recordings have fewer fields."""
    instances = (MigInstance(i.get("uuid", ""), i.get("name", ""), None) for i in entry.get("mig_instances", ()))
    named: dict[str, Any] = {name: value for name, value in entry.items() if name in GpuDevice.__slots__}
    return GpuDevice(**{**_DEFAULTS, **named, "mig_instances": tuple(instances)})


def _gpu(recording: Recording, device: GpuDevice, ranks: tuple[int, ...]) -> Gpu:
    return Gpu(
        index=device.index,
        name=device.name,
        uuid=device.uuid,
        ranks=ranks,
        mig=device.mig,
        ecc=device.ecc,
        mem_total_bytes=device.mem_total_bytes,
        power_limit_default_w=device.power_limit_default_w,
        sm_clock_max_mhz=device.sm_clock_max_mhz,
        pcie_gen_max=device.pcie_gen_max,
        pcie_width_max=device.pcie_width_max,
        pcie_width_made=pcie_width(device.name),
        nvlinks=device.nvlinks,
        nvlink_switched=device.nvlink_switched,
        numa_node=device.numa_node,
        cpus=frozenset(parse_cpu_list(device.cpus or "")),
        xids=_xids(recording, device.index),
        instances=tuple(instance.name.rpartition(" ")[2] for instance in device.mig_instances),
    )


def _as_its_kind(gpu: Gpu, all_of_them: list[Gpu]) -> Gpu:
    """Sets the PCIe maxima to the best of all GPUs of the same model on the host: a slow slot lowers the maximum of its own GPU."""
    kind = [other for other in all_of_them if other.is_like(gpu)]
    gens = [other.pcie_gen_max for other in kind if other.pcie_gen_max]
    widths = [other.pcie_width_max for other in kind if other.pcie_width_max]
    return replace(gpu, pcie_gen_max=max(gens, default=None), pcie_width_max=max(widths, default=None))


def _xids(recording: Recording, index: int) -> tuple[Xid, ...]:
    series = recording.samples.get(("gpu.xid", f"gpu:{index}"))
    if series is None:
        return ()
    started = recording.meta.started_ns
    return tuple(Xid((int(t) - started) / 1e9, int(code)) for t, code in zip(series.t_ns, series.value, strict=True))
