"""RPC, which PyTorch without CUDA supports for CPU tensors."""

import pytest
from torch_openreg._releases import RELEASE

from device import DEVICE

CODE = f"""
import sys, torch, torch.distributed.rpc as rpc
options = rpc.TensorPipeRpcBackendOptions(init_method="file://{{path}}")
if {{maps}}:
    options.set_device_map("self", {{{{torch.device("{DEVICE}", 0): torch.device("{DEVICE}", 1)}}}})
try:
    rpc.init_rpc("self", rank=0, world_size=1, rpc_backend_options=options)
    print(rpc.rpc_sync("self", torch.add, (torch.ones(2), 1)).tolist())
    rpc.rpc_sync("self", torch.add, (torch.ones(2, device="{DEVICE}"), 1))
except (RuntimeError, ValueError) as error:
    print(str(error).splitlines()[0])
if not {{maps}}:
    rpc.shutdown()
"""


def run(python, tmp_path, maps):
    code = CODE.format(path=tmp_path / "store", maps=maps)
    return python(code, fresh=True).stdout.splitlines()


@pytest.mark.skipif(
    RELEASE >= (2, 14) and DEVICE != "cuda",
    reason="PyTorch 2.14 raises the error on a thread of TensorPipe, which ends the process",
)
def test_tensors_of_devices_are_refused(python, tmp_path):
    numbers, sentence = run(python, tmp_path, maps=False)
    assert numbers == "[2.0, 2.0]"
    assert sentence.startswith("TensorPipe RPC backend only supports CPU tensors by default")


def test_device_maps_are_refused_where_rpc_begins(python, tmp_path):
    (sentence,) = run(python, tmp_path, maps=True)
    if DEVICE == "cuda":
        expected = "openreg: RPC from 'self' has a device map for 'self', but PyTorch without CUDA"
    else:  # a device that PyTorch does not know
        expected = "Node self has source devices with invalid indices in its device map for self"
    assert sentence.startswith(expected)
