"""Describes arrays that a data set keeps open and that lie in chunks on disk (HDF5, zarr): a chunk is read and unpacked as a whole.

Looks at a process's data set once, when its first items have been made: workers open their files themselves. Asks only the libraries' own
classes, for shapes and names. Each array has one small file for all processes.
"""

from __future__ import annotations

import itertools
import json
import os
import zlib
from typing import TYPE_CHECKING, Any

from .. import rank_ring_folder
from ..side_files import CHUNKED
from ..signal_exceptions import reraise_signal_exception
from .sample_parts import datasets, own

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...documents.event_documents import ChunkedArray

_ATTRIBUTES_MAX = 100
_MEMBERS_MAX = 20  # of an open HDF5 file
_ARRAYS_MAX = 8
_CHARACTERS = 200


def note_chunked_arrays(folder: str, dataset: Any) -> None:
    """Writes what is known of each array. Never raises: it runs inside the job's code."""
    try:
        for array in itertools.islice(_described(dataset), _ARRAYS_MAX):
            text = json.dumps(array)
            name = CHUNKED % zlib.crc32(text.encode())
            if not os.path.exists(os.path.join(folder, name)):
                rank_ring_folder.put(folder, name, text)
    except Exception:
        reraise_signal_exception()


def _described(dataset: Any) -> Iterator[ChunkedArray]:
    for each in datasets(dataset):
        for value in list(own(each).values())[:_ATTRIBUTES_MAX]:
            for array in _arrays(value):
                chunk, shape = array.chunks, array.shape
                if chunk and shape and all(type(n) is int for n in (chunk[0], shape[0])):
                    yield {
                        "name": str(array.name or "").strip("/")[:_CHARACTERS],
                        "rows": int(shape[0]),
                        "chunk": [int(n) for n in chunk],
                        "packed": bool(_packing(array)),
                        "itemsize": int(array.dtype.itemsize),
                    }


def _arrays(value: Any) -> list[Any]:
    """The value if it is an array in chunks, or those at the top of an HDF5 file: a group of zarr may lie on a server."""
    library, _, module = type(value).__module__.partition(".")
    name = type(value).__qualname__
    if library == "h5py" and name in ("File", "Group"):
        # a link into another file would open that, and lock it
        here = (key for key in value if type(value.get(key, getlink=True)).__qualname__ == "HardLink")
        members = (value[key] for key in itertools.islice(here, _MEMBERS_MAX))
        return [found for found in members if type(found).__qualname__ == "Dataset"]
    is_array = (library, name) in (("h5py", "Dataset"), ("zarr", "Array")) and module.startswith(("_hl", "core"))
    return [value] if is_array else []


def _packing(array: Any) -> Any:
    """The compression of an array, by the names that the libraries and their versions give it."""
    for name in ("compression", "compressors", "compressor"):
        found = getattr(array, name, None)
        if found:
            return found
    return None
