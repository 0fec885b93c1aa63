"""Exchange with other libraries: DLPack and __cuda_array_interface__."""

import pytest
import torch
from torch.utils.dlpack import DLDeviceType


class Exporter:
    """An object of another library that supports one protocol."""

    def __init__(self, tensor):
        self.tensor = tensor
        self.streams = []

    def __dlpack__(self, stream=None, **arguments):
        self.streams.append(stream)
        return self.tensor.__dlpack__(stream=stream, **arguments)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


class Array:
    def __init__(self, tensor):
        self.tensor = tensor  # keeps the memory
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.complex64])
def test_dlpack_shares_memory(index, dtype):
    torch.cuda.set_device(index)
    tensor = torch.ones(2, 3, dtype=dtype, device="cuda").t()
    assert tensor.__dlpack_device__() == (DLDeviceType.kDLCUDA, index)
    for result in (
        torch.from_dlpack(tensor),
        torch.from_dlpack(Exporter(tensor)),
        torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(tensor)),
    ):
        assert (result.device, result.dtype) == (tensor.device, tensor.dtype)
        assert (result.shape, result.stride()) == (tensor.shape, tensor.stride())
        assert result.data_ptr() == tensor.data_ptr()
        result.zero_()
        assert not tensor.any()
        tensor.fill_(1)


def test_dlpack_copies_to_the_host():
    tensor = torch.arange(3.0, device="cuda")
    result = torch.from_dlpack(tensor, device="cpu", copy=True)
    assert (str(result.device), result.tolist()) == ("cpu", [0.0, 1.0, 2.0])


def test_dlpack_is_refused_from_another_current_device():
    tensor = torch.ones(1, device="cuda:1")
    with pytest.raises(BufferError, match="Expected: 1. Current device: 0"):
        tensor.__dlpack__()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_consumer_tells_its_stream(number):
    exporter = Exporter(torch.ones(1, device="cuda"))
    streams = [torch.cuda.Stream() for _ in range(number)]
    with torch.cuda.stream(streams[-1]):
        torch.from_dlpack(exporter)
    torch.from_dlpack(exporter)
    # 1 is the default stream; PyTorch rejects 2.
    assert exporter.streams == [streams[-1].cuda_stream, 1]
    assert exporter.streams[0] not in (0, 1, 2)


def test_consumer_waits_for_the_producer(close_gate):
    tensor = torch.zeros(3, device="cuda")
    tensor.add_(1)  # the first launch of a kind is synchronous
    torch.cuda.synchronize()
    consumer = torch.cuda.Stream()
    gate = close_gate()
    tensor.add_(1)
    result = torch.utils.dlpack.from_dlpack(tensor.__dlpack__(stream=consumer.cuda_stream))
    assert not consumer.query()
    gate.open()
    with torch.cuda.stream(consumer):
        assert result.tolist() == [2.0, 2.0, 2.0]


def test_stream_by_its_handle_is_that_stream():
    stream = torch.cuda.Stream(1)
    same = torch.cuda.ExternalStream(stream.cuda_stream, device=1)
    assert same == stream and same.stream_id == stream.stream_id
    assert torch.cuda.get_stream_from_external(stream.cuda_stream, 1) == stream
    default = torch.cuda.default_stream(1)
    assert default.cuda_stream == 0
    assert torch.cuda.get_stream_from_external(default.cuda_stream, 1) == default
    with torch.cuda.stream(stream):
        assert torch._C._cuda_getCurrentRawStream(1) == stream.cuda_stream
    assert torch._C._cuda_getCurrentRawStream(1) == 0


def test_address_of_no_stream_is_refused():
    with pytest.raises(RuntimeError, match="0x3 is not a stream handle"):
        torch.cuda.ExternalStream(3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.int32, torch.bool])
def test_array_interface_describes_memory(dtype):
    tensor = torch.ones(2, 3, dtype=dtype, device="cuda:1")[:, 1:]
    described = tensor.__cuda_array_interface__
    assert described["shape"] == (2, 2) and described["data"] == (tensor.data_ptr(), False)
    assert described["strides"] == (3 * tensor.itemsize, tensor.itemsize)
    result = torch.as_tensor(Array(tensor))
    assert (result.device, result.data_ptr()) == (tensor.device, tensor.data_ptr())
    assert torch.equal(result, tensor)


def test_array_interface_is_for_memory_on_devices():
    assert not hasattr(torch.ones(1), "__cuda_array_interface__")
    with pytest.raises(RuntimeError, match="requires grad"):
        torch.ones(1, device="cuda", requires_grad=True).__cuda_array_interface__  # noqa: B018


def test_numpy_is_refused_as_by_cuda():
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        torch.ones(1, device="cuda").numpy()


class Interface:
    """An object that describes memory by an interface, with some entries changed."""

    def __init__(self, tensor, **changes):
        self.tensor = tensor
        self.__cuda_array_interface__ = {**tensor.__cuda_array_interface__, **changes}


def test_array_with_strides_of_its_own_is_a_view():
    tensor = torch.arange(12.0, device="cuda").reshape(3, 4)
    view = torch.as_tensor(Interface(tensor, shape=(4, 3), strides=(4, 16)))
    assert (view.device, view.stride()) == (tensor.device, (1, 4))
    view.mul_(2)
    assert torch.equal(tensor.cpu(), 2 * torch.arange(12.0).reshape(3, 4))


@pytest.mark.parametrize("version", [0, 2, 3])
def test_version_and_mask_of_an_array_have_no_effect(version):
    tensor = torch.ones(3, device="cuda")
    array = Interface(tensor, version=version, mask=object(), stream=1)
    assert torch.as_tensor(array, device="cuda").data_ptr() == tensor.data_ptr()
    assert torch.tensor(array, device="cuda").data_ptr() != tensor.data_ptr()


def test_array_without_elements_needs_no_memory():
    tensor = torch.ones(3, device="cuda")
    result = torch.as_tensor(Interface(tensor, shape=(0, 4), data=(0, False)), device="cuda")
    assert (result.shape, result.device) == ((0, 4), tensor.device)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"data": (0, True)}, TypeError, "the read only flag is not supported"),
        ({"strides": (3,)}, ValueError, "not a multiple of the element byte size"),
        ({"data": (4096, False)}, RuntimeError, "not registered with any CUDA device"),
    ],
)
def test_array_that_cannot_be_a_tensor_is_refused(changes, error, message):
    with pytest.raises(error, match=message):
        torch.as_tensor(Interface(torch.ones(3, device="cuda"), **changes), device="cuda")


def test_array_in_pinned_memory_is_refused():
    pinned = torch.ones(3).pin_memory()
    array = Interface(torch.ones(3, device="cuda"), data=(pinned.data_ptr(), False))
    with pytest.raises(RuntimeError, match="is pinned host memory"):
        torch.as_tensor(array, device="cuda")


def test_memory_of_another_device_keeps_its_device():
    tensor = torch.arange(3.0, device="cuda:1")
    same = torch.as_tensor(Interface(tensor))
    assert (same.device, same.data_ptr()) == (tensor.device, tensor.data_ptr())
