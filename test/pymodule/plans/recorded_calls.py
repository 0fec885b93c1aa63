"""The calls in test/fixtures/operators-*, which tools/record_cuda_operators.py makes."""

import gzip
import json
from pathlib import Path

RECORDS = sorted((Path(__file__).resolve().parents[2] / "fixtures").glob("operators-*.json.gz"))


def as_signature(value):
    """Return a value of a signature, in which JSON has made tuples to lists."""
    if not isinstance(value, list):
        return value
    if value and value[0] == "tensor":
        return tuple(tuple(each) if isinstance(each, list) else each for each in value)
    if value and value[0] in ("again", "dtype", "layout", "format", "device"):
        return tuple(value)
    return [as_signature(each) for each in value]


def load_answers(path):
    with gzip.open(path, "rt") as file:
        return json.load(file)["answers"]


def settings_of(answer):
    """Return the settings of a call, without cuDNN."""
    *settings, _ = (tuple(each) if isinstance(each, list) else each for each in answer["settings"])
    return (*settings, False)
