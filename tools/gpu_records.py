"""Files with records of GPUs, which tests compare with simulated devices: test/fixtures."""

import gzip
import json
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "test" / "fixtures"

Record = dict[str, Any]


def load(path: Path) -> Record:
    """Read a record."""
    with gzip.open(path, "rt") as file:
        return json.load(file)


def save(record: Record, path: Path) -> None:
    """Write a record. The same record gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def path_of(subject: str) -> Path:
    """Return the default file of a record of the first GPU."""
    name = torch.cuda.get_device_name(0).lower().replace(" ", "-")
    return FIXTURES / f"{subject}-{name}.json.gz"


def versions() -> Record:
    """Return which GPU this is, and which libraries the program uses."""
    return {
        "gpu": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }
