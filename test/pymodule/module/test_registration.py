"""Registration with PyTorch: automatic, by import, only once, and only for one version."""

import importlib.metadata
import re
import sys
import types
from pathlib import Path

import pytest
import torch
import torch_openreg
from modes import cuda_only, openreg_only
from torch_openreg._version import TORCH_VERSION

from device import DEVICE, module

USE = f"print(torch.ones(2, device='{DEVICE}').sum().item())"
AUTOLOAD = "PyTorch without its backends, or changed before they are loaded"
OF_TORCH_OPENREG = "the names in torch.openreg"
RELEASE = ".".join(TORCH_VERSION.split(".")[:2])
PRIVATEUSE1 = "what PyTorch does for a device type of another name"


def test_import_torch_is_enough(python):
    assert python(f"import torch; {USE}", fresh=True).stdout == "2.0\n"


SOURCES = Path(__file__).parents[3] / "pymodule" / "torch_openreg"


@pytest.mark.skipif(not SOURCES.exists(), reason="a wheel's tests have no sources beside them")
def test_every_file_of_the_package_is_installed():
    """The build lists the files one by one."""
    installed = Path(torch_openreg.__file__).parent
    names = {path.relative_to(SOURCES) for path in SOURCES.rglob("*.py")}
    assert len(names) > 50
    assert [str(name) for name in sorted(names) if not (installed / name).exists()] == []


@openreg_only(AUTOLOAD)
def test_explicit_import_works_without_autoload(python):
    result = python(
        f"""
        import torch
        assert not hasattr(torch, "openreg")
        import torch_openreg
        {USE}
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert result.stdout == "2.0\n"


def test_package_may_be_imported_before_torch(python):
    assert python(f"import torch_openreg, torch; {USE}", fresh=True).stdout == "2.0\n"


@openreg_only(AUTOLOAD)
def test_package_may_be_imported_before_torch_without_autoload(python):
    result = python(f"import torch_openreg, torch; {USE}", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert result.stdout == "2.0\n"


def test_autoload_entry_point_may_be_called_again():
    import torch_openreg

    torch_openreg._autoload()
    assert module.device_count() == 2


def test_import_initializes_no_device(python):
    code = "from device import module; print(module.is_initialized())"
    assert python(code, fresh=True).stdout == "False\n"


@openreg_only(AUTOLOAD)
def test_another_version_of_torch_is_refused_before_the_extension_is_loaded(python):
    result = python(
        """
        import sys, torch
        torch.__version__ = torch.torch_version.TorchVersion("2.1.1+cpu")
        try:
            import torch_openreg
        except ImportError as error:
            print(error)
        assert "torch_openreg._C" not in sys.modules
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert result.stdout == (
        f"torch_openreg works with PyTorch {RELEASE}, but PyTorch 2.1.1+cpu is installed: "
        f'pip install "torch=={RELEASE}.*"\n'
    )


# The file from which PyTorch reads its version, with another version.
OTHER_PYTORCH = """
import importlib.util, pathlib, sys, types
file = pathlib.Path(importlib.util.find_spec("torch").origin).with_name("version.py")
version = types.ModuleType("torch.version")
exec(file.read_text().replace(f"'{TORCH_VERSION}", "'2.1.1"), version.__dict__)
sys.modules["torch.version"] = version
import torch
assert torch.__version__.startswith("2.1.1")
"""


@openreg_only(AUTOLOAD)
def test_programs_for_the_cpu_go_on_with_another_version_of_torch(python):
    result = python(
        f"TORCH_VERSION = {TORCH_VERSION!r}"
        + OTHER_PYTORCH
        + "print((torch.ones(2) + 1).tolist(), hasattr(torch, 'openreg'))\n"
        + "assert 'torch_openreg._C' not in sys.modules",
        fresh=True,
    )
    assert result.stdout == "[2.0, 2.0] False\n"
    (sentence,) = result.stderr.splitlines()
    assert re.fullmatch(
        rf"torch_openreg works with PyTorch {re.escape(RELEASE)}, but PyTorch 2\.1\.1\S* is "
        rf'installed: pip install "torch=={re.escape(RELEASE)}\.\*"',
        sentence,
    )


def assert_reported(result, reason):
    (sentence,) = result.stderr.splitlines()
    assert re.fullmatch(
        rf"openreg: loading failed: {reason}\. Run `openreg doctor` for a remedy\.", sentence
    )


@openreg_only("CUDA mode loads the extension in another way: the next test")
def test_programs_for_the_cpu_go_on_without_the_extension(python):
    result = python(
        """
        import sys
        sys.modules["torch_openreg._C"] = None
        import torch
        print((torch.ones(2) + 1).tolist(), hasattr(torch, "openreg"))
        """,
        fresh=True,
    )
    assert result.stdout == "[2.0, 2.0] False\n"
    assert_reported(result, ".*torch_openreg._C.*")


@cuda_only("openreg mode loads the extension in another way: the test above")
@pytest.mark.parametrize("step", ["torch._C", "torch.cuda"])
def test_programs_for_the_cpu_go_on_where_cuda_mode_fails(python, step):
    result = python(
        f"""
        import _openreg_cuda_mode

        def fail():
            raise OSError("libhwloc.so.15: cannot open shared object file\\nsecond line")

        _openreg_cuda_mode._Finder._steps[{step!r}] = fail
        import torch
        print((torch.ones(2) + 1).tolist(), torch.cuda.is_available())
        """,
        fresh=True,
    )
    assert result.stdout == "[2.0, 2.0] False\n"
    assert_reported(result, "libhwloc.so.15: cannot open shared object file")


def test_importing_the_package_raises_what_import_torch_reported(python):
    result = python(
        """
        import _openreg_autoload
        _openreg_autoload.report(OSError("openreg: a reason."))
        import torch
        try:
            import torch_openreg
        except ImportError as error:
            print(error)
        """,
        fresh=True,
    )
    assert result.stdout == "openreg: a reason.\n"
    assert_reported(result, "a reason")


def test_the_version_is_the_distributions():
    assert torch_openreg.__version__ == importlib.metadata.version("torch_openreg")
    assert torch_openreg.__version__.endswith(f"+torch{RELEASE}")


def test_the_distribution_requires_the_release_that_it_was_built_for():
    requirements = importlib.metadata.requires("torch_openreg") or []
    assert [one for one in requirements if one.startswith("torch=")] == [f"torch=={RELEASE}.*"]


@openreg_only(AUTOLOAD)
@pytest.mark.parametrize("version", [f"{TORCH_VERSION}+cu130", f"{RELEASE}.9", f"{RELEASE}.0a0"])
def test_all_builds_and_versions_of_the_release_are_accepted(python, version):
    python(
        f"""
        import torch
        torch.__version__ = torch.torch_version.TorchVersion("{version}")
        import torch_openreg
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )


def test_device_module_has_the_name_of_the_device():
    assert torch.get_device_module(DEVICE) is getattr(torch, DEVICE)
    assert torch.get_device_module(torch.device(f"{DEVICE}:1")) is getattr(torch, DEVICE)


@openreg_only(OF_TORCH_OPENREG)
def test_submodules_are_the_same_under_either_name():
    import torch.openreg.memory
    import torch_openreg.openreg.memory

    assert torch.openreg.memory is torch_openreg.openreg.memory
    assert sys.modules["torch.openreg.memory"] is sys.modules["torch_openreg.openreg.memory"]


@openreg_only(OF_TORCH_OPENREG)
def test_every_public_name_exists():
    for name in torch.openreg.__all__:
        assert hasattr(torch.openreg, name), name


@openreg_only(OF_TORCH_OPENREG)
def test_public_names_are_spelled_as_in_torch_cuda():
    ours = {"devices", "get_amp_supported_dtype", "operators"}
    for name in set(torch.openreg.__all__) - ours:
        assert hasattr(torch.cuda, name), name


def test_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        module.nonsense  # noqa: B018


@openreg_only(PRIVATEUSE1)
def test_renaming_to_the_same_name_is_allowed():
    torch.utils.rename_privateuse1_backend("openreg")
    assert torch._C._get_privateuse1_backend_name() == "openreg"


@openreg_only(PRIVATEUSE1)
def test_renaming_to_another_name_is_refused():
    with pytest.raises(RuntimeError, match="has already been set"):
        torch.utils.rename_privateuse1_backend("other")


@openreg_only(PRIVATEUSE1)
def test_methods_cannot_be_generated_twice():
    with pytest.raises(RuntimeError, match="has already been registered with is_openreg"):
        torch.utils.generate_methods_for_privateuse1_backend()


@openreg_only(PRIVATEUSE1)
def test_device_module_cannot_be_registered_twice():
    with pytest.raises(RuntimeError, match="The runtime module of 'openreg' has already"):
        torch._register_device_module("openreg", types.ModuleType("fake"))


@openreg_only(PRIVATEUSE1)
def test_profiler_activity_and_device_type_carry_the_name():
    from torch._C._autograd import DeviceType
    from torch._C._profiler import ProfilerActivity

    if RELEASE != "2.12":
        assert ProfilerActivity.PrivateUse1 == ProfilerActivity.OPENREG
    assert str(DeviceType.OPENREG) == "DeviceType.OPENREG"


@openreg_only(PRIVATEUSE1)
def test_custom_module_functions_are_found_by_pytorch():
    find = torch.utils.backend_registration._get_custom_mod_func
    assert find("device_count")() == 2
    with pytest.raises(RuntimeError, match="Try to call torch.openreg.nonsense"):
        find("nonsense")


def test_operators_that_are_known_by_name_exist():
    from torch_openreg import _C

    names = {name.split(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    known = _C.operators_known_by_name()
    assert len(known) > 50
    assert set(known) <= names
