"""Stand-ins for checkpoints: a file with the names, sizes and dtypes of a model and with no values.

    python -m torch_openreg.dry.checkpoint FOLDER

FOLDER has the `config.json` of a model of transformers. The file is FOLDER/model.safetensors. Its
values are a hole: they read as zeros and take no space on the disk.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

__all__ = ["write_stand_in"]

# The names of dtypes in files of safetensors.
_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_ALIGNMENT = 8  # of the values in the file


def write_stand_in(path: Path, tensors: Iterable[tuple[str, torch.Tensor]]) -> int:
    """Write a file with these names, sizes and dtypes; return the bytes of the values."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors:
        begin, end = end, end + math.prod(tensor.shape) * tensor.element_size()
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with open(path, "xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(file.tell() + end)
    return end


def _model(folder: Path) -> torch.nn.Module:
    """Return the model that the folder's config.json describes, without memory."""
    import transformers  # type: ignore[import-not-found]

    config = transformers.AutoConfig.from_pretrained(folder)
    if not config.architectures:
        sys.exit(
            f"{folder / 'config.json'}: expected a list 'architectures' with the model's class"
        )
    kind = getattr(transformers, config.architectures[0])
    with torch.device("meta"):
        model = kind(config)
    return model if config.dtype is None else model.to(config.dtype)


def _tensors(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Return what a checkpoint of the model has: parameters once each, and persistent buffers."""
    kept = set(model.state_dict())
    buffers = [(name, each) for name, each in model.named_buffers() if name in kept]
    return [*model.named_parameters(), *buffers]


def main() -> None:
    """Write the stand-in for a folder."""
    parser = argparse.ArgumentParser(
        prog="python -m torch_openreg.dry.checkpoint",
        description="Write model.safetensors with the names, sizes and dtypes of a model, and with "
        "a hole in place of the values.",
    )
    parser.add_argument("folder", type=Path, help="has config.json, of a model of transformers")
    folder = parser.parse_args().folder
    path = folder / "model.safetensors"
    if not (folder / "config.json").is_file():
        sys.exit(f"{folder}: expected a folder with config.json")
    if path.exists():
        sys.exit(f"{path} exists already")
    tensors = _tensors(_model(folder))
    size = write_stand_in(path, tensors)
    blocks = os.stat(path).st_blocks * 512
    print(f"{path}: {len(tensors)} tensors, {size / 1e9:.1f} GB, {blocks} bytes on the disk")


if __name__ == "__main__":
    main()
