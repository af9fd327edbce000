"""ResNet50 under DDP, synchronised batch norm and AMP with a gradient scaler on eight GPUs, sound or with one fault."""

from __future__ import annotations

from dataclasses import replace

from samples.gpus.streams.description import Exchange, Gpu, Job, Loader, Pass, Story
from samples.gpus.streams.stream_stories import HELD, held, sound, with_fault

_COURSE = Job(
    ranks=8,
    seconds=13.0,
    batch=256,
    forward=Pass(470, 32.0, 9.0),
    backward=Pass(900, 66.0, 6.0),
    optimizer=Pass(24, 1.8, 11.0),
    exchange=Exchange(wire_ms=4.0, buckets=4, norm_layers=53, norm_us=30.0),
    batch_mb=38.0,
    loader=Loader(batch_ms=600.0, workers=10),
    scaled=True,
    reads_every=20,
)
_FEW = Loader(batch_ms=600.0, workers=4)
_SMALL = replace(
    _COURSE, seconds=6.0, batch=16, batch_mb=2.4, forward=Pass(470, 2.6, 13.0), backward=Pass(900, 5.2, 8.5),
    optimizer=Pass(24, 0.6, 11.0), loader=Loader(batch_ms=40.0, workers=10),
)  # fmt: skip

# For the table.
COURSE_NOTE = (
    "With 128 samples for each GPU the sound job is told COM006: synchronised batch norm is then 5 % of the step, and plain batch norm "
    "would do."
)

COURSE: dict[str, Story] = {
    "course": sound("the course's job on eight A100, nothing wrong", _COURSE),
    "course-hot": with_fault("one of them at 900 of 1368 MHz", held(_COURSE, 3), HELD, _COURSE, ranks=(3,)),
    "course-slow-gpu": with_fault(
        "one of them slower for no reason that shows",
        replace(_COURSE, gpu=Gpu(slower={5: 1.35})),
        ("CMP007",),
        _COURSE,
        ranks=(5,),
    ),
    "course-few-workers": with_fault(
        "four loader workers each, of which six were needed",
        replace(_COURSE, loader=_FEW),
        ("DAT004", "DAT001"),
        replace(_COURSE, loader=replace(_FEW, workers=8)),
    ),
    "course-slow-wire": with_fault(
        "gradients take 130 ms on the wire",
        replace(_COURSE, exchange=replace(_COURSE.exchange, wire_ms=130.0)),
        ("COM001",),
        replace(_COURSE, exchange=replace(_COURSE.exchange, wire_ms=65.0)),
    ),
    "course-launches": with_fault(
        "batches of 16, kernels shorter than their launches",
        _SMALL,
        ("CMP003",),
        replace(_SMALL, forward=Pass(117, 2.6, 13.0), backward=Pass(225, 5.2, 8.5)),
        also=("CMP004",),  # without the value that the scaler reads, a step is 1.08 times as fast
    ),
}
