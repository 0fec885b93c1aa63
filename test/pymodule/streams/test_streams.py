"""Streams and events: making, choosing and ordering them, in the words of `torch.cuda`."""

import threading

import pytest
import torch


def test_default_stream_is_current_at_first():
    for index in (0, 1):
        assert torch.openreg.current_stream(index) == torch.openreg.default_stream(index)
        assert torch.openreg.default_stream(index).stream_id == 0


def test_new_stream_is_on_the_device_asked_for():
    assert torch.openreg.Stream().device == torch.device("openreg:0")
    assert torch.openreg.Stream("openreg:1").device == torch.device("openreg:1")
    torch.openreg.set_device(1)
    assert torch.openreg.Stream(-1).device == torch.device("openreg:1")


def test_new_streams_differ_from_each_other_and_from_the_default():
    first, second = torch.openreg.Stream(), torch.openreg.Stream()
    assert len({first, second, torch.openreg.default_stream()}) == 3


def test_pool_of_streams_comes_around():
    streams = [torch.openreg.Stream() for _ in range(33)]
    assert len(set(streams[:32])) == 32
    assert streams[32] == streams[0]


def test_priorities_have_pools_of_their_own():
    normal = {torch.openreg.Stream(priority=0) for _ in range(32)}
    high = {torch.openreg.Stream(priority=-1) for _ in range(32)}
    assert not normal & high


@pytest.mark.parametrize("function", ["Stream", "current_stream", "default_stream"])
def test_stream_of_a_device_out_of_range_is_refused(function):
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        getattr(torch.openreg, function)(2)


def test_stream_can_be_made_again_from_its_numbers():
    stream = torch.openreg.Stream(1)
    again = torch.openreg.Stream(
        stream_id=stream.stream_id,
        device_index=stream.device_index,
        device_type=stream.device_type,
    )
    assert again == stream


def test_streams_and_events_of_the_device_are_instances_however_made():
    for stream in (torch.openreg.Stream(), torch.Stream("openreg"), torch.openreg.current_stream()):
        assert isinstance(stream, torch.openreg.Stream)
    for event in (torch.openreg.Event(), torch.Event("openreg")):
        assert isinstance(event, torch.openreg.Event)
    assert not isinstance(torch.openreg.Event(), torch.openreg.Stream)
    assert not isinstance(torch.device("openreg"), torch.openreg.Stream)


def test_set_stream_changes_stream_and_device():
    stream = torch.openreg.Stream(1)
    torch.openreg.set_stream(stream)
    assert torch.openreg.current_stream() == stream
    assert torch.openreg.current_device() == 1


def test_set_stream_ignores_none():
    torch.openreg.set_stream(None)
    assert torch.openreg.current_stream() == torch.openreg.default_stream()


def test_stream_context_restores_streams_and_device():
    stream = torch.openreg.Stream(1)
    with torch.openreg.stream(stream):
        assert torch.openreg.current_device() == 1
        assert torch.openreg.current_stream() == stream
        assert torch.ones(1, device="openreg").get_device() == 1
    assert torch.openreg.current_device() == 0
    assert torch.openreg.current_stream(0) == torch.openreg.default_stream(0)
    assert torch.openreg.current_stream(1) == torch.openreg.default_stream(1)


def test_stream_context_ignores_none():
    with torch.openreg.stream(None):
        assert torch.openreg.current_stream() == torch.openreg.default_stream()


def test_a_stream_is_a_context_itself():
    stream = torch.openreg.Stream(1)
    with stream:
        assert torch.accelerator.current_stream() == stream
    assert torch.accelerator.current_stream() == torch.openreg.default_stream(0)


def test_current_stream_belongs_to_the_thread():
    torch.openreg.set_stream(torch.openreg.Stream())
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.openreg.current_stream()))
    thread.start()
    thread.join()
    assert seen == [torch.openreg.default_stream()]


def test_idle_stream_answers_done():
    stream = torch.openreg.Stream()
    with stream:
        torch.ones(8, device="openreg")
    stream.synchronize()
    assert stream.query() is True


def test_recorded_event_is_reached():
    stream = torch.openreg.Stream()
    event = stream.record_event()
    assert isinstance(event, torch.openreg.Event)
    event.synchronize()
    assert event.query() is True


def test_streams_wait_for_events_and_streams():
    first, second = torch.openreg.Stream(0), torch.openreg.Stream(1)
    event = torch.openreg.Event()
    event.record(first)
    second.wait_event(event)
    event.wait(second)
    second.wait_stream(first)
    second.synchronize()
    assert second.query() is True


def test_elapsed_time_is_measured_between_events():
    start = torch.openreg.Event(enable_timing=True)
    end = torch.openreg.Event(enable_timing=True)
    start.record()
    torch.ones(100, 100, device="openreg") @ torch.ones(100, 100, device="openreg")
    end.record()
    torch.openreg.synchronize()
    assert start.elapsed_time(end) > 0
    assert end.elapsed_time(start) < 0


def test_elapsed_time_needs_recorded_events():
    start = torch.openreg.Event(enable_timing=True)
    end = torch.openreg.Event(enable_timing=True)
    end.record()
    with pytest.raises((RuntimeError, ValueError), match="recorded"):
        start.elapsed_time(end)


def test_elapsed_time_needs_timing():
    start, end = torch.openreg.Event(), torch.openreg.Event()
    start.record()
    end.record()
    with pytest.raises((RuntimeError, ValueError), match="enable_timing"):
        start.elapsed_time(end)


def test_elapsed_time_between_devices_is_refused():
    start, end = (torch.openreg.Event(enable_timing=True) for _ in range(2))
    start.record(torch.openreg.Stream("openreg:0"))
    end.record(torch.openreg.Stream("openreg:1"))
    start.synchronize()
    end.synchronize()
    with pytest.raises(RuntimeError, match="different devices, 0 and 1"):
        start.elapsed_time(end)


def test_tensor_may_be_given_to_another_stream():
    tensor = torch.ones(8, device="openreg")
    tensor.record_stream(torch.openreg.Stream())
    assert tensor.sum().item() == 8


def test_accelerator_knows_the_streams():
    stream = torch.openreg.Stream(1)
    torch.accelerator.set_stream(stream)
    assert torch.accelerator.current_device_index() == 1
    assert torch.accelerator.current_stream() == stream
    assert torch.accelerator.current_stream(0) == torch.openreg.default_stream(0)
    torch.accelerator.synchronize(1)
    assert stream.query()


def test_native_handle_is_the_number_of_the_stream():
    stream = torch.openreg.Stream()
    assert stream.native_handle == stream.stream_id
    again = torch.openreg.ExternalStream(stream.native_handle)
    assert again == stream
    assert torch.openreg.ExternalStream(stream.native_handle, 1).device_index == 1


def test_stream_is_found_by_its_native_handle():
    stream = torch.openreg.Stream("openreg:1")
    assert torch.openreg.get_stream_from_external(stream.native_handle, "openreg:1") == stream


def test_priorities_beyond_the_range_are_its_ends():
    lowest, highest = torch.openreg.Stream.priority_range()
    assert (lowest, highest) == (0, -1)
    for priority, same in ((5, lowest), (-7, highest)):
        stream = torch.openreg.Stream(priority=priority)
        alike = torch.openreg.Stream(priority=same)
        assert (stream.stream_id > 32) == (alike.stream_id > 32) == (same < 0)


def test_no_stream_captures():
    assert torch.openreg.is_current_stream_capturing() is False
    assert torch.openreg.current_stream().is_capturing() is False


def test_external_stream_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="stream 1000: expected 0 to 64"):
        torch.openreg.set_stream(torch.openreg.ExternalStream(1000))


def test_stream_is_busy_until_its_work_is_done(close_gate):
    stream, other = torch.openreg.Stream(), torch.openreg.Stream()
    gate = close_gate(stream)
    assert not stream.query() and other.query()
    other.synchronize()
    gate.open()
    stream.synchronize()
    assert stream.query()


def test_event_recorded_again_stands_for_the_later_work(close_gate):
    stream, waiting = torch.openreg.Stream(), torch.openreg.Stream()
    first = close_gate(stream)
    event = stream.record_event()
    waiting.wait_event(event)
    second = close_gate(stream)
    stream.record_event(event)
    first.open()
    waiting.synchronize()  # for the record that was there when it began to wait
    assert not event.query()
    second.open()
    event.synchronize()
    assert event.query()


def test_event_may_be_dropped_while_a_stream_waits_for_it(close_gate):
    stream, waiting = torch.openreg.Stream(), torch.openreg.Stream()
    gate = close_gate(stream)
    waiting.wait_event(stream.record_event())
    assert not waiting.query()
    gate.open()
    waiting.synchronize()


def test_elapsed_time_of_an_event_that_was_not_reached_is_refused(close_gate):
    start, end = (torch.openreg.Event(enable_timing=True) for _ in range(2))
    start.record()
    gate = close_gate()
    end.record()
    with pytest.raises(RuntimeError):
        start.elapsed_time(end)
    gate.open()
    end.synchronize()
    assert start.elapsed_time(end) > 0
