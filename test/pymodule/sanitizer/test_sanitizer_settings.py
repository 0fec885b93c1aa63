"""The sanitizer's environment variables."""

import pytest
from torch_openreg.sanitizer.settings import Settings, from_environment, is_requested, parse_kinds


def test_defaults():
    assert from_environment({}) == Settings()
    assert "leak" not in Settings().kinds and "race" in Settings().kinds


def test_variables_are_read(tmp_path):
    file = tmp_path / "file"
    file.write_text("[one]\nkind=race\nreason=x\n")
    read = from_environment(
        {
            "OPENREG_SANITIZER_ONLY": "use-after-free,race",
            "OPENREG_SANITIZER_LEAKS": "1",
            "OPENREG_SANITIZER_STACKS": "1",
            "OPENREG_SANITIZER_EXITCODE": "3",
            "OPENREG_SANITIZER_SUPPRESSIONS": str(file),
            "OPENREG_SANITIZER_SOCKET": "/nowhere/socket",
        }
    )
    assert read.kinds == ("race", "use after free", "leak")
    assert (read.stacks, read.exitcode, read.socket) == (True, 3, "/nowhere/socket")
    assert [one.name for one in read.suppressions] == ["one"]


@pytest.mark.parametrize("word", ["use-after-free", "use_after_free", " use after free "])
def test_kinds_have_hyphens_or_spaces(word):
    assert parse_kinds(word) == ("use after free",)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("", "yes", "0 or 1"),
        ("_STACKS", "2", "0 or 1"),
        ("_LEAKS", "x", "0 or 1"),
        ("_ONLY", "races", "race, use-after-free"),
        ("_EXITCODE", "256", "0 to 255"),
        ("_EXITCODE", "-1", "0 to 255"),
    ],
)
def test_invalid_values_raise(name, value, allowed):
    environment = {f"OPENREG_SANITIZER{name}": value}
    with pytest.raises(ValueError, match=f"openreg: OPENREG_SANITIZER{name}={value}: expected"):
        is_requested(environment)
        from_environment(environment)
    with pytest.raises(ValueError, match=allowed):
        is_requested(environment)
        from_environment(environment)


def test_a_missing_file_raises():
    with pytest.raises(ValueError, match="OPENREG_SANITIZER_SUPPRESSIONS=/nowhere/file: No such"):
        from_environment({"OPENREG_SANITIZER_SUPPRESSIONS": "/nowhere/file"})


@pytest.mark.parametrize("value", ["", "0"])
def test_values_that_turn_it_off(value):
    assert not is_requested({"OPENREG_SANITIZER": value})
