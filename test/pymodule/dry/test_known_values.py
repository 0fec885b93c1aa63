"""In a dry run small kernels run on known values. All else is unknown, and reads as zero."""

import pytest
from dry_run import run

pytestmark = pytest.mark.own_processes


def test_small_integers_from_the_host_stay_true():
    told, _ = run(
        """
tokens = torch.tensor([[5, 6, 0], [7, 0, 0]]).to(DEVICE)
mask = tokens != 0
tell(mask.sum().item(), tokens[mask].tolist(), mask.nonzero().shape[0], reads.report())
"""
    )
    assert told == [[3, [5, 6, 7], 3, []]]


def test_large_kernels_do_not_run_and_their_results_read_as_zero():
    told, _ = run(
        """
x = torch.ones(1000, 1000, device=DEVICE)
y = (x + 1).sum()
tell(y.item(), (x + 1)[0, :2].tolist(), x.cpu().sum().item(), y.isfinite().item())
for read, count in reads.report():
    tell(read.operator, read.value, count, read.line, read.file)
"""
    )
    values, *reads = told
    assert values == [0, [0, 0], 0, True]
    places = {(operator, file) for operator, _, _, _, file in reads}
    expected = {"aten::item", "aten::copy_", "aten::isfinite"}
    assert places == {(operator, "<string>") for operator in expected}
    assert len({line for _, _, _, line, _ in reads}) == 1


def test_nothing_is_touched():
    """A device of 80 GiB holds 60 GiB in a process of less than 1 GiB."""
    told, _ = run(
        """
x = torch.empty(15, 1 << 30, device=DEVICE).normal_()
y = torch.zeros_like(x[:2])
del y
x.mul_(2)
tell(module.memory_allocated() >> 30, peak_resident_mib() >> 10)
"""
    )
    assert told == [[60, 0]]


def test_devices_have_the_memory_of_their_profile():
    told, _ = run("tell(module.mem_get_info()[1] >> 30)", "--profile", "h200")
    assert told == [[139]]


def test_what_an_unknown_value_is_written_to_is_unknown_until_it_is_overwritten():
    told, _ = run(
        """
large = rand(600, 600)
small = torch.zeros(4, device=DEVICE)
told = [_C.is_known(small)]
small[1:2] = large[0, 0]
told += [_C.is_known(small), _C.is_known(small[3:])]
small[:2].fill_(1)
told += [_C.is_known(small)]
small.copy_(torch.tensor([1., 2., 3., 4.]))
told += [_C.is_known(small), small.sum().item()]
small.add_(large[0, 0])
told += [_C.is_known(small)]
torch.add(torch.ones(4, device=DEVICE), 1, out=small)
told += [_C.is_known(small), small.sum().item()]
tell(*told)
"""
    )
    assert told == [[True, False, False, False, True, 10, False, True, 8]]


def test_memory_that_moves_stays_unknown():
    told, _ = run(
        """
known, unknown = torch.ones(8, device=DEVICE), torch.zeros(8, device=DEVICE)
unknown += rand(600, 600)[0, 0]
told = []
for x in (known, unknown):
    told += [_C.is_known(torch._lazy_clone(x)), _C.is_known(x.clone()), _C.is_known(x.abs())]
    told += [_C.is_known(x.to(f"{DEVICE}:1"))]
    x.resize_(1000)
    told += [_C.is_known(x)]
    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(4000)
    told += [_C.is_known(x)]
tell(*told)
tell(_C.is_known(torch.zeros(1 << 20).to(DEVICE)))
"""
    )
    assert told == [[True] * 6 + [False] * 5 + [True], [False]]


def test_random_draws_from_unknown_numbers_are_unknown():
    told, _ = run(
        """
weights = torch.ones(8, device=DEVICE) + rand(600, 600)[0, 0]
drawn = [torch.multinomial(weights, 2), torch.multinomial(weights, 2, replacement=True)]
drawn += [torch.bernoulli(weights), torch.poisson(weights), torch.nn.functional.dropout(weights)]
tell(*map(_C.is_known, drawn))
"""
    )
    assert told == [[False] * 5]


def test_what_is_written_with_an_invented_size_is_unknown():
    told, _ = run(
        """
out = torch.ones(3, 2, dtype=torch.long, device=DEVICE)
torch.nonzero(rand(600, 600), out=out)
bags = torch.nn.EmbeddingBag(1000, 400, device=DEVICE)
numbers = torch.arange(12, device=DEVICE).view(4, 3)
weighted = torch.bincount(numbers.view(-1), weights=rand(600, 600).view(-1)[:12])
tell(out.shape, _C.is_known(out), bags(numbers).shape, str(weighted.dtype))
"""
    )
    assert told == [[[0, 2], False, [4, 400], "torch.float32"]]


def test_sizes_that_depend_on_unknown_values_are_those_of_zeros():
    told, _ = run(
        """
x = rand(600, 600)
tell(x.nonzero().shape, x[x > 0.5].shape, torch.unique(x).shape, torch.equal(x, x))
tell(*sorted(read.operator for read, _ in reads.report()))
"""
    )
    assert told[0] == [[0, 2], [0], [1], True]
    assert {"aten::nonzero", "aten::index", "aten::equal"} <= set(told[1])


COUNT = """
chosen = rand(4096, 600).topk(2).indices.view(-1).remainder(5)
counts = torch.bincount(chosen, minlength=5)
tell(counts.tolist(), torch.histc(chosen.float(), bins=5, min=0, max=5).tolist())
"""


def test_experts_get_equally_many_tokens():
    told, _ = run(COUNT)
    even = [1639, 1639, 1638, 1638, 1638]
    assert told == [[even, even]]


def test_experts_get_no_tokens_if_asked_for():
    told, _ = run(COUNT, "--routing=zero")
    assert told == [[[8192, 0, 0, 0, 0], [0, 0, 0, 0, 0]]]


def test_unknown_values_are_refused_if_asked_for():
    _, result = run(
        "x = rand(600, 600)\ntorch.tensor([3]).to(DEVICE).item()\nx.sum().item()\n",
        "--unknown=error",
        check=False,
    )
    assert result.returncode != 0
    assert "aten::item reads a value that the dry run did not compute" in result.stderr
    assert ": aten::item" in result.stderr and "<string>:" in result.stderr


def test_a_gradient_scaler_does_not_skip_steps():
    told, _ = run(
        """
model = torch.nn.Linear(600, 600).to(DEVICE)
optimizer = torch.optim.Adam(model.parameters())
scaler = torch.amp.GradScaler(DEVICE)
with torch.autocast(DEVICE, torch.float16):
    loss = model(rand(100, 600)).sum()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
tell(len(optimizer.state), scaler.get_scale())
"""
    )
    assert told == [[2, 65536]]


def test_random_numbers_of_small_tensors_are_those_of_the_gpu():
    program = "torch.manual_seed(1); rand(700, 700); tell(rand(4).tolist())"
    dry, _ = run(program)
    real, _ = run(program, dry=False)
    assert dry == real


def test_a_graph_is_captured_and_replayed():
    told, _ = run(
        """
x, w = rand(600, 600), rand(600, 600)
n = torch.zeros(1, device=DEVICE)
graph = module.CUDAGraph() if DEVICE == "cuda" else torch.openreg.CUDAGraph()
with module.graph(graph):
    y = x @ w
    n += 1
for _ in range(3):
    graph.replay()
tell(n.item(), y.shape, _C.is_known(y))
"""
    )
    assert told == [[3, [600, 600], False]]


def test_the_report_names_what_was_read_and_what_is_not_modelled():
    program = "torch.compile(lambda: rand(600, 600).sum())().item()\n"
    _, result = run(program)
    assert result.stderr.startswith("openreg report: fits: device 0 needs ")
    assert "<string>:" in result.stderr and "aten::item" in result.stderr
    assert "torch.compile: the program ran without it" in result.stderr
    _, result = run("rand(600, 600)")
    assert "Not modelled" not in result.stderr


def test_out_of_memory_is_that_of_the_gpu():
    _, result = run(
        "x = [torch.zeros(1 << 30, device=DEVICE) for _ in range(3)]",
        "--memory=10G",
        check=False,
    )
    assert "Tried to allocate 4.00 GiB" in result.stderr
    assert "OutOfMemoryError" in result.stderr
    assert "openreg report: does not fit: device 0 has 10.00 GiB" in result.stderr


WITHOUT_META = """
library = torch.library.Library("dry_test", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x * 2, "CPU")
"""


def test_unknown_values_are_finite():
    told, _ = run(
        """
x = rand(1000, 1000)
loss = x.mean()
tell(loss.isfinite().item(), torch.isfinite(x).all().item(), x.isfinite().all(1).all().item())
tell((~torch.isfinite(x)).any().item(), x.isnan().any().item())
nan = torch.tensor([1.0, float("nan")], device=DEVICE)
tell(nan.isfinite().tolist(), nan.isfinite().all().item())
"""
    )
    assert told == [[True, True, True], [False, False], [[True, False], False]]


def test_distributions_accept_unknown_parameters_and_refuse_wrong_ones():
    told, result = run(
        """
logits = rand(4096, 300)
tell(*torch.distributions.Categorical(logits=logits).sample().shape)
tell(*torch.distributions.Normal(logits, logits.exp()).rsample().shape)
torch.distributions.Normal(0.0, torch.tensor([-1.0], device=DEVICE))
""",
        check=False,
    )
    assert told == [[4096], [4096, 300]]
    assert "ValueError: Expected parameter scale" in result.stderr
    assert "aten::_is_all_true" in result.stderr


@pytest.mark.parametrize(
    "make",
    [
        "torch.optim.SGD([p], lr=0.1, momentum=0.9, fused=True)",
        "torch.optim.Adagrad([p], fused=True)",
        "torch.optim.Adam([p], lr=torch.tensor(0.1, device=DEVICE), fused=True)",
        "torch.optim.AdamW([p], lr=torch.tensor(0.1), fused=True)",
    ],
)
def test_fused_optimizers_step_at_any_size(make):
    told, _ = run(
        f"""
p = torch.zeros(1 << 27, device=DEVICE, requires_grad=True)
optimizer = {make}
p.grad = torch.zeros_like(p)
optimizer.step()
tell(_C.is_known(p), module.memory_allocated() >> 29)
"""
    )
    ((is_known, halves),) = told
    assert not is_known
    assert halves == (4 if "Adam" in make else 3)


def test_operators_whose_meta_functions_pytorch_lacks():
    told, _ = run(
        """
x = rand(1000, 100, 1000)
tell(*torch.logcumsumexp(x, 1).stride())
tell(*torch.cummax(x, 1).indices.shape)
tell(*torch.fake_quantize_per_tensor_affine(x.mT, 0.1, 0, -128, 127).stride())
scores = rand(10000, 10000).requires_grad_()
labels = torch.zeros(10000, dtype=torch.long, device=DEVICE)
torch.nn.functional.multi_margin_loss(scores, labels).backward()
tell(*scores.grad.shape, _C.is_known(scores.grad))
"""
    )
    assert told == [[100000, 1000, 1], [1000, 100, 1000], [100000, 1, 1000], [10000, 10000, False]]


@pytest.mark.parametrize("channels_last", ["images", "weight", "neither"])
def test_a_convolution_has_the_layout_of_one_that_runs(channels_last):
    program = """
images, convolution = rand(4, 64, 64, 64), torch.nn.Conv2d(64, 32, 3, device=DEVICE)
if FORMAT == "images":
    images = images.to(memory_format=torch.channels_last)
if FORMAT == "weight":
    convolution = convolution.to(memory_format=torch.channels_last)
images.requires_grad_()
result = convolution(images)
result.sum().backward()
tell(*(each.stride() for each in (result, images.grad, convolution.weight.grad)))
""".replace("FORMAT", repr(channels_last))
    assert run(program)[0] == run(program, dry=False)[0]


def test_a_kernel_that_refuses_zeros_does_not_stop_the_program():
    told, _ = run("tell(*rand(600, 600).cholesky().shape)")
    assert told == [[600, 600]]


def test_a_kernel_without_meta_function_that_fails_is_named():
    _, result = run("torch.geqrf(rand(1 << 20))", check=False)
    assert "NotImplementedError: openreg: a dry run cannot tell what 'aten::geqrf'" in result.stderr
    assert "input must have at least 2 dimensions" in result.stderr


def test_an_operator_without_meta_function_is_named():
    program = WITHOUT_META + "torch.ops.dry_test.twice(torch.empty(1 << 28, device=DEVICE))\n"
    _, result = run(program, check=False)
    assert "cannot tell what 'dry_test::twice' returns" in result.stderr
    assert "torch.library.register_fake" in result.stderr


def test_a_registered_meta_function_is_used():
    program = WITHOUT_META + (
        "torch.library.register_fake('dry_test::twice', torch.empty_like, lib=library)\n"
        "tell(torch.ops.dry_test.twice(torch.empty(1 << 28, device=DEVICE)).shape)\n"
    )
    told, _ = run(program)
    assert told == [[[1 << 28]]]


@pytest.mark.parametrize("name", ["OPENREG_SANITIZER", "OPENREG_DEBUG_MEMORY"])
def test_what_checks_kernels_excludes_a_dry_run(name):
    _, result = run("", check=False, **{name: "1"})
    assert f"{name}=1 checks what kernels do, and a dry run" in result.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OPENREG_DRY_UNKNOWN", "one"),
        ("OPENREG_DRY_ROUTING", "1"),
        ("OPENREG_DRY_KNOWN_BYTES", "1T"),
    ],
)
def test_other_values_of_variables_are_refused(name, value):
    _, result = run("", check=False, **{name: value})
    assert f"{name}={value}: expected " in result.stderr


def test_sparse_tensor_of_unknown_values_has_no_elements():
    told, _ = run(
        """
x = torch.ones(1000, 1000, device=DEVICE).half()
for layout in (torch.sparse_coo, torch.sparse_csr):
    sparse = x.to_sparse(layout=layout)
    product = sparse @ x[:, :3]
    tell(sparse.layout is layout, sparse.values().numel(), str(product.dtype), product.shape[1])
sums = x.to_sparse() + x.to_sparse()
tell(sums.is_sparse, list(sums.shape))
tell(sorted({read.operator for read, _ in reads.report()}))
"""
    )
    *made, sums, operators = told
    assert made == [[True, 0, "torch.float16", 3]] * 2
    assert sums == [True, [1000, 1000]]
    assert operators == [["aten::_to_sparse"]]
