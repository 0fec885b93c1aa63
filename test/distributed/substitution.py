"""PyTorch's files of tests, with words replaced in their text before it is compiled.

They say `cuda` and `nccl`; loaded through this, they may say another device type, and "occl". No
file is changed.
"""

import importlib.abc
import importlib.util
import re
import sys

FILES = (
    "torch.testing._internal.common_distributed",
    "torch.testing._internal.distributed.distributed_test",
)

# The images of one test, for which a processor would need half an hour.
FOR_ALL = ((r"^( +)dim = 1000\n +batch = 1$", r"\1dim = 100\n\1batch = 1"),)

# In their order; {name} is the device type. What is no name of a device stays: the names of tests,
# of arguments, of modules that are imported, of modules of torch.cuda that are about NCCL.
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
    (r"\bis_nccl_available\(\)", "is_gloo_available()"),  # occl is there where Gloo is
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
    """Load the files, which nobody may have imported yet, with the name of a device type."""
    assert not set(FILES) & set(sys.modules)
    sys.meta_path.insert(0, _Finder(device_type))
