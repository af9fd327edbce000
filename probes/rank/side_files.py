"""Names of a process's files beside its ring, by pid, and of the files that control it. Files are first written under temporary names."""

FACTS = "facts-%d.json"
TIMES = "times-%d.json"  # NCCL's times of the rank's collectives
FLIGHT = "flight-%d.json"  # the rank's position in a stall
PART = "part-%d.json"  # name of a part of a sample, by the part's number
CHUNKED = "chunked-%d.json"  # what is known of an array in chunks, by a number made of that
ERROR = "error-%d.txt"
DEEP_TRACE = "deep-%d.json"  # in the run's folder
# Written by the agent and the launcher.
DEEP_REQUEST = "deep.json"
TRIAL_REQUEST = "trial.json"  # changes that the ranks apply or switch
BUDGET = "budget"  # maximum share of time for marks, and for sample profiling

LEFT_BY_PROCESS = (FACTS, TIMES, FLIGHT, ERROR)
_NAMES = ("rank-%d.ring", "worker-%d.ring", *LEFT_BY_PROCESS, PART, CHUNKED, DEEP_REQUEST, TRIAL_REQUEST, BUDGET)
# All files that either side creates in a ring folder; only these are ever removed from it.
OWN_FILES = "(?:%s)(?:\\.[0-9a-f]{16}\\.new)?" % "|".join(
    name.replace(".", "\\.").replace("%d", "\\d+") for name in _NAMES
)
