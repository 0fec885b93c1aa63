"""The legacy tensor types, such as torch.cuda.FloatTensor."""

import pytest
import torch

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type"),
    pytest.mark.filterwarnings("ignore:torch.sparse.SparseTensor"),
]

TYPES = sorted(
    (kind for kind in torch._tensor_classes if "cuda" in kind.__module__),
    key=lambda kind: (kind.__module__, kind.__name__),
)
DENSE = [kind for kind in TYPES if kind.layout == torch.strided]


@pytest.fixture
def default_tensor_type():
    yield
    torch.set_default_tensor_type(torch.FloatTensor)


def test_there_are_types_of_cuda():
    assert torch.cuda.FloatTensor in DENSE and torch.cuda.sparse.FloatTensor in TYPES
    assert len(DENSE) == len([kind for kind in torch._tensor_classes if kind.__module__ == "torch"])


@pytest.mark.parametrize("kind", DENSE, ids=lambda kind: kind.__name__)
def test_type_makes_tensors(kind):
    tensor = kind([[0, 1], [1, 0]])
    assert (tensor.dtype, tensor.device.type) == (kind.dtype, "cuda")
    assert tensor.tolist() == [[0, 1], [1, 0]]
    assert kind(2, 3).shape == (2, 3) and kind().shape == (0,)
    assert kind(torch.Size([4])).shape == (4,)


def test_type_makes_tensors_on_a_device():
    assert torch.cuda.FloatTensor(2, device="cuda:1").get_device() == 1
    with torch.cuda.device(1):
        assert torch.cuda.FloatTensor([1, 2]).get_device() == 1
    with pytest.raises(RuntimeError, match="expects device type: cuda but device type: cpu"):
        torch.cuda.FloatTensor(2, device="cpu")


def test_sparse_type_makes_tensors():
    indices, values = torch.tensor([[0, 2]]).cuda(), torch.tensor([1.0, 2.0]).cuda()
    tensor = torch.cuda.sparse.FloatTensor(indices, values, torch.Size([4]))
    assert tensor.to_dense().tolist() == [1.0, 0.0, 2.0, 0.0]


@pytest.mark.parametrize("kind", DENSE, ids=lambda kind: kind.__name__)
def test_instances_are_those_of_device_and_dtype(kind):
    tensor = torch.zeros(1, dtype=kind.dtype, device="cuda:1")
    assert isinstance(tensor, kind) and not isinstance(tensor.cpu(), kind)
    assert [other for other in DENSE if isinstance(tensor, other)] == [kind]
    assert tensor.type() == f"torch.cuda.{kind.__name__}"


def test_tensors_change_their_type():
    tensor = torch.tensor([1.5, 2.5])
    for kind in ("torch.cuda.HalfTensor", torch.cuda.HalfTensor):
        result = tensor.type(kind)
        assert result.type() == "torch.cuda.HalfTensor" and result.tolist() == [1.5, 2.5]
    back = tensor.cuda(1).type(torch.LongTensor)
    assert (str(back.device), back.tolist()) == ("cpu", [1, 2])
    assert tensor.cuda(1).type(torch.float64).get_device() == 1


def test_new_is_on_the_same_device():
    tensor = torch.ones(2, device="cuda:1")
    assert tensor.new([3.0]).get_device() == tensor.new(2, 2).get_device() == 1


@pytest.mark.parametrize("kind", [torch.cuda.DoubleTensor, "torch.cuda.DoubleTensor"])
def test_default_type_sets_device_and_dtype(default_tensor_type, kind):
    torch.set_default_tensor_type(kind)
    for tensor in (torch.ones(2), torch.Tensor(2), torch.tensor([1.0]), torch.rand(3)):
        assert (tensor.dtype, tensor.device.type) == (torch.float64, "cuda")
    assert torch.tensor([1]).dtype == torch.int64 and torch.tensor([1]).is_cuda
    assert torch.ones(2, device="cpu").device.type == "cpu"
    assert torch.nn.Linear(2, 2).weight.is_cuda
    torch.set_default_tensor_type(torch.FloatTensor)
    assert torch.ones(2).type() == torch.Tensor(2).type() == "torch.FloatTensor"


def test_default_type_is_of_floating_point(default_tensor_type):
    with pytest.raises(TypeError, match="only floating-point types are supported"):
        torch.set_default_tensor_type(torch.cuda.LongTensor)


def test_default_device_may_be_cuda():
    assert torch.get_default_device() == torch.device("cpu")
    torch.set_default_device("cuda")
    try:
        assert torch.get_default_device() == torch.device("cuda", 0)
        assert torch.ones(2).is_cuda
        torch.cuda.set_device(1)
        assert torch.get_default_device() == torch.device("cuda", 1)
    finally:
        torch.set_default_device(None)
    assert not torch.ones(2).is_cuda


def test_unexpected_layout_of_a_type_is_refused(monkeypatch):
    from torch_openreg.cuda import tensor_types

    monkeypatch.setattr(tensor_types, "_are_as_expected", lambda fields, kind: False)
    monkeypatch.setattr(torch, "_tensor_classes", {Unlike})
    with pytest.raises(ImportError, match="unexpected memory layout of Unlike: "):
        tensor_types.install()


class UnlikeMeta(type):
    is_cuda = True


class Unlike(metaclass=UnlikeMeta):
    pass
