"""`openreg run --ranks`: each rank is as if Python or torchrun had started it.

The expected results come from the same program, started by Python or by torchrun.
"""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from modes import needs_nvidia_packages
from openreg_program import OPENREG
from torch_openreg.commands.ranks.preload import may_train

from device import DEVICE

pytestmark = pytest.mark.own_processes


def seen(folder, count, name="seen"):
    """Return the JSON that each rank wrote."""
    return [json.loads((folder / f"{name}{rank}").read_text()) for rank in range(count)]


# ---- as Python would start it --------------------------------------------------------------------

TELL = """
import json, multiprocessing, os, pickle, sys
import torch

SIGNALS = ("SigBlk", "SigIgn", "SigCgt")

class OfMain:
    pass

def child(queue):
    queue.put([__name__, sys.argv, type(pickle.loads(pickle.dumps(OfMain()))).__module__])

def ask(method):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    answer = queue.get()
    process.join()
    return answer

if __name__ == "__main__":
    modules = set(sys.modules)
    what = {
        "main": sorted((name, type(value).__name__) for name, value in globals().items()),
        "file": globals().get("__file__"),
        "spec": getattr(__spec__, "name", None),
        "argv": sys.argv,
        "orig_argv": sys.orig_argv,
        "path": sys.path,
        "modules": sorted(modules),
        "words": open("/proc/self/cmdline").read().rstrip(chr(0)),
        "signals": [line for line in open("/proc/self/status") if line[:6] in SIGNALS],
        "files": sorted(os.listdir("/proc/self/fd")),
        "is_main": sys.modules["__main__"].__dict__ is globals(),
        "pickled": type(pickle.loads(pickle.dumps(OfMain()))) is OfMain,
        "spawned": ask("spawn") if "__file__" in globals() else None,
        "forked": ask("fork"),
        "stdin": sys.stdin.read(),
    }
    with open(f"seen{os.environ.get('RANK', '')}", "w") as file:
        json.dump(what, file)
"""
WORDS = {
    "a script": ["./folder/tell.py"],
    "a module": ["-m", "package.tell"],
    "text": ["-c", TELL],
}


@pytest.mark.parametrize("kind", WORDS)
def test_a_rank_is_as_python_would_have_started_it(
    start, direct, environment, script, tmp_path, kind
):
    environment |= {"OPENREG_DEVICE_TYPE": DEVICE, "OMP_NUM_THREADS": "1"}
    for name in ("folder", "package"):
        (tmp_path / name).mkdir()
        script(f"{name}/tell.py", TELL)
    words = [*WORDS[kind], "--lr", "0.1", "-m", ""]
    assert direct(sys.executable, *words, input="").returncode == 0
    expected = json.loads((tmp_path / "seen").read_text())
    # The command `python` is the Python of this environment.
    start("--ranks", 2, *(["python"] if kind == "text" else []), *words)
    for rank in seen(tmp_path, 2):
        (report,) = set(rank["files"]) - set(expected["files"])  # the socket for failures
        rank["files"].remove(report)
        if kind == "a module":  # a module may train, so torch._dynamo is preloaded
            assert "torch._dynamo" in rank["modules"]
            assert set(rank["modules"]) >= set(expected["modules"])
            rank["modules"] = expected["modules"]
        assert rank == expected


def test_programs_of_this_python_in_path_are_run_by_it(start, script, tmp_path):
    line = f"#!{sys.executable}\n"
    text = "import sys\nopen(f'seen{sys.argv[1]}', 'w').write(repr('torch' in sys.modules).lower())"
    script("program", line + text)
    start("--ranks", 1, "program", 0, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert seen(tmp_path, 1) == [True]


def test_other_programs_are_run_as_they_are(start):
    result = start("--ranks", 3, "sh", "-c", 'echo "$0 $RANK of $WORLD_SIZE"', "name")
    assert sorted(result.stdout.splitlines()) == [f"name {rank} of 3" for rank in range(3)]


def test_only_the_first_rank_reads_stdin(environment, script, tmp_path):
    command = [*OPENREG, "run", "--ranks", "2", "sh", "-c", 'echo "$RANK$(cat)"']
    result = subprocess.run(
        command, env=environment, input="a line", capture_output=True, text=True, check=True
    )
    assert sorted(result.stdout.splitlines()) == ["0a line", "1"]


def test_cleanup_at_exit_runs(start, script, tmp_path):
    script(
        "end.py",
        """
        import atexit, os, threading
        rank = os.environ["RANK"]
        file = open(f"seen{rank}", "w")
        file.write("[1, ")  # never closed by the program

        def last():
            file.write("3]")
        atexit.register(last)
        go = threading.Event()
        threading.Thread(target=lambda: (go.wait(), file.write("2, "))).start()
        threading._register_atexit(go.set)  # called at the end of the program
        """,
    )
    start("--ranks", 2, "end.py")
    assert seen(tmp_path, 2) == [[1, 2, 3]] * 2


RANDOM = """
import json, os, random, sys
import numpy, torch
what = [random.random(), numpy.random.rand(), torch.rand(1).item(), torch.initial_seed()]
what.append(torch.rand(1, device=os.environ["OPENREG_DEVICE_TYPE"]).item())
json.dump(what, open("seen" + os.environ["RANK"], "w"))
"""


def test_ranks_leave_the_group_of_their_devices(start, environment, script, tmp_path):
    """The last process that leaves removes the control file."""
    script(
        "use.py",
        """
        import json, os, pathlib, torch
        torch.ones(1, device=os.environ["OPENREG_DEVICE_TYPE"])
        name = "*/group-" + os.environ["OPENREG_GROUP"]
        files = [str(file) for file in pathlib.Path("/dev/shm").glob(name)]
        json.dump(files, open("seen" + os.environ["RANK"], "w"))
        """,
    )
    start("--ranks", 2, "use.py")
    for (file,) in seen(tmp_path, 2):
        assert not Path(file).exists()


def test_random_numbers_differ_between_ranks(start, script, tmp_path):
    script("draw.py", RANDOM)
    start("--ranks", 3, "draw.py")
    for numbers in zip(*seen(tmp_path, 3), strict=True):
        assert len(set(numbers)) == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import os.path, torch\nfrom torch import nn", False),
        ("import torch\ntorch.optim.SGD", True),
        ("def f():\n    from trainer import fit", True),
        ("import trainer.fit", True),
        ("x = (", False),
    ],
)
def test_programs_that_may_train_are_guessed_from_their_text(text, expected, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(text)
    assert may_train([str(script), "--lr", "0.1"]) is expected
    assert may_train(["-c", text]) is expected


# ---- as torchrun would start it ------------------------------------------------------------------

TELL_VARIABLES = """
import json, os, torch
variables = dict(os.environ) | {"threads": torch.get_num_threads()}
json.dump(variables, open("seen" + os.environ["RANK"], "w"))
"""
# The id of the job, and the address of its store.
OWN = {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"}
# Variables of torchrun itself, and the file for errors, which the launcher prints here.
TORCHRUNS = {"TORCHELASTIC_SIGNALS_TO_HANDLE", "TORCHELASTIC_ERROR_FILE"}


def test_variables_are_those_of_torchrun(start, script, tmp_path):
    tell = script("tell.py", TELL_VARIABLES)
    start("--devices", 2, "torchrun", "--nproc-per-node", 2, "--standalone", tell)
    expected = seen(tmp_path, 2)
    start("--ranks", 2, tell)
    for mine, torchruns in zip(seen(tmp_path, 2), expected, strict=True):
        assert set(mine) == set(torchruns) - TORCHRUNS
        differ = {name for name in mine if mine[name] != torchruns[name]}
        assert differ <= OWN | {"_"}


def test_threads_are_as_many_as_somebody_said(start, script, tmp_path):
    script(
        "compute.py",
        """
        import json, os, numpy, torch
        ones = numpy.ones((256, 256))
        right = (ones @ ones == 256).all() and torch.ones(1 << 20).sum() == 1 << 20
        json.dump([torch.get_num_threads(), bool(right)], open("seen" + os.environ["RANK"], "w"))
        """,
    )
    start("--ranks", 2, "compute.py", OMP_NUM_THREADS="2")
    assert seen(tmp_path, 2) == [[2, True]] * 2


ALL_REDUCE = """
import json, os, torch, torch.distributed as dist
device_type = os.environ["OPENREG_DEVICE_TYPE"]
module = torch.get_device_module(device_type)
rank = int(os.environ["LOCAL_RANK"])
module.set_device(rank)
dist.init_process_group("gloo")
x = torch.full((1000,), rank, device=device_type)
dist.all_reduce(x)
what = [module.device_count(), str(x.device), x[0].item(), dist.get_world_size()]
json.dump(what, open(f"seen{rank}", "w"))
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("device_type", "count"),
    [("cuda", 16), pytest.param("openreg", 4, marks=needs_nvidia_packages)],
)
def test_each_rank_has_a_device(start, script, tmp_path, device_type, count):
    script("reduce.py", ALL_REDUCE)
    variables = {"OPENREG_DEVICE_TYPE": device_type} if device_type == "openreg" else {}
    start("--ranks", count, "--memory", "64M", "reduce.py", **variables)
    total = count * (count - 1) // 2
    assert seen(tmp_path, count) == [
        [count, f"{device_type}:{rank}", total, count] for rank in range(count)
    ]


@pytest.mark.parametrize(
    ("options", "variables", "devices"),
    [
        ([], {}, "3"),
        (["--devices", "2"], {}, "2"),
        ([], {"OPENREG_DEVICE_COUNT": "5"}, "5"),
        (["--devices", "2"], {"OPENREG_DEVICE_COUNT": "5"}, "2"),
    ],
)
def test_devices_are_as_many_as_somebody_said(start, options, variables, devices):
    command = ["sh", "-c", "echo $OPENREG_DEVICE_COUNT"]
    result = start("--ranks", 3, *options, *command, **variables)
    assert result.stdout.split() == [devices] * 3


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["torchrun", "x.py"],
        [Path(sysconfig.get_path("scripts"), "torchrun"), "x.py"],
        ["-m", "torch.distributed.run", "x.py"],
        ["python", "-m", "torch.distributed.launch", "x.py"],
    ],
)
def test_torchrun_is_refused(start, words):
    assert start("--ranks", 2, *words, expect=2).stderr == (
        "openreg: --ranks cannot be combined with torchrun, which starts ranks itself: use "
        "`openreg run --ranks N PROGRAM` or `openreg run torchrun --nproc-per-node N PROGRAM`\n"
    )


@pytest.mark.parametrize("number", ["0", "-1", "257", "two", "", "1.5"])
def test_numbers_of_ranks_that_cannot_be_are_refused(start, number):
    result = start(f"--ranks={number}", "echo", "ran", expect=2)
    assert result.stderr.endswith(f"argument --ranks: {number}: expected 1 to 256\n")
    assert result.stdout == ""


@pytest.mark.parametrize("options", [["--prefix"], ["--grace", "1"]])
def test_options_of_ranks_alone_are_refused(start, options):
    result = start(*options, "echo", "ran", expect=2)
    assert result.stderr.endswith(f"argument {options[0]}: requires --ranks\n")


@pytest.mark.parametrize("command", [["tell.py"], ["echo", "ran"]])
def test_values_that_are_not_allowed_are_refused(start, script, command):
    script("tell.py", "print('ran')")
    result = start("--ranks", 2, "--memory", "lots", *command, expect=2)
    assert result.stdout == ""
    assert result.stderr.startswith("openreg: OPENREG_DEVICE_MEMORY=lots: expected ")
    assert len(result.stderr.splitlines()) == 1


def test_a_command_that_does_not_exist_is_refused(start):
    result = start("--ranks", 2, "absent.py", expect=127)
    assert result.stderr == "openreg: absent.py: no such file\n"


# ---- the device type -----------------------------------------------------------------------------


@needs_nvidia_packages
def test_a_device_type_that_somebody_said_stays(start):
    code = "import os, torch; print(os.environ['OPENREG_DEVICE_TYPE'], torch.cuda.is_available())"
    for options in ([], ["--ranks", "1"]):
        for device_type, expected in ("", "cuda True"), ("openreg", "openreg False"):
            result = start(*options, "python", "-c", code, OPENREG_DEVICE_TYPE=device_type)
            assert result.stdout == f"{expected}\n"
    assert start("echo", expect=2, OPENREG_DEVICE_TYPE="x").stderr == (
        "openreg: OPENREG_DEVICE_TYPE=x: expected openreg or cuda\n"
    )
