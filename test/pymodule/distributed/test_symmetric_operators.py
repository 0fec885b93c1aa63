"""torch.ops.symm_mem: operators on symmetric memory, compared with one rank that has all data."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from ranks import own_device
from symmetric import failure, of_rank, sum_of_all, symmetric, world

from device import DEVICE, module

pytestmark = pytest.mark.own_processes

SIZE = 4
operators = torch.ops.symm_mem


# ---- reductions ----------------------------------------------------------------------------------


def reduce_in_one_shot(shape, dtype):
    own, expected = of_rank(dist.get_rank(), shape, dtype), sum_of_all(shape, dtype)
    tensor = symmetric(own)
    out = torch.empty_like(tensor)
    results = [
        operators.one_shot_all_reduce(tensor, "sum", world()),
        operators.one_shot_all_reduce_out(tensor, "sum", world(), out),
    ]
    same_out = results[1].data_ptr() == out.data_ptr()
    left = torch.equal(tensor.cpu(), own)
    local = own.to(own_device())
    results.append(operators.one_shot_all_reduce_copy(tensor.zero_(), local, "sum", world()))
    results.append(
        operators.one_shot_all_reduce_copy_out(tensor.zero_(), local, "sum", world(), out)
    )
    return same_out, left, [torch.equal(result.cpu(), expected) for result in results]


SHAPES = pytest.mark.parametrize("shape", [(4,), (6, 5, 2), (300, 700)])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


@SHAPES
@DTYPES
def test_one_shot_all_reduce(symmetric_ranks, shape, dtype):
    """All ranks get the bits of a sum in rank order."""
    expected = True, True, [True] * 4
    assert symmetric_ranks.call(reduce_in_one_shot, shape, dtype) == [expected] * SIZE


def reduce_in_two_shots(shape, dtype):
    own, expected = of_rank(dist.get_rank(), shape, dtype), sum_of_all(shape, dtype)
    tensor = symmetric(own)
    out = operators.two_shot_all_reduce_out(tensor, "sum", world(), torch.empty_like(tensor))
    tensor.copy_(own)
    result = operators.two_shot_all_reduce_(tensor, "sum", world())
    return (
        torch.equal(out.cpu(), expected),
        torch.equal(result.cpu(), expected),
        result.data_ptr() == tensor.data_ptr(),
    )


@SHAPES
@DTYPES
def test_two_shot_all_reduce(symmetric_ranks, shape, dtype):
    assert symmetric_ranks.call(reduce_in_two_shots, shape, dtype) == [(True, True, True)] * SIZE


def reduce_a_part():
    """Uses a tensor in the middle of its allocation."""
    values = of_rank(dist.get_rank(), (3, 8))
    tensor = symmetric(values)[1:]
    result = operators.one_shot_all_reduce(tensor, "sum", world())
    return torch.equal(result.cpu(), sum_of_all((3, 8))[1:])


def test_part_of_an_allocation(symmetric_ranks):
    assert all(symmetric_ranks.call(reduce_a_part))


def scatter(dtype):
    rank = dist.get_rank()
    flat = symmetric(of_rank(rank, (8 * SIZE,), dtype))
    rows = symmetric(of_rank(rank, (3, 5, 8 * SIZE), dtype))
    out = torch.empty(8, dtype=dtype, device=own_device())
    out_rows = torch.empty(3, 5, 8, dtype=dtype, device=own_device())
    operators.reduce_scatter_out(flat, world(), False, out)
    operators.reduce_scatter_out(rows, world(), True, out_rows)
    expected = sum_of_all((8 * SIZE,), dtype).chunk(SIZE)[rank]
    expected_rows = sum_of_all((3, 5, 8 * SIZE), dtype).chunk(SIZE, -1)[rank]
    return torch.equal(out.cpu(), expected), torch.equal(out_rows.cpu(), expected_rows)


@DTYPES
def test_reduce_scatter(symmetric_ranks, dtype):
    assert symmetric_ranks.call(scatter, dtype) == [(True, True)] * SIZE


def reduce_on_streams():
    """The operator runs behind earlier work of the stream and before later work."""
    tensor = symmetric(torch.zeros(1 << 20))
    stream = module.Stream()
    sums = []
    with stream:
        for step in range(10):
            tensor.fill_(step + dist.get_rank())
            sums.append(operators.one_shot_all_reduce(tensor, "sum", world()))
    stream.synchronize()
    return [each.unique().tolist() for each in sums]


def test_order_on_a_stream(symmetric_ranks):
    sums = [[4 * step + 6] for step in range(10)]
    assert symmetric_ranks.call(reduce_on_streams) == [sums] * SIZE


def test_host_goes_on(close_gate):
    """The stream has not reached the operator yet; also in a group of one rank."""
    c10d = torch._C._distributed_c10d
    group = dist.ProcessGroup(dist.HashStore(), 0, 1)
    c10d._register_process_group("alone", group)
    device = torch.device(DEVICE, 0)
    tensor = symm_mem.empty(8, device=device)
    handle = symm_mem.rendezvous(tensor, "alone")
    tensor.zero_()
    module.synchronize()
    tensor.add_(1)  # the same operator once before, which is never queued
    gate = close_gate()
    tensor.add_(2)
    handle.barrier()
    result = operators.one_shot_all_reduce(tensor, "sum", "alone")
    operators.two_shot_all_reduce_(tensor, "sum", "alone")
    handle.put_signal(dst_rank=0)
    handle.wait_signal(src_rank=0)
    assert not module.current_stream().query()
    gate.open()
    assert result.tolist() == tensor.tolist() == [3] * 8
    c10d._unregister_process_group("alone")


def reduce_wrongly():
    tensor, plain = symmetric(torch.zeros(8)), torch.zeros(8, device=own_device())
    half, odd = symmetric(torch.zeros(8).half()), symmetric(torch.zeros(3).bfloat16())
    one_shot, two_shot = operators.one_shot_all_reduce, operators.two_shot_all_reduce_
    out = operators.one_shot_all_reduce_out
    return [
        failure(one_shot, plain, "sum", world()),
        failure(two_shot, plain, "sum", world()),
        failure(one_shot, tensor, "avg", world()),
        failure(one_shot, half, "sum", world()),
        failure(one_shot, odd, "sum", world()),
        failure(one_shot, tensor.view(2, 4).t(), "sum", world()),
        failure(out, tensor, "sum", world(), plain[:4]),
        failure(operators.reduce_scatter_out, tensor, world(), False, plain),
    ]


def test_calls_that_cuda_rejects(symmetric_ranks):
    for answers in symmetric_ranks.call(reduce_wrongly):
        plain, two_plain, average, half, odd, transposed, other_size, part = answers
        assert plain[1].endswith("input must be allocated with empty_strided_p2p().")
        assert two_plain[1].endswith("input must be allocated with empty_strided_p2p().")
        assert "only sum is supported" in average[1]
        assert half == (
            "NotImplementedError",
            "\"one_shot_all_reduce\" not implemented for 'Half'",
        )
        assert "4-byte aligned" in odd[1]
        assert "contiguous" in transposed[1]
        assert "size mismatch" in other_size[1]
        assert "world_size" in part[1]


def use_multicast():
    tensor, out = symmetric(torch.zeros(8)), symmetric(torch.zeros(8 * SIZE))
    return [
        failure(operators.multimem_all_reduce_, tensor, "sum", world()),
        failure(operators.multimem_one_shot_all_reduce, tensor, "sum", world()),
        failure(operators.multimem_one_shot_all_reduce_out, tensor, "sum", world(), tensor),
        failure(operators.multimem_one_shot_reduce_out, tensor, "sum", 0, world(), tensor),
        failure(operators.multimem_all_gather_out, tensor, world(), out),
    ]


def test_multicast_is_refused(symmetric_ranks):
    for answers in symmetric_ranks.call(use_multicast):
        for kind, sentence in answers:
            assert kind == "RuntimeError"
            assert "multicast support" in sentence


# ---- writing words -------------------------------------------------------------------------------


def write_words():
    words = torch.zeros(8, dtype=torch.uint32, device=own_device())
    operators.stream_write_value32_(words, 1, 7)
    operators.memset32_(words, 3, 2**32 - 1, 2)
    symm_mem._SymmetricMemory.stream_write_value32(words, 6, 5)
    symm_mem._SymmetricMemory.memset32(words, 7, 4, 1)
    wrong = [
        failure(operators.memset32_, words, -1, 0, 1),
        failure(operators.memset32_, words, 0, 0, 9),
        failure(operators.memset32_, words, 0, 0, 0),
        failure(operators.stream_write_value32_, words, 8, 0),
        failure(operators.stream_write_value32_, words, 0, 2**32),
        failure(operators.stream_write_value32_, words.float(), 0, 0),
    ]
    return words.tolist(), [kind for kind, _ in wrong]


def test_words(symmetric_ranks):
    expected = [0, 7, 0, 2**32 - 1, 2**32 - 1, 0, 5, 4], ["RuntimeError"] * 6
    assert symmetric_ranks.call(write_words) == [expected] * SIZE


def multiply_behind_signals():
    """A matrix whose halves arrive on another stream, the last one first."""
    a, b = of_rank(0, (8, 6)).to(own_device()), of_rank(1, (6, 5)).to(own_device())
    filled = torch.zeros_like(a)
    signals = torch.zeros(2, dtype=torch.uint32, device=own_device())
    stream = module.Stream()
    stream.wait_stream(module.current_stream())
    product = operators._async_input_mm(filled, b, signals, 1)
    with stream:
        for half in (1, 0):
            filled.chunk(2)[half].copy_(a.chunk(2)[half])
            operators.stream_write_value32_(signals, half, 1)
    return torch.equal(product, a @ b)


def test_matrix_that_comes_in_parts(symmetric_ranks):
    assert all(symmetric_ranks.call(multiply_behind_signals))


# ---- all to all ----------------------------------------------------------------------------------


def splits_of(rank, experts=1):
    generator = torch.Generator().manual_seed(100 + rank)
    return torch.randint(0, 5, (SIZE, experts), generator=generator)


def rows_of(rank, experts=1):
    """A rank's rows for each rank and expert; each row encodes its sender and receiver."""
    splits = splits_of(rank, experts)
    return [
        [
            torch.tensor([[rank, to, expert, row] for row in range(splits[to, expert])])
            .reshape(-1, 4)
            .float()
            for expert in range(experts)
        ]
        for to in range(SIZE)
    ]


def exchanged(operator, chunks, splits, options=(), offsets=None):
    """Return the output's splits, offsets, and its chunks at them."""
    rows = torch.cat(chunks)
    input = symmetric(torch.zeros(100, 4))
    input[: len(rows)] = rows.to(own_device())
    if offsets is not None:
        splits = torch.stack([splits, offsets])
    out = symmetric(torch.full((200, 4), -1.0))
    out_splits = symmetric(torch.full((2, splits.shape[-1]), -1))
    operator(input, out, symmetric(splits), out_splits, world(), *options)
    lengths, begins = out_splits.tolist()
    return (
        lengths,
        begins,
        [out[begin : begin + length].cpu() for begin, length in zip(begins, lengths, strict=True)],
    )


def are_equal(chunks, expected):
    return len(chunks) == len(expected) and all(map(torch.equal, chunks, expected))


def all_to_all():
    rank = dist.get_rank()
    own = [row for (row,) in rows_of(rank)]
    expected = [rows_of(source)[rank][0] for source in range(SIZE)]
    lengths, begins, chunks = exchanged(operators.all_to_all_vdev, own, splits_of(rank).flatten())
    sums = [sum(lengths[:index]) for index in range(SIZE)]
    return are_equal(chunks, expected), begins == sums


def test_all_to_all_by_splits_on_the_device(symmetric_ranks):
    assert symmetric_ranks.call(all_to_all) == [(True, True)] * SIZE


def dispatch_and_combine(align):
    """Rows go to experts, where they are aligned, and back."""
    rank, experts = dist.get_rank(), 3
    own = [chunk for chunks in rows_of(rank, experts) for chunk in chunks]
    splits = splits_of(rank, experts).flatten()
    lengths, begins, chunks = exchanged(operators.all_to_all_vdev_2d, own, splits, (align,))
    sent = [rows_of(source, experts)[rank] for source in range(SIZE)]
    expected = [chunks[expert] for expert in range(experts) for chunks in sent]
    aligned = all(begin % align == 0 for begin in begins[::SIZE])
    apart = all(
        after - before >= align
        for before, after in zip(begins[::SIZE], begins[SIZE::SIZE], strict=False)
    )
    padded = torch.full((100, 4), -2.0)
    for begin, chunk in zip(begins, chunks, strict=True):
        padded[begin : begin + len(chunk)] = chunk
    back_lengths, _, back = exchanged(
        operators.all_to_all_vdev_2d_offset,
        [padded],
        torch.tensor(lengths),
        offsets=torch.tensor(begins),
    )
    return (
        are_equal(chunks, expected),
        aligned,
        apart,
        back_lengths == splits.tolist(),
        are_equal(back, own),
    )


@pytest.mark.parametrize("align", [1, 8])
def test_rows_that_go_to_experts_and_back(symmetric_ranks, align):
    assert symmetric_ranks.call(dispatch_and_combine, align) == [(True,) * 5] * SIZE


def send_too_many():
    input, out = symmetric(torch.zeros(4, 2)), symmetric(torch.zeros(4, 2))
    splits, out_splits = symmetric(torch.full((SIZE,), 3)), symmetric(torch.zeros(2, SIZE).long())
    operators.all_to_all_vdev(input, out, splits, out_splits, world())
    return failure(module.synchronize)


def test_splits_that_are_more_than_there_is(symmetric_ranks):
    """All ranks continue, and report the error when they wait."""
    for _, sentence in symmetric_ranks.call(send_too_many):
        assert "rows" in sentence
