"""What type checkers see of openreg: its stubs, installed next to PyTorch's.

pyright is not a Python package. Its tests run only where it is installed.
"""

import difflib
import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from modes import openreg_only

pytestmark = [
    openreg_only("the stubs, which are those of torch.openreg"),
    pytest.mark.same_when_queued,
]

HERE = Path(__file__).parent
EXAMPLES = sorted(str(path) for path in (HERE.parents[2] / "examples").glob("*.py"))
ROOMS = ("amp", "devices", "memory", "random", "streams")
TORCH = Path(torch.__file__).parent


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    """Return a function that runs mypy on files and returns its exit status and output."""
    folder = tmp_path_factory.mktemp("mypy")
    pytest.importorskip("mypy")

    def mypy(*arguments):
        command = [sys.executable, "-m", "mypy", "--config-file=", "--check-untyped-defs"]
        result = subprocess.run(
            [*command, "--warn-unused-ignores", "--disable-error-code=import-untyped", *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
        )
        return result.returncode, result.stdout + result.stderr

    return mypy


@pytest.fixture(scope="module")
def pyright(tmp_path_factory):
    """Return a function that runs pyright on files and returns its findings."""
    program = shutil.which("pyright") or shutil.which("basedpyright")
    if program is None:
        pytest.skip("there is no pyright")
    folder = tmp_path_factory.mktemp("pyright")

    def pyright(*files, **settings):
        settings |= {"typeCheckingMode": "standard", "include": []}
        for file in files:
            shutil.copy(file, folder)
            settings["include"].append(Path(file).name)
        (folder / "pyrightconfig.json").write_text(json.dumps(settings))
        result = subprocess.run(
            [program, "--outputjson", "--pythonpath", sys.executable],
            cwd=folder,
            capture_output=True,
            text=True,
        )
        report = json.loads(result.stdout)
        assert report["summary"]["filesAnalyzed"] >= len(files)
        return [
            f"{Path(found['file']).name}:{found['range']['start']['line'] + 1}: {found['message']}"
            for found in report["generalDiagnostics"]
            if found["severity"] == "error"
        ]

    return pyright


def test_mypy_finds_exactly_the_mistakes_of_a_program(mypy):
    status, said = mypy(str(HERE / "typed_program.py"))
    assert status == 0, said


def test_pyright_finds_exactly_the_mistakes_of_a_program(pyright):
    found = pyright(HERE / "typed_program.py", reportUnnecessaryTypeIgnoreComment="error")
    assert found == []


def test_mypy_finds_nothing_in_the_examples(mypy):
    status, said = mypy(*EXAMPLES)
    assert status == 0, said


def test_pyright_finds_nothing_in_the_examples(pyright):
    # Variables that pyright considers unset or None although they are not.
    beside_the_point = {
        "reportOptionalMemberAccess": False,
        "reportPossiblyUnboundVariable": False,
        "reportPrivateImportUsage": False,
    }
    assert pyright(*EXAMPLES, **beside_the_point) == []


def test_every_public_name_is_in_the_stubs(mypy, tmp_path):
    lines = ["import torch", *(f"import torch.openreg.{room}" for room in ROOMS)]
    lines += [f"torch.openreg.{name}" for name in torch.openreg.__all__]
    for room in ROOMS:
        module = getattr(torch.openreg, room)
        lines += [
            f"torch.openreg.{room}.{name}"
            for name, thing in vars(module).items()
            if not name.startswith("_") and getattr(thing, "__module__", "") == module.__name__
        ]
    program = tmp_path / "all_names.py"
    program.write_text("\n".join(lines))
    status, said = mypy(str(program))
    assert status == 0, said


def test_no_type_of_pytorch_is_missing():
    """Check every stub that replaces one of PyTorch's, and every stub next to one."""
    (folder,) = (Path(part) for part in find_spec("torch-stubs").submodule_search_locations)
    names = {
        str(path.relative_to(TORCH))
        for room in ("_C", "nn")
        for path in (TORCH / room).rglob("*.pyi")
    }
    names.add("nn/modules/module.pyi")
    for name in names:
        original = TORCH / name
        if not original.exists():
            original = original.with_suffix(".py")
        before, after = (path.read_text().splitlines() for path in (original, folder / name))
        changes = difflib.unified_diff(before, after, n=0, lineterm="") if before != after else ()
        assert [line for line in changes if line[0] == "-" and line != "--- "] == [], name
