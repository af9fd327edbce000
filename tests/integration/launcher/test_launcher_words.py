"""Files that the user names for a job's output become part of its run: NCCL's log, and dumps of a watchdog."""

from __future__ import annotations

import os
from pathlib import Path

from launcher_harness import python, run_to_end
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.store.run_reader import read_recording

DUMP = Path(__file__).parents[2] / "advisor" / "run" / "sidefiles" / "gloo_flight_dump.pickle"
JOB = """
import os, shutil, sys
with open(os.environ["NCCL_DEBUG_FILE"].replace("%p", "7"), "w") as file:
    file.write("node:7:7 [0] NCCL INFO Using network Socket\\n")
shutil.copyfile(sys.argv[1], os.environ["TORCH_FR_DUMP_TEMP_FILE"] + "3")
os.utime(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + "3")
sys.exit(3)
"""


def test_a_job_that_fails_leaves_its_collectives_and_what_nccl_said(tmp_path: Path) -> None:
    variables = {"NCCL_DEBUG_FILE": f"{tmp_path}/nccl.%p", "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/trace_"}
    done = run_to_end(tmp_path / "r", python(JOB, str(DUMP)), env={**os.environ, **variables})
    assert done.returncode == 3, done.stderr
    recording = read_recording(tmp_path / "r")
    analysis = analyse(recording)
    assert analysis.nccl is not None and analysis.nccl.network == "Socket"
    (flight,) = [event for event in recording.events if event.kind == "flight"]
    assert [entry["profiling_name"] for entry in flight.data["ranks"]["3"]["entries"]] == [
        "gloo:all_reduce",
        "gloo:barrier",
    ]
    assert (tmp_path / "trace_3").exists(), "the file is the user's"
