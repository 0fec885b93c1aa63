/* vector_clock.h: which operations happen before which.
 *
 * Each thread has a slot and, in it, an epoch. The epoch advances before the thread performs
 * something that other threads are not ordered after yet. The thread's vector clock holds, for each
 * slot, the latest epoch whose operations happen before the thread's next operation. So an
 * operation in a slot at epoch e happens before what a thread does now exactly if
 *     epochs[slot] >= e
 * which is one comparison (the "epochs" of FastTrack: Flanagan and Freund, PLDI 2009).
 *
 * Epochs advance as late as possible: not when another thread acquires the clock, but when this
 * thread performs an operation after that. So all accesses between two records have one epoch. A
 * host thread that only submits work stays at one epoch, which makes its submissions cheap: to
 * acquire an unchanged clock a second time does nothing.
 *
 * Slots are few. A new thread takes over the slot of an ended thread if it begins after everything
 * that was done in that slot, or if no record refers to the slot. Epochs continue to grow, so
 * clocks that include the former owner do not include the new one.
 */
#ifndef OPENREG_SANITIZER_ORDER_H
#define OPENREG_SANITIZER_ORDER_H

#include "sanitizer/heap.h"
#include "sanitizer/sanitizer.h"

#pragma GCC visibility push(hidden)

struct vector_clock {
  uint64_t *epochs;  /* one for each slot; zeros after the last slot */
  uint32_t capacity; /* at least clocks.capacity */
};

struct openreg_sanitizer_thread {
  struct vector_clock clock;
  uint32_t slot;
  bool is_acquired; /* another thread acquired this epoch: advance it before the next operation */
  openreg_sanitizer_thread_kind kind;
  int group;
  uint64_t tag, id;
  uint64_t version; /* changes with the clock */
  /* The thread and the version that it acquired last. */
  uint64_t acquired_id, acquired_version;
};

struct slot {
  openreg_sanitizer_thread *thread; /* NULL: no live thread */
  uint64_t epoch;                   /* the last epoch of all ended threads */
  uint64_t references;              /* number of records that refer to it */
};

/* The joined clocks of a group's ended threads, for those who synchronize with the group. */
struct ended_group {
  int group;
  struct vector_clock clock;
};

enum { REMEMBERED = 4 };

/* One record of, or wait for, a token. A token remembers the last few, to explain findings. */
struct recording {
  uint32_t slot;
  uint64_t epoch, call_site, number; /* counts the records of the token; 0: unused */
};
struct waiting {
  uint64_t id, call_site; /* id of the waiting thread; 0: unused */
  uint64_t number;        /* of the record that it waited for */
};

struct openreg_sanitizer_token {
  openreg_sanitizer_token *next, *previous;
  uint64_t tag;
  uint32_t references;
  struct vector_clock clock; /* has `count` slots; later slots are not read */
  uint32_t count;
  uint64_t id, version; /* of the recorded thread's clock */
  bool is_everything;   /* there was no memory for the clock */
  uint64_t recordings, waits;
  struct recording recorded[REMEMBERED]; /* record n is at n % REMEMBERED */
  struct waiting waited[REMEMBERED];
};

struct clocks {
  struct heap *heap;
  struct slot *slots;
  uint32_t count, capacity, live;
  uint64_t last_id;
  struct ended_group *groups;
  uint32_t group_count;
  openreg_sanitizer_token *tokens;
  uint64_t token_count;
};

void openreg_clock_clear(struct clocks *clocks);

/* Returns NULL if there is no memory. */
openreg_sanitizer_thread *openreg_clock_begin_thread(struct clocks *clocks,
                                                     openreg_sanitizer_thread_kind kind, int group,
                                                     uint64_t tag,
                                                     openreg_sanitizer_thread *parent);
void openreg_clock_end_thread(struct clocks *clocks, openreg_sanitizer_thread *thread);

/* Returns the number of slots that have no live thread, but records that refer to them. */
uint32_t openreg_clock_dead_slots(const struct clocks *clocks);

void openreg_clock_acquire_thread(struct clocks *clocks, openreg_sanitizer_thread *from,
                                  openreg_sanitizer_thread *to);
void openreg_clock_acquire_group(struct clocks *clocks, int group, openreg_sanitizer_thread *to);

/* Returns the epoch of the thread's next operation. */
static inline uint64_t openreg_clock_now(openreg_sanitizer_thread *thread) {
  if (thread->is_acquired) {
    thread->is_acquired = false;
    thread->clock.epochs[thread->slot]++;
    thread->version++;
  }
  return thread->clock.epochs[thread->slot];
}

static inline bool openreg_clock_includes(const openreg_sanitizer_thread *thread, uint32_t slot,
                                          uint64_t epoch) {
  return thread->clock.epochs[slot] >= epoch;
}

/* Returns whether an operation happens before everything that all live threads, and all future
 * ones, do from now on. */
bool openreg_clock_is_before_all(const struct clocks *clocks, uint32_t slot, uint64_t epoch);

/* ---- tokens (token.c) ------------------------------------------------------------------------ */

openreg_sanitizer_token *openreg_token_create(struct clocks *clocks, uint64_t tag);
void openreg_token_release(struct clocks *clocks, openreg_sanitizer_token *token);

/* Returns false if there is no memory. */
bool openreg_token_record(struct clocks *clocks, openreg_sanitizer_token *token,
                          openreg_sanitizer_thread *thread, uint64_t call_site);
void openreg_token_wait(struct clocks *clocks, openreg_sanitizer_thread *thread,
                        openreg_sanitizer_token *token, uint64_t call_site);

/* Finds a token that was recorded after (slot, epoch), and that `thread` waited for too early or
 * too late. NULL: there is none. `*recorded` and `*waited` receive that record and that wait. */
const openreg_sanitizer_token *openreg_token_find(const struct clocks *clocks, uint32_t slot,
                                                  uint64_t epoch,
                                                  const openreg_sanitizer_thread *thread,
                                                  struct recording *recorded,
                                                  struct waiting *waited);

/* ---- clocks ---------------------------------------------------------------------------------- */

/* Returns false if there is no memory. */
bool openreg_vector_clock_grow(struct heap *heap, struct vector_clock *clock, uint32_t capacity);
void openreg_vector_clock_free(struct heap *heap, struct vector_clock *clock);

/* Sets each entry to the larger one. Returns whether that changed anything. */
bool openreg_vector_clock_join(uint64_t epochs[], const uint64_t other[], uint32_t count);

/* Thread `to` acquires the clock that thread `id` had at a version. */
void openreg_clock_acquire(struct clocks *clocks, openreg_sanitizer_thread *to,
                           const uint64_t epochs[], uint32_t count, uint64_t id, uint64_t version);

/* Everything that all threads did so far happens before what `to` does from now on. */
void openreg_clock_acquire_all(struct clocks *clocks, openreg_sanitizer_thread *to);

#pragma GCC visibility pop
#endif
