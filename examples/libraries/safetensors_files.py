"""safetensors: files loaded into device memory."""

import tempfile

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

tensors = {"a": torch.randn(3, 4, device="cuda"), "b": torch.arange(5, device="cuda:1").half()}
with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
    save_file(tensors, file.name)
    there = load_file(file.name, device="cuda:1")
    assert {str(tensor.device) for tensor in there.values()} == {"cuda:1"}
    for name, tensor in tensors.items():
        assert torch.equal(there[name].cpu(), tensor.cpu())
    with safe_open(file.name, "pt", device=0) as opened:
        assert str(opened.get_slice("a")[:2].device) == "cuda:0"
