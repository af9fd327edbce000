"""The one table of causes: which rule's finding explains which other's. Rules know nothing of each other.

Both must have fired, on a rank in common, and the cause must weigh enough: `verdict/rule_engine.py`. Rules of other distributions
declare what they explain themselves: `Rule.explains` always, `Finding.explains` where only the check knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.rules.conditions import (
    A_RANK_DIED,
    BETTER_THAN_WORKERS,
    COLLECTS_BETWEEN_STEPS,
    COMPUTING_GREW,
    COPIES_SETTLED,
    ENDED_A_RANK,
    ENDS_EVALUATIONS,
    EXCHANGE_GREW,
    FATAL,
    FEEDS_A_THREAD,
    GAP_GREW,
    HELD_BY_SETTINGS,
    HUNG_BEFORE,
    INPUT_GREW,
    MADE_ALIKE,
    MOST_OF_IT,
    ON_SOME_RANKS,
    ONLY_MEMORY_IS_SHORT,
    OTHERS_HOLD_AS_LONG,
    OTHERS_USE_THE_DISK,
    SLOWS_EACH_CALL,
    SLOWS_THE_WIRE,
    SOUND_PATH,
    STALLS_ASLEEP,
    STALLS_FOR_CORES,
    STALLS_IN_COMPUTING,
    STALLS_IN_LAYERS,
    Condition,
    stalls_in,
    stalls_with,
)


@dataclass(frozen=True, slots=True)
class Cause:
    """The findings of each of these rules are the cause of `explains`, where `when` holds and `unless` does not."""

    rules: tuple[str, ...]
    explains: tuple[str, ...]
    when: Condition | None = None
    unless: Condition | None = None

    def holds(self, a: Analysis, cause: Finding, consequence: Finding) -> bool:
        met = self.when is None or self.when.holds(a, cause, consequence)
        return met and (self.unless is None or not self.unless.holds(a, cause, consequence))

    @property
    def words(self) -> str:
        """`where …`, `unless …`, or `where …, but not where …`; empty without a condition."""
        if self.when is None:
            return "" if self.unless is None else f"unless {self.unless.words}"
        return f"where {self.when.words}" + ("" if self.unless is None else f", but not where {self.unless.words}")


# A late rank, and the others' wait for it. A slowdown of all ranks makes none of them late.
LATE_RANK = ("CMP007", "COM002")
NO_CORES = ("CPU001", "CPU002", "CPU003", "CPU005")
# Loading that is short of cores, by itself or with more workers.
LOADING_NEEDS_CORES = ("DAT001", "DAT004")
MORE_WORKERS = ("DAT003", "DAT004")
# One known part of a sample's work takes too long.
COSTLY_SAMPLES = ("DAT011", "DAT017", "DAT018", "DAT019", "DAT020", "DAT022", "DAT025", "DAT026", "DAT027")
SLOW_LOADING = ("DAT001", "DAT002", "DAT003", "DAT004", "DAT005", "DAT008", "DAT009", "DAT010", "DAT013")
DISK = ("DSK001", "DSK002")
SLOW_INPUT = (*SLOW_LOADING, *DISK)
GAP = ("LOP002", "LOP004")
OWN_CODE = (
    "LOP007",
    "LOP008",
    "LOP009",
    "LOP010",
    "LOP011",
    "LOP012",
    "LOP013",
    "LOP014",
    "LOP015",
    "LOP016",
    "LOP017",
    "LOP018",
)
EXCHANGE = ("COM001", "COM003", "COM010")
SLOW_GPU = ("GPU001", "GPU002", "GPU005", "GPU009")
SLOW_COMPUTING = (
    "CMP001",
    "CMP002",
    "CMP003",
    "CMP004",
    "CMP005",
    "CMP007",
    "CMP009",
    "CMP010",
    "CMP015",
    "CMP021",
    "CMP022",
    "CMP023",
    "CMP032",
)
# Time that is made of many short calls.
MANY_CALLS = ("CMP014", "CMP017", "CMP027", "CMP029", "CPU006", "DAT007", "LOP010", "LOP012", "LOP013")
COPIES = ("H2D001", "H2D002", "H2D003")

CAUSES: Mapping[str, tuple[Cause, ...]] = MappingProxyType({
    "Cores": (
        Cause(("CPU001",), ("CPU003", *LATE_RANK, "DAT001", *MORE_WORKERS, "DAT005", "DAT008", "DAT009")),
        Cause(("CPU001",), ("LOP001", *GAP, "RUN004")),
        Cause(("CPU001",), ("COM001",), SLOWS_THE_WIRE),
        Cause(("CPU002",), ("CPU003", *LOADING_NEEDS_CORES, "COM001", "COM002")),
        Cause(("CPU003",), (*LOADING_NEEDS_CORES, "COM001")),
        Cause(("CPU003",), LATE_RANK, ON_SOME_RANKS),
        Cause(("CPU005", "CPU007"), ("CPU003", "DAT001", *MORE_WORKERS, *LATE_RANK, "COM001")),
        Cause(("CPU003", "CPU005"), ("RUN004",), STALLS_IN_COMPUTING),
        Cause(("CPU006",), ("COM002",)),
        Cause(("CPU006",), ("CMP007",), ON_SOME_RANKS),
        Cause(("CPU006",), GAP, COLLECTS_BETWEEN_STEPS),
        Cause(("CPU007",), ("CPU005", "DAT005")),
        Cause(("CPU008",), (*LOADING_NEEDS_CORES, "DAT005", "DAT009", "DAT011", "COM002")),
        # a thread that waits for a core launches kernels late
        Cause((*NO_CORES, "DAT005"), ("CMP003",)),
    ),
    "Memory and storage": (
        Cause(("MEM002",), ("MEM001",), COPIES_SETTLED),
        Cause(("MEM001",), ("DAT002", "DAT010", "DSK001", *LATE_RANK)),
        # a shared device is not shared fairly: one rank may starve more than the others
        Cause(("DAT002",), ("DAT001", *MORE_WORKERS, "DAT008", "DAT009", "COM002")),
        # other findings on this storage belong under it, unless they are the root: a memory limit, or other users of the disk
        Cause(("DAT002",), ("DSK002",)),
        Cause(("DAT002",), ("DSK001",), unless=OTHERS_USE_THE_DISK),
        Cause(("DSK001",), ("DAT002", "DSK002"), OTHERS_USE_THE_DISK),
        Cause(("DAT002",), ("DAT010",), unless=ONLY_MEMORY_IS_SHORT),
        Cause(("DAT010",), ("DAT002", *DISK), ONLY_MEMORY_IS_SHORT),
    ),
    "Loading": (
        Cause(("DAT001", *MORE_WORKERS, "DAT005", "DAT006", "DAT008", "DAT014", "DAT015"), ("COM002",)),
        # indexing whole batches needs neither workers nor cores, and creates no small objects for the garbage collector
        Cause(("DAT016",), ("CPU006", "DAT001", *MORE_WORKERS, "DAT007", "DAT009", "DAT020", "COM002")),
        Cause(("DAT023",), ("DAT001", *MORE_WORKERS, "DAT007", "DAT011", "DAT022", "COM002")),
        # rank 0's workers or cores make the samples of all ranks; a cheaper sample, too, is cheaper where each rank makes its own
        Cause(("DAT024",), ("DAT001", *MORE_WORKERS, "DAT005", "DAT007", "DAT008", "DAT009", *COSTLY_SAMPLES, "COM002")),
        Cause(("DAT024",), ("COM001",), SLOWS_THE_WIRE),
        Cause(("DAT005",), ("COM001",)),
        Cause(("DAT008",), ("COM001",), SLOWS_THE_WIRE),
        Cause(("DAT007",), (*LOADING_NEEDS_CORES, "DAT006", "COM002")),
        Cause(("DAT009",), (*LOADING_NEEDS_CORES, "DAT008", "COM002")),
        Cause(("DAT013",), ("DAT001", "DAT002", "DAT008", "DAT009", "COM002")),
        Cause(COSTLY_SAMPLES, ("DAT001", "COM002")),
        # what is opened anew, table rows, copied collections, decoded lists are small objects, which the garbage collector follows
        Cause(("DAT018", "DAT019", "DAT022", "DAT025"), ("CPU006", "DAT011", "DAT020")),
        Cause(COSTLY_SAMPLES, ("DAT008",), MADE_ALIKE),
        Cause(COSTLY_SAMPLES, MORE_WORKERS, BETTER_THAN_WORKERS),
        Cause(MORE_WORKERS, COSTLY_SAMPLES, unless=BETTER_THAN_WORKERS),
        # if cores, storage or the hand-over are the limit, what a sample costs is not the root
        Cause((*NO_CORES, "DAT002", "DAT007", "DAT009"), COSTLY_SAMPLES),
    ),
    "Loop": (
        Cause(("LOP001", "LOP002", "LOP003", "LOP004"), ("COM002",)),
        Cause(("LOP003",), ("LOP004",), ENDS_EVALUATIONS),
        Cause(("LOP006",), ("CMP003", *LATE_RANK, "LOP004", "LOP007", "RUN004")),
        # what a loop logs, a thread of the library may write
        Cause(("LOP002",), ("LOP006",), FEEDS_A_THREAD),
        Cause(("LOP006",), ("DAT003", "LOP002"), unless=FEEDS_A_THREAD),
        Cause(OWN_CODE, ("CMP003", *LATE_RANK)),
        Cause(("LOP006", *OWN_CODE), ("COM001",), SLOWS_THE_WIRE),
        Cause(("LOP009", "LOP011", "LOP012", "LOP013", "LOP014"), ("CMP004",)),
        # the same lines: what they go through says more than where they are
        Cause(("LOP010", "LOP012", "LOP014"), ("LOP004", "LOP008", "LOP009"), MOST_OF_IT),
        Cause(("LOP010",), ("LOP012",), MOST_OF_IT),
        Cause(("LOP012", "LOP013", "LOP014"), ("CMP017", "LOP011"), MOST_OF_IT),
        # in a hook, when it runs matters more than what it does; of handlers that pile up, all but the first are needless
        Cause(("LOP013",), ("LOP002", "LOP004", "LOP007", "LOP012", "CMP026"), MOST_OF_IT),
        # what a loop need not do is known, while one call for all its iterations may not be possible
        Cause(("CMP024", "CMP028", "CMP029"), ("CMP017",)),
        # one operation for all iterations takes and sets no parts
        Cause(("CMP029",), ("CMP024", "CMP026", "CMP028", "LOP012"), MOST_OF_IT),
        Cause(("LOP014",), ("LOP010", "LOP012", "CMP028"), MOST_OF_IT),
        # a second computation can be left out, however slow it is
        Cause(("LOP016",), ("LOP004", "LOP009", "CMP017", "CMP026", "CMP028"), MOST_OF_IT),
        # a network that need not run is neither slow nor in need of the line's other changes
        Cause(("LOP017",), ("LOP004", "LOP008", "CMP017", "CMP026", "CMP028", "CMP030"), MOST_OF_IT),
        # with a cache there is one position an iteration, of whatever operations
        Cause(("LOP018",), ("LOP004", "CMP017", "CMP021", "CMP026", "CMP028", "CMP029", "CMP033"), MOST_OF_IT),
        # what is formatted says more than where
        Cause(("LOP015",), ("LOP002", "LOP004", "LOP007", "LOP009", "LOP012", "LOP013"), MOST_OF_IT),
    ),
    "Computing": (
        Cause(("CMP001",), ("CMP009",)),
        # channels-last speeds up tensor cores, which emulated bfloat16 does not use
        Cause(("CMP022",), ("CMP002",)),
        Cause(("CMP004",), GAP),
        # launches that the host would make ahead without the wait; what is left of them is a fault of its own
        Cause(("CMP004",), ("CMP003",), MOST_OF_IT),
        # other waits block the host for as long: asynchronous copies alone would gain nothing
        Cause(("CMP004",), ("H2D002",), OTHERS_HOLD_AS_LONG),
        # CMP017 looks at jobs on CPUs alone: on a GPU, CMP003 measures what calling tiny operations costs
        Cause(("CMP005", "CMP010", "COM005"), ("CMP003",)),
        Cause(("CMP007",), ("COM002",)),
        Cause(("CMP007",), ("COM001",), SLOWS_THE_WIRE),
        Cause(("CMP010", "CMP012", "CMP018"), LATE_RANK, ON_SOME_RANKS),
        # what these cost is mostly the tool
        Cause(("CMP010",), MANY_CALLS, SLOWS_EACH_CALL),
        # with the repeated rows go their joins and elementwise operations
        Cause(("CMP035",), ("CMP024", "CMP026"), MOST_OF_IT),
        # the copies are most of what the loop calls
        Cause(("CMP034",), ("LOP004", "CMP017", "CMP024", "CMP026"), MOST_OF_IT),
        # one pass for all losses goes through each node once, of whatever kind it is
        Cause(("CMP032",), ("CMP017", "CMP024", "CMP026"), MOST_OF_IT),
        # the row that is taken has a gradient as large as all rows, and their elementwise layers go with them
        Cause(("CMP033",), ("CMP024", "CMP026"), MOST_OF_IT),
        # an emulated format slows all layers, and composed or recurrent ones most
        Cause(("CMP031",), ("CMP017", "CMP021", "CMP024", "CMP026", "CMP028", "CMP029", "CMP030")),
        # a fused optimizer is hardly faster with denormal numbers: 22 ms instead of 24, without them 1.0 instead of 3.2
        Cause(("CMP018",), ("CMP014",)),
        # sparse gradients have no fused form, and without the table there is little left to fuse
        Cause(("CMP019",), ("CMP014",)),
        # other reasons why a step's work takes longer than a GPU of this kind needs
        Cause((*SLOW_COMPUTING, *NO_CORES, "CPU004", *COPIES), ("CMP008",)),
        Cause((*SLOW_GPU, "GPU003", "GPU006", "GPU008"), ("CMP008",)),
        Cause((*EXCHANGE, "COM002", "COM005", "COM006", "COM007", "COM008", "COM009"), ("CMP008",)),
    ),
    "GPUs and communication": (
        Cause((*SLOW_GPU, "GPU006"), LATE_RANK),
        Cause(("GPU005",), ("GPU003",)),
        Cause(("COM006", "COM008", "GPU006", "GPU008"), ("COM001",)),
        Cause(("COM007", "COM009"), EXCHANGE),
        # exposed communication on a sound path: late buckets or small batches are the cause, else the wire is
        Cause(("COM003",), ("COM001", "COM010"), HELD_BY_SETTINGS),
        Cause(("COM001",), ("COM003",), unless=HELD_BY_SETTINGS),
        Cause(("COM010",), ("COM001",), SOUND_PATH),
        Cause(("COM001",), ("COM010",), unless=SOUND_PATH),
    ),
    "Slower since then": (
        # in any phase: if one of these fires too, it is the cause
        Cause((*NO_CORES, "CPU006", "MEM001", *SLOW_GPU, "CMP007"), ("RUN003",)),
        Cause(("MEM002",), ("RUN003",), unless=COPIES_SETTLED),
        Cause(("CMP018",), ("RUN003",), COMPUTING_GREW),
        Cause((*SLOW_INPUT, "DAT024"), ("RUN003",), INPUT_GREW),
        Cause(("COM001", "COM002", "COM009", "DAT008"), ("RUN003",), EXCHANGE_GREW),
        Cause((*GAP, "LOP010"), ("RUN003",), GAP_GREW),
        Cause(("LOP010", "LOP013"), ("RUN003",), COMPUTING_GREW),
        Cause(("RUN003", "RUN004"), ("COM002",), ON_SOME_RANKS),
    ),
    "Periodic stalls": (
        # compilations come by shapes, epochs with a period
        Cause(("CMP012", "DAT005", "DAT014"), ("RUN004",)),
        # workers that cannot keep up deliver in waves, one batch of each
        Cause(
            (*SLOW_INPUT, *COSTLY_SAMPLES, "DAT006", "DAT007", "DAT015", "DAT016", "DAT024"),
            ("RUN004",),
            stalls_in("input_wait"),
        ),
        Cause(LOADING_NEEDS_CORES, ("RUN004",), STALLS_FOR_CORES),
        Cause(("LOP001", *GAP), ("RUN004",), stalls_in("gap")),
        Cause(("LOP001",), ("RUN004",), stalls_in("gap.checkpoint")),
        Cause(("LOP003",), ("RUN004",), stalls_in("gap.evaluation")),
        # known periodic work has a rule that judges whether it costs too much
        Cause(("DAT006",), ("RUN004",), stalls_with("an epoch begins")),
        Cause(("LOP001",), ("RUN004",), stalls_with("a checkpoint")),
        Cause(("LOP003",), ("RUN004",), stalls_with("an evaluation")),
        Cause(("CPU006",), ("RUN004",), stalls_with("a garbage collection")),
        Cause(("DAT020",), ("RUN004",), stalls_with("a garbage collection in a worker")),
        Cause(("CPU003", "CPU005"), ("RUN004",), stalls_with("waiting for a core")),
        Cause(("LOP001", "LOP002", *DISK), ("RUN004",), stalls_with("a disk flush")),
        # if the code sleeps only in the stalls, LOP007 is their consequence
        Cause(("RUN004",), ("LOP007",), STALLS_ASLEEP),
        Cause(("LOP007",), ("RUN004",), STALLS_IN_LAYERS, unless=STALLS_ASLEEP),
    ),
    "Endings": (
        Cause(("DAT012",), ("RUN001", "RUN002")),
        Cause(("GPU007",), ("RUN001", "RUN002"), FATAL),
        Cause(("GPU004", "MEM002"), ("RUN002",), FATAL),
        Cause(("RUN001",), ("RUN002",), ENDED_A_RANK),
        Cause(("RUN002",), ("RUN001",), A_RANK_DIED, unless=HUNG_BEFORE),
        Cause(("RUN002",), (*LATE_RANK, "DAT008")),
    ),
})  # fmt: skip


def _by_pair() -> dict[tuple[str, str], tuple[Cause, ...]]:
    found: dict[tuple[str, str], tuple[Cause, ...]] = {}
    for cause in (cause for group in CAUSES.values() for cause in group):
        for pair in ((rule, other) for rule in cause.rules for other in cause.explains):
            found[pair] = (*found.get(pair, ()), cause)
    return found


BY_PAIR: Mapping[tuple[str, str], tuple[Cause, ...]] = MappingProxyType(_by_pair())


def is_cause(a: Analysis, cause: Finding, consequence: Finding) -> bool:
    """True if the table has a row for these two findings whose conditions hold."""
    return any(row.holds(a, cause, consequence) for row in BY_PAIR.get((cause.rule, consequence.rule), ()))


def consequences_of(rule: str) -> dict[str, list[str]]:
    """Returns the rules that `rule` explains, by condition in words. Unconditional ones are first, under ""; the rest in table order."""
    always = [other for (cause, other), rows in BY_PAIR.items() if cause == rule and any(not row.words for row in rows)]
    found: dict[str, list[str]] = {"": sorted(always)} if always else {}
    for (cause, other), rows in BY_PAIR.items():
        for row in rows:
            if cause == rule and other not in always:
                found.setdefault(row.words, []).append(other)
    return found
