"""A training job on each of the machines, and the expected verdict: one fault, or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from samples.gpus import machines


@dataclass(frozen=True)
class Story:
    """A job with a rank on each GPU of `on` (all of them by default). Times are those of one step.

    `slow`: by rank, how much longer it computes; `truth`: the rule of the verdict, or its state.
    """

    title: str
    machine: Callable[[], list[str]]
    ranks: int
    truth: str
    on: tuple[int, ...] = ()
    beside: tuple[int, ...] = ()  # other GPUs that rank 0 also uses (DataParallel)
    slow: Mapping[int, float] = field(default_factory=dict)
    compute_ms: float = 170.0
    wire_ms: float = 4.0
    samples: int = 256
    halves_every: int = 0  # one step in this many has half the samples
    fixed_share: float = 0.0  # share of the compute that does not depend on the batch size
    memory_gb: float = 18.0
    creep_mb: float = 0.0  # growth of tensors per step
    retry_every: int = 0  # steps between allocations that emptied the cache
    strangers: tuple[str, ...] = ()  # other processes, as lines of GPU, PID, bytes and SM %
    cpus: Mapping[str, str] = field(default_factory=dict)  # CPUs of each bound rank
    variables: Mapping[str, str] = field(default_factory=dict)
    dies: int | None = None  # the rank that ends with a CUDA error
    on_cpu: bool = False  # ranks train on the CPU while the GPUs are idle
    mig: str = ""  # the instance that rank 0 runs on
    launch_ms: float = 32.0  # host time to launch a step
    waits_every: int = 20  # steps between loss prints, which wait for the GPU
    input_ms: float = 4.0
    gap_ms: float = 2.0
    evaluates_every: int = 0
    evaluation_ms: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)  # facts recorded in the ranks
    reported: tuple[str, ...] = ()  # rules with a finding beside a healthy verdict
    old_driver: bool = False  # uses the old fake driver, without newer functions
    replay: bool = False  # kept in samples/runs
    extra: tuple[str, ...] = ()  # more driver answers, after the machine's lines


LAYER = {
    "device": "cuda", "input": "float32", "weight": "float32", "autocast": "bfloat16", "input_layout": "channels_last",
    "weight_layout": "channels_last", "shape": [256, 3, 224, 224], "varies": False,
}  # fmt: skip
CUDA = {"capability": [9, 0], "tf32_matmul": True, "tf32_cudnn": True, "cudnn_benchmark": True}
COPY = {
    "call": "to", "file": "/job/train.py", "line": 61, "function": "train", "through": "", "phase": "forward", "count": 20, "looks": 20,
    "pinned": True, "non_blocking": True, "aside": False, "bytes": 20 * 154_140_672, "blocked_ns": 4_000_000, "least_ns": 150_000,
}  # fmt: skip
ITEM = {
    "call": "item", "file": "/job/train.py", "line": 88, "function": "train", "through": "", "phase": "gap", "count": 20, "looks": 20,
    "bytes": 0, "blocked_ns": 20 * 62_000_000, "least_ns": 60_000_000,
}  # fmt: skip


def healthy_facts(**changes: Any) -> dict[str, Any]:
    """The recorder's facts of a healthy job: autocast, channels-last, pinned copies, no waits."""
    usual = {
        "cuda": CUDA,
        "conv": LAYER,
        "autocast": {"enabled": True, "device": "cuda", "dtype": "bfloat16"},
        "model": {"class": "job.net.Net", "parameters": 24_000_000, "layers": {"Conv2d": 48, "BatchNorm2d": 48}},
        "optimizer": {"class": "SGD", "foreach": None, "fused": True, "groups": 1, "parameters": 161},
        "syncs": {"looks": 20, "device": "cuda", "sites": []},
        "copies": [COPY],
    }
    return {**usual, **changes}


def on_t4(dtype: str = "bfloat16", capability: tuple[int, int] = (7, 5)) -> dict[str, Any]:
    """The same facts on a T4, under autocast in this type."""
    cuda = {**CUDA, "capability": list(capability)}
    autocast = {"enabled": True, "device": "cuda", "dtype": dtype}
    return healthy_facts(cuda=cuda, conv={**LAYER, "autocast": dtype}, autocast=autocast)


def resnet50(**changes: Any) -> dict[str, Any]:
    """The same facts for ResNet50 on an A100, for which reference rates exist."""
    model = {"class": "ResNet", "parameters": 25_557_032, "layers": {"Conv2d": 53, "BatchNorm2d": 53, "Linear": 1}}
    linear = {**LAYER, "weight_shape": [1000, 2048]}
    return healthy_facts(cuda={**CUDA, "capability": [8, 0]}, model=model, linear=linear, **changes)


STORIES: dict[str, Story] = {
    "8xA100": Story("eight A100 on an NVSwitch, nothing wrong", machines.a100x8, 8, "healthy"),
    "8xH100": Story("eight H100, nothing wrong", machines.h100x8, 8, "healthy", compute_ms=95, replay=True),
    "4xL40S": Story("four L40S on PCIe, nothing wrong", machines.l40sx4, 4, "healthy", wire_ms=9),
    "2xRTX3090": Story(
        "two RTX 3090, nothing wrong", machines.rtx3090x2, 2, "healthy", wire_ms=9, samples=128, replay=True
    ),
    "1xH200": Story("one H200, nothing wrong", machines.h200x1, 1, "healthy", compute_ms=95),
    "MIG": Story(
        "one 3g instance of an A100",
        machines.a100_mig,
        1,
        "inconclusive",  # the driver does not report whether the GPU is sound
        on=(0,),
        samples=64,
        mig="MIG-00000000-0000-5000-8000-000000000000",
        replay=True,
    ),
    "throttled": Story("one of eight A100 is too hot", machines.throttled, 8, "GPU001", slow={3: 1.5}, replay=True),
    "capped": Story("somebody lowered a power limit", machines.capped, 2, "GPU002", slow={1: 1.45}, samples=128),
    "locked": Story("a clock set for a measurement and never reset", machines.locked, 8, "GPU009", slow={5: 1.36}),
    "full": Story("allocations empty the cache", machines.h200x1, 1, "GPU003", memory_gb=138, retry_every=20),
    "growing": Story("a loop that keeps its losses", machines.h200x1, 1, "GPU004", memory_gb=40, creep_mb=60),
    "shared": Story(
        "somebody else on one of four L40S",
        machines.l40sx4,
        4,
        "GPU005",
        slow={2: 1.5},
        strangers=("2 9100 6000000000 35",),
        replay=True,
    ),
    "degraded-link": Story("four lanes of sixteen", machines.degraded_link, 4, "GPU006", slow={1: 1.4}, replay=True),
    "narrow-slot": Story(
        "the only GPU in a slot of eight lanes", machines.narrow_slot, 1, "GPU006", compute_ms=180, samples=128
    ),
    "failing-memory": Story("an H100 with a broken memory row", machines.failing_memory, 8, "GPU007"),
    "lost": Story("a GPU falls off the bus", machines.lost, 4, "GPU007", dies=2, replay=True),
    "broken-nvlink": Story("eight of twelve links down", machines.broken_nvlink, 8, "GPU008", wire_ms=60),
    "p2p-off": Story(
        "NCCL_P2P_DISABLE left in the environment",
        machines.a100x8,
        8,
        "COM008",
        wire_ms=60,
        variables={"NCCL_P2P_DISABLE": "1"},
    ),
    "far-pair": Story(
        "GPUs 0 and 2 where 0 and 1 are near, and 1 idles",
        machines.l40sx4,
        2,
        "COM008",
        on=(0, 2),
        wire_ms=60,
        extra=tuple(f"gpu {n} {line}" for n in (1, 3) for line in ("util 0", "mem_used 300000000", "power_mw 25000")),
    ),
    "far-cpus": Story(
        "ranks bound to the wrong socket",
        machines.l40sx4,
        4,
        "healthy",  # CPU004 is a hint of unknown cost
        cpus={"0": "48-95", "1": "48-95", "2": "0-47", "3": "0-47"},
        reported=("CPU004",),
    ),
    "single-precision": Story(
        "neither autocast nor TF32 on an H200",
        machines.h200x1,
        1,
        "CMP001",
        compute_ms=250,
        facts=healthy_facts(
            cuda={**CUDA, "tf32_matmul": False, "tf32_cudnn": False},
            conv={**LAYER, "autocast": None},
            autocast={"enabled": False},
        ),
    ),
    "emulated-bfloat16": Story(
        "autocast in bfloat16 on a T4, which has no units for it",
        machines.t4x1,
        1,
        "CMP022",
        compute_ms=900,
        samples=32,
        memory_gb=9,
        facts=on_t4(),
    ),
    "1xT4": Story(
        "the same in float16, nothing wrong",
        machines.t4x1,
        1,
        "healthy",
        compute_ms=210,
        samples=32,
        memory_gb=9,
        facts=on_t4("float16"),
    ),
    "on-the-cpu": Story(
        "trains on the CPU beside two idle RTX 3090",
        machines.rtx3090x2,
        1,
        "CMP011",
        on_cpu=True,
        launch_ms=170,
        input_ms=0.5,
        gap_ms=0.3,
        samples=16,
        extra=tuple(
            f"gpu {gpu} {line}" for gpu in (0, 1) for line in ("util 0", "mem_used 300000000", "power_mw 25000")
        ),
    ),
    "launch-bound": Story(
        "batches of eight: the host sets the pace",
        machines.h200x1,
        1,
        "CMP003",
        compute_ms=22,
        launch_ms=40,
        samples=8,
        facts=healthy_facts(),
        extra=("gpu 0 util 55",),
    ),
    "item-each-step": Story(
        "a loop that reads its loss in each step",
        machines.h200x1,
        1,
        "CMP004",
        compute_ms=95,
        waits_every=1,
        gap_ms=14,
        facts=healthy_facts(syncs={"looks": 20, "device": "cuda", "sites": [ITEM]}),
        replay=True,
    ),
    "pageable-copies": Story(
        "batches from memory that is not pinned",
        machines.h200x1,
        1,
        "H2D001",
        compute_ms=95,
        waits_every=1,
        facts=healthy_facts(copies=[{**COPY, "pinned": False, "blocked_ns": 20 * 14_000_000, "least_ns": 12_000_000}]),
    ),
    "channels-first": Story(
        "autocast over convolutions in channels-first",
        machines.h200x1,
        1,
        "CMP002",
        compute_ms=95,
        facts=healthy_facts(conv={**LAYER, "input_layout": "channels_first", "weight_layout": "channels_first"}),
    ),
    "small-batches": Story(
        "a batch that the GPU would take two of in hardly more time",
        machines.h200x1,
        1,
        "CMP005",
        compute_ms=95,
        samples=32,
        halves_every=5,
        fixed_share=0.6,
        facts=healthy_facts(),
        extra=("gpu 0 gpm.2 40",),
    ),
    "past-the-knee": Story(
        "a batch that fills the memory and is no faster than half of it",
        machines.h200x1,
        1,
        "healthy",
        compute_ms=95,
        halves_every=5,
        memory_gb=135,
        facts=healthy_facts(),
        reported=("CMP006",),
    ),
    "below-the-reference": Story(
        "ResNet50 on an A100 at less than half of what others measured, for no reason that shows",
        machines.a100x1,
        1,
        "CMP008",
        compute_ms=420,
        facts=resnet50(),
    ),
    "switches-off": Story(
        "neither cudnn.benchmark nor a fused optimizer",
        machines.h200x1,
        1,
        "healthy",  # the saving of these findings is unknown
        compute_ms=95,
        facts=healthy_facts(
            cuda={**CUDA, "cudnn_benchmark": False}, optimizer={"class": "SGD", "foreach": None, "fused": None}
        ),
        reported=("CMP009",),
    ),
    "debugging-left-on": Story(
        "launches that wait for their kernel",
        machines.h200x1,
        1,
        "CMP010",
        compute_ms=95,
        facts=healthy_facts(debugging={"looks": 20, "on": {"CUDA_LAUNCH_BLOCKING": 20}}),
    ),
    "blocking-copies": Story(
        "a host that waits for the end of each copy",
        machines.h200x1,
        1,
        "H2D002",
        compute_ms=95,
        waits_every=1,
        gap_ms=3,
        facts=healthy_facts(copies=[{**COPY, "non_blocking": False, "blocked_ns": 20 * 60_000_000}]),
    ),
    "data-parallel": Story(
        "DataParallel over four L40S",
        machines.l40sx4,
        1,
        "COM005",
        on=(0,),
        beside=(1, 2, 3),
        facts=healthy_facts(
            cuda={**CUDA, "capability": [8, 9]}, data_parallel=[{"devices": 4, "file": "/job/train.py", "line": 30}]
        ),
        extra=("gpu 0 mem_used 42000000000", *(f"gpu {n} util 60" for n in (1, 2, 3))),
    ),
    "evaluation": Story(
        "an evaluation of a second after every 100 steps, nothing wrong",
        machines.h200x1,
        1,
        "healthy",
        compute_ms=95,
        evaluates_every=100,
        evaluation_ms=400,
    ),
    # clocks and throttle reasons are available here; other processes and errors are not, and are listed as not measured
    "restricted": Story("a container that may not ask for much", machines.restricted, 8, "healthy", compute_ms=95),
    "old-driver": Story(
        "four A100 under a driver from before GPM", machines.old_a100x4, 4, "healthy", old_driver=True, replay=True
    ),
    "mute": Story(
        "a driver that reports neither limits nor heat: whether the clocks were held down is unknown",
        machines.mute,
        4,
        "inconclusive",
        wire_ms=9,
    ),
    "mismatch": Story("driver and library of different versions", machines.mismatch, 8, "inconclusive", compute_ms=95),
}
