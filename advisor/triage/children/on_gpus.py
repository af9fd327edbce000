"""Short measurements of all GPUs that torch sees: memory, matrix products, copies, all-reduce, clocks held. A line of JSON for each result.

`python on_gpus.py '{"device": "cuda", "seconds": 0.5, "sustained_s": 6, "matrix": 8192, "buffer_bytes": 536870912, "scratch": "."}'`, in
the interpreter that trains; `"device": "cpu"` tries the program itself on a machine without GPUs. Python 3.9 and newer.
"""

import contextlib
import functools
import importlib
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

REDUCED_BYTES = (1 << 20, 16 << 20, 256 << 20, 1 << 30)
_PROBE_CALLS = 3
_REASON_CHARACTERS_MAX = 400  # characters: NCCL names its cause in its last sentences
_FULL_PRECISION_MATRIX = 4096  # a product in FP32 takes ten times as long
AMPERE = (8, 0)

torch: Any = importlib.import_module("torch")


def main() -> None:
    asked = json.loads(sys.argv[1])
    kind = asked["device"]
    count = begin_cuda() if kind == "cuda" else 1
    if not count:
        return
    write_result("devices", None, [name_of(kind, index) for index in range(count)], "")
    devices = [torch.device(kind, index) if kind == "cuda" else torch.device("cpu") for index in range(count)]
    for device in devices:
        for measure in (memory, copies, products):
            measure(device, asked)
    if len(devices) > 1:
        peers(devices, asked)
    sustained(devices, asked)
    sizes = asked.get("reduced_bytes", REDUCED_BYTES)
    if sizes and (len(devices) > 1 or kind == "cpu"):
        all_reduce(2 if kind == "cpu" else len(devices), {**asked, "reduced_bytes": sizes})


def begin_cuda() -> int:
    """Number of CUDA devices. First checks that this torch has CUDA at all; a later failure is the machine's."""
    write_result("cuda", None, torch.version.cuda, "")
    if torch.version.cuda is None:
        return 0
    try:
        torch.cuda.init()
        return int(torch.cuda.device_count())
    except Exception as error:  # noqa: BLE001 - its message is the result
        write_result("devices", None, [], "", reason=first_line(error))
        return 0


def first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def write_result(name: str, device: Any, value: Any, unit: str, **more: Any) -> None:
    index = getattr(device, "index", None)
    print(
        json.dumps({"name": name, "gpu": 0 if index is None else index, "value": value, "unit": unit, **more}),
        flush=True,
    )


def name_of(kind: str, index: int) -> Dict[str, Any]:
    if kind != "cuda":
        return {"name": "cpu", "uuid": "", "index": index}
    properties = torch.cuda.get_device_properties(index)
    return {"name": properties.name, "uuid": str(getattr(properties, "uuid", "")), "index": index}


def settle(device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_of(call: Callable[[], Any], device: Any, seconds: float) -> float:
    """Seconds per call, over enough calls to fill the time; synchronises with the device only at both ends."""
    calls = max(1, min(10_000, round(seconds / _probed_s(call, device))))
    began = time.perf_counter()
    for _ in range(calls):
        call()
    settle(device)
    return (time.perf_counter() - began) / calls


def _probed_s(call: Callable[[], Any], device: Any) -> float:
    """Seconds per call after a few calls, above zero; used to choose the number of calls."""
    for _ in range(_PROBE_CALLS):
        call()
    settle(device)
    began = time.perf_counter()
    call()
    settle(device)
    return max(time.perf_counter() - began, 1e-6)


def attempt(name: str, device: Any, measure: Callable[[], None]) -> None:
    """Writes the error as the result, out of memory or an unsupported precision, so that the other measurements go on."""
    try:
        measure()
    except (RuntimeError, AttributeError, NotImplementedError) as error:
        write_result(name, device, None, "", reason=first_line(error))
    if device.type == "cuda":
        with contextlib.suppress(RuntimeError):  # some errors stay until the process ends
            torch.cuda.empty_cache()


def memory(device: Any, asked: Dict[str, Any]) -> None:
    def measure() -> None:
        source = torch.ones(asked["buffer_bytes"] // 4, device=device)
        target = torch.empty_like(source)
        took = seconds_of(lambda: target.copy_(source), device, asked["seconds"])
        write_result("hbm_gb_per_s", device, 2 * asked["buffer_bytes"] / took / 1e9, "GB/s")

    attempt("hbm_gb_per_s", device, measure)


def copies(device: Any, asked: Dict[str, Any]) -> None:
    """Between host and device, from pinned memory and from pageable."""
    size = max(1 << 20, asked["buffer_bytes"] // 4)
    for pinned in (True, False):
        word = "pinned" if pinned else "pageable"

        def measure(pinned: bool = pinned, word: str = word) -> None:
            there = torch.empty(size, dtype=torch.uint8, device=device)
            here = torch.ones(size, dtype=torch.uint8, pin_memory=pinned and device.type == "cuda")
            for name, call in (
                (f"h2d_{word}_gb_per_s", lambda: there.copy_(here, non_blocking=True)),
                (f"d2h_{word}_gb_per_s", lambda: here.copy_(there, non_blocking=True)),
            ):
                write_result(name, device, size / seconds_of(call, device, asked["seconds"]) / 1e9, "GB/s")

        attempt(f"h2d_{word}_gb_per_s", device, measure)


def products(device: Any, asked: Dict[str, Any]) -> None:
    precisions = (("bf16", torch.bfloat16, None), ("fp16", torch.float16, None), ("tf32", torch.float32, True))
    for word, dtype, tf32 in (*precisions, ("fp32", torch.float32, False)):
        name = f"matmul_{word}_tflop_per_s"
        if lacks_units(word, device):
            write_result(name, device, None, "", reason="this GPU has no units for it, and would emulate it")
            continue

        def measure(word: str = word, dtype: Any = dtype, tf32: Optional[bool] = tf32) -> None:
            edge = asked["matrix"] if tf32 is not False else min(asked["matrix"], _FULL_PRECISION_MATRIX)
            if tf32 is not None:
                torch.backends.cuda.matmul.allow_tf32 = tf32
            one, other = matrices(device, edge, dtype)
            out = torch.empty_like(one)
            took = seconds_of(lambda: torch.matmul(one, other, out=out), device, asked["seconds"])
            write_result(f"matmul_{word}_tflop_per_s", device, 2 * edge**3 / took / 1e12, "TFLOP/s", edge=edge)

        attempt(name, device, measure)


def lacks_units(word: str, device: Any) -> bool:
    """bf16 and TF32 came with Ampere; before it torch computes them all the same, and slower than FP32."""
    return device.type == "cuda" and word in ("bf16", "tf32") and torch.cuda.get_device_capability(device) < AMPERE


def matrices(device: Any, edge: int, dtype: Any) -> List[Any]:
    """Normally distributed: of zeros a product takes less power and is faster."""
    return [torch.randn(edge, edge, device=device).to(dtype) for _ in range(2)]


def peers(devices: List[Any], asked: Dict[str, Any]) -> None:
    """GB/s from each device to each other."""
    size = asked["buffer_bytes"] // 4
    for source in devices:
        for target in devices:
            if source == target:
                continue

            def measure(source: Any = source, target: Any = target) -> None:
                here = torch.ones(size, dtype=torch.uint8, device=source)
                there = torch.empty(size, dtype=torch.uint8, device=target)
                took = seconds_of(lambda: there.copy_(here), target, asked["seconds"] / 2)
                direct = torch.cuda.can_device_access_peer(source.index, target.index)
                write_result("p2p_gb_per_s", source, size / took / 1e9, "GB/s", to=target.index, direct=direct)

            attempt("p2p_gb_per_s", source, measure)


def sustained(devices: List[Any], asked: Dict[str, Any]) -> None:
    """Loads all devices at once for the requested time: the rate that remains under heat and power limits. Reports start
    and end for other clocks.
    """
    holders = [threading.Thread(target=hold, args=(device, asked)) for device in devices]
    write_result("sustained_begins", None, time.monotonic_ns(), "ns")
    for holder in holders:
        holder.start()
    for holder in holders:
        holder.join()
    write_result("sustained_ends", None, time.monotonic_ns(), "ns")


def hold(device: Any, asked: Dict[str, Any]) -> None:
    def measure() -> None:
        one, other = matrices(device, asked["matrix"], torch.float16)
        out = torch.empty_like(one)
        rates = []
        until = time.perf_counter() + asked["sustained_s"]
        while time.perf_counter() < until:
            began, calls = time.perf_counter(), 0
            while time.perf_counter() - began < 1.0:
                for _ in range(8):
                    torch.matmul(one, other, out=out)
                settle(device)  # not to run away from the device
                calls += 8
            rates.append(2 * calls * asked["matrix"] ** 3 / (time.perf_counter() - began) / 1e12)
        share = rates[-1] / max(rates[:2])
        write_result("sustained_tflop_per_s", device, rates[-1], "TFLOP/s", share=share, seconds=asked["sustained_s"])

    attempt("sustained_tflop_per_s", device, measure)


def all_reduce(world: int, asked: Dict[str, Any]) -> None:
    """Bus bandwidth as nccl-tests count it: 2 (n - 1) / n of the bytes over the time. A broken fabric fails in its own words, the last."""
    multiprocessing = importlib.import_module("torch.multiprocessing")
    try:
        multiprocessing.spawn(reduce_on, args=(world, asked), nprocs=world)
    except Exception as error:  # noqa: BLE001 - its message is the result
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[-_REASON_CHARACTERS_MAX:]}"
        write_result("allreduce_gb_per_s", None, None, "GB/s", reason=reason)


def reduce_on(rank: int, world: int, asked: Dict[str, Any]) -> None:
    distributed = importlib.import_module("torch.distributed")
    cuda = asked["device"] == "cuda"
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(rank)
    store = (Path(asked["scratch"]) / "store").as_uri()
    distributed.init_process_group("nccl" if cuda else "gloo", init_method=store, rank=rank, world_size=world)
    if rank == 0:
        write_result("joined", None, None, "")  # all are there, with their torch: silence from here on is NCCL's
    for size in asked["reduced_bytes"]:
        tensor = torch.ones(size // 4, device=device)
        reduce = functools.partial(distributed.all_reduce, tensor)
        took = timed_together(reduce, distributed, device, asked["seconds"])
        if rank == 0:
            rate = 2 * (world - 1) / world * size / took / 1e9
            write_result("allreduce_gb_per_s", None, rate, "GB/s", bytes=size, gpus=world)
    distributed.barrier()
    distributed.destroy_process_group()


def timed_together(call: Callable[[], Any], distributed: Any, device: Any, seconds: float) -> float:
    """Seconds per call on all ranks; rank 0 decides their number, or some ranks would wait for others for ever."""
    calls = torch.tensor([max(1.0, min(1000.0, seconds / _probed_s(call, device)))], device=device)
    distributed.broadcast(calls, 0)
    many = int(calls.item())
    settle(device)
    began = time.perf_counter()
    for _ in range(many):
        call()
    settle(device)
    return (time.perf_counter() - began) / many


if __name__ == "__main__":
    main()
