"""A DataLoader that calls neither DataLoader's constructor nor those of its iterators."""

from torch import multiprocessing
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from .worker import _worker_loop


class StatefulDataLoader(DataLoader):
    def __init__(self, dataset, batch_size=1, num_workers=0):
        template = DataLoader.__new__(DataLoader)
        plain_init(template, dataset, batch_size, num_workers=num_workers)
        self.__dict__.update(template.__dict__)

    def __iter__(self):
        kinds = (_StatefulSingleProcessDataLoaderIter, _StatefulMultiProcessingDataLoaderIter)
        return kinds[self.num_workers > 0](self)


plain_init = getattr(DataLoader.__init__, "__wrapped__", DataLoader.__init__)


class _StatefulSingleProcessDataLoaderIter(_BaseDataLoaderIter):
    def __init__(self, loader):
        super().__init__(loader)
        self.dataset, self.collate = loader.dataset, loader.collate_fn

    def _next_data(self):
        return self.collate([self.dataset[i] for i in self._next_index()])


class _StatefulMultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    def __init__(self, loader):
        super().__init__(loader)
        self.indices, self.batches = multiprocessing.SimpleQueue(), multiprocessing.SimpleQueue()
        arguments = (0, loader.dataset, self.indices, self.batches, None, True, loader.collate_fn, False, 0, None, 0)
        self.process = multiprocessing.Process(target=_worker_loop, args=(*arguments, 1, False, None, None))
        self.process.start()

    def _next_data(self):
        try:
            index = self._next_index()
        except StopIteration:
            self.indices.put(None)
            self.process.join()
            raise
        self.indices.put(index)
        return self.batches.get()
