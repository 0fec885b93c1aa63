/* state.h: the inside of a sanitizer, and what its parts do for each other. All is called with the
 * lock held. */
#ifndef OPENREG_SANITIZER_STATE_H
#define OPENREG_SANITIZER_STATE_H

#include "sanitizer/shadow_cache.h"
#include "sanitizer/vector_clock.h"

#include <pthread.h>

#pragma GCC visibility push(hidden)

/* A finding that the callback is to be told of. */
struct news {
  struct news *next;
  openreg_sanitizer_finding finding;
};

struct findings {
  openreg_sanitizer_finding *found; /* in the order in which they were */
  uint32_t count, capacity;
  uint32_t *table; /* index + 1 by kind and sites; 0: free. Twice `capacity`. */
  struct news *news, **last_news;
};

struct openreg_sanitizer {
  pthread_mutex_t lock;
  openreg_sanitizer_options options;
  struct heap heap;
  struct order order;
  struct extents extents;
  struct findings findings;
  uint64_t generations;
  openreg_sanitizer_counters counters;
};

void openreg_sanitizer_enter(openreg_sanitizer *sanitizer);

/* Gives the lock back, then calls back what was found. */
void openreg_sanitizer_leave(openreg_sanitizer *sanitizer);

static inline bool openreg_sanitizer_reports(const openreg_sanitizer *sanitizer,
                                             openreg_sanitizer_kind kind) {
  return (sanitizer->options.kinds & OPENREG_SANITIZER_KIND_BIT(kind)) != 0;
}

/* ---- accesses (records.c) -------------------------------------------------------------------- */

/* An access that is told now. */
struct doing {
  openreg_sanitizer_actor *actor;
  uint64_t time, site, tag;
  unsigned mode;
  const struct box *box;
};

/* The bytes of a record. */
struct box openreg_record_box(const struct record *record);

/* Compares an access with those that are remembered of an extent, reports what conflicts, drops
 * what need not be remembered beside it, and remembers it. */
void openreg_records_tell(openreg_sanitizer *sanitizer, struct extent *extent,
                          const struct doing *doing);
bool openreg_records_conflict(const struct extent *extent, const struct doing *doing);

/* Remembers one more, a copy that counts as one. */
void openreg_records_push(openreg_sanitizer *sanitizer, struct extent *extent,
                          const struct record *record);

/* Drops those for which `is_dropped` holds, of which NULL means: all. */
void openreg_records_drop(openreg_sanitizer *sanitizer, struct extent *extent,
                          bool (*is_dropped)(const openreg_sanitizer *, const struct record *,
                                             const void *context),
                          const void *context);
bool openreg_record_is_settled(const openreg_sanitizer *sanitizer, const struct record *record,
                               const void *context);

/* ---- blocks (shadow.c) ----------------------------------------------------------------------- */

/* Drops what the slots of actors that ended hold, if these are too many. */
void openreg_shadow_sweep(openreg_sanitizer *sanitizer);
void openreg_shadow_clear(openreg_sanitizer *sanitizer);

/* ---- unwritten bytes (unwritten.c) ----------------------------------------------------------- */

/* Judges and follows the accesses of a launch, of which `boxes` are the regions. */
void openreg_unwritten_tell(openreg_sanitizer *sanitizer, const openreg_sanitizer_launch *launch,
                            const struct box *boxes);

/* Which bytes of `to` are unwritten when those of `from` are moved there, of which `unwritten` are.
 * Puts them into `moved`, which is empty. Returns false where that would be too much work. */
bool openreg_move_unwritten(openreg_sanitizer *sanitizer, const struct runs *unwritten,
                            const openreg_sanitizer_region *from,
                            const openreg_sanitizer_region *to, struct runs *moved);

/* ---- findings (findings.c) ------------------------------------------------------------------- */

void openreg_findings_conflict(openreg_sanitizer *sanitizer, const struct extent *extent,
                               const struct record *first, const struct doing *second);
void openreg_findings_unwritten(openreg_sanitizer *sanitizer, const struct extent *extent,
                                const struct doing *reading, openreg_sanitizer_run bytes);
void openreg_findings_freed(openreg_sanitizer *sanitizer, const struct extent *extent,
                            const struct doing *doing);
void openreg_findings_clear(openreg_sanitizer *sanitizer);

#pragma GCC visibility pop
#endif
