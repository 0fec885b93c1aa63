"""Sending tensors and events on cuda to other processes with torch.multiprocessing."""

import pytest
import torch
from peers import Peer, drop, keep, kept, values

CASES = {
    "contiguous": lambda: torch.arange(6.0, device="cuda").reshape(2, 3),
    "transposed": lambda: torch.arange(6.0, device="cuda").reshape(2, 3).t(),
    "strided": lambda: torch.arange(20, device="cuda")[3::4],
    "scalar": lambda: torch.tensor(3.5, device="cuda"),
    "second device": lambda: torch.arange(4, device="cuda:1"),
    "no elements": lambda: torch.empty(0, 3, device="cuda:1"),
    "requires grad": lambda: torch.ones(2, device="cuda", requires_grad=True),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2, device="cuda")),
    "half": lambda: torch.ones(2, device="cuda", dtype=torch.float16),
}


@pytest.fixture(scope="module")
def peer():
    with Peer() as peer:
        yield peer


def describe(tensor):
    return {
        "type": type(tensor).__name__,
        "device": str(tensor.device),
        "dtype": str(tensor.dtype),
        "size": tuple(tensor.size()),
        "stride": tensor.stride(),
        "offset": tensor.storage_offset(),
        "requires_grad": tensor.requires_grad,
        "values": tensor.tolist(),
    }


@pytest.mark.parametrize("case", CASES)
def test_tensor_arrives_as_it_is(peer, case):
    tensor = CASES[case]()
    assert peer.call(describe, tensor) == describe(tensor)


def add(tensor, value):
    tensor.add_(value)
    torch.cuda.synchronize()


def test_both_processes_have_the_same_memory(peer):
    tensor = torch.zeros(3, device="cuda:1")
    peer.call(add, tensor, 5)
    assert tensor.tolist() == [5, 5, 5]


def test_received_tensors_see_later_changes(peer):
    tensor = torch.zeros(3, device="cuda")
    peer.call(keep, "kept", tensor)
    tensor.fill_(7)
    torch.cuda.synchronize()
    assert peer.call(values, "kept") == [7, 7, 7]
    peer.call(drop, "kept")


def share_memory(first, second):
    return first.untyped_storage()._cdata == second.untyped_storage()._cdata


def test_tensors_of_one_storage_arrive_as_that(peer):
    tensor = torch.arange(6.0, device="cuda")
    assert peer.call(share_memory, tensor[:3], tensor[2:])
    assert not peer.call(share_memory, tensor, tensor.clone())


def test_sparse_tensor_arrives(peer):
    tensor = torch.tensor([[0.0, 2.0], [3.0, 0.0]], device="cuda").to_sparse()
    assert peer.call(torch.Tensor.tolist, tensor.to_dense()) == tensor.to_dense().tolist()
    assert peer.call(sparse_values, tensor) == [2.0, 3.0]


def sparse_values(tensor):
    return tensor.coalesce().values().tolist()


def test_received_tensor_cannot_be_sent_again(peer):
    with pytest.raises(RuntimeError, match="received from another process"):
        peer.call(keep_and_reduce, torch.ones(2, device="cuda"))


def keep_and_reduce(tensor):
    tensor.untyped_storage()._share_cuda_()


def test_received_storage_cannot_be_resized(peer):
    with pytest.raises(RuntimeError, match="not resizable"):
        peer.call(grow, torch.ones(2, device="cuda"))


def grow(tensor):
    tensor.untyped_storage().resize_(1 << 20)


def test_storage_alone_is_refused_as_by_cuda():
    with (
        Peer() as other,
        pytest.raises(RuntimeError, match="Cannot pickle CUDA storage"),
    ):
        other.call(keep, "storage", torch.ones(2, device="cuda").untyped_storage())


def test_storage_of_the_host_is_not_shared_as_one_of_a_device():
    with pytest.raises(RuntimeError, match="_share_cuda_: only available on CUDA"):
        torch.UntypedStorage(3)._share_cuda_()


# ---- queues and events ---------------------------------------------------------------------------


def answer(questions, answers):
    tensor = questions.get()
    answers.put(tensor * 2)
    questions.get()


def test_tensors_go_through_queues():
    context = torch.multiprocessing.get_context("spawn")
    questions, answers = context.Queue(), context.Queue()
    process = context.Process(target=answer, args=(questions, answers), daemon=True)
    process.start()
    questions.put(torch.arange(3.0, device="cuda:1"))
    received = answers.get()
    assert (received.tolist(), received.get_device()) == ([0.0, 2.0, 4.0], 1)
    del received
    questions.put(None)
    process.join()
    assert process.exitcode == 0


def is_reached(event):
    event.synchronize()
    return event.query()


def test_event_arrives(peer):
    event = torch.cuda.Event(interprocess=True)
    event.record()
    assert peer.call(is_reached, event)


def wait_for_kept(name):
    kept[name].wait()
    torch.cuda.synchronize()
    return True


def test_stream_waits_for_an_event_of_another_process(peer):
    event = torch.cuda.Event(interprocess=True)
    event.record()
    peer.call(keep, "event", event)
    assert peer.call(wait_for_kept, "event")
    peer.call(drop, "event")


def test_handle_makes_the_event(peer):
    event = torch.cuda.Event(interprocess=True)
    event.record()
    handle = event.ipc_handle()
    assert peer.call(query_by_handle, handle)


def query_by_handle(handle):
    event = torch.cuda.Event.from_ipc_handle(torch.cuda.current_device(), handle)
    event.synchronize()
    return event.query()
