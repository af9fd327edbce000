"""Rows of one array that are taken one by one, and joined again."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from rn50_advisor.advisor.run.stacks.collection_calls import collection_call
from rn50_advisor.probes.host.stacks.process_stacks import Frame

COMPREHENSION = "Windows.__getitem__.<locals>.<listcomp>"
HEAD = "series = torch.randn(9, 8)\nclass Windows:\n    def __getitem__(self, i):\n"


def gathers(
    tmp_path: Path,
    body: str,
    inner: str | None = None,
    function: str = "__getitem__",
    *,
    line: int = 1,
    head: str = HEAD,
) -> tuple[str, str] | None:
    """Kind and array of a line of a method, counted from 1."""
    file = tmp_path / f"windows{len(list(tmp_path.iterdir()))}.py"  # a file is read once
    file.write_text(head + indent(body, " " * 8))
    found = collection_call(Frame(function, str(file), line + head.count("\n")), inner)
    return (found["kind"], found["call"]) if found is not None and found["kind"] in ("slices", "gathers") else None


@pytest.mark.parametrize(
    ("body", "inner", "kind"),
    [
        ("return torch.stack([series[i + k] for k in range(self.w)])", None, "slices"),
        ("return torch.stack([series[k] for k in range(i, i + 8)])", None, "slices"),
        ("return torch.stack([series[i - 3 * k + 1] for k in range(8)])", None, "gathers"),
        ("return torch.stack([series[i + 3 * k - 1] for k in range(8)])", None, "slices"),
        ("return torch.stack([series[i + self.w + k][0] for k in range(24)])", None, "slices"),
        ("return torch.stack([series[i + k, 2:5] for k in range(24)])", None, "slices"),
        ("return torch.cat([series[k].unsqueeze(0) for k in range(i, i + 8)]).float()", None, "slices"),
        ("return torch.stack(tuple(series[i + k] for k in range(8)))", None, "slices"),
        ("return np.stack([series[i + k].numpy() for k in range(8)])", "stack", "slices"),
        ("return np.array([series[j] for j in self.near[i]])", None, "gathers"),
        ("return torch.stack([series[min(i + k, n - 1)] for k in range(8)])", None, "gathers"),
        ("return torch.stack([series[k] for k in range(8) if k != i])", None, "gathers"),
        ("return torch.stack([series[b, ends[b] - 1] for b in range(8)])", None, "gathers"),
        ("return torch.stack([series[i + k * k] for k in range(8)])", None, "gathers"),
    ],
)
def test_rows_that_are_taken_one_by_one(tmp_path: Path, body: str, inner: str | None, kind: str) -> None:
    assert gathers(tmp_path, body, inner) == (kind, "series")
    if "tuple" not in body:
        assert gathers(tmp_path, body, function=COMPREHENSION) == (kind, "series")


def test_rows_that_are_joined_under_a_name(tmp_path: Path) -> None:
    body = "rows = [series[i + k] for k in range(8)]\nx = torch.stack(rows)\nreturn x"
    assert [gathers(tmp_path, body, line=n) for n in (1, 2, 3)] == [("slices", "series"), ("slices", "series"), None]
    assert gathers(tmp_path, body + ", rows", line=1) is None, "the rows are used, too"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("return torch.stack([decode(series[i + k]) for k in range(8)])", id="decoding"),
        pytest.param("return torch.stack([self.augment(series[k]) for k in range(8)])", id="augmenting"),
        pytest.param("return torch.stack([series[k].mean(0) for k in range(8)])", id="computing"),
        pytest.param("return torch.stack([series[i + k] * k for k in range(8)])", id="arithmetic"),
        pytest.param("return torch.stack([load(k)[i] for k in range(8)])", id="made anew for each"),
        pytest.param("return torch.stack([row[0] for row in rows])", id="rows of their own"),
        pytest.param("return torch.stack([series[i] for _ in range(8)])", id="the same row"),
        pytest.param("return torch.stack([series[k : k + 9] for k in starts])", id="windows of several rows"),
        pytest.param("return torch.stack([series[self.find(k)] for k in range(8)])", id="a search for the row"),
        pytest.param("return torch.stack([series[j + k] for j in a for k in b])", id="two loops"),
        pytest.param("return torch.tensor([series[i + k] for k in range(8)])", id="a conversion"),
        pytest.param("return [series[i + k] for k in range(8)]", id="rows that stay apart"),
        pytest.param("return self.stack([series[i + k] for k in range(8)])", id="a method of the same name"),
        pytest.param("return torch.stack([unknown[i + k] for k in range(8)])", id="nobody knows what it is"),
        pytest.param("return torch.stack([series['x'][i + k] for k in range(8)])", id="one of several arrays"),
        pytest.param("return torch.stack([series[i + k] for k in range(8)]), load(i)", id="other work beside it"),
    ],
)
def test_other_elements_are_none(tmp_path: Path, body: str) -> None:
    assert gathers(tmp_path, body) is None


def test_below_a_call_only_its_own_frames_count(tmp_path: Path) -> None:
    body = "return np.stack([series[i + k] for k in range(8)]), load(i)"
    assert gathers(tmp_path, body, "load") is None
    assert gathers(tmp_path, body, "stack") is None, "the line does other work as well"
    assert gathers(tmp_path, body, function=COMPREHENSION) == ("slices", "series")
    assert gathers(tmp_path, body, "__getitem__", COMPREHENSION) is None, "an array of another library"


@pytest.mark.parametrize(
    "made", ["[]", "[load(p) for p in paths]", "{}", "sorted(glob.glob('*.pt'))", "deque(maxlen=9)", "text.split()"]
)
def test_items_of_a_list_are_none(tmp_path: Path, made: str) -> None:
    body = "return torch.stack([series[i + k] for k in range(self.w)])"
    assert gathers(tmp_path, body, head=HEAD.replace("torch.randn(9, 8)", made)) is None
