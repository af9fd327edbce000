"""Files of many items that are read for each of them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import pytest

from rn50_advisor.advisor.run.stacks.whole_reads import whole_read
from rn50_advisor.probes.host.stacks.process_stacks import Frame

PACKAGES = "/env/lib/python3.11/site-packages"
ITEMS = """
import bisect, json, torch, numpy as np, pandas as pd
class Items:
    def __getitem__(self, i):
"""


def found(tmp_path: Path, text: str, inner: str | None = "load", *names: str, kind: str = "file") -> str | None:
    file = tmp_path / f"data{len(list(tmp_path.iterdir()))}.py"  # a file is read once
    lines = text.strip().splitlines()
    file.write_text("\n".join(lines))
    frames = [
        Frame(name, str(file), next(n for n, line in enumerate(lines, 1) if line.endswith(f"# {level}")))
        for level, name in enumerate(names or ("__getitem__",))
    ]
    library = [Frame(inner, f"{PACKAGES}/torch/serialization.py", 1400)] if inner else []
    read = whole_read((*library, *frames))
    return read["call"] if read is not None and read["kind"] == kind else None


def item(body: str) -> str:
    return ITEMS + indent(dedent(body).strip("\n"), " " * 8)


@pytest.mark.parametrize(
    ("body", "inner", "call"),
    [
        ("return torch.load(self.paths[i // self.each])[i % self.each] # 0", "load", "torch.load"),
        ("shard, row = divmod(i, 1000)\nreturn torch.load(self.paths[shard])[row] # 0", "load", "torch.load"),
        ("shard, row = self.places[i]\nimages = np.load(self.paths[shard]) # 0\nreturn images[row]", "load", "np.load"),
        ("at = bisect.bisect(self.ends, i)\nreturn np.load(self.paths[at])[i - self.ends[at]] # 0", "load", "np.load"),
        ("clip = self.clips[i]\nreturn np.load(clip.path)[:, clip.start : clip.end] # 0", "load", "np.load"),
        ("volume = np.load(f'{D}/{i // 400}.npy', mmap_mode=None) # 0\nreturn np.array(volume[i % 400])", "load", "np.load"),
        ("MODE = None\nreturn np.load(self.paths[i // 9], MODE)[i % 9] # 0", "load", "np.load"),
        ("return torch.load(self.paths[i // 9], mmap=False)[i % 9] # 0", "load", "torch.load"),
        ("return joblib.load(self.paths[i // 9])[i % 9] # 0", "load", "joblib.load"),
        ("return pd.read_parquet(self.paths[i // 9]).iloc[i % 9] # 0", "read_parquet", "pd.read_parquet"),
        ("return pd.read_feather(self.paths[i // 9]).to_numpy()[i % 9] # 0", "read_feather", "pd.read_feather"),
        ("x = torch.from_numpy(np.load(self.paths[i // 9])) # 0\nreturn x[i % 9]", "load", "np.load"),
        ("x = np.load(self.paths[i // 9]).astype('float32') # 0\nreturn x[i % 9]", "load", "np.load"),
        ("return pickle.load(open(self.paths[i // 9], 'rb'))[i % 9] # 0", None, "pickle.load"),
        ("with open(self.paths[i // 9], 'rb') as f:\n    x = pickle.load(f) # 0\nreturn x[i % 9]", None, "pickle.load"),
        ("return pd.read_csv(self.paths[i >> 9]).iloc[i & 511] # 0", "read_csv", "pd.read_csv"),
        ("n = i // 8\nwith open(self.paths[n]) as f:\n    all = json.load(f) # 0\nreturn all['boxes'][i - 8 * n]", "load", "json.load"),
    ],
)  # fmt: skip
def test_one_row_of_a_file_of_many(tmp_path: Path, body: str, inner: str | None, call: str) -> None:
    assert found(tmp_path, item(body), inner) == call


def test_a_function_that_a_library_decorates(tmp_path: Path) -> None:
    file = tmp_path / "data.py"
    file.write_text(item("return pl.read_parquet(self.paths[i // 9])[i % 9]").strip())
    line = file.read_text().count("\n") + 1
    wrapper = Frame("deprecate.<locals>.decorate.<locals>.wrapper", f"{PACKAGES}/polars/_utils/deprecation.py", 128)
    reads = Frame("read_parquet", f"{PACKAGES}/polars/io/parquet/functions.py", 200)
    user = Frame("__getitem__", str(file), line)
    assert whole_read((reads, wrapper, user)) == {"kind": "file", "call": "pl.read_parquet"}
    assert whole_read((wrapper, user)) is None


@pytest.mark.parametrize(
    "body",
    [
        "return torch.load(self.paths[i]) # 0",
        "return torch.load(self.paths[i])['image'] # 0",
        "return torch.load(self.paths[i // 1000]) # 0",
        "clip = np.load(self.paths[i]) # 0\nt = random.randrange(len(clip))\nreturn clip[t]",
        "box = self.boxes[i]\nreturn np.load(box.path)[box.top : box.bottom, box.left : box.right] # 0",
        "return np.load(self.paths[i // 1000], mmap_mode='r')[i % 1000] # 0",
        "return np.load(self.paths[i // 1000], 'r')[i % 1000] # 0",
        "return np.load(self.paths[i // 1000], mmap_mode=self.mode)[i % 1000] # 0",
        "return torch.load(self.paths[i // 1000], mmap=True)[i % 1000] # 0",
        "return torch.tensor(len(np.load(self.paths[i // 1000]))) # 0",
        "s, r = divmod(i, 9)\nif s != self.now:\n    self.now, self.images = s, torch.load(self.paths[s]) # 0\nreturn self.images[r]",
        "for s in range(3):\n    images = torch.load(self.paths[s // 2]) # 0\n    yield images[i % 2]",
    ],
)  # fmt: skip
def test_a_file_of_its_own_or_one_that_is_kept_is_none(tmp_path: Path, body: str) -> None:
    assert found(tmp_path, item(body)) is None


TAKEN = {
    "a zip": (
        "with zipfile.ZipFile(os.path.join(self.root, archive)) as z: # 0\n    return z.read(member)",
        "ZipFile.__init__",
    ),
    "kept in a name": ("z = zipfile.ZipFile(archive) # 0\nreturn Image.open(z.open(member))", "ZipFile.__init__"),
    "a tar": ("with tarfile.open(archive) as t: # 0\n    return t.extractfile(member)", "TarFile.open"),
    "HDF5": ("with h5py.File(archive, 'r') as f: # 0\n    return f[member][:]", "File.__init__"),
}


@pytest.mark.parametrize("form", TAKEN)
def test_an_archive_that_is_opened_for_one_of_its_items(tmp_path: Path, form: str) -> None:
    body, inner = TAKEN[form]
    together = f"archive, member, label = self.rows[i]\n{body}"
    assert found(tmp_path, item(together), inner, kind="archive") is not None
    alone = f"archive, member = self.paths[i], 'image'\n{body}"
    assert found(tmp_path, item(alone), inner, kind="archive") is None, "each item has its own"
    guarded = f"archive, member = self.rows[i]\nif archive != self.last:\n{indent(body, '    ')}"
    assert found(tmp_path, item(guarded), inner, kind="archive") is None, "it is kept"


def test_an_image_that_is_opened_is_no_archive(tmp_path: Path) -> None:
    body = "path, box = self.rows[i]\nimage = Image.open(path) # 0\nreturn image[box]"
    assert found(tmp_path, item(body), "open") is None and found(tmp_path, item(body), "open", kind="archive") is None


HELPER = """
import functools, torch
class Items:
    def __getitem__(self, i):
        shard, row = divmod(i, 1000)
        return self.read(self.paths[shard])[row].float() # 1
    {kept}
    def read(self, path):
        images = torch.load(path) # 0
        return images
"""


def test_a_method_that_reads_for_the_item(tmp_path: Path) -> None:
    plain = HELPER.format(kept="")
    assert found(tmp_path, plain, "load", "read", "__getitem__") == "torch.load"
    assert found(tmp_path, plain, "load", "read") is None, "nobody knows which file"
    assert (
        found(tmp_path, plain.replace("return images", "return images.mean()"), "load", "read", "__getitem__") is None
    )
    kept = HELPER.format(kept="@functools.lru_cache(4)")
    assert found(tmp_path, kept, "load", "read", "__getitem__") is None


def test_an_array_of_an_archive_that_many_items_share(tmp_path: Path) -> None:
    unpacked = Frame("NpzFile.__getitem__", f"{PACKAGES}/numpy/lib/_npyio_impl.py", 250)

    def read(body: str) -> bool:
        file = tmp_path / f"data{len(list(tmp_path.iterdir()))}.py"
        file.write_text(item(body).strip())
        line = file.read_text().count("\n") + 1
        return whole_read((unpacked, Frame("__getitem__", str(file), line))) == {"kind": "file", "call": "np.load"}

    assert read('return np.load(self.paths[i // 64])["images"][i % 64]')
    assert read('with np.load(self.paths[i // 64]) as archive:\n    return archive["images"][i % 64]')
    assert not read('return np.load(self.paths[i])["images"][3]')
