"""Loader faults other than slow batches: samples fetched one by one or through a mapping, slow samplers, restarts, uneven shards."""

from __future__ import annotations

from collections.abc import Callable

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Finding, Saving
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rn50_advisor.rules.items.dat017_an_indices_mapping_slows_every_item import RULE as MAPPED
from rn50_advisor.rules.items.dat018_every_item_opens_the_same_anew import RULE as OPENED_ANEW
from rn50_advisor.rules.items.dat019_rows_of_a_table_are_taken_one_by_one import RULE as TAKEN_ONE_BY_ONE
from rn50_advisor.rules.items.dat022_every_item_goes_through_a_whole_collection import RULE as GONE_THROUGH
from rn50_advisor.rules.items.dat025_columns_are_decoded_list_by_list import RULE as DECODED
from rn50_advisor.rules.rule import Rule
from samples.faults.scenario import Job, Remedy, fault, sound_twin

LOADER = "kept = DataLoader("
PERSISTENT = ("--workers=2", "--persistent")
SHORT_EPOCHS = ("--pictures=160", "--transform=0.5", "--steps=200")
ORDERED = ("--pictures=240", "--transform=0.5", "--steps=150")
MAPPING = ("DAT017", "DAT003")
NESTED = ("DAT025", "DAT003")
LISTS = ("--lists=64", "--rows=4000", "--batch=128", "--order=loader", "--compute=30", "--steps=200")
FEW_LISTS = (*LISTS, "--lists=32", "--compute=350", "--steps=40")
OPENING = ("DAT018", "DAT003")
TABLE = ("DAT019", "DAT003")
COLLECTING = ("DAT020", "DAT001")
THROUGH = ("DAT022", "DAT003")
OBJECTS = ("--boxes=16", "--batch=2048", "--steps=400")
SHARDS = ("--shards", "--steps=150", *PERSISTENT)
pairs = Job("faults/jobs/input/pairs.py")
reviews = Job("faults/jobs/input/reviews.py")  # a small net on lines of a text file, 32 per batch
stream = Job("faults/jobs/input/sharded_stream.py", ranks=2, start="one by one")
dispatched = Job("faults/jobs/input/dispatched_stream.py", ranks=2, start="one by one")
# A net that computes about 35 ms a step, on pictures that cost almost no time.
job = Job("faults/jobs/input/feeding.py", ("--width=48",), start="one by one")
rows = Job("faults/jobs/input/in_memory.py")  # a small net on rows in memory, 512 per batch
mapped = Job("faults/jobs/input/mapped.py")  # a small net on short rows of a Hugging Face data set, 1,024 per batch
# A net that computes about 5 ms a step, on rows of a pandas table, 64 per batch.
table = Job("faults/jobs/input/tables.py")
# A net that computes about 10 ms a step, on items of an archive, 16 per batch.
archive = Job("faults/jobs/input/archive.py")
listed = Job("faults/jobs/input/records.py")  # a small net on records held as Python objects, which two workers read


def promised(rule: Rule) -> Callable[[Analysis], Saving | None]:
    """What a rule promises, also where more workers are the verdict."""

    def saving(a: Analysis) -> Saving | None:
        found = run_rule(rule, a, Config())
        return found.saving if isinstance(found, Finding) else None

    return saving


SCENARIOS = (
    fault(
        "rows-of-a-table",
        TABLE[0],
        table("--steps=900"),
        line="return self.table.iloc[at]",
        fixed=("--arrays", "--steps=3000"),
    ),
    fault(
        "rows-of-a-table-beside-other-work",
        TABLE,
        table("--work=8", "--steps=700"),
        strength="just above",
        noted=TABLE[:1],
        remedy=Remedy(job=table("--work=8", "--arrays", "--steps=600"), promise=promised(TAKEN_ONE_BY_ONE)),
        note="about half of an item",
    ),
    fault(
        "rows-of-a-table-beside-much-computing",
        TABLE,
        table("--frozen=6", "--steps=300"),
        strength="just above",
        noted=TABLE[:1],
        remedy=Remedy(job=table("--frozen=6", "--arrays", "--steps=300"), promise=promised(TAKEN_ONE_BY_ONE)),
        note="single stacks seldom find the training process in its loader; a profile does",
    ),
    sound_twin("rows-of-an-array-beside-much-computing", TABLE, table("--frozen=6", "--arrays", "--steps=200")),
    sound_twin("rows-of-an-array", TABLE[0], table("--arrays", "--work=8"), also=(*TABLE[1:], "DAT016")),
    fault(
        "names-searched-for-each-item",
        THROUGH[0],
        pairs("--look-up=list", "--items=50000", "--steps=900"),
        line="return self.names.index(name)",
        says="searches a whole collection",
        fixed=pairs("--items=50000", "--steps=2000"),
    ),
    fault(
        "indices-permuted-for-each-item",
        THROUGH[0],
        pairs("--other=permuted", "--steps=1500"),
        line="np.random.permutation(",
        says="permutes a whole collection",
        fixed=pairs("--steps=2000"),
    ),
    fault(
        "names-searched-in-a-short-list",
        THROUGH,
        pairs("--look-up=list", "--items=8000", "--steps=10000"),
        strength="just above",
        noted=THROUGH[:1],
        remedy=Remedy(job=pairs("--items=8000", "--steps=6000"), promise=promised(GONE_THROUGH)),
        note="a fifth of the step; single stacks seldom find the training process in its loader",
    ),
    fault(
        "file-read-from-its-start",
        THROUGH[0],
        reviews("--steps=250"),
        line="for number, text in enumerate(file):",
        says="is read from its start",
        fixed=("--seek", "--steps=2000"),
    ),
    fault(
        "file-read-from-its-start-by-a-worker",
        THROUGH[0],
        reviews("--workers=1", "--lines=6000", "--steps=800"),
        line="for number, text in enumerate(file):",
        says="is read from its start",
        fixed=("--seek", "--steps=2000"),
    ),
    fault(
        "few-lines-read-from-the-start",
        THROUGH,
        reviews("--lines=400", "--wide=2048", "--steps=600"),
        strength="just above",
        noted=THROUGH[:1],
        remedy=Remedy(
            job=reviews("--lines=400", "--wide=2048", "--seek", "--steps=600"), promise=promised(GONE_THROUGH)
        ),
        note="either is right: a worker reads beside the step",
    ),
    sound_twin(
        "lines-found-by-their-offsets",
        THROUGH[0],
        reviews("--seek", "--steps=1500"),
        also=(*THROUGH[1:], "DAT016", "DAT018"),
        note="its file is opened for each item",
    ),
    sound_twin("names-in-a-dictionary", THROUGH[0], pairs("--steps=1500"), also=(*THROUGH[1:], "DAT016")),
    fault(
        "stream-divided-behind-its-tokeniser",
        "DAT023",
        stream("--words=1500"),
        line="accelerator.prepare(loader)",
        fixed="--own",
    ),
    fault("stream-divided-behind-a-little-work", "DAT023", stream("--words=300"), strength="just above", fixed="--own"),
    sound_twin("stream-divided-before-its-tokeniser", "DAT023", stream("--words=1500", "--own"), also=("DAT003",)),
    fault(
        "stream-loaded-by-rank-0",
        "DAT024",
        dispatched("--rounds=4"),
        line="loader = DataLoader(Records(",
        fixed="--own",
    ),
    sound_twin("stream-loaded-by-each-rank", "DAT024", dispatched("--rounds=4", "--own"), also=("DAT003",)),
    fault(
        "archive-opened-for-each-item",
        OPENING[0],
        archive(),
        line="with zipfile.ZipFile(self.path) as archive",
        fixed=("--opened=kept", "--steps=600"),
    ),
    fault(
        "archive-opened-for-each-item-of-two-workers",
        OPENING[0],
        archive("--workers=2", "--steps=200"),
        line="with zipfile.ZipFile(self.path) as archive",
        fixed=("--opened=kept", "--steps=600"),
    ),
    fault(
        "one-of-eight-archives-opened-for-each-item",
        OPENING[0],
        archive("--opened=shared", "--workers=1", "--steps=400"),
        line="with zipfile.ZipFile(path) as archive, archive.open(name) as file",
        says="opens an archive of many items",
        fixed=("--opened=shared-kept", "--steps=1200"),
    ),
    fault(
        "annotations-read-for-each-item",
        OPENING[0],
        archive("--annotated"),
        line="annotations: dict[str, Any] = json.load(file)",
        fixed=("--opened=kept", "--steps=600"),
        note="in a helper that gets the path",
    ),
    fault(
        "archive-opened-beside-other-work",
        OPENING,
        archive("--entries=200", "--work=30", "--steps=600"),
        strength="just above",
        noted=OPENING[:1],
        remedy=Remedy(
            job=archive("--entries=200", "--work=30", "--opened=kept", "--steps=400"), promise=promised(OPENED_ANEW)
        ),
        note="about half of an item",
    ),
    sound_twin(
        "archive-opened-beside-much-other-work",
        OPENING[0],
        archive("--entries=50", "--work=400", "--steps=100"),
        also=OPENING[1:],
    ),
    sound_twin(
        "archives-of-their-own",
        OPENING[0],
        archive("--opened=own"),
        also=(*OPENING[1:], "CPU006"),
        note="each item opens an archive of its own",
    ),
    fault(
        "workers-collect-among-records",
        COLLECTING[0],
        listed(*OBJECTS),
        fixed="--freeze",
        also=("DAT001", "DAT007", "MEM002"),
    ),
    fault(
        "workers-collect-in-small-batches",
        COLLECTING,
        listed("--boxes=16", "--batch=512", "--steps=1200"),
        strength="just above",
        note="samples of many lists also cost much without the collector",
        fixed="--freeze",
        noted=COLLECTING[:1],
        also=("DAT007", "MEM002"),
    ),
    fault(
        "collector-called-for-samples",
        COLLECTING[0],
        listed("--records=50000", "--batch=256", "--collect-every=2048", "--steps=800"),
        line="gc.collect()",
        fixed=listed("--records=50000", "--batch=256", "--steps=1500"),
        also=("DAT001", "DAT007"),
    ),
    fault(
        "collector-called-for-samples-in-the-training-process",
        "CPU006",
        listed("--records=50000", "--batch=256", "--collect-every=2048", "--steps=600", "--workers=0"),
        line="gc.collect()",
        fixed=listed("--records=50000", "--batch=256", "--steps=1500", "--workers=0"),
        also=("DAT003",),
    ),
    fault(
        "indices-mapping",
        MAPPING,
        mapped(),
        noted=MAPPING[:1],
        line="loader = DataLoader(data",
        remedy=Remedy(job=mapped("--order=loader"), promise=promised(MAPPED)),
        note="on idle cores workers gain more, for the cores that they take",
    ),
    fault(
        "indices-mapping-of-a-slower-step",
        MAPPING,
        mapped("--compute=10", "--steps=400"),
        strength="just above",
        noted=MAPPING[:1],
        line="loader = DataLoader(data",
        remedy=Remedy(job=mapped("--compute=10", "--steps=400", "--order=flat"), promise=promised(MAPPED)),
        note="as above: workers hide the look-ups too",
    ),
    fault(
        "nested-lists",
        NESTED,
        mapped(*LISTS),
        noted=NESTED[:1],
        line="loader = DataLoader(data",
        remedy=Remedy(job=mapped(*LISTS, "--stored=flat"), promise=promised(DECODED)),
        note="a stand-in spends what `datasets` needs for each list",
    ),
    fault(
        "nested-lists-for-a-busy-worker",
        "DAT025",
        mapped(*LISTS, "--workers=1"),
        line="loader = DataLoader(data",
        fixed=mapped(*LISTS, "--workers=1", "--stored=flat"),
    ),
    fault(
        "nested-lists-of-a-slower-step",
        NESTED,
        mapped(*FEW_LISTS),
        strength="just above",
        noted=NESTED[:1],
        line="loader = DataLoader(data",
        remedy=Remedy(job=mapped(*FEW_LISTS, "--stored=flat"), promise=promised(DECODED)),
        note="as above: on idle cores a worker hides the lists, too",
    ),
    sound_twin("flat-rows-of-arrays", "DAT025", mapped(*LISTS, "--stored=flat"), also=("DAT003", "DAT017", "CPU006")),
    sound_twin("indices-mapping-of-a-long-step", MAPPING[0], mapped("--compute=250", "--steps=100"), also=MAPPING[1:]),
    sound_twin(
        "flattened-rows",
        MAPPING[0],
        mapped("--order=flat"),
        also=(*MAPPING[1:], "CPU006"),
        note="items are fetched as before, without the mapping",
    ),
    fault("rows-one-by-one", "DAT016", rows(), line="loader = DataLoader(data, batch_size=options", fixed="--whole"),
    fault(
        "rows-one-by-one-a-little",
        "DAT016",
        rows("--compute=10", "--steps=600"),
        strength="just above",
        line="loader = DataLoader(data, batch_size=options",
        fixed="--whole",
    ),
    fault("rows-one-by-one-hardly", "DAT016", rows("--compute=120", "--steps=120"), strength="just below"),
    fault("slow-sampler", "DAT015", job("--index=1", "--steps=120"), line=LOADER, fixed=job("--steps=120")),
    fault(
        "slow-sampler-for-workers",
        "DAT015",
        job("--index=1", "--steps=120", *PERSISTENT),
        line=LOADER,
        fixed=job("--steps=120", *PERSISTENT),
        note="no number of workers shares what the training thread draws",
        suite="all",
    ),
    fault(
        "slow-sampler-a-little",
        "DAT015",
        job("--index=0.18", "--steps=200"),
        strength="just above",
        line=LOADER,
        fixed=job("--steps=200"),
    ),
    fault("slow-samplers-of-two-ranks", "DAT015", job("--index=1", "--steps=100", ranks=2), line=LOADER),
    fault("slow-sampler-next-to-nothing", "DAT015", job("--index=0.06", "--steps=150"), strength="just below"),
    fault(
        "order-for-each-step",
        "DAT015",
        job("--anew=step", "--order=12", "--steps=120"),
        line=LOADER,
        fixed=job("--order=12", "--steps=120"),
        note="next(iter(loader)): a whole order is drawn for one batch",
    ),
    fault(
        "workers-for-each-step",
        "DAT006",
        job("--anew=step", "--workers=2", "--steps=80"),
        line=LOADER,
        fixed=job("--workers=2", "--steps=120"),
        note="next(iter(loader)): two workers start, make four batches, and end for one",
    ),
    fault(
        "epochs-of-one-batch",
        "DAT006",
        job("--pictures=16", "--workers=2", "--steps=80"),
        line=LOADER,
        fixed=job("--workers=2", "--steps=120"),
    ),
    fault(
        "loader-made-anew",
        "DAT006",
        job("--anew=epoch", *SHORT_EPOCHS, *PERSISTENT),
        line=LOADER,
        fixed=job(*SHORT_EPOCHS, *PERSISTENT),
        note="persistent_workers=True of a loader that lives for one epoch",
        suite="all",
    ),
    fault(
        "order-before-new-workers",
        "DAT014",
        job("--order=400", *ORDERED, "--workers=2"),
        line=LOADER,
        fixed=job(*ORDERED, "--workers=2"),
        also=("DAT006",),
        suite="all",
    ),
    fault(
        "order-before-workers-that-live-on",
        "DAT014",
        job("--order=400", *ORDERED, *PERSISTENT),
        line=LOADER,
        fixed=job(*ORDERED, *PERSISTENT),
        suite="all",
    ),
    fault("far-shard", "DAT009", job(*SHARDS, "--far=7"), line=LOADER, fixed="--dealt"),
    fault(
        "shard-a-little-too-far",
        "DAT009",
        job(*SHARDS, "--far=6"),
        strength="just above",
        line=LOADER,
        fixed="--dealt",
    ),
    fault("shard-near-enough", "DAT009", job(*SHARDS, "--far=2"), strength="just below"),
)
