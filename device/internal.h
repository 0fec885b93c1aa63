/* internal.h: what the files of the device layer share with each other and with nobody else.
 *
 * The layer starts up in one place, openreg_initialize in device.c, which reads the configuration,
 * maps the arenas, loads the topology, binds the arenas, joins the group's ledger and installs the
 * fault handler, in this order.
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

/* Forks of this process wait while this is held, lest a child gets a half of what is being done.
 * Not to be held twice. Errors: SYSTEM. */
openreg_status openreg_forks_hold(void);
void openreg_forks_release(void);

/* ---- config.c -------------------------------------------------------------------------------- */

/* What stands for the group: "group-" and OPENREG_GROUP, or "alike-" and 16 hexadecimal digits made
 * of what processes without it must have in common: number, capacities and profiles of devices. */
void openreg_config_name_group(const openreg_config *config, char group[OPENREG_GROUP_NAME_BYTES]);

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

/* hwloc's OS index of the NUMA node that the device is placed on: the first of its cores' nodes. -1
 * when that is not known. */
int openreg_topology_node(const openreg_topology *topology, int device);

/* Asks for the pages of a range, none of which was touched yet, to come from the device's NUMA
 * node. False when there is no choice, the system refuses, or the topology is that of another
 * machine. */
bool openreg_topology_bind(const openreg_topology *topology, int device, void *address,
                           size_t bytes);

/* Keeps the calling thread on those of the device's cores that the process was allowed to use when
 * the topology was loaded; on any of those when the device has none of them, or for -1. False when
 * the system refuses, or the topology is that of another machine. */
bool openreg_topology_bind_thread(const openreg_topology *topology, int device);

/* ---- arena.c --------------------------------------------------------------------------------- */

/* Reserves and maps everything, or nothing. Errors: OUT_OF_MEMORY (of the host), SYSTEM. */
openreg_status openreg_arenas_map(const openreg_config *config);

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
  bool imported;        /* memory of another process's device of the same number */
  bool beyond_capacity; /* in none of both: addresses that are never accessible */
} openreg_arena_place;

/* Where in the reservations an address lies; false when in none. Async-signal-safe. */
bool openreg_arena_locate(const void *address, openreg_arena_place *place);

/* The memory file of a device: its arena, then OPENREG_EXPORTS_BYTES that exports.h describes. */
#define OPENREG_EXPORTS_BYTES ((uint64_t)2 << 20)
int openreg_arena_file(int device);

/* Addresses beyond every arena, in the same slot, are for the memory of other processes' devices:
 * at least as many as the capacity. Maps `bytes` of a file of such a process (whole granules), into
 * both views, where openreg_arena_device_of and openreg_arena_check_range then find them. One
 * thread at a time, which imports.c sees to; `bytes` of unmap are those of map.
 * Errors: OUT_OF_MEMORY when no addresses are left, SYSTEM. */
openreg_status openreg_arena_map_import(int device, int file, uint64_t file_offset, size_t bytes,
                                        void **device_address);
void openreg_arena_unmap_import(void *device_address, size_t bytes);

/* ---- ledger.c -------------------------------------------------------------------------------- */

/* Joins the group's control page, with the devices as `properties` place them; the arenas are
 * mapped. Errors: INVALID_CONFIGURATION (a page of that group with other devices, or one that is
 * corrupt or foreign), OUT_OF_MEMORY (too many processes), SYSTEM. */
openreg_status openreg_ledger_join(const openreg_config *config,
                                   const openreg_device_properties properties[]);

/* In a forked child: lets go of everything, and leaves the parent's record as it is. */
void openreg_ledger_abandon(void);

/* A process of the group, in words that can be sent: its place in the control page, and a number
 * that no other process in that place, before or after, has. */
typedef struct openreg_peer {
  uint64_t group;    /* which page */
  uint64_t identity; /* never 0 */
  uint32_t slot;     /* < OPENREG_MAX_PROCESSES */
} openreg_peer;

/* This process. It must have joined. */
openreg_peer openreg_ledger_self(void);

/* The process that has a place, < OPENREG_MAX_PROCESSES, now; its identity is 0 when none has. */
openreg_peer openreg_ledger_peer_at(uint32_t slot);

/* Where another process of this group keeps the memory file of a device, for opening it through
 * /proc. False when it is not of this group, not that process, or dead. */
typedef struct openreg_peer_file {
  int pid, file;
  uint64_t inode; /* of the file: what is opened must be it */
} openreg_peer_file;
bool openreg_ledger_find_peer(openreg_peer peer, int device, openreg_peer_file *file);

/* Whether the process lives. Asks the kernel, by the lock that a process holds as long as it
 * lives. */
bool openreg_ledger_is_alive(openreg_peer peer);

/* Keeps a process's record, should it die, until this process forgets it or dies itself: for memory
 * of it that is imported. */
openreg_status openreg_ledger_remember(openreg_peer peer);
void openreg_ledger_forget(openreg_peer peer);

/* States how much of a dead process's device memory is still there, in other processes' use. */
void openreg_ledger_set_remains(openreg_peer peer, int device, uint64_t bytes);

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
