"""Streams and events: creating, selecting and ordering them with the interface of `torch.cuda`."""

import threading

import pytest
import torch
from modes import cuda_only, openreg_only

from device import DEVICE, module


def test_default_stream_is_current_at_first():
    for index in (0, 1):
        assert module.current_stream(index) == module.default_stream(index)
        assert module.default_stream(index).stream_id == 0


def test_new_stream_is_on_the_requested_device():
    assert module.Stream().device == torch.device(f"{DEVICE}:0")
    assert module.Stream(f"{DEVICE}:1").device == torch.device(f"{DEVICE}:1")
    module.set_device(1)
    assert module.Stream(-1).device == torch.device(f"{DEVICE}:1")


def test_new_streams_differ_from_each_other_and_from_the_default():
    first, second = module.Stream(), module.Stream()
    assert len({first, second, module.default_stream()}) == 3


def test_pool_of_streams_wraps_around():
    streams = [module.Stream() for _ in range(33)]
    assert len(set(streams[:32])) == 32
    assert streams[32] == streams[0]


def test_priorities_have_separate_pools():
    pools = [{module.Stream(priority=-rank) for _ in range(32)} for rank in range(4)]
    assert len(set.union(*pools)) == 128


@pytest.mark.parametrize("function", ["Stream", "current_stream", "default_stream"])
def test_stream_of_a_device_out_of_range_is_refused(function):
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        getattr(module, function)(2)


def test_stream_can_be_recreated_from_its_ids():
    stream = module.Stream(1)
    again = module.Stream(
        stream_id=stream.stream_id,
        device_index=stream.device_index,
        device_type=stream.device_type,
    )
    assert again == stream


def test_streams_and_events_are_instances_of_their_class():
    assert isinstance(module.Stream(), module.Stream)
    assert isinstance(module.current_stream(), module.Stream)
    assert isinstance(module.Event(), module.Event)
    assert not isinstance(module.Event(), module.Stream)
    assert not isinstance(torch.device(DEVICE), module.Stream)


@openreg_only("those of torch.cuda are of a class of their own")
def test_generic_streams_and_events_of_the_device_are_instances():
    assert isinstance(torch.Stream(DEVICE), module.Stream)
    assert isinstance(torch.Event(DEVICE), module.Event)


def test_set_stream_changes_stream_and_device():
    stream = module.Stream(1)
    module.set_stream(stream)
    assert module.current_stream() == stream
    assert module.current_device() == 1


def test_set_stream_ignores_none():
    module.set_stream(None)
    assert module.current_stream() == module.default_stream()


def test_stream_context_restores_streams_and_device():
    stream = module.Stream(1)
    with module.stream(stream):
        assert module.current_device() == 1
        assert module.current_stream() == stream
        assert torch.ones(1, device=DEVICE).get_device() == 1
    assert module.current_device() == 0
    assert module.current_stream(0) == module.default_stream(0)
    assert module.current_stream(1) == module.default_stream(1)


def test_stream_context_ignores_none():
    with module.stream(None):
        assert module.current_stream() == module.default_stream()


def test_a_stream_is_a_context_itself():
    stream = module.Stream(1)
    with stream:
        assert module.current_stream() == stream
    assert module.current_stream() == module.default_stream(0)


def test_current_stream_belongs_to_the_thread():
    module.set_stream(module.Stream())
    seen = []
    thread = threading.Thread(target=lambda: seen.append(module.current_stream()))
    thread.start()
    thread.join()
    assert seen == [module.default_stream()]


def test_idle_stream_has_finished():
    stream = module.Stream()
    with stream:
        torch.ones(8, device=DEVICE)
    stream.synchronize()
    assert stream.query() is True


def test_recorded_event_is_reached():
    stream = module.Stream()
    event = stream.record_event()
    assert isinstance(event, module.Event)
    event.synchronize()
    assert event.query() is True


def test_streams_wait_for_events_and_streams():
    first, second = module.Stream(0), module.Stream(1)
    event = module.Event()
    event.record(first)
    second.wait_event(event)
    event.wait(second)
    second.wait_stream(first)
    second.synchronize()
    assert second.query() is True


def test_elapsed_time_is_measured_between_events():
    start = module.Event(enable_timing=True)
    end = module.Event(enable_timing=True)
    start.record()
    torch.ones(100, 100, device=DEVICE) @ torch.ones(100, 100, device=DEVICE)
    end.record()
    module.synchronize()
    assert start.elapsed_time(end) > 0
    assert end.elapsed_time(start) < 0


def test_elapsed_time_needs_recorded_events():
    start = module.Event(enable_timing=True)
    end = module.Event(enable_timing=True)
    end.record()
    with pytest.raises((RuntimeError, ValueError), match="recorded"):
        start.elapsed_time(end)


def test_elapsed_time_needs_timing():
    start, end = module.Event(), module.Event()
    start.record()
    end.record()
    with pytest.raises((RuntimeError, ValueError), match="enable_timing"):
        start.elapsed_time(end)


def test_elapsed_time_between_devices_is_refused():
    start, end = (module.Event(enable_timing=True) for _ in range(2))
    start.record(module.Stream(f"{DEVICE}:0"))
    end.record(module.Stream(f"{DEVICE}:1"))
    start.synchronize()
    end.synchronize()
    with pytest.raises(RuntimeError, match="different devices, 0 and 1"):
        start.elapsed_time(end)


def test_tensor_may_be_given_to_another_stream():
    tensor = torch.ones(8, device=DEVICE)
    tensor.record_stream(module.Stream())
    assert tensor.sum().item() == 8


def test_torch_accelerator_uses_the_streams():
    stream = torch.Stream(f"{DEVICE}:1")
    torch.accelerator.set_stream(stream)
    assert torch.accelerator.current_device_index() == 1
    assert torch.accelerator.current_stream() == stream
    assert torch.accelerator.current_stream(0).stream_id == module.default_stream(0).stream_id
    torch.accelerator.synchronize(1)
    assert stream.query()


def test_native_handle_names_the_stream():
    stream = module.Stream()
    if DEVICE == "cuda":
        assert stream.native_handle == stream.cuda_stream
    else:
        assert stream.native_handle == stream.stream_id
    again = module.ExternalStream(stream.native_handle)
    assert again == stream
    other = module.Stream(1)
    assert module.ExternalStream(other.native_handle, 1) == other


@cuda_only("a handle of CUDA names the device")
def test_stream_of_another_device_is_found_by_its_handle():
    stream = module.Stream(1)
    assert module.current_device() == 0
    assert module.ExternalStream(stream.cuda_stream) == stream
    assert module.get_stream_from_external(stream.cuda_stream, 0) == stream


@cuda_only("torch.cuda.Event.device")
def test_event_has_a_device_once_it_is_recorded():
    event = module.Event()
    assert event.device is None
    event.record(module.Stream(1))
    assert event.device == torch.device(DEVICE, 1)


def test_stream_says_whether_it_captures():
    stream, other = module.Stream(), module.Stream()
    graph = module.CUDAGraph()
    assert not stream.is_capturing()
    with module.graph(graph, stream=stream):
        torch.ones(2, device=DEVICE)
        assert stream.is_capturing()
        assert torch.accelerator.current_stream().is_capturing()
        assert not other.is_capturing()
    assert not stream.is_capturing()


def test_stream_is_found_by_its_native_handle():
    stream = module.Stream(f"{DEVICE}:1")
    assert module.get_stream_from_external(stream.native_handle, f"{DEVICE}:1") == stream


def test_priorities_are_clamped_to_the_range():
    lowest, highest = module.Stream.priority_range()
    assert (lowest, highest) == (0, -3)
    for priority, same in ((5, lowest), (-7, highest)):
        stream = module.Stream(priority=priority)
        alike = module.Stream(priority=same)
        assert (stream.stream_id - 1) // 32 == (alike.stream_id - 1) // 32 == -same


def test_no_stream_captures():
    assert module.is_current_stream_capturing() is False
    assert module.current_stream().is_capturing() is False


def test_external_stream_that_does_not_exist_is_refused():
    refused = (ValueError, "stream 1000: expected 0 to 128")
    if DEVICE == "cuda":
        refused = (RuntimeError, "0x3e8 is not a stream handle")
    with pytest.raises(refused[0], match=refused[1]):
        module.set_stream(module.ExternalStream(1000))


def test_stream_is_busy_until_its_work_is_done(close_gate):
    stream, other = module.Stream(), module.Stream()
    gate = close_gate(stream)
    assert not stream.query() and other.query()
    other.synchronize()
    gate.open()
    stream.synchronize()
    assert stream.query()


def test_event_recorded_again_stands_for_the_later_work(close_gate):
    stream, waiting = module.Stream(), module.Stream()
    first = close_gate(stream)
    event = stream.record_event()
    waiting.wait_event(event)
    second = close_gate(stream)
    stream.record_event(event)
    first.open()
    waiting.synchronize()  # for the recording that existed when it began to wait
    assert not event.query()
    second.open()
    event.synchronize()
    assert event.query()


def test_event_may_be_dropped_while_a_stream_waits_for_it(close_gate):
    stream, waiting = module.Stream(), module.Stream()
    gate = close_gate(stream)
    waiting.wait_event(stream.record_event())
    assert not waiting.query()
    gate.open()
    waiting.synchronize()


def test_elapsed_time_of_an_event_that_was_not_reached_is_refused(close_gate):
    start, end = (module.Event(enable_timing=True) for _ in range(2))
    start.record()
    gate = close_gate()
    end.record()
    with pytest.raises(RuntimeError):
        start.elapsed_time(end)
    gate.open()
    end.synchronize()
    assert start.elapsed_time(end) > 0
