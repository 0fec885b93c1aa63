"""Processes of one group of torch.distributed, which all call what they are told to."""

import contextlib
import datetime
import os
from multiprocessing import connection

import torch
import torch.distributed as dist
import torch_openreg._C as C
from peers import Peer

from device import DEVICE

# What training imports late, and takes seconds: here it is there before the ranks are.
torch.multiprocessing.set_forkserver_preload(
    ["torch", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor.parallel"]
)

# A collective that nobody else joins fails after so long, and with it the test.
PATIENCE = datetime.timedelta(seconds=120)
# How long the other ranks have to end when one of them has failed.
GRACE_SECONDS = 5


def join(rank, size, store, bound, devices, arguments):
    torch.set_num_threads(1)
    if os.environ.get("QUEUE_EVERYTHING") == "1":  # collectives, too, which are inline if short
        C.set_queues_everything(True)
    if devices is not None:  # those of the group of tests have another number
        os.environ["OPENREG_GROUP"] += f"-{devices}"
        os.environ["OPENREG_DEVICE_COUNT"] = str(devices)
    if bound:
        arguments["device_id"] = torch.device(DEVICE, rank)
    dist.init_process_group(
        store=dist.FileStore(store, size), rank=rank, world_size=size, timeout=PATIENCE, **arguments
    )


class Ranks:
    """One process a rank, each to be asked for the device of its number."""

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
        """Return what each returned.

        Raise what the first one raised: then the group is of no use any more, for others may have
        waited for that one. Those that do not end soon are killed.
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
    """A group of processes, each bound to its device or not; `arguments`: of init_process_group.

    `prepare` is called in each with its place, before it joins.
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
    """A group that tests share; when one of them has broken it, the next one has a new one."""

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


# The backend that computes among devices, and its class.
BACKEND = "nccl" if DEVICE == "cuda" else "occl"
# What serves tensors of the device, as `init_process_group` takes it.
BACKENDS = {"gloo": "gloo", BACKEND: f"cpu:gloo,{DEVICE}:{BACKEND}"}
GROUP_CLASS = getattr(dist, f"ProcessGroup{BACKEND.upper()}")


def own_device():
    return torch.device(DEVICE, dist.get_rank())
