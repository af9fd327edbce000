"""Finds the file systems that hold the training data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rn50_advisor.advisor.analysis.host.node_window import Window
from rn50_advisor.advisor.analysis.input.loading import BLOCK_BYTES
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.analysis.storage.process_io import grown, readers_of
from rn50_advisor.advisor.model.analysis import LoaderFacts, training_loader
from rn50_advisor.advisor.model.input.mounts import DataMount
from rn50_advisor.advisor.model.measures.input_measures import DATA_NETWORK_MOUNT, FETCH_WALL_S
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.storage_measures import STORAGE_SAMPLE_KB
from rn50_advisor.advisor.model.recording import Recording, events_of
from rn50_advisor.probes.documents.event_documents import DataMounted
from rn50_advisor.probes.documents.rank_documents import MountFacts

_FILES_MIN = 5  # files seen open on a mount; fewer may be just a list of labels and a lock
_BYTES_RATIO_MIN = 0.8  # least ratio of two byte counts that match
_READ_BYTES_MIN = 1e6  # with fewer bytes, a match says nothing


def data_mounts(
    recording: Recording, steps: Mapping[int, RankSteps], loaders: Sequence[LoaderFacts]
) -> tuple[DataMount, ...]:
    """Mounts that hold data: the training data's first, then those with the most files seen open, then those that datasets name."""
    known = {e.data.get("mount_point", ""): _mount(e.data) for e in events_of(recording.events, DataMounted)}
    files = _files_seen(recording)
    first = _of_training(recording, steps, loaders, known=known, files=files)
    seen = [known[point] for point, count in files.items() if count >= _FILES_MIN and point in known]
    named = [_mount(loader.mount) for loader in loaders if loader.mount]
    found: dict[str, DataMount] = {}
    for mount in (*((first,) if first else ()), *seen, *named):
        found.setdefault(mount.mount_point, mount)
    return tuple(found.values())


def mount_values(
    ranks: Iterable[int], loaders: Sequence[LoaderFacts], mounts: Sequence[DataMount], values: Measured
) -> Measured:
    """`data.network_mount` from the dataset's folder, else from the files seen open. The latter do not count if the data is in memory."""
    found = Measured()
    for rank in ranks:
        loader = training_loader(loaders, rank)
        stated = loader.mount if loader is not None and not loader.library else None
        if stated is not None and stated.get("network") is not None:
            found[DATA_NETWORK_MOUNT, rank] = float(bool(stated["network"]))
    asked_kb = values.get((STORAGE_SAMPLE_KB, JOB))
    network = mounts[0].network if mounts else None
    if network is not None and (asked_kb is None or 1e3 * asked_kb >= BLOCK_BYTES):
        for rank in values.by_rank(FETCH_WALL_S):
            found.setdefault((DATA_NETWORK_MOUNT, rank), float(network))
    return found


def _files_seen(recording: Recording) -> dict[str, float]:
    """Number of data files seen open by mount point, the highest first."""
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
    """The training data's mount: from the files seen open, else the folder that the dataset names, else the disk that read as much.

    None if none of these shows it.
    """
    most = next(iter(files), "")
    if most in known and files[most] >= _FILES_MIN:
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
    if read is None or read < _READ_BYTES_MIN:
        return None
    fits = []
    for mount in mounts:
        of_disk = window.growth("disk.read_bytes", f"disk:{mount.disk}")
        if of_disk is not None and _BYTES_RATIO_MIN * read <= of_disk <= read / _BYTES_RATIO_MIN:
            fits.append(mount)
    return fits[0] if len(fits) == 1 else None


def _mount(facts: MountFacts) -> DataMount:
    return DataMount(
        mount_point=facts.get("mount_point", ""),
        fs_type=facts.get("fs_type", ""),
        device=facts.get("device", ""),
        network=facts.get("network"),
        disk=facts.get("disk"),
        below=tuple(facts.get("below", ())),
        seeks=facts.get("seeks"),
        model=facts.get("model", ""),
    )
