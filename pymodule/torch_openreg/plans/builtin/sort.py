"""Sorts and what uses them: sort, topk, kthvalue, median.

Sources: ATen/native/cuda/Sort.cpp and Sort.cu (which algorithm, copies), TensorTopK.cpp and
TensorTopK.cu (mbtopk), Sorting.cpp (median_impl, kthvalue).
"""

from .call import Call, Tensor, check, plans, wrap
from .cub import count_bytes, segmented_sort_bytes, sort_bytes

SMALL_SORT = 4096  # up to this size a slice is sorted in place
LARGE_SEGMENT = 1_000_000  # from this size on, segments are sorted one after the other
MANY_SEGMENTS = 128
MAX_INT = 2**31 - 1
PAIR_BYTES = 8  # a segment and an index, both int32
INDEX_BYTES = 8


def take_sort(call: Call, self: Tensor, dim: int) -> None:
    """Take and free what the sort of a dimension takes besides its results."""
    size = self.sizes[dim] if self.sizes else 1
    if self.numel == 0 or not self.sizes:
        return
    if size <= SMALL_SORT:
        call.free(call.make("int64", size))
        return
    check(self.numel <= MAX_INT, "a sort in several parts")
    source, blocks = self.strides, []
    if not self.is_dense or self.strides[dim] != 1:
        source = self.dense_order(dim)
        blocks.append(call.take(self.nbytes))
    results = self.strides if self.is_dense else self.dense_order()
    if results != source:
        blocks += [call.take(self.nbytes), call.make("int64", self.numel)]
    segments = self.numel // size
    if segments == 1 or size >= LARGE_SEGMENT:
        indices = call.make("int64", size)
        for _ in range(segments):
            call.free(call.take(sort_bytes(call, size, self.item, INDEX_BYTES)))
        call.free(indices)
    elif segments < MANY_SEGMENTS:
        pairs = [call.take(self.numel * PAIR_BYTES) for _ in range(2)]
        keys = call.take(self.nbytes)
        call.free(call.take(sort_bytes(call, self.numel, self.item, PAIR_BYTES)), keys)
        bits = segments.bit_length()
        call.free(call.take(sort_bytes(call, self.numel, PAIR_BYTES, 0, bits)))
        call.free(*reversed(pairs))
    else:
        indices = call.make("int64", self.numel)
        temporary = call.take(segmented_sort_bytes(self.numel, self.item, INDEX_BYTES))
        call.free(temporary, indices)
    call.free(*reversed(blocks))


@plans("sort")
def sort(
    call: Call,
    self: Tensor,
    dim: int = -1,
    descending: bool = False,
) -> None:
    """Indices, copies of strided operands, and CUB's radix sort of long slices."""
    call.result(self.dtype, self.sizes)
    call.result("int64", self.sizes)
    take_sort(call, self, wrap(dim, len(self.sizes)))


@plans("sort.stable")
def stable_sort(
    call: Call, self: Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> None:
    """As the sort, which is stable."""
    sort(call, self, dim, descending)


@plans("median")
def median(call: Call, self: Tensor) -> None:
    """The median of everything: a sort of one row."""
    check(self.numel > 0, "no elements")
    row, copy = self.flattened(), 0
    if row is None:
        row, copy = self.like(sizes=(self.numel,)), call.take(self.nbytes)
    values, indices = call.make(self.dtype, self.numel), call.make("int64", self.numel)
    take_sort(call, row, 0)
    call.free(indices, copy)
    is_nan = call.make("bool")
    call.result(self.dtype, ())
    call.free(is_nan, values)


def _take_selection(call: Call, self: Tensor, dim: int, keepdim: bool) -> None:
    """Take values and indices, and copy a strided input first."""
    dim = wrap(dim, len(self.sizes))
    sizes = [
        1 if each == dim else size for each, size in enumerate(self.sizes) if keepdim or each != dim
    ]
    copy = call.contiguous(self)
    call.result(self.dtype, sizes)
    call.result("int64", sizes)
    call.free(copy)


@plans("kthvalue")
def kthvalue(call: Call, self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> None:
    """A copy of a strided input."""
    _take_selection(call, self, dim, keepdim)


@plans("median.dim", "nanmedian.dim")
def median_dim(call: Call, self: Tensor, dim: int, keepdim: bool = False) -> None:
    """A copy of a strided input."""
    _take_selection(call, self, dim, keepdim)


# ---- topk ----------------------------------------------------------------------------------------

TOPK_THREADS = 256
TOPK_REGISTERS = 40  # of a thread
MULTIPROCESSOR_REGISTERS = 1 << 16
MAX_BLOCKS = 32  # of a multiprocessor; 16 on architecture 7.5 and 24 on 8.9
MIN_ELEMENTS, MAX_ELEMENTS = 4, 64  # of a thread
DIGITS = 256
# Slices, and from which size on several blocks work on one.
SEVERAL_BLOCKS = ((20, 20000), (40, 10000), (80, 8000), (199, 5000), (799, 3000), (4000, 800))
SEVERAL_BLOCKS_OF_MORE = 400


@plans("topk")
def topk(
    call: Call,
    self: Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
) -> None:
    """Counts of digits where several blocks work on a slice; a sort of many results."""
    dim = wrap(dim, len(self.sizes))
    check(bool(self.sizes) and self.numel > 0 and k > 0, "an empty slice")
    sizes = [k if each == dim else size for each, size in enumerate(self.sizes)]
    values = self.like(sizes=sizes)
    call.result(self.dtype, sizes)
    call.result("int64", sizes)
    copy = call.contiguous(self)
    size = self.sizes[dim]
    slices = self.numel // size
    least = next((each for most, each in SEVERAL_BLOCKS if slices <= most), SEVERAL_BLOCKS_OF_MORE)
    if size >= least:
        _take_topk(call, self, slices, size)
    call.free(copy)
    if sorted and k > SMALL_SORT and k > 1:
        indices, ordered = call.make("int64", *sizes), call.make(self.dtype, *sizes)
        take_sort(call, values, dim)
        call.free(call.make("int64", *sizes), ordered, indices)


def _take_topk(call: Call, self: Tensor, slices: int, size: int) -> None:
    per_multiprocessor = min(
        MULTIPROCESSOR_REGISTERS // (TOPK_REGISTERS * TOPK_THREADS), MAX_BLOCKS
    )
    threads = call.device.multiprocessors * per_multiprocessor * TOPK_THREADS
    elements = max(MIN_ELEMENTS, min(-(-size * slices // threads), MAX_ELEMENTS))
    blocks = slices * -(-size // (elements * TOPK_THREADS))
    taken = [
        call.take(self.item * slices),
        call.make("uint32", 2 * slices),
        call.take(2 * max(self.item, 4) * slices),
        call.make("int16", blocks * DIGITS),
        call.make("uint32", slices * DIGITS),
        call.make("uint32", blocks),
        call.make("uint32", blocks),
    ]
    for _ in range(2):
        call.free(call.take(count_bytes(call, blocks, 4)))
    call.free(*reversed(taken))
