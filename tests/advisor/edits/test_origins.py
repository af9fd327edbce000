"""A value is followed to where a person wrote it, and nowhere that is uncertain."""

from __future__ import annotations

import ast

import pytest

from rn50_advisor.advisor.edits.origins import FromOption, Literally, Origin, Unknown, origin_of
from rn50_advisor.advisor.edits.syntax import Code, parse_code


def parsed(text: str, path: str = "train.py") -> Code:
    code = parse_code(path, text)
    assert code is not None
    return code


def origin(text: str, *others: str) -> Origin:
    """Of the argument of the call `use(…)`."""
    code = parsed(text)
    (call,) = (call for call in code.calls() if isinstance(call.func, ast.Name) and call.func.id == "use")
    return origin_of(code, call.args[0], [parsed(other, f"other{n}.py") for n, other in enumerate(others)])


OPTION = 'p.add_argument("--workers", default=2)\nargs = p.parse_args()\n'


@pytest.mark.parametrize(
    ("text", "line", "written"),
    [
        ("use(4)", 1, "4"),
        ("n = 4\nuse(n)", 1, "4"),
        ("n = 4\nm = n\nuse(int(m))", 1, "4"),
        ("def f(n):\n    use(n)\nf(4)", 3, "4"),
        ("def f(n):\n    use(n)\nf(n=4)", 3, "4"),
        ("def f(a, n=4):\n    use(n)\nf(1)", 1, "4"),
        ("def f(*, n=4):\n    use(n)\nf()", 1, "4"),
        ("class A:\n    def __init__(self, n):\n        use(n)\nA(4)", 4, "4"),
        ("class A:\n    @staticmethod\n    def f(n):\n        use(n)\nA.f(4)", 5, "4"),
        ("class A:\n    def __init__(self):\n        self.n = 4\n    def f(self):\n        use(self.n)", 3, "4"),
        ("class A:\n    n: int = 4\n    def f(self):\n        use(self.n)", 2, "4"),
        ("class A:\n    def __init__(self, n=4): pass\n    def f(self):\n        use(self.hparams.n)\nA()", 2, "4"),
        ("class C:\n    n: int = 4\ncfg = C()\nuse(cfg.n)", 2, "4"),
        ("class C:\n    n: int = field(default=4)\ncfg = C()\nuse(cfg.n)", 2, "4"),
        ("class C:\n    n: int = 4\ncfg = C(n=6)\nuse(cfg.n)", 3, "6"),
        ("cfg = SimpleNamespace(n=4)\nuse(cfg.n)", 1, "4"),
        ("o = {'a': {'n': 4}}\nuse(o['a']['n'])", 1, "4"),
    ],
)
def test_a_literal_is_found_where_it_was_written(text: str, line: int, written: str) -> None:
    found = origin(text)
    assert isinstance(found, Literally), found
    assert (found.node.lineno, ast.unparse(found.node)) == (line, written)


@pytest.mark.parametrize(
    ("text", "flag", "changed_at"),
    [
        (OPTION + "use(args.workers)", "--workers", None),
        (OPTION + "n = args.workers\nuse(n)", "--workers", None),
        (OPTION + "args.workers = args.workers // 2\nuse(args.workers)", "--workers", 3),
        ('n = int(os.environ.get("N", 2))\nuse(n)', "N", None),
        ('@click.option("--n", default=2)\ndef main(n):\n    use(n)', "--n", None),
        ("class C:\n    n: int = 4\nHfArgumentParser(C)\nuse(cfg.n)", "--n", None),
    ],
)
def test_an_option_is_named_with_the_line_that_may_change_it(text: str, flag: str, changed_at: int | None) -> None:
    found = origin(text)
    assert isinstance(found, FromOption), found
    assert (found.option.flag, found.changed_at) == (flag, changed_at)


def test_options_may_be_declared_in_another_file_of_the_job() -> None:
    found = origin("def f(args):\n    use(args.workers)", "pass", OPTION)
    assert isinstance(found, FromOption) and found.option.code.path == "other1.py"


@pytest.mark.parametrize(
    "text",
    [
        "use(a + 1)",
        "use(n)",
        "n = 1\nn = 2\nuse(n)",
        "n = 1\nn += 1\nuse(n)",
        "for n in (1, 2):\n    use(n)",
        "def f(n):\n    n = n or 2\n    use(n)\nf(4)",
        "def f(n):\n    use(n)\nf(4)\nf(6)",
        "def f(n):\n    use(n)\nf(*a)",
        "def f(n):\n    use(n)\nf(**a)",
        "def f(n=4):\n    use(n)",  # no call here
        "lambda n: use(n)",
        "use(int(n, 8))",
        "class A:\n    def f(self):\n        self.n = 1\n        self.n = 2\n        use(self.n)",
        "class C:\n    n: int = 4\ncfg = C(**o)\nuse(cfg.n)",
        "class C:\n    n: int = 4\nclass D:\n    n: int = 5\nuse(cfg.n)",
        "cfg = SimpleNamespace(n=4)\ncfg.n = 5\nuse(cfg.n)",
        "o = {'n': 4}\no['n'] = 5\nuse(o['n'])",
        "a = 1\nb = a\nc = b\nd = c\ne = d\nf = e\ng = f\nuse(g)",  # too far to be sure
        'p.add_argument("--workers")\np.add_argument("--jobs", dest="workers")\nuse(args.workers)',
    ],
)
def test_what_is_uncertain_is_unknown(text: str) -> None:
    assert origin(text) == Unknown()
