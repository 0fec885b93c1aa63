"""``openreg plans show`` with built-in plans, which need no CUDA build."""

import subprocess

from openreg_program import OPENREG


def show(*options):
    command = [*OPENREG, "plans", "--source", "builtin", *options]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_built_in_plan_is_shown():
    result = show("show", "aten::sort", "float32[65536]")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "returns float32[65536] in block 1",
        "returns int64[65536] in block 2",
        "takes block 1: 262144 bytes",
        "takes block 2: 524288 bytes",
        "takes block 3: 524288 bytes",
        "takes block 4: 808447 bytes",
        "frees block 4",
        "frees block 3",
    ]


def test_a_call_without_a_formula_is_refused():
    result = show("show", "aten::svd", "float32[8,8]")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "openreg: this call of aten::svd has no built-in plan\n"


def test_an_unknown_gpu_is_refused_in_one_sentence():
    result = show("--profile", "nonsense", "show", "aten::sort", "float32[65536]")
    assert (result.returncode, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("openreg: OPENREG_PROFILE=nonsense")
