/* exports.h: the table behind an arena, which says what of this device's memory and which of its
 * events other processes may have.
 *
 * The process whose memory file it is writes the table, all but `received` and `latest`; those who
 * were given a handle read it. To either side it is memory that another process may change at any
 * time: a value is read once, checked, and then used. What the exporter decides by, it keeps in
 * memory of its own as well.
 *
 * Who has what is said by the kernel's locks on ranges of the memory file (range_lock.h): an
 * importer holds a read lock on the bytes of the memory, or on those of the event's entry, as long
 * as it has them. A range is the exporter's alone again when all handles that were made for it were
 * opened and a write lock on it can be had.
 */
#ifndef OPENREG_DEVICE_IPC_EXPORTS_H
#define OPENREG_DEVICE_IPC_EXPORTS_H

#include "device/ipc/shared_signal.h"
#include "device/memory/arena.h"

#pragma GCC visibility push(hidden)

enum {
  OPENREG_EXPORT_FREE,
  OPENREG_EXPORT_MEMORY,
  OPENREG_EXPORT_EVENT,
  OPENREG_EXPORT_RECORDS, /* of another process's event, made by this one: shared_event.h */
  OPENREG_EXPORT_ARENA,   /* of handles alone, never of an entry: peer_arena.c */
};

/* Exported memory begins at a multiple of this, as all blocks of devices do. */
enum { OPENREG_EXPORT_ALIGNMENT = 512 };

struct openreg_export {
  _Atomic uint32_t kind;
  uint32_t unused;
  _Atomic uint64_t nonce; /* random, never 0 while this is exported: what makes handles stale */
  _Atomic uint64_t offset, bytes; /* of memory: where in the arena; of records: the event's nonce */
  _Atomic uint64_t sent;          /* handles made */
  _Atomic uint64_t received;      /* handles opened */
  struct openreg_shared_signal signal;
  _Atomic uint64_t latest; /* of an event: who recorded it last; whoever has the event writes it */
};

_Static_assert(sizeof(struct openreg_export) == 64, "entries have 64 bytes in all processes");

/* The bytes of the last entry are for locks: whoever gives memory of a dead exporter back holds the
 * first of them. */
#define OPENREG_EXPORT_COUNT (OPENREG_EXPORTS_BYTES / sizeof(struct openreg_export) - 1)

/* Where in the memory file an entry, or the byte that reclaimers lock, lies. */
static inline uint64_t openreg_export_position(uint64_t arena_bytes, uint64_t index) {
  return arena_bytes + index * sizeof(struct openreg_export);
}

/* Maps the table of a memory file, out of forks and core files. Errors: SYSTEM. */
openreg_status openreg_exports_map(int file, uint64_t arena_bytes, struct openreg_export **entries);
void openreg_exports_unmap(struct openreg_export *entries);

/* An entry of this process for an event, whose signal is the points at which this process recorded
 * it. A lock of the caller's guards the signal. */
struct openreg_event_entry {
  int device;
  uint32_t index;
  uint64_t nonce;
  struct openreg_export *shared;
  struct openreg_signal *signal;
};

/* Makes an entry for an event of this process, or, with the nonce `of` of another process's event,
 * for records of that. Errors: OUT_OF_MEMORY, SYSTEM. */
openreg_status openreg_exports_add_event(int device, uint64_t of,
                                         struct openreg_event_entry *entry);

/* Takes the entry back as soon as no importer has it; nobody comes to have it from now on. After
 * streams were shut down it is left as it is, for work that was dropped is not reached. */
void openreg_exports_remove_event(const struct openreg_event_entry *entry);

#pragma GCC visibility pop
#endif
