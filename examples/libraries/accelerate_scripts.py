# openreg run --devices 1
"""accelerate: its own test scripts, and gradient accumulation."""

import runpy
import sys

import torch
from accelerate import Accelerator

for name in "test_ops", "test_sync", "test_script":
    sys.argv = [name]
    runpy.run_module(f"accelerate.test_utils.scripts.{name}", run_name="__main__")

accelerator = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=2)
model = torch.nn.Linear(4, 2)
data = torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=2, pin_memory=True)
optimizer = torch.optim.AdamW(model.parameters())
model, optimizer, data = accelerator.prepare(model, optimizer, data)
before = model.weight.detach().clone()
for inputs in data:
    with accelerator.accumulate(model):
        accelerator.backward(model(inputs).pow(2).mean())
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
assert inputs.is_cuda and not torch.equal(model.weight, before)
