"""Lists and tuples that are converted number by number, by what the code shows of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rn50_advisor.advisor.edits.syntax import Code, parse_code
from rn50_advisor.advisor.run.stacks.collection_calls import collection_call
from rn50_advisor.advisor.run.stacks.conversions import is_beside, is_conversion, is_plain_conversion
from rn50_advisor.probes.host.stacks.process_stacks import Frame


def parsed(text: str) -> Code:
    code = parse_code("/job/replay.py", text)
    assert code is not None
    return code


@pytest.mark.parametrize(
    ("text", "converts"),
    [
        ("b = Batch(*zip(*rows))\nx = torch.tensor(b.state)", True),
        ("b = list(zip(*rows))\nx = torch.tensor(b[0])", True),
        ("b = Batch(x, y)\nx = torch.tensor(b.x)", False),
        ("b = table[3]\nx = torch.tensor(b[0])", False),
        ("b = list(zip(*rows))\nx = torch.tensor(b[:2])", False),
        ("x = torch.tensor([1, 2, 3])", False),
        ("x = torch.tensor([low, high])", True),
        ("x = torch.tensor()", False),
    ],
)
def test_columns_of_rows_are_tuples(text: str, converts: bool) -> None:
    code = parsed(text)
    [call] = [
        call for call in code.calls() if isinstance(code.words(call), str) and "torch.tensor(" in code.words(call)
    ]
    assert is_conversion(code, call) == converts


@pytest.mark.parametrize(
    ("beside", "expected"),
    [("s.tolist()", True), ("parse(s)", False), ("torch.tensor([s])", True), ("run(s)", False), ("x.to(cpu)", False)],
)
def test_what_prepares_items_goes_with_a_conversion(beside: str, expected: bool) -> None:
    outside = beside.startswith(("run", "torch", "x."))
    code = parsed(f"x = torch.tensor([{'s' if outside else beside} for s in rows]), {beside if outside else 0}")
    conversion = min(code.calls(), key=lambda call: call.col_offset)
    other = max((call for call in code.calls() if call is not conversion), key=lambda call: call.col_offset)
    assert is_conversion(code, conversion) and is_beside(code, conversion, other) == expected
    assert is_plain_conversion(code, conversion) == (beside != "parse(s)")


@pytest.mark.parametrize(
    ("signature", "call", "converts"),
    [
        ("rows: list[float]", "", True),
        ("rows: Sequence[np.ndarray]", "", True),
        ("rows", "make([1.0, x])", True),
        ("rows", "make(rows=[r for r in found])", True),
        ("rows", "make(np.stack(found))", False),
        ("rows", "make([1.0, x]); make(table)", False),
        ("rows", "make(*found)", False),
        ("rows: np.ndarray", "", False),
        ("rows", "", False),
    ],
)
def test_a_parameter_is_a_list_by_its_annotation_or_by_all_calls(
    tmp_path: Path, signature: str, call: str, converts: bool
) -> None:
    file = tmp_path / "replay.py"
    file.write_text(f"import torch\ndef make({signature}):\n    return torch.tensor(rows)\n{call or 'pass'}\n")
    assert (collection_call(Frame("make", str(file), 3), None) is not None) == converts
