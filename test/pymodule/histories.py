"""A history of memory as tests begin it, and what they look at in a snapshot."""

import gc

import pytest
import torch

from device import DEVICE, memory, module

MIB = 1 << 20


@pytest.fixture(autouse=True)
def recording_ends():
    """Every test begins with nothing recorded and nothing cached."""
    gc.collect()
    module.init()
    module.empty_cache()
    yield
    memory._record_memory_history(enabled=None)


def allocate(nbytes, device=DEVICE):
    return torch.empty(nbytes, dtype=torch.uint8, device=device)


def allocate_in_a_function_with_this_name(nbytes):
    return allocate(nbytes)


def block_of(tensor, snapshot):
    address = tensor.untyped_storage().data_ptr()
    (block,) = [
        block
        for segment in snapshot["segments"]
        for block in segment["blocks"]
        if block["address"] == address
    ]
    return block


def events(snapshot, device=0):
    return snapshot["device_traces"][device]


def actions(snapshot, device=0):
    return [event["action"] for event in events(snapshot, device)]


def names(frames):
    return [frame["name"] for frame in frames]
