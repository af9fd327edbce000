"""Writes an ImageFolder of ImageNet-like JPEGs (train/ and val/), the same bytes for the same seed and the same Pillow.

    python samples/make_images.py OUT --classes 10 --per-class 40 --val-per-class 4

The pictures are generated but cost a loader as much as photographs: dimensions and file sizes are distributed as in
ImageNet (most are 500x375, around 110 KB), detail is uneven, and each class has its own hue and shape, so that a model
can learn them. Running it again adds missing pictures.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

RECIPE = 1  # part of every seed: raise it when the pictures change, so that old folders are not mixed with new ones
MANIFEST = "manifest.json"
PARTIAL = ".part"  # torchvision's ImageFolder ignores this suffix

# (width, height, share): the common formats of ILSVRC2012's training set; the few large ones carry many of its bytes.
FORMATS = (
    (500, 375, 0.56),
    (375, 500, 0.14),
    (500, 333, 0.15),
    (333, 500, 0.05),
    (500, 400, 0.04),
    (400, 300, 0.03),
    (800, 600, 0.02),
    (1024, 768, 0.01),
)
MEDIAN_BYTES = 105_000  # of a 500x375 picture; with the spread below the mean is near 110 KB
SPREAD_LOG = 0.30  # standard deviation of the logarithm of the size
LOWEST_QUALITY, HIGHEST_QUALITY = 40, 99
CHUNK = 8  # pictures per task: about a third of a second, so that Ctrl-C works soon


@dataclass(frozen=True)
class Picture:
    split: str
    label: int
    index: int

    def path(self, root: Path) -> Path:
        return root / self.split / f"class{self.label:03d}" / f"{self.split}_{self.label:03d}_{self.index:06d}.jpg"


def one_over_f(rng: np.random.Generator, height: int, width: int) -> NDArray[np.float32]:
    """Noise with the spectrum of natural scenes (amplitude ~ 1/f), mean 0, standard deviation 1."""
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :])
    frequency[0, 0] = 1.0
    spectrum = np.fft.rfft2(rng.standard_normal((height, width), dtype=np.float32)) / frequency
    spectrum[0, 0] = 0.0
    noise = np.fft.irfft2(spectrum, s=(height, width))
    return np.asarray(noise / noise.std(), dtype=np.float32)


def smooth_field(rng: np.random.Generator, height: int, width: int, *, cells: int) -> NDArray[np.float32]:
    """A slowly changing field in 0..1: a few random cells, interpolated."""
    coarse = Image.fromarray(rng.random((cells, cells), dtype=np.float32))
    field: NDArray[np.float32] = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC))
    return field.clip(0.0, 1.0)


def hue_colour(hue: float, *, value: float) -> tuple[int, int, int]:
    channels = (0.5 + 0.5 * math.cos(2 * math.pi * (hue - offset)) for offset in (0.0, 1 / 3, 2 / 3))
    red, green, blue = (int(255 * value * (0.25 + 0.75 * channel)) for channel in channels)
    return red, green, blue


def draw_shapes(rng: np.random.Generator, canvas: Image.Image, label: int, hue: float) -> None:
    """Draws three to eight objects; the class decides how many corners they have (0: ellipses)."""
    draw = ImageDraw.Draw(canvas)
    corners = (0, 3, 4, 5, 6)[label % 5]
    for _ in range(int(rng.integers(3, 9))):
        x, y = rng.random(2) * canvas.size
        radius = float(rng.uniform(0.05, 0.25)) * min(canvas.size)
        colour = hue_colour(hue + float(rng.normal(0.0, 0.06)), value=float(rng.uniform(0.35, 1.0)))
        if corners:
            draw.regular_polygon((x, y, radius), corners, rotation=int(rng.integers(360)), fill=colour)
        else:
            stretch = float(rng.uniform(0.6, 1.6))
            draw.ellipse((x - radius, y - radius * stretch, x + radius, y + radius * stretch), fill=colour)


def paint(rng: np.random.Generator, label: int, width: int, height: int) -> Image.Image:
    hue = (label * 0.618034) % 1.0  # golden ratio: neighbouring classes get distant hues
    light = 0.35 + 0.6 * smooth_field(rng, height, width, cells=4)
    sky = np.asarray(hue_colour(hue + float(rng.normal(0.1, 0.05)), value=0.9), dtype=np.float32)
    canvas = Image.fromarray((light[..., None] * sky).astype(np.uint8))
    draw_shapes(rng, canvas, label, hue)
    canvas = canvas.filter(ImageFilter.GaussianBlur(float(rng.uniform(0.4, 1.2))))
    strength = 8.0 + 30.0 * smooth_field(rng, height, width, cells=6)  # grey levels: some parts flat, some rich
    grain = rng.normal(0.0, 3.0, (height, width, 3)).astype(np.float32)  # sensor noise, which costs JPEG most
    texture = strength * one_over_f(rng, height, width)
    pixels = np.asarray(canvas, dtype=np.float32) + texture[..., None] + grain
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def encode(picture: Image.Image, target_bytes: float) -> bytes:
    """Returns JPEG bytes of the quality whose size is nearest to the target, found by bisection."""
    low, high = LOWEST_QUALITY, HIGHEST_QUALITY
    best = b""
    while low <= high:
        quality = (low + high) // 2
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=quality)
        data = buffer.getvalue()
        if not best or abs(len(data) - target_bytes) < abs(len(best) - target_bytes):
            best = data
        low, high = (quality + 1, high) if len(data) < target_bytes else (low, quality - 1)
    return best


def make_jpeg(seed: int, scale: float, picture: Picture) -> bytes:
    rng = np.random.default_rng([RECIPE, seed, picture.split == "val", picture.label, picture.index])
    shares = [share for *_, share in FORMATS]
    width, height = (round(side * scale) for side in FORMATS[int(rng.choice(len(FORMATS), p=shares))][:2])
    pixels_ratio = width * height / (500 * 375)
    target_bytes = MEDIAN_BYTES * pixels_ratio * math.exp(float(rng.normal(0.0, SPREAD_LOG)))
    return encode(paint(rng, picture.label, width, height), target_bytes)


def write_pictures(root: Path, seed: int, scale: float, pictures: list[Picture]) -> int:
    """Writes each picture to a temporary name first, so that a partial file never has the final name."""
    for picture in pictures:
        path = picture.path(root)
        partial = path.with_suffix(f"{path.suffix}.{os.getpid()}{PARTIAL}")
        partial.write_bytes(make_jpeg(seed, scale, picture))
        partial.replace(path)
    return len(pictures)


def allowed_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def progress(total: int) -> Iterator[Callable[[int], None]]:
    """Shows a progress bar on a terminal, otherwise prints a line for every tenth."""
    if sys.stdout.isatty():
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn  # noqa: PLC0415

        with Progress("making images", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as bar:
            task = bar.add_task("", total=total)
            yield lambda count: bar.advance(task, count)
        return
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        before, done = done, done + count
        if done * 10 // total > before * 10 // total:
            print(f"making images: {done}/{total}", flush=True)

    yield advance


def make_all(root: Path, seed: int, scale: float, pictures: list[Picture]) -> None:
    chunks = [pictures[start : start + CHUNK] for start in range(0, len(pictures), CHUNK)]
    processes = max(1, min(allowed_cores(), len(chunks)))
    pool = ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))
    try:
        # Workers inherit the ignored SIGINT: this process handles Ctrl-C, they finish their picture.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            tasks = [pool.submit(write_pictures, root, seed, scale, chunk) for chunk in chunks]
        finally:
            signal.signal(signal.SIGINT, handler)
        with progress(len(pictures)) as advance:
            for task in as_completed(tasks):
                advance(task.result())
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def open_folder(root: Path, settings: dict[str, float]) -> None:
    """Creates the folder, or checks that its pictures have these settings (only the counts may grow). Raises SystemExit if not."""
    manifest = root / MANIFEST
    if manifest.exists():
        old = json.loads(manifest.read_text())
        shrunk = [name for name in ("classes", "per_class", "val_per_class") if old[name] > settings[name]]
        if shrunk or any(old[name] != settings[name] for name in ("recipe", "seed", "scale")):
            raise SystemExit(f"{root} holds other images ({old}); delete it or name another folder")
    elif root.exists() and any(root.iterdir()):
        raise SystemExit(f"{root} is not empty and was not made by this program; name another folder")
    for split in ("train", "val"):
        for label in range(int(settings["classes"])):
            Picture(split, label, 0).path(root).parent.mkdir(parents=True, exist_ok=True)
    for leftover in root.glob(f"*/class???/*_???_??????.jpg.*{PARTIAL}"):  # from a killed run
        leftover.unlink()
    partial = manifest.with_suffix(PARTIAL)
    partial.write_text(json.dumps(settings, indent=1) + "\n")
    partial.replace(manifest)


def wanted_pictures(classes: int, per_class: int, val_per_class: int) -> list[Picture]:
    counts = (("train", per_class), ("val", val_per_class))
    return [Picture(split, c, i) for split, count in counts for c in range(classes) for i in range(count)]


def at_least(lowest: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if int(text) < lowest:
            raise argparse.ArgumentTypeError(f"must be {lowest} or more")
        return int(text)

    return number


def scale(text: str) -> float:
    if not 0.1 <= float(text) <= 10:
        raise argparse.ArgumentTypeError("must be between 0.1 and 10")
    return float(text)


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--classes", type=at_least(1), default=10)
    parser.add_argument("--per-class", type=at_least(1), default=40, help="training images of each class (default 40)")
    parser.add_argument("--val-per-class", type=at_least(0), default=4)
    parser.add_argument("--scale", type=scale, default=1.0, help="1: as in ImageNet; 2: twice as wide and high")
    parser.add_argument("--seed", type=at_least(0), default=0)
    return parser.parse_args(argv)


def stop(signum: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signum)


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(argv)
    signal.signal(signal.SIGTERM, stop)
    settings = {name: getattr(args, name) for name in ("seed", "scale", "classes", "per_class", "val_per_class")}
    open_folder(args.out, {"recipe": RECIPE, **settings})
    wanted = wanted_pictures(args.classes, args.per_class, args.val_per_class)
    missing = [picture for picture in wanted if not picture.path(args.out).exists()]
    start = time.perf_counter()
    try:
        if missing:
            make_all(args.out, args.seed, args.scale, missing)
    except KeyboardInterrupt:
        print("interrupted: what is written is whole, run the same command again to complete it", file=sys.stderr)
        return 130
    seconds = time.perf_counter() - start
    mean_kb = sum(picture.path(args.out).stat().st_size for picture in wanted) / len(wanted) / 1000
    made = f"{len(missing)} made in {seconds:.1f} s" if missing else "all there already"
    print(f"{args.out}: {len(wanted)} images of {args.classes} classes, mean {mean_kb:.1f} KB ({made})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
