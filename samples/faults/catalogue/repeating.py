"""Work that batches do not need: a bank of filters that is computed anew for each clip, tensors that are collated number by number."""

from __future__ import annotations

from rn50_advisor.rules.items.dat018_every_item_opens_the_same_anew import RULE as REPEATED
from samples.faults.catalogue.feeding import promised
from samples.faults.scenario import Job, Remedy, Scenario, Truth, fault

LISTED = ("DAT022", "DAT003")
REPEATING = ("DAT018", "DAT003")
BANK = "return torch.from_numpy(self.bank.kernels())"


def clips(*arguments: str) -> Job:
    """A small net on clips of sound, 16 per batch."""
    return Job("faults/jobs/input/clips.py", arguments, ranks=0, start="one by one")


def unpacked(*arguments: str) -> Job:
    """A small net on images that lie together in files, 16 per batch."""
    return Job("faults/jobs/input/unpacked.py", arguments, ranks=0, start="one by one")


SCENARIOS = (
    fault(
        "array-unpacked-for-each-item",
        REPEATING[0],
        unpacked("--steps=150"),
        line='torch.from_numpy(self.archive["images"][at])',
        says="reads a whole array",
        fixed=unpacked("--kept", "--steps=2000"),
    ),
    fault(
        "array-unpacked-for-each-item-by-two-workers",
        REPEATING[0],
        unpacked("--workers=2", "--steps=200"),
        line='torch.from_numpy(self.archive["images"][at])',
        says="reads a whole array",
        fixed=unpacked("--workers=2", "--kept", "--steps=2000"),
    ),
    fault(
        "array-unpacked-beside-other-work",
        REPEATING,
        unpacked("--length=64", "--wide=4096", "--steps=250"),
        strength="just above",
        noted=REPEATING[:1],
        remedy=Remedy(job=unpacked("--length=64", "--wide=4096", "--kept", "--steps=250"), promise=promised(REPEATED)),
        note="about half of an item",
    ),
    Scenario(
        name="arrays-of-their-own",
        job=unpacked("--layout=own", "--steps=1000"),
        truth=Truth(never=REPEATING[:1], silent=REPEATING[:1], also=(*REPEATING[1:], "CPU006")),
        strength="just below",
        note="each item unpacks an array of its own",
    ),
    fault(
        "shard-read-for-each-item",
        REPEATING[0],
        unpacked("--layout=shards", "--steps=300"),
        line="images: Tensor = torch.load(path)",
        says="reads a whole file of many items",
        fixed=unpacked("--layout=shards", "--kept", "--steps=2000"),
    ),
    Scenario(
        name="shards-that-are-kept",
        job=unpacked("--layout=shards", "--kept", "--steps=1500"),
        truth=Truth(never=REPEATING[:1], silent=REPEATING[:1], also=(*REPEATING[1:], "DAT016", "CPU006")),
        strength="just below",
    ),
    fault(
        "filters-computed-for-each-clip",
        REPEATING[0],
        clips("--steps=500"),
        line=BANK,
        says="computes the same",
        fixed=clips("--made=kept", "--steps=2000"),
    ),
    fault(
        "filters-computed-for-each-clip-by-a-worker",
        REPEATING[0],
        clips("--workers=1", "--steps=500"),
        line=BANK,
        fixed=clips("--workers=1", "--made=kept", "--steps=2000"),
    ),
    fault(
        "filters-computed-beside-filtering",
        REPEATING,
        clips("--bands=8", "--taps=33", "--passes=6", "--steps=900"),
        strength="just above",
        noted=REPEATING[:1],
        remedy=Remedy(
            job=clips("--bands=8", "--taps=33", "--passes=6", "--made=kept", "--steps=1200"), promise=promised(REPEATED)
        ),
        note="about half of an item",
    ),
    Scenario(
        name="few-filters-computed-beside-much-filtering",
        job=clips("--bands=4", "--taps=17", "--passes=24", "--steps=700"),
        truth=Truth(never=REPEATING[:1], silent=REPEATING[:1], also=REPEATING[1:]),
        strength="just below",
    ),
    fault(
        "batches-collated-number-by-number",
        LISTED[0],
        clips("--made=kept", "--listed", "--steps=1200"),
        line="return torch.FloatTensor(",
        says="converts the items",
        fixed=clips("--made=kept", "--steps=2500"),
    ),
    Scenario(
        name="few-numbers-collated-one-by-one",
        job=clips("--made=kept", "--listed", "--bands=1", "--passes=9", "--steps=2000"),
        truth=Truth(never=LISTED[:1], silent=LISTED[:1], also=LISTED[1:]),
        strength="just below",
    ),
    Scenario(
        name="filters-shifted-by-chance-for-each-clip",
        job=clips("--made=shifted", "--steps=400"),
        truth=Truth(never=REPEATING[:1], silent=REPEATING[:1], also=(*REPEATING[1:], "CPU006")),
        strength="just below",
        note="each clip needs a bank of its own",
    ),
)
