"""Arrays, data sets and files that are read whole for each item that is a part of them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from rn50_advisor.advisor.run.stacks.whole_reads import whole_read
from rn50_advisor.probes.host.stacks.process_stacks import Frame

PACKAGES = "/env/lib/python3.11/site-packages"
UNPACKED = Frame("NpzFile.__getitem__", f"{PACKAGES}/numpy/lib/_npyio_impl.py", 250)
DATASET = Frame("Dataset.__getitem__", f"{PACKAGES}/h5py/_hl/dataset.py", 780)
GET = Frame("Mapping.get", "<frozen _collections_abc>", 774)
TORCH = Frame("load", f"{PACKAGES}/torch/serialization.py", 1400)


def found(
    tmp_path: Path, text: str, *library: Frame, names: tuple[str, ...] = ("__getitem__",)
) -> dict[str, str] | None:
    """What a stack reads: `library`, innermost first, called at the line marked `# 0` by the function `names[0]`, and so on."""
    file = tmp_path / f"data{len(list(tmp_path.iterdir()))}.py"  # a file is read once
    lines = dedent(text).strip().splitlines()
    file.write_text("\n".join(lines))
    frames = [
        Frame(name, str(file), next(n for n, line in enumerate(lines, 1) if line.endswith(f"# {level}")))
        for level, name in enumerate(names)
    ]
    read = whole_read((*library, *frames))
    return None if read is None else dict(read)


ARRAY = {"kind": "array", "call": "numpy.load(...)[...]"}
OPENED = """
import numpy as np
class Items:
    def __init__(self, path):
        self.path = path
        self.archive = np.load(path)
    def __getitem__(self, i):
        return {taken} # 0
"""
LAZY = """
class Items:
    def __init__(self, path):
        self.path = path
        self.archive = None
    def __getitem__(self, i):
        {asks}
            self.archive = np.load(self.path)
        return self.archive["images"][i] # 0
"""


@pytest.mark.parametrize(
    ("file", "function"),
    [("/numpy/lib/_npyio_impl.py", "NpzFile.__getitem__"), ("/numpy/lib/npyio.py", "__getitem__")],
    ids=["NumPy 2, Python 3.11", "NumPy 1, Python 3.10"],
)
def test_an_array_that_is_unpacked_anew_for_each_item(tmp_path: Path, file: str, function: str) -> None:
    text = OPENED.format(taken='self.archive["images"][i]')
    assert found(tmp_path, text, Frame(function, f"{PACKAGES}{file}", 250)) == ARRAY
    assert found(tmp_path, text, Frame("NpzFile.__getitem__", "/usr/lib/python3.11/zipfile.py", 9)) is None


@pytest.mark.parametrize(
    "taken",
    [
        'self.archive["images"]',
        "self.archive[self.path][i]",
        "self.archive[self.names[i]][self.rows[i]]",
        'self.archive.get("images")[i]',
        "self.archive.f.images[i]",
        'np.load(self.path)["images"][i]',
        '(self.archive["images"][i], self.labels[i])',
        "[self.archive[name][i] for name in self.archive.files]",
        "{name: array[i] for name, array in self.archive.items()}",
    ],
)
def test_however_the_line_takes_it(tmp_path: Path, taken: str) -> None:
    assert found(tmp_path, OPENED.format(taken=taken), UNPACKED, GET) == ARRAY


@pytest.mark.parametrize(
    "taken",
    [
        'self.archive[f"image{i}"]',
        "self.archive[self.names[i]]",
        "self.archive[str(i)][0]",
        'self.archive[f"image{i}"], self.options["scale"]',
        'np.load(self.paths[i])["image"]',
        'self.opened(i)["images"][i]',
        "np.load(self.paths[i])[self.key]",
    ],
)
def test_an_array_of_its_own_for_each_item_is_none(tmp_path: Path, taken: str) -> None:
    assert found(tmp_path, OPENED.format(taken=taken), UNPACKED) is None


@pytest.mark.parametrize(
    "asks", ["if self.archive is None:", "if not self.archive:", 'if not hasattr(self, "archive"):']
)
def test_an_archive_that_is_opened_where_it_is_needed_first(tmp_path: Path, asks: str) -> None:
    text = LAZY.format(asks=asks)
    assert found(tmp_path, text, UNPACKED) == ARRAY
    other = text.replace("np.load(self.path)", "np.load(self.paths[i])")
    assert found(tmp_path, other, UNPACKED) is None, "another archive for each item"
    changed = text.replace(asks, "if self.archive is None or self.kept != i:")
    assert found(tmp_path, changed, UNPACKED) is None, "another archive as soon as one is needed"


def test_an_archive_that_a_method_a_property_or_the_module_keeps(tmp_path: Path) -> None:
    text = """
    import numpy as np
    def opened(path):
        return np.load(path)
    class Base:
        def __init__(self, path):
            self.path = path
            self.archive = None
        @property
        def images(self):
            if self.archive is None:
                self.archive = opened(self.path)
            return self.archive
    class Items(Base):
        def __getitem__(self, i):
            return self.images["images"][i] # 0
    """
    assert found(tmp_path, text, UNPACKED) == ARRAY
    called = text.replace("        @property\n", "").replace("self.images[", "self.images()[")
    assert found(tmp_path, called, UNPACKED) == ARRAY
    text = """
    import numpy as np
    ARCHIVE = np.load("/data/all.npz")
    class Items:
        def __getitem__(self, i):
            return ARCHIVE["images"][i] # 0
    """
    assert found(tmp_path, text, UNPACKED) == ARRAY
    assert found(tmp_path, text + "ARCHIVE = np.load('/data/others.npz')\n", UNPACKED) is None


STATIONS = """
class Stations:
    def __init__(self, paths):
        self.archives = [np.load(path) for path in paths]
    def __getitem__(self, i):
        archive = self.archives[i % 9]
        return archive["waves"][i] # 0
"""


def test_one_of_several_archives_counts_if_an_item_takes_a_part(tmp_path: Path) -> None:
    assert found(tmp_path, STATIONS, UNPACKED) == ARRAY
    later = STATIONS.replace(
        'return archive["waves"][i] # 0', 'waves = archive["waves"] # 0\n        return waves[i, 3:]'
    )
    assert found(tmp_path, later, UNPACKED) == ARRAY
    for whole in ('return archive["waves"] # 0', 'return archive["waves"][:, :100] # 0'):
        assert found(tmp_path, STATIONS.replace('return archive["waves"][i] # 0', whole), UNPACKED) is None


def test_an_archive_that_is_handed_over(tmp_path: Path) -> None:
    text = """
    def image(archive, name, i):
        return archive[name][i] # 0
    class Items:
        def __init__(self, path):
            self.archive = np.load(path)
        def __getitem__(self, i):
            return image(self.archive, "images", i) # 1
    """
    assert found(tmp_path, text, UNPACKED, names=("image", "__getitem__")) == ARRAY
    assert found(tmp_path, text, UNPACKED, names=("image",)) is None, "a library calls it, with anything"
    assert (
        found(tmp_path, text.replace("self.archive,", "self.opened(i),"), UNPACKED, names=("image", "__getitem__"))
        is None
    )


H5 = """
import h5py
class Items:
    def __init__(self, path):
        self.path = path
        self.opened = h5py.File(path)
    def __getitem__(self, i):
        {line} # 0
"""


@pytest.mark.parametrize(
    ("line", "function"),
    [
        ('return self.opened["images"][:][i]', "Dataset.__getitem__"),
        ('return self.opened["images"][()][i]', "Dataset.__getitem__"),
        ('return np.array(self.opened["images"])[i]', "Dataset.__array__"),
        ('images = self.opened["images"][...]', "Dataset.__getitem__"),
    ],
)
def test_a_data_set_that_is_read_whole(tmp_path: Path, line: str, function: str) -> None:
    whole = {"kind": "dataset", "call": "h5py dataset[:]"}
    assert found(tmp_path, H5.format(line=line), Frame(function, DATASET.file, 1000)) == whole
    zarr = Frame(f"Array.{function.rpartition('.')[2]}", f"{PACKAGES}/zarr/core/array.py", 2400)
    assert found(tmp_path, H5.format(line=line), zarr) == {"kind": "dataset", "call": "zarr dataset[:]"}


def test_all_rows_of_hugging_faces_data_set(tmp_path: Path) -> None:
    rows = Frame("Dataset.__getitem__", f"{PACKAGES}/datasets/arrow_dataset.py", 3157)
    text = (
        "import datasets\nclass Texts:\n    def __init__(self):\n        self.rows = datasets.load_dataset('texts')\n"
    )
    column = text + "    def __getitem__(self, i):\n        return self.rows{taken}['text'][i] # 0"
    assert found(tmp_path, column.format(taken="[:]"), rows) == {"kind": "dataset", "call": "Hugging Face dataset[:]"}
    assert found(tmp_path, column.format(taken="[i]"), rows) is None


@pytest.mark.parametrize(
    "line",
    [
        'return self.opened["images"][i]',
        'return torch.from_numpy(self.opened["images"][i].astype(np.float32))',
        "return self.opened[str(i)][:]",
        'return self.opened["images"][i][:]',
        'return self.opened["images"][i, :]',
    ],
)
def test_a_part_of_a_data_set_or_one_of_its_own_is_none(tmp_path: Path, line: str) -> None:
    assert found(tmp_path, H5.format(line=line), DATASET) is None


def test_code_that_cannot_be_read_shows_nothing(tmp_path: Path) -> None:
    assert whole_read((UNPACKED, Frame("__getitem__", str(tmp_path / "gone.py"), 3))) is None
    assert whole_read((UNPACKED,)) is None
    assert whole_read(()) is None


def test_functions_that_call_each_other_a_thousand_times_are_followed_only_so_far(tmp_path: Path) -> None:
    text = """
    def image(archive, i):
        return image(archive, i)["images"][i] # 0
    """
    file = tmp_path / "data.py"
    file.write_text(dedent(text).strip())
    assert whole_read((UNPACKED, *[Frame("image", str(file), 2)] * 5000)) is None
