/* arena.c: the memory of all devices.
 *
 * Each device has a memory file. It holds the device's arena, whose pages are committed on first
 * access, followed by the export table (ipc/exports.h). As on a GPU, there are many more addresses
 * than memory. The ledger limits how much of an arena is used, and the allocator decides where;
 * with this many addresses, fragmentation cannot exhaust them. All arenas are mapped into two
 * reservations of the same shape: one for the device views, which the host may not access, and one
 * for the kernel views, which it may.
 *
 *     device view:  |arena 0|imports|arena 1|imports| ... |
 *     kernel view:  |arena 0|imports|arena 1|imports| ... |       a constant distance away
 *
 *     slot i    = [base + i * stride, base + (i + 1) * stride)
 *     arena i   = the first (stride - imports) bytes of slot i
 *     imports i = the rest, at least twice the largest capacity: memory of device i that other
 *                 processes exported
 *     stride    = SLOT_CAPACITIES times the largest capacity, rounded up to a power of two, so that
 *                 address -> device is a shift. It is smaller if the slots of all devices of the
 *                 group would exceed MAX_VIEW_BYTES.
 *
 * With host access both views are the same readable and writable mapping, and the distance is 0.
 *
 * Storing reserved_bytes publishes the addresses, as the last step; they never change afterwards.
 * Forked children inherit neither view, because they must not write to their parent's devices.
 *
 * Imports are mapped in whole granules. Two bits per granule tell whether it is mapped and whether
 * a mapping begins there. Any thread may read them without a lock to classify an address. Unmapped
 * granules are inaccessible.
 */
#define _GNU_SOURCE /* memfd_create, fallocate, seals */
#include "device/memory/arena.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/faults.h"
#include "device/process/state.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000 /* Linux 4.17; older kernels treat the address as a hint */
#endif

enum {
  /* First-fit placement needs at most M log2(n) addresses for blocks of 1 to n units that total M
   * (Robson, "Worst case fragmentation of first fit and best fit storage allocation strategies",
   * 1977). That is 15 capacities for 64 GiB in granules. The rest is for address ranges that are
   * longer than the capacity: expandable segments reserve two of them per stream. */
  SLOT_CAPACITIES = 64,
  IMPORTS_CAPACITIES = 2,
};

/* Limit of one view: an eighth of the 128 TiB of a process's address space. The thread sanitizer
 * leaves a program only 1.5 TiB for all its mappings. */
#ifdef __SANITIZE_THREAD__
#define MAX_VIEW_BYTES ((size_t)1 << 38)
#else
#define MAX_VIEW_BYTES ((size_t)1 << 44)
#endif

intptr_t openreg_kernel_offset;

static struct {
  _Atomic size_t reserved_bytes; /* of each view: device_count * stride; 0: not mapped yet */
  uintptr_t base[2];             /* indexed by openreg_view; equal with host access */
  unsigned stride_shift;
  int device_count;
  size_t arena_bytes; /* of each device */
  int file[OPENREG_MAX_DEVICES];
  /* One bit for each granule of the imports. begins is a subset of mapped. */
  _Atomic uint64_t *mapped[OPENREG_MAX_DEVICES], *begins[OPENREG_MAX_DEVICES];
} arenas;

static size_t stride_bytes(void) {
  return (size_t)1 << arenas.stride_shift;
}

static void *slot_address(openreg_view view, int device) {
  return (void *)(arenas.base[view] + (uintptr_t)device * stride_bytes());
}

static size_t offset_in_slot(int device, const void *device_address) {
  return (size_t)((uintptr_t)device_address - (uintptr_t)slot_address(OPENREG_DEVICE_VIEW, device));
}

static bool is_single_view(void) {
  return arenas.base[OPENREG_DEVICE_VIEW] == arenas.base[OPENREG_KERNEL_VIEW];
}

/* ---- mapping --------------------------------------------------------------------------------- */

static openreg_status fail_system(const char *what, int device) {
  return openreg_fail(OPENREG_SYSTEM, "openreg: device %d: cannot %s: %s", device, what,
                      strerror(errno));
}

/* Reserves inaccessible addresses, aligned to a granule. */
static openreg_status reserve(size_t bytes, uintptr_t *base) {
  size_t granule = OPENREG_GRANULE_BYTES;
  void *start =
      mmap(NULL, bytes + granule, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED)
    return openreg_fail(OPENREG_SYSTEM,
                        "openreg: cannot reserve %zu bytes of addresses for %d devices: %s; set a "
                        "smaller OPENREG_DEVICE_MEMORY or OPENREG_DEVICE_COUNT",
                        bytes, arenas.device_count, strerror(errno));
  size_t head = (granule - (uintptr_t)start % granule) % granule;
  *base = (uintptr_t)start + head;
  if (head > 0)
    munmap(start, head);
  munmap((void *)(*base + bytes), granule - head);
  return OPENREG_OK;
}

/* Creates a device's memory file. Its size is sealed, so that no mapping can lose its end. */
static openreg_status create_file(int device) {
  char name[32];
  snprintf(name, sizeof name, "openreg:%d", device);
  int file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0)
    return fail_system("create a memory file", device);
  arenas.file[device] = file;
  if (ftruncate(file, (off_t)(arenas.arena_bytes + OPENREG_EXPORTS_BYTES)) != 0)
    return fail_system("set the size of the memory file", device);
  if (fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    return fail_system("seal the memory file", device);
  return OPENREG_OK;
}

static openreg_status map_at(openreg_view view, int device, size_t in_slot, int file,
                             uint64_t file_offset, size_t bytes) {
  bool is_touchable = view == OPENREG_KERNEL_VIEW || is_single_view();
  void *address = (char *)slot_address(view, device) + in_slot;
  if (mmap(address, bytes, is_touchable ? PROT_READ | PROT_WRITE : PROT_NONE,
           MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file, (off_t)file_offset) == MAP_FAILED)
    return fail_system("map the memory file", device);
  if (madvise(address, bytes, MADV_DONTFORK) != 0)
    return fail_system("exclude the memory from forked processes", device);
  /* Writing a core file would commit every page. */
  if (madvise(address, bytes, MADV_DONTDUMP) != 0)
    return fail_system("exclude the memory from core files", device);
  /* Optional: the system may not provide huge pages. */
  (void)madvise(address, bytes, MADV_HUGEPAGE);
  return OPENREG_OK;
}

static openreg_status map_both_views(int device, size_t in_slot, int file, uint64_t file_offset,
                                     size_t bytes) {
  openreg_status status = map_at(OPENREG_KERNEL_VIEW, device, in_slot, file, file_offset, bytes);
  if (status == OPENREG_OK && !is_single_view())
    status = map_at(OPENREG_DEVICE_VIEW, device, in_slot, file, file_offset, bytes);
  return status;
}

static openreg_status map_device(int device) {
  openreg_status status = create_file(device);
  if (status == OPENREG_OK)
    status = map_both_views(device, 0, arenas.file[device], 0, arenas.arena_bytes);
  return status;
}

static openreg_status reserve_views(size_t bytes, bool host_access) {
  openreg_status status = reserve(bytes, &arenas.base[OPENREG_KERNEL_VIEW]);
  if (status != OPENREG_OK)
    return status;
  if (host_access) {
    arenas.base[OPENREG_DEVICE_VIEW] = arenas.base[OPENREG_KERNEL_VIEW];
    return OPENREG_OK;
  }
  status = reserve(bytes, &arenas.base[OPENREG_DEVICE_VIEW]);
  if (status != OPENREG_OK)
    munmap((void *)arenas.base[OPENREG_KERNEL_VIEW], bytes);
  return status;
}

static void close_files(void) {
  for (int i = 0; i < arenas.device_count; i++) {
    if (arenas.file[i] >= 0)
      close(arenas.file[i]);
    arenas.file[i] = -1;
  }
}

/* Number of granules of each device's imports. */
static size_t import_granules(void) {
  return (stride_bytes() - arenas.arena_bytes) / OPENREG_GRANULE_BYTES;
}

static openreg_status make_bitmaps(void) {
  for (int i = 0; i < arenas.device_count; i++) {
    size_t words = (import_granules() + 63) / 64;
    arenas.mapped[i] = calloc(2 * words, sizeof *arenas.mapped[i]);
    if (arenas.mapped[i] == NULL)
      return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for %zu bytes of bitmaps",
                          2 * words * sizeof *arenas.mapped[i]);
    arenas.begins[i] = arenas.mapped[i] + words;
  }
  return OPENREG_OK;
}

static void free_bitmaps(void) {
  for (int i = 0; i < arenas.device_count; i++) {
    free(arenas.mapped[i]);
    arenas.mapped[i] = NULL;
  }
}

static void unmap(size_t bytes) {
  close_files();
  free_bitmaps();
  munmap((void *)arenas.base[OPENREG_KERNEL_VIEW], bytes);
  if (!is_single_view())
    munmap((void *)arenas.base[OPENREG_DEVICE_VIEW], bytes);
}

/* Uses the devices of the whole group, even those that this process does not see: processes that
 * import from this one expect memory files of this size. */
static void plan_slots(const openreg_config *config) {
  uint64_t largest = OPENREG_GRANULE_BYTES;
  for (int i = 0; i < config->device_count; i++)
    if (config->memory_bytes[i] > largest)
      largest = config->memory_bytes[i];
  unsigned shift = 0;
  while (((size_t)1 << shift) < largest)
    shift++;
  const size_t imports = (size_t)IMPORTS_CAPACITIES << shift, least = 2 * imports;
  arenas.stride_shift = shift;
  while (stride_bytes() < least ||
         (stride_bytes() < (size_t)SLOT_CAPACITIES << shift &&
          2 * (size_t)config->device_count * stride_bytes() <= MAX_VIEW_BYTES))
    arenas.stride_shift++;
  arenas.arena_bytes = stride_bytes() - imports;
}

openreg_status openreg_arenas_map(const openreg_config *config, int device_count) {
  plan_slots(config);
  arenas.device_count = device_count;
  for (int i = 0; i < device_count; i++)
    arenas.file[i] = -1;
  size_t bytes = (size_t)device_count * stride_bytes();
  openreg_status status = reserve_views(bytes, config->host_access);
  if (status != OPENREG_OK)
    return status;
  status = make_bitmaps();
  for (int i = 0; status == OPENREG_OK && i < device_count; i++)
    status = map_device(i);
  if (status != OPENREG_OK) {
    unmap(bytes);
    return status;
  }
  openreg_kernel_offset =
      (intptr_t)(arenas.base[OPENREG_KERNEL_VIEW] - arenas.base[OPENREG_DEVICE_VIEW]);
  atomic_store_explicit(&arenas.reserved_bytes, bytes, memory_order_release);
  return OPENREG_OK;
}

void openreg_arenas_unmap(void) {
  size_t bytes = atomic_exchange(&arenas.reserved_bytes, 0);
  openreg_kernel_offset = 0;
  unmap(bytes);
}

/* The parent's mappings are gone in the child, and something else may have been mapped there since
 * the fork. So this does not use MAP_FIXED, and ignores failure. */
static void cover_with_reservation(int device, size_t in_slot, size_t bytes) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  (void)mmap((char *)slot_address(OPENREG_KERNEL_VIEW, device) + in_slot, bytes, PROT_NONE, flags,
             -1, 0);
  if (!is_single_view())
    (void)mmap((char *)slot_address(OPENREG_DEVICE_VIEW, device) + in_slot, bytes, PROT_NONE, flags,
               -1, 0);
}

static bool test_bit(const _Atomic uint64_t *bits, size_t index) {
  return atomic_load_explicit(&bits[index / 64], memory_order_acquire) >> index % 64 & 1;
}

void openreg_arenas_abandon(void) {
  close_files();
  for (int i = 0; i < arenas.device_count; i++) {
    cover_with_reservation(i, 0, arenas.arena_bytes);
    for (size_t granule = 0; granule < import_granules(); granule++)
      if (test_bit(arenas.mapped[i], granule))
        cover_with_reservation(i, arenas.arena_bytes + granule * OPENREG_GRANULE_BYTES,
                               OPENREG_GRANULE_BYTES);
  }
}

/* ---- addresses ------------------------------------------------------------------------------- */

static bool is_imported(int device, size_t in_slot) {
  return in_slot >= arenas.arena_bytes &&
         test_bit(arenas.mapped[device], (in_slot - arenas.arena_bytes) / OPENREG_GRANULE_BYTES);
}

/* Whether a range that begins in an import ends in the same import. */
static bool ends_in_import(int device, size_t in_slot, size_t bytes) {
  if (bytes > stride_bytes() - in_slot)
    return false;
  size_t in_imports = in_slot - arenas.arena_bytes, granule = in_imports / OPENREG_GRANULE_BYTES;
  size_t end = (in_imports + bytes + OPENREG_GRANULE_BYTES - 1) / OPENREG_GRANULE_BYTES;
  while (++granule < end)
    if (!test_bit(arenas.mapped[device], granule) || test_bit(arenas.begins[device], granule))
      return false;
  return true;
}

bool openreg_arena_locate(const void *address, openreg_arena_location *place) {
  size_t reserved_bytes = atomic_load_explicit(&arenas.reserved_bytes, memory_order_acquire);
  if (reserved_bytes == 0)
    return false;
  for (openreg_view view = OPENREG_DEVICE_VIEW; view <= OPENREG_KERNEL_VIEW; view++) {
    uintptr_t offset = (uintptr_t)address - arenas.base[view];
    if (offset < reserved_bytes) {
      place->device = (int)(offset >> arenas.stride_shift);
      place->view = view;
      size_t in_slot = offset & (stride_bytes() - 1);
      place->imported = is_imported(place->device, in_slot);
      place->beyond_arena = in_slot >= arenas.arena_bytes && !place->imported;
      return true;
    }
  }
  return false;
}

int openreg_arena_device_of(const void *device_address) {
  size_t reserved_bytes = atomic_load_explicit(&arenas.reserved_bytes, memory_order_acquire);
  if (reserved_bytes == 0)
    return -1;
  uintptr_t offset = (uintptr_t)device_address - arenas.base[OPENREG_DEVICE_VIEW];
  if (offset >= reserved_bytes)
    return -1;
  int device = (int)(offset >> arenas.stride_shift);
  size_t in_slot = offset & (stride_bytes() - 1);
  return in_slot < arenas.arena_bytes || is_imported(device, in_slot) ? device : -1;
}

static bool overlaps_device_view(uintptr_t start, size_t bytes) {
  size_t reserved_bytes = atomic_load_explicit(&arenas.reserved_bytes, memory_order_acquire);
  if (reserved_bytes == 0)
    return false;
  uintptr_t base = arenas.base[OPENREG_DEVICE_VIEW];
  return start < base + reserved_bytes && base < start + bytes;
}

openreg_status openreg_arena_check_range(const void *address, size_t bytes, int *device) {
  uintptr_t start = (uintptr_t)address;
  int found = openreg_arena_device_of(address);
  bool good = bytes <= UINTPTR_MAX - start;
  if (good && found >= 0) {
    size_t in_slot = start - (uintptr_t)slot_address(OPENREG_DEVICE_VIEW, found);
    good = in_slot < arenas.arena_bytes ? bytes <= arenas.arena_bytes - in_slot
                                        : ends_in_import(found, in_slot, bytes);
  } else if (good) {
    good = !overlaps_device_view(start, bytes);
  }
  if (!good)
    return openreg_fail(OPENREG_INVALID_ADDRESS,
                        "openreg: the %zu bytes at %p do not lie within the memory of one device",
                        bytes, address);
  *device = found;
  return OPENREG_OK;
}

int openreg_arena_file(int device) {
  return arenas.file[device];
}

void *openreg_arena_kernel_base(int device, size_t *bytes) {
  *bytes = arenas.arena_bytes;
  return slot_address(OPENREG_KERNEL_VIEW, device);
}

/* ---- memory of other processes --------------------------------------------------------------- */

static void set_bit(_Atomic uint64_t *bits, size_t index, bool value) {
  uint64_t bit = (uint64_t)1 << index % 64;
  if (value)
    atomic_fetch_or_explicit(&bits[index / 64], bit, memory_order_release);
  else
    atomic_fetch_and_explicit(&bits[index / 64], ~bit, memory_order_release);
}

/* Finds the first run of `wanted` unmapped granules. Returns import_granules() if there is none. */
static size_t find_granules(int device, size_t wanted) {
  size_t all = import_granules(), found = 0;
  for (size_t granule = 0; granule < all; granule++) {
    found = test_bit(arenas.mapped[device], granule) ? 0 : found + 1;
    if (found == wanted)
      return granule + 1 - wanted;
  }
  return all;
}

/* Restores the reservation where something was mapped, or mapped in part. */
static void restore_reservation(int device, size_t in_slot, size_t bytes) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  for (openreg_view view = OPENREG_DEVICE_VIEW; view <= OPENREG_KERNEL_VIEW; view++)
    (void)mmap((char *)slot_address(view, device) + in_slot, bytes, PROT_NONE, flags, -1, 0);
}

openreg_status openreg_arena_map_import(int device, int file, uint64_t file_offset, size_t bytes,
                                        void **device_address) {
  assert(bytes > 0 && bytes % OPENREG_GRANULE_BYTES == 0);
  size_t granules = bytes / OPENREG_GRANULE_BYTES, first = find_granules(device, granules);
  if (first == import_granules())
    return openreg_fail(OPENREG_OUT_OF_MEMORY,
                        "openreg: device %d has no addresses left for %zu bytes of other "
                        "processes' memory; close some imported memory first",
                        device, bytes);
  size_t in_slot = arenas.arena_bytes + first * OPENREG_GRANULE_BYTES;
  openreg_status status = map_both_views(device, in_slot, file, file_offset, bytes);
  if (status != OPENREG_OK) {
    restore_reservation(device, in_slot, bytes);
    return status;
  }
  set_bit(arenas.begins[device], first, true);
  for (size_t i = 0; i < granules; i++)
    set_bit(arenas.mapped[device], first + i, true);
  *device_address = (char *)slot_address(OPENREG_DEVICE_VIEW, device) + in_slot;
  return OPENREG_OK;
}

void openreg_arena_unmap_import(void *device_address, size_t bytes) {
  int device = openreg_arena_device_of(device_address);
  assert(device >= 0);
  size_t in_slot = offset_in_slot(device, device_address);
  size_t first = (in_slot - arenas.arena_bytes) / OPENREG_GRANULE_BYTES;
  assert(in_slot >= arenas.arena_bytes && test_bit(arenas.begins[device], first));
  for (size_t i = 0; i < bytes / OPENREG_GRANULE_BYTES; i++)
    set_bit(arenas.mapped[device], first + i, false);
  set_bit(arenas.begins[device], first, false);
  restore_reservation(device, in_slot, bytes);
}

/* ---- the remaining public functions ---------------------------------------------------------- */

openreg_status openreg_arena_get(int device, void **base, size_t *bytes) {
  openreg_status status = openreg_require_context(device);
  if (status != OPENREG_OK)
    return status;
  *base = slot_address(OPENREG_DEVICE_VIEW, device);
  *bytes = arenas.arena_bytes;
  return OPENREG_OK;
}

openreg_status openreg_arena_set_host_access(void *device_address, size_t bytes, bool is_allowed) {
  int device;
  openreg_status status = openreg_arena_check_range(device_address, bytes, &device);
  if (status != OPENREG_OK)
    return status;
  if (device < 0 || is_imported(device, offset_in_slot(device, device_address)))
    return openreg_fail(OPENREG_INVALID_ADDRESS,
                        "openreg: %p is not in this process's memory of any device",
                        device_address);
  if (!is_single_view() &&
      mprotect(device_address, bytes, is_allowed ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
    return fail_system("change the host's access to its memory", device);
  return OPENREG_OK;
}

openreg_status openreg_arena_release(void *device_address, size_t bytes) {
  openreg_status status = openreg_require_no_bad_fork();
  if (status != OPENREG_OK)
    return status;
  size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
  if ((uintptr_t)device_address % page_bytes != 0 || bytes % page_bytes != 0)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: cannot release the %zu bytes at %p: start and size must be "
                        "multiples of the page size, %zu bytes",
                        bytes, device_address, page_bytes);
  int device;
  status = openreg_arena_check_range(device_address, bytes, &device);
  if (status != OPENREG_OK)
    return status;
  if (device < 0)
    return openreg_fail(OPENREG_INVALID_ADDRESS, "openreg: %p is not in the memory of any device",
                        device_address);
  if (bytes == 0)
    return OPENREG_OK;
  uintptr_t offset =
      (uintptr_t)device_address - (uintptr_t)slot_address(OPENREG_DEVICE_VIEW, device);
  if (offset >= arenas.arena_bytes)
    return openreg_fail(OPENREG_INVALID_ADDRESS,
                        "openreg: the %zu bytes at %p belong to another process, and only that "
                        "process can release their pages; close the import with openreg_ipc_close",
                        bytes, device_address);
  if (fallocate(arenas.file[device], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                (off_t)bytes) != 0)
    return fail_system("return pages to the system", device);
  return OPENREG_OK;
}
