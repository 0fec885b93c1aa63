"""Workspaces of cuBLAS, which matrix products allocate with OPENREG_GPU_OVERHEAD=1."""

import pytest
from gpu_memory import DOCUMENTED

from device import NAME

MIB = 1 << 20
HOPPER, OTHERS = 32 * MIB, 8519680

# `grown` returns what a program allocated since its last call, without the results.
PREAMBLE = """
import os, threading, time, torch
import torch_openreg._C as _C
from device import DEVICE, module

device = DEVICE
before = 0

def grown(index=0):
    global before
    now = module.memory_allocated(index)
    before, by = now, now - before
    return by

def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()
    while os.path.exists(f"/proc/self/task/{thread.native_id}"):
        time.sleep(0.001)  # join returns before the thread has given its handle back

a = torch.ones(8, 8, device=device)
results = [torch.empty(8, 8, device=device) for _ in range(4)]
grown()
"""


@pytest.fixture
def overhead(python):
    """Run code after the preamble, on devices that have contexts and workspaces."""

    def run(code, **environment):
        settings = {"OPENREG_GPU_OVERHEAD": "1", "OPENREG_DEVICE_MEMORY": "2G"}
        lines = [line.removeprefix("        ") for line in code.split("\n")]
        return python(PREAMBLE + "\n".join(lines), **(settings | environment))

    return run


def test_the_first_product_on_each_stream_allocates_a_workspace(overhead):
    result = overhead("""
        first = a @ a
        print(grown())
        again = a @ a, torch.bmm(a[None], a[None]), a @ a[0], torch.dot(a[0], a[0])
        print(grown())
        side = module.Stream()
        with module.stream(side):
            c = a @ a
            print(grown())
            d = a @ a
            print(grown())
        e = a @ a
        print(grown())
        b = torch.ones(8, 8, device=f"{DEVICE}:1")
        f = b @ b
        print(grown(), module.memory_allocated(1))
        """)
    sizes = [int(size) for size in result.stdout.split()]
    assert sizes == [HOPPER + 512, 4 * 512, HOPPER + 512, 512, 512, 0, HOPPER + 2 * 512]


def test_a_workspace_is_part_of_what_the_allocator_has(overhead):
    result = overhead("""
        reserved = module.memory_reserved()
        torch.mm(a, a, out=results[0])
        free, total = module.mem_get_info()
        print(module.memory_reserved() - reserved, total - free - (527 << 20) - reserved)
        blocks = [block for segment in module.memory_snapshot()
                  for block in segment["blocks"] if block["state"] == "active_allocated"]
        print(max(block["size"] for block in blocks))
        """)
    assert result.stdout == f"{HOPPER} {HOPPER}\n{HOPPER}\n"


def test_each_thread_has_a_handle_and_leaves_it_to_the_next(overhead):
    result = overhead("""
        def multiply(place):
            torch.mm(a, a, out=results[place])

        multiply(0)
        print(grown())
        for _ in range(3):
            in_thread(lambda: multiply(1))
            print(grown())
        together = threading.Barrier(2)
        def multiply_together(place):
            multiply(place)
            together.wait()
        threads = [threading.Thread(target=multiply_together, args=(i,)) for i in (2, 3)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        print(grown())
        """)
    sizes = [int(size) for size in result.stdout.split()]
    assert sizes == [HOPPER, HOPPER, 0, 0, HOPPER]


def test_the_thread_of_autograd_has_a_handle_of_its_own(overhead):
    result = overhead("""
        layer = torch.nn.Linear(8, 8, device=device)
        for parameter in layer.parameters():
            parameter.grad = torch.zeros_like(parameter)
        grown()
        loss = layer(a).sum()
        del a
        print(grown() - 512 - 512 + 512)
        loss.backward()
        print(module.memory_allocated() >> 20)
        layer(torch.ones(8, 8, device=device)).sum().backward()
        print(module.memory_allocated() >> 20)
        """)
    sizes = [int(size) for size in result.stdout.split()]
    assert sizes[1:] == [64, 64]
    assert sizes[0] >= HOPPER


@pytest.mark.parametrize("profile", ["b200", "h20", "a100", "v100", "rtx4090", "t4"])
def test_workspaces_of_profiles_are_those_of_the_document(overhead, profile):
    result = overhead(
        "print((torch.mm(a, a, out=results[0]), grown())[1])", OPENREG_PROFILE=profile
    )
    assert int(result.stdout) == DOCUMENTED[profile][1]


@pytest.mark.parametrize(
    ("config", "size"),
    [
        (":4096:8", HOPPER),
        (":16:8", 128 * 1024),
        (":4096:2:16:8", OTHERS),
        ("a:1:2,b:3:4:", 14 * 1024),
        (":0:0", 0),
        (":5:0:7", 0),
        ("", HOPPER),
    ],
)
def test_the_size_can_be_configured_as_for_cuda(overhead, config, size):
    result = overhead(
        "print((torch.mm(a, a, out=results[0]), grown())[1])", CUBLAS_WORKSPACE_CONFIG=config
    )
    assert int(result.stdout) == size
    assert ("UserWarning" in result.stderr) == (config == "")


@pytest.mark.parametrize("config", ["4096:8", ":4096", ":-1:2", "nonsense"])
def test_a_configuration_without_buffers_causes_a_warning(overhead, config):
    result = overhead(
        """
        print((torch.mm(a, a, out=results[0]), grown())[1])
        side = module.Stream()
        with module.stream(side):
            torch.mm(a, a, out=results[1])
        """,
        CUBLAS_WORKSPACE_CONFIG=config,
        OPENREG_PROFILE="t4",
    )
    assert int(result.stdout) == OTHERS
    assert result.stderr.count("UserWarning") == 1
    assert (
        f"CUBLAS_WORKSPACE_CONFIG={config}: expected :SIZE:COUNT, sizes in KiB, as :4096:8; the "
        "default is used, 8519680 bytes" in result.stderr
    )


def test_a_number_that_is_too_large_is_an_error(overhead):
    result = overhead(
        """
        for _ in range(2):
            try:
                a @ a
            except RuntimeError as error:
                print(error)
        """,
        CUBLAS_WORKSPACE_CONFIG=":99999999999999999999:1",
    )
    assert result.stdout.splitlines() == 2 * [
        "openreg: CUBLAS_WORKSPACE_CONFIG holds a number that is too large: expected :SIZE:COUNT, "
        "sizes in KiB, as :4096:8"
    ]


LINEAR = """
torch.addmm(a[0], a, a, out=results[0])
print(grown())
torch.mm(a, a, out=results[0])
print(grown())
torch.addmm(a[0], a, a, out=results[0])
print(grown())
"""


@pytest.mark.parametrize(
    ("environment", "sizes"),
    [
        ({}, [HOPPER, 0]),
        ({"TORCH_CUBLASLT_UNIFIED_WORKSPACE": "1"}, [HOPPER, 0]),
        ({"CUBLASLT_WORKSPACE_SIZE": "64"}, [HOPPER, 0]),
        ({"TORCH_CUBLASLT_UNIFIED_WORKSPACE": "0"}, [MIB + HOPPER, 0]),
        (
            {"TORCH_CUBLASLT_UNIFIED_WORKSPACE": "0", "CUBLASLT_WORKSPACE_SIZE": "2048 or so"},
            [2 * MIB + HOPPER, 0],
        ),
        (
            {"TORCH_CUBLASLT_UNIFIED_WORKSPACE": "0", "CUBLASLT_WORKSPACE_SIZE": "0"},
            [HOPPER, 0],
        ),
    ],
)
def test_cublaslt_works_in_the_workspace_of_cublas_or_its_own(overhead, environment, sizes):
    result = overhead(LINEAR, **environment)
    assert [int(size) for size in result.stdout.split()] == [*sizes, 0]
    assert result.stderr == ""


def test_cublaslt_multiplies_where_it_adds_a_bias(overhead):
    result = overhead(
        """
        columns = torch.ones(8, 1, device=device)
        long = a.long()
        complex = a.to(torch.complex64)
        for multiply in (
            lambda: torch.addmm(a[0], a, a),
            lambda: torch.addmm(a[:1], a, a),
            lambda: torch.addmm(a[0].half(), a.half(), a.half()),
            lambda: torch._addmm_activation(a, a, a),
            lambda: torch._addmm_activation(a[0], a, a, use_gelu=True),
            lambda: torch.addmm(a[0], a, a, beta=2),
            lambda: torch.addmm(a, a, a),
            lambda: torch.addmm(a[0, :1], a, a),
            lambda: torch.addmm(a[:, 0], a, a),
            lambda: torch.addmm(complex[0], complex, complex),
            lambda: torch.addmm(columns[0], a, columns),
            lambda: torch.addmm(a[0], a, a, out=results[0].t()),
            lambda: torch.mm(a, a),
        ):
            multiply()
            print(grown() >> 20, end=" ")
            _C.clear_cublas_workspaces()
            grown()
        """,
        TORCH_CUBLASLT_UNIFIED_WORKSPACE="0",
    )
    assert result.stdout.split() == 5 * ["33"] + 8 * ["32"]


@pytest.mark.parametrize(
    ("size", "why"), [("much", "expected a number of KiB"), ("9" * 20, "the number is too large")]
)
def test_an_invalid_size_for_cublaslt_causes_a_warning(overhead, size, why):
    result = overhead(LINEAR, TORCH_CUBLASLT_UNIFIED_WORKSPACE="0", CUBLASLT_WORKSPACE_SIZE=size)
    assert [int(size) for size in result.stdout.split()] == [MIB + HOPPER, 0, 0]
    assert f"CUBLASLT_WORKSPACE_SIZE={size}: {why}; the default is used, 1024 KiB" in result.stderr


def test_cublaslt_cannot_have_more_than_the_workspace_it_shares(overhead):
    result = overhead(LINEAR, CUBLASLT_WORKSPACE_SIZE="65536")
    assert [int(size) for size in result.stdout.split()] == [HOPPER, 0, 0]
    assert result.stderr.count("CUBLASLT_WORKSPACE_SIZE requests 67108864 bytes") == 1


@pytest.mark.parametrize(
    "code",
    [
        "torch.mm(a[:0], a)",
        "torch.mm(a[:, :0], a[:0])",
        "torch.bmm(a[:0, None], a[:0, None].transpose(1, 2))",
        "torch.addmm(a[0], a[:, :0], a[:0])",
        "torch.mv(a[:0], a[0])",
        "a + a, a.sum(), a.exp(), torch.outer(a[0], a[0])",
        "torch.nn.functional.conv2d(a[None, None], a[None, None, :3, :3])",
        "torch.cdist(a, a)",
        "torch.fft.fft(a)",
        "torch.linalg.qr(a)",
        "torch.linalg.matrix_exp(a[:1, :1])",
    ],
)
def test_operators_without_matrix_products_have_no_workspace(overhead, code):
    result = overhead(f"kept = {code}\nprint(grown() < {HOPPER})")
    assert result.stdout == "True\n"


@pytest.mark.parametrize(
    "code",
    [
        "torch.matmul(a[None, None], a)",
        "torch.einsum('ij,jk->ik', a, a)",
        "torch.addbmm(a, a[None], a[None])",
        "torch.baddbmm(a[None], a[None], a[None])",
        "a.clone().addmm_(a, a)",
        "a.clone().addbmm_(a[None], a[None])",
        "a[None].clone().baddbmm_(a[None], a[None])",
        "a[0].clone().addmv_(a, a[0])",
        "torch.addmv(a[0], a, a[0])",
        "torch.dot(a[0], a[0])",
        "torch.vdot(a[0], a[0])",
        "torch.linalg.solve_triangular(a, a, upper=True)",
        "torch.linalg.inv(a + torch.eye(8, device=device))",
        "torch.linalg.solve(a + torch.eye(8, device=device), a)",
        "torch.linalg.lstsq(a + torch.eye(8, device=device), a)",
        "torch.triangular_solve(a, a)",
        "torch._scaled_mm(a8, a8.t(), one, one)",
        "torch.linalg.matrix_exp(a)",
        "torch.cdist(torch.ones(30, 2, device=device), a[:, :2])",
        "torch.nn.functional.linear(a, a)",
        "torch.nn.Linear(8, 8, device=device)(a[None])",
        "torch.nn.MultiheadAttention(8, 2, device=device).eval()(a[None], a[None], a[None])",
        "torch.inference_mode()(layer)(a[None])",
        "torch.inference_mode()(lambda x: layer.self_attn(x, x, x))(a[None])",
    ],
)
def test_matrix_products_have_a_workspace(overhead, code):
    result = overhead(f"""
        one, a8 = torch.ones((), device=device), a.to(torch.float8_e4m3fn)
        layer = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True, device=device).eval()
        grown()
        kept = {code}
        print(grown() >> 20)
        """)
    assert result.stdout == "32\n"


def test_invalid_products_have_no_workspace(overhead):
    result = overhead("""
        for wrong in ((a, a[:3]), (a, torch.ones(8, 8)), (a[0], a)):
            try:
                torch.mm(*wrong)
            except RuntimeError:
                print(grown())
        """)
    assert result.stdout == "0\n0\n0\n"


def test_clearing_frees_workspaces_until_they_are_needed_again(overhead):
    result = overhead("""
        torch.mm(a, a, out=results[0])
        in_thread(lambda: torch.mm(a, a, out=results[0]))
        print(grown())
        _C.clear_cublas_workspaces()
        print(grown(), module.memory_reserved() >> 20)
        module.empty_cache()
        print(module.memory_reserved() >> 20)
        torch.mm(a, a, out=results[0])
        print(grown())
        """)
    assert result.stdout == f"{2 * HOPPER}\n{-2 * HOPPER} 66\n2\n{HOPPER}\n"


def test_the_workspace_may_be_what_does_not_fit(overhead):
    result = overhead(
        """
        held = torch.empty(480 << 20, dtype=torch.uint8, device=device)
        try:
            torch.mm(a, a, out=results[0])
        except torch.OutOfMemoryError as error:
            print(str(error).split(" GPU")[0])
        del held
        module.empty_cache()
        grown()
        torch.mm(a, a, out=results[0])
        print(grown())
        """,
        OPENREG_DEVICE_MEMORY="1G",
    )
    assert result.stdout == (f"{NAME} out of memory. Tried to allocate 32.00 MiB.\n{HOPPER}\n")


def test_a_workspace_lies_in_the_pool_that_is_in_use(overhead):
    result = overhead("""
        pool = module.MemPool()
        with module.use_mem_pool(pool):
            torch.mm(a, a, out=results[0])
        segments = module.memory_snapshot(pool.id)
        print([segment["allocated_size"] for segment in segments])
        torch.mm(a, a, out=results[0])
        print(grown())
        """)
    assert result.stdout == f"[{HOPPER}]\n{HOPPER}\n"


def test_queued_products_have_their_workspaces_when_they_are_launched(overhead):
    result = overhead("""
        _C.set_queues_everything(True)
        side = module.Stream()
        torch.mm(a, a, out=results[0])
        with module.stream(side):
            module.synchronize()
            grown()
            gate = _C._Gate(side.device_index, side.stream_id)
            queued = _C.launches_queued_by_thread()
            torch.mm(a, a, out=results[0])
            print(_C.launches_queued_by_thread() - queued, grown())
            gate.open()
        module.synchronize()
        print(results[0].sum().item())
        """)
    assert result.stdout == f"1 {HOPPER}\n512.0\n"


def test_results_are_those_of_the_cpu(overhead):
    result = overhead("""
        torch.manual_seed(0)
        x, w, b = torch.randn(3, 5), torch.randn(4, 5, requires_grad=True), torch.randn(4)
        there = w.detach().to(device).requires_grad_()
        ours = torch.nn.functional.linear(x.to(device), there, b.to(device))
        theirs = torch.nn.functional.linear(x, w, b)
        (ours * ours).sum().backward()
        (theirs * theirs).sum().backward()
        print(torch.equal(ours.cpu(), theirs), torch.equal(there.grad.cpu(), w.grad))
        out = torch.empty(0, device=device)
        print(torch.mm(a, a, out=out) is out, tuple(out.shape))
        """)
    assert result.stdout == "True True\nTrue (8, 8)\n"


@pytest.mark.parametrize("fresh", [True, False])
def test_other_kernels_are_kept_in_their_place(python, fresh):
    result = python(
        """
        import torch
        from device import DEVICE, KEY
        library = torch.library.Library("aten", "IMPL")
        library.impl("mm", lambda left, right: left + right, KEY)
        a = torch.ones(2, 2, device=DEVICE)
        print((a @ a).tolist())
        try:
            torch.dot(a[0], a[0])
        except NotImplementedError as error:
            print("OPENREG_BLOCK_OPERATORS" in str(error))
        """,
        fresh=fresh,
        OPENREG_GPU_OVERHEAD="1",
        OPENREG_DEVICE_MEMORY="1G",
        OPENREG_BLOCK_OPERATORS="aten::dot",
    )
    assert result.stdout == "[[2.0, 2.0], [2.0, 2.0]]\nTrue\n"


def test_a_program_that_has_workspaces_and_threads_ends_in_order(overhead):
    result = overhead("""
        import os
        a.requires_grad_()
        (a @ a).sum().backward()
        started = threading.Event()
        def multiply_and_stay():
            torch.mm(a.detach(), a.detach(), out=results[0])
            started.set()
            threading.Event().wait()
        threading.Thread(target=multiply_and_stay, daemon=True).start()
        started.wait()
        if os.fork() == 0:
            try:
                a @ a
            except RuntimeError as error:
                print("fork" in str(error), flush=True)
            in_thread(lambda: None)
            raise SystemExit
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        """)
    assert result.stdout == "True\n0\n"
    assert result.stderr == ""
