"""Which file systems the training data lies on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rn50_advisor.advisor.analysis.host.node_window import Window
from rn50_advisor.advisor.analysis.input.loading import BLOCK_BYTES
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.analysis.storage.process_io import grown, readers_of
from rn50_advisor.advisor.model.analysis import JOB, LoaderFacts, training_loader
from rn50_advisor.advisor.model.input.mounts import DataMount
from rn50_advisor.advisor.model.recording import Recording

_FILES = 5  # seen open on a mount: more than a list of labels and a lock
_ALIKE = 0.8  # one count of bytes to another
_LEAST_BYTES = 1e6  # of less no likeness is worth telling


def data_mounts(
    recording: Recording, steps: Mapping[int, RankSteps], loaders: Sequence[LoaderFacts]
) -> tuple[DataMount, ...]:
    """The training data's first, then others that data lies on, those with the most files seen open before those that data sets name."""
    known = {str(e.data.get("mount_point")): _mount(e.data) for e in recording.events if e.kind == "data_mount"}
    files = _files_seen(recording)
    first = _of_training(recording, steps, loaders, known=known, files=files)
    seen = [known[point] for point, count in files.items() if count >= _FILES and point in known]
    named = [_mount(loader.mount) for loader in loaders if loader.mount]
    found: dict[str, DataMount] = {}
    for mount in (*((first,) if first else ()), *seen, *named):
        found.setdefault(mount.mount_point, mount)
    return tuple(found.values())


def network_values(
    mounts: Sequence[DataMount], values: Mapping[tuple[str, str], float]
) -> dict[tuple[str, str], float]:
    """`data.network_mount` of ranks whose data set names no folder, by the files seen open. Those in memory may have come from anywhere."""
    asked_kb = values.get(("storage.sample_kb", JOB))
    network = mounts[0].network if mounts else None
    if network is None or (asked_kb is not None and 1e3 * asked_kb < BLOCK_BYTES):
        return {}
    untold = [scope for name, scope in values if name == "fetch.wall_s" and ("data.network_mount", scope) not in values]
    return {("data.network_mount", scope): float(network) for scope in untold}


def _files_seen(recording: Recording) -> dict[str, float]:
    """By mount point, the most first."""
    files = {
        scope.partition(":")[2]: float(series.value[-1])
        for (metric, scope), series in recording.samples.items()
        if metric == "data.files" and series.value.size
    }
    return dict(sorted(files.items(), key=lambda item: -item[1]))


def _of_training(
    recording: Recording,
    steps: Mapping[int, RankSteps],
    loaders: Sequence[LoaderFacts],
    *,
    known: Mapping[str, DataMount],
    files: Mapping[str, float],
) -> DataMount | None:
    """By the files that were seen open, by what the data set says of itself, else by the disk that read what the loaders read.

    None where nothing tells.
    """
    most = next(iter(files), "")
    if most in known and files[most] >= _FILES:
        return known[most]
    stated = [loader.mount for rank in steps if (loader := training_loader(loaders, rank)) and loader.mount]
    if stated:
        return _mount(stated[0])
    return known.get(most) or _by_bytes(recording, steps, known.values())


def _by_bytes(recording: Recording, steps: Mapping[int, RankSteps], mounts: Iterable[DataMount]) -> DataMount | None:
    """The one mount whose disk read as much as the loaders did while the steps ran."""
    if not steps:
        return None
    window = Window(
        recording, min(int(s.start_ns[0]) for s in steps.values()), max(int(s.end_ns[-1]) for s in steps.values())
    )
    read = grown(recording, readers_of(recording, steps), "proc.read_bytes", window.start_ns, window.end_ns)
    if read is None or read < _LEAST_BYTES:
        return None
    fits = []
    for mount in mounts:
        of_disk = window.growth("disk.read_bytes", f"disk:{mount.disk}")
        if of_disk is not None and _ALIKE * read <= of_disk <= read / _ALIKE:
            fits.append(mount)
    return fits[0] if len(fits) == 1 else None


def _mount(data: Mapping[str, Any]) -> DataMount:
    return DataMount(
        mount_point=str(data.get("mount_point", "")),
        fs_type=str(data.get("fs_type", "")),
        device=str(data.get("device", "")),
        network=data.get("network"),
        disk=data.get("disk"),
        below=tuple(data.get("below") or ()),
        seeks=data.get("seeks"),
        model=str(data.get("model") or ""),
    )
