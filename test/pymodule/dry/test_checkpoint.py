"""Stand-ins for checkpoints have names, sizes and dtypes, and no values."""

import json
import subprocess
import sys

import pytest
import torch
from torch_openreg.dry.checkpoint import (
    by_index,
    complete,
    split,
    write_files,
    write_stand_in,
)

pytestmark = pytest.mark.own_processes


def start(folder, *options):
    words = [sys.executable, "-m", "torch_openreg.dry.checkpoint", str(folder), *options]
    return subprocess.run(words, capture_output=True, text=True)


def weights(count, size):
    return [(f"layers.{i}.weight", torch.empty(size, device="meta")) for i in range(count)]


def header_of(path):
    with open(path, "rb") as file:
        return json.loads(file.read(int.from_bytes(file.read(8), "little")))


def test_a_stand_in_for_a_checkpoint_has_its_tensors_and_no_values(tmp_path):
    path = tmp_path / "model.safetensors"
    tensors = {
        "large": torch.empty(1 << 30, 2, device="meta", dtype=torch.bfloat16),
        "small": torch.empty((), device="meta", dtype=torch.int64),
    }
    assert write_stand_in(path, tensors.items()) == (4 << 30) + 8
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    assert header.pop("__metadata__") == {"format": "pt"}
    assert header == {
        "large": {"dtype": "BF16", "shape": [1 << 30, 2], "data_offsets": [0, 4 << 30]},
        "small": {"dtype": "I64", "shape": [], "data_offsets": [4 << 30, (4 << 30) + 8]},
    }
    assert length % 8 == 0
    assert path.stat().st_size == 8 + length + (4 << 30) + 8
    assert path.stat().st_blocks * 512 < 1 << 20
    with pytest.raises(FileExistsError):
        write_stand_in(path, tensors.items())


def test_a_folder_without_a_model_is_refused(tmp_path):
    words = [sys.executable, "-m", "torch_openreg.dry.checkpoint", str(tmp_path)]
    result = subprocess.run(words, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr == (
        f"{tmp_path}: expected a folder with config.json, or with files of safetensors that have "
        "headers\n"
    )


def test_several_files_have_an_index(tmp_path):
    tensors = [*weights(5, 1 << 28), ("head", torch.empty(3 << 30, device="meta"))]
    files = split(tensors, 2 << 30)
    assert [[name for name, _ in each] for each in files.values()] == [
        ["layers.0.weight", "layers.1.weight"],
        ["layers.2.weight", "layers.3.weight"],
        ["layers.4.weight"],
        ["head"],
    ]
    assert write_files(tmp_path, files) == 17 << 30
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": 17 << 30}
    assert index["weight_map"]["head"] == "model-00004-of-00004.safetensors"
    assert list(index["weight_map"]) == [name for name, _ in tensors]
    for name, file in index["weight_map"].items():
        assert name in header_of(tmp_path / file)
    assert sum(path.stat().st_blocks for path in tmp_path.iterdir()) * 512 < 1 << 20


def test_the_files_are_those_of_an_index_that_is_there(tmp_path):
    places = {"layers.0.weight": "b.safetensors", "head": "a.safetensors"}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places, "metadata": {"own": 1}}))
    known = dict(weights(1, 1 << 20)) | {"head": torch.empty(3, 5, device="meta")}
    write_files(tmp_path, by_index(tmp_path, known))
    for name, file in places.items():
        assert header_of(tmp_path / file)[name]["shape"] == list(known[name].shape)
    assert json.loads(index.read_text())["metadata"] == {"own": 1}
    with pytest.raises(SystemExit, match="has no tensor head"):
        by_index(tmp_path, dict(weights(1, 1)))


def test_files_that_end_after_their_headers_are_completed(tmp_path):
    whole = {}
    for name in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
        write_stand_in(tmp_path / name, weights(2, 1 << 30))
        path = tmp_path / name
        whole[path] = path.stat().st_size
        with open(path, "r+b") as file:
            file.truncate(8 + int.from_bytes(file.read(8), "little") + 100)  # and some values
    result = start(tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{tmp_path}: 2 files, 17.2 GB appended to headers\n"
    assert {path: path.stat().st_size for path in whole} == whole
    assert start(tmp_path).stderr == f"{next(iter(whole))} exists already\n"


def test_a_file_without_its_whole_header_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    write_stand_in(path, weights(1, 1 << 20))
    with open(path, "r+b") as file:
        end = 8 + int.from_bytes(file.read(8), "little")
        file.truncate(50)
    with pytest.raises(SystemExit, match=f"has 50 bytes, and the header ends at {end}"):
        complete(path)


@pytest.mark.parametrize("size", ["0", "x", "5T"])
def test_other_sizes_of_files_are_refused(tmp_path, size):
    result = start(tmp_path, f"--file-size={size}")
    assert result.returncode == 2
    assert f"{size}: expected a size such as 5G or 500M" in result.stderr
