/* order.h: what is before what.
 *
 * An actor has a slot and, in it, a time, which goes on when something that it does may be before
 * what others do later. Its clock says, for each slot, up to which time it is after what was done
 * there. So what was done in a slot at a time t is before what an actor does now exactly if
 *     times[slot] >= t,
 * which is one comparison (an "epoch" of FastTrack: Flanagan and Freund, PLDI 2009).
 *
 * Time goes on as late as possible: not when an actor is heard by another, but when it does
 * something after that. So all accesses between two recordings have one time, and a host thread
 * that only submits always has the same, which makes its submissions free: who has heard an actor's
 * clock, and hears it unchanged, learns nothing.
 *
 * Slots are few. That of an actor that ended is another's if that one begins after all that was
 * done in it, or if nothing refers to it. Times go on, so that what knew of the former owner knows
 * nothing of the next.
 */
#ifndef OPENREG_SANITIZER_ORDER_H
#define OPENREG_SANITIZER_ORDER_H

#include "sanitizer/heap.h"
#include "sanitizer/sanitizer.h"

#pragma GCC visibility push(hidden)

struct clock {
  uint64_t *times;   /* of each slot; zeros behind the last one */
  uint32_t capacity; /* at least order.capacity */
};

struct openreg_sanitizer_actor {
  struct clock clock;
  uint32_t slot;
  bool is_heard; /* at its time: then that goes on before it does more */
  openreg_sanitizer_actor_kind kind;
  int group;
  uint64_t tag, serial;
  uint64_t version; /* changes with the clock */
  /* Whose clock it heard last, and which version. */
  uint64_t heard_serial, heard_version;
};

struct slot {
  openreg_sanitizer_actor *actor; /* NULL: none that lives */
  uint64_t time;                  /* the last of all who ended */
  uint64_t references;            /* how many records have it */
};

/* Where actors that ended are heard from, by those who synchronize with their group. */
struct ended_group {
  int group;
  struct clock clock;
};

enum { REMEMBERED = 4 };

/* Something that was done with a token: the last ones are remembered for sentences. */
struct recording {
  uint32_t slot;
  uint64_t time, site, number; /* counts the recordings of the token; 0: there was none */
};
struct waiting {
  uint64_t serial, site; /* of the actor that waited; 0: there was none */
  uint64_t number;       /* of the recording that it waited for */
};

struct openreg_sanitizer_token {
  openreg_sanitizer_token *next, *previous;
  uint64_t tag;
  uint32_t references;
  struct clock clock; /* of `count` slots; no more are looked at */
  uint32_t count;
  uint64_t serial, version; /* of the recorded actor's clock */
  bool is_everything;       /* there was no memory for the clock */
  uint64_t recordings, waits;
  struct recording recorded[REMEMBERED]; /* number n at n % REMEMBERED */
  struct waiting waited[REMEMBERED];
};

struct order {
  struct heap *heap;
  struct slot *slots;
  uint32_t count, capacity, live;
  uint64_t serials;
  struct ended_group *groups;
  uint32_t group_count;
  openreg_sanitizer_token *tokens;
  uint64_t token_count;
};

void openreg_order_clear(struct order *order);

/* Returns NULL when there is no memory. */
openreg_sanitizer_actor *openreg_order_begin(struct order *order, openreg_sanitizer_actor_kind kind,
                                             int group, uint64_t tag,
                                             openreg_sanitizer_actor *parent);
void openreg_order_end(struct order *order, openreg_sanitizer_actor *actor);

/* How many slots have no living actor, but something that refers to them. */
uint32_t openreg_order_dead(const struct order *order);

void openreg_order_join(struct order *order, openreg_sanitizer_actor *from,
                        openreg_sanitizer_actor *to);
void openreg_order_synchronize(struct order *order, int group, openreg_sanitizer_actor *to);

/* The time of what an actor does now. */
static inline uint64_t openreg_order_now(openreg_sanitizer_actor *actor) {
  if (actor->is_heard) {
    actor->is_heard = false;
    actor->clock.times[actor->slot]++;
    actor->version++;
  }
  return actor->clock.times[actor->slot];
}

static inline bool openreg_order_has(const openreg_sanitizer_actor *actor, uint32_t slot,
                                     uint64_t time) {
  return actor->clock.times[slot] >= time;
}

/* Whether what was done in a slot is before what any living actor does, and any that will live. */
bool openreg_order_is_settled(const struct order *order, uint32_t slot, uint64_t time);

/* ---- tokens (token.c) ------------------------------------------------------------------------ */

openreg_sanitizer_token *openreg_token_create(struct order *order, uint64_t tag);
void openreg_token_release(struct order *order, openreg_sanitizer_token *token);

/* Returns false when there is no memory. */
bool openreg_token_record(struct order *order, openreg_sanitizer_token *token,
                          openreg_sanitizer_actor *actor, uint64_t site);
void openreg_token_wait(struct order *order, openreg_sanitizer_actor *actor,
                        openreg_sanitizer_token *token, uint64_t site);

/* Finds a token whose recording after (slot, time) would have been enough, had `actor` waited for
 * that one and not for another; NULL: there is none. */
const openreg_sanitizer_token *openreg_token_find(const struct order *order, uint32_t slot,
                                                  uint64_t time,
                                                  const openreg_sanitizer_actor *actor,
                                                  struct recording *recorded,
                                                  struct waiting *waited);

/* ---- clocks ---------------------------------------------------------------------------------- */

/* Returns false when there is no memory. */
bool openreg_clock_grow(struct heap *heap, struct clock *clock, uint32_t capacity);
void openreg_clock_free(struct heap *heap, struct clock *clock);

/* Takes over all that a clock of `count` slots has. Returns whether that was anything. */
bool openreg_clock_join(uint64_t times[], const uint64_t other[], uint32_t count);

/* `to` hears the clock of an actor, as it was at a version. */
void openreg_order_hear(struct order *order, openreg_sanitizer_actor *to, const uint64_t times[],
                        uint32_t count, uint64_t serial, uint64_t version);

/* All that anybody did until now is before what `to` does from now. */
void openreg_order_join_everything(struct order *order, openreg_sanitizer_actor *to);

#pragma GCC visibility pop
#endif
