"""Processes that exchange tensors are killed at random, and no other process is disturbed.

test/allocator/test_chaos.c does the same below PyTorch, with hundreds of deaths.
"""

import os
import random

import torch
from peers import serve  # noqa: F401 - makes the forkserver load PyTorch

from device import DEVICE, module

WORKERS = 3
DEATHS = 10
SIZE = 5000
BLOCK_BYTES = (SIZE * 8 + 511) // 512 * 512
AT_DEATH = 3  # tensors that a worker still has to process when it is killed


def work(connection, seed):
    """Check each tensor, send back its double, and keep some of both, forever."""
    chance = random.Random(seed)
    held = []
    while True:
        number, tensor = connection.recv()
        assert (tensor == number).all()
        held += [(number, tensor), (2 * number, tensor * 2)]
        connection.send(held[-1])
        if len(held) > 8:
            value, dropped = held.pop(chance.randrange(len(held)))
            assert (dropped == value).all()


def start(seed):
    context = torch.multiprocessing.get_context("forkserver")
    connection, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, seed), daemon=True)
    process.start()
    theirs.close()
    return process, connection


def send(connection, number):
    connection.send((number, torch.full((SIZE,), number, device=DEVICE)))


def receive_what_the_dead_sent(connection):
    """Receive until the end: what a dead process sent is refused, or is correct."""
    while True:
        try:
            number, tensor = connection.recv()
        except RuntimeError:
            continue
        except (EOFError, ConnectionResetError):
            return
        assert (tensor == number).all()


def kill(worker):
    process, connection = worker
    process.kill()
    process.join()
    receive_what_the_dead_sent(connection)
    connection.close()


def exchange(workers, chance):
    """Send to any worker and receive from it, several times; return what was received."""
    received = []
    for _ in range(chance.randrange(4, 20)):
        _, connection = chance.choice(workers)
        number = chance.randrange(1000)
        send(connection, number)
        doubled, tensor = connection.recv()
        assert doubled == 2 * number
        received.append((doubled, tensor))
    return received


def give_back():
    module.synchronize()
    module.ipc_collect()
    module.empty_cache()


def chaos():
    """Runs in its own process, which takes lost memory with it when it ends."""
    chance = random.Random(20240607)
    workers = [start(seed) for seed in range(WORKERS)]
    held = []
    for death in range(DEATHS):
        held += exchange(workers, chance)
        victim = chance.randrange(WORKERS)
        for number in range(AT_DEATH):
            send(workers[victim][1], number)
        kill(workers[victim])
        assert all((tensor == value).all() for value, tensor in held)
        held = chance.sample(held, len(held) // 2)
        workers[victim] = start(WORKERS + death)
    for worker in workers:
        kill(worker)
    assert all((tensor == value).all() for value, tensor in held)
    del held
    give_back()
    # What dead processes never opened stays with the sender.
    assert module.memory_allocated() <= DEATHS * AT_DEATH * BLOCK_BYTES
    free, total = module.mem_get_info()
    assert total - free == module.memory_reserved()


def test_killed_processes_leave_nothing(python):
    here = os.path.dirname(__file__)
    path = os.pathsep.join((here, os.path.dirname(here), os.environ.get("PYTHONPATH", "")))
    python("import test_chaos; test_chaos.chaos()", PYTHONPATH=path)
