"""Trains on items of an archive, or with annotations of a JSON file, that are opened for each item or once."""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import shared.training
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

SHAPE = (3, 16, 16)
ARCHIVES = 8


def read_annotations(path: Path) -> dict[str, Any]:
    with path.open() as file:
        annotations: dict[str, Any] = json.load(file)
    return annotations


class Items(Dataset[tuple[Tensor, int]]):
    """`opened`: "each" for each item, "kept" once in each process, "own" from an archive for each item, "shared" one of eight for each
    item, "shared-kept" these once in each process.
    """

    def __init__(self, folder: Path, length: int, opened: str, annotated: bool, work: int) -> None:
        self.path = folder / "items.zip"
        self.annotations_path = folder / "annotations.json"
        self.own = [folder / f"{number % ARCHIVES}.zip" for number in range(length)]
        self.places = [(folder / f"{number % ARCHIVES}.zip", f"{number // ARCHIVES}.npy") for number in range(length)]
        self.archives: dict[Path, zipfile.ZipFile] = {}
        self.length = length
        self.opened = opened
        self.annotated = annotated
        self.work = work
        self.kept: zipfile.ZipFile | None = None
        self.annotations: dict[str, Any] | None = None

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, at: int) -> tuple[Tensor, int]:
        if self.opened == "shared":
            path, name = self.places[at]
            with zipfile.ZipFile(path) as archive, archive.open(name) as file:
                content = file.read()
        elif self.opened == "each" and not self.annotated:
            with zipfile.ZipFile(self.path) as archive:
                content = archive.read(f"{at}.npy")
        elif self.opened == "own":
            with zipfile.ZipFile(self.own[at]) as archive:
                content = archive.read("0.npy")
        elif self.opened == "shared-kept":
            path, name = self.places[at]
            if path not in self.archives:
                self.archives[path] = zipfile.ZipFile(path)
            content = self.archives[path].read(name)
        else:
            if self.kept is None:
                self.kept = zipfile.ZipFile(self.path)
            content = self.kept.read(f"{at}.npy")
        values = np.load(io.BytesIO(content))
        for _ in range(self.work):
            values = np.sort(values.reshape(-1)).reshape(SHAPE)
        return torch.from_numpy(values), self.label(at)

    def label(self, at: int) -> int:
        if not self.annotated:
            return at % 10
        if self.opened == "each":
            return int(read_annotations(self.annotations_path)[str(at)]["label"])
        if self.annotations is None:
            self.annotations = read_annotations(self.annotations_path)
        return int(self.annotations[str(at)]["label"])


def write(folder: Path, entries: int) -> None:
    random = np.random.default_rng(0)
    with zipfile.ZipFile(folder / "items.zip", "w") as archive:
        for number in range(entries):
            archive.writestr(f"{number}.npy", content(random))
    for number in range(ARCHIVES):
        with zipfile.ZipFile(folder / f"{number}.zip", "w") as archive:
            for part in range(entries):
                archive.writestr(f"{part}.npy", content(random) if part < entries // ARCHIVES or not part else b"")
    boxes = {str(number): {"label": number % 10, "boxes": [[1, 2, 3, number]] * 4} for number in range(entries)}
    (folder / "annotations.json").write_text(json.dumps(boxes))


def content(random: np.random.Generator) -> bytes:
    file = io.BytesIO()
    np.save(file, random.standard_normal(SHAPE).astype("float32"))
    return file.getvalue()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=120)
    add("--entries", type=int, default=1000)
    add("--workers", type=int, default=0)
    add("--opened", choices=("each", "kept", "own", "shared", "shared-kept"), default="each")
    add("--annotated", action="store_true", help="the annotations are read for each item, not the archive")
    add("--work", type=int, default=0, help="times that an item's values are sorted")
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), options.entries)
        data = Items(Path(folder), options.entries, options.opened, options.annotated, options.work)
        workers = options.workers
        loader = DataLoader(
            data, batch_size=16, shuffle=True, num_workers=workers, persistent_workers=workers > 0, drop_last=True
        )
        wide = nn.Sequential(nn.Flatten(), nn.Linear(768, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU())
        shared.training.train(loader, nn.Sequential(wide, nn.Linear(2048, 10)), options.steps)


if __name__ == "__main__":
    main()
