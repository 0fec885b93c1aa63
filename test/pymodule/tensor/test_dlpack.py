"""DLPack shares memory without a copy, or raises an error that explains why not."""

import copy
import gc

import numpy
import pytest
import torch
from torch.utils.dlpack import DLDeviceType, from_dlpack, to_dlpack

from device import DEVICE, module

KIND = DLDeviceType.kDLCUDA if DEVICE == "cuda" else DLDeviceType.kDLExtDev


@pytest.fixture(autouse=True)
def second_device():
    """Make the second device current: torch.cuda exports memory of the current device only."""
    module.set_device(1)


def numbers(device=f"{DEVICE}:1"):
    return torch.arange(6.0, device=device)


def test_device_is_an_extension_with_the_index():
    assert numbers().__dlpack_device__() == (KIND, 1)
    assert torch.nn.Parameter(numbers(f"{DEVICE}:0")).__dlpack_device__() == (KIND, 0)
    assert torch.ones(1).__dlpack_device__() == (DLDeviceType.kDLCPU, 0)


@pytest.mark.parametrize("exchange", [torch.from_dlpack, lambda t: from_dlpack(to_dlpack(t))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_memory_is_shared(exchange, dtype):
    tensor = numbers().to(dtype)
    other = exchange(tensor)
    assert (other.device, other.dtype) == (tensor.device, dtype)
    assert other.data_ptr() == tensor.data_ptr()
    other.zero_()
    assert tensor.count_nonzero() == 0


def test_strides_and_offset_survive():
    tensor = numbers().reshape(2, 3).t()[1:]
    other = torch.from_dlpack(tensor)
    assert (other.shape, other.stride()) == (tensor.shape, tensor.stride())
    assert torch.equal(other, tensor)


def test_memory_lives_as_long_as_the_capsule_and_the_tensor_from_it():
    tensor = numbers()
    capsule = to_dlpack(tensor)
    del tensor
    gc.collect()
    other = from_dlpack(capsule)
    del capsule
    over = [torch.full((6,), 9.0, device=f"{DEVICE}:1") for _ in range(8)]
    assert other.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0] and len(over) == 8


def test_memory_of_an_unused_capsule_is_freed():
    gc.collect()
    before = module.memory_allocated(1)
    capsule = to_dlpack(numbers())
    assert module.memory_allocated(1) > before
    del capsule
    assert module.memory_allocated(1) == before


def test_operators_accept_an_imported_tensor():
    other = torch.from_dlpack(numbers())
    expected = torch.arange(6.0)
    other.add_(1).mul_(other)
    expected.add_(1).mul_(expected)
    assert torch.equal(other.cpu(), expected)
    assert torch.equal((other + other).cpu(), expected * 2)
    assert torch.equal(other.to(f"{DEVICE}:0").cpu(), expected)
    assert torch.equal(copy.deepcopy(other).cpu(), expected)
    assert torch.equal(torch.nn.functional.relu_(other - 3).cpu(), (expected - 3).relu())


def test_views_of_an_imported_tensor_share_its_memory():
    tensor = numbers()
    other = torch.from_dlpack(tensor)
    for view in (other[0:2], other.view(2, 3)[1], other.chunk(3)[1], other.detach()):
        assert view.untyped_storage().data_ptr() == tensor.data_ptr()
        view.fill_(-1)
    assert tensor.tolist() == [-1.0] * 6


def test_gradients_flow_through_an_imported_tensor():
    other = torch.from_dlpack(numbers()).requires_grad_()
    (other * other).sum().backward()
    assert torch.equal(other.grad.cpu(), 2 * torch.arange(6.0))


def test_copy_is_made_on_request():
    tensor = numbers()
    other = torch.from_dlpack(tensor, copy=True)
    assert other.data_ptr() != tensor.data_ptr() and torch.equal(other, tensor)


@pytest.mark.parametrize("target", [f"{DEVICE}:0", "cpu"])
def test_tensor_is_copied_to_another_device(target):
    other = torch.from_dlpack(numbers(), device=target)
    assert other.device == torch.device(target)
    assert other.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    with pytest.raises(ValueError, match="without copying"):
        torch.from_dlpack(numbers(), device=target, copy=False)


def test_host_tensor_is_copied_to_a_device():
    other = torch.from_dlpack(numpy.arange(3.0), device=f"{DEVICE}:1")
    assert other.device == torch.device(f"{DEVICE}:1") and other.tolist() == [0.0, 1.0, 2.0]


def test_library_for_the_host_refuses_device_memory():
    with pytest.raises((RuntimeError, BufferError), match="Unsupported device in DLTensor"):
        numpy.from_dlpack(numbers())


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: numbers().requires_grad_(), "require gradient"),
        (lambda: torch.ones(2, dtype=torch.cfloat, device=DEVICE).conj(), "conjugate bit"),
        (lambda: torch.eye(2, device=DEVICE).to_sparse(), "layout other than torch.strided"),
    ],
)
def test_tensors_that_dlpack_cannot_describe_are_refused(make, sentence):
    with pytest.raises(BufferError, match=sentence):
        make().__dlpack__()


def test_imported_memory_cannot_grow():
    with pytest.raises(RuntimeError, match="storage that is not resizable"):
        torch.from_dlpack(numbers()).resize_(1000)


def test_subclass_handles_dlpack_itself():
    class Elsewhere(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            if function is torch.Tensor.__dlpack_device__:
                return DLDeviceType.kDLCUDA, 5
            return super().__torch_function__(function, types, args, kwargs or {})

    assert numbers().as_subclass(Elsewhere).__dlpack_device__() == (DLDeviceType.kDLCUDA, 5)
