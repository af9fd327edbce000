"""The simulated jobs by which verdicts on GPUs are scored. Each differs from a sound job by one fault, or by none."""

from __future__ import annotations

from dataclasses import replace

from samples.gpus.machines import H100, L40S
from samples.gpus.stories import CUDA, LAYER
from samples.gpus.streams.description import Exchange, Gpu, Job, Loader, Pass, Story

HEALTHY = ("healthy",)
UNSEEN = ("inconclusive", "healthy")  # right where most of a step cannot be seen
HELD = ("GPU001", "GPU002")  # a GPU below its clocks

ONE = Job()
EIGHT = Job(ranks=8, seconds=13.0)
NORMS = replace(EIGHT, exchange=Exchange(norm_layers=30, norm_us=40.0), batch=64)
SHARDED = replace(EIGHT, exchange=Exchange("sharded", wire_ms=24.0))
ENGINE = replace(EIGHT, ranks=4, exchange=Exchange("engine"))
# forward and backward of short kernels: the host needs longer to launch them than the GPU to run them
SHORT = replace(
    ONE,
    batch=16,
    forward=Pass(600, 3.0, 12.0),
    backward=Pass(1100, 6.0, 7.0),
    optimizer=Pass(30, 0.5, 12.0),
    loader=Loader(batch_ms=20.0),
    seconds=16.0,
)
LONG = replace(
    SHORT, forward=Pass(60, 3.0, 12.0), backward=Pass(110, 6.0, 7.0)
)  # the same with a tenth of the launches
SINGLE_PRECISION = {
    "cuda": {**CUDA, "tf32_matmul": False, "tf32_cudnn": False},
    "conv": {**LAYER, "autocast": None},
    "autocast": {"enabled": False},
}
CHANNELS_FIRST = {"conv": {**LAYER, "input_layout": "channels_first", "weight_layout": "channels_first"}}


def faster(job: Job, gain: float) -> Job:
    """The job with kernels of forward and backward that take less time by this factor."""
    forward, backward = (replace(part, gpu_ms=part.gpu_ms / gain) for part in (job.forward, job.backward))
    return replace(job, forward=forward, backward=backward, facts={})


def held(job: Job, rank: int, share: float = 900 / 1368, by: str = "heat") -> Job:
    return replace(job, gpu=replace(job.gpu, clock={rank: share}, held_by=by))


def sound(title: str, job: Job, *, truth: tuple[str, ...] = HEALTHY, also: tuple[str, ...] = ()) -> Story:
    return Story(title, job, truth, also=also)


def with_fault(
    title: str,
    job: Job,
    truth: tuple[str, ...],
    without: Job,
    *,
    ranks: tuple[int, ...] | None = None,
    also: tuple[str, ...] = (),
) -> Story:
    return Story(title, job, truth, without, ranks, also)


def _sound() -> dict[str, Story]:
    near = replace(ONE, forward=Pass(900, 18.0, 16.0), backward=Pass(1700, 36.0, 10.0))
    return {
        "one": sound("one A100, nothing wrong", ONE),
        "eight": sound("eight A100 under DDP, nothing wrong", EIGHT),
        "eight-norms": sound("eight under DDP with SyncBN and AMP, nothing wrong", NORMS),
        # nothing times the exchange of these two
        "eight-sharded": sound("eight under FSDP, nothing wrong", SHARDED, truth=UNSEEN),
        "four-engine": sound("four under DeepSpeed, nothing wrong", ENGINE, truth=UNSEEN),
        "reads-every-10": sound("the log line reads the loss every 10 steps", replace(ONE, reads_every=10)),
        "reads-every-20": sound("the log line reads the loss every 20 steps", replace(ONE, reads_every=20)),
        "reads-every-10-eight": sound("the same every 10 steps on eight", replace(EIGHT, reads_every=10)),
        "reads-each-step": sound(
            "the loss read in each step, and next to nothing between steps", replace(ONE, reads_every=1)
        ),
        "accumulates": sound("four micro-batches a step on eight", replace(EIGHT, micro_batches=4, seconds=40)),
        "reduce-overhead": sound("forward and backward replayed as CUDA graphs", replace(ONE, graph="layers")),
        "compiled-update": sound("a compiled optimizer, which calls no hook", replace(ONE, compiled_update=True)),
        "compiled-update-long": sound(
            "a compiled optimizer that takes a tenth of the step",
            replace(ONE, compiled_update=True, optimizer=Pass(60, 14.0, 12.0)),
        ),
        "compiled-update-eight": sound("the same on eight", replace(EIGHT, compiled_update=True)),
        "update-in-backward": sound(
            "an optimizer for each gradient inside the backward", replace(ONE, update_in_backward=True)
        ),
        "step-graph": sound("the whole step replayed as one CUDA graph", replace(ONE, graph="step")),
        "step-graph-update": sound(
            "the same with an optimizer of many kernels", replace(ONE, graph="step", optimizer=Pass(900, 12.0, 10.0))
        ),
        "hidden-gap": sound("30 ms of the loop between steps, behind a full queue", replace(ONE, gap_ms=30.0)),
        "hidden-loader": sound(
            "a fetch of 40 ms, behind a full queue", replace(ONE, loader=Loader(fetch_ms=40.0, batch_ms=500.0))
        ),
        "hidden-blocking": sound(
            "copies for whose end the host waits, and time enough for it",
            replace(ONE, non_blocking=False, batch_mb=154.0, loader=Loader(fetch_ms=9.0)),
        ),
        "near-parity": sound("launches take nine tenths of the GPU's time", near),
        "eight-container": sound(
            "eight in a container, to which the driver lists no processes",
            replace(EIGHT, gpu=Gpu(lists_processes=False)),
        ),
        "one-container": sound("one A100 in such a container", replace(ONE, gpu=Gpu(lists_processes=False))),
        "varies": sound("batches of different length, alike on all ranks", replace(EIGHT, varies=0.3)),
    }


def _gpus() -> dict[str, Story]:
    heavy = replace(NORMS, batch_mb=154.0)
    return {
        "hot": with_fault("one of eight at 900 of 1368 MHz", held(EIGHT, 3), HELD, EIGHT, ranks=(3,)),
        "hot-norms": with_fault("the same under SyncBN", held(NORMS, 3), HELD, NORMS, ranks=(3,)),
        "hot-sharded": with_fault("the same under FSDP", held(SHARDED, 5), HELD, SHARDED, ranks=(5,)),
        "hot-engine": with_fault("the same under DeepSpeed", held(ENGINE, 1), HELD, ENGINE, ranks=(1,)),
        "capped-norms": with_fault(
            "one power limit lowered, under SyncBN", held(NORMS, 6, 0.75, "power cap"), HELD, NORMS, ranks=(6,)
        ),
        "slow-norms-hint": with_fault(
            "one of eight at 80 % of its clocks, under FSDP", held(SHARDED, 2, 0.8), HELD, SHARDED, ranks=(2,)
        ),
        "shared": with_fault(
            "somebody else on one of eight", replace(EIGHT, gpu=Gpu(stranger={2: 0.35})), ("GPU005",), EIGHT, ranks=(2,)
        ),
        "shared-container": with_fault(
            "the same in a container, to which the driver lists no processes",
            replace(EIGHT, gpu=Gpu(stranger={2: 0.35}, lists_processes=False)),
            ("GPU005",),
            EIGHT,
            ranks=(2,),
        ),
        "shared-norms": with_fault(
            "the same under SyncBN", replace(NORMS, gpu=Gpu(stranger={2: 0.35})), ("GPU005",), NORMS, ranks=(2,)
        ),
        "shared-sharded": with_fault(
            "the same under FSDP", replace(SHARDED, gpu=Gpu(stranger={7: 0.3})), ("GPU005",), SHARDED, ranks=(7,)
        ),
        "narrow-link": with_fault(
            "two lanes of sixteen, under DDP",
            replace(EIGHT, batch_mb=154.0, gpu=Gpu(link_width={4: 2})),
            ("GPU006",),
            replace(EIGHT, batch_mb=154.0),
            ranks=(4,),
        ),
        "narrow-link-norms": with_fault(
            "two lanes of sixteen, under SyncBN",
            replace(heavy, gpu=Gpu(link_width={4: 2})),
            ("GPU006",),
            heavy,
            ranks=(4,),
        ),
        "slower-gpu-norms": with_fault(
            "one of eight slower for no reason that shows, under SyncBN",
            replace(NORMS, gpu=Gpu(slower={5: 1.4})),
            ("CMP007",),
            NORMS,
            ranks=(5,),
        ),
        "slower-gpu": with_fault(
            "one of eight slower for no reason that shows",
            replace(EIGHT, gpu=Gpu(slower={5: 1.4})),
            ("CMP007",),
            EIGHT,
            ranks=(5,),
        ),
    }


def _host() -> dict[str, Story]:
    short_eight = replace(SHORT, ranks=8, exchange=Exchange(norm_layers=20, wire_ms=2.0))
    uneven = replace(
        ONE, batch=32, forward=Pass(500, 3.2, 13.0), backward=Pass(700, 9.0, 5.0), optimizer=Pass(20, 0.4, 12.0),
        loader=Loader(batch_ms=20.0, fetch_ms=0.3),
    )  # fmt: skip
    loop = replace(ONE, optimizer=Pass(3200, 4.0, 9.0), forward=Pass(420, 9.0, 8.0), backward=Pass(800, 18.0, 5.0))
    return {
        "launch-bound": with_fault("kernels shorter than their launches", SHORT, ("CMP003",), LONG),
        "launch-bound-fine": with_fault(
            "the same, with a driver that sees every gap",
            replace(SHORT, gpu=Gpu(utilisation_slot_ms=0.001)),
            ("CMP003",),
            LONG,
        ),
        "launch-bound-slow-window": with_fault(
            "the same, with a driver whose window is a second",
            replace(SHORT, gpu=Gpu(utilisation_window_s=1.0)),
            ("CMP003",),
            LONG,
        ),
        "reads-every-10-slow-window": sound(
            "the loss read in every tenth step, with a driver whose window is a second",
            replace(ONE, reads_every=10, gpu=Gpu(utilisation_window_s=1.0)),
        ),
        "launch-bound-h100": with_fault(
            "the same on an H100", replace(SHORT, gpu=Gpu(H100)), ("CMP003",), replace(LONG, gpu=Gpu(H100))
        ),
        "launch-bound-eight": with_fault(
            "the same on eight with SyncBN and AMP",
            short_eight,
            ("CMP003",),
            replace(short_eight, forward=LONG.forward, backward=LONG.backward),
        ),
        "launch-bound-accumulates": with_fault(
            "the same with four micro-batches a step",
            replace(SHORT, micro_batches=4),
            ("CMP003",),
            replace(LONG, micro_batches=4),
        ),
        "launch-bound-update": with_fault(
            "an optimizer that launches 3200 kernels", loop, ("CMP003",), replace(loop, optimizer=Pass(40, 4.0, 9.0))
        ),
        "reads-at-parity": with_fault(
            "the loss read in each step where launches and kernels take nearly the same",
            replace(uneven, reads_every=1, read_ms=0.1),
            ("CMP004",),
            uneven,
        ),
        "reads-and-waits": with_fault(
            "the loss read in each step, and 14 ms of the loop after it",
            replace(ONE, reads_every=1, read_ms=0.2, gap_ms=14.0),
            ("CMP004", "LOP004"),
            replace(ONE, gap_ms=14.0),
            also=("LOP004",),
        ),
        "scaler": with_fault(
            "a value read in each step before an optimizer of many kernels",
            replace(uneven, scaled=True, optimizer=Pass(400, 1.5, 9.0)),
            ("CMP004",),
            replace(uneven, optimizer=Pass(400, 1.5, 9.0)),
        ),
        "long-gap": with_fault(
            "130 ms of the loop between steps, more than the GPU's queue hides",
            replace(ONE, gap_ms=150.0),
            ("LOP004",),
            ONE,
        ),
        "pageable": with_fault(
            "batches from memory that is not pinned",
            replace(ONE, pinned=False, batch_mb=308.0),
            ("H2D001",),
            replace(ONE, batch_mb=308.0),
        ),
        "blocking": with_fault(
            "copies for whose end the host waits",
            replace(uneven, non_blocking=False, batch_mb=77.0),
            ("H2D002",),
            replace(uneven, batch_mb=77.0),
        ),
    }


def _feeding() -> dict[str, Story]:
    few = Loader(batch_ms=700.0, workers=4)
    enough = Loader(batch_ms=700.0, workers=12)
    starved = ("DAT004", "DAT001")
    return {
        "few-workers": with_fault(
            "four workers, of which six were needed", replace(ONE, loader=few), starved, replace(ONE, loader=enough)
        ),
        "few-workers-eight-norms": with_fault(
            "the same on eight with SyncBN and AMP", replace(NORMS, loader=few), starved, replace(NORMS, loader=enough)
        ),
        "few-workers-accumulates": with_fault(
            "the same with four micro-batches a step",
            replace(ONE, loader=few, micro_batches=4, seconds=40),
            starved,
            replace(ONE, loader=enough, micro_batches=4, seconds=40),
        ),
        "few-workers-graph": with_fault(
            "the same with the whole step replayed as one CUDA graph",
            replace(ONE, graph="step", loader=few),
            starved,
            replace(ONE, graph="step", loader=enough),
        ),
        "few-workers-sharded": with_fault(
            "the same under FSDP", replace(SHARDED, loader=few), starved, replace(SHARDED, loader=enough)
        ),
        "one-loader": with_fault(
            "one rank's batches take three times as long",
            replace(EIGHT, loader=Loader(batch_ms=500.0, slow={6: 3.0})),
            ("DAT008",),
            replace(EIGHT, loader=Loader(batch_ms=500.0)),
            ranks=(6,),
        ),
        "one-loader-norms": with_fault(
            "the same under SyncBN",
            replace(NORMS, loader=Loader(batch_ms=500.0, slow={6: 3.0})),
            ("DAT008",),
            replace(NORMS, loader=Loader(batch_ms=500.0)),
            ranks=(6,),
        ),
    }


def _wire() -> dict[str, Story]:
    slow, half = Exchange(wire_ms=160.0), Exchange(wire_ms=80.0)
    slow_norms = replace(slow, norm_layers=30, norm_us=40.0)
    slow_engine = Exchange("engine", wire_ms=190.0, buckets=8)
    return {
        # the advice is to halve the bytes
        "slow-wire": with_fault(
            "gradients take 160 ms on the wire",
            replace(EIGHT, exchange=slow),
            ("COM001",),
            replace(EIGHT, exchange=half),
        ),
        "slow-wire-norms": with_fault(
            "the same with SyncBN and AMP",
            replace(NORMS, exchange=slow_norms),
            ("COM001",),
            replace(NORMS, exchange=replace(slow_norms, wire_ms=80.0)),
        ),
        "slow-wire-sharded": with_fault(
            "the same under FSDP",
            replace(SHARDED, exchange=Exchange("sharded", wire_ms=360.0)),
            ("COM001",),
            replace(SHARDED, exchange=Exchange("sharded", wire_ms=180.0)),
        ),
        "slow-wire-engine": with_fault(
            "the same under DeepSpeed",
            replace(ENGINE, exchange=slow_engine),
            ("COM001",),
            replace(ENGINE, exchange=replace(slow_engine, wire_ms=95.0)),
        ),
    }


def _layers() -> dict[str, Story]:
    plain, first = replace(ONE, facts=SINGLE_PRECISION), replace(ONE, facts=CHANNELS_FIRST)
    floored = replace(plain, forward=Pass(900, 32.0, 22.0), backward=Pass(1700, 64.0, 13.0))
    exposing = replace(plain, ranks=8, exchange=Exchange(wire_ms=60.0, buckets=10))
    tight = replace(first, forward=Pass(900, 20.0, 18.0), backward=Pass(1700, 41.0, 21.0), batch=64)
    return {
        "single-precision": with_fault("neither autocast nor TF32", plain, ("CMP001",), faster(plain, 2.1)),
        "single-precision-floored": with_fault(
            "the same where launching takes half of the step", floored, ("CMP001",), faster(floored, 2.6)
        ),
        "single-precision-exposing": with_fault(
            "the same on eight, whose backward hides 60 ms of exchange",
            exposing,
            ("CMP001",),
            faster(exposing, 2.6),
            also=("COM001",),
        ),
        "single-precision-l40s": with_fault(
            "the same on an L40S",
            replace(plain, gpu=Gpu(L40S)),
            ("CMP001",),
            replace(faster(plain, 2.4), gpu=Gpu(L40S)),
        ),
        "channels-first": with_fault("channels-first under autocast", first, ("CMP002",), faster(first, 1.3)),
        "channels-first-floored": with_fault(
            "the same where launching takes most of the step",
            tight,
            ("CMP002", "CMP003"),
            faster(tight, 1.35),
            also=("CMP003",),
        ),
    }


STORIES: dict[str, Story] = {**_sound(), **_gpus(), **_host(), **_feeding(), **_wire(), **_layers()}
