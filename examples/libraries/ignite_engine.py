"""ignite: a trainer with mixed precision and an evaluator."""

import ignite.distributed as idist
import torch
from ignite.engine import create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy

torch.manual_seed(0)
device = idist.device()
assert device.type == "cuda"
inputs = torch.randn(200, 10)
data = torch.utils.data.TensorDataset(inputs, (inputs[:, 0] > 0).long())
loader = torch.utils.data.DataLoader(data, 20)
model = torch.nn.Linear(10, 2).to(device)
trainer = create_supervised_trainer(
    model,
    torch.optim.SGD(model.parameters(), 0.5),
    torch.nn.CrossEntropyLoss(),
    device=device,
    amp_mode="amp",
    scaler=True,
)
trainer.run(loader, max_epochs=5)
metrics = {"accuracy": Accuracy(device=device)}
evaluator = create_supervised_evaluator(model, metrics, device=device)
assert evaluator.run(loader).metrics["accuracy"] > 0.9
