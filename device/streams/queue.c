/* queue.c: the steps of producers and the worker. queue.h explains why they are correct. */
#include "device/streams/queue.h"

#include <stdlib.h>
#include <string.h>

openreg_status openreg_queue_open(struct queue *queue) {
  size_t bytes = OPENREG_STREAM_QUEUE_LENGTH * sizeof(struct slot);
  struct slot *slots = aligned_alloc(OPENREG_CACHE_LINE_BYTES, bytes);
  if (slots == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for a stream's queue");
  memset(slots, 0, bytes);
  atomic_store_explicit(&queue->slots, slots, memory_order_release);
  return OPENREG_OK;
}

static void wait_for_room(struct timeline *timeline, uint64_t sequence) {
  uint64_t room_at;
  if (openreg_queue_is_full(timeline, sequence, &room_at))
    openreg_timeline_wait(timeline, room_at, OPENREG_NEVER);
}

void openreg_queue_put(struct queue *queue, struct timeline *timeline, uint64_t sequence,
                       const struct task *task) {
  wait_for_room(timeline, sequence);
  struct slot *slot = openreg_queue_slot(queue, sequence);
  slot->task = *task;
  atomic_store(&slot->published, sequence + 1);
  openreg_queue_wake(queue);
}

bool openreg_queue_has_task(const struct queue *queue, uint64_t sequence) {
  return atomic_load(&openreg_queue_slot(queue, sequence)->published) == sequence + 1;
}

uint64_t openreg_queue_await(struct queue *queue, struct timeline *timeline) {
  /* `finished` is read again each time, because other threads may run inline work meanwhile. */
  uint64_t sequence;
  for (int i = openreg_spin_count(); i > 0; i--) {
    if (openreg_queue_has_task(queue, sequence = openreg_timeline_finished(timeline)))
      return sequence;
    openreg_spin_pause(i);
  }
  for (;;) {
    atomic_store(&queue->asleep, 1);
    if (openreg_queue_has_task(queue, sequence = atomic_load(&timeline->finished)))
      break;
    openreg_futex_wait(&queue->asleep, 1, OPENREG_NEVER);
  }
  atomic_store(&queue->asleep, 0);
  return sequence;
}
