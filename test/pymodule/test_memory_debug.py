"""OPENREG_DEBUG_MEMORY=1: mistakes with memory are told with the Python stack of the allocation."""

DEBUG = {"OPENREG_DEBUG_MEMORY": "1", "OPENREG_HOST_ACCESS": "1"}

# The device's memory is readable from the host, so that a test can write where it must not.
PREAMBLE = """
import ctypes, torch
def make_a_tensor(count):
    return torch.ones(count, dtype=torch.uint8, device="openreg")
def write(address):
    ctypes.memset(address, 0x11, 4)
"""


def code(text):
    return PREAMBLE + text


def test_write_behind_a_block_is_found_by_synchronizing(python):
    result = python(
        code(
            """
tensor = make_a_tensor(512)
write(tensor.data_ptr() + 512)
try:
    torch.openreg.synchronize()
except torch.AcceleratorError as error:
    print("raised")
    assert "512" in str(error), error
"""
        ),
        **DEBUG,
    )
    assert result.stdout == "raised\n"
    assert "in make_a_tensor" in result.stderr


def test_write_behind_a_block_is_found_by_the_accelerator_too(python):
    result = python(
        code(
            """
tensor = make_a_tensor(512)
write(tensor.data_ptr() + 512)
try:
    torch.accelerator.synchronize()
except torch.AcceleratorError as error:
    print("raised")
"""
        ),
        **DEBUG,
    )
    assert result.stdout == "raised\n"


def test_write_to_freed_memory_is_found_by_synchronizing(python):
    result = python(
        code(
            """
tensor = make_a_tensor(5 << 20)
address = tensor.data_ptr()
del tensor
write(address + 4096)
try:
    torch.openreg.synchronize()
except torch.AcceleratorError as error:
    print("raised")
"""
        ),
        **DEBUG,
    )
    assert result.stdout == "raised\n"


def test_what_nobody_looked_for_is_told_at_exit(python):
    result = python(
        code(
            """
tensor = make_a_tensor(512)
write(tensor.data_ptr() + 512)
"""
        ),
        **DEBUG,
    )
    assert "in make_a_tensor" in result.stderr
    assert result.stderr.count("in make_a_tensor") == 1


def test_program_without_a_mistake_is_told_nothing(python):
    result = python(
        code(
            """
model = torch.nn.Linear(64, 64).openreg()
model(torch.ones(8, 64, device="openreg")).sum().backward()
torch.openreg.synchronize()
print(torch.empty(3, device="openreg").isnan().all().item())
"""
        ),
        **DEBUG,
    )
    assert (result.stdout, result.stderr) == ("True\n", "")


def test_figures_are_those_without_the_zones(python):
    program = code(
        """
held = [torch.empty(n, dtype=torch.uint8, device="openreg") for n in (1, 512, 1000, 3 << 20)]
stats = torch.openreg.memory_stats()
print([stats[f"{name}.all.current"] for name in ("allocated_bytes", "requested_bytes", "active")])
"""
    )
    assert python(program, **DEBUG).stdout == python(program).stdout
