/* arena.h: arenas, for this layer only. Extends device.h. */
#ifndef OPENREG_DEVICE_MEMORY_ARENA_H
#define OPENREG_DEVICE_MEMORY_ARENA_H

#include "device/process/config.h"

#pragma GCC visibility push(hidden)

/* Reserves addresses and maps the arenas of `device_count` devices; on failure, nothing. Arenas
 * have the same size in all processes of the group. Errors: OUT_OF_MEMORY (of the host), SYSTEM. */
openreg_status openreg_arenas_map(const openreg_config *config, int device_count);

/* Undoes openreg_arenas_map if a later step of initialization fails. */
void openreg_arenas_unmap(void);

/* For a forked child, which inherits no arena. Keeps the addresses reserved so that nothing else
 * uses them, and closes the memory files. */
void openreg_arenas_abandon(void);

/* The kernel view of a whole arena. The arenas must have been mapped. */
void *openreg_arena_kernel_base(int device, size_t *bytes);

/* Checks that the `bytes` bytes at `address` lie in one arena (sets `device`) or touch no arena
 * (sets `device` to -1). Errors: INVALID_ADDRESS if they lie only partly in one. */
openreg_status openreg_arena_check_range(const void *address, size_t bytes, int *device);

typedef enum openreg_view { OPENREG_DEVICE_VIEW, OPENREG_KERNEL_VIEW } openreg_view;

typedef struct openreg_arena_location {
  int device; /* owner of the slot */
  openreg_view view;
  bool imported;     /* the address lies in memory of another process, on the same device */
  bool beyond_arena; /* in neither the arena nor an import: never accessible */
} openreg_arena_location;

/* Locates an address within the reservations. Returns false if it lies outside.
 * Async-signal-safe. */
bool openreg_arena_locate(const void *address, openreg_arena_location *place);

/* The memory file of a device: its arena, followed by the export table of ipc/exports.h. */
#define OPENREG_EXPORTS_BYTES ((uint64_t)2 << 20)
int openreg_arena_file(int device);

/* Maps memory of another process's device. The addresses follow the arena, in the same slot; there
 * are at least twice as many as the capacity. Maps `bytes` bytes of the file (whole granules) into
 * both views. openreg_arena_device_of and openreg_arena_check_range then find them. The caller must
 * hold the lock of imports (imports.h). Unmap with the same `bytes`. Errors: OUT_OF_MEMORY (no
 * addresses left), SYSTEM. */
openreg_status openreg_arena_map_import(int device, int file, uint64_t file_offset, size_t bytes,
                                        void **device_address);
void openreg_arena_unmap_import(void *device_address, size_t bytes);

#pragma GCC visibility pop
#endif
