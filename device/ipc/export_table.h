/* export_table.h: what this process exports of one device, as it knows itself: the tables of
 * exports.h and, beside each, what the exporter decides by, which no other process can change.
 *
 *     export_table.c       tables, entries, the lock
 *     exported_memory.c    ranges of memory: export, withdraw, recall
 *     exported_events.c    entries for events and for records of other processes' events
 *
 * One lock guards the tables of all devices. It is never held while work is given to a stream, for
 * work that is queued takes it.
 */
#ifndef OPENREG_DEVICE_IPC_EXPORT_TABLE_H
#define OPENREG_DEVICE_IPC_EXPORT_TABLE_H

#include "device/ipc/exports.h"

#pragma GCC visibility push(hidden)

enum { OPENREG_EXPORT_BUCKETS = 1024 };
#define OPENREG_NO_EXPORT UINT32_MAX /* no entry */

/* This process's own knowledge of an entry. */
struct exported {
  uint32_t kind;
  uint32_t next; /* in its list: free entries, a bucket, gone events; OPENREG_NO_EXPORT: the last */
  uint64_t nonce, offset, bytes, sent;
  struct openreg_signal signal;
};

struct export_table {
  struct openreg_export *entries; /* NULL: nothing was exported yet */
  struct exported *exported;
  int file;            /* carries this process's locks */
  uint32_t used;       /* entries from here on were never used */
  uint32_t free, gone; /* lists: entries to use again, events that importers still have */
  uint32_t buckets[OPENREG_EXPORT_BUCKETS]; /* of memory, by offset */
};

extern struct export_table openreg_export_tables[OPENREG_MAX_DEVICES];

/* The device's table, made on first use; the lock is held when this succeeds.
 * Errors: as openreg_require_ready; OUT_OF_MEMORY, SYSTEM. */
openreg_status openreg_export_table_lock(int device, struct export_table **table);

/* The lock alone, for tables that are known to be there. */
void openreg_exports_lock(void);
void openreg_exports_unlock(void);

/* ---- entries: all under the lock ------------------------------------------------------------- */

void openreg_export_unlink(struct export_table *table, uint32_t *list, uint32_t index);
void openreg_export_push(struct export_table *table, uint32_t *list, uint32_t index);

/* An entry that is in no list. Errors: OUT_OF_MEMORY. */
openreg_status openreg_export_take(struct export_table *table, uint32_t *index);

/* Makes such an entry stand for something new; or gives it back. Errors: SYSTEM. */
openreg_status openreg_export_fill(struct export_table *table, uint32_t index, uint32_t kind,
                                   uint64_t offset, uint64_t bytes);

/* From now on its handles are stale. */
void openreg_export_clear(struct export_table *table, uint32_t index);

/* Clears the entry when no importer has a lock on the range: none gets one with its handles then,
 * for who has got one looks at the nonce again. */
bool openreg_export_clear_if_unused(struct export_table *table, uint32_t index, uint64_t start,
                                    uint64_t bytes);

/* Frees the entry of an event that was destroyed here, unless importers have it. */
bool openreg_export_free_event(struct export_table *table, uint32_t index);

/* Frees those that importers had and have let go of. */
void openreg_exports_free_gone_events(struct export_table *table);

#pragma GCC visibility pop
#endif
