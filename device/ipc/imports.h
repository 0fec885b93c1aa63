/* imports.h: memory and events of other processes.
 *
 *     peer_file.c       memory files of other processes: opening, checking, mapping, locking
 *     peer_arena.c      whole arenas, without locks
 *     imports.c         imports from a file: opening and closing handles
 *     reclaimer.c       returns memory of ended processes that nobody imports
 *     remote_fence.c    waits for work of other processes
 *
 * One lock guards all of this, for a few system calls at a time. It is never held while waiting or
 * while submitting work to a stream. "locked" in a name means that the caller holds the lock.
 *
 * When a process ends, the kernel keeps its whole memory file as long as any process maps a part of
 * it. The importers therefore return the memory that none of them imports.
 */
#ifndef OPENREG_DEVICE_IPC_IMPORTS_H
#define OPENREG_DEVICE_IPC_IMPORTS_H

#include "device/ipc/exports.h"
#include "device/ledger/ledger.h"

#pragma GCC visibility push(hidden)

/* Whole granules of a peer's file, mapped behind the arena of the same device. Shared by all
 * imports that lie within exactly these granules. */
struct mapping {
  uint64_t offset;
  size_t bytes;
  void *address;
  unsigned imports;
  struct mapping *next;
};

/* A range of a peer's file that this process has: memory, or the entry of an event. */
typedef struct openreg_import {
  struct peer_file *file;
  uint32_t index; /* of the entry */
  uint64_t nonce;
  uint64_t offset, bytes;  /* range in the file; this process has a read lock on it */
  unsigned count;          /* number of opens without a close */
  struct mapping *mapping; /* NULL for the entry of an event */
  void *address;
  struct openreg_import *next_in_bucket;
  struct openreg_shared_event *event; /* of an event: shared by all who opened it in this process */
} openreg_import;

struct peer_file {
  openreg_peer peer;
  int device, pid;
  int file;  /* holds this process's locks; no mapping uses its description */
  int pidfd; /* -1: none */
  struct openreg_export *entries;
  uint64_t arena_bytes;
  unsigned references; /* by imports, waits, and events that the peer recorded */
  bool has_ended;
  bool is_reclaimed;        /* unused memory was returned, and the ledger updated */
  bool is_sole_importer;    /* after reclaiming, no other process had imports */
  uint64_t orphaned_bytes;  /* bytes that reclaiming could not return */
  openreg_import **imports; /* ordered by offset; they do not overlap */
  size_t import_count, import_capacity;
  struct mapping *mappings;
  struct peer_file *next;
};

/* ---- peer_file.c ----------------------------------------------------------------------------- */

extern struct peer_file *openreg_peer_files; /* list of all files */

/* Errors: SYSTEM (fork handlers cannot be registered). */
openreg_status openreg_imports_lock(void);
void openreg_imports_unlock(void);

/* Fails with INVALID_ARGUMENT and the reason why a handle is rejected. */
openreg_status openreg_import_refuse(const char *why);

/* Opens a process's memory file and returns the size of its arena. The file must belong to this
 * user and be sealed. Errors: INVALID_ARGUMENT (no such file). */
openreg_status openreg_peer_memory_file_open(const openreg_peer_location *location, int *file,
                                             uint64_t *arena_bytes);

/* Returns the file of a live process's device and adds a reference. Errors: INVALID_ARGUMENT (no
 * such process in this group, or its file is not a memory file of such a device), OUT_OF_MEMORY,
 * SYSTEM. */
openreg_status openreg_peer_file_get_locked(openreg_peer peer, int device, struct peer_file **file);
void openreg_peer_file_put_locked(struct peer_file *file);
void openreg_peer_file_drop_locked(struct peer_file *file); /* the file must have no references */

/* Whether the file's process has ended. Checks, and remembers the result. */
bool openreg_peer_file_has_ended_locked(struct peer_file *file);

/* Maps the granules that contain a range. Errors: OUT_OF_MEMORY, SYSTEM. */
openreg_status openreg_peer_file_map_locked(struct peer_file *file, uint64_t offset, uint64_t bytes,
                                            struct mapping **mapping);
void openreg_peer_file_unmap_locked(struct peer_file *file, struct mapping *mapping);

/* ---- imports.c ------------------------------------------------------------------------------- */

/* Opens a handle of memory or of an event. For memory, `point` is the point to wait for. Errors: as
 * openreg_ipc_open. */
openreg_status openreg_import_open(const openreg_ipc_handle *handle, uint32_t kind,
                                   openreg_import **import, uint32_t *point);
void openreg_import_close(openreg_import *import);

/* ---- remote_fence.c -------------------------------------------------------------------------- */

/* A fence: a point in the work of another process. Valid as long as the caller has a reference to
 * the file. The entry may meanwhile be reused, but its points continue to count up. */
struct openreg_remote_fence {
  struct peer_file *file;               /* NULL: no fence */
  struct openreg_shared_signal *signal; /* in the peer's table; may change at any time */
  uint32_t point;
};

/* A fence for a point of the import's entry. */
struct openreg_remote_fence openreg_import_fence(const openreg_import *import, uint32_t point);

/* OK if the point was reached, NOT_READY if not, LAUNCH_FAILURE if it never will be. */
openreg_status openreg_remote_fence_query(const struct openreg_remote_fence *remote);

/* Waits for the point. Errors: as query; NOT_READY means that the deadline passed. */
openreg_status openreg_remote_fence_await(const struct openreg_remote_fence *remote,
                                          int64_t deadline_ns);

/* Makes later work of a stream wait for the point. Errors: as openreg_stream_launch. */
openreg_status openreg_remote_fence_await_on_stream(const struct openreg_remote_fence *remote,
                                                    int device, int stream);

/* ---- reclaimer.c ----------------------------------------------------------------------------- */

/* Starts the thread that waits for processes to end, once. Errors: SYSTEM. */
openreg_status openreg_reclaimer_start_locked(void);

/* Start or stop waiting for the end of the file's process. */
void openreg_reclaimer_watch_locked(struct peer_file *file);
void openreg_reclaimer_unwatch_locked(struct peer_file *file);

/* Returns the memory of an ended process that nobody imports, and tells the ledger how much
 * remains. If another process is doing this, leaves it to the thread. */
void openreg_reclaimer_reclaim_locked(struct peer_file *file);

/* The same if the only change is that one range is no longer imported here. `position` is that of
 * the first import behind it. Checks only that range if this process is the sole importer. */
void openreg_reclaimer_reclaim_range_locked(struct peer_file *file, size_t position,
                                            uint64_t offset, uint64_t bytes);

/* Makes the thread check all files. */
void openreg_reclaimer_wake(void);

/* For a forked child: closes the descriptors that the thread waits for. */
void openreg_reclaimer_abandon(void);

#pragma GCC visibility pop
#endif
