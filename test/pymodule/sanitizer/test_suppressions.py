"""A file of suppressions hides findings, and gives the reasons."""

import fake_findings as fake
import pytest
from torch_openreg.sanitizer import suppressions
from torch_openreg.sanitizer.finding import from_dict


@pytest.fixture
def suppresses(tmp_path):
    """Return whether a section of a file matches a finding."""

    def matches(finding, **section):
        lines = [f"{key} = {value}" for key, value in {"reason": "known", **section}.items()]
        path = tmp_path / "suppressions.ini"
        path.write_text("\n".join(["[one]", *lines]))
        (one,) = suppressions.read(str(path))
        return one.matches(from_dict(finding))

    return matches


@pytest.fixture
def refusal(tmp_path):
    """Return the error for an invalid file, without the file's name."""

    def refusal(text):
        path = tmp_path / "suppressions.ini"
        path.write_text(text)
        with pytest.raises(ValueError) as raised:
            suppressions.read(str(path))
        return str(raised.value).removeprefix(f"{path}: ")

    return refusal


@pytest.mark.parametrize(
    ("matches", "section"),
    [
        (True, {"kind": "race"}),
        (True, {"kind": "leak, race"}),
        (False, {"kind": "use-after-free"}),
        (True, {"file": "train.py"}),
        (True, {"file": "/nowhere/train.py"}),
        (True, {"file": "nowhere/*.py"}),
        (False, {"file": "rain.py"}),
        (True, {"function": "st?p"}),
        (False, {"function": "steps"}),
        (True, {"operator": "aten::mul"}),
        (True, {"operator": "aten::add_"}),
        (False, {"operator": "aten::add"}),
        (True, {"operator": "aten::mul", "function": "step"}),
        (False, {"operator": "aten::add_", "function": "step"}),  # of the other access
        (True, {"kind": "race", "operator": "*"}),
        (False, {"kind": "leak", "operator": "*"}),
    ],
)
def test_all_patterns_match_one_access(suppresses, matches, section):
    second = fake.access(3, stack=fake.stack(3, "step"))
    assert suppresses(fake.finding("race", fake.write(2), second), **section) == matches


def test_file_and_function_match_one_frame(suppresses):
    frames = [*fake.stack(3, "inner", "/lib/a.py"), *fake.stack(9, "outer", "/lib/b.py")]
    found = fake.finding("race", fake.write(2), fake.access(3, stack=frames))
    assert suppresses(found, file="b.py", function="outer")
    assert not suppresses(found, file="b.py", function="inner")


def test_the_line_of_a_forward_matches(suppresses):
    backward = fake.write(2, stack=[], forward=fake.stack(5, "forward"))
    assert suppresses(fake.finding("race", backward, fake.access(3)), function="forward")


def test_a_leak_matches_by_its_allocation(suppresses):
    leak = fake.access(1, operator="", mode="", stack=[])
    assert suppresses(fake.finding("leak", None, leak), file="train.py")


def test_sections_have_comments_and_names(tmp_path):
    path = tmp_path / "suppressions.ini"
    path.write_text(
        "# ours\n[a library] # theirs\noperator = aten::x # odd\nreason = reported: 3\n"
    )
    (one,) = suppressions.read(str(path))
    assert (one.name, one.patterns, one.reason) == (
        "a library",
        {"operator": "aten::x"},
        "reported: 3",
    )


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("kind = race", "[one]: expected a reason"),
        ("kind = race\nreason =", "[one]: expected a reason"),
        ("reason = x", "[one]: expected a kind or a pattern: this would suppress everything"),
        (
            "kind = crace\nreason = x",
            "[one]: crace: expected race, use-after-free, host-access, uninitialised-read, "
            "unordered-event, never-waited, out-of-bounds, leak",
        ),
        ("file =\nreason = x", "[one]: expected a pattern after each ="),
        (
            "line = 3\nreason = x",
            "[one]: line: expected kind, file, function, operator or reason",
        ),
    ],
)
def test_invalid_files_raise(refusal, lines, sentence):
    assert refusal(f"[one]\n{lines}\n") == sentence


def test_missing_files_raise(refusal, tmp_path):
    assert "no section headers" in refusal("kind = race\n")
    assert "already exists" in refusal("[a]\nkind=race\nreason=x\n[a]\nkind=race\nreason=x\n")
    with pytest.raises(ValueError, match="none.ini: No such file or directory"):
        suppressions.read(str(tmp_path / "none.ini"))
