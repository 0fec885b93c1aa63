"""Stand-ins for checkpoints: files with the names, sizes and dtypes of a model and with no values.

    python -m torch_openreg.dry.checkpoint FOLDER

The values are a hole: they read as zeros and take no space on the disk. FOLDER has one of these:

- `config.json` of a model of transformers. The file is FOLDER/model.safetensors. With --file-size
  there are several files and an index, model.safetensors.index.json. If FOLDER has an index, the
  files are those that it names.
- Files of safetensors that end after their headers, as a download of their first bytes has them.
  The command appends the hole.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

__all__ = ["by_index", "complete", "split", "write_files", "write_stand_in"]

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
_INDEX = "model.safetensors.index.json"

Tensors = list[tuple[str, torch.Tensor]]


def _bytes(tensor: torch.Tensor) -> int:
    return math.prod(tensor.shape) * tensor.element_size()


def write_stand_in(path: Path, tensors: Iterable[tuple[str, torch.Tensor]]) -> int:
    """Write a file with these names, sizes and dtypes; return the bytes of the values."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors:
        begin, end = end, end + _bytes(tensor)
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


def split(tensors: Tensors, limit: int) -> dict[str, Tensors]:
    """Return the tensors of each file, which has at most `limit` bytes or one tensor.

    Names of files are those that transformers gives them.
    """
    files: list[Tensors] = []
    size = 0
    for name, tensor in tensors:
        size += _bytes(tensor)
        if not files or size > limit:
            files.append([])
            size = _bytes(tensor)
        files[-1].append((name, tensor))
    count = len(files)
    return {f"model-{i:05}-of-{count:05}.safetensors": each for i, each in enumerate(files, 1)}


def write_files(folder: Path, files: dict[str, Tensors]) -> int:
    """Write files and, unless the folder has it, their index; return the bytes of the values."""
    size = sum(write_stand_in(folder / name, tensors) for name, tensors in files.items())
    places = {name: file for file, tensors in files.items() for name, _ in tensors}
    index = {"metadata": {"total_size": size}, "weight_map": places}
    if not (folder / _INDEX).exists():
        (folder / _INDEX).write_text(json.dumps(index, indent=2))
    return size


def complete(path: Path) -> int:
    """Append the hole to a file that ends after its header; return the bytes that it lacked."""
    there = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if there < 8 + length:
            sys.exit(f"{path} has {there} bytes, and the header ends at {8 + length}")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    end = 8 + length + max((each["data_offsets"][1] for each in header.values()), default=0)
    if there < end:
        os.truncate(path, end)
    return max(0, end - there)


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


def _tensors(model: torch.nn.Module) -> Tensors:
    """Return what a checkpoint of the model has: parameters once each, and persistent buffers."""
    kept = set(model.state_dict())
    buffers = [(name, each) for name, each in model.named_buffers() if name in kept]
    return [*model.named_parameters(), *buffers]


def by_index(folder: Path, known: Mapping[str, torch.Tensor]) -> dict[str, Tensors]:
    """Return the tensors of each file that the folder's index names.

    `known` has all tensors of the model, also those that have several names.
    """
    files: dict[str, Tensors] = {}
    for name, file in json.loads((folder / _INDEX).read_text())["weight_map"].items():
        if name not in known:
            sys.exit(f"{folder / _INDEX}: the model of config.json has no tensor {name}")
        files.setdefault(file, []).append((name, known[name]))
    return files


def _file_size(text: str) -> int:
    number, unit = (text[:-1], text[-1]) if text[-1:] in tuple("MG") else (text, "")
    if not number.isdecimal() or int(number) == 0:
        raise argparse.ArgumentTypeError(f"{text}: expected a size such as 5G or 500M")
    return int(number) * {"M": 10**6, "G": 10**9, "": 1}[unit]


def main() -> None:
    """Write the stand-in for a folder."""
    parser = argparse.ArgumentParser(
        prog="python -m torch_openreg.dry.checkpoint",
        description="Write files of safetensors with the names, sizes and dtypes of a model, and "
        "with a hole in place of the values.",
    )
    parser.add_argument(
        "folder",
        type=Path,
        help="has config.json of a model of transformers, or files that end after their headers",
    )
    parser.add_argument(
        "--file-size",
        type=_file_size,
        metavar="SIZE",
        help="write several files of at most SIZE, such as 5G, and their index",
    )
    arguments = parser.parse_args()
    folder = arguments.folder
    if paths := sorted(folder.glob("*.safetensors")):
        sizes = [complete(path) for path in paths]
        if not any(sizes):
            sys.exit(f"{paths[0]} exists already")
        print(f"{folder}: {len(paths)} files, {sum(sizes) / 1e9:.1f} GB appended to headers")
        return
    if not (folder / "config.json").is_file():
        sys.exit(
            f"{folder}: expected a folder with config.json, or with files of safetensors that have "
            "headers"
        )
    model = _model(folder)
    tensors = _tensors(model)
    if (folder / _INDEX).exists():
        files = by_index(folder, model.state_dict())
    elif arguments.file_size is not None:
        files = split(tensors, arguments.file_size)
    else:
        files = {"model.safetensors": tensors}
    if list(files) == ["model.safetensors"]:
        size = write_stand_in(folder / "model.safetensors", tensors)
    else:
        size = write_files(folder, files)
    blocks = sum(os.stat(folder / name).st_blocks for name in files) * 512
    count = sum(map(len, files.values()))
    print(
        f"{folder}: {len(files)} files, {count} tensors, {size / 1e9:.1f} GB, "
        f"{blocks} bytes on the disk"
    )


if __name__ == "__main__":
    main()
