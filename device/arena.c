/* arena.c: the memory of all devices.
 *
 * Each arena is a memory file of exactly the device's capacity, committed page by page on first
 * touch. All arenas are mapped into two reservations of the same shape, one for the device views,
 * which the host may not touch, and one for the kernel views, which it may:
 *
 *     device view:  |arena 0|spare|arena 1|spare| ... |
 *     kernel view:  |arena 0|spare|arena 1|spare| ... |       a constant distance away
 *
 *     slot i  = [base + i * stride, base + (i + 1) * stride)
 *     arena i = its first capacity[i] bytes; the spare addresses are never accessible
 *     stride  = a power of two >= every capacity, so that address -> device is a shift
 *
 * With host access both views are one readable and writable mapping, and the distance is 0.
 *
 * The addresses are published by storing reserved_bytes, as the last step; they never change after.
 * Neither view is inherited by a forked child, which must not write to its parent's devices.
 */
#define _GNU_SOURCE /* memfd_create, fallocate, seals */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000 /* Linux 4.17; older systems take the address as a hint */
#endif

intptr_t openreg_kernel_offset;

static struct {
  _Atomic size_t reserved_bytes; /* of each view: device_count * stride; 0: not mapped yet */
  uintptr_t base[2];             /* indexed by openreg_view; equal with host access */
  unsigned stride_shift;
  int device_count;
  size_t capacity[OPENREG_MAX_DEVICES];
  int file[OPENREG_MAX_DEVICES];
} arenas;

static size_t stride_bytes(void) {
  return (size_t)1 << arenas.stride_shift;
}

static void *slot_address(openreg_view view, int device) {
  return (void *)(arenas.base[view] + (uintptr_t)device * stride_bytes());
}

static bool views_are_one(void) {
  return arenas.base[OPENREG_DEVICE_VIEW] == arenas.base[OPENREG_KERNEL_VIEW];
}

/* ---- mapping --------------------------------------------------------------------------------- */

static openreg_status fail_system(const char *what, int device) {
  return openreg_fail(OPENREG_SYSTEM, "openreg: device %d, %zu bytes: %s: %s", device,
                      arenas.capacity[device], what, strerror(errno));
}

/* Inaccessible addresses, aligned to a granule. */
static openreg_status reserve(size_t bytes, uintptr_t *base) {
  size_t granule = OPENREG_GRANULE_BYTES;
  void *start =
      mmap(NULL, bytes + granule, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED)
    return openreg_fail(OPENREG_SYSTEM,
                        "openreg: reserving %zu bytes of addresses for %d devices: %s (a smaller "
                        "OPENREG_DEVICE_MEMORY or OPENREG_DEVICE_COUNT needs fewer)",
                        bytes, arenas.device_count, strerror(errno));
  size_t head = (granule - (uintptr_t)start % granule) % granule;
  *base = (uintptr_t)start + head;
  if (head > 0)
    munmap(start, head);
  munmap((void *)(*base + bytes), granule - head);
  return OPENREG_OK;
}

/* The memory file of a device. Its size can never change, so that no mapping can lose its end. */
static openreg_status create_file(int device) {
  char name[32];
  snprintf(name, sizeof name, "openreg:%d", device);
  int file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0)
    return fail_system("creating a memory file", device);
  arenas.file[device] = file;
  if (ftruncate(file, (off_t)arenas.capacity[device]) != 0)
    return fail_system("sizing the memory file", device);
  if (fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    return fail_system("sealing the memory file", device);
  return OPENREG_OK;
}

static openreg_status map_view(openreg_view view, int device, int protection) {
  void *address = slot_address(view, device);
  size_t bytes = arenas.capacity[device];
  if (mmap(address, bytes, protection, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, arenas.file[device],
           0) == MAP_FAILED)
    return fail_system("mapping the memory file", device);
  if (madvise(address, bytes, MADV_DONTFORK) != 0)
    return fail_system("keeping the memory out of forked processes", device);
  /* A core file would commit every page of the capacity while it is written. */
  if (madvise(address, bytes, MADV_DONTDUMP) != 0)
    return fail_system("keeping the memory out of core files", device);
  /* A wish only: the system may be built or set up without huge pages. */
  (void)madvise(address, bytes, MADV_HUGEPAGE);
  return OPENREG_OK;
}

static openreg_status map_device(int device, bool host_access) {
  openreg_status status = create_file(device);
  if (status == OPENREG_OK)
    status = map_view(OPENREG_KERNEL_VIEW, device, PROT_READ | PROT_WRITE);
  if (status == OPENREG_OK && !host_access)
    status = map_view(OPENREG_DEVICE_VIEW, device, PROT_NONE);
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

static void unmap(size_t bytes) {
  close_files();
  munmap((void *)arenas.base[OPENREG_KERNEL_VIEW], bytes);
  if (!views_are_one())
    munmap((void *)arenas.base[OPENREG_DEVICE_VIEW], bytes);
}

static void plan(const openreg_config *config) {
  uint64_t largest = OPENREG_GRANULE_BYTES;
  arenas.device_count = config->device_count;
  for (int i = 0; i < config->device_count; i++) {
    arenas.file[i] = -1;
    arenas.capacity[i] = config->memory_bytes[i];
    if (config->memory_bytes[i] > largest)
      largest = config->memory_bytes[i];
  }
  arenas.stride_shift = 0;
  while (stride_bytes() < largest)
    arenas.stride_shift++;
}

openreg_status openreg_arenas_map(const openreg_config *config) {
  plan(config);
  size_t bytes = (size_t)config->device_count * stride_bytes();
  openreg_status status = reserve_views(bytes, config->host_access);
  if (status != OPENREG_OK)
    return status;
  for (int i = 0; status == OPENREG_OK && i < config->device_count; i++)
    status = map_device(i, config->host_access);
  if (status != OPENREG_OK) {
    unmap(bytes);
    return status;
  }
  openreg_kernel_offset =
      (intptr_t)(arenas.base[OPENREG_KERNEL_VIEW] - arenas.base[OPENREG_DEVICE_VIEW]);
  atomic_store_explicit(&arenas.reserved_bytes, bytes, memory_order_release);
  return OPENREG_OK;
}

void openreg_arenas_abandon(void) {
  close_files();
  for (int i = 0; i < arenas.device_count; i++) {
    /* Not over what may have been mapped there since the fork: hence no plain MAP_FIXED, and
     * nothing to be done when it fails. */
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    (void)mmap(slot_address(OPENREG_KERNEL_VIEW, i), arenas.capacity[i], PROT_NONE, flags, -1, 0);
    if (!views_are_one())
      (void)mmap(slot_address(OPENREG_DEVICE_VIEW, i), arenas.capacity[i], PROT_NONE, flags, -1, 0);
  }
}

/* ---- addresses ------------------------------------------------------------------------------- */

bool openreg_arena_locate(const void *address, openreg_arena_place *place) {
  size_t reserved_bytes = atomic_load_explicit(&arenas.reserved_bytes, memory_order_acquire);
  if (reserved_bytes == 0)
    return false;
  for (openreg_view view = OPENREG_DEVICE_VIEW; view <= OPENREG_KERNEL_VIEW; view++) {
    uintptr_t offset = (uintptr_t)address - arenas.base[view];
    if (offset < reserved_bytes) {
      place->device = (int)(offset >> arenas.stride_shift);
      place->view = view;
      place->beyond_capacity = (offset & (stride_bytes() - 1)) >= arenas.capacity[place->device];
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
  return (offset & (stride_bytes() - 1)) < arenas.capacity[device] ? device : -1;
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
  if (good && found >= 0)
    good = start + bytes <=
           (uintptr_t)slot_address(OPENREG_DEVICE_VIEW, found) + arenas.capacity[found];
  else if (good)
    good = !overlaps_device_view(start, bytes);
  if (!good)
    return openreg_fail(OPENREG_INVALID_ADDRESS,
                        "openreg: the %zu bytes at %p are not all in the memory of one device",
                        bytes, address);
  *device = found;
  return OPENREG_OK;
}

void *openreg_arena_kernel_base(int device, size_t *bytes) {
  *bytes = arenas.capacity[device];
  return slot_address(OPENREG_KERNEL_VIEW, device);
}

/* ---- the public rest ------------------------------------------------------------------------- */

openreg_status openreg_arena_get(int device, void **base, size_t *bytes) {
  openreg_status status = openreg_require_ready(device);
  if (status != OPENREG_OK)
    return status;
  *base = slot_address(OPENREG_DEVICE_VIEW, device);
  *bytes = arenas.capacity[device];
  return OPENREG_OK;
}

openreg_status openreg_arena_release(void *device_address, size_t bytes) {
  openreg_status status = openreg_require_no_bad_fork();
  if (status != OPENREG_OK)
    return status;
  size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
  if ((uintptr_t)device_address % page_bytes != 0 || bytes % page_bytes != 0)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: the %zu bytes at %p are not whole pages of %zu bytes", bytes,
                        device_address, page_bytes);
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
  if (fallocate(arenas.file[device], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                (off_t)bytes) != 0)
    return fail_system("giving pages back", device);
  return OPENREG_OK;
}
