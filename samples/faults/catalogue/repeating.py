"""Work that a data set repeats for each item though it uses nothing of it: a bank of filters, computed anew for each clip."""

from __future__ import annotations

from rn50_advisor.rules.items.dat018_every_item_opens_the_same_anew import RULE as REPEATED
from samples.faults.catalogue.feeding import promised
from samples.faults.scenario import Job, Remedy, Scenario, Truth, fault

REPEATING = ("DAT018", "DAT003")
BANK = "return torch.from_numpy(self.bank.kernels())"


def clips(*arguments: str) -> Job:
    """A small net on clips of sound, 16 per batch."""
    return Job("faults/jobs/input/clips.py", arguments, ranks=0, start="one by one")


SCENARIOS = (
    fault(
        "filters-computed-for-each-clip",
        REPEATING[0],
        clips("--steps=500"),
        line=BANK,
        says="lru_cache",
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
    Scenario(
        name="filters-shifted-by-chance-for-each-clip",
        job=clips("--made=shifted", "--steps=400"),
        truth=Truth(never=REPEATING[:1], silent=REPEATING[:1], also=(*REPEATING[1:], "CPU006")),
        strength="just below",
        note="each clip needs a bank of its own",
    ),
)
