"""Train a language model of the shape of Llama 3 with FSDP2, in bfloat16.

With the default sizes it has 8 billion parameters. A dry run says whether a training step fits into
the memory of GPUs that you do not have (docs/dry-run.md):

    openreg run --dry --ranks 8 --represent 0 examples/train_language_model.py --length 8192
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F

DEVICE = torch.accelerator.current_accelerator() or torch.device("cuda")


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Turn pairs of numbers by the angles of their positions."""
    one, other = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([one * cos - other * sin, other * cos + one * sin], -1).to(x.dtype)


class Attention(nn.Module):
    """Self-attention in which several heads of queries share the keys and values of one."""

    def __init__(self, width: int, heads: int, shared: int) -> None:
        super().__init__()
        self.size = width // heads
        self.query, self.out = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(width, width // shared, bias=False) for _ in range(2))

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        """Attend to the position of each token and those before it."""
        query, key, value = (
            each(x).unflatten(-1, (-1, self.size)).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        )
        attended = F.scaled_dot_product_attention(
            rotate(query, angles), rotate(key, angles), value, is_causal=True, enable_gqa=True
        )
        return self.out(attended.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    """One layer: attention and a gated network."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.norm, self.inner_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads, shared=4)
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        """Add both parts to the input."""
        x = x + self.attention(self.norm(x), angles)
        normed = self.inner_norm(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Model(nn.Module):
    """Predicts the next token of each."""

    def __init__(self, sizes: argparse.Namespace) -> None:
        super().__init__()
        self.size = sizes.width // sizes.heads
        self.words = nn.Embedding(sizes.words, sizes.width)
        self.blocks = nn.ModuleList(
            Block(sizes.width, sizes.heads, sizes.inner) for _ in range(sizes.layers)
        )
        self.norm = nn.RMSNorm(sizes.width)
        self.head = nn.Linear(sizes.width, sizes.words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of all words for each position."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        speeds = 500000 ** -(torch.arange(0, self.size, 2, device=tokens.device) / self.size)
        angles = torch.outer(positions, speeds)
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x, angles)
        return self.head(self.norm(x))


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser()
    for name, size in (
        *(("layers", 32), ("width", 4096), ("heads", 32), ("inner", 14336), ("words", 128256)),
        *(("length", 8192), ("batch", 1), ("steps", 3)),
    ):
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument(
        "--checkpoint", action="store_true", help="recompute each layer in the backward"
    )
    return parser.parse_args()


def main() -> None:
    """Train the model on random tokens."""
    sizes = parse()
    torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(device_id=torch.device(DEVICE.type, int(os.environ["LOCAL_RANK"])))
    mesh = init_device_mesh(DEVICE.type, (dist.get_world_size(),))
    with torch.device("meta"):
        model = Model(sizes)
    if sizes.checkpoint:
        for i, block in enumerate(model.blocks):
            model.blocks[i] = checkpoint_wrapper(block)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh, mp_policy=policy)
    model.to_empty(device=DEVICE)
    for module in model.modules():
        if callable(reset := getattr(module, "reset_parameters", None)):
            reset()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(sizes.steps):
        tokens = torch.randint(sizes.words, (sizes.batch, sizes.length + 1), device=DEVICE)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
