/* chaos.h: what the two halves of the chaos test share. test_chaos.c starts processes, kills them
 * and checks what they leave behind; chaos_worker.c is one of those processes. */
#ifndef OPENREG_TEST_CHAOS_H
#define OPENREG_TEST_CHAOS_H

#include "support.h"

#include <stdatomic.h>

enum { CHAOS_WORKERS = 6 };

/* A slot for one process at a time, in memory that all of them share. */
struct chaos_place {
  _Atomic uint64_t life; /* the number of the process in this slot, from 1; increases when its death
                          * is noticed */
  _Atomic uint64_t steps;
  _Atomic bool must_leave; /* exit voluntarily, whatever it holds */
};

/* Counts of events in all processes: a test without any would pass. */
struct chaos_counts {
  _Atomic uint64_t sent, opened, verified, events_recorded, events_waited_for, refused_of_the_dead,
      failed_with_the_dead, out_of_memory;
};

struct chaos {
  struct chaos_place places[CHAOS_WORKERS];
  struct chaos_counts counts;
  int inboxes[CHAOS_WORKERS][2]; /* nonblocking datagram sockets: to write, to read */
};

/* What a process sends: memory filled with a pattern that follows from `seed`, or an event. */
struct chaos_parcel {
  openreg_ipc_handle handle;
  enum { CHAOS_MEMORY, CHAOS_EVENT } kind;
  int device, sender;
  uint64_t sender_life, seed, bytes;
};

/* Does random things forever. Exits with 0 when it must leave, and with 1 and a message when
 * something is wrong. */
_Noreturn void chaos_work(struct chaos *chaos, int place, uint64_t random_seed);

/* Returns the next number of a sequence (splitmix64). */
static inline uint64_t chaos_next(uint64_t *state) {
  uint64_t mixed = *state += 0x9E3779B97F4A7C15;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
  return mixed ^ (mixed >> 31);
}

#endif
