# openreg run --devices 2
"""Lightning's FSDP on two devices: it continues from its own checkpoints, as on the CPU.

Lightning starts this program again for the second device.
"""

import os
import pathlib
import shutil
import tempfile

import lightning
import torch
from lightning.pytorch.strategies import FSDPStrategy


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.network = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
        )

    def training_step(self, batch, index):
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.network(inputs), targets)

    def train_dataloader(self):
        """In order: Lightning's own sampler shuffles."""
        sampler = torch.utils.data.DistributedSampler(
            data(), self.trainer.world_size, self.global_rank, shuffle=False
        )
        return torch.utils.data.DataLoader(data(), 8, sampler=sampler)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.01)


def data():
    generator = torch.Generator().manual_seed(1)
    return torch.utils.data.TensorDataset(
        torch.randn(64, 8, generator=generator), torch.randn(64, 1, generator=generator)
    )


def train(kind, epochs, load, save):
    trainer = lightning.Trainer(
        accelerator="gpu",
        devices=2,
        strategy=FSDPStrategy(state_dict_type=kind, auto_wrap_policy={torch.nn.Linear}),
        use_distributed_sampler=False,
        max_epochs=epochs,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        logger=False,
    )
    trainer.fit(Regression(), ckpt_path=load)
    trainer.save_checkpoint(save)
    return trainer.global_rank


expected = Regression()
optimizer = expected.configure_optimizers()
for _ in range(4):
    for inputs, targets in torch.utils.data.DataLoader(data(), 16):
        torch.nn.functional.mse_loss(expected.network(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()

if "SHARED_FOLDER" not in os.environ:  # the process for the second device inherits it
    os.environ["SHARED_FOLDER"] = tempfile.mkdtemp()
folder = pathlib.Path(os.environ["SHARED_FOLDER"])
rank = checked = 0
for kind, other in [("full", "sharded"), ("sharded", "full")]:
    train(kind, 2, None, folder / f"{kind}-2")
    train(kind, 3, folder / f"{kind}-2", folder / f"{kind}-3")
    # Either kind of checkpoint can be continued with the other kind.
    rank = train(other, 4, folder / f"{kind}-3", folder / f"{kind}-4")
    if rank == 0 and other == "full":
        state = torch.load(folder / f"{kind}-4", weights_only=True)["state_dict"]
        for name, parameter in expected.state_dict().items():
            torch.testing.assert_close(state[name].cpu(), parameter)
            checked += 1
if rank == 0:
    assert checked == 4
    shutil.rmtree(folder)
