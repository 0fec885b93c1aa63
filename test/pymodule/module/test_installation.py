"""What is installed: every module, and libraries that run on the oldest supported system."""

import importlib.machinery
import importlib.util
from pathlib import Path

import pytest
import torch_openreg

ROOT = Path(__file__).parents[3]
TOOL = ROOT / "tools" / "check-wheel"
PACKAGE = ROOT / "pymodule" / "torch_openreg"

pytestmark = pytest.mark.skipif(
    not TOOL.exists(), reason="a wheel's tests have no sources beside them"
)


def test_every_module_is_installed():
    """A file that meson.build does not list would be missing."""
    installed = Path(torch_openreg.__file__).parent
    sources = {path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")}
    assert sources - {path.relative_to(installed) for path in installed.rglob("*.py")} == set()


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
