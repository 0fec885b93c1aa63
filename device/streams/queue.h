/* queue.h: the work that waits for a stream's worker: a ring with any number of producers.
 *
 * A bounded ring, not linked nodes: submitting allocates nothing, memory stays where it is, and a
 * producer that runs ahead is held back. It has as many places as CUDA lets launches wait.
 *
 * The ticket that a producer takes from the timeline is its place: ticket t belongs to slot t mod
 * SLOTS. The producer of t waits until finished > t - SLOTS, writes the task, and publishes it by
 * storing slot.published = t + 1. The worker looks at the slot of ticket `finished` alone: when its
 * published is finished + 1 it runs the task and finishes it on the timeline.
 *
 * - Each task runs once, in the order of tickets: tickets are different, the worker runs a slot's
 *   task only with finished == t and leaves finished == t + 1, and published == t + 1 for one t.
 *   A ticket that was taken for inline work is never published; its holder finishes it, and until
 *   then the worker finds nothing to run.
 * - No task is overwritten before it has run: the producer of t + SLOTS waits for finished > t,
 *   which is stored after the task has run and read with acquire.
 * - Producers never wait for each other, but when the ring is full. One that is interrupted between
 *   taking a ticket and publishing delays the worker, as it must, for the order is given away.
 * - No wake-up is lost, by the rule of futex.h: the worker stores asleep = 1, then reads `finished`
 *   and `published` again, then sleeps; a producer stores `published`, the holder of inline work
 *   `finished`, and then reads `asleep`. All of these are sequentially consistent. The holder need
 *   not wake when it finds submitted == finished: a later producer will.
 *
 * test/device/streams/test_queue_model.c runs these steps in every order that there is.
 */
#ifndef OPENREG_DEVICE_STREAMS_QUEUE_H
#define OPENREG_DEVICE_STREAMS_QUEUE_H

#include "device/device.h"
#include "device/streams/timeline.h"

#pragma GCC visibility push(hidden)

struct task {
  enum { TASK_FUNCTION, TASK_WAIT, TASK_STAMP } kind;
  bool urgent; /* counted by openreg_priority_add */
  void *note;  /* the tracer's (trace.h); NULL: none */
  union {
    struct {
      openreg_stream_function function;
      void *data;
    };
    struct {
      struct timeline *timeline;
      uint64_t point;
    } wait;
    struct {
      openreg_event *event;
      uint64_t recording;
    } stamp;
  };
};

/* A line each, so that producers and the worker do not share one. */
struct slot {
  _Alignas(OPENREG_CACHE_LINE_BYTES) _Atomic uint64_t published;
  struct task task;
};

_Static_assert(sizeof(struct slot) == OPENREG_CACHE_LINE_BYTES, "one cache line each");
_Static_assert((OPENREG_STREAM_QUEUE_LENGTH & (OPENREG_STREAM_QUEUE_LENGTH - 1)) == 0,
               "slots are found with a mask");

struct queue {
  struct slot *slots; /* OPENREG_STREAM_QUEUE_LENGTH of them; written before the first ticket */
  _Atomic uint32_t asleep;
};

/* Allocates the slots. Errors: OUT_OF_MEMORY. */
openreg_status openreg_queue_open(struct queue *queue);

/* Puts the task in the place of a ticket taken from the timeline; waits while the ring is full. */
void openreg_queue_put(struct queue *queue, struct timeline *timeline, uint64_t ticket,
                       const struct task *task);

/* Whether the ring is full for a ticket, and if so, behind which point the wait for room ends: half
 * of the ring is free then, else a producer that is always ahead would be woken for every task. */
static inline bool openreg_queue_is_full(const struct timeline *timeline, uint64_t ticket,
                                         uint64_t *room_at) {
  *room_at = ticket - OPENREG_STREAM_QUEUE_LENGTH / 2;
  return ticket >= openreg_timeline_finished(timeline) + OPENREG_STREAM_QUEUE_LENGTH;
}

/* Whether a task was put in the place of a ticket that is not finished. */
bool openreg_queue_has_task(const struct queue *queue, uint64_t ticket);

/* Waits for the task of ticket `finished` and returns the ticket. The task is that of
 * openreg_queue_slot until the ticket is finished. By the worker alone. */
uint64_t openreg_queue_await(struct queue *queue, struct timeline *timeline);

static inline struct slot *openreg_queue_slot(const struct queue *queue, uint64_t ticket) {
  return &queue->slots[ticket & (OPENREG_STREAM_QUEUE_LENGTH - 1)];
}

/* Wakes the worker if it sleeps: after a store that it waits for. */
static inline void openreg_queue_wake(struct queue *queue) {
  if (atomic_load(&queue->asleep) != 0 && atomic_exchange(&queue->asleep, 0) != 0)
    openreg_futex_wake(&queue->asleep, OPENREG_WAKE_ONE);
}

#pragma GCC visibility pop
#endif
