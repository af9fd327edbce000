"""The cell magic in IPython's own shell."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli_process import environment

# torch comes with the first cell.
_CELL = """%%rn50_advisor --name "my cell"
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(120):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
ends = [1, 2]
len(ends)
"""
_SCRIPT = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

shell = InteractiveShell.instance()
found = {}
with capture_output() as out:
    loaded = shell.run_cell("%load_ext rn50_advisor")
found["loaded"], found["torch"] = loaded.success, "torch" in sys.modules
with capture_output() as out:
    done = shell.run_cell(CELL)
found["success"], found["ends"], found["value"] = done.success, shell.user_ns["ends"], shell.user_ns["_"]
(shown,) = [each for each in out.outputs if "text/html" in each.data and "iframe" in each.data["text/html"]]
found["kinds"], found["text"] = sorted(shown.data), shown.data["text/plain"]
with capture_output() as out:
    failed = shell.run_cell("%%rn50_advisor\\nvalue = 7\\nraise KeyError('theirs')")
found["failed"] = [type(failed.error_in_exec).__name__, shell.user_ns["value"], "KeyError" in out.stdout]
with capture_output() as out:
    wrong = shell.run_cell("%%rn50_advisor --nonsense\\nvalue = 8")
found["wrong"] = [type(wrong.error_in_exec).__name__, shell.user_ns["value"], len(out.stdout + out.stderr)]
print(json.dumps(found))
"""


@pytest.mark.torch
def test_a_cell_is_recorded_and_its_report_is_shown_below(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("IPython")
    done = subprocess.run(
        [sys.executable, "-c", f"CELL = {_CELL!r}\n{_SCRIPT}"],
        cwd=tmp_path,
        env=environment(IPYTHONDIR=str(tmp_path / "ipython")),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["loaded"], found["torch"]) == (True, False)  # the extension itself needs no torch
    assert (found["success"], found["ends"], found["value"]) == (True, [1, 2], 2)
    assert {"text/html", "text/plain"} <= set(found["kinds"])
    steps = re.search(r"(\d+) steps", found["text"])
    assert steps is not None and 100 <= int(steps[1]) <= 120
    assert found["failed"] == ["KeyError", 7, True]
    assert found["wrong"][:2] == ["UsageError", 7] and found["wrong"][2] < 300
    assert any(run.name.endswith("-my-cell") for run in (tmp_path / "runs").iterdir())
