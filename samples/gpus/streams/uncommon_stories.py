"""Simulated jobs of less usual kinds: experts, pipelines, sharded optimizers, several streams, partial graphs, faults of links and memory.

Written before any of them was played. No rule was changed for them before their first run.
"""

from __future__ import annotations

from dataclasses import replace

from samples.gpus.machines import A100, H100, L40S
from samples.gpus.streams.description import Exchange, Gpu, Job, Loader, Pass, Pauses, Story
from samples.gpus.streams.stream_stories import HELD, UNSEEN, held, sound, with_fault

_MOE = Job(  # a mixture of experts on four H100: two all-to-alls a layer, each way
    ranks=4,
    seconds=14.0,
    batch=16,
    gpu=Gpu(H100),
    forward=Pass(620, 34.0, 8.0),
    backward=Pass(1150, 70.0, 5.5),
    optimizer=Pass(60, 5.0, 12.0),
    exchange=Exchange(wire_ms=14.0, buckets=6, expert_layers=12, expert_us=180.0),
    batch_mb=0.3,
    loader=Loader(batch_ms=60.0, workers=4),
    uneven=0.06,
)
_PIPE = Job(  # four stages, eight micro-batches, all forward passes before the backward ones
    ranks=4,
    seconds=26.0,
    batch=4,
    gpu=Gpu(H100),
    micro_batches=8,
    forward=Pass(180, 9.0, 9.0),
    backward=Pass(340, 18.5, 6.0),
    optimizer=Pass(40, 4.0, 12.0),
    exchange=Exchange("pipeline", hop_ms=0.4),
    batch_mb=0.2,
    loader=Loader(batch_ms=20.0, workers=2),
)
_SPLIT = Job(  # DDP whose optimizer state is divided over the ranks
    ranks=4,
    seconds=14.0,
    batch=64,
    forward=Pass(430, 33.0, 8.0),
    backward=Pass(820, 68.0, 5.0),
    optimizer=Pass(12, 1.2, 12.0),
    exchange=Exchange(wire_ms=7.0, parameters_ms=4.0),
    loader=Loader(batch_ms=200.0, workers=8),
)
_CLIP = Job(  # gradients clipped, their norm read for the log in each step
    batch=48,
    gpu=Gpu(L40S),
    forward=Pass(380, 27.0, 9.0),
    backward=Pass(700, 55.0, 6.0),
    optimizer=Pass(40, 2.5, 12.0),
    loader=Loader(batch_ms=180.0, workers=6),
    scaled=True,
    seconds=18.0,
)
_NEAR = Job(  # a loader that just keeps up: six workers make a batch in 105 ms, and a step takes about 118
    batch=256, loader=Loader(batch_ms=630.0, workers=6, spread=0.06), seconds=26.0
)
_PARTLY = Job(  # the forward pass is captured, what follows is not
    batch=64,
    gpu=Gpu(A100),
    graph="forward",
    forward=Pass(700, 24.0, 11.0),
    backward=Pass(1250, 52.0, 7.0),
    optimizer=Pass(30, 1.5, 12.0),
    loader=Loader(batch_ms=60.0, workers=4),
    seconds=16.0,
)
_TOWERS = Job(  # two small networks on streams of their own
    batch=16,
    gpu=Gpu(L40S),
    streams=2,
    forward=Pass(560, 3.4, 12.0),
    backward=Pass(980, 6.8, 7.5),
    optimizer=Pass(30, 0.5, 12.0),
    batch_mb=4.0,
    loader=Loader(batch_ms=16.0, workers=4),
    seconds=12.0,
)
_EIGHT = Job(ranks=8, seconds=12.0, batch=128, exchange=Exchange(wire_ms=9.0, buckets=6))
_UNITS = Job(  # a small transformer in many sharded units
    ranks=4,
    seconds=10.0,
    batch=8,
    gpu=Gpu(H100),
    forward=Pass(460, 3.4, 12.0),
    backward=Pass(820, 6.9, 8.0),
    optimizer=Pass(40, 0.8, 12.0),
    exchange=Exchange("sharded", wire_ms=2.5),
    batch_mb=0.2,
    loader=Loader(batch_ms=16.0, workers=4),
)
_ALONE = replace(_SPLIT, exchange=Exchange(wire_ms=7.0), seconds=36.0)

# For the table.
UNCOMMON_NOTE = (
    "These were written and frozen before any of them was played; this is a later run. At the first, 14 of 17 verdicts were right, one of"
    " 6 sound jobs had a false alarm, and the true gain was inside in 7 of 11. Wrong were `pipeline` and `hot-stage` (forward passes of"
    " several batches counted as time between steps) and `no-peers` (a variable that a script sets was not recorded). The label of"
    " `backward-not-captured` is wrong: its loader just keeps up with today's launches, so that fewer of them gain nothing."
)

UNCOMMON: dict[str, Story] = {
    # -- sound
    "experts": sound("a mixture of experts on four H100, batches uneven by 6 %", _MOE),
    "pipeline": sound("four stages, eight micro-batches", _PIPE, truth=UNSEEN),
    "split-optimizer": sound("DDP with ZeroRedundancyOptimizer, 4 ms of broadcasts after the update", _SPLIT),
    "reads-the-norm": sound("the gradients' norm read in each step, GPU-bound", _CLIP),
    "loader-keeps-up": sound("a loader with a tenth to spare", _NEAR),
    "forward-graph": sound("the forward pass as a CUDA graph, kernels longer than launches", _PARTLY),
    # -- faults
    "loader-just-short": with_fault(
        "a loader that falls short by an eighth",
        replace(_NEAR, loader=Loader(batch_ms=800.0, workers=6, spread=0.06)),
        ("DAT004", "DAT001"),
        replace(_NEAR, loader=Loader(batch_ms=800.0, workers=12, spread=0.06)),
    ),
    "memory-clock": with_fault(
        "one of eight with its memory at three quarters of the clock",
        replace(_EIGHT, gpu=Gpu(memory_clock={4: 0.75})),
        ("CMP007", "GPU009", "GPU001"),
        _EIGHT,
        ranks=(4,),
    ),
    "no-peers": with_fault(
        "NCCL_P2P_DISABLE left in the environment, gradients take 120 ms",
        replace(
            _EIGHT,
            exchange=Exchange(wire_ms=120.0, buckets=6),
            facts={"environment_rank": {"NCCL_P2P_DISABLE": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}},
        ),
        ("COM008",),
        _EIGHT,
        also=("COM001",),
    ),
    "two-streams": with_fault(
        "two small networks on two streams, in eager mode",
        _TOWERS,
        ("CMP003",),
        replace(_TOWERS, forward=Pass(140, 3.4, 12.0), backward=Pass(245, 6.8, 7.5)),
    ),
    "backward-not-captured": with_fault(
        "the forward pass as a CUDA graph, the backward pass launched kernel by kernel",
        replace(_PARTLY, forward=Pass(700, 4.0, 11.0), backward=Pass(1250, 6.5, 8.0)),
        ("CMP003",),
        replace(_PARTLY, graph="layers", forward=Pass(700, 4.0, 11.0), backward=Pass(1250, 6.5, 8.0)),
    ),
    "evaluates-alone": with_fault(
        "rank 0 evaluates 60 batches every 40 steps, and the others wait",
        replace(_ALONE, pauses=Pauses(40, 60, alone=True)),
        ("LOP003",),
        replace(_ALONE, pauses=Pauses(40, 15)),
        also=("COM002",),
    ),
    "sharded-reads": with_fault(
        "a small sharded model that reads its loss in each step, and 6 ms of the loop after it",
        replace(_UNITS, reads_every=1, read_ms=6.0, forward=Pass(115, 6.8, 12.0), backward=Pass(205, 13.6, 8.0)),
        ("CMP004", "LOP004"),
        replace(_UNITS, gap_ms=6.3, forward=Pass(115, 6.8, 12.0), backward=Pass(205, 13.6, 8.0)),
        also=("LOP004", "CMP004"),
    ),
    "slow-expert": with_fault(
        "one of four gets so many tokens that it computes 1.4 times as long",
        replace(_MOE, gpu=Gpu(H100, slower={2: 1.4})),
        ("CMP007",),
        _MOE,
        ranks=(2,),
    ),
    "hot-stage": with_fault("one stage of four on a GPU at 900 of 1368 MHz", held(_PIPE, 2), HELD, _PIPE, ranks=(2,)),
    "split-wire": with_fault(
        "broadcasts after the update take 70 ms",
        replace(_SPLIT, exchange=Exchange(wire_ms=60.0, parameters_ms=70.0)),
        ("COM001",),
        replace(_SPLIT, exchange=Exchange(wire_ms=30.0, parameters_ms=35.0)),
    ),
    "sharded-launches": with_fault(
        "a small transformer in sharded units, in eager mode",
        _UNITS,
        ("CMP003",),
        replace(_UNITS, forward=Pass(115, 3.4, 12.0), backward=Pass(205, 6.9, 8.0)),
    ),
}
