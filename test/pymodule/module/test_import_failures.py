"""Whatever is wrong with openreg or PyTorch, `import torch` works and CPU programs go on.

One sentence on stderr says what is wrong. `openreg run` prints the same sentence and does not start
the program.
"""

import os
import re
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
import torch
import torch_openreg

from device import DEVICE

PACKAGE = Path(torch_openreg.__file__).parent
TORCH = Path(torch.__file__).parent
OPENREG = [sys.executable, "-c", "import sys, _openreg_command as c; sys.exit(c.main())"]
VERSION = re.escape(torch.__version__)
CPU_PROGRAM = "import torch; print((torch.ones(2) + 1).tolist())"
FAILED = r"openreg: loading failed: {}\. Run `openreg doctor` for a remedy\."


def link(source, target):
    """Make a second name of a file; a copy on another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@pytest.fixture
def package(tmp_path):
    """Return a copy of the package, to be broken, in a folder that Python searches first."""
    site = tmp_path / "site"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, site / "torch_openreg", copy_function=link, ignore=ignored)
    libraries = PACKAGE.with_name("torch_openreg.libs")  # of a wheel
    if libraries.exists():
        shutil.copytree(libraries, site / libraries.name, copy_function=link)
    return site / "torch_openreg"


def replace(path, content):
    """Replace a file, which may be a link."""
    path.unlink()
    path.write_bytes(content)
    path.chmod(0o755)


def extension_of(package):
    (file,) = package.glob(f"_C{EXTENSION_SUFFIXES[0]}")
    return file


@pytest.fixture
def second_torch(tmp_path):
    """Return a PyTorch of links to the installed one, in a folder that Python searches first."""
    folder = tmp_path / "other" / "torch"
    folder.mkdir(parents=True)
    for entry in TORCH.iterdir():
        (folder / entry.name).symlink_to(entry)
    return folder


@pytest.fixture(scope="module")
def pytorch_works_alone():
    """Return whether `import torch` works without openreg: not if NVIDIA's packages are missing."""
    environment = os.environ | {"OPENREG_DEVICE_TYPE": "", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [sys.executable, "-c", "import torch"]
    return subprocess.run(command, env=environment, capture_output=True).returncode == 0


@pytest.fixture
def assert_reported(own_group, pytorch_works_alone):
    """Check what a CPU program and `openreg run` print if a folder comes first in sys.path."""
    environment = own_group()

    def run(*words, folder, runner):
        return subprocess.run(
            [*runner, *words],
            env=environment | {"PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
        )

    def check(folder, sentence, *, is_refused=True):
        result = run("-c", CPU_PROGRAM, folder=folder, runner=[sys.executable])
        line, *others = result.stderr.splitlines()
        assert re.fullmatch(sentence, line), line
        if pytorch_works_alone:
            assert others == []
            assert (result.returncode, result.stdout) == (0, "[2.0, 2.0]\n")
        if is_refused:
            refused = run("run", "echo", "started", folder=folder, runner=OPENREG)
            assert refused.returncode == 2
            assert (refused.stdout, refused.stderr) == ("", f"{line}\n")

    return check


# ---- other releases and several PyTorchs ---------------------------------------------------------


def test_package_that_was_built_for_another_release(package, assert_reported):
    version = package / "_version.py"
    text = re.sub(r"(TORCH_VERSION = ).*", r'\1"2.99.0"', version.read_text())
    replace(version, text.encode())
    assert_reported(
        package.parent,
        rf"torch_openreg works with PyTorch 2\.99\S*, but PyTorch {VERSION} is installed: "
        r"pip install .*torch==2\.99.*",
    )


def test_pytorch_of_another_release_hides_the_right_one(second_torch, assert_reported):
    version = second_torch / "version.py"
    text = re.sub(r"__version__ = .*", "__version__ = '2.5.1+cpu'", version.read_text())
    version.unlink()
    version.write_text(text)
    folder = second_torch.parent
    assert_reported(
        folder,
        r"torch_openreg works with PyTorch \S+, but PyTorch 2\.5\.1\+cpu is installed in "
        rf"{folder}, which hides PyTorch {VERSION} in {TORCH.parent}: "
        rf"remove {folder} from PYTHONPATH",
    )


def test_second_pytorch_of_the_same_release_works(second_torch, python):
    code = f"import torch; print(torch.__file__, torch.ones(1, device='{DEVICE}').item())"
    result = python(code, fresh=True, PYTHONPATH=str(second_torch.parent))
    assert result.stdout == f"{second_torch}/__init__.py 1.0\n"
    assert result.stderr == ""


@pytest.mark.parametrize("missing", ["version.py", "lib"])
def test_pytorch_that_is_incomplete_fails_by_itself(second_torch, own_group, missing):
    (second_torch / missing).unlink()
    environment = own_group() | {"PYTHONPATH": str(second_torch.parent)}
    result = subprocess.run(
        [sys.executable, "-c", CPU_PROGRAM], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 1
    ours = [line for line in result.stderr.splitlines() if "openreg" in line]
    assert len(ours) <= 1, result.stderr
    refused = subprocess.run(
        [*OPENREG, "run", "echo", "started"], env=environment, capture_output=True, text=True
    )
    if missing == "version.py" or DEVICE == "cuda":
        assert (refused.returncode, refused.stdout) == (2, "")
        (line,) = refused.stderr.splitlines()
        assert str(second_torch) in line and missing in line


# ---- broken files of openreg ---------------------------------------------------------------------


@pytest.mark.parametrize("name", [extension_of(PACKAGE).name, "lib/libopenreg.so"])
def test_library_that_is_truncated(package, assert_reported, name):
    """The loader would end the process with SIGBUS."""
    file = package / name
    content = file.read_bytes()
    replace(file, content[: len(content) // 3])
    size = len(content) // 3
    reason = rf"{file} is truncated: it has {size} bytes of at least \d+: reinstall torch_openreg"
    assert_reported(package.parent, FAILED.format(reason))


def test_extension_for_another_processor(package, assert_reported):
    file = extension_of(package)
    content = bytearray(file.read_bytes())
    content[18:20] = (243).to_bytes(2, "little")  # e_machine: RISC-V
    replace(file, content)
    reason = rf"{file} is for the processor 243, and this machine is \w+: reinstall torch_openreg"
    assert_reported(package.parent, FAILED.format(reason))


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x7fELF\x01" + bytes(100)])
def test_extension_that_is_no_library_of_this_machine(package, assert_reported, content):
    file = extension_of(package)
    replace(file, content)
    reason = rf"{file} is not a shared library of 64 bits \({len(content)} bytes\): .*"
    assert_reported(package.parent, FAILED.format(reason))


def test_extension_that_is_missing(package, assert_reported):
    extension_of(package).unlink()
    version = sys.version.split()[0]
    reason = (
        rf"{package} has no extension module for Python {version} \(expected _C\S+, found none\): "
        "install the wheel of this Python"
    )
    assert_reported(package.parent, FAILED.format(reason))


def test_extension_of_another_python(package, assert_reported):
    extension_of(package).rename(package / "_C.cpython-399-x86_64-linux-gnu.so")
    reason = r".* \(expected _C\S+, found only _C\.cpython-399-x86_64-linux-gnu\.so\): install .*"
    assert_reported(package.parent, FAILED.format(reason))


def test_library_that_is_missing(package, assert_reported):
    """The names of hwloc in libraries of the package become names that do not exist."""
    changed = 0
    for file in package.rglob("*.so*"):
        content = file.read_bytes()
        if re.search(rb"\0libhwloc[-\w]*\.so[.\d]*\0", content):
            replace(file, re.sub(rb"\0libhwloc([-\w]*\.so[.\d]*\0)", rb"\0libgone_\1", content))
            changed += 1
    assert changed
    reason = r"libgone_\S*: cannot open shared object file: No such file or directory"
    # In openreg mode `openreg run` loads no library.
    assert_reported(package.parent, FAILED.format(reason), is_refused=DEVICE == "cuda")


def test_module_of_the_package_that_is_missing(package, assert_reported):
    (package / "_gloo.py").unlink()
    assert_reported(package.parent, FAILED.format(".*'?_gloo'?.*"), is_refused=False)


# ---- what is left after a part was removed -------------------------------------------------------


@pytest.fixture
def site(package):
    """Return a folder like site-packages with a copy of all files of openreg, and its Python.

    That Python has no other openreg. What it needs besides is in a second folder.
    """
    site, others = package.parent, package.parent.with_name("others")
    others.mkdir()
    for folder in {PACKAGE.parent, TORCH.parent}:
        for entry in folder.iterdir():
            if "openreg" not in entry.name:
                (others / entry.name).symlink_to(entry)
    (metadata,) = PACKAGE.parent.glob("torch_openreg-*.dist-info")
    shutil.copytree(metadata, site / metadata.name, copy_function=link)
    for entry in PACKAGE.parent.glob("*openreg*"):
        if entry.suffix in (".py", ".pth"):
            link(entry, site / entry.name)
    start = f"import site, sys; site.addsitedir({str(site)!r}); sys.path.append({str(others)!r}); "
    return site, lambda code: [sys.executable, "-S", "-c", start + code]


def remove(entry):
    if entry.is_dir():
        shutil.rmtree(entry)
    else:
        entry.unlink()


def test_copy_of_all_files_works(site, own_group):
    """Otherwise the other tests would show nothing."""
    _, python = site
    code = f"{CPU_PROGRAM}; print(torch.ones(1, device={DEVICE!r}).item())"
    result = subprocess.run(python(code), env=own_group(), capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (0, "[2.0, 2.0]\n1.0\n", "")


@pytest.mark.parametrize(
    "missing",
    [
        ["_openreg_autoload.py"],
        ["_openreg_library.py"],
        ["_openreg_cuda_mode.py"],
        ["_openreg_*.py"],
        ["torch_openreg", "_openreg_*.py"],
        ["torch_openreg"],
        ["torch_openreg/__init__.py"],
        ["torch_openreg/_*.py"],
        ["torch_openreg/*.py"],
    ],
    ids=" ".join,
)
def test_files_that_are_missing(site, own_group, pytorch_works_alone, missing):
    if not pytorch_works_alone and any(pattern.startswith("_") for pattern in missing):
        pytest.skip("this PyTorch fails before it calls openreg")
    folder, python = site
    for pattern in missing:
        for entry in list(folder.glob(pattern)):
            remove(entry)
    result = subprocess.run(python(CPU_PROGRAM), env=own_group(), capture_output=True, text=True)
    line, *others = result.stderr.splitlines()
    assert re.match("openreg: loading failed: .*(reinstall torch_openreg|openreg doctor)", line)
    if pytorch_works_alone:
        assert (result.returncode, result.stdout, others) == (0, "[2.0, 2.0]\n", [])
    if not missing[0].startswith("torch_openreg/"):
        assert "reinstall torch_openreg, or remove the rest with `pip uninstall" in line
        command = python("import _openreg_command as c; sys.argv = ['openreg', 'run', 'true']; ")
        command[-1] += "sys.exit(c.main())"
        if "_openreg_*.py" not in missing:
            refused = subprocess.run(command, env=own_group(), capture_output=True, text=True)
            assert (refused.returncode, refused.stdout) == (1, "")
            assert refused.stderr.startswith(line[:30])
            assert len(refused.stderr.splitlines()) == 1


def test_uninstallation_that_is_interrupted(site, own_group):
    """`pip uninstall` removes files in the order of their names, and folders at once."""
    folder, python = site
    # What `import torch` does with the entry point.
    load = "from importlib.metadata import entry_points as find; "
    load += "[one.load()() for one in find(group='torch.backends') if one.name == 'torch_openreg']"
    # pip sorts the paths, and those of folders end with a slash.
    entries = sorted(f"{entry.name}{'/' * entry.is_dir()}" for entry in folder.iterdir())
    for name in entries:
        remove(folder / name)
        result = subprocess.run(python(load), env=own_group(), capture_output=True, text=True)
        assert (result.returncode, result.stdout) == (0, ""), (name, result.stderr)
        assert len(result.stderr.splitlines()) <= 1, (name, result.stderr)


def test_ranks_are_refused_with_one_sentence(package, own_group):
    replace(extension_of(package), b"")
    result = subprocess.run(
        [*OPENREG, "run", "--ranks", "2", sys.executable, "-c", "print('started')"],
        env=own_group() | {"PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert re.fullmatch(FAILED.format(".* is not a shared library of 64 bits .*"), line)


# ---- where the sentence cannot be printed --------------------------------------------------------


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
def test_stderr_that_cannot_be_written(package, own_group, pytorch_works_alone, redirection):
    if not pytorch_works_alone:
        pytest.skip("this PyTorch cannot be imported without openreg")
    replace(extension_of(package), b"")
    result = subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" {redirection}', sys.executable, CPU_PROGRAM],
        env=own_group() | {"PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stdout) == (0, "[2.0, 2.0]\n")


# ---- the machine ---------------------------------------------------------------------------------


def in_own_mounts(commands):
    """Return a command line that runs another one after shell commands in a mount namespace."""
    unshare = ["unshare", "--mount", *(() if os.getuid() == 0 else ("--map-root-user",))]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"]).returncode:
        pytest.skip("this user cannot mount file systems")
    return [*unshare, "sh", "-c", f'{commands} && exec "$@"', "sh"]


def test_full_shared_memory(own_group):
    """The import needs none of it. The first use of a device raises an exception."""
    code = f"""
{CPU_PROGRAM}
try:
    torch.ones(1, device={DEVICE!r})
except RuntimeError as error:
    print(str(error).splitlines()[0])
"""
    full = in_own_mounts(
        "mount -t tmpfs -o size=64k none /dev/shm && "
        "{ dd if=/dev/zero of=/dev/shm/full bs=4k 2>/dev/null || true; }"
    )
    result = subprocess.run(
        [*full, sys.executable, "-c", code], env=own_group(), capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    computed, reported = result.stdout.splitlines()
    assert computed == "[2.0, 2.0]"
    assert "/dev/shm" in reported and "No space left on device" in reported
    assert result.stderr == ""


def test_read_only_home(own_group, tmp_path):
    read_only = in_own_mounts(f"mount -t tmpfs -o ro none {tmp_path}")
    result = subprocess.run(
        [*read_only, sys.executable, "-c", f"{CPU_PROGRAM}; torch.ones(1, device={DEVICE!r})"],
        env=own_group() | {"HOME": str(tmp_path), "XDG_CACHE_HOME": f"{tmp_path}/cache"},
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "[2.0, 2.0]\n", "")
