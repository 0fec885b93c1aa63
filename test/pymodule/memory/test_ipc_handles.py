"""Handles that no living process made, or that were changed on the way, raise a RuntimeError and do
no harm.
"""

import pickle
import random
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from peers import Peer, kept
from torch_openreg import _C

from device import DEVICE, module

BYTES = 2048


@pytest.fixture(scope="module")
def peer():
    with Peer() as peer:
        yield peer


def export(device=0):
    kept["tensor"] = torch.full((BYTES,), 7, dtype=torch.uint8, device=f"{DEVICE}:{device}")
    return _C.export_storage(kept["tensor"].untyped_storage())


def export_event():
    kept["event"] = module.Event(interprocess=True)
    return module.Event.ipc_handle(kept["event"])


def is_unharmed():
    return bool((kept["tensor"] == 7).all())


def mutations(handle):
    """Flip each bit; replace bytes, words and halves at random; change the length."""
    chance = random.Random(20240607)
    for bit in range(8 * len(handle)):
        changed = bytearray(handle)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)
    for _ in range(500):
        changed = bytearray(handle)
        width = chance.choice([1, 4, 8, 32])
        start = chance.randrange(0, len(handle) // width) * width
        changed[start : start + width] = chance.randbytes(width)
        if bytes(changed) != handle:
            yield bytes(changed)
    for _ in range(100):
        yield chance.randbytes(len(handle))
    yield from (b"", handle[:-1], handle + b"\0", bytes(len(handle)), b"\xff" * len(handle))


def test_handles_that_were_changed_are_refused(peer):
    handle = peer.call(export)
    for changed in mutations(handle):
        with pytest.raises(RuntimeError):
            _C.import_storage(0, BYTES, changed)
    assert peer.call(is_unharmed)
    assert _C.import_storage(0, BYTES, handle).nbytes() == BYTES


def test_handles_of_events_that_were_changed_are_refused(peer):
    handle = peer.call(export_event)
    for changed in mutations(handle):
        with pytest.raises(RuntimeError):
            module.Event.from_ipc_handle(0, changed)
    assert module.Event.from_ipc_handle(0, handle).query()


def test_handle_of_one_kind_is_not_one_of_the_other(peer):
    with pytest.raises(RuntimeError):
        _C.import_storage(0, BYTES, peer.call(export_event))
    with pytest.raises(RuntimeError):
        module.Event.from_ipc_handle(0, peer.call(export))


def test_handle_is_for_its_size_and_device(peer):
    for device, size in ((1, BYTES), (0, 0), (0, BYTES + 1), (0, 1 << 40)):
        with pytest.raises(RuntimeError, match="but was received as"):
            _C.import_storage(device, size, peer.call(export))


def test_handle_is_for_a_device_that_exists(peer):
    with pytest.raises(RuntimeError):
        _C.import_storage(7, BYTES, peer.call(export))


def test_handle_that_came_back_gives_what_it_was_for():
    tensor = torch.arange(3, device=DEVICE)
    same = pickle.loads(ForkingPickler.dumps(tensor[1:]))
    assert same.untyped_storage().data_ptr() == tensor.data_ptr()
    assert same.tolist() == [1, 2]


def test_handle_that_came_back_keeps_nothing():
    module.ipc_collect()
    before = module.memory_allocated()
    tensor = torch.ones(3, device=DEVICE)
    same = pickle.loads(ForkingPickler.dumps(tensor))
    del tensor, same
    module.ipc_collect()
    assert module.memory_allocated() == before


def test_handle_that_came_back_after_its_memory_was_freed_is_refused():
    tensor = torch.ones(3, device=DEVICE)
    handle = bytes(ForkingPickler.dumps(tensor))
    del tensor
    with pytest.raises(RuntimeError, match="this process made it and has freed its memory"):
        pickle.loads(handle)
    module.ipc_collect()
    with pytest.raises(RuntimeError, match="this process made it and has withdrawn"):
        pickle.loads(handle)


def test_handle_of_a_dead_process_is_refused():
    peer = Peer()
    handle = peer.call(export)
    peer.kill()
    with pytest.raises(RuntimeError):
        _C.import_storage(0, BYTES, handle)


def test_handle_of_another_group_is_refused(peer, python):
    handle = peer.call(export)
    result = python(
        f"""
        from torch_openreg import _C
        _C.initialize()
        try:
            _C.import_storage(0, {BYTES}, {handle!r})
        except RuntimeError as error:
            print(type(error).__name__)
        """
    )
    assert result.stdout == "RuntimeError\n"
