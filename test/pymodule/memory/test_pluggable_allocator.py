"""Custom allocators: functions that provide memory, for a pool or for everything."""

import ctypes
import subprocess
import textwrap

import pytest
import torch
from torch_openreg import _C

from device import DEVICE, MIB, allocate, handle, memory, module

ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
KEPT = []


pytestmark = pytest.mark.usefixtures("fresh_memory")


class Notes:
    """Functions that take memory straight from the device, and record their calls."""

    def __init__(self):
        self.given, self.freed = [], []

    def _allocate(self, nbytes, device, stream):
        self.given.append((nbytes, device, stream or 0))
        return _C.device_malloc(device, nbytes)

    def _free(self, address, nbytes, device, stream):
        self.freed.append((nbytes, device, stream or 0))
        _C.device_free(address)

    def allocator(self):
        return allocator_of(self._allocate, self._free)


def allocator_of(alloc, free):
    """Return an allocator of two functions, which is kept because its memory may outlive a test."""
    functions = ALLOC(alloc), FREE(free)
    KEPT.append(functions)
    return _C.custom_allocator(*(ctypes.cast(each, ctypes.c_void_p).value for each in functions))


def test_segments_of_a_pool_come_from_its_allocator():
    notes = Notes()
    allocator = notes.allocator()
    pool = module.MemPool(allocator)
    assert pool.allocator is allocator
    free_before = module.mem_get_info()[0]
    with module.use_mem_pool(pool):
        small, large = allocate(1000), allocate(3 * MIB)
        result = small.zero_() + 1
    assert notes.given == [(2 * MIB, 0, 0), (20 * MIB, 0, 0)]
    assert module.mem_get_info()[0] == free_before - 22 * MIB
    assert torch.equal((small + 1).cpu(), result.cpu())
    assert {each["total_size"] for each in pool.snapshot()} == {2 * MIB, 20 * MIB}
    outside = allocate(1000)
    assert len(notes.given) == 2
    del pool, small, large, result
    module.empty_cache()
    assert sorted(notes.freed) == sorted(notes.given)
    assert outside.numel() == 1000


def test_stream_is_that_of_the_request():
    notes = Notes()
    pool = module.MemPool(notes.allocator())
    stream = module.Stream()
    with module.use_mem_pool(pool), module.stream(stream):
        held = allocate(10)
    assert notes.given == [(2 * MIB, 0, handle(stream))]
    assert held.numel() == 10


def test_allocator_without_memory_is_out_of_memory():
    pool = module.MemPool(allocator_of(lambda *_: None, lambda *_: None))
    with module.use_mem_pool(pool), pytest.raises(torch.OutOfMemoryError, match="2.00 MiB"):
        allocate(10)


def test_memory_that_is_not_the_programs_is_refused():
    host = ctypes.create_string_buffer(2 * MIB)
    pool = module.MemPool(allocator_of(lambda *_: ctypes.addressof(host), lambda *_: None))
    with (
        module.use_mem_pool(pool),
        pytest.raises(RuntimeError, match="expected memory of that device"),
    ):
        allocate(10)


def test_segments_of_such_a_pool_are_not_expandable():
    pool = module.MemPool(Notes().allocator())
    module.empty_cache()
    memory._set_allocator_settings("expandable_segments:True")
    try:
        with module.use_mem_pool(pool):
            inside = allocate(10)
        outside = allocate(64 * MIB)
        segments = module.memory_snapshot()
    finally:
        memory._set_allocator_settings("expandable_segments:False")
    for tensor, is_expandable in ((inside, False), (outside, True)):
        (segment,) = (
            each
            for each in segments
            if 0 <= tensor.data_ptr() - each["address"] < each["total_size"]
        )
        assert segment["is_expandable"] is is_expandable


def test_allocator_is_not_changed_after_the_first_use():
    other = memory._CUDAAllocator(Notes().allocator())
    with pytest.raises(RuntimeError, match="Can't swap an already initialized allocator"):
        memory.change_current_allocator(other)
    assert memory._get_current_allocator().allocator() is None
    assert module.get_allocator_backend() == "native"


def test_memory_straight_from_the_device():
    before, reserved = module.mem_get_info()[0], module.memory_reserved()
    address = _C.device_malloc(0, 3 * MIB)
    assert module.mem_get_info()[0] == before - 4 * MIB
    assert module.memory_reserved() == reserved
    _C.device_free(address)
    assert module.mem_get_info()[0] == before
    with pytest.raises(ValueError, match="no memory of openreg_device_malloc starts"):
        _C.device_free(address)


LIBRARY = """
#include <stddef.h>

/* Parts of a tensor, one after the other: `pool_at` is where it begins. */
char *pool_at;
int allocations, frees, inits, resets, records;
double fraction;

void *give(size_t bytes, int device, void *stream) {
  char *address = pool_at;
  (void)device, (void)stream;
  allocations++;
  pool_at += (bytes + 511) / 512 * 512;
  return address;
}
void take(void *address, size_t bytes, int device, void *stream) {
  (void)address, (void)bytes, (void)device, (void)stream;
  frees++;
}
void init(int devices) { inits += devices; }
void reset(void) { resets++; }
void set_fraction(double value, int device) { (void)device; fraction = value; }
void record(void *address, void *stream) { (void)address, (void)stream; records++; }
"""


@pytest.fixture
def library(tmp_path):
    source, built = tmp_path / "library.c", tmp_path / "library.so"
    source.write_text(LIBRARY)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", built, source], check=True)
    return str(built)


def test_functions_of_a_library_serve_a_pool(library):
    whole = allocate(8 * MIB)
    functions = ctypes.CDLL(library)
    ctypes.c_void_p.in_dll(functions, "pool_at").value = whole.data_ptr() + 512
    pool = module.MemPool(memory.CUDAPluggableAllocator(library, "give", "take").allocator())
    with module.use_mem_pool(pool):
        tensor = torch.arange(100, device=DEVICE)
    assert tensor.data_ptr() == whole.data_ptr() + 512
    assert tensor.sum().item() == 4950
    assert whole[512 : 512 + 800].view(torch.int64).sum().item() == 4950
    assert ctypes.c_int.in_dll(functions, "allocations").value == 1
    del tensor, pool
    module.empty_cache()
    assert ctypes.c_int.in_dll(functions, "frees").value == 1


def test_allocator_of_everything(python):
    """It is asked for each tensor, and nothing is cached or counted."""
    result = python(
        textwrap.dedent(
            f"""
            import ctypes, torch
            ALLOC = ctypes.CFUNCTYPE(
                ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
            FREE = ctypes.CFUNCTYPE(
                None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
            from torch_openreg import _C
            module = torch.get_device_module("{DEVICE}")
            memory = module.memory
            given, freed, seen = [], [], []
            def give(nbytes, device, stream):
                given.append(nbytes)
                return _C.device_malloc(device, nbytes)
            def take(address, nbytes, device, stream):
                freed.append(nbytes)
                _C.device_free(address)
            functions = [
                ALLOC(give), FREE(take),
                ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda count: seen.append(("init", count))),
                ctypes.CFUNCTYPE(None)(lambda: seen.append("reset")),
                ctypes.CFUNCTYPE(None, ctypes.c_double, ctypes.c_int)(
                    lambda fraction, device: seen.append((fraction, device))),
                ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(
                    lambda address, stream: seen.append("record")),
            ]
            at = [ctypes.cast(each, ctypes.c_void_p).value for each in functions]
            allocator = _C.custom_allocator(*at[:2])
            allocator.set_init_fn(at[2])
            allocator.set_reset_fn(at[3])
            allocator.set_memory_fraction_fn(at[4])
            allocator.set_record_stream_fn(at[5])
            memory.change_current_allocator(memory._CUDAAllocator(allocator))
            assert memory._get_current_allocator().allocator() is allocator
            assert module.get_allocator_backend() == "pluggable"
            x = torch.arange(1000, device="{DEVICE}", dtype=torch.float32)
            y = (x * 2).sum()
            assert y.item() == 999000.0
            module.empty_cache()
            module.set_per_process_memory_fraction(0.5, 0)
            x.record_stream(module.Stream())
            module.synchronize()
            del x, y
            module.synchronize()
            assert given[0] == 4096, given
            assert sorted(given) == sorted(freed), (given, freed)
            assert seen == [("init", module.device_count()), "reset", (0.5, 0), "record"], seen
            for function in (module.memory_stats, module.memory_snapshot,
                             module.reset_peak_memory_stats,
                             module.reset_accumulated_memory_stats):
                try:
                    function()
                except RuntimeError as error:
                    print(error)
                else:
                    raise SystemExit(function)
            """
        )
    )
    assert result.stdout.count("CUDAPluggableAllocator does not yet support") == 4
