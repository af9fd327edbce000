"""Detects batches of images that store bytes as floating-point numbers. Reads a few hundred values on the host, never on a device.

An image from a file has 256 levels per channel. `ToTensor` and `Normalize` scale and shift each channel, so with any mean and deviation its
values are on a grid of at most 256 points: the batch has no more information than the bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...documents.rank_documents import PictureFacts

CHECKED_STEPS = (8, 32, 128)  # steps: the first batches may be warm-up, or too uniform
_DEPTH_MAX = 3
_ITEMS_MAX = 32
_CHANNELS = (1, 3, 4)
_POINTS_ACROSS = 24  # approximate number of rows and columns read per channel
_LEVELS = 256
_VALUES_MIN = 16  # minimum number of different values for a result
_GRID_TOLERANCE = 0.02  # fraction of a level; float32 is off by at most 0.004 over 256 levels


def describe_pictures(batch: Any) -> PictureFacts | None:
    """Type, device and bytes of a batch's images, and whether their values are bytes stored as floats; None without images."""
    pictures = _find(batch, 0)
    if pictures is None:
        return None
    on_host = pictures.device.type == "cpu"
    dtype = str(pictures.dtype).rpartition(".")[2]
    return {
        "dtype": dtype,
        "shape": [int(n) for n in pictures.shape],
        "device": pictures.device.type,
        "bytes": int(pictures.numel() * pictures.element_size()),
        "from_bytes": _from_bytes(pictures) if on_host and dtype in ("float32", "float64") else None,
    }


def _find(item: Any, depth: int) -> Any:
    """The first tensor of four dimensions, one of them channels."""
    if hasattr(type(item), "element_size"):  # calls no code of the job's objects
        shape = item.shape
        return item if len(shape) == 4 and (shape[1] in _CHANNELS or shape[3] in _CHANNELS) else None
    if isinstance(item, dict):
        item = list(item.values())
    if not isinstance(item, (list, tuple)) or depth >= _DEPTH_MAX:
        return None
    return next((found for part in item[:_ITEMS_MAX] if (found := _find(part, depth + 1)) is not None), None)


def _from_bytes(pictures: Any) -> bool | None:
    """Checks the first image whose channels have enough different values."""
    last = pictures.shape[1] not in _CHANNELS
    for picture in pictures[:4].detach():
        for channel in range(picture.shape[-1] if last else picture.shape[0]):
            plane = picture[:, :, channel] if last else picture[channel]
            rows, columns = (max(1, n // _POINTS_ACROSS) for n in plane.shape)
            values = plane[::rows, ::columns].tolist()
            found = on_a_grid([value for row in values for value in row])
            if found is not None:
                return found
    return None


def on_a_grid(values: list[float]) -> bool | None:
    """True if the values lie on at most 256 evenly spaced levels; None with too few different values."""
    levels = sorted(set(values))
    if len(levels) < _VALUES_MIN:
        return None
    least = min(levels[n + 1] - levels[n] for n in range(len(levels) - 1))
    for parts in (1, 2, 3):  # neighbouring levels may be missing
        step = least / parts
        places = [(value - levels[0]) / step for value in levels]
        if places[-1] > _LEVELS:
            return False
        if all(abs(place - round(place)) <= _GRID_TOLERANCE for place in places):
            return True
    return False
