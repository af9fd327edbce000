"""From a profile to the lines that format tensors as text, in any part of the step."""

from __future__ import annotations

from typing import Any

import pytest

from profiled_steps import FETCHER, LIBRARY, MODULE, SCRIPT, looks, profiled
from rn50_advisor.advisor.model.analysis import Analysis

STR = ("_str_intern", f"{LIBRARY}/torch/_tensor_str.py", 400)
REPR = ("Tensor.__format__", f"{LIBRARY}/torch/_tensor.py", 1100)
WRAPPER = ("Optimizer.step.<locals>.wrapper", f"{LIBRARY}/torch/optim/optimizer.py", 480)
TRAIN = ("train", SCRIPT, 24)


def seen(*rows: Any, source: str = "", **more: Any) -> Analysis:
    return profiled(*rows, source=source, model=24, backward=26, **more)


@pytest.mark.parametrize(
    ("row", "places"),
    [
        pytest.param(
            looks(80, TRAIN, WRAPPER, ("Factored.step", "/job/optim.py", 44), REPR, STR),
            [("/job/optim.py", 44)],
            id="in an optimizer",
        ),
        pytest.param(
            looks(80, TRAIN, MODULE, ("Net.forward", "/job/model.py", 7), REPR, STR),
            [("/job/model.py", 7)],
            id="in a model",
        ),
        pytest.param(looks(80, ("train", SCRIPT, 30), REPR, STR), [(SCRIPT, 30)], id="between steps"),
        pytest.param(looks(80, FETCHER, ("Data.__getitem__", "/job/data.py", 3), REPR, STR), [], id="an item"),
        pytest.param(looks(80, TRAIN, MODULE, ("Net.forward", "/job/model.py", 7)), [], id="no text"),
        pytest.param(looks(80, ("train", SCRIPT, 30), REPR, STR, awake=0), [(SCRIPT, 30)], id="asleep"),
    ],
)
def test_lines_and_seconds_of_a_step(row: Any, places: list[tuple[str, int]]) -> None:
    a = seen(row)
    found = [(line.file, line.line) for line in a.text_lines if line.samples]
    assert found == (places if row.get("awake") != 0 else [])
    assert round(1000 * a.value("step.text_s", 0), 1) == (26.0 if found else 0.0)


@pytest.mark.parametrize(
    ("line", "formats"),
    [
        ('log.debug(f"states: {h.tolist()}")', True),
        ('log.debug("states: %s" % h.tolist())', True),
        ('log.debug("states: {}".format(h.detach().numpy()))', True),
        ("seen.append(json.dumps(h.tolist()))", True),
        ('message = "at " + str([v.tolist() for v in h])', True),
        ('log.debug("states: %s", h.tolist())', False),
        ("seen.append(h.tolist())", False),
        ('log.debug(f"step {step}")', False),
        ("left = rest % h.tolist()", False),
    ],
)
def test_a_list_that_becomes_text_leaves_no_frame_but_its_line(line: str, formats: bool) -> None:
    a = seen(looks(80, ("train", SCRIPT, 30)), source="\n" * 29 + line + "\n")
    assert [(found.file, found.line) for found in a.text_lines] == ([(SCRIPT, 30)] if formats else [])


def test_work_below_such_a_line_is_no_text() -> None:
    source = "\n" * 29 + 'print(f"{compute(h).tolist()}")\n'
    below = looks(80, ("train", SCRIPT, 30), ("compute", f"{LIBRARY}/somewhere.py", 4))
    assert seen(below, source=source).text_lines == ()
