"""torchao: results with 8-bit weights on a device equal those on the host."""

import copy

import torch
from torchao.quantization import (
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    quantize_,
)

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
model.bfloat16()
inputs = torch.randn(4, 64).bfloat16()
for config in Int8WeightOnlyConfig(), Int8DynamicActivationInt8WeightConfig():
    results = []
    for device in "cpu", "cuda":
        quantized = copy.deepcopy(model).to(device)
        quantize_(quantized, config)
        results.append(quantized(inputs.to(device)))
    assert results[1].is_cuda
    torch.testing.assert_close(results[1].cpu(), results[0], rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(results[0], model(inputs), rtol=0.1, atol=0.05)
