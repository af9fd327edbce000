"""Of which numbers a batch of pictures is made: a few hundred of them, looked at once on the host, never on a device.

A picture that was read from a file has 256 levels a channel. `ToTensor` and `Normalize` scale and shift each channel, so whatever mean
and deviation they were given, its values still lie on a grid of at most 256 points: such a batch says no more than its bytes did.
"""

from __future__ import annotations

from typing import Any

LOOK_AT = (8, 32, 128)  # steps: the first batches may be warm-up, or too plain to tell
_DEPTH = 3
_ITEMS_MAX = 32
_CHANNELS = (1, 3, 4)
_ACROSS = 24  # about so many rows and columns of each channel
_LEVELS = 256
_PLAIN = 16  # fewer different values and nothing can be said
_OFF_GRID = 0.02  # of one level; single precision is off by 0.004 at most over 256 of them


def describe_pictures(batch: Any) -> dict[str, Any] | None:
    """Type, place, bytes of the pictures in a batch, and whether they are bytes in disguise; None where there are none."""
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
    if hasattr(type(item), "element_size"):  # never asking an object of the job's
        shape = item.shape
        return item if len(shape) == 4 and (shape[1] in _CHANNELS or shape[3] in _CHANNELS) else None
    if isinstance(item, dict):
        item = list(item.values())
    if not isinstance(item, (list, tuple)) or depth >= _DEPTH:
        return None
    return next((found for part in item[:_ITEMS_MAX] if (found := _find(part, depth + 1)) is not None), None)


def _from_bytes(pictures: Any) -> bool | None:
    """By the first picture whose channels have enough different values to tell."""
    last = pictures.shape[1] not in _CHANNELS
    for picture in pictures[:4].detach():
        for channel in range(picture.shape[-1] if last else picture.shape[0]):
            plane = picture[:, :, channel] if last else picture[channel]
            rows, columns = (max(1, n // _ACROSS) for n in plane.shape)
            values = plane[::rows, ::columns].tolist()
            found = on_a_grid([value for row in values for value in row])
            if found is not None:
                return found
    return None


def on_a_grid(values: list[float]) -> bool | None:
    """Whether these lie on at most 256 evenly spaced levels; None where there are too few different ones to tell."""
    levels = sorted(set(values))
    if len(levels) < _PLAIN:
        return None
    least = min(levels[n + 1] - levels[n] for n in range(len(levels) - 1))
    for parts in (1, 2, 3):  # neighbouring levels need not have been met
        step = least / parts
        places = [(value - levels[0]) / step for value in levels]
        if places[-1] > _LEVELS:
            return False
        if all(abs(place - round(place)) <= _OFF_GRID for place in places):
            return True
    return False
