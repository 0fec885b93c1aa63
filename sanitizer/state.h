/* state.h: the state of a sanitizer, and the functions that its files offer each other. Call all of
 * them with the lock held. */
#ifndef OPENREG_SANITIZER_STATE_H
#define OPENREG_SANITIZER_STATE_H

#include "sanitizer/shadow_cache.h"
#include "sanitizer/vector_clock.h"

#include <pthread.h>

#pragma GCC visibility push(hidden)

/* A finding that the callback has not received yet. */
struct pending {
  struct pending *next;
  openreg_sanitizer_finding finding;
};

struct findings {
  openreg_sanitizer_finding *found; /* in the order in which they were found */
  uint32_t count, capacity;
  uint32_t *table; /* A hash table by kind and call sites: index + 1, or 0 for a free slot. It has 2
                    * * `capacity` slots. */
  struct pending *pending, **last_pending;
};

struct openreg_sanitizer {
  pthread_mutex_t lock;
  openreg_sanitizer_options options;
  struct heap heap;
  struct clocks clocks;
  struct shadow_cache shadow_cache;
  struct findings findings;
  uint64_t generations;
  openreg_sanitizer_counters counters;
};

void openreg_sanitizer_enter(openreg_sanitizer *sanitizer);

/* Releases the lock, then calls the callback for each pending finding. */
void openreg_sanitizer_leave(openreg_sanitizer *sanitizer);

static inline bool openreg_sanitizer_reports(const openreg_sanitizer *sanitizer,
                                             openreg_sanitizer_kind kind) {
  return (sanitizer->options.kinds & OPENREG_SANITIZER_KIND_BIT(kind)) != 0;
}

/* ---- accesses (records.c) -------------------------------------------------------------------- */

/* The access that is being checked. */
struct current_access {
  openreg_sanitizer_thread *thread;
  uint64_t epoch, call_site, tag;
  unsigned mode;
  const struct strided_region *strided;
};

/* Returns the bytes of a record. */
struct strided_region openreg_record_region(const struct record *record);

/* Compares an access with the records of a block and reports conflicts. Then drops the records that
 * the access makes redundant, and adds a record of the access. */
void openreg_records_check(openreg_sanitizer *sanitizer, struct shadow_block *shadow,
                           const struct current_access *current);
bool openreg_records_conflict(const struct shadow_block *shadow,
                              const struct current_access *current);

/* Adds a copy of a record. */
void openreg_records_push(openreg_sanitizer *sanitizer, struct shadow_block *shadow,
                          const struct record *record);

/* Drops the records for which `is_dropped` returns true. NULL drops all. */
void openreg_records_drop(openreg_sanitizer *sanitizer, struct shadow_block *shadow,
                          bool (*is_dropped)(const openreg_sanitizer *, const struct record *,
                                             const void *context),
                          const void *context);
bool openreg_record_is_before_all(const openreg_sanitizer *sanitizer, const struct record *record,
                                  const void *context);

/* ---- blocks (shadow.c) ----------------------------------------------------------------------- */

/* Drops records in the slots of ended threads if there are too many such slots. */
void openreg_shadow_sweep(openreg_sanitizer *sanitizer);
void openreg_shadow_clear(openreg_sanitizer *sanitizer);

/* ---- unwritten bytes (uninitialized.c, move.c) ----------------------------------------------- */

/* Reports reads of unwritten bytes by a launch, and updates which bytes are unwritten. `regions`
 * are the normalized regions of the accesses. */
void openreg_uninitialized_check(openreg_sanitizer *sanitizer,
                                 const openreg_sanitizer_launch *launch,
                                 const struct strided_region *regions);

/* Computes which bytes of `to` become unwritten when `from` is copied there and `unwritten` are the
 * unwritten bytes of the source. Adds them to `moved`, which must be empty. Returns false if that
 * exceeds the work limit. */
bool openreg_move_unwritten(openreg_sanitizer *sanitizer, const struct runs *unwritten,
                            const openreg_sanitizer_region *from,
                            const openreg_sanitizer_region *to, struct runs *moved);

/* ---- findings (findings.c) ------------------------------------------------------------------- */

void openreg_findings_conflict(openreg_sanitizer *sanitizer, const struct shadow_block *shadow,
                               const struct record *first, const struct current_access *second);
void openreg_findings_uninitialized(openreg_sanitizer *sanitizer, const struct shadow_block *shadow,
                                    const struct current_access *reading,
                                    openreg_sanitizer_run bytes);
void openreg_findings_freed(openreg_sanitizer *sanitizer, const struct shadow_block *shadow,
                            const struct current_access *current);
void openreg_findings_clear(openreg_sanitizer *sanitizer);

#pragma GCC visibility pop
#endif
