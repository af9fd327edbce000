"""Properties of a dataset at the creation of its loader: classes, length, transforms, what it holds in memory.

Never touches data but row numbers of an indices mapping and the sizes of a few objects in large lists and dicts. Runs no property,
`__getattr__` or `__repr__` of the user's, and keeps only plain values.
"""

from __future__ import annotations

import itertools
import os
import sys
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..signal_exceptions import reraise_signal_exception
from ..workers.sample_parts import containers, datasets, steps_of, transform_files
from ..workers.sample_parts import own as attributes

if TYPE_CHECKING:
    from ...documents.loader_documents import DescribedDataset, DescribedObjects, NumberColumn

_DEPTH = 4  # nested wrappers around a dataset
_PARTS = 4  # described parts of a concatenation
_TRANSFORMS = 20
_CHARACTERS = 200
# The reprs of these packages list settings. A user's own repr has unknown cost and side effects.
_TERSE = ("torchvision.", "albumentations.", "timm.", "torchaudio.", "kornia.")
_ROOTS = ("root", "root_dir", "data_dir", "path", "img_dir")
_WRAPPED = ("dataset", "base_dataset", "_dataset", "ds", "_hf_dataset")  # Subset, and usual names in wrappers
_SLOW_NS = 50_000_000
_ATTRIBUTES = 100
_OBJECTS_MIN = 10_000  # fewer take no memory worth a word
_OBJECTS_SEEN = 20
_MEMBERS_SEEN = 5  # of each object, and of each of these, three levels deep: 2,500 objects at most, in a millisecond
_MEMBERS_DEPTH = 3
_PAGE_BYTES = 4096
_LOOKUPS = 8  # the first one reads the mapping's page, which may lie on disk; the fastest counts
_ROWS_SEEN = 4
_COLUMNS_SEEN = 50
_LEVELS_MAX = 6  # of lists in lists
_HANDLES = (
    "_io", "h5py", "lmdb", "netCDF4", "sqlite3", "zipfile", "tarfile", "psycopg2", "pymysql", "redis", "pymongo",
)  # fmt: skip
_slow_lengths: set[str] = set()  # classes whose `__len__` was slow: it is not called again


def describe_dataset(dataset: Any, depth: int = 0) -> DescribedDataset:
    """Class, length, root folder and transforms of a dataset and of the datasets inside it."""
    facts: DescribedDataset = {"class": _class(dataset), "length": _length(dataset)}
    root = next((path for name in _ROOTS if (path := _path(own(dataset, name))) is not None), None)
    if root is not None:
        facts["root"] = root
    inner = next((found for name in _WRAPPED if _is_dataset(found := own(dataset, name))), None)
    parts = own(dataset, "datasets")  # ConcatDataset, ChainDataset, StackDataset
    if isinstance(parts, dict):
        parts = list(parts.values())
    wrapped = [inner] if inner is not None else list(parts)[:_PARTS] if isinstance(parts, (list, tuple)) else []
    steps = _transforms(dataset, wrapped)
    if steps is not None:
        facts["transforms"] = [name_of(step) for step in steps[:_TRANSFORMS]]
        details = [_settings(step) for step in steps[:_TRANSFORMS]]
        if any(details):
            facts["transform_settings"] = details
        files = transform_files(steps[:_TRANSFORMS])
        if files:
            facts["transform_files"] = files
    held = _held(dataset)
    if held:
        facts["held"] = held
    arrays = _arrays(dataset, facts["length"])
    if arrays:
        facts["arrays"] = arrays
    objects = _objects(dataset)
    if objects:
        facts["objects"] = objects
    facts.update(_of_known_kinds(dataset))
    if depth < _DEPTH and inner is not None:
        facts["inner"] = describe_dataset(inner, depth + 1)
    elif depth < _DEPTH and isinstance(parts, (list, tuple)) and parts:
        facts["parts"] = [describe_dataset(part, depth + 1) for part in parts[:_PARTS]]
        facts["parts_count"] = len(parts)
    below = facts.get("inner") or next(iter(facts.get("parts", ())), None)
    if below and below.get("root"):
        facts.setdefault("root", below["root"])
    return facts


def _transforms(dataset: Any, wrapped: list[Any]) -> list[Any] | None:
    """The transforms under the usual names; else the first list of transforms under another name, unless an inner dataset has the same."""
    transform = own(dataset, "transform")
    if transform is None:
        transform = own(dataset, "transforms")
    if transform is not None:
        return transform_steps(transform)
    known = containers([each for inside in wrapped for each in datasets(inside)])
    for found in containers([dataset]):
        if not any(found is other for other in known):
            return list(steps_of(found))
    return None


def own(value: Any, name: str) -> Any:
    """An attribute stored in the object or its classes; None if reading it would run code."""
    found = attributes(value)
    if name in found:
        return found[name]
    modules = found.get("_modules")  # nn.Module keeps its children in another dict
    if isinstance(modules, dict) and name in modules:
        return modules[name]
    for cls in type(value).__mro__:
        if name in cls.__dict__:
            plain = cls.__dict__[name]
            return None if hasattr(type(plain), "__get__") else plain
    return None


def transform_steps(transform: Any) -> list[Any]:
    """The parts of a Compose, an nn.Sequential or a list of transforms; else the transform itself."""
    inner = own(transform, "transform")  # torchvision's StandardTransform
    if inner is not None and own(transform, "transforms") is None:
        transform = inner
    steps = transform if isinstance(transform, (list, tuple)) else own(transform, "transforms")
    if isinstance(steps, (list, tuple)):
        return list(steps)
    modules = own(transform, "_modules")
    if type(transform).__name__ == "Sequential" and isinstance(modules, dict):
        return list(modules.values())
    return [transform]


def name_of(value: Any) -> str | None:
    """The name of a function, of the function inside a partial, or of the class of any other value."""
    if value is None:
        return None
    if type(value).__name__ == "partial" and hasattr(value, "func"):
        value = value.func
    if type(value).__name__ == "builtin_function_or_method":  # such as torch.from_numpy, whose class has no useful name
        return str(value.__name__)[:_CHARACTERS]
    if isinstance(value, type) or type(value).__name__ in ("function", "method"):
        return str(value.__qualname__)[:_CHARACTERS]
    return type(value).__qualname__[:_CHARACTERS]


def _class(value: Any) -> str:
    return ("%s.%s" % (type(value).__module__, type(value).__qualname__))[:_CHARACTERS]


def _length(dataset: Any) -> int | None:
    """The length of the dataset; None if it fails or is known to be slow, and for an IterableDataset, which may count its records."""
    name = _class(dataset)
    if name in _slow_lengths or issubclass(type(dataset), sys.modules["torch"].utils.data.IterableDataset):
        return None
    began = perf_counter_ns()
    try:
        length = len(dataset)
    except Exception:
        reraise_signal_exception()
        length = None
    if perf_counter_ns() - began > _SLOW_NS and len(_slow_lengths) < _ATTRIBUTES:
        _slow_lengths.add(name)
    return length


def _path(value: Any) -> str | None:
    """The absolute path of a string or pathlib path; a URL as it is; None for other values."""
    if isinstance(value, str) or type(value).__module__.partition(".")[0] == "pathlib":
        return os.path.abspath(os.fspath(value)) if value and "://" not in str(value) else str(value) or None
    return None


def _is_dataset(value: Any) -> bool:
    return hasattr(type(value), "__getitem__") and not isinstance(value, (str, bytes, list, tuple, dict))


def _settings(step: Any) -> str | None:
    """Settings such as `RandomResizedCrop(size=(224, 224), …)`, for transforms whose repr is known to list them; else None."""
    if isinstance(step, type) or not type(step).__module__.startswith(_TERSE):
        return None
    if own(step, "transforms") is not None or own(step, "_modules"):
        return None  # a container's repr calls its members' reprs, including the user's
    return " ".join(repr(step).split())[:_CHARACTERS]


def _held(dataset: Any) -> list[str]:
    """Resources of a dataset that forked workers cannot share with their parent: open files, connections, tensors on a device."""
    tensors = own(dataset, "tensors")
    found = set()
    for value in [
        *list(attributes(dataset).values())[:_ATTRIBUTES],
        *(tensors if isinstance(tensors, (list, tuple)) else ()),
    ]:
        module = type(value).__module__.partition(".")[0]
        if module in _HANDLES:
            found.add("%s.%s" % (module.lstrip("_"), type(value).__qualname__))
        elif module == "torch" and type(value).__qualname__ in ("Tensor", "Parameter") and value.device.type != "cpu":
            found.add("a tensor on %s" % value.device.type)
    return sorted(found)[:_PARTS]


def _arrays(dataset: Any, length: int | None) -> list[str]:
    """Names of attributes with one row per sample: CPU tensors, NumPy arrays but no memory maps, and a TensorDataset's `tensors`."""
    kinds = (sys.modules["torch"].Tensor, getattr(sys.modules.get("numpy"), "ndarray", None))
    found = []
    for name, value in list(attributes(dataset).items())[:_ATTRIBUTES]:
        rows = value if name == "tensors" and isinstance(value, tuple) else (value,)
        if length and rows and all(type(row) in kinds and _rows_in_memory(row) == length for row in rows):
            found.append(str(name)[:_CHARACTERS])
    return found[:_PARTS]


def _objects(dataset: Any) -> list[DescribedObjects]:
    """The attributes that are large lists, tuples or dicts, the largest first. Two names of one object count once."""
    found: list[DescribedObjects] = []
    seen = set()
    for name, value in list(attributes(dataset).items())[:_ATTRIBUTES]:
        if type(value) not in (list, tuple, dict) or len(value) < _OBJECTS_MIN or id(value) in seen:
            continue
        seen.add(id(value))
        some = _spread(value)
        keys = _mean_bytes(list(itertools.islice(value, _OBJECTS_SEEN))) if type(value) is dict else 0.0
        size = int(len(value) * (keys + _mean_bytes(some)))
        of = type(some[0]).__qualname__[:_CHARACTERS]
        kind = type(value).__name__
        found.append({"name": str(name)[:_CHARACTERS], "kind": kind, "length": len(value), "of": of, "bytes": size})
    return sorted(found, key=lambda one: -one["bytes"])[:_PARTS]


def _spread(value: Any) -> list[Any]:
    """A few objects: evenly spread over a list or tuple, the first ones of a dict, whose others cannot be reached without a walk."""
    if type(value) is dict:
        return list(itertools.islice(value.values(), _OBJECTS_SEEN))
    return [value[n * len(value) // _OBJECTS_SEEN] for n in range(_OBJECTS_SEEN)]


def _mean_bytes(some: list[Any], depth: int = 0) -> float:
    return sum(_written_bytes(one, depth) for one in some) / max(1, len(some))


def _written_bytes(value: Any, depth: int) -> float:
    """Bytes of pages that counting references to this object, and to those inside it, writes to: of a large one only its first page."""
    kind = type(value)
    if value is None or kind is bool or (kind is int and -6 < value < 257):
        return 0.0  # Python has one of each
    if kind not in (str, bytes, int, float, list, tuple, dict):
        return 64.0  # the head of an object of another class, whose `__sizeof__` may be the user's
    size = float(min(sys.getsizeof(value), _PAGE_BYTES))
    if kind in (list, tuple, dict) and value and depth < _MEMBERS_DEPTH:
        inside = list(itertools.islice(value.values() if kind is dict else value, _MEMBERS_SEEN))
        size += len(value) * _mean_bytes(inside, depth + 1)
    return size


def _rows_in_memory(value: Any) -> int | None:
    device = getattr(value, "device", "cpu")
    on_cpu = getattr(device, "type", device) == "cpu"
    return int(value.shape[0]) if on_cpu and len(value.shape) else None


def _of_known_kinds(dataset: Any) -> DescribedDataset:
    """Facts that well-known datasets store under other names."""
    tensors = own(dataset, "tensors")  # TensorDataset
    if isinstance(tensors, (list, tuple)) and tensors and "torch" in sys.modules:
        kind = sys.modules["torch"].Tensor
        shown = ["%s%s" % (str(t.dtype).rpartition(".")[2], list(t.shape)) for t in tensors[:4] if isinstance(t, kind)]
        return {"tensors": shown}
    if not type(dataset).__module__.startswith("datasets."):
        return {}
    found: DescribedDataset = {}  # Hugging Face
    info, files, split = own(dataset, "_info"), own(dataset, "_data_files"), own(dataset, "_split")
    name = own(info, "dataset_name") or own(info, "builder_name")
    if isinstance(name, str):
        found["name"] = name
    if split is not None:
        found["split"] = str(split)[:_CHARACTERS]
    first = files[0].get("filename") if isinstance(files, list) and files and isinstance(files[0], dict) else None
    if isinstance(first, str):
        found["root"] = os.path.dirname(os.path.abspath(first))
    kwargs = own(dataset, "_format_kwargs")
    if isinstance(kwargs, dict) and kwargs.get("transform") is not None:
        found["transforms"] = [name_of(kwargs["transform"])]
    found["format"] = str(own(dataset, "_format_type") or "python")[:_CHARACTERS]
    columns = _number_columns(own(dataset, "_data"), own(dataset, "_format_columns"))
    if columns is not None:
        found["columns"], found["other_columns"] = columns
    ranks = _divided_among(dataset)
    if ranks > 1:
        found["divided_among"] = ranks
    lookup_ns = _lookup_ns(own(dataset, "_indices"))
    if lookup_ns is not None:
        found["lookup_ns"] = lookup_ns
    return found


def _divided_among(stream: Any) -> int:
    """Ranks among which the finished samples of a stream are divided, since its shards cannot be; 0 if they can, or of other data sets."""
    divided, examples = own(stream, "_distributed"), own(stream, "_ex_iterable")
    ranks, way = own(divided, "world_size"), own(divided, "strategy") or "auto"
    if type(ranks) is not int or ranks < 1 or examples is None or way == "shards":
        return 0
    try:
        shards = int(examples.num_shards if hasattr(type(examples), "num_shards") else examples.n_shards)
    except Exception:  # another version of the library
        reraise_signal_exception()
        return 0
    return ranks if way == "examples" or shards % ranks else 0


def _number_columns(table: Any, chosen: Any) -> tuple[list[NumberColumn], int] | None:
    """The columns of lists of numbers among the `chosen` ones, or all, and how many have neither lists of numbers nor numbers; None if
    there are no lists of numbers, or the table is not of the library's own class.

    Reads how long the lists of a few rows are, and no number.
    """
    if table is None or not type(table).__module__.startswith("datasets."):
        return None
    names = chosen if isinstance(chosen, list) else table.column_names
    found: list[NumberColumn] = []
    others = max(0, len(names) - _COLUMNS_SEEN)
    try:
        rows = sorted({n * table.num_rows // _ROWS_SEEN for n in range(_ROWS_SEEN)} if table.num_rows else ())
        some = [table.fast_slice(row, 1) for row in rows]
        for name in names[:_COLUMNS_SEEN]:
            parts = [row.column(name).chunk(0) for row in some]
            lengths = [_lengths(part) for part in parts]
            if lengths and all(lengths):
                lists = sum(sum(of[:-1]) for of in lengths) / len(lengths)
                numbers = sum(of[-1] for of in lengths) / len(lengths)
                found.append({"name": str(name)[:_CHARACTERS], "lists": lists, "numbers": numbers})
            elif not all(map(_has_numbers, parts)):
                others += 1
    except Exception:  # another version of the library
        reraise_signal_exception()
        return None
    return (sorted(found, key=lambda column: -column["numbers"])[:_PARTS], others) if found else None


def _lengths(values: Any) -> list[int]:
    """The number of members at each level of an Arrow array of one list: of lists inside it, and last of numbers; empty if it has none."""
    found: list[int] = []
    while type(values).__name__ in ("ListArray", "LargeListArray", "FixedSizeListArray") and len(found) < _LEVELS_MAX:
        values = values.flatten()
        found.append(len(values))
    return found if _has_numbers(values) else []


def _has_numbers(values: Any) -> bool:
    return type(values).__name__.startswith(("Int", "UInt", "Float", "Double", "HalfFloat", "Boolean"))


def _lookup_ns(indices: Any) -> int | None:
    """Time to look up one row in an indices mapping, as `datasets` does for each item of a batch; None without a mapping."""
    if indices is None or not type(indices).__module__.startswith("datasets."):
        return None
    took = []
    try:
        for at in range(min(_LOOKUPS, indices.num_rows)):
            began = perf_counter_ns()
            indices.fast_slice(at, 1).column(0)[0].as_py()
            took.append(perf_counter_ns() - began)
    except Exception:  # another version of the library
        reraise_signal_exception()
    return min(took, default=None)
