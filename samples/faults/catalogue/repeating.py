"""Work that batches do not need: a bank of filters that is computed anew for each clip, tensors that are collated number by number, results
that each iteration copies, linear operations in an expensive order.
"""

from __future__ import annotations

from rn50_advisor.rules.items.dat018_every_item_opens_the_same_anew import RULE as REPEATED
from rn50_advisor.rules.items.dat026_single_items_are_read_out_of_chunks_of_many import RULE as OF_CHUNKS
from samples.faults.catalogue.feeding import promised
from samples.faults.scenario import Job, Remedy, fault, sound_twin

LISTED = ("DAT022", "DAT003")
REPEATING = ("DAT018", "DAT003")
JOINED, PAIRED, ORDERED = "CMP034", "CMP035", "CMP037"
CHUNKED = ("DAT026", "DAT003")
GATHERED = "DAT027"
BANK = "return torch.from_numpy(self.bank.kernels())"
chunks = Job("faults/jobs/input/chunks.py")  # a small net on images of an HDF5 file, 16 per batch
fields = Job(
    "faults/jobs/input/fields.py"
)  # a small net on patches of weather fields in a zarr or HDF5 array, 8 per batch
clips = Job("faults/jobs/input/clips.py")  # a small net on clips of sound, 16 per batch
orders = Job("faults/jobs/layers/orders.py")  # linear attention, votes that are averaged, a head on an enlarged image
relations = Job("faults/jobs/loop/relations.py")  # a network on all pairs of a scene's objects, 32 scenes per batch
sampling = Job("faults/jobs/loop/sampling.py")  # a GRU trained by rewards for the sequences that it draws
unrolling = Job("faults/jobs/loop/unrolling.py")  # a GRU cell that goes on from its own forecasts
unpacked = Job("faults/jobs/input/unpacked.py")  # a small net on images that lie together in files, 16 per batch
SCENARIOS = (
    fault(
        "array-unpacked-for-each-item",
        REPEATING[0],
        unpacked("--steps=150"),
        line='torch.from_numpy(self.archive["images"][at])',
        says="reads a whole array",
        fixed=("--kept", "--steps=2000"),
    ),
    fault(
        "array-unpacked-for-each-item-by-two-workers",
        REPEATING[0],
        unpacked("--workers=2", "--steps=200"),
        line='torch.from_numpy(self.archive["images"][at])',
        says="reads a whole array",
        fixed=("--kept", "--steps=2000"),
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
    sound_twin(
        "arrays-of-their-own",
        REPEATING[0],
        unpacked("--layout=own", "--steps=1000"),
        also=(*REPEATING[1:], "CPU006"),
        note="each item unpacks an array of its own",
    ),
    fault(
        "chunk-unpacked-for-each-item",
        CHUNKED[0],
        chunks("--steps=150"),
        line='self.file["images"][at]',
        says="a chunk of 32 items unpacked for every item",
        fixed=("--each=1", "--steps=1500"),
    ),
    fault(
        "chunk-unpacked-for-each-item-by-a-worker",
        CHUNKED[0],
        chunks("--workers=1", "--each=16", "--steps=1200"),
        line='self.file["images"][at]',
        says="a chunk of 16 items unpacked for every item",
        fixed=("--each=1", "--steps=1500"),
    ),
    fault(
        "small-chunk-unpacked-for-each-item",
        CHUNKED,
        chunks("--each=8", "--steps=400"),
        strength="just above",
        noted=CHUNKED[:1],
        remedy=Remedy(job=chunks("--each=1", "--steps=1000"), promise=promised(OF_CHUNKS)),
        note="unpacking eight images takes a third of the step; a worker gains as much",
    ),
    fault(
        "patches-of-many-small-chunks",
        GATHERED,
        fields("--chunk=1x1x48x48", "--steps=80"),
        line="patch = self.fields[",
        says="24 chunks or more",
        fixed=("--chunk=6x4x48x48", "--steps=500"),
    ),
    fault(
        "patches-of-small-chunks-by-a-worker",
        GATHERED,
        fields("--chunk=1x4x32x32", "--workers=1", "--steps=160"),
        line="patch = self.fields[",
        fixed=("--chunk=6x4x48x48", "--steps=500"),
    ),
    fault(
        "patches-of-some-chunks-beside-a-wide-net",
        GATHERED,
        fields("--chunk=1x4x48x48", "--wide=192", "--workers=1", "--steps=200"),
        strength="just above",
        line="patch = self.fields[",
        fixed=("--chunk=6x4x48x48", "--steps=300"),
    ),
    sound_twin(
        "patches-of-chunks-of-their-size",
        GATHERED,
        fields("--chunk=6x4x48x48", "--workers=2", "--wide=96", "--steps=500"),
        also=("DAT026",),
    ),
    sound_twin(
        "patches-of-small-chunks-that-are-quick",
        GATHERED,
        fields("--library=h5py", "--chunk=1x1x48x48", "--workers=2", "--wide=96", "--steps=400"),
        also=("DAT026", "DAT001"),
        note="HDF5 needs microseconds for a chunk, unpacking takes the time",
    ),
    sound_twin("images-in-chunks-of-their-own", CHUNKED[0], chunks("--each=1", "--steps=800"), also=CHUNKED[1:]),
    fault(
        "shard-read-for-each-item",
        REPEATING[0],
        unpacked("--layout=shards", "--steps=300"),
        line="images: Tensor = torch.load(path)",
        says="reads a whole file of many items",
        fixed=("--kept", "--steps=2000"),
    ),
    sound_twin(
        "shards-that-are-kept",
        REPEATING[0],
        unpacked("--layout=shards", "--kept", "--steps=1500"),
        also=(*REPEATING[1:], "DAT016", "CPU006"),
    ),
    fault(
        "filters-computed-for-each-clip",
        REPEATING[0],
        clips("--steps=500"),
        line=BANK,
        says="computes the same",
        fixed=("--made=kept", "--steps=2000"),
    ),
    fault(
        "filters-computed-for-each-clip-by-a-worker",
        REPEATING[0],
        clips("--workers=1", "--steps=500"),
        line=BANK,
        fixed=("--made=kept", "--steps=2000"),
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
    sound_twin(
        "few-filters-computed-beside-much-filtering",
        REPEATING[0],
        clips("--bands=4", "--taps=17", "--passes=24", "--steps=700"),
        also=REPEATING[1:],
    ),
    fault(
        "batches-collated-number-by-number",
        LISTED[0],
        clips("--made=kept", "--listed", "--steps=1200"),
        line="return torch.FloatTensor(",
        says="converts the items",
        fixed=clips("--made=kept", "--steps=2500"),
    ),
    sound_twin(
        "few-numbers-collated-one-by-one",
        LISTED[0],
        clips("--made=kept", "--listed", "--bands=1", "--passes=9", "--steps=2000"),
        also=LISTED[1:],
    ),
    sound_twin(
        "filters-shifted-by-chance-for-each-clip",
        REPEATING[0],
        clips("--made=shifted", "--steps=400"),
        also=(*REPEATING[1:], "CPU006"),
        note="each clip needs a bank of its own",
    ),
    fault(
        "drawn-words-gone-through-again",
        "LOP018",
        sampling(),
        line="scores, _ = writer(ids)",
        fixed=("--kept", "--steps=400"),
    ),
    fault(
        "few-drawn-words-gone-through-again",
        "LOP018",
        sampling("--length=12", "--steps=400"),
        strength="just above",
        line="scores, _ = writer(ids)",
        fixed=("--kept", "--steps=600"),
    ),
    fault(
        "drawn-words-beside-a-large-critic",
        "LOP018",
        sampling("--length=6", "--hidden=6000", "--steps=150"),
        strength="just below",
    ),
    fault(
        "pairs-of-repeated-objects",
        PAIRED,
        relations(),
        line="self.pair(torch.cat(",
        fixed=("--each", "--steps=800"),
    ),
    fault(
        "pairs-of-few-repeated-objects",
        PAIRED,
        relations("--objects=10", "--layers=2", "--hidden=48", "--batch=64", "--steps=900"),
        strength="just above",
        line="self.pair(torch.cat(",
        fixed=("--each", "--steps=1300"),
    ),
    fault(
        "pairs-beside-many-layers",
        PAIRED,
        relations("--objects=4", "--layers=24", "--hidden=8", "--batch=64", "--steps=600"),
        strength="just below",
    ),
    fault(
        "scores-of-all-words-in-linear-attention",
        ORDERED,
        orders("--of=words", "--batch=8", "--width=32", "--steps=700"),
        line="mixed = weights @ v",
        says="multiply the two other matrices first",
        fixed=("--small-first", "--steps=1500"),
    ),
    fault(
        "votes-averaged-after-a-wide-layer",
        ORDERED,
        orders("--of=votes", "--batch=32", "--long=128", "--width=128", "--classes=1000", "--layers=3", "--steps=500"),
        line="votes = self.vote(words)",
        says="average first, then apply vote",
        fixed=("--small-first", "--steps=1500"),
    ),
    fault(
        "classes-of-pixels-of-an-enlarged-image",
        ORDERED,
        orders("--of=pixels", "--batch=4", "--long=128", "--layers=24", "--steps=120"),
        strength="just above",
        line="return torch.as_tensor(self.classify(features))",
        says="apply classify first",
        fixed=("--small-first", "--steps=150"),
    ),
    fault(
        "scores-of-few-words-in-linear-attention",
        ORDERED,
        orders("--of=words", "--batch=32", "--long=96", "--width=64", "--layers=2", "--steps=500"),
        strength="just below",
    ),
    fault(
        "forecasts-joined-one-by-one",
        JOINED,
        unrolling(),
        line="found = torch.cat(",
        fixed=("--listed", "--steps=140"),
    ),
    fault(
        "few-forecasts-joined-one-by-one",
        JOINED,
        unrolling("--horizon=120", "--batch=96", "--steps=250"),
        strength="just above",
        line="found = torch.cat(",
        fixed=("--listed", "--steps=300"),
    ),
    fault(
        "forecasts-of-few-series-joined-one-by-one",
        JOINED,
        unrolling("--horizon=40", "--batch=16", "--steps=700"),
        strength="just below",
    ),
    sound_twin(
        "classes-of-pixels-before-enlarging",
        ORDERED,
        orders("--of=pixels", "--batch=4", "--long=128", "--layers=6", "--small-first", "--steps=250"),
    ),
    sound_twin(
        "forecasts-that-need-each-other",
        JOINED,
        unrolling("--listed", "--steps=140"),
        also=("CMP017",),
        note="no single call computes them",
    ),
)
