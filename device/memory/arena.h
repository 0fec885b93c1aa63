/* arena.h: what the arenas are to the rest of the layer: beside device.h. */
#ifndef OPENREG_DEVICE_MEMORY_ARENA_H
#define OPENREG_DEVICE_MEMORY_ARENA_H

#include "device/process/config.h"

#pragma GCC visibility push(hidden)

/* Reserves and maps the arenas of so many devices, or nothing. They are as long in every process of
 * the group. Errors: OUT_OF_MEMORY (of the host), SYSTEM. */
openreg_status openreg_arenas_map(const openreg_config *config, int device_count);

/* Undoes openreg_arenas_map, when starting fails after it. */
void openreg_arenas_unmap(void);

/* In a forked child, which inherits no arena: keeps the addresses from being used by anything
 * else, and lets go of the memory files. */
void openreg_arenas_abandon(void);

/* The kernel view of a whole arena. The arenas must have been mapped. */
void *openreg_arena_kernel_base(int device, size_t *bytes);

/* OK when the `bytes` bytes at `address` lie in one arena (`device` is then set), or touch none at
 * all (`device` is -1). Errors: INVALID_ADDRESS when they only partly lie in one. */
openreg_status openreg_arena_check_range(const void *address, size_t bytes, int *device);

typedef enum openreg_view { OPENREG_DEVICE_VIEW, OPENREG_KERNEL_VIEW } openreg_view;

typedef struct openreg_arena_place {
  int device; /* whose slot it is */
  openreg_view view;
  bool imported;     /* memory of another process, on the same device */
  bool beyond_arena; /* in none of both: addresses that are never accessible */
} openreg_arena_place;

/* Where in the reservations an address lies; false when in none. Async-signal-safe. */
bool openreg_arena_locate(const void *address, openreg_arena_place *place);

/* The memory file of a device: its arena, then the table that ipc/exports.h describes. */
#define OPENREG_EXPORTS_BYTES ((uint64_t)2 << 20)
int openreg_arena_file(int device);

/* Addresses beyond every arena, in the same slot, are for the memory of other processes' devices:
 * twice as many as the capacity or more. Maps `bytes` of a file of such a process (whole granules),
 * into both views, where openreg_arena_device_of and openreg_arena_check_range then find them. One
 * thread at a time, by the lock of imports; `bytes` of unmap are those of map.
 * Errors: OUT_OF_MEMORY when no addresses are left, SYSTEM. */
openreg_status openreg_arena_map_import(int device, int file, uint64_t file_offset, size_t bytes,
                                        void **device_address);
void openreg_arena_unmap_import(void *device_address, size_t bytes);

#pragma GCC visibility pop
#endif
