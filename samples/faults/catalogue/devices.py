"""GPU faults on machines that are not available here: stories of samples/gpus, recorded through the fake driver.

Each threshold has stories just above and just below it, and where possible one far above. No job runs and no fix is tried: the verdict
comes from the driver's answers, through the real bindings, and from made-up steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from samples.faults.scenario import HEALTHY, Recorded, Scenario, Truth, sound_twin
from samples.gpus.stories import COPY, CUDA, ITEM, LAYER, STORIES, healthy_facts, on_t4, resnet50

NOTE = "recorded through the fake driver; a fault of this size is reported, as the verdict or beside it"


@dataclass(frozen=True, slots=True)
class Line:
    """A threshold of `rule`. `above`, `below`: changes to `story` on either side of it; `clear`: the story of an obvious fault."""

    rule: str
    name: str
    story: str
    above: dict[str, Any]
    below: dict[str, Any]
    clear: str = ""


def driver(*lines: str) -> dict[str, Any]:
    """Changes to a story: additional answers of the driver."""
    return {"extra": lines}


def facts(**changes: Any) -> dict[str, Any]:
    """Changes to a story: the recorder's facts of a healthy job, with `changes` applied."""
    return {"facts": healthy_facts(**changes)}


def single_precision(*capability: int) -> dict[str, Any]:
    cuda = {**CUDA, "tf32_matmul": False, "tf32_cudnn": False, "capability": capability}
    return facts(cuda=cuda, conv={**LAYER, "autocast": None}, autocast={"enabled": False})


def convolutions(count: int) -> dict[str, Any]:
    first = {**LAYER, "input_layout": "channels_first", "weight_layout": "channels_first"}
    return facts(conv=first, model={"class": "job.net.Net", "parameters": 24_000_000, "layers": {"Conv2d": count}})


def copied(megabytes: int, **about: Any) -> dict[str, Any]:
    """Changes to a story: this many megabytes are copied in each step; `about`: other changes to the copy."""
    return facts(copies=[{**COPY, "bytes": COPY["count"] * megabytes * 1_000_000, **about}])


READING = facts(syncs={"looks": 20, "device": "cuda", "sites": [ITEM]})
WITHOUT_P2P = {"variables": {"NCCL_P2P_DISABLE": "1"}}
UNTUNED = facts(cuda={**CUDA, "cudnn_benchmark": False})

LINES: tuple[Line, ...] = (
    Line(
        "GPU001",
        "throttled",
        "8xA100",
        driver("gpu 3 field.270 0 +25000000"),  # nanoseconds per second
        driver("gpu 3 field.270 0 +15000000"),
        clear="throttled",
    ),
    Line(
        "GPU002",
        "slower-at-its-power-limit",
        "2xRTX3090",
        driver("gpu 1 field.74 0 +120000000", "gpu 1 sm_clock 1900"),  # the other GPU: 2037
        driver("gpu 1 field.74 0 +120000000", "gpu 1 sm_clock 1960"),
        clear="capped",
    ),
    Line(
        "GPU002",
        "limit-lowered",
        "2xRTX3090",
        driver("gpu 1 field.74 0 +120000000", "gpu 1 power_limit_mw 330000"),
        driver("gpu 1 power_limit_mw 330000"),
    ),
    Line(
        "GPU009",
        "clock-set",
        "8xA100",
        driver("gpu 5 clock_reasons 2", "gpu 5 sm_clock 1335"),  # of 1410
        driver("gpu 5 clock_reasons 2", "gpu 5 sm_clock 1345"),
        clear="locked",
    ),
    Line("GPU003", "memory-full", "1xH200", {"memory_gb": 144}, {"memory_gb": 141}),
    Line("GPU003", "cache-emptied", "1xH200", {"retry_every": 100}, {"retry_every": 0}, clear="full"),
    Line(
        "GPU004",
        "device-memory-creeps",
        "1xH200",
        {"memory_gb": 40, "creep_mb": 10},
        {"memory_gb": 40, "creep_mb": 5},
        clear="growing",
    ),
    Line(
        "GPU005",
        "stranger-computes",
        "4xL40S",
        {"strangers": ("2 9100 5000000 3",)},  # GPU, PID, bytes, SM %
        {"strangers": ("2 9100 5000000 1",)},
        clear="shared",
    ),
    Line(
        "GPU005",
        "stranger-holds-memory",
        "4xL40S",
        {"strangers": ("2 9100 2600000000 0",)},
        {"strangers": ("2 9100 2200000000 0",)},
    ),
    Line(
        "GPU006",
        "link-degraded",
        "4xL40S",
        driver("gpu 1 pcie_gen 3"),
        driver("gpu 1 pcie_width 14"),
        clear="degraded-link",
    ),
    Line(
        "GPU006",
        "narrow-slot",
        "narrow-slot",
        driver("gpu 0 pcie_width 12", "gpu 0 pcie_width_max 12"),  # of the 16 in its data sheet
        driver("gpu 0 pcie_width 14", "gpu 0 pcie_width_max 14"),
        clear="narrow-slot",
    ),
    Line("GPU007", "xid", "8xH100", driver("xid 5 63 after 10"), driver("xid 5 43 after 10"), clear="failing-memory"),
    Line("GPU007", "uncorrected-error", "8xH100", driver("gpu 5 field.4 7 +1"), driver("gpu 5 field.4 7")),
    Line(
        "GPU008",
        "nvlink-down",
        "8xA100",
        driver("gpu 6 nvlink.3 0 switch"),
        driver("gpu 6 nvlink.3 1 switch"),
        clear="broken-nvlink",
    ),
    # read every five seconds
    Line("GPU008", "nvlink-noisy", "8xA100", driver("gpu 6 field.38 0 +600"), driver("gpu 6 field.38 0 +400")),
    Line(
        "COM005",
        "data-parallel",
        "data-parallel",
        driver("gpu 0 mem_used 32460000000"),  # 1.12 x the others'
        driver("gpu 0 mem_used 31300000000"),
        clear="data-parallel",
    ),
    Line(
        "COM008",
        "p2p-off",
        "4xL40S",
        {**WITHOUT_P2P, "wire_ms": 4.6},
        {**WITHOUT_P2P, "wire_ms": 2.5},
        clear="p2p-off",
    ),
    Line(
        "CPU004",
        "far-cpus",
        "4xL40S",
        {"cpus": {"2": "0-45,48-51"}},
        {"cpus": {"2": "0-41,48-53"}},
        clear="far-cpus",
    ),
    Line(
        "CMP001",
        "single-precision",
        "single-precision",
        single_precision(7, 0),
        single_precision(6, 1),
        clear="single-precision",
    ),
    Line("CMP002", "channels-first", "1xH200", convolutions(4), convolutions(3), clear="channels-first"),
    Line(
        "CMP003",
        "launch-bound",
        "launch-bound",
        driver("gpu 0 util 76", "gpu 0 gpm.2 97"),
        driver("gpu 0 util 78", "gpu 0 gpm.2 97"),
        clear="launch-bound",
    ),
    Line(
        "CMP004",
        "item-each-step",
        "item-each-step",
        {**READING, "compute_ms": 220, "gap_ms": 1},
        {**READING, "compute_ms": 270, "gap_ms": 1},
        clear="item-each-step",
    ),
    Line(
        "CMP005",
        "small-batches",
        "small-batches",
        {"fixed_share": 0.36},
        {"fixed_share": 0.31},
        clear="small-batches",
    ),
    Line(
        "CMP006",
        "past-the-knee",
        "past-the-knee",
        {"fixed_share": 0.04},
        {"fixed_share": 0.065},
        clear="past-the-knee",
    ),
    Line(
        "CMP008",
        "below-the-reference",
        "below-the-reference",
        {"compute_ms": 154, "facts": resnet50()},  # the reference is 2470 images/s
        {"compute_ms": 142, "facts": resnet50()},
        clear="below-the-reference",
    ),
    Line(
        "CMP022",
        "emulated-bfloat16",
        "1xT4",
        {"facts": on_t4("bfloat16", (7, 5))},
        {"facts": on_t4("bfloat16", (8, 0))},
        clear="emulated-bfloat16",
    ),
    Line(
        "CMP009",
        "switches-off",
        "1xH200",
        {**UNTUNED, "halves_every": 25},
        {**UNTUNED, "halves_every": 16},
        clear="switches-off",
    ),
    Line(
        "CMP010",
        "debugging-left-on",
        "1xH200",
        facts(debugging={"looks": 20, "on": {"CUDA_LAUNCH_BLOCKING": 18}}),
        facts(debugging={"looks": 20, "on": {"CUDA_LAUNCH_BLOCKING": 17}}),
        clear="debugging-left-on",
    ),
    Line(
        "CMP011",
        "on-the-cpu",
        "on-the-cpu",
        {"compute_ms": 23.0, "launch_ms": 23.0},
        {"compute_ms": 18.0, "launch_ms": 18.0},
        clear="on-the-cpu",
    ),
    Line(
        "H2D001",
        "pageable-copies",
        "pageable-copies",
        copied(60, pinned=False, least_ns=4_200_000),
        copied(60, pinned=False, least_ns=3_400_000),
        clear="pageable-copies",
    ),
    Line(
        "H2D002",
        "blocking-copies",
        "1xH200",
        {**copied(110, non_blocking=False), "waits_every": 0},
        {**copied(90, non_blocking=False), "waits_every": 0},
        clear="blocking-copies",
    ),
)


def scenarios(line: Line) -> tuple[Scenario, ...]:
    """Returns the scenarios of a threshold: clearly above it if there is such a story, just above, and just below."""
    name = f"recorded-{line.name}"
    reported = Truth(roots=(line.rule, HEALTHY), noted=(line.rule,))
    above, below = (Recorded(line.story, changes) for changes in (line.above, line.below))
    just = (
        Scenario(name=f"{name}-a-little", job=above, truth=reported, strength="just above", note=NOTE),
        sound_twin(f"{name}-hardly", (line.rule,), below),
    )
    if not line.clear:
        return just
    verdict = Truth(roots=(line.rule,)) if STORIES[line.clear].truth == line.rule else reported
    job = Recorded(line.clear)
    return (Scenario(name=name, job=job, truth=verdict, strength="clear", note=NOTE), *just)


def sound(story: str) -> Scenario:
    name = f"recorded-sound-{story.lower()}"
    return Scenario(name=name, job=Recorded(story), truth=Truth(), strength="none")


SOUND = ("8xA100", "8xH100", "4xL40S", "2xRTX3090", "1xH200", "old-driver", "evaluation")
SCENARIOS = (*map(sound, SOUND), *(scenario for line in LINES for scenario in scenarios(line)))
