"""Processes of one group of torch.distributed, which all call what they are told to."""

import contextlib
import datetime
import os

import torch
import torch.distributed as dist
from peers import Peer

from device import DEVICE

# A collective that nobody else joins fails after so long, and with it the test.
PATIENCE = datetime.timedelta(seconds=120)


def join(rank, size, store, bound, devices, arguments):
    torch.set_num_threads(1)
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

    def start(self, function, *arguments):
        for peer in self.peers:
            peer.start(function, *arguments)

    def finish(self):
        """Return what each returned; raise only when all have ended."""
        answers = [peer.connection.recv() for peer in self.peers]
        for succeeded, answer in answers:
            if not succeeded:
                raise answer
        return [answer for _, answer in answers]

    def call(self, function, *arguments):
        self.start(function, *arguments)
        return self.finish()


@contextlib.contextmanager
def ranks_of(folder, size=2, bound=False, devices=None, **arguments):
    """A group of processes, each bound to its device or not; `arguments`: of init_process_group."""
    with contextlib.ExitStack() as entered:
        peers = [entered.enter_context(Peer()) for _ in range(size)]
        store = str(folder / "store")
        for rank, peer in enumerate(peers):
            peer.start(join, rank, size, store, bound, devices, arguments)
        for peer in peers:
            peer.finish()
        ranks = Ranks(peers)
        yield ranks
        for peer in peers:
            if not peer.connection.closed:
                peer.start(dist.destroy_process_group)
        for peer in peers:
            if not peer.connection.closed:
                peer.finish()


# The backend that computes among devices, and its class.
BACKEND = "nccl" if DEVICE == "cuda" else "occl"
GROUP_CLASS = getattr(dist, f"ProcessGroup{BACKEND.upper()}")


def own_device():
    return torch.device(DEVICE, dist.get_rank())
