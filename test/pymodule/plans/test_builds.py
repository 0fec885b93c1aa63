"""Which CUDA build the planner runs, and what is said if there is none. Needs no CUDA build."""

import os

import pytest
from torch_openreg.commands import plans as command
from torch_openreg.plans import builds
from torch_openreg.plans.client import DEFAULT_SETTINGS, Client
from torch_openreg.plans.text import Parser


@pytest.fixture
def folders(monkeypatch, tmp_path):
    """Stand in for the environment's PyTorch, and for the cache folder."""

    def make(folder, version, cuda):
        (folder / "torch" / "lib").mkdir(parents=True)
        (folder / "torch" / "version.py").write_text(
            f"__version__ = {version!r}\ncuda = {cuda!r}\n"
        )
        if cuda is not None:
            (folder / "torch" / "lib" / "libtorch_cuda.so").touch()

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(builds, "own_folder", lambda: tmp_path / "own")
    return lambda version, cuda, where="own": make(
        tmp_path / "own" if where == "own" else builds.cache_folder(where), version, cuda
    )


def test_the_environments_own_cuda_build_is_taken(folders, tmp_path):
    folders("2.13.0+cu130", "13.0")
    assert builds.find() == (tmp_path / "own", "2.13.0", "13.0")


def test_an_installed_build_of_the_same_release_is_taken(folders):
    folders("2.13.0+cpu", None)
    folders("2.13.0+cu130", "13.0", "2.13.0")
    assert builds.find() == (builds.cache_folder("2.13.0"), "2.13.0", "13.0")


@pytest.mark.parametrize(
    "installed, sentence",
    [
        (None, "there is no CUDA build of PyTorch 2.13.0 .*run `openreg plans install`"),
        (("2.12.1+cu130", "13.0"), "is PyTorch 2.12.1, and 2.13.0 runs here"),
        (("2.13.0+cu128", "12.8"), "is for CUDA 12.8: the planner supports CUDA 13"),
    ],
)
def test_without_a_build_there_is_a_sentence_and_no_plan(folders, capsys, installed, sentence):
    folders("2.13.0+cpu", None)
    if installed is not None:
        folders(*installed, "2.13.0")
    with pytest.raises(builds.NoBuild, match=sentence):
        builds.find()
    assert command.main([]) == 1
    assert capsys.readouterr().err.startswith("openreg: ")
    client = Client(["h100"])
    question = ("aten::sum", [], {}, DEFAULT_SETTINGS, "h100")
    assert client.ask(question) is None and client.ask(question) is None
    assert client.counts == {"planner": 2}
    assert capsys.readouterr().err.count("openreg: ") == 1


def test_a_broken_build_is_one_sentence(folders, capsys):
    folders("2.13.0+cu130", "13.0")  # it has no code
    client = Client(["h100"])
    assert client.ask(("aten::sum", [], {}, DEFAULT_SETTINGS, "h100")) is None
    assert "openreg: the planner could not start: " in capsys.readouterr().err


def test_a_file_that_is_no_wheel_is_not_installed(folders, capfd, tmp_path):
    folders("2.13.0+cpu", None)
    (tmp_path / "torch.whl").write_text("no wheel")
    assert command.main(["install", str(tmp_path / "torch.whl")]) == 1
    assert "openreg: pip could not install the build" in capfd.readouterr().err
    assert os.listdir(builds.cache_folder("2.13.0").parent) == []


# ---- text ----------------------------------------------------------------------------------------


def test_text_becomes_arguments():
    texts = Parser()
    assert texts.parse("float32[2,3]") == ("tensor", "float32", (2, 3), (3, 1), 0, 0, 24, "")
    assert texts.parse("host:int64[]") == ("tensor", "int64", (), (), 0, 1, 8, "h")
    assert texts.parse("bool[2,3;0,1]") == ("tensor", "bool", (2, 3), (0, 1), 0, 2, 3, "")
    assert [each[5] for each in texts.parse("2*int8[0]")] == [3, 4]
    assert texts.parse("[1,[2.5,None],int8[1]]")[:2] == [1, [2.5, None]]
    assert texts.parse("bfloat16") == ("dtype", "bfloat16")
    assert texts.parse("'mean'") == "mean"


@pytest.mark.parametrize("text", ["float31[2]", "float32[2;1,1]", "x", "{}", "float32[2"])
def test_text_that_is_no_argument_is_an_error(text):
    with pytest.raises(ValueError, match="openreg: .*expected"):
        Parser().parse(text)
