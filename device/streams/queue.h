/* queue.h: the work that waits for a stream's worker: a bounded ring with any number of producers.
 *
 * A ring is used instead of linked nodes because submitting then allocates nothing, memory stays in
 * place, and a producer that runs ahead is held back. It holds as many tasks as CUDA lets launches
 * wait.
 *
 * The sequence number that a producer takes from the timeline determines its slot: number s belongs
 * to slot s mod SLOTS. The producer of s waits until finished > s - SLOTS, writes the task, and
 * publishes it by storing slot.published = s + 1. The worker only looks at the slot of number
 * `finished`. If its published is finished + 1, the worker runs the task and then finishes it on
 * the timeline.
 *
 * - Each task runs once, in sequence order. Sequence numbers are unique. The worker runs a slot's
 *   task only while finished == s and leaves finished == s + 1; and published == s + 1 holds for
 *   only one s. The number of inline work is never published: its owner finishes it, and until then
 *   the worker finds nothing to run.
 * - No task is overwritten before it has run. The producer of s + SLOTS waits for finished > s,
 *   which is stored after the task has run and read with acquire.
 * - Producers wait for each other only if the ring is full. A producer that is interrupted between
 *   taking a number and publishing delays the worker. This is unavoidable, because its place in the
 *   order is already fixed.
 * - No wake-up is lost, by the rule of futex.h. The worker stores asleep = 1, reads `finished` and
 *   `published` again, and then sleeps. A producer stores `published`, the owner of inline work
 *   stores `finished`, and then they read `asleep`. All these operations are sequentially
 *   consistent. The owner need not wake the worker if submitted == finished: the next producer
 *   will.
 *
 * test/device/streams/test_queue_model.c executes these steps in every possible order.
 */
#ifndef OPENREG_DEVICE_STREAMS_QUEUE_H
#define OPENREG_DEVICE_STREAMS_QUEUE_H

#include "device/device.h"
#include "device/streams/timeline.h"

#pragma GCC visibility push(hidden)

struct task {
  enum { TASK_FUNCTION, TASK_WAIT, TASK_TIMESTAMP } kind;
  bool urgent; /* counted by openreg_priority_add */
  void *note;  /* the tracer's note (trace.h); NULL: none */
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
    } timestamp;
  };
};

/* One cache line each, so that producers and the worker do not share one. */
struct slot {
  _Alignas(OPENREG_CACHE_LINE_BYTES) _Atomic uint64_t published;
  struct task task;
};

_Static_assert(sizeof(struct slot) == OPENREG_CACHE_LINE_BYTES, "one cache line each");
_Static_assert((OPENREG_STREAM_QUEUE_LENGTH & (OPENREG_STREAM_QUEUE_LENGTH - 1)) == 0,
               "slots are found with a mask");

struct queue {
  /* OPENREG_STREAM_QUEUE_LENGTH slots; stored once, at first. A thread that submits nothing may
   * look at them while another one opens the queue (openreg_stream_has_pending_inline). */
  _Atomic(struct slot *) slots;
  _Atomic uint32_t asleep;
};

/* Allocates the slots. Errors: OUT_OF_MEMORY. */
openreg_status openreg_queue_open(struct queue *queue);

/* Stores the task in the slot of a sequence number taken from the timeline. Waits while the ring is
 * full. */
void openreg_queue_put(struct queue *queue, struct timeline *timeline, uint64_t sequence,
                       const struct task *task);

/* Whether the ring is full for a sequence number. If it is, waiters should wait for the point
 * `room_at`: half of the ring is free then. Otherwise a producer that is always ahead would be
 * woken for every task. */
static inline bool openreg_queue_is_full(const struct timeline *timeline, uint64_t sequence,
                                         uint64_t *room_at) {
  *room_at = sequence - OPENREG_STREAM_QUEUE_LENGTH / 2;
  return sequence >= openreg_timeline_finished(timeline) + OPENREG_STREAM_QUEUE_LENGTH;
}

/* NULL if the queue was not opened. */
static inline struct slot *openreg_queue_slots(const struct queue *queue) {
  return atomic_load_explicit(&queue->slots, memory_order_acquire);
}

/* Whether the task of a sequence number was published. The number must not be finished. */
bool openreg_queue_has_task(const struct queue *queue, uint64_t sequence);

/* Waits for the task of number `finished` and returns that number. The task stays in
 * openreg_queue_slot until the number is finished. Only the worker may call this. */
uint64_t openreg_queue_await(struct queue *queue, struct timeline *timeline);

static inline struct slot *openreg_queue_slot(const struct queue *queue, uint64_t sequence) {
  return openreg_queue_slots(queue) + (sequence & (OPENREG_STREAM_QUEUE_LENGTH - 1));
}

/* Wakes the worker if it sleeps. Call it after a store that the worker may wait for. */
static inline void openreg_queue_wake(struct queue *queue) {
  if (atomic_load(&queue->asleep) != 0 && atomic_exchange(&queue->asleep, 0) != 0)
    openreg_futex_wake(&queue->asleep, OPENREG_WAKE_ONE);
}

#pragma GCC visibility pop
#endif
