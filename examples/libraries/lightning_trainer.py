"""Lightning: Trainer(accelerator="gpu", devices=1) in each precision, compared with the CPU."""

import tempfile

import lightning
import torch


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = torch.nn.Sequential(
            torch.nn.Linear(8, 16),
            torch.nn.BatchNorm1d(16),
            torch.nn.ReLU(),
            torch.nn.Linear(16, 2),
        )
        self.losses = []

    def training_step(self, batch, index):
        inputs, labels = batch
        assert inputs.device == self.device
        loss = torch.nn.functional.cross_entropy(self.network(inputs), labels)
        self.log("loss", loss)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-2)


def train(accelerator, devices, precision, folder):
    lightning.seed_everything(1)
    data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
    loader = torch.utils.data.DataLoader(data, 16, pin_memory=True)
    trainer = lightning.Trainer(
        accelerator=accelerator,
        devices=devices,
        precision=precision,
        max_epochs=2,
        default_root_dir=folder,
        enable_progress_bar=False,
        logger=False,
    )
    module = Classifier()
    trainer.fit(module, loader)
    assert trainer.strategy.root_device.type == ("cpu" if accelerator == "cpu" else "cuda")
    return module.losses


with tempfile.TemporaryDirectory() as folder:
    expected = train("cpu", 1, "32-true", folder)
    torch.testing.assert_close(train("gpu", 1, "32-true", folder), expected)
    for devices, precision in (1, "16-mixed"), ([1], "bf16-mixed"):
        losses = train("gpu", devices, precision, folder)
        torch.testing.assert_close(losses, expected, rtol=1e-2, atol=1e-2)
