"""Calls that do the same work for each item, found from a stack and the code that it is in."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from rn50_advisor.advisor.run.stacks.repeated_calls import repeated_call
from rn50_advisor.probes.host.stacks.process_stacks import Frame

LIBRARY = "/usr/lib/python3.11"


def found(tmp_path: Path, text: str, inner: str | Frame | None, *names: str) -> str | None:
    """The repeated call of a stack: `inner`, of a library, called at the line marked `# 0` by the function `names[0]`, and so on."""
    file = tmp_path / f"data{len(list(tmp_path.iterdir()))}.py"  # a file is read once
    lines = dedent(text).strip().splitlines()
    file.write_text("\n".join(lines))
    frames = [
        Frame(name, str(file), next(n for n, line in enumerate(lines, 1) if line.endswith(f"# {level}")))
        for level, name in enumerate(names)
    ]
    library = [Frame(inner, f"{LIBRARY}/zipfile.py", 7)] if isinstance(inner, str) else [inner] if inner else []
    return repeated_call((*library, *frames))


ARCHIVE = """
import zipfile
class Items:
    def __init__(self, path):
        self.path = path
    def __getitem__(self, i):
        with zipfile.ZipFile(self.path) as z: # 0
            return z.read(f"{i}.npy")
"""


@pytest.mark.parametrize(
    "inner", ["ZipFile.__init__", "__init__"]
)  # with and without the class: Python 3.10 has no qualified names
def test_an_archive_that_each_item_opens(tmp_path: Path, inner: str) -> None:
    assert found(tmp_path, ARCHIVE, inner, "Items.__getitem__") == "zipfile.ZipFile"


def test_a_file_of_its_own_for_each_item_is_none(tmp_path: Path) -> None:
    text = ARCHIVE.replace("zipfile.ZipFile(self.path)", "zipfile.ZipFile(self.paths[i])")
    assert found(tmp_path, text, "ZipFile.__init__", "Items.__getitem__") is None


def test_a_call_into_c_is_found_by_its_line(tmp_path: Path) -> None:
    text = """
    import sqlite3
    P = "/data/items.db"
    class Rows:
        def __getitem__(self, i):
            db = sqlite3.connect(P) # 0
            return db.execute("select ?", (i,))
    """
    assert found(tmp_path, text, None, "Rows.__getitem__") == "sqlite3.connect"


@pytest.mark.parametrize(
    ("listed", "inner", "call"),
    [
        ("sorted(os.listdir(self.root))[i]", None, "os.listdir"),
        ("sorted(glob.glob(self.root + '/*.png'))[i]", "glob", "glob.glob"),
        ("list(Path(self.root).rglob('*.png'))[i]", "Path.rglob", "rglob"),
        ("os.listdir(self.folders[i])", None, None),
        ("sorted(os.listdir(self.root), key=len)[i]", None, "os.listdir"),
        ("sorted(self.names)[i]", None, None),
        ("use(os.listdir(self.root))", None, None),
    ],
)
def test_a_folder_that_each_item_lists(tmp_path: Path, listed: str, inner: str | None, call: str | None) -> None:
    text = f"""
    class Pictures:
        def __init__(self, root):
            self.root = root
        def __getitem__(self, i):
            return {listed} # 0
    """
    assert found(tmp_path, text, inner, "Pictures.__getitem__") == call


def test_of_several_calls_in_a_line_the_one_that_runs_counts(tmp_path: Path) -> None:
    text = """
    import json, io
    class Items:
        def __getitem__(self, i):
            return json.load(open("/data/all.json"))[int(i)] # 0
    """
    assert found(tmp_path, text, "load", "Items.__getitem__") == "json.load"
    assert found(tmp_path, text, "dumps", "Items.__getitem__") is None
    assert found(tmp_path, text, None, "Items.__getitem__") is None, "any of them may be running"


def test_pickles_own_reading_has_no_frame(tmp_path: Path) -> None:
    text = """
    import pickle
    class Items:
        def __getitem__(self, i):
            return pickle.load(open("/data/all.pkl", "rb"))[int(i)] # 0
    """
    assert found(tmp_path, text, None, "Items.__getitem__") == "pickle.load"
    assert found(tmp_path, text.replace("int(i)", "self.at(i)"), None, "Items.__getitem__") is None
    assert (
        found(tmp_path, text.replace("/data/all.pkl", "").replace('""', "self.paths[i]"), None, "Items.__getitem__")
        is None
    )


HELPER = """
import h5py
def read(path, key, mode="r"):
    with h5py.File(path, mode) as file: # 0
        return file[key][:]
class Items:
    def __init__(self, path):
        self.path = path
    def __getitem__(self, i):
        return read(self.path, str(i)) # 1
"""


def test_arguments_are_followed_to_the_users_own_callers(tmp_path: Path) -> None:
    assert found(tmp_path, HELPER, "File.__init__", "read", "Items.__getitem__") == "h5py.File"
    swapped = HELPER.replace("h5py.File(path, mode)", "h5py.File(key, mode)")
    assert found(tmp_path, swapped, "File.__init__", "read", "Items.__getitem__") is None
    hidden = HELPER.replace("read(self.path, str(i))", "read(*self.of(i))")
    assert found(tmp_path, hidden, "File.__init__", "read", "Items.__getitem__") is None
    assert found(tmp_path, HELPER, "File.__init__", "read") is None, "a library calls it, with anything"


def test_a_generator_may_open_before_its_items_and_must_not_for_each(tmp_path: Path) -> None:
    text = """
    import pandas as pd
    class Stream:
        def __iter__(self):
            table = pd.read_csv("/data/all.csv") # 0
            for row in table:
                yield row
    """
    assert found(tmp_path, text, "read_csv", "Stream.__iter__") is None
    text = """
    import pandas as pd
    class Stream:
        def __iter__(self):
            for n in range(10):
                yield pd.read_csv("/data/all.csv").iloc[n] # 0
    """
    assert found(tmp_path, text, "read_csv", "Stream.__iter__") == "pd.read_csv"


@pytest.mark.parametrize("call", ["np.random.randn(256)", "time.sleep(0.1)", "next(self.rows)", "self.load_next()"])
def test_calls_that_draw_wait_or_move_on_are_none(tmp_path: Path, call: str) -> None:
    text = f"""
    import time, numpy as np
    class Items:
        def __getitem__(self, i):
            return {call} # 0
    """
    assert found(tmp_path, text, None, "Items.__getitem__") is None


def test_an_object_that_is_made_and_used_on_the_item_repeats_only_its_making(tmp_path: Path) -> None:
    text = """
    class Items:
        def __getitem__(self, i):
            return transforms.ToTensor()(self.images[i]) # 0
    """
    assert found(tmp_path, text, "ToTensor.__init__", "Items.__getitem__") == "transforms.ToTensor"
    assert found(tmp_path, text, "ToTensor.__call__", "Items.__getitem__") is None


def test_code_that_cannot_be_read_shows_nothing(tmp_path: Path) -> None:
    assert repeated_call((Frame("__getitem__", str(tmp_path / "gone.py"), 3),)) is None
    assert found(tmp_path, "def broken(: # 0", None, "broken") is None
    assert repeated_call((Frame("loads", f"{LIBRARY}/json/__init__.py", 3),)) is None
    assert repeated_call(()) is None


def test_the_name_holds_no_arguments(tmp_path: Path) -> None:
    text = """
    import driver
    class Items:
        def __getitem__(self, i):
            return driver.Client("secret").connect("password") # 0
    """
    assert found(tmp_path, text, "connect", "Items.__getitem__") == "connect"


def test_a_function_that_calls_itself_a_thousand_times_is_followed_only_so_far(tmp_path: Path) -> None:
    text = """
    import zipfile
    def read(path, depth):
        return zipfile.ZipFile(path) if depth else read(path, depth + 1) # 0
    """
    assert found(tmp_path, text, "ZipFile.__init__", *["read"]) is None
    file = str(next(tmp_path.iterdir()))
    frames = [Frame("ZipFile.__init__", f"{LIBRARY}/zipfile.py", 7), *[Frame("read", file, 3)] * 5000]
    assert repeated_call(tuple(frames)) is None


NESTED = """
from torchvision import transforms as T
class Pictures:
    def __getitem__(self, i):
        make = T.Compose([T.Resize(96), T.ToTensor(), T.RandomCrop(self.sizes[i] if {chosen} else 64)]) # 0
        return make(self.pictures[i])
"""


def test_objects_made_within_each_other_are_one(tmp_path: Path) -> None:
    constant, chosen = NESTED.replace("self.sizes[i] if {chosen} else ", ""), NESTED.replace("{chosen}", "self.sizes")
    for inner in ("Compose.__init__", "Resize.__init__"):
        assert found(tmp_path, constant, inner, "Pictures.__getitem__") == "T.Compose"
        assert found(tmp_path, chosen, inner, "Pictures.__getitem__") is None
    beside = constant.replace("make = T.Compose", "make, other = T.Pad(3), T.Compose")
    assert found(tmp_path, beside, "Pad.__init__", "Pictures.__getitem__") is None
