"""Draws from what a filter leaves of a whole collection."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from rn50_advisor.advisor.run.stacks.collection_calls import collection_call
from rn50_advisor.probes.host.stacks.process_stacks import Frame


def excludes(
    tmp_path: Path, body: str, line: int, inner: str | None = None, function: str = "__getitem__"
) -> str | None:
    """What a line of a method, counted from 1, copies without some of its items."""
    file = tmp_path / f"pairs{len(list(tmp_path.iterdir()))}.py"  # a file is read once
    file.write_text("class Pairs:\n    def __getitem__(self, k):\n" + indent(body, " " * 8))
    found = collection_call(Frame(function, str(file), line + 2), inner)
    return found["call"] if found is not None and found["kind"] == "excludes" else None


POOL = "pool = [j for j in range(n) if j not in seen[u]]\n"


@pytest.mark.parametrize(
    "draw",
    [
        "return random.choice(pool)",
        "return random.sample(pool, 4)",
        "return self.rng.choice(pool, size=4)",
        "return np.random.choice(pool, 4, replace=False)",
        "return pool[random.randrange(len(pool))]",
        "return pool[torch.randint(len(pool), (1,)).item()]",
        "return pool[int(random.random() * len(pool))]",
        "at = rng.integers(len(pool))\nreturn pool[at]",
        "some = torch.randperm(len(pool))[:4]\nreturn torch.tensor(pool)[some]",
        "return np.random.permutation(pool)[:4]",
        "rest = torch.tensor(pool)\nreturn rest[torch.randint(0, len(rest), (4,))]",
        "if not pool:\n    return 0\nreturn random.choice(pool) if len(pool) > 1 else random.choice(pool)",
    ],
)
def test_a_pool_that_is_drawn_from(tmp_path: Path, draw: str) -> None:
    assert excludes(tmp_path, POOL + draw, 1) == "list comprehension", "Python 3.12 and later"
    assert excludes(tmp_path, POOL + draw, 1, function="Pairs.__getitem__.<locals>.<listcomp>") == "list comprehension"


@pytest.mark.parametrize(
    "use",
    [
        "return pool",
        "return torch.tensor(pool)",
        "random.shuffle(pool)\nreturn pool",
        "return random.choice(pool), pool",
        "return random.sample(pool, len(pool))",
        "return random.choices(pool, weights=w)",
        "return [pool[n] for n in range(len(pool))]",
        "return pool[torch.randperm(len(pool))]",
        "return pool[0]",
        "return pool[:k]",
        "self.pool = pool\nreturn random.choice(pool)",
        "pool += extra\nreturn random.choice(pool)",
        "return min(pool, key=self.distance)",
        "return len(pool)",
        "return random.choice(pool if few else names)",
        "for j in pool:\n    use(j)",
    ],
)
def test_a_pool_that_is_used_otherwise_is_none(tmp_path: Path, use: str) -> None:
    assert excludes(tmp_path, POOL + use, 1) is None


@pytest.mark.parametrize(
    ("body", "inner", "call"),
    [
        ("return random.choice([j for j in self.items if j != k])", None, "list comprehension"),
        ("return random.choice(list(j for j in self.items if j != k))", None, "generator"),
        ("return np.random.choice(np.array([j for j in range(n) if labels[j] == y]))", None, "list comprehension"),
        ("return random.choice(tuple({j for j in self.items if j != k}))", None, "set comprehension"),
        ("return random.choice(list(filter(lambda j: j != k, self.items)))", None, "filter"),
        ("return random.choice(np.setdiff1d(self.every, seen))", "setdiff1d", "np.setdiff1d"),
        ("return random.choice(np.delete(self.every, seen))", "delete", "np.delete"),
        ("return np.random.choice(np.where(self.labels != y)[0])", None, "np.where"),
        ("return np.random.choice(np.flatnonzero(self.labels == y))", "flatnonzero", "np.flatnonzero"),
        ("some = (self.labels == y).nonzero().squeeze(1).tolist()\nreturn random.choice(some)", None, "nonzero"),
        ("return np.random.choice(self.every[self.labels != y])", None, "self.every[...]"),
        ("return rng.choice(self.every[~np.isin(self.every, seen)])", "isin", "self.every[...]"),
        ("rest = list(set(self.every) - set(seen))\nreturn random.choice(rest)", None, "list"),
        ("rest = sorted(set(self.every).difference(seen))\nreturn rest[random.randrange(len(rest))]", None, "sorted"),
    ],
)
def test_each_way_to_leave_items_out(tmp_path: Path, body: str, inner: str | None, call: str) -> None:
    assert excludes(tmp_path, body, 1, inner) == call


def test_what_converts_the_pool_counts_and_other_work_of_a_line_does_not(tmp_path: Path) -> None:
    assert excludes(tmp_path, POOL + "return np.random.choice(pool)", 2) == "list comprehension", (
        "numpy makes an array of it"
    )
    assert excludes(tmp_path, POOL + "return np.random.choice(pool), load(k)", 2) is None
    assert excludes(tmp_path, POOL + "return np.random.choice(pool)", 2, "load") is None
    assert excludes(tmp_path, POOL + "neg = random.choice(pool)\nreturn table[neg]", 3) is None


@pytest.mark.parametrize(
    "body",
    [
        "return random.choice([j for j in range(n)])",
        "return random.choice([line for line in open(path) if line])",
        "return np.random.choice(np.where(a, b, c))",
        "return random.choice(self.every[self.starts[k]])",
    ],
)
def test_a_draw_from_anything_else_is_none(tmp_path: Path, body: str) -> None:
    assert excludes(tmp_path, body, 1) is None
