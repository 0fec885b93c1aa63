"""The installed libraries run on the oldest supported system (tools/check-wheel)."""

import importlib.machinery
import importlib.util
from pathlib import Path

import pytest
import torch_openreg

TOOL = Path(__file__).parents[3] / "tools" / "check-wheel"

pytestmark = pytest.mark.skipif(
    not TOOL.exists(), reason="a wheel's tests have no tools beside them"
)


def test_libraries_need_no_newer_symbols():
    pytest.importorskip("elftools")
    loader = importlib.machinery.SourceFileLoader("check_wheel", str(TOOL))
    spec = importlib.util.spec_from_loader("check_wheel", loader)
    check_wheel = importlib.util.module_from_spec(spec)
    loader.exec_module(check_wheel)
    libraries = [
        path
        for path in Path(torch_openreg.__file__).parent.rglob("*.so*")
        if "toolkit" not in path.parts  # linker scripts
    ]
    assert any(path.name.startswith("_C.") for path in libraries)
    newer = {
        (path.name, version)
        for path in libraries
        for version in check_wheel.read_library(path.read_bytes()).versions
        if check_wheel.is_new(version)
    }
    assert newer == set()
