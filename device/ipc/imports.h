/* imports.h: memory and events of other processes, as they are had here.
 *
 *     peer_file.c      another process's memory file: finding, checking, mapping, locking
 *     peer_arena.c     all of it at once, without locks
 *     imports.c        what was imported from it: opening handles, letting go
 *     reclaimer.c      what a process that ended leaves: its importers give back the rest
 *     remote_point.c   waiting for work that another process had submitted
 *
 * One lock guards all of it, for the time of a few system calls. It is not held while waiting, nor
 * while work is given to a stream. "Locked" in a name says that the caller has it.
 *
 * A process that ended leaves its memory file to those who map it: the kernel keeps all of it as
 * long as any of them does. They give back what none of them imports.
 */
#ifndef OPENREG_DEVICE_IPC_IMPORTS_H
#define OPENREG_DEVICE_IPC_IMPORTS_H

#include "device/ipc/exports.h"
#include "device/ledger/ledger.h"

#pragma GCC visibility push(hidden)

/* Whole granules of a peer's file, mapped behind the arena of the same device; for all imports that
 * lie in just these. */
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
  uint64_t offset, bytes;  /* in the file; this process has a read lock on them */
  unsigned count;          /* how often it was opened and not closed */
  struct mapping *mapping; /* of memory */
  void *address;
  struct openreg_import *next_in_bucket;
  struct openreg_shared_event *event; /* of an event: what all that opened it here share */
} openreg_import;

struct peer_file {
  openreg_peer peer;
  int device, pid;
  int file;  /* carries this process's locks: no mapping refers to its description */
  int watch; /* a pidfd; -1 when there is none, or none any more */
  struct openreg_export *entries;
  uint64_t arena_bytes;
  unsigned references;          /* by imports, by waits, and by events that its process recorded */
  bool has_ended, is_reclaimed; /* what nobody imports was given back, and the ledger told */
  bool is_sole_importer;        /* and nobody had any but what is imported here */
  uint64_t remains;             /* bytes that were not given back when it was reclaimed */
  openreg_import **imports;     /* in the order of offsets; they do not overlap */
  size_t import_count, import_room;
  struct mapping *mappings;
  struct peer_file *next;
};

/* ---- peer_file.c ----------------------------------------------------------------------------- */

extern struct peer_file *openreg_peer_files; /* all */

/* Errors: SYSTEM, when forks cannot be watched. */
openreg_status openreg_imports_lock(void);
void openreg_imports_unlock(void);

/* INVALID_ARGUMENT, with why the handle is refused. */
openreg_status openreg_import_refuse(const char *why);

/* Opens a process's memory file, of this user and sealed, and tells how long its arena is.
 * Errors: INVALID_ARGUMENT when what the process has there is no such file. */
openreg_status openreg_memory_file_open(const openreg_peer_location *location, int *file,
                                        uint64_t *arena_bytes);

/* The file of a live process's device, with one more reference. Errors: INVALID_ARGUMENT when there
 * is no such process of this group, or when what it has there is no memory file of such a device;
 * OUT_OF_MEMORY, SYSTEM. */
openreg_status openreg_peer_file_get_locked(openreg_peer peer, int device, struct peer_file **file);
void openreg_peer_file_put_locked(struct peer_file *file);
void openreg_peer_file_drop_locked(struct peer_file *file); /* that has no references */

/* Asks, and remembers that it has ended. */
bool openreg_peer_file_has_ended_locked(struct peer_file *file);

/* The mapping of the granules around a range. Errors: OUT_OF_MEMORY, SYSTEM. */
openreg_status openreg_peer_file_map_locked(struct peer_file *file, uint64_t offset, uint64_t bytes,
                                            struct mapping **mapping);
void openreg_peer_file_unmap_locked(struct peer_file *file, struct mapping *mapping);

/* ---- imports.c ------------------------------------------------------------------------------- */

/* Opens a handle of memory or of an event. `point` is that of a memory's handle. Errors: as
 * openreg_ipc_open. */
openreg_status openreg_import_open(const openreg_ipc_handle *handle, uint32_t kind,
                                   openreg_import **import, uint32_t *point);
void openreg_import_close(openreg_import *import);

/* ---- remote_point.c -------------------------------------------------------------------------- */

/* A point in the work of another process. Good as long as the caller has the file; the entry may
 * come to stand for something else meanwhile, for its numbers go on. */
struct openreg_remote_point {
  struct peer_file *file;               /* NULL: there is no such point */
  struct openreg_shared_signal *signal; /* in its table, which may change at any time */
  uint32_t point;
};

/* A point of the import's own entry. */
struct openreg_remote_point openreg_import_point(const openreg_import *import, uint32_t point);

/* OK when the point was reached, NOT_READY when not, LAUNCH_FAILURE when it never will be. */
openreg_status openreg_remote_point_query(const struct openreg_remote_point *remote);

/* Waits for that. Other errors: NOT_READY when the deadline passed. */
openreg_status openreg_remote_point_await(const struct openreg_remote_point *remote,
                                          int64_t deadline_ns);

/* Makes later work of a stream wait for the point. Errors: as openreg_stream_launch. */
openreg_status openreg_remote_point_await_on_stream(const struct openreg_remote_point *remote,
                                                    int device, int stream);

/* ---- reclaimer.c ----------------------------------------------------------------------------- */

/* Starts the thread that waits for the ends of processes, once. Errors: SYSTEM. */
openreg_status openreg_reclaimer_start_locked(void);

/* From now on the thread waits for the end of the file's process, too; or does not any more. */
void openreg_reclaimer_watch_locked(struct peer_file *file);
void openreg_reclaimer_unwatch_locked(struct peer_file *file);

/* Gives back what nobody imports of the memory of a process that ended, and tells the ledger what
 * remains. Leaves it to the thread when another process is at it. */
void openreg_reclaimer_reclaim_locked(struct peer_file *file);

/* The same when all that has changed is that a range is imported here no more; imports from `place`
 * on are those behind it. At the cost of one range, when this process is the sole importer. */
void openreg_reclaimer_reclaim_range_locked(struct peer_file *file, size_t place, uint64_t offset,
                                            uint64_t bytes);

/* Has the thread look after all files. */
void openreg_reclaimer_wake(void);

/* In a forked child: closes what the thread waits with. */
void openreg_reclaimer_abandon(void);

#pragma GCC visibility pop
#endif
