"""Conditions under which the finding of one rule is the cause of another's: predicates of an analysis and the two findings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Circumstance, Finding
from rn50_advisor.advisor.model.measures.comm_measures import COMM_WIRE_S
from rn50_advisor.advisor.model.measures.host_measures import CPU_ALLOWED_CORES, THREADS_WAITING
from rn50_advisor.advisor.model.measures.input_measures import FETCH_WALL_S
from rn50_advisor.rules import analysis_reading
from rn50_advisor.rules.analysis_reading import COMPUTE, LAYERS
from rn50_advisor.rules.communication.comm_cost import exchanges_of, path_is_sound
from rn50_advisor.rules.first_ending import died_of_it
from rn50_advisor.rules.loop.between_steps import collects_between_steps, helped_by_a_thread
from rn50_advisor.rules.storage.storage_starvation import only_memory_is_short, others_use_the_disk

# Share of the transfer time, without waiting for late ranks: a cause of lateness must cost nearly as much to explain it. A quota on one
# rank, which also throttled the threads of its exchange, cost three times as much as the wire.
_WIRE_SHARE_MIN = 0.8
_ENDING_SHARE_MIN = 0.5  # of the samples between steps
_MOST_SHARE_MIN = 0.5
_ALIKE_RATIO_MAX = (
    1.1  # equal loaders of two ranks on two cores differed by 1.04 while one rank waited 80 ms and the other 26
)
# Threads of the ranks that wait for a core, per allowed core, as for CPU005. With programs that decoded samples on two cores it was 0.31.
_QUEUED_PER_CORE_MIN = 0.25
_STALL_ACTIVITIES = {
    "input_wait": "wait for input",
    "gap": "are between two steps",
    "gap.checkpoint": "write a checkpoint",
    "gap.evaluation": "evaluate",
}


@dataclass(frozen=True, slots=True)
class Condition:
    """`words` go on after "where" or "unless". `holds` takes the finding of the cause, then that of the consequence; it never raises."""

    words: str
    holds: Callable[[Analysis, Finding, Finding], bool]


def stalls_with(what: str) -> Condition:
    """RUN004's stalls coincide with this."""
    return Condition(
        f"the stalls coincide with {what}", lambda a, _c, _q: a.pulse is not None and a.pulse.coincides == what
    )


def stalls_in(phase: str) -> Condition:
    """RUN004's stalls lie in this phase."""
    return Condition(
        f"steps stall while they {_STALL_ACTIVITIES[phase]}",
        lambda a, _c, _q: a.pulse is not None and a.pulse.phase == phase,
    )


def _noted(circumstance: Circumstance, words: str) -> Condition:
    """The check of one of the two rules noted this circumstance."""
    return Condition(
        words, lambda _a, cause, consequence: circumstance in cause.circumstances | consequence.circumstances
    )


def _of_job(words: str, holds: Callable[[Analysis], bool]) -> Condition:
    return Condition(words, lambda a, _cause, _consequence: holds(a))


def _slows_the_wire(a: Analysis, cause: Finding, _: Finding) -> bool:
    return cause.seconds_per_step >= _WIRE_SHARE_MIN * (a.get(COMM_WIRE_S) or 0.0)


def _made_alike(a: Analysis) -> bool:
    walls = a.by_rank(FETCH_WALL_S).values()
    return bool(walls) and max(walls) <= _ALIKE_RATIO_MAX * min(walls)


def _ends_evaluations(a: Analysis) -> bool:
    work = a.evaluation_work
    if work is None:
        return False
    return sum(line.share for line in a.hot_lines if (line.file, line.line) in work.lines) >= _ENDING_SHARE_MIN


def _stalls_in_computing(a: Analysis) -> bool:
    return a.pulse is not None and a.pulse.phase in COMPUTE and a.pulse.coincides in ("", "waiting for a core")


def _stalls_for_cores(a: Analysis) -> bool:
    waiting, allowed = sum(a.of_host(a.by_rank(THREADS_WAITING)).values()), a.get(CPU_ALLOWED_CORES)
    return _stalls_in_computing(a) and allowed is not None and waiting >= _QUEUED_PER_CORE_MIN * allowed


def _stalls_in_layers(a: Analysis) -> bool:
    return a.pulse is not None and a.pulse.phase in LAYERS and not a.pulse.coincides


ON_SOME_RANKS = Condition("it is found on some of the ranks only", lambda _a, cause, _q: bool(cause.scope.ranks))
FATAL = Condition("the job died of it", lambda _a, cause, _q: cause.fatal)
MOST_OF_IT = Condition(
    f"it costs at least {_MOST_SHARE_MIN:g} of it",
    lambda _a, cause, consequence: cause.seconds_per_step >= _MOST_SHARE_MIN * consequence.seconds_per_step,
)
SLOWS_THE_WIRE = Condition(f"it costs at least {_WIRE_SHARE_MIN:g} of what the exchange takes", _slows_the_wire)

OTHERS_USE_THE_DISK = _of_job("most of the disk's traffic is not the job's", others_use_the_disk)
ONLY_MEMORY_IS_SHORT = _of_job(
    "the host could cache what an epoch reads but the job's memory limit prevents it", only_memory_is_short
)
# Which rank waits longer for its batches is then chance: waiting for it hides the others' wait.
MADE_ALIKE = _of_job("batches take as long to make on every rank", _made_alike)
COLLECTS_BETWEEN_STEPS = _of_job("collections are most of the time between steps", collects_between_steps)
FEEDS_A_THREAD = _of_job(
    "a thread of a library's own holds the interpreter, for less than the time between the steps", helped_by_a_thread
)
ENDS_EVALUATIONS = _of_job("evaluations end in most of the time between steps", _ends_evaluations)
SOUND_PATH = _of_job(
    "the path between the ranks is sound, and gradients are exchanged once a step",
    lambda a: a.has(COMM_WIRE_S) and bool(path_is_sound(a)) and exchanges_of(a) == 1,
)
# A rank sleeps while it waits for its own thread that has no core: such stalls are in computing, too.
STALLS_IN_COMPUTING = _of_job(
    "steps stall in computing, and nothing known coincides but waiting for a core", _stalls_in_computing
)
STALLS_FOR_CORES = _of_job(
    "steps stall in computing, and the ranks' threads wait for cores that loading uses", _stalls_for_cores
)
STALLS_IN_LAYERS = _of_job("steps stall in forward or backward, and nothing known coincides", _stalls_in_layers)
STALLS_ASLEEP = _of_job(
    "most of the sleep in the script's own code is in the periodic stalls", analysis_reading.stalls_asleep
)
A_RANK_DIED = _of_job("a rank died", lambda a: any(death.role == "rank" for death in a.deaths))
HUNG_BEFORE = _of_job(
    "the job had hung for half a minute before the first rank died",
    lambda a: any(died_of_it(a, stall) for stall in a.stalls),
)

ENDED_A_RANK = _noted("ended a rank", "a rank died of the hang")
SLOWS_EACH_CALL = _noted("slows each call", "the tool works at each call of Python, allocation or operator")
BETTER_THAN_WORKERS = _noted("better than workers", "cheaper batches are clearly better than more workers")
HELD_BY_SETTINGS = _noted("held by settings", "the job's own settings delay the gradients")
COPIES_SETTLED = _noted("copies settled", "workers hold copies of Python objects and grow no more")
OTHERS_HOLD_AS_LONG = _noted("others hold as long", "other waits block the host for as long as the copies do")
INPUT_GREW = _noted("input grew", "waiting for input grew most when the job became slower")
EXCHANGE_GREW = _noted("exchange grew", "the exchange grew most when the job became slower")
COMPUTING_GREW = _noted("computing grew", "computing grew most when the job became slower")
GAP_GREW = _noted("gap grew", "time between steps grew most when the job became slower")
