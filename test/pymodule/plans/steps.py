"""Training steps of small models. All values are constant, because the planner has no values."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def numbers(device, *sizes):
    return torch.empty(sizes, device=device).fill_(0.5)


def labels(device, *sizes):
    return torch.zeros(sizes, dtype=torch.long, device=device)


class Block(nn.Module):
    """A block of a transformer, with attention by matrix products."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            each.view(batch, length, self.heads, -1).transpose(1, 2)
            for each in self.qkv(self.norms[0](x)).chunk(3, -1)
        )
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        scores = (q @ k.transpose(-1, -2) * 0.1).masked_fill(mask, -torch.inf).softmax(-1)
        x = x + self.out((scores @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norms[1](x))


class FusedBlock(nn.Module):
    """A block with fused attention, in which several heads of queries share one of keys."""

    def __init__(self, width, heads, sharing=1):
        super().__init__()
        self.heads, self.size = (heads, heads // sharing), width // heads
        self.norm = nn.RMSNorm(width)
        self.query, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.key, self.value = (nn.Linear(width, width // sharing) for _ in range(2))

    def forward(self, x):
        batch, length, width = x.shape
        normed = self.norm(x)
        query, key, value = (
            each(normed).view(batch, length, -1, self.size).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        )
        attended = F.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=self.heads[0] != self.heads[1]
        )
        return x + self.out(attended.transpose(1, 2).reshape(batch, length, width))


def shared_heads(width, heads):
    return FusedBlock(width, heads, 4)


class Transformer(nn.Module):
    """A language model. `saves_memory`: with activation checkpointing."""

    def __init__(self, words=5000, width=256, depth=3, saves_memory=False, block=Block):
        super().__init__()
        self.saves_memory = saves_memory
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(256, width)
        self.blocks = nn.ModuleList(block(width, 4) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.saves_memory else block(x)
        return self.head(self.norm(x))


def stage(inputs, outputs):
    return nn.Sequential(
        *(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.SiLU()),
        *(nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.SiLU()),
    )


class UNet(nn.Module):
    """Two resolutions."""

    def __init__(self):
        super().__init__()
        self.down, self.middle, self.up = stage(3, 16), stage(16, 32), stage(48, 16)
        self.out = nn.Conv2d(16, 3, 1)

    def forward(self, x):
        high = self.down(x)
        low = F.interpolate(self.middle(F.avg_pool2d(high, 2)), scale_factor=2)
        return self.out(self.up(torch.cat([high, low], 1)))


def encoder():
    """An encoder with PyTorch's layers, which have fused attention with dropout."""
    layer = nn.TransformerEncoderLayer(256, 4, 512, batch_first=True)
    return nn.Sequential(
        nn.Embedding(5000, 256), nn.TransformerEncoder(layer, 2), nn.Linear(256, 5000)
    )


class Recurrent(nn.Module):
    """A language model with a recurrent network of two layers."""

    def __init__(self, kind):
        super().__init__()
        self.words, self.head = nn.Embedding(1000, 64), nn.Linear(64, 1000)
        self.layers = kind(64, 64, num_layers=2, dropout=0.1, batch_first=True)

    def forward(self, tokens):
        return self.head(self.layers(self.words(tokens))[0])


def mlp():
    return nn.Sequential(
        *(nn.Linear(784, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 512), nn.ReLU()),
        nn.Linear(512, 10),
    )


def convolutions():
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)),
    )


def classification(logits, target):
    return F.cross_entropy(logits.float().flatten(0, -2), target.flatten())


def images(device):
    return numbers(device, 32, 3, 64, 64), labels(device, 32)


def texts(device):
    return labels(device, 8, 128), labels(device, 8, 128)


def sentences(device):
    return labels(device, 8, 20), labels(device, 8, 20)


# The model, its data, its loss, and whether it runs under autocast.
PROGRAMS = {
    "mlp": (
        mlp,
        lambda device: (numbers(device, 256, 784), labels(device, 256)),
        classification,
        False,
    ),
    "convolutions": (convolutions, images, classification, False),
    "transformer": (Transformer, texts, classification, False),
    "transformer in bfloat16": (lambda: Transformer().bfloat16(), texts, classification, False),
    "transformer with autocast": (Transformer, texts, classification, True),
    "transformer with checkpoints": (
        lambda: Transformer(saves_memory=True),
        texts,
        classification,
        False,
    ),
    "fused transformer": (lambda: Transformer(block=FusedBlock), texts, classification, False),
    "fused transformer in bfloat16": (
        lambda: Transformer(block=FusedBlock).bfloat16(),
        texts,
        classification,
        False,
    ),
    "transformer with shared heads": (
        lambda: Transformer(block=shared_heads).bfloat16(),
        texts,
        classification,
        False,
    ),
    "encoder": (encoder, texts, classification, False),
    "encoder with autocast": (encoder, texts, classification, True),
    "lstm": (lambda: Recurrent(nn.LSTM), sentences, classification, False),
    "lstm with autocast": (lambda: Recurrent(nn.LSTM), sentences, classification, True),
    "gru": (lambda: Recurrent(nn.GRU), sentences, classification, False),
    "u-net": (UNet, lambda device: (numbers(device, 4, 3, 64, 64),) * 2, F.mse_loss, False),
}


def train(name, device, steps=3):
    """Train a model. Nothing of it is left."""
    make, data, loss_of, with_autocast = PROGRAMS[name]
    model = make().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    for _ in range(steps):
        inputs, target = data(device)
        with torch.autocast(device, torch.bfloat16, enabled=with_autocast):
            loss = loss_of(model(inputs), target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        del inputs, target, loss
