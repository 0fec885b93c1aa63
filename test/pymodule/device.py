"""The devices that tests use, whichever device type of PyTorch they are."""

import os

import torch

DEVICE = os.environ.get("OPENREG_DEVICE_TYPE") or "openreg"
NAME = "CUDA" if DEVICE == "cuda" else DEVICE  # in sentences
KEY = torch._C._dispatch_key_for_device(DEVICE)

module = torch.get_device_module(DEVICE)
memory = module.memory

# torch.cuda.memory has no name for it.
attach_out_of_memory_observer = (
    getattr(memory, "_attach_out_of_memory_observer", None)
    or torch._C._cuda_attach_out_of_memory_observer
)

MIB = 1 << 20


def handle(stream):
    """Return the number that figures of memory and allocators have for a stream."""
    return stream.cuda_stream if DEVICE == "cuda" else stream.stream_id


def allocate(nbytes, index=0):
    return torch.empty(nbytes, dtype=torch.uint8, device=f"{DEVICE}:{index}")


def limit_to(nbytes):
    """Let this process reserve so many bytes more of the first device."""
    total = module.mem_get_info(0)[1]
    module.set_per_process_memory_fraction((nbytes + module.memory_reserved(0)) / total, 0)
