"""Processes of one group of torch.distributed that run the functions that a test gives them."""

import contextlib
import datetime
import os
from multiprocessing import connection

import torch
import torch.distributed as dist
import torch_openreg._C as C
from peers import Peer

from device import DEVICE

# Training imports these late, which takes seconds. Importing them here does it once for all ranks.
torch.multiprocessing.set_forkserver_preload(
    ["torch", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor.parallel"]
)

# After this time a collective that no other rank joins fails, and the test with it.
PATIENCE = datetime.timedelta(seconds=120)
# How long the other ranks may run after one of them has failed.
GRACE_SECONDS = 5


def join(rank, size, store, bound, devices, arguments):
    torch.set_num_threads(1)
    if (
        os.environ.get("QUEUE_EVERYTHING") == "1"
    ):  # includes short collectives, which otherwise run inline
        C.set_queues_everything(True)
    if devices is not None:  # the shared group has another number of devices
        os.environ["OPENREG_GROUP"] += f"-{devices}"
        os.environ["OPENREG_DEVICE_COUNT"] = str(devices)
    if bound:
        arguments["device_id"] = torch.device(DEVICE, rank)
    dist.init_process_group(
        store=dist.FileStore(store, size), rank=rank, world_size=size, timeout=PATIENCE, **arguments
    )


class Ranks:
    """One process for each rank, which uses the device of its number."""

    def __init__(self, peers):
        self.peers = peers
        self.has_failed = False

    def is_whole(self):
        closed = any(peer.connection.closed for peer in self.peers)
        return not closed and not self.has_failed

    def start(self, function, *arguments):
        for peer in self.peers:
            peer.start(function, *arguments)

    def finish(self):
        """Return the results of all ranks.

        If a rank raised, raise the first such error. The group cannot be used any more then,
        because other ranks may have waited for that one. Ranks that do not end soon are killed.
        """
        pending = {peer.connection: rank for rank, peer in enumerate(self.peers)}
        answers, first = {}, None
        while pending:
            ready = connection.wait(pending, timeout=None if first is None else GRACE_SECONDS)
            if not ready:
                break
            for ended in ready:
                rank = pending.pop(ended)
                try:
                    succeeded, answers[rank] = ended.recv()
                except EOFError:
                    succeeded, answers[rank] = False, RuntimeError(f"rank {rank} died")
                if not succeeded:
                    first = first or answers[rank]
        if first is not None:
            self.has_failed = True
            for rank in pending.values():
                self.peers[rank].kill()
            raise first
        return [answers[rank] for rank in range(len(self.peers))]

    def call(self, function, *arguments):
        self.start(function, *arguments)
        return self.finish()


@contextlib.contextmanager
def ranks_of(folder, size=2, bound=False, devices=None, prepare=None, places="", **arguments):
    """A group of processes; `arguments` go to init_process_group, `bound` binds ranks to devices.

    Each process calls `prepare` with its place before it joins.
    """
    with contextlib.ExitStack() as entered:
        peers = [entered.enter_context(Peer()) for _ in range(size)]
        store = str(folder / "store")
        for peer, place in zip(peers, places, strict=False):
            peer.call(prepare, place)
        for rank, peer in enumerate(peers):
            peer.start(join, rank, size, store, bound, devices, arguments)
        for peer in peers:
            peer.finish()
        ranks = Ranks(peers)
        yield ranks
        if ranks.is_whole():
            ranks.call(dist.destroy_process_group)


class Restarted:
    """A group that tests share; if a test breaks it, the next test gets a new one."""

    def __init__(self, make_folder, **arguments):
        self._make_folder, self._arguments = make_folder, arguments
        self._entered = contextlib.ExitStack()
        self._ranks = None

    def get(self):
        if self._ranks is None or not self._ranks.is_whole():
            self.close()
            self._ranks = self._entered.enter_context(
                ranks_of(self._make_folder(), **self._arguments)
            )
        return self._ranks

    def close(self):
        self._entered.close()


# The backend that works between devices, and its class.
BACKEND = "nccl" if DEVICE == "cuda" else "occl"
# The backends that serve device tensors, as `init_process_group` takes them.
BACKENDS = {"gloo": "gloo", BACKEND: f"cpu:gloo,{DEVICE}:{BACKEND}"}
GROUP_CLASS = getattr(dist, f"ProcessGroup{BACKEND.upper()}")


def own_device():
    return torch.device(DEVICE, dist.get_rank())
