/* queue.c: the steps of producers and worker. The argument is in queue.h. */
#include "device/streams/queue.h"

#include <stdlib.h>
#include <string.h>

openreg_status openreg_queue_open(struct queue *queue) {
  size_t bytes = OPENREG_STREAM_QUEUE_LENGTH * sizeof(struct slot);
  struct slot *slots = aligned_alloc(OPENREG_CACHE_LINE_BYTES, bytes);
  if (slots == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for a stream's queue");
  memset(slots, 0, bytes);
  queue->slots = slots;
  return OPENREG_OK;
}

static void wait_for_room(struct timeline *timeline, uint64_t ticket) {
  uint64_t room_at;
  if (openreg_queue_is_full(timeline, ticket, &room_at))
    openreg_timeline_wait(timeline, room_at, OPENREG_NEVER);
}

void openreg_queue_put(struct queue *queue, struct timeline *timeline, uint64_t ticket,
                       const struct task *task) {
  wait_for_room(timeline, ticket);
  struct slot *slot = openreg_queue_slot(queue, ticket);
  slot->task = *task;
  atomic_store(&slot->published, ticket + 1);
  openreg_queue_wake(queue);
}

bool openreg_queue_has_task(const struct queue *queue, uint64_t ticket) {
  return atomic_load(&openreg_queue_slot(queue, ticket)->published) == ticket + 1;
}

uint64_t openreg_queue_await(struct queue *queue, struct timeline *timeline) {
  /* `finished` is read again each time: others may do inline work meanwhile. */
  uint64_t ticket;
  for (int i = openreg_looks_before_sleep(); i > 0; i--) {
    if (openreg_queue_has_task(queue, ticket = openreg_timeline_finished(timeline)))
      return ticket;
    openreg_relax(i);
  }
  for (;;) {
    atomic_store(&queue->asleep, 1);
    if (openreg_queue_has_task(queue, ticket = atomic_load(&timeline->finished)))
      break;
    openreg_futex_wait(&queue->asleep, 1, OPENREG_NEVER);
  }
  atomic_store(&queue->asleep, 0);
  return ticket;
}
