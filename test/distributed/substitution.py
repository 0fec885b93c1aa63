"""Loads PyTorch's test files with words replaced in their source before it is compiled.

The files say `cuda` and `nccl`; this module can replace these by another device type and by "occl".
It does not change the files.
"""

import importlib.abc
import importlib.util
import re
import sys

FILES = (
    "torch.testing._internal.common_distributed",
    "torch.testing._internal.distributed.distributed_test",
)

# Smaller images for one test, which would take half an hour on a CPU.
FOR_ALL = ((r"^( +)dim = 1000\n +batch = 1$", r"\1dim = 100\n\1batch = 1"),)

# Applied in this order; {name} is the device type. Words that are not device names stay: names of
# tests, arguments and imported modules, and the modules of torch.cuda for NCCL.
FOR_OTHERS = (
    (r"\bTEST_CUDA,\n", "TEST_PRIVATEUSE1 as TEST_CUDA,\n"),
    (r"\btorch\.cuda\.(?!amp\b|nccl\b)", r"torch.{name}."),
    (r"^import torch\.\w+$", ""),
    (r"\.cuda\(", r".{name}("),
    (r'"cuda"(?!\])', r'"{name}"'),
    (r'"cuda:', r'"{name}:'),
    (r"\bDeviceType\.CUDA\b", "DeviceType.PrivateUse1"),
    (r"\bProfilerActivity\.CUDA\b", "ProfilerActivity.PrivateUse1"),
    (r'"nccl"', '"occl"'),
    (r"\bBackend\.NCCL\b", "Backend.OCCL"),
    (r"\bProcessGroupNCCL\b", "ProcessGroupOCCL"),
    (r"\bis_nccl_available\(\)", "is_gloo_available()"),  # occl is available where Gloo is
    (r"\btorch\.cuda\.nccl\.version\(\)", "(2, 29, 7)"),
    (r"\b(autocast|GradScaler)\(\)", r'torch.amp.\1("{name}")'),
)


class _Loader(importlib.abc.SourceLoader):
    def __init__(self, path, device_type):
        self._path, self._device_type = path, device_type

    def get_filename(self, fullname):
        return self._path

    def get_data(self, path):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        replacements = FOR_ALL if self._device_type == "cuda" else FOR_ALL + FOR_OTHERS
        for pattern, replacement in replacements:
            replacement = replacement.replace("{name}", self._device_type)
            text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
        return text.encode()


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, device_type):
        self._device_type = device_type

    def find_spec(self, fullname, path, target=None):
        if fullname not in FILES:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        loader = _Loader(found.origin, self._device_type)
        return importlib.util.spec_from_file_location(fullname, found.origin, loader=loader)


def install(device_type):
    """Load the files with the name of a device type. They must not have been imported before."""
    assert not set(FILES) & set(sys.modules)
    sys.meta_path.insert(0, _Finder(device_type))
