"""`openreg doctor`: its page, its JSON, and the problems that it finds."""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
import torch
from openreg_program import OPENREG
from torch_openreg.commands import checks, installation, machine
from torch_openreg.commands.checks import OK, PROBLEM, WARNING
from torch_openreg.commands.doctor import draw
from torch_openreg.commands.smi_table import Style

from device import DEVICE

PLAIN, COLOURED = Style(False, False, False), Style(True, True, True)
NO_LIMIT = {"memory_bytes": None, "cpus": None, "processes": None}
GIB = 1 << 30


@pytest.fixture
def doctor(own_group):
    """Run the command with variables and resource limits, and return its output."""
    environment = own_group()

    def run(*words, expect=0, limits=(), **changes):
        def set_limits():
            for limit, value in limits:
                resource.setrlimit(limit, (value, resource.getrlimit(limit)[1]))

        result = subprocess.run(
            [*OPENREG, "doctor", *words],
            env=environment | changes,
            capture_output=True,
            text=True,
            preexec_fn=set_limits,
        )
        assert result.returncode == expect, result.stdout + result.stderr
        return result

    return run


def states(report):
    return {check["name"]: check["state"] for check in report["checks"]}


def of_name(report, name):
    (check,) = (check for check in report["checks"] if check["name"] == name)
    return check


# ---- a machine without problems ------------------------------------------------------------------


@pytest.fixture(scope="module")
def report(own_group):
    settings = {"OPENREG_DEVICE_COUNT": "3", "OPENREG_DEVICE_MEMORY": "1G", "OPENREG_PROFILE": "t4"}
    result = subprocess.run(
        [*OPENREG, "doctor", "--json"],
        env=own_group() | settings,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stderr == ""
    return json.loads(result.stdout)


def test_json_tells_of_the_machine_and_of_the_devices(report):
    assert report["version"] == 1 and report["works"] is True
    assert report["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert report["versions"]["torch"].split("+")[0] == report["versions"]["supported_torch"]
    assert report["cores"]["allowed"] == len(os.sched_getaffinity(0))
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert report["limits"]["open_files"] == files
    devices = report["devices"]
    assert (devices["device_type"], devices["visible"]) == (DEVICE, 3)
    assert [each["total_bytes"] for each in devices["devices"]] == [GIB] * 3
    assert {each["name"] for each in devices["devices"]} == {"Tesla T4"}
    assert devices["instructions"] in ("c", "avx2", "avx512")
    assert report["variables"]["OPENREG_DEVICE_MEMORY"] == "1G"


def test_devices_and_cuda_mode_are_tried(report):
    found = states(report)
    assert (found["PyTorch"], found["devices"], found["CUDA mode"]) == (OK, OK, OK)
    assert found["exchange between processes"] == OK
    assert PROBLEM not in found.values()


def test_page_has_a_line_for_each_check(report):
    lines = draw(report, 100, PLAIN)
    page = "\n".join(lines)
    for check in report["checks"]:
        assert re.search(rf"^  {check['state']:9}{re.escape(check['name'])}: ", page, re.M)
    assert lines[-1].startswith("Everything works")
    assert max(map(len, lines)) <= 100


def test_colours_are_for_terminals(report, doctor):
    assert "\x1b[32m" in "\n".join(draw(report, 100, COLOURED))
    assert "\x1b" not in doctor().stdout


def test_narrow_page_has_narrow_lines(report):
    lines = draw(report, 40, PLAIN)
    assert max(len(line) for line in lines if "/" not in line) <= 40


# ---- machines with problems ----------------------------------------------------------------------


def test_value_that_is_not_allowed_is_a_problem(doctor):
    report = json.loads(doctor("--json", expect=1, OPENREG_DEVICE_COUNT="0").stdout)
    assert report["works"] is False and report["devices"] is None
    check = of_name(report, "devices")
    assert check["state"] == PROBLEM
    assert check["text"].startswith("OPENREG_DEVICE_COUNT=0: expected 1 to 64")


def test_process_that_dies_is_a_problem_with_its_last_words(doctor):
    reported = doctor(expect=1, OPENREG_SIMD="mmx").stdout
    assert "ended with SIGABRT" in reported
    assert "OPENREG_SIMD=mmx: expected an instruction set of this" in " ".join(reported.split())
    assert reported.splitlines()[-1].startswith("1 problem")


def test_too_few_addresses_are_a_problem_with_a_remedy(doctor):
    settings = {"OPENREG_DEVICE_MEMORY": "64G", "OPENREG_DEVICE_COUNT": "8"}
    limits = [(resource.RLIMIT_AS, 64 * GIB)]
    report = json.loads(doctor("--json", expect=1, limits=limits, **settings).stdout)
    assert report["limits"]["address_space_bytes"] == 64 * GIB
    check = of_name(report, "devices")
    assert check["state"] == PROBLEM and "ulimit -v unlimited" in check["remedy"]


def test_too_small_files_are_a_problem_with_a_remedy(doctor):
    limits = [(resource.RLIMIT_FSIZE, 1 << 20)]
    check = of_name(json.loads(doctor("--json", expect=1, limits=limits).stdout), "devices")
    assert check["state"] == PROBLEM and "ulimit -f unlimited" in check["remedy"]


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "OPENREG_VISIBLE_DEVICES"])
def test_no_visible_device_is_a_problem_where_it_is_read(doctor, name):
    is_read = (name == "CUDA_VISIBLE_DEVICES") == (DEVICE == "cuda")
    report = json.loads(doctor("--json", expect=1 if is_read else 0, **{name: ""}).stdout)
    if is_read:
        assert f"{name}= hides all devices" in of_name(report, "devices")["text"]
    elif name == "CUDA_VISIBLE_DEVICES":
        assert of_name(report, "CUDA mode")["state"] == WARNING


@pytest.fixture
def other_torch(tmp_path):
    """Return the folder of a PyTorch of another version that cannot be imported."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('libgomp is missing')\n")
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.1.1+cpu'\n")
    return tmp_path


def test_pytorch_that_cannot_be_imported_is_a_problem(doctor, other_torch):
    path = f"{other_torch}:{os.environ.get('PYTHONPATH', '')}"
    settings = {"PYTHONPATH": path, "OPENREG_DEVICE_TYPE": "openreg"}
    result = doctor("--json", expect=1, **settings)
    report = json.loads(result.stdout)
    assert result.stderr == ""
    version = of_name(report, "PyTorch")
    assert version["state"] == PROBLEM and "but 2.1.1+cpu is installed" in version["text"]
    release = ".".join(report["versions"]["supported_torch"].split(".")[:2])
    assert version["remedy"] == f'pip install "torch=={release}.*"'
    assert of_name(report, "import")["text"] == "`import torch` fails: libgomp is missing"


def test_unknown_variable_is_a_warning_with_the_most_similar_name(doctor):
    reported = " ".join(doctor(OPENREG_DEVICES_COUNT="3").stdout.split())
    expected = "unknown variable OPENREG_DEVICES_COUNT (did you mean OPENREG_DEVICE_COUNT?)"
    assert f"warning variables: {expected}" in reported
    (check,) = checks.check_variables({"OPENREG_ZZZ": "1"})
    assert (check.state, check.text) == (WARNING, "unknown variable OPENREG_ZZZ")


def test_variables_of_the_sanitizer_are_known():
    names = ("OPENREG_SANITIZER_ONLY", "OPENREG_SANITIZER_SOCKET")
    assert checks.check_variables(dict.fromkeys(names, "")) == []
    (check,) = checks.check_variables({"OPENREG_SANITIZER_STACK": "1"})
    assert "did you mean OPENREG_SANITIZER_STACKS?" in check.text


def test_openreg_that_is_kept_away_is_a_problem():
    (check,) = checks.check_variables({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    assert (check.state, check.remedy) == (PROBLEM, "unset it")


# ---- the installed PyTorch -----------------------------------------------------------------------


def test_build_of_the_installed_pytorch_is_named(report):
    import torch

    cuda = re.search(r"^cuda.*= '(.*)'", Path(torch.version.__file__).read_text(), re.M)
    build = f"CUDA {cuda[1]}" if cuda else "CPU"
    assert report["versions"]["torch_build"] == build
    assert f"PyTorch {torch.__version__} ({build} build)" in " ".join(
        "\n".join(draw(report, 100, PLAIN)).split()
    )
    if not cuda:
        assert report["libraries"] == {"stand_ins": [], "nvidia": [], "pytorch": []}
        assert report["missing_packages"] == []


@pytest.mark.parametrize(
    "version, build",
    [
        ({"__version__": "2.13.0", "cuda": None, "hip": None}, "CPU"),
        ({"__version__": "2.13.0", "cuda": "13.0", "hip": None}, "CUDA 13.0"),
        ({"__version__": "2.13.0", "cuda": None, "hip": "7.1"}, "ROCm 7.1"),
        ({"__version__": "2.13.0"}, "CPU"),
        ({}, None),
    ],
)
def test_the_name_of_a_build_follows_from_the_version_file(version, build):
    assert installation.build_of(version) == build


def test_packages_that_pytorch_requires_are_looked_for(tmp_path, monkeypatch):
    """PyTorch's metadata is in a folder that Python searches first."""
    write(
        tmp_path / "torch-9.dist-info" / "METADATA",
        "Metadata-Version: 2.1\nName: torch\nVersion: 9\nRequires-Dist: filelock\n"
        'Requires-Dist: cuda-toolkit[cublas,cudart]==13.0.3; platform_system == "Linux"\n'
        'Requires-Dist: nvidia-cudnn-cu99==9.20.0.48; platform_system == "Linux"\n'
        'Requires-Dist: nvidia-here==1; platform_system == "Linux"\n'
        'Requires-Dist: nvidia-extra; extra == "more"\n',
    )
    for name in ("cuda_toolkit-13", "nvidia_here-1"):
        text = f"Metadata-Version: 2.1\nName: {name.partition('-')[0]}\nVersion: 1\n"
        write(tmp_path / f"{name}.dist-info" / "METADATA", text)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installation.missing_packages() == ["nvidia-cudnn-cu99"]


def test_mapped_libraries_are_sorted_by_their_owner():
    package = installation._PACKAGE
    found = installation.classify(
        [
            "/usr/lib/libc.so.6",
            f"{package}/_C.cpython-311-x86_64-linux-gnu.so",
            f"{package}/libopenreg.so",
            f"{package}/stand_ins/openreg_cudart_13.so",
            f"{package}/nvml/libnvidia-ml.so.1",
            "/site/torch/lib/libtorch_cpu.so",
            "/site/torch/lib/libtorch_cuda.so",
            "/site/torch/lib/libc10_cuda.so",
            "/site/nvidia/cu13/lib/libcublasLt.so.13",
            "/site/nvidia/cudnn/lib/libcudnn_graph.so.9",
            "/site/nvidia/cudnn/lib/libcudnn_graph.so.9",
        ]
    )
    assert found == {
        "stand_ins": ["openreg_cudart_13.so"],
        "nvidia": ["libcublasLt.so.13", "libcudnn_graph.so.9"],
        "pytorch": ["libc10_cuda.so", "libtorch_cuda.so"],
    }


def test_libraries_of_nvidia_beside_stand_ins_are_a_warning():
    none = {"stand_ins": [], "nvidia": [], "pytorch": []}
    assert checks.check_libraries(none, []) == []
    assert checks.check_libraries(None, ["nvidia-nccl-cu13"]) == []
    (check,) = checks.check_libraries(none | {"stand_ins": ["a.so"]}, ["nvidia-nccl-cu13"])
    assert (check.state, check.remedy) == (OK, None)
    assert check.text == ("openreg's stand-ins are loaded: a.so; not installed: nvidia-nccl-cu13")
    (check,) = checks.check_libraries(none | {"nvidia": ["b.so"]}, [])
    assert (check.state, check.text) == (OK, "PyTorch's and NVIDIA's are loaded: b.so")
    (check,) = checks.check_libraries(none | {"stand_ins": ["a.so"], "nvidia": ["b.so"]}, [])
    assert check.state == WARNING and check.remedy is not None


def test_missing_packages_are_the_reason_of_a_failed_import():
    facts = {"step": "failed", "sentence": "libcudnn.so.9: cannot open shared object file"}
    (check,) = checks.check_devices(facts, ["nvidia-cudnn-cu13", "nvidia-nccl-cu13"])
    assert (check.name, check.state) == ("import", PROBLEM)
    assert "requires nvidia-cudnn-cu13, nvidia-nccl-cu13, which are not installed" in check.text
    assert "`pip install nvidia-cudnn-cu13 nvidia-nccl-cu13`" in check.remedy
    (check,) = checks.check_devices({"step": "failed", "sentence": "another reason"}, ["nvidia-x"])
    assert "nvidia-x" not in check.text


def test_gpus_of_the_machine_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(installation, "_DRIVER", tmp_path)
    assert installation.gpus() == []
    write(tmp_path / "0000:01:00.0" / "information", "Model: \t NVIDIA A100\nIRQ: 5\n")
    write(tmp_path / "0000:02:00.0" / "information", "IRQ: 5\n")
    assert installation.gpus() == ["NVIDIA A100", "0000:02:00.0"]
    (check,) = checks.check_gpus(["NVIDIA A100"])
    assert check.state == WARNING and check.text.startswith("NVIDIA A100: hidden")
    assert checks.check_gpus([]) == []


@pytest.fixture
def broken_extension(tmp_path):
    """Return a folder with a copy of the package whose extension is empty."""
    source = Path(checks.__file__).parents[1]
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(source, tmp_path / "torch_openreg", ignore=ignored)
    (extension,) = source.glob(f"_C{EXTENSION_SUFFIXES[0]}")
    (tmp_path / "torch_openreg" / extension.name).touch()
    return tmp_path


def test_broken_extension_is_a_problem_with_the_reason(doctor, broken_extension):
    path = f"{broken_extension}:{os.environ.get('PYTHONPATH', '')}"
    result = doctor("--json", expect=1, PYTHONPATH=path)
    assert result.stderr == ""
    report = json.loads(result.stdout)
    # PyTorch's CUDA build without NVIDIA's packages cannot be imported then.
    check = of_name(report, "import" if "import" in states(report) else "devices")
    assert check["state"] == PROBLEM
    assert "is not a shared library of 64 bits (0 bytes): reinstall torch_openreg" in check["text"]


# ---- single checks -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "found, state",
    [
        (None, PROBLEM),
        ({"total_bytes": GIB, "free_bytes": GIB, "is_writable": False}, PROBLEM),
        ({"total_bytes": GIB, "free_bytes": 1 << 20, "is_writable": True}, PROBLEM),
        ({"total_bytes": 64 << 20, "free_bytes": 64 << 20, "is_writable": True}, WARNING),
        ({"total_bytes": GIB, "free_bytes": GIB, "is_writable": True}, OK),
    ],
)
def test_shared_memory_must_have_room(found, state):
    check = checks.check_shared_memory(found)
    assert check.state == state and (check.remedy is None) == (state == OK)


def test_cores_are_compared_with_the_control_group():
    cores = {"online": 16, "allowed": 16, "numa_nodes": 1}
    assert checks.check_cores(cores, NO_LIMIT).state == OK
    check = checks.check_cores(cores, NO_LIMIT | {"cpus": 2.5})
    assert (check.state, check.remedy) == (WARNING, "export OMP_NUM_THREADS=2")


def test_few_files_and_few_processes_are_warnings():
    limits = {"open_files": 64, "processes": None}
    found = checks.check_limits(limits, NO_LIMIT | {"processes": 100})
    assert [(check.name, check.state) for check in found] == [
        ("open files", WARNING),
        ("processes", WARNING),
    ]
    assert checks.check_limits({"open_files": 1024, "processes": None}, NO_LIMIT) == []


def test_capacity_is_compared_with_the_control_group():
    facts = {"devices": [{"total_bytes": 4 * GIB}] * 2}
    assert checks.check_capacity(facts, NO_LIMIT | {"memory_bytes": 9 * GIB}) == []
    (check,) = checks.check_capacity(facts, NO_LIMIT | {"memory_bytes": 6 * GIB})
    assert check.state == WARNING and "the control group has 6 GiB" in check.text


def test_compiler_is_looked_for_as_pytorch_does(tmp_path):
    missing = checks.check_compiler({"PATH": str(tmp_path)})
    assert missing.state == WARNING and "g++" in missing.text
    program = tmp_path / "my-c++"
    program.write_text("")
    program.chmod(0o755)
    assert checks.check_compiler({"PATH": str(tmp_path), "CXX": "my-c++ -O2"}).state == OK


def test_the_source_of_memory_plans_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = checks.check_memory_plans()
    assert (found.name, found.state) == ("memory plans", OK)
    if torch.version.cuda is None:
        assert found.text.startswith("built-in ones only; there is no CUDA build of PyTorch")
        assert "run `openreg plans install`" in found.text


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_limits_of_control_groups_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(
        machine,
        "_read",
        lambda path, read=machine._read: "0::/a/b\n" if path == "/proc/self/cgroup" else read(path),
    )
    assert machine.control_group(tmp_path) == NO_LIMIT
    write(tmp_path / "a/b/memory.max", "max\n")
    write(tmp_path / "a/memory.max", "1073741824\n")
    write(tmp_path / "a/b/cpu.max", "150000 100000\n")
    write(tmp_path / "a/b/pids.max", "77\n")
    found = machine.control_group(tmp_path)
    assert found == {"memory_bytes": GIB, "cpus": 1.5, "processes": 77}


def test_limits_of_older_control_groups_are_read(tmp_path):
    write(tmp_path / "memory/memory.limit_in_bytes", "2147483648\n")
    write(tmp_path / "cpu/cpu.cfs_quota_us", "50000\n")
    write(tmp_path / "cpu/cpu.cfs_period_us", "100000\n")
    write(tmp_path / "pids/pids.max", "max\n")
    found = machine.control_group(tmp_path)
    assert found == {"memory_bytes": 2 * GIB, "cpus": 0.5, "processes": None}
