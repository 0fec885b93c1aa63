/* exports.h: the export table behind an arena. It describes memory and events of this device that
 * other processes may have.
 *
 * The owner of the memory file writes the table, except for `handles_opened` and `latest`.
 * Processes that received a handle read it. Either side must assume that the other one may change
 * any value at any time: it reads a value once, checks it and then uses it. The exporter also keeps
 * a private copy of all data that its decisions depend on.
 *
 * Kernel locks on ranges of the memory file (range_lock.h) tell which processes have what. An
 * importer holds a read lock on the bytes of the memory, or on the bytes of the event's entry, as
 * long as it has them. A range belongs to the exporter alone again when all handles made for it
 * were opened and the exporter can get a write lock on it.
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
  OPENREG_EXPORT_RECORDINGS, /* recordings of another process's event: shared_event.h */
  OPENREG_EXPORT_ARENA,      /* used in handles only, never in an entry: peer_arena.c */
};

/* Alignment of exported memory; all blocks of devices have it. */
enum { OPENREG_EXPORT_ALIGNMENT = 512 };

struct openreg_export {
  _Atomic uint32_t kind;
  uint32_t unused;
  _Atomic uint64_t nonce; /* random; not 0 while exported. Makes old handles stale. */
  /* Of memory: range in the arena. Of recordings: offset is the event's nonce. */
  _Atomic uint64_t offset, bytes;
  _Atomic uint64_t handles_made;   /* number of handles made */
  _Atomic uint64_t handles_opened; /* number of handles opened */
  struct openreg_shared_signal signal;
  _Atomic uint64_t latest; /* of an event: its last recorder; any process writes it */
};

_Static_assert(sizeof(struct openreg_export) == 64, "entries have 64 bytes in all processes");

/* The bytes of the last entry serve as locks. A process that reclaims a dead exporter's memory
 * locks the first of them. */
#define OPENREG_EXPORT_COUNT (OPENREG_EXPORTS_BYTES / sizeof(struct openreg_export) - 1)

/* Position in the memory file of an entry, or of the byte that reclaimers lock. */
static inline uint64_t openreg_export_position(uint64_t arena_bytes, uint64_t index) {
  return arena_bytes + index * sizeof(struct openreg_export);
}

/* Maps the table of a memory file and excludes it from forks and core files. Errors: SYSTEM. */
openreg_status openreg_exports_map(int file, uint64_t arena_bytes, struct openreg_export **entries);
void openreg_exports_unmap(struct openreg_export *entries);

/* An entry of this process for an event. The points of its signal are this process's recordings.
 * The caller must guard the signal with a lock. */
struct openreg_event_entry {
  int device;
  uint32_t index;
  uint64_t nonce;
  struct openreg_export *shared;
  struct openreg_signal *signal;
};

/* Creates an entry for an event of this process or, if `of` is the nonce of another process's
 * event, for recordings of that event. Errors: OUT_OF_MEMORY, SYSTEM. */
openreg_status openreg_exports_add_event(int device, uint64_t of,
                                         struct openreg_event_entry *entry);

/* Frees the entry as soon as no importer has it; no process can import it from now on. After
 * streams were shut down the entry is left unchanged, because dropped work was not reached. */
void openreg_exports_remove_event(const struct openreg_event_entry *entry);

#pragma GCC visibility pop
#endif
