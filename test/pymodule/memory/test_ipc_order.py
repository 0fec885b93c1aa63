"""Work on memory of another process runs after that process's earlier work. All holders of an event
can wait for it and record it.
"""

from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from modes import openreg_only
from peers import Peer, kept

from device import DEVICE, module


@pytest.fixture(scope="module")
def peer():
    with Peer() as peer:
        peer.call(queue_everything)
        yield peer


def queue_everything():
    from torch_openreg import _C

    _C.set_queues_everything(True)
    tensor = torch.ones(4, device=DEVICE)
    kept["plus_one"] = tensor + 1  # the first addition is never queued
    module.synchronize()


def start_adding_one(tensor):
    """Return whether the current stream has done it."""
    kept["plus_one"] = tensor + 1
    return module.current_stream().query()


def result():
    return kept["plus_one"].tolist()


@pytest.mark.parametrize("stream", ["default", "side"])
def test_receiver_waits_for_the_senders_current_stream(peer, close_gate, stream):
    tensor = torch.ones(4, device=DEVICE)
    tensor.add_(1)
    module.synchronize()
    if stream == "side":
        module.set_stream(module.Stream())
    gate = close_gate()
    tensor.add_(1)
    assert peer.call(start_adding_one, tensor) is False
    gate.open()
    assert peer.call(result) == [4] * 4


def test_receiver_waits_for_the_stream_that_the_memory_was_allocated_for(peer, close_gate):
    side = module.Stream()
    with module.stream(side):
        tensor = torch.ones(4, device=DEVICE)
        tensor.add_(1)
        gate = close_gate(side)
        tensor.add_(1)
    assert peer.call(start_adding_one, tensor) is False
    gate.open()
    assert peer.call(result) == [4] * 4


def make_current(stream):
    kept["side"] = module.Stream() if stream == "side" else module.default_stream()
    module.set_stream(kept["side"])


def start_adding_one_here_and_elsewhere(tensor):
    busy = not start_adding_one(tensor)
    return busy, module.default_stream().query()


def test_receiver_waits_on_its_current_stream_only(peer, close_gate):
    tensor = torch.ones(4, device=DEVICE)
    tensor.add_(1)
    peer.call(make_current, "side")
    gate = close_gate()
    tensor.add_(1)
    assert peer.call(start_adding_one_here_and_elsewhere, tensor) == (True, True)
    gate.open()
    assert peer.call(result) == [4] * 4
    peer.call(make_current, "default")


def test_memory_that_is_ready_is_not_waited_for(peer, close_gate):
    tensor = torch.ones(4, device=DEVICE)
    close_gate(module.Stream())
    peer.call(start_adding_one, tensor)
    assert peer.call(result) == [2] * 4


def test_storage_that_is_sent_again_is_waited_for_again(peer, close_gate):
    tensor = torch.ones(4, device=DEVICE)
    tensor.add_(1)
    peer.call(keep_it, tensor)
    gate = close_gate()
    tensor.add_(1)
    assert peer.call(start_adding_one, tensor) is False
    gate.open()
    assert peer.call(result) == [4] * 4


def keep_it(tensor):
    kept["tensor"] = tensor


# ---- events -----------------------------------------------------------------------------------


def wait_for(event):
    """Make the current stream wait; return whether it and the event are done."""
    kept["event"] = event
    event.wait()
    return event.query(), module.current_stream().query()


def is_done():
    return kept["event"].query()


def await_event():
    kept["event"].synchronize()
    module.synchronize()
    return is_done()


def test_event_is_waited_for(peer, close_gate):
    gate = close_gate()
    event = module.Event(interprocess=True)
    event.record()
    assert peer.call(wait_for, event) == (False, False)
    gate.open()
    assert peer.call(await_event)


def test_event_that_was_reached_is_reached(peer):
    event = module.Event(interprocess=True)
    event.record()
    module.synchronize()
    assert peer.call(wait_for, event) == (True, True)


def test_event_that_was_never_recorded_counts_as_reached(peer):
    event = module.Event(interprocess=True)
    assert peer.call(wait_for, event) == (True, True)
    assert event.query()


def test_event_that_is_recorded_after_it_was_sent_is_seen(peer, close_gate):
    event = module.Event(interprocess=True)
    assert peer.call(wait_for, event) == (True, True)
    gate = close_gate()
    event.record()
    assert peer.call(is_done) is False
    gate.open()
    assert peer.call(await_event)


def from_handle(device, handle):
    event = module.Event.from_ipc_handle(device, handle)
    kept["event"] = event
    return isinstance(event, module.Event), str(event.device), event.query()


@pytest.mark.parametrize("index", [0, 1])
def test_event_goes_as_a_handle(peer, close_gate, index):
    stream = module.default_stream(index)
    event = module.Event(interprocess=True)
    gate = close_gate(stream)
    event.record(stream)
    handle = module.Event.ipc_handle(event)
    assert peer.call(from_handle, index, handle) == (True, f"{DEVICE}:{index}", False)
    gate.open()
    assert peer.call(await_event)


def record_behind_gate(event):
    """Record behind work that waits for `open_gate`; return whether the event is done."""
    from torch_openreg import _C

    stream = module.current_stream(event.device)
    kept["event"] = event
    kept["gate"] = _C._Gate(stream.device_index, stream.stream_id)
    event.record(stream)
    return event.query()


def record_from_handle_behind_gate(device, handle):
    return record_behind_gate(module.Event.from_ipc_handle(device, handle))


def open_gate():
    """Return whether the event is done after the work of this process."""
    kept.pop("gate").open()
    module.synchronize(kept["event"].device)
    return is_done()


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("how", ["sent", "as a handle"])
def test_event_is_recorded_by_any_holder(peer, index, how):
    event = module.Event(interprocess=True)
    event.record(module.default_stream(index))
    if how == "sent":
        assert peer.call(record_behind_gate, event) is False
    else:
        handle = module.Event.ipc_handle(event)
        assert peer.call(record_from_handle_behind_gate, index, handle) is False
    assert not event.query()
    side = module.Stream()
    event.wait(side)
    assert not side.query()
    assert peer.call(open_gate)
    event.synchronize()
    side.synchronize()
    assert event.query()


def test_latest_record_of_whichever_process_counts(peer, close_gate):
    event = module.Event(interprocess=True)
    assert peer.call(record_behind_gate, event) is False
    gate = close_gate()
    event.record()
    assert peer.call(open_gate) is False
    gate.open()
    assert peer.call(await_event)
    assert event.query()


def test_event_is_recorded_on_its_device_only(peer):
    event = module.Event(interprocess=True)
    event.record(module.default_stream(0))
    assert "does not match" in peer.call(record_on_other_device, event)


def record_on_other_device(event):
    with pytest.raises(RuntimeError) as error:
        event.record(module.default_stream(1))
    return str(error.value)


def test_death_of_the_process_that_recorded_ends_the_wait():
    event = module.Event(interprocess=True)
    peer = Peer()
    assert peer.call(record_behind_gate, event) is False
    side = module.Stream()
    event.wait(side)
    peer.kill()
    with pytest.raises(RuntimeError, match="ended before it finished (the )?work on its device 0"):
        event.synchronize()
    with pytest.raises(RuntimeError, match="ended before it finished (the )?work on its device 0"):
        side.synchronize()
    event.record()
    event.synchronize()
    assert event.query()


def test_event_with_timing_is_refused():
    event = module.Event(enable_timing=True)
    event.record()
    with pytest.raises(RuntimeError, match="timing"):
        module.Event.ipc_handle(event)


@openreg_only("torch.cuda's is a method of its own events")
def test_event_of_another_device_type_is_refused():
    with pytest.raises(RuntimeError, match=f"was given, expected {DEVICE}"):
        module.Event.ipc_handle(torch.Event("cpu"))
    with pytest.raises(TypeError, match="cannot pickle 'torch.Event' object"):
        ForkingPickler.dumps(torch.Event("cpu"))
