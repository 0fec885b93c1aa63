/* export_table.h: what this process exports of each device. Next to each table of exports.h, which
 * other processes can access, there is private data. The exporter bases its decisions only on the
 * private data.
 *
 *     export_table.c       tables, entries, the lock
 *     exported_memory.c    ranges of memory: export, withdraw, recall
 *     exported_events.c    entries for events and for recordings of other processes' events
 *
 * One lock guards the tables of all devices. It is never held while submitting work to a stream,
 * because queued work takes it.
 */
#ifndef OPENREG_DEVICE_IPC_EXPORT_TABLE_H
#define OPENREG_DEVICE_IPC_EXPORT_TABLE_H

#include "device/ipc/exports.h"

#pragma GCC visibility push(hidden)

enum { OPENREG_EXPORT_BUCKETS = 1024 };
#define OPENREG_NO_EXPORT UINT32_MAX /* no entry */

/* This process's private data about an entry. */
struct exported {
  uint32_t kind;
  uint32_t next; /* in its list: free entries, a bucket or destroyed events */
  uint64_t nonce, offset, bytes, handles_made;
  struct openreg_signal signal;
};

struct export_table {
  struct openreg_export *entries; /* NULL: nothing was exported yet */
  struct exported *exported;
  int file;      /* descriptor that holds this process's locks */
  uint32_t used; /* entries from this index on were never used */
  uint32_t free,
      destroyed; /* lists: reusable entries; destroyed events that importers still have */
  uint32_t buckets[OPENREG_EXPORT_BUCKETS]; /* entries of memory, hashed by offset */
};

extern struct export_table openreg_export_tables[OPENREG_MAX_DEVICES];

/* Locks the device's table, which the first call creates. The caller holds the lock on success.
 * Errors: as openreg_require_ready; OUT_OF_MEMORY, SYSTEM. */
openreg_status openreg_export_table_lock(int device, struct export_table **table);

/* Only the lock, for tables that already exist. */
void openreg_exports_lock(void);
void openreg_exports_unlock(void);

/* ---- entries: call these under the lock ------------------------------------------------------ */

void openreg_export_unlink(struct export_table *table, uint32_t *list, uint32_t index);
void openreg_export_push(struct export_table *table, uint32_t *list, uint32_t index);

/* Returns an entry that is in no list. Errors: OUT_OF_MEMORY. */
openreg_status openreg_export_allocate(struct export_table *table, uint32_t *index);

/* Makes an allocated entry represent something new. On failure, frees the entry. Errors: SYSTEM. */
openreg_status openreg_export_fill(struct export_table *table, uint32_t index, uint32_t kind,
                                   uint64_t offset, uint64_t bytes);

/* Makes the entry's handles stale. */
void openreg_export_clear(struct export_table *table, uint32_t index);

/* Clears the entry if no importer has a lock on the range. No importer can get one with its handles
 * afterwards, because importers check the nonce again after locking. */
bool openreg_export_clear_if_unused(struct export_table *table, uint32_t index, uint64_t start,
                                    uint64_t bytes);

/* Frees the entry of an event that was destroyed here. Returns false if importers still have it. */
bool openreg_export_free_event(struct export_table *table, uint32_t index);

/* Frees the entries of destroyed events that importers have released since. */
void openreg_exports_free_destroyed_events(struct export_table *table);

#pragma GCC visibility pop
#endif
