"""Shared by the rules on preprocessing: costly transforms of whole pictures before the one that makes the pictures smaller."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rn50_advisor.advisor.model.analysis import LoaderFacts
from rn50_advisor.advisor.model.findings import Fix, Where
from rn50_advisor.advisor.model.input.data_loaders import within
from rn50_advisor.advisor.model.input.sample_cost import SampleCost
from rn50_advisor.advisor.model.job_changes import ShrinkFirst
from rn50_advisor.probes.documents.loader_documents import DescribedDataset

# The names of torchvision, Albumentations and kornia. These cut a part out of the picture and keep its scale.
_CROPS = frozenset({"CenterCrop", "RandomCrop"})
_SCALING = frozenset({"LongestMaxSize", "RandomResizedCrop", "Resize", "SmallestMaxSize"})
# They change each pixel by itself or mirror the picture: before and after a crop they do the same, or nearly so.
_POINTWISE = frozenset((
    "ChannelShuffle", "ColorJiggle", "ColorJitter", "ConvertImageDtype", "Equalize", "Flip", "Grayscale", "HorizontalFlip",
    "HueSaturationValue", "InvertImg", "Normalize", "Posterize", "RGBShift", "RandomAutocontrast", "RandomBrightness",
    "RandomBrightnessContrast", "RandomChannelPermutation", "RandomContrast", "RandomEqualize", "RandomGamma", "RandomGrayscale",
    "RandomHorizontalFlip", "RandomHue", "RandomInvert", "RandomPhotometricDistort", "RandomPosterize", "RandomSaturation",
    "RandomSolarize", "RandomVerticalFlip", "Solarize", "ToDtype", "ToFloat", "ToGray", "ToSepia", "VerticalFlip",
))  # fmt: skip
# They also move pixels, by angles and shares of the picture. A crop after them may cut off the corners that they leave empty.
_GEOMETRIC = frozenset((
    "AugMix", "AutoAugment", "RandAugment", "RandomAffine", "RandomPerspective", "RandomRotation", "Rotate", "ShiftScaleRotate",
    "TrivialAugmentWide",
))  # fmt: skip
# They keep the size but not their place: blur and sharpening count in pixels, and conversions change what a resize is given.
_KEEPING = frozenset((
    "Blur", "CLAHE", "GaussNoise", "GaussianBlur", "MedianBlur", "MotionBlur", "PILToTensor", "RandomAdjustSharpness", "RandomErasing",
    "Sharpen", "ToImage", "ToPILImage", "ToPureTensor", "ToTensor", "ToTensorV2",
))  # fmt: skip
_PIXELS_LEFT_MAX = 0.5  # of the pixels; with more of them left, fixed costs of a transform may be as large as the gain
_SHARE_MIN = 0.25  # of a sample's CPU time; of less, other ways to a cheaper sample promise more
_SAVED_WORST = 0.8  # of what the pixels say: a call has a fixed cost, and pictures differ in size
_SIZE = re.compile(r"\bsize=[\[(]?(\d+)(?:, ?(\d+))?")
_HEIGHT_WIDTH = re.compile(r"\bheight=(\d+).*?\bwidth=(\d+)")
_MAX_SIZE = re.compile(r"\bmax_size=(\d+)")
_SOMETIMES = re.compile(r"\bp=0?\.\d")

Size = tuple[float, float]  # width, height


@dataclass(frozen=True, slots=True)
class LateShrink:
    """`transforms`, in the job's order, work on pictures of the size `before` that `shrink` then brings to `after`.

    `cpu_s`: CPU time per sample that they need for the pixels that `shrink` drops; `share`: of a sample's CPU time.
    """

    shrink: str
    transforms: tuple[str, ...]
    before: Size
    after: Size
    cpu_s: float
    share: float
    moves_pixels: bool

    @property
    def shares_saved(self) -> tuple[float, float]:
        """At best and at worst, of a sample's CPU time."""
        return self.share, _SAVED_WORST * self.share

    @property
    def names(self) -> str:
        first = ", ".join(self.transforms[:-1])
        return f"{first} and {self.transforms[-1]}" if first else self.transforms[-1]

    @property
    def words(self) -> str:
        """For a note that continues `cpu_s`: `of a sample in ColorJitter, for pixels that Resize then drops (1280×960 → 128×128)`."""
        sizes = " → ".join(f"{width:.0f}×{height:.0f}" for width, height in (self.before, self.after))
        return f"of a sample in {self.names}, for pixels that {self.shrink} drops ({sizes})"

    @property
    def basis(self) -> str:
        return f"samples without work on pixels that {self.shrink} drops"

    def fix(self, loader: Where | None) -> Fix:
        """The fix; the loader's place until the transforms' own is found in the job's code."""
        corners = f", and empty corners of {self.names} stay in the picture" if self.moves_pixels else ""
        more = f": the other transforms then work on {self.after[0]:.0f}×{self.after[1]:.0f} pixels; augmentations differ slightly{corners}"
        change = ShrinkFirst(self.shrink, self.transforms)
        return Fix.of(f"put {self.shrink} before {self.names}", change, loader, "small change", more=more)


def late_shrink(cost: SampleCost | None, loader: LoaderFacts | None) -> LateShrink | None:
    """The costliest run of transforms that could follow a smaller picture. None without one, or if sizes or order are unknown.

    Without the sizes the advice might cost time: a `Resize` may as well enlarge the pictures.
    """
    if cost is None or loader is None or not cost.width or not cost.height:
        return None
    steps = _steps(loader.dataset)
    found = _late(cost, steps, (cost.width, cost.height)) if steps else ()
    return max(found, key=lambda late: late.share, default=None)


def _late(cost: SampleCost, steps: Sequence[tuple[str, str]], size: Size) -> Iterator[LateShrink]:
    names = [name for name, _ in steps]
    cpu_s = {part.name: part.cpu_s for part in cost.parts if part.kind == "transform"}
    since = 0  # transforms from here on may follow the next one that shrinks
    for n, (name, settings) in enumerate(steps):
        if name not in _CROPS | _SCALING:
            if name not in _POINTWISE | _GEOMETRIC | _KEEPING or "expand=True" in settings:
                return  # the size of its pictures is unknown
            since = n + 1 if name in _KEEPING else since
            continue
        after = _size_after(name, settings, size)
        if after is None:
            return
        first = since
        if name in _CROPS:  # a crop cuts off the corners that a rotation leaves empty: it stays behind it
            first = next((at + 1 for at in range(n - 1, since - 1, -1) if names[at] in _GEOMETRIC), since)
        left = after[0] * after[1] / (size[0] * size[1])
        # one name is one part of the cost, however often it is in the list
        saved_s = sum((1.0 - left) * cpu_s.get(each, 0.0) / names.count(each) for each in names[first:n])
        share = saved_s / max(cost.cpu_s, 1e-9)
        if left <= _PIXELS_LEFT_MAX and share >= _SHARE_MIN:
            moved = tuple(names[first:n])
            yield LateShrink(name, moved, size, after, saved_s, share, any(each in _GEOMETRIC for each in moved))
        size, since = after, n + 1  # two that shrink keep their order: a crop of a resized picture is another crop


def _size_after(name: str, settings: str, size: Size) -> Size | None:
    """The size of the pictures that a crop or resize returns; None if its settings don't show it, or if it spares some pictures."""
    if _SOMETIMES.search(settings):
        return None
    if name.endswith("MaxSize"):
        longest = _MAX_SIZE.search(settings)
        return _scaled(size, int(longest[1]), max(size) if name == "LongestMaxSize" else min(size)) if longest else None
    if both := _HEIGHT_WIDTH.search(settings):
        return float(both[2]), float(both[1])
    given = _SIZE.search(settings)
    if given is None:
        return None
    if given[2] is None and name == "Resize":  # the shorter side
        return _scaled(size, int(given[1]), min(size))
    return float(given[2] or given[1]), float(given[1])


def _scaled(size: Size, side: float, now: float) -> Size:
    return size[0] * side / now, size[1] * side / now


def _steps(dataset: DescribedDataset) -> tuple[tuple[str, str], ...]:
    """Names and settings of the transforms, in their order; empty if parts of the data set have different ones."""
    found = set(_lists(dataset))
    return found.pop() if len(found) == 1 else ()


def _lists(dataset: DescribedDataset) -> Iterator[tuple[tuple[str, str], ...]]:
    for each in within(dataset):
        names = each.get("transforms")
        if names:
            settings = each.get("transform_settings") or [None] * len(names)
            yield tuple((name or "", text or "") for name, text in zip(names, settings, strict=False))
