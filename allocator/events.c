/* events.c: blocks that several streams use. A freed block waits for them.
 *
 * A block belongs to the stream that it was allocated for. Later work of that stream runs after its
 * earlier work, so reuse there needs no waiting. Other streams are recorded on the block. When the
 * block is freed, the allocator records an event on each of them, and the block stays active until
 * all events are done. It checks the events before it serves a request: for each stream in order,
 * up to the first one that is not done. It waits for them only when nothing else helps.
 *
 * There are two more reasons to wait:
 *
 *   - Not on a GPU: work that runs inline on another thread allocates while it runs. Memory
 *     that it frees may be in use by work that is queued behind it. Such a block waits until
 *     its stream is idle.
 *   - While a stream captures, no event is recorded, because it could become part of the graph.
 *     Blocks that other streams use wait until all captures have ended.
 */
#include "allocator/stats.h"

void openreg_events_initialize(struct allocator *allocator) {
  for (int stream = 0; stream < OPENREG_STREAMS_PER_DEVICE; stream++)
    allocator->events[stream].last = &allocator->events[stream].first;
}

/* ---- stream uses ----------------------------------------------------------------------------- */

static struct stream_use *use_find(const struct block *block, int stream) {
  struct stream_use *use = block->stream_uses;
  while (use && use->stream != stream)
    use = use->next;
  return use;
}

static openreg_status use_add(struct allocator *allocator, struct block *block, int stream) {
  openreg_event *event;
  if (!slab_ensure(&allocator->stream_uses, 1))
    return OPENREG_SYSTEM;
  openreg_status status = openreg_event_create(allocator->device, false, &event);
  if (status != OPENREG_OK)
    return status;
  struct stream_use *use = slab_take(&allocator->stream_uses);
  *use = (struct stream_use){
      .next = block->stream_uses, .event = event, .block = block, .stream = stream};
  block->stream_uses = use;
  return OPENREG_OK;
}

static void use_drop(struct allocator *allocator, struct stream_use *use) {
  openreg_event_destroy(use->event);
  slab_put(&allocator->stream_uses, use);
}

static openreg_status require_recordable(const openreg_block *base, int stream) {
  if (openreg_in_bad_fork())
    return openreg_require_no_bad_fork();
  if (!base)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg_block_record_stream: block is NULL: expected an allocated block");
  if (stream < 0 || stream >= OPENREG_STREAMS_PER_DEVICE)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg_block_record_stream: stream %d: expected 0 to %d", stream,
                        OPENREG_STREAMS_PER_DEVICE - 1);
  return OPENREG_OK;
}

openreg_status openreg_block_record_stream(openreg_block *base, int stream) {
  openreg_status status = require_recordable(base, stream);
  if (status != OPENREG_OK || stream == base->stream || base->bytes == 0)
    return status;
  struct block *block = block_of(base);
  struct allocator *allocator = openreg_allocator_of_block(block);
  allocator_lock(allocator);
  assert(block->state == BLOCK_ALLOCATED || block->state == BLOCK_IMPORTED);
  if (!use_find(block, stream))
    status = use_add(allocator, block, stream);
  allocator_unlock(allocator);
  return status;
}

void openreg_stream_uses_drop(struct allocator *allocator, struct block *block) {
  while (block->stream_uses) {
    struct stream_use *use = block->stream_uses;
    block->stream_uses = use->next;
    use_drop(allocator, use);
  }
}

bool openreg_stream_uses_are_busy(const struct block *block) {
  for (const struct stream_use *use = block->stream_uses; use; use = use->next)
    if (!openreg_stream_is_idle(block->base.device, use->stream))
      return true;
  return !openreg_stream_is_idle(block->base.device, block->base.stream);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Records the events of a freed block. */
static void record_events(struct allocator *allocator, struct block *block) {
  while (block->stream_uses) {
    struct stream_use *use = block->stream_uses;
    block->stream_uses = use->next;
    openreg_status status = openreg_event_record(use->event, use->stream);
    assert(status == OPENREG_OK); /* an event without timing only reads how far the stream is */
    (void)status;
    struct stream_use_queue *queue = &allocator->events[use->stream];
    use->next = NULL;
    *queue->last = use;
    queue->last = &use->next;
    block->events++;
    allocator->event_count++;
  }
}

static void finish_use(struct allocator *allocator, struct stream_use *use) {
  struct block *block = use->block;
  use_drop(allocator, use);
  allocator->event_count--;
  if (--block->events == 0)
    openreg_block_mark_free(allocator, block);
}

/* Removes an entry from its queue; `link` points to it. */
static struct stream_use *queue_remove(struct stream_use_queue *queue, struct stream_use **link) {
  struct stream_use *use = *link;
  *link = use->next;
  if (!*link)
    queue->last = link;
  return use;
}

void openreg_events_defer(struct allocator *allocator, struct block *block) {
  block->state = BLOCK_AWAITING_STREAMS;
  block->events = 0;
  if (openreg_captures_exist() ||
      openreg_stream_has_pending_inline(allocator->device, block->base.stream)) {
    block->waiting = allocator->awaiting_idle;
    allocator->awaiting_idle = block;
  } else {
    record_events(allocator, block);
  }
}

/* Returns false if an uncached block cannot be released yet. */
static bool finish_idle_wait(struct allocator *allocator, struct block *block) {
  if (block_is_uncached(block))
    return openreg_uncached_release(allocator, block) == OPENREG_OK;
  if (block->stream_uses)
    record_events(allocator, block);
  else
    openreg_block_mark_free(allocator, block);
  return true;
}

static void process_idle_waits(struct allocator *allocator) {
  if (openreg_captures_exist())
    return;
  struct block **link = &allocator->awaiting_idle;
  while (*link) {
    struct block *block = *link, *next = block->waiting;
    if (openreg_stream_is_idle(allocator->device, block->base.stream) &&
        finish_idle_wait(allocator, block))
      *link = next;
    else
      link = &block->waiting;
  }
}

void openreg_events_process(struct allocator *allocator) {
  if (allocator->awaiting_idle)
    process_idle_waits(allocator);
  if (allocator->event_count == 0)
    return;
  for (int stream = 0; stream < OPENREG_STREAMS_PER_DEVICE; stream++) {
    struct stream_use_queue *queue = &allocator->events[stream];
    while (queue->first && openreg_event_query(queue->first->event) == OPENREG_OK)
      finish_use(allocator, queue_remove(queue, &queue->first));
  }
}

static bool is_of_mempool(const struct stream_use *use, const uint64_t *only) {
  return !only || pool_mempool(use->block->pool) == *only;
}

/* Marks the streams for which blocks wait. */
static void collect_awaited_streams(const struct allocator *allocator, const uint64_t *only,
                                    bool awaited[OPENREG_STREAMS_PER_DEVICE]) {
  for (int stream = 0; stream < OPENREG_STREAMS_PER_DEVICE; stream++)
    for (const struct stream_use *use = allocator->events[stream].first; use; use = use->next)
      awaited[stream] |= is_of_mempool(use, only);
  for (const struct block *block = allocator->awaiting_idle; block; block = block->waiting)
    awaited[block->base.stream] = true;
}

static openreg_status drain(struct allocator *allocator,
                            const bool awaited[OPENREG_STREAMS_PER_DEVICE]) {
  openreg_status status = OPENREG_OK;
  allocator_unlock(allocator);
  for (int stream = 0; status == OPENREG_OK && stream < OPENREG_STREAMS_PER_DEVICE; stream++)
    if (awaited[stream])
      status = openreg_stream_drain(allocator->device, stream);
  allocator_lock(allocator);
  return status;
}

openreg_status openreg_events_synchronize(struct allocator *allocator, const uint64_t *only) {
  bool awaited[OPENREG_STREAMS_PER_DEVICE] = {false};
  allocator->stats.stream_syncs++;
  process_idle_waits(allocator);
  collect_awaited_streams(allocator, only, awaited);
  openreg_status status = drain(allocator, awaited);
  if (status != OPENREG_OK)
    return status;
  process_idle_waits(allocator);
  for (int stream = 0; stream < OPENREG_STREAMS_PER_DEVICE; stream++) {
    struct stream_use_queue *queue = &allocator->events[stream];
    for (struct stream_use **link = &queue->first; *link;)
      if (is_of_mempool(*link, only) && openreg_event_query((*link)->event) == OPENREG_OK)
        finish_use(allocator, queue_remove(queue, link));
      else
        link = &(*link)->next;
  }
  return OPENREG_OK;
}
