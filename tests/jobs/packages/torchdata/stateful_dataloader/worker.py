"""A separate worker loop, which torch's loader does not know. Its arguments have torchdata's positions."""

from torch.utils.data._utils.fetch import _MapDatasetFetcher


def _worker_loop(  # noqa: PLR0917
    dataset_kind,
    dataset,
    index_queue,
    data_queue,
    done_event,
    auto_collation,
    collate_fn,
    drop_last,
    base_seed,
    init_fn,
    worker_id,
    num_workers,
    persistent_workers,
    shared_seed,
    worker_state,
):
    fetcher = _MapDatasetFetcher(dataset, auto_collation, collate_fn, drop_last)
    for index in iter(index_queue.get, None):
        data_queue.put(fetcher.fetch(index))
