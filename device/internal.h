/* internal.h: what the files of the device layer share with each other and with nobody else.
 *
 * The layer starts up in one place, openreg_initialize in device.c, which reads the configuration,
 * loads the topology, maps the arenas, binds them and installs the fault handler, in this order.
 * Nothing that is shared here changes after that but the ledger and the streams' counters.
 */
#ifndef OPENREG_DEVICE_INTERNAL_H
#define OPENREG_DEVICE_INTERNAL_H

#include "device.h"

#pragma GCC visibility push(hidden)

/* Capacities, strides and arena bases are multiples of this: the size of a huge page. */
#define OPENREG_GRANULE_BYTES ((uint64_t)2 << 20)

/* Longest sentence that openreg_last_error holds, its final zero included. */
enum { OPENREG_SENTENCE_BYTES = 1024 };

/* ---- device.c -------------------------------------------------------------------------------- */

/* OK when the configuration has this device. Initializes nothing.
 * Errors: INVALID_CONFIGURATION, INVALID_DEVICE. */
openreg_status openreg_require_device(int device);

/* OK when the device exists and everything is initialized, which it does if need be.
 * Errors: as openreg_require_device, and those of openreg_initialize. */
openreg_status openreg_require_ready(int device);

/* Errors: BAD_FORK. */
openreg_status openreg_require_no_bad_fork(void);

/* ---- status.c -------------------------------------------------------------------------------- */

/* Forgets the calling thread's last sentence. */
void openreg_error_clear(void);

/* ---- profile.c ------------------------------------------------------------------------------- */

/* The profile that `length` characters at `text` name: a key of the table, upper or lower case, or
 * numbers such as 48x1536. False when they name none. */
bool openreg_profile_find(const char *text, size_t length, openreg_profile *profile);

/* ---- topology.c ------------------------------------------------------------------------------ */

/* Where each of `device_count` devices is placed on this machine. */
typedef struct openreg_topology openreg_topology;

/* NULL when the machine does not let itself be described; the functions below take that. */
openreg_topology *openreg_topology_load(int device_count);
void openreg_topology_free(openreg_topology *topology);

/* Writes the cores placed with the device, in hwloc's list form; "" when they are not known. */
void openreg_topology_list_cores(const openreg_topology *topology, int device, char *list,
                                 size_t list_bytes);

/* Asks for the pages of a range, none of which was touched yet, to come from the device's NUMA
 * node. Returns the node's OS index; -1 when there is no choice or the system refuses. */
int openreg_topology_bind(const openreg_topology *topology, int device, void *address,
                          size_t bytes);

/* Keeps the calling thread on those of the device's cores that the process was allowed to use when
 * the topology was loaded; on any of those when the device has none of them, or for -1. False when
 * the system refuses, or the topology is that of another machine. */
bool openreg_topology_bind_thread(const openreg_topology *topology, int device);

/* ---- arena.c --------------------------------------------------------------------------------- */

/* Reserves and maps everything, or nothing. Errors: SYSTEM. */
openreg_status openreg_arenas_map(const openreg_config *config);

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
  bool beyond_capacity; /* in the spare addresses between this device's arena and the next */
} openreg_arena_place;

/* Where in the reservations an address lies; false when in none. Async-signal-safe. */
bool openreg_arena_locate(const void *address, openreg_arena_place *place);

/* ---- fault.c --------------------------------------------------------------------------------- */

/* Puts the handler before those that are installed for SIGSEGV and SIGBUS. To be called once. */
void openreg_fault_install(void);

/* ---- bulk.c ---------------------------------------------------------------------------------- */

/* From this size on openreg_copy and openreg_fill come here. Source: bulk.c. */
#define OPENREG_BULK_BYTES ((size_t)1 << 20)

/* memcpy and memset for large ranges. */
void openreg_bulk_copy(void *destination, const void *source, size_t bytes);
void openreg_bulk_fill(void *destination, int value, size_t bytes);

/* memcpy past the caches. Any size and alignment. */
void openreg_bulk_copy_streaming(void *destination, const void *source, size_t bytes);

/* ---- stream.c -------------------------------------------------------------------------------- */

/* Errors: INVALID_ARGUMENT. */
openreg_status openreg_require_stream(int stream);

#pragma GCC visibility pop
#endif
