"""Messages of ranks that end because another one did, or whose collectives differ. Not a test."""

from __future__ import annotations

FOLLOWING = [
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [172.28.0.12]:14004",
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:589] Read error [192.168.70.92]:25266: Connection reset by peer",
    "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, remote process exited "
    "or there was a network error, NCCL version 2.21.5",
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    "[E ProcessGroupNCCL.cpp:460] To avoid data inconsistency, we are taking the entire process down.",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 4711 got signal: 15",
    "W0612 torch/distributed/elastic/multiprocessing/api.py:863] Sending process 99 closing signal SIGTERM",
    "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 1.",
    "[rank1]:[E1019 ProcessGroupNCCL.cpp:1475] [PG 0 Rank 1] Observed flight recorder dump signal from another rank via TCPStore.",
    '[rank1]:[W1229 ProcessGroupNCCL.cpp:1662] Failed to check the "should dump" flag on TCPStore, with error: Broken pipe',
]
