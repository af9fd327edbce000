"""The error that is named is the innermost one, at the user's own line, whatever helper of a rank raised it."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.analysis.failures.process_deaths import raised_error
from rn50_advisor.advisor.model.incidents import RaisedError

WORKER = """Caught ValueError in DataLoader worker process 2.
Original Traceback (most recent call last):
  File "/job/data.py", line 7, in decode
    return table[name]
           ~~~~~^^^^^^
KeyError: 'a.jpg'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/env/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 349, in _worker_loop
    data = fetcher.fetch(index)
           ^^^^^^^^^^^^^^^^^^^^
  File "/job/data.py", line 9, in __getitem__
    raise ValueError("cannot decode a.jpg") from error
  File "/env/lib/python3.11/site-packages/PIL/Image.py", line 3, in open
    raise ValueError
ValueError: cannot decode a.jpg
it is empty
"""
SPAWNED = """

-- Process 1 terminated with the following error:
Traceback (most recent call last):
  File "/env/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 90, in _wrap
    fn(i, *args)
torch.OutOfMemoryError
"""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({}, None),
        (
            {"type": "ValueError", "message": "no", "file": "/job/t.py", "line": 3, "function": "f"},
            RaisedError("ValueError: no", "", "/job/t.py", 3, "f"),
        ),
        ({"type": "ValueError", "message": "no"}, RaisedError("ValueError: no", "", "", 0, "")),
        (
            {"type": "ValueError", "message": WORKER, "file": "/job/train.py", "line": 40, "function": "main"},
            RaisedError(
                "ValueError: cannot decode a.jpg\nit is empty",
                "DataLoader worker process 2",
                "/job/data.py",
                9,
                "__getitem__",
            ),
        ),
        ({"type": "ProcessRaisedException", "message": SPAWNED}, RaisedError("torch.OutOfMemoryError", "", "", 0, "")),
        (
            {"type": "E", "message": 'Traceback (most recent call last):\n  File "/job/a.py", line 1, in cut'},
            RaisedError('E: Traceback (most recent call last):\n  File "/job/a.py", line 1, in cut', "", "", 0, ""),
        ),
    ],
    ids=["none", "its own", "no place", "worker", "spawned", "cut off"],
)
def test_the_innermost_error_is_named(error: dict[str, object], expected: RaisedError | None) -> None:
    assert raised_error(error) == expected  # type: ignore[arg-type]


def test_a_long_message_is_cut() -> None:
    found = raised_error({"type": "ValueError", "message": "x" * 5000})
    assert found is not None and len(found.text) == 400 and found.text.endswith("…")
