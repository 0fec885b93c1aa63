"""AOTInductor: packages of programs of a device run on the device."""

import gc

import pytest
import torch
from torch import nn
from torch_openreg.inductor import graph_kernel

from device import DEVICE, module

OTHER = f"{DEVICE}:1"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 4)
        )
        self.register_buffer("offsets", torch.arange(4.0))

    def forward(self, x):
        return self.layers(x) + self.offsets + torch.ones(4, device=x.device), x.sum(0)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Model().to(DEVICE).eval()


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    inputs = torch.randn(3, 8, device=DEVICE)
    shapes = {"x": {0: torch.export.Dim("batch", min=2)}}
    program = torch.export.export(model, (inputs,), dynamic_shapes=shapes)
    file = tmp_path_factory.mktemp("package") / "model.pt2"
    return torch._inductor.aoti_compile_and_package(program, package_path=str(file))


def test_package_computes_what_the_model_does(model, path):
    package = torch._inductor.aoti_load_package(path)
    assert {each.device.type for each in model.state_dict().values()} == {DEVICE}
    for batch in (3, 5, 7):
        x = torch.randn(batch, 8, device=DEVICE)
        for mine, expected in zip(package(x), model(x), strict=True):
            assert mine.device == expected.device
            torch.testing.assert_close(mine, expected)


def test_results_are_memory_of_the_device(path):
    package = torch._inductor.aoti_load_package(path)
    x = torch.randn(4096, 8, device=DEVICE)
    package(x)
    before = module.memory_allocated()
    results = package(x)
    assert module.memory_allocated() - before == 4096 * 4 * 4 + 512
    del results
    assert module.memory_allocated() == before


def test_package_runs_on_the_current_stream(path):
    package = torch._inductor.aoti_load_package(path)
    x = torch.randn(4, 8, device=DEVICE)
    expected, _ = package(x)
    module.synchronize()
    side = module.Stream()
    with module.stream(side):
        mine, _ = package(x)
    side.synchronize()
    assert torch.equal(mine, expected)


def test_package_is_loaded_onto_another_device(model, path):
    package = torch._inductor.aoti_load_package(path, device_index=1)
    x = torch.randn(4, 8, device=OTHER)
    mine, total = package(x)
    assert {mine.device, total.device} == {torch.device(OTHER)}
    torch.testing.assert_close(mine.to(f"{DEVICE}:0"), model(x.to(f"{DEVICE}:0"))[0])


@pytest.mark.parametrize("device", ["cpu", OTHER])
def test_inputs_of_another_device_are_refused(path, device):
    package = torch._inductor.aoti_load_package(path)
    with pytest.raises(ValueError, match=f"loaded for {DEVICE}:0, but an input is on {device}"):
        package(torch.randn(4, 8, device=device))


def test_weights_are_exchanged(path):
    package = torch._inductor.aoti_load_package(path)
    zeros = {
        name: torch.zeros_like(weight)
        for name, weight in Model().to(DEVICE).state_dict().items()
        if name in package.get_constant_fqns()  # the others were folded
    }
    package.load_constants(zeros, check_full_update=True)
    first, second, *_ = package(torch.randn(4, 8, device=DEVICE))[0]
    assert torch.equal(first, second)


def test_transformer_that_is_evaluated_draws_nothing(tmp_path):
    model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).to(DEVICE).eval()
    x = torch.randn(2, 8, 16, device=DEVICE)
    path = str(tmp_path / "transformer.pt2")
    torch._inductor.aoti_compile_and_package(torch.export.export(model, (x,)), package_path=path)
    torch.testing.assert_close(torch._inductor.aoti_load_package(path)(x), model(x))


def test_a_package_goes_with_its_last_reference(path):
    gc.collect()
    before = len(graph_kernel._programs)
    package = torch._inductor.aoti_load_package(path)
    x = torch.randn(4, 8, device=DEVICE)
    result, _ = package(x)
    assert len(graph_kernel._programs) == before + 1
    del package
    gc.collect()
    assert len(graph_kernel._programs) == before
    assert torch.isfinite(result).all().item()


def test_random_numbers_are_refused(tmp_path):
    class Noise(nn.Module):
        def forward(self, x):
            return x + torch.rand_like(x)

    program = torch.export.export(Noise(), (torch.randn(3, device=DEVICE),))
    with pytest.raises(NotImplementedError, match="would use the random numbers of the CPU"):
        torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "noise.pt2"))


def test_package_of_the_host_is_as_before(tmp_path):
    program = torch.export.export(Model().eval(), (torch.randn(3, 8),))
    path = str(tmp_path / "host.pt2")
    package = torch._inductor.aoti_load_package(
        torch._inductor.aoti_compile_and_package(program, package_path=path)
    )
    assert package(torch.randn(3, 8))[0].device.type == "cpu"
