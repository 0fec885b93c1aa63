"""Out-of-bounds writes and indices: the finding names the place and the operator."""

import sys

import corpus
import pytest
import torch
import torch_openreg._C as C

from device import DEVICE, module

DISPATCH_KEY = "CUDA" if DEVICE == "cuda" else "PrivateUse1"

sys.path.insert(0, str(corpus.FOLDER))
from custom_operators import fill_, filled  # noqa: E402

sys.path.remove(str(corpus.FOLDER))


@pytest.fixture
def own_pool():
    """Allocate in a pool without blocks of other tests: a freed block is the next one taken."""
    with module.use_mem_pool(module.MemPool()):
        yield


@pytest.fixture
def findings():
    """Run the sanitizer during a test. Call it for the findings so far."""
    C.sanitizer_start(lambda finding: None, ["out of bounds"], False)

    def found():
        module.synchronize()
        return C.sanitizer_findings()

    yield found
    C.sanitizer_stop()


@pytest.fixture
def operator():
    """Make operators with a device kernel only, which returns when its work is queued."""
    with torch.library._scoped_library("openreg_bounds", "FRAGMENT") as library:

        def make(kernel):
            library.define("act(Tensor(a!) x) -> ()")
            library.impl("act", lambda x: (kernel(x), None)[1], DISPATCH_KEY)
            return torch.ops.openreg_bounds.act

        yield make


def zeros(elements):
    return torch.zeros(elements, device=DEVICE)


def summary(finding):
    second = finding["second"]
    return second["operator"], second["argument"], second["mode"], finding["bytes"]


# ---- red zones -----------------------------------------------------------------------------------


def test_operator_argument_and_bytes_are_reported(findings):
    fill_(zeros(100), 2.0, 0, 3)
    (finding,) = findings()
    assert summary(finding) == ("openreg_corpus::fill_", "x", "writes", (400, 412))
    assert finding["first"] is None
    assert finding["second"]["shape"] == [100]
    assert finding["second"]["block"]["bytes"] == 400


def test_a_result_has_no_argument(findings):
    filled(zeros(100), 2.0, 0, 1)
    (finding,) = findings()
    assert summary(finding) == ("openreg_corpus::filled", "", "writes", (400, 404))


def test_a_view_belongs_to_its_block(findings):
    x = zeros(100)
    fill_(x[40:60], 2.0, 0, 40)
    assert not findings()
    fill_(x[40:60], 2.0, 0, 41)
    (finding,) = findings()
    assert summary(finding)[3] == (400, 404)


def test_call_sites_are_reported_once_and_counted(findings):
    x = zeros(100)
    for _ in range(3):
        fill_(x, 2.0, 0, 1)
    fill_(x, 2.0, 0, 1)
    assert len(findings()) == 2


def test_an_operator_in_an_operator_is_named(findings, operator):
    outer = operator(lambda x: fill_(x, 2.0, 0, 1))
    outer(zeros(100))
    (finding,) = findings()
    assert summary(finding)[0] == "openreg_corpus::fill_"


def test_queued_work_is_checked_when_it_is_done(findings, operator, close_gate):
    add = operator(lambda x: x.add_(1.0))
    x = zeros(100)
    for _ in range(2):  # the first launch of its kind is not queued
        add(x)
    module.synchronize()
    gate = close_gate()
    add(x)
    assert not C.sanitizer_findings()
    gate.open()
    assert not findings()
    assert x.unique().tolist() == [3.0]


def test_out_of_bounds_write_of_queued_work_is_found(findings, operator, close_gate):
    fill = operator(lambda x: longer.fill_(9.0))
    x = zeros(100)
    storage = torch._C._construct_storage_from_data_pointer(x.data_ptr(), x.device, 512)
    longer = torch.empty(0, device=DEVICE).set_(storage, 0, (104,), (1,))
    for _ in range(2):
        longer.fill_(9.0)
    module.synchronize()
    gate = close_gate()
    fill(x)
    assert not C.sanitizer_findings()
    gate.open()
    (finding,) = findings()
    assert summary(finding) == ("openreg_bounds::act", "x", "writes", (400, 416))


def test_pending_work_of_the_former_owner_is_no_finding(own_pool, findings, operator, close_gate):
    def kernel(x):
        gate.open()
        module.synchronize()

    wait = operator(kernel)
    former, fours = zeros(128), torch.full((128,), 4.0, device=DEVICE)
    for _ in range(2):
        former.copy_(fours)
    address = former.data_ptr()
    module.synchronize()
    gate = close_gate()
    former.copy_(fours)
    del former
    x = torch.empty(100, device=DEVICE)  # in memory that the former owner still writes
    assert x.data_ptr() == address
    wait(x)
    assert not findings()
    assert x.unique().tolist() == [4.0]


def test_memory_of_the_next_owner_is_not_changed(own_pool, findings, operator, close_gate):
    add = operator(lambda x: x.add_(1.0))
    x, fours = zeros(100), torch.full((128,), 4.0, device=DEVICE)
    for _ in range(2):
        add(x)
        torch.empty(128, device=DEVICE).copy_(fours)
    module.synchronize()
    address = x.data_ptr()
    gate = close_gate()
    add(x)
    del x
    later = torch.empty(128, device=DEVICE).copy_(fours)
    assert later.data_ptr() == address
    gate.open()
    assert not findings()
    assert later.unique().tolist() == [4.0]


def test_a_block_used_by_several_streams_is_not_checked(findings, operator, close_gate):
    side, gates = module.Stream(), []

    def kernel(x):
        gates.append(close_gate())
        with module.stream(side):
            fill_(x, 2.0, 0, 1)
        x.add_(1.0)

    add = operator(kernel)
    x = zeros(100)
    x.add_(0.0).add_(0.0)
    module.synchronize()
    add(x)
    gates[0].open()
    assert not findings()
    fill_(x, 2.0, 0, 1)  # when they are done, it is checked again
    assert len(findings()) == 1


def test_memory_statistics_do_not_change(findings):
    before = module.memory_allocated()
    x = zeros(100)
    fill_(x, 2.0, 0, 0)
    assert module.memory_allocated() - before == 512


def test_multiples_of_512_bytes_have_no_zone(findings):
    x = zeros(128)
    behind = zeros(128)
    fill_(x, 2.0, 0, 0)
    assert not findings() and behind.sum() == 0


def test_debug_memory_adds_a_zone_to_multiples_of_512_bytes(python):
    code = f"""
    import sys
    sys.path.insert(0, {str(corpus.FOLDER)!r})
    import torch
    from custom_operators import fill_, filled
    from device import DEVICE, module
    from torch_openreg import sanitizer

    with sanitizer.watch() as watched:
        x = torch.zeros(128, device=DEVICE)
        fill_(x, 2.0, 0, 0)
        y = filled(x, 2.0, 0, 0)
        assert not watched.findings()
        fill_(x, 2.0, 0, 1)
        y = filled(x, 2.0, 0, 2)
    print(*[finding.bytes for finding in watched.findings()])
    """
    result = python(code, OPENREG_DEBUG_MEMORY="1")
    assert result.stdout == "(512, 516) (512, 520)\n"
    assert not result.stderr  # the allocator does not report it again


# ---- indices -------------------------------------------------------------------------------------


def test_the_kernels_error_is_raised(findings):
    table, rows = torch.ones(4, 3), torch.tensor([0, 7, 1])
    for device in ("cpu", DEVICE):
        with pytest.raises(IndexError, match="index out of range in self"):
            torch.index_select(table.to(device), 0, rows.to(device))
    (finding,) = findings()
    assert summary(finding) == ("aten::index_select", "index", "reads", (8, 16))


def test_call_site_of_a_queued_launch_is_reported(findings, close_gate):
    table = torch.ones(4, 3, device=DEVICE)
    rows = torch.tensor([0, 3], device=DEVICE)
    torch.index_select(table, 0, rows)
    line = sys._getframe().f_lineno
    rows += 1
    module.synchronize()
    gate = close_gate()
    torch.index_select(table, 0, rows)
    gate.open()
    with pytest.raises(torch.AcceleratorError, match="index out of range"):
        module.synchronize()
    (finding,) = findings()
    assert summary(finding) == ("aten::index_select", "index", "reads", (8, 16))
    assert finding["second"]["stack"][0][1] == line + 4


def test_bad_index_of_queued_bags_is_found(findings, close_gate):
    table, bags = torch.rand(100, 8, device=DEVICE), torch.arange(0, 40, 4, device=DEVICE)
    rows = torch.arange(40, device=DEVICE) + 60
    torch.nn.functional.embedding_bag(rows, table, bags)
    rows += 1
    module.synchronize()
    gate = close_gate()
    torch.nn.functional.embedding_bag(rows, table, bags)
    gate.open()
    with pytest.raises(torch.AcceleratorError, match="failed after its launch"):
        module.synchronize()
    (finding,) = findings()
    operator, argument, access, place = summary(finding)
    assert operator in ("aten::_embedding_bag", "aten::_embedding_bag_forward_only")
    assert (argument, access, place) == ("indices", "reads", (8 * 39, 8 * 40))


INDEX = {
    "gather": lambda x, bad: x.gather(1, bad.view(1, 3)),
    "scatter_": lambda x, bad: x.scatter_(1, bad.view(1, 3), 1.0),
    "scatter_add": lambda x, bad: x.scatter_add(1, bad.view(1, 3), x[:1]),
    "index_add_": lambda x, bad: x.index_add_(1, bad, x),
    "index_copy_": lambda x, bad: x.index_copy_(1, bad, x),
    "index_fill_": lambda x, bad: x.index_fill_(1, bad, 1.0),
    "take": lambda x, bad: x.take(bad * 3),
    "index": lambda x, bad: x[:, bad],
    "index behind a mask": lambda x, bad: x[torch.ones(3, device=DEVICE) > 0, bad],
    "index of a third dimension": lambda x, bad: x.view(1, 3, 3)[:, :, bad],
    "index_put_": lambda x, bad: x.index_put_((bad,), x[0]),
    "embedding": lambda x, bad: torch.nn.functional.embedding(bad, x),
    "embedding_bag": lambda x, bad: torch.nn.functional.embedding_bag(bad.view(1, 3), x),
    "nll_loss": lambda x, bad: torch.nn.functional.nll_loss(x, bad),
    "int32": lambda x, bad: x.index_select(1, bad.int()),
}


@pytest.mark.parametrize("name", INDEX)
def test_bad_index_of_each_operator_is_found(findings, name):
    x, bad = zeros(9).view(3, 3), torch.tensor([0, 2, 3], device=DEVICE)
    with pytest.raises((IndexError, RuntimeError)):
        INDEX[name](x, bad)
    (finding,) = findings()
    begin, end = finding["bytes"]
    size = 4 if name == "int32" else 8
    assert (begin, end) == (2 * size, 3 * size)
    assert finding["second"]["argument"] in ("index", "indices", "target", "self")


def test_address_of_a_bad_index_in_a_view(findings):
    x = torch.ones(3, device=DEVICE)
    indices = torch.tensor([[0, 9], [1, 9], [5, 9]], device=DEVICE)[:, 0]
    with pytest.raises(IndexError):
        x[indices]
    (finding,) = findings()
    assert finding["bytes"] == (32, 40)


def test_bad_index_on_the_host_has_no_bytes(findings):
    with pytest.raises(IndexError):
        torch.ones(3, device=DEVICE)[torch.tensor([5])]
    (finding,) = findings()
    assert summary(finding) == ("aten::index", "indices", "reads", (0, 0))
