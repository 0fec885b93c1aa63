# openreg run --devices 2
"""Lightning on two devices, one process each, compared with plain steps on the CPU.

Lightning starts this program again for the second device.
"""

import tempfile

import lightning
import torch


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.network = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
        )

    def training_step(self, batch, index):
        inputs, targets = batch
        assert inputs.device == self.device
        return torch.nn.functional.mse_loss(self.network(inputs), targets)

    def train_dataloader(self):
        """In order: Lightning's own sampler shuffles."""
        sampler = torch.utils.data.DistributedSampler(
            data(), self.trainer.world_size, self.global_rank, shuffle=False
        )
        return torch.utils.data.DataLoader(data(), 8, sampler=sampler)

    def on_train_end(self):
        gathered = self.all_gather(self.network[0].weight.detach())
        assert gathered.shape[0] == 2 and torch.equal(gathered[0], gathered[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def data():
    generator = torch.Generator().manual_seed(1)
    return torch.utils.data.TensorDataset(
        torch.randn(64, 8, generator=generator), torch.randn(64, 1, generator=generator)
    )


def train(folder):
    trainer = lightning.Trainer(
        accelerator="gpu",
        devices=2,
        strategy="ddp",
        use_distributed_sampler=False,
        max_epochs=2,
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_checkpointing=False,
        logger=False,
    )
    module = Regression()
    trainer.fit(module)
    assert trainer.world_size == 2
    assert torch.distributed.get_backend() == "nccl"
    return module


expected = Regression()
optimizer = torch.optim.SGD(expected.parameters(), 0.1)
for _ in range(2):
    for inputs, targets in torch.utils.data.DataLoader(data(), 16):
        torch.nn.functional.mse_loss(expected.network(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()

with tempfile.TemporaryDirectory() as folder:
    module = train(folder)
    for parameter, other in zip(module.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(parameter.detach().cpu(), other.detach())
