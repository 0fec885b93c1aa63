"""The temporary memory of CUB's algorithms, with the tiles of CUB 3.0.

Sources: cub/device/dispatch/dispatch_radix_sort.cuh, dispatch_scan.cuh and
dispatch_unique_by_key.cuh, their files below tuning/, and ATen/cuda/cub.cuh, which counts elements
in 64 bits.
"""

from .call import Call, check, up

ALIGNMENT = 256
DIGITS = 256  # of a pass over 8 bits
OFFSET_BYTES = 8
COUNTER_BYTES = 4
PORTION = (1 << 28) - 1  # elements that a pass handles at once, rounded down to tiles

SINGLE_TILE = (256, 19)  # threads and elements of four bytes: smaller inputs take one byte
# From architecture 9.0 on: threads and elements of four bytes, by the bytes of small keys, for
# values of eight bytes.
SMALL_KEYS = {1: (384, 18), 2: (512, 23)}
SMALL_KEYS_ALONE = {1: (512, 19), 2: (512, 19)}
SCAN_TILE = (128, 15)
TILE_PADDING = 32  # descriptors in front of those of the tiles
# Threads and elements, by the bytes of keys and values, which are the same here.
UNIQUE_TILES = {80: {4: (256, 11), 8: (192, 7)}, 90: {4: (512, 14), 8: (448, 11)}}
UNIQUE_TILE = {4: (64, 11), 8: (64, 5)}
KEYED_TILES = {
    80: {4: (256, 15), 8: (224, 10)},
    90: {4: (288, 14), 8: (224, 11)},
    100: {4: (224, 20), 8: (256, 23)},
}
KEYED_TILE = (256, 9)
KEYED_STATE_BYTES = 16


def _of_architecture(
    tiles: dict[int, dict[int, tuple[int, int]]], call: Call
) -> dict[int, tuple[int, int]]:
    """Return the tiles that are tuned for an architecture. 8.6 and 8.9 have the general ones."""
    architecture = call.device.architecture
    known = [each for each in tiles if each == architecture or 90 <= each <= architecture]
    return tiles[max(known)] if known else {}


def _aliased(*sizes: int) -> int:
    """Return the bytes of one block for several arrays, each aligned."""
    return sum(up(size, ALIGNMENT) * ALIGNMENT for size in sizes) + ALIGNMENT - 1


def _tile(policy: tuple[int, int], item: int) -> int:
    """Return the elements of a tile that is kept in registers."""
    threads, elements = policy
    return threads * max(1, elements * 4 // max(4, item))


def _sort_policy(architecture: int, key: int, value: int) -> tuple[int, int]:
    if architecture >= 90:
        if key < 4:
            return (SMALL_KEYS if value else SMALL_KEYS_ALONE)[key]
        if key == 4:
            return 384, 29 if value == 8 else 17 if value else 19
        return 384, 24 if value == 8 else 30
    check(key >= 4, "registers decide about the blocks that sort small keys")
    if architecture >= 80:
        return 384, 17 if key == 4 and value else 21
    return 256, 46 if key == value == 4 else 23


def sort_bytes(call: Call, count: int, key: int, value: int, bits: int | None = None) -> int:
    """Return what a radix sort of keys, and of values if they have bytes, takes."""
    largest = max(key, value)
    if count <= _tile(SINGLE_TILE, largest):
        return 1
    tile = _tile(_sort_policy(call.device.architecture, key, value), largest)
    passes = up(8 * key if bits is None else bits, 8)
    portion = PORTION // tile * tile
    portions = up(count, portion)
    copied = count if passes > 1 else 0
    return _aliased(
        portions * passes * DIGITS * OFFSET_BYTES,
        up(min(count, portion), tile) * DIGITS * COUNTER_BYTES,
        copied * key,
        copied * value,
        portions * passes * COUNTER_BYTES,
    )


def segmented_sort_bytes(count: int, key: int, value: int) -> int:
    """Return what a radix sort of pairs in segments takes."""
    return _aliased(count * key, count * value)


def _states(tiles: int, item: int, is_primitive: bool) -> int:
    """Return the bytes of the descriptors of a scan's tiles."""
    states = tiles + TILE_PADDING
    if is_primitive:
        inner = _aliased(states * 2 * max(item, 1))
    else:
        inner = _aliased(states * 4, states * item, states * item)
    return _aliased(inner)


def scan_bytes(count: int, item: int, is_primitive: bool = True) -> int:
    """Return what a scan takes. Numbers of 16 bits and complex numbers are no primitives."""
    threads, elements = SCAN_TILE
    tile = threads * max(1, min(elements * 4 // item, elements * 2))
    return _states(up(count, tile), item, is_primitive)


def unique_bytes(call: Call, count: int, item: int) -> int:
    """Return what the choice of distinct keys with values of the same bytes takes."""
    threads, elements = _of_architecture(UNIQUE_TILES, call).get(item, UNIQUE_TILE[item])
    return _states(up(count, threads * elements), OFFSET_BYTES, True)


def count_bytes(call: Call, count: int, item: int) -> int:
    """Return what a scan by key takes, of keys and values of the same bytes."""
    threads, elements = _of_architecture(KEYED_TILES, call).get(item, KEYED_TILE)
    tiles = up(count, threads * elements)
    return _aliased((tiles + TILE_PADDING) * KEYED_STATE_BYTES, (tiles + 1) * item)
