"""Calls that go through a whole collection, found at a line of the user's code."""

from __future__ import annotations

from pathlib import Path

import pytest

from rn50_advisor.advisor.run.stacks.collection_calls import collection_call
from rn50_advisor.probes.documents.code_places import CollectionCall
from rn50_advisor.probes.host.stacks.process_stacks import Frame


def found(tmp_path: Path, text: str, inner: str | None = None, line: int = 1) -> CollectionCall | None:
    file = tmp_path / f"train{len(list(tmp_path.iterdir()))}.py"  # a file is read once
    file.write_text(text)
    return collection_call(Frame("sample", str(file), line), inner)


@pytest.mark.parametrize(
    ("text", "inner", "kind", "call"),
    [
        ("i = np.random.permutation(len(x))[:64]", None, "permutes", "np.random.permutation"),
        ("i = torch.randperm(n); x = data[i[:64]]", None, "permutes", "torch.randperm"),
        ("i = np.random.choice(self.n, 64, replace=False)", None, "permutes", "np.random.choice"),
        ("i = np.random.choice(n, 64, replace=False, p=w)", None, "weighs", "np.random.choice"),
        ("negative = self.rng.choice(self.n, size=9, p=self.chances)", None, "weighs", "self.rng.choice"),
        ("i = random.choices(items, weights=self.weights, k=9)", "Random.choices", "weighs", "random.choices"),
        ("random.shuffle(self.files); x = load(self.files[0])", "Random.shuffle", "permutes", "random.shuffle"),
        ("batch = random.sample(list(self.memory), 64)", None, "copies", "list"),
        ("name = list(self.items.keys())[n]", None, "copies", "list"),
        ("best = sorted(scores)[:3]", None, "copies", "sorted"),
        ("while True: seen = torch.cat([seen, out.detach()])", None, "grows", "torch.cat"),
        ("self.seen = np.append(self.seen, out)", "append", "grows", "np.append"),
        ("for row in rows: log = pd.concat((log, row), ignore_index=True)", "concat", "grows", "pd.concat"),
        ("for row in rows: log = log.append(row)", "DataFrame.append", "grows", "log.append"),
        ("batch = [queue.pop(0) for _ in range(64)]", None, "shifts", "queue.pop"),
        ("taken.append(self.queue.pop(0))", None, "shifts", "self.queue.pop"),
        ("queue.insert(0, item)", None, "shifts", "queue.insert"),
        ("at = self.names.index(name)", None, "searches", "self.names.index"),
        ("new = name not in self.seen", None, "searches", "x in self.seen"),
        ("m = deque(maxlen=9); batch = random.sample(m, 64)", "Random.sample", "walks", "random.sample"),
        ("self.m: deque[int] = deque(); i = random.choice(self.m)", "Random.choice", "walks", "random.choice"),
        ("x = torch.tensor([queue.pop(0) for _ in range(64)])", None, "shifts", "queue.pop"),
        ("obs, act = zip(*rows); x = torch.tensor(obs, dtype=torch.float32)", None, "converts", "torch.tensor"),
        ("obs, act = map(list, zip(*rows)); x = torch.FloatTensor(obs)", None, "converts", "torch.FloatTensor"),
        ("x = torch.tensor([row.state for row in rows])", None, "converts", "torch.tensor"),
        ("self.seen = []; x = torch.as_tensor(self.seen)", None, "converts", "torch.as_tensor"),
        ("x = torch.tensor(list(rows))", None, "converts", "torch.tensor"),
        ("b = [r.b for r in rows]; x = torch.tensor(b), torch.from_numpy(at)", None, "converts", "torch.tensor"),
        ("x = torch.tensor([s.tolist() for s in rows])", None, "converts", "torch.tensor"),
        ("x = torch.FloatTensor([r.x.numpy() for r in rows]).to(device)", None, "converts", "torch.FloatTensor"),
        ("x = torch.tensor(table.tolist())", None, "converts", "torch.tensor"),
        (
            "x, y = torch.tensor([r.x for r in rows]), torch.tensor([r.y for r in rows])",
            None,
            "converts",
            "torch.tensor",
        ),
        ("import torch as th; x = th.as_tensor([r.x for r in rows])", None, "converts", "th.as_tensor"),
        ("from torch import tensor; x = tensor([r.x for r in rows])", None, "converts", "tensor"),
        ("x = torch.tensor(random.sample(rows, 64))", None, "converts", "torch.tensor"),
        ("m = collections.deque(); batch = [m[i] for i in places]", None, "walks", "m[...]"),
    ],
)
def test_a_call_through_a_whole_collection(tmp_path: Path, text: str, inner: str | None, kind: str, call: str) -> None:
    assert found(tmp_path, text, inner) == {"kind": kind, "call": call}


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        pytest.param("i = rng.integers(n, size=64)", None, id="indices of the batch alone"),
        pytest.param("i = np.random.choice(n, 64)", None, id="with replacement"),
        pytest.param("i = torch.randperm(n); x, y = x[i], y[i]", None, id="a batch that is shuffled"),
        pytest.param("mixed = mix(x, x[torch.randperm(n)])", None, id="pairs within a batch"),
        pytest.param("random.shuffle(files); run(files)", "Random.shuffle", id="a list that is all used"),
        pytest.param("m = []; batch = random.sample(m, 64)", "Random.sample", id="items of a list"),
        pytest.param("m = deque(); first, last = m[0], m[-1]", None, id="the ends of a deque"),
        pytest.param("batch = list(zip(*batch))", None, id="a batch made a list"),
        pytest.param("x = list(batch)", None, id="a list that is all used"),
        pytest.param("x = torch.tensor(np.stack(rows))", None, id="arrays that are joined first"),
        pytest.param("x = torch.tensor([parse(s) for s in rows])", None, id="items that take time themselves"),
        pytest.param("x = cv2.tensor([r.x for r in rows])", None, id="of another library"),
        pytest.param("x = torch.cat([x, skip], 1)", None, id="a layer's input"),
        pytest.param("for up in ups: x = up(x); x = torch.cat([x, skip])", None, id="a layer's input in each round"),
        pytest.param("first = list(batch.values())[0].cuda()", None, id="another call of the line may be at work"),
        pytest.param("os.remove(path)", None, id="a file"),
        pytest.param("i = rng.choice(n, 64, replace=False)", None, id="a generator's choice, which permutes nothing"),
        pytest.param("i = rng.choice(n, 64, p=w / w.sum())", None, id="a choice by weights that the line computes"),
        pytest.param("i = random.choices(items, cum_weights=sums, k=9)", None, id="a choice by sums of weights"),
        pytest.param("both = torch.cat([left, right])", None, id="parts joined to something new"),
        pytest.param("parts.append(out)", None, id="a list that is appended to"),
        pytest.param("item = queue.pop()", None, id="the end of a list"),
        pytest.param("value = settings.pop(key)", None, id="a key of a dictionary"),
        pytest.param("for name in names: pass", None, id="a loop"),
        pytest.param("x = np.random.permutation(prepare(n))", "prepare", id="another call of the line is at work"),
        pytest.param("x = f(a) if a in b else g(a)", None, id="other calls beside a search"),
        pytest.param("codes[n] = letters.index(text[n])", None, id="an item of a tensor that is assigned"),
        pytest.param("x = torch.tensor(frame)", None, id="something that may be an array"),
        pytest.param("x = torch.tensor(np.array(rows))", None, id="an array"),
        pytest.param("x = torch.tensor([0, 1])", None, id="a few numbers"),
        pytest.param("rows = [load(n) for n in names]; x = other.tensor(rows)", None, id="another library's tensor"),
        pytest.param("x = torch.tensor([decode(n) for n in names])", None, id="what makes the items"),
        pytest.param("this is no Python", None, id="no Python"),
    ],
)
def test_other_work_is_none(tmp_path: Path, text: str, inner: str | None) -> None:
    assert found(tmp_path, text, inner) is None


def test_a_call_of_several_lines_and_files_that_cannot_be_read(tmp_path: Path) -> None:
    text = "while True:\n    seen = torch.cat(\n        [\n            seen,\n            out,\n        ]\n    )\nlast = 1\n"
    assert found(tmp_path, text, line=5) == {"kind": "grows", "call": "torch.cat"}
    assert found(tmp_path, text, line=8) is None
    assert collection_call(Frame("f", str(tmp_path / "missing.py"), 1), None) is None
    assert found(tmp_path, "x = torch.randperm(n)\n" + "#" * 400_000) is None


@pytest.mark.parametrize(
    ("use", "kind"), [("    x = rays[:64]", "permutes"), ("    for n in range(9):\n        x = rays[n : n + 64]", None)]
)
def test_a_permutation_that_an_inner_loop_uses_up_is_none(tmp_path: Path, use: str, kind: str | None) -> None:
    text = f"for epoch in range(9):\n    np.random.shuffle(rays)\n{use}\n"
    assert (found(tmp_path, text, line=2) or {}).get("kind") == kind


SAMPLER = """\
class Pairs:
    def __init__(self, n): self.items = frozenset(range(n))
    def negatives(self, user):
        pool = self.items - self.seen[user]
        kept = self.items - self.seen[user]
        some = random.sample(list(pool), 4)
        return some, kept
"""


@pytest.mark.parametrize(("line", "kind"), [(4, "excludes"), (5, None), (6, "excludes")])
def test_a_set_that_is_drawn_from_counts_where_it_is_made_and_where_it_is_copied(
    tmp_path: Path, line: int, kind: str | None
) -> None:
    call = found(tmp_path, SAMPLER, line=line)
    assert (call and (call["kind"], call["call"])) == (kind and (kind, "list"))


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("a = set(x)\nsome = random.sample(list(a - seen[u]), 4)", "list"),
        ("self.a: set[int] = set(x)\nrest = self.a.difference(seen)\none = random.choice(tuple(rest))", "tuple"),
        ("a = {n for n in x}\nrest = a - seen; some = sorted(rest)[:4]", "sorted"),
    ],
)
def test_what_is_left_of_a_set(tmp_path: Path, text: str, call: str) -> None:
    assert found(tmp_path, text, line=2) == {"kind": "excludes", "call": call}


def test_a_difference_of_numbers_is_no_set(tmp_path: Path) -> None:
    assert found(tmp_path, "rest = a - b; some = random.sample(list(rest), 4)") == {"kind": "copies", "call": "list"}
