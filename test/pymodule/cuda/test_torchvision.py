"""The CUDA wheel of torchvision, whose operators are compiled for CUDA, computes what the CPU does.

`tools/test-environments` installs it beside PyTorch's CUDA build. Without it the tests are skipped.
"""

import pytest
import torch

from device import DEVICE

torchvision = pytest.importorskip("torchvision")


def some_boxes(generator):
    corners = torch.rand(50, 2, generator=generator) * 20
    return torch.cat([corners, corners + 1 + 10 * torch.rand(50, 2, generator=generator)], 1)


def test_nms():
    generator = torch.Generator().manual_seed(0)
    boxes, scores = some_boxes(generator), torch.rand(50, generator=generator)
    kept = torchvision.ops.nms(boxes.to(DEVICE), scores.to(DEVICE), 0.3)
    assert kept.device.type == DEVICE
    assert 0 < len(kept) < 50
    assert kept.tolist() == torchvision.ops.nms(boxes, scores, 0.3).tolist()


def test_roi_align_and_its_gradient():
    generator = torch.Generator().manual_seed(0)
    boxes = some_boxes(generator)
    results = []
    for device in ("cpu", DEVICE):
        image = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(1)).to(device)
        image.requires_grad_()
        pooled = torchvision.ops.roi_align(image, [boxes.to(device)], output_size=4)
        pooled.square().sum().backward()
        assert pooled.device.type == image.grad.device.type == device
        results.append((pooled.detach().cpu(), image.grad.cpu()))
    torch.testing.assert_close(results[1], results[0])


def test_step_of_a_resnet():
    results = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(0)
        network = torchvision.models.resnet18(num_classes=5)
        images, labels = torch.rand(2, 3, 64, 64), torch.tensor([1, 3])
        network.to(device)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        loss = torch.nn.functional.cross_entropy(network(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        state = {name: value.cpu() for name, value in network.state_dict().items()}
        results.append((loss.detach().cpu(), state))
    torch.testing.assert_close(results[1], results[0])
