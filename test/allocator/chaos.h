/* chaos.h: what the two halves of the chaos test share: test_chaos.c starts processes, kills them
 * and looks at what they leave; chaos_worker.c is one of those processes.
 */
#ifndef OPENREG_TEST_CHAOS_H
#define OPENREG_TEST_CHAOS_H

#include "support.h"

#include <stdatomic.h>

enum { CHAOS_WORKERS = 6 };

/* A place for one process at a time, in memory that all of them share. */
struct chaos_place {
  _Atomic uint64_t life; /* which process in this place, from 1; grows when it was seen dead */
  _Atomic uint64_t steps;
  _Atomic bool must_leave; /* ends of itself, with whatever it has */
};

/* What happened in all processes: a test in which nothing did would pass. */
struct chaos_counts {
  _Atomic uint64_t sent, opened, verified, events_recorded, events_waited_for, refused_of_the_dead,
      failed_with_the_dead, out_of_memory;
};

struct chaos {
  struct chaos_place places[CHAOS_WORKERS];
  struct chaos_counts counts;
  int inboxes[CHAOS_WORKERS][2]; /* sockets for datagrams that do not wait: to write, to read */
};

/* What is sent: memory full of a pattern that follows from `seed`, or an event. */
struct chaos_parcel {
  openreg_ipc_handle handle;
  enum { CHAOS_MEMORY, CHAOS_EVENT } kind;
  int device, sender;
  uint64_t sender_life, seed, bytes;
};

/* Does random things for ever. Exits with 0 when it must leave, with 1 and a sentence when anything
 * is not as it must be. */
_Noreturn void chaos_work(struct chaos *chaos, int place, uint64_t random_seed);

/* The next number of a sequence (splitmix64). */
static inline uint64_t chaos_next(uint64_t *state) {
  uint64_t mixed = *state += 0x9E3779B97F4A7C15;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
  return mixed ^ (mixed >> 31);
}

#endif
