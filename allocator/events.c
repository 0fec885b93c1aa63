/* events.c: blocks that other streams use, and the wait of freed ones for them.
 *
 * A block belongs to the stream that it was allocated for: what is submitted to that stream later
 * comes after its earlier work, so reuse there needs no waiting. Other streams are recorded on the
 * block. When it is freed, an event is recorded on each of them, and it stays active until all are
 * known to be done. They are looked at before a request is served, for each stream in their order,
 * up to the first that is not done; and waited for when nothing else helps.
 *
 * There is one more reason to wait, which no GPU has: work that runs inline on another thread
 * allocates while it runs, and what is freed then may be in use by work that is queued behind it.
 * Such a block waits until its stream is idle. And while a stream captures no event is recorded,
 * for it might be one of the graph: blocks that other streams use wait until all captures have
 * ended.
 */
#include "allocator/stats.h"

void openreg_events_initialize(struct allocator *allocator) {
  for (int stream = 0; stream < OPENREG_STREAMS_PER_DEVICE; stream++)
    allocator->events[stream].last = &allocator->events[stream].first;
}

/* ---- uses ------------------------------------------------------------------------------------ */

static struct use *use_find(const struct block *block, int stream) {
  struct use *use = block->uses;
  while (use && use->stream != stream)
    use = use->next;
  return use;
}

static openreg_status use_add(struct allocator *allocator, struct block *block, int stream) {
  openreg_event *event;
  if (!slab_ensure(&allocator->uses, 1))
    return OPENREG_SYSTEM;
  openreg_status status = openreg_event_create(allocator->device, false, &event);
  if (status != OPENREG_OK)
    return status;
  struct use *use = slab_take(&allocator->uses);
  *use = (struct use){.next = block->uses, .event = event, .block = block, .stream = stream};
  block->uses = use;
  return OPENREG_OK;
}

static void use_drop(struct allocator *allocator, struct use *use) {
  openreg_event_destroy(use->event);
  slab_put(&allocator->uses, use);
}

static openreg_status require_recordable(const openreg_block *shown, int stream) {
  if (openreg_in_bad_fork())
    return openreg_fail(OPENREG_BAD_FORK, "openreg: a block's memory stays with the process that "
                                          "allocated it: it cannot be used after fork");
  if (!shown)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg_block_record_stream: block is NULL: expected an allocated block");
  if (stream < 0 || stream >= OPENREG_STREAMS_PER_DEVICE)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg_block_record_stream: stream %d: expected 0 to %d", stream,
                        OPENREG_STREAMS_PER_DEVICE - 1);
  return OPENREG_OK;
}

openreg_status openreg_block_record_stream(openreg_block *shown, int stream) {
  openreg_status status = require_recordable(shown, stream);
  if (status != OPENREG_OK || stream == shown->stream || shown->bytes == 0)
    return status;
  struct block *block = block_of(shown);
  struct allocator *allocator = openreg_allocator_of(block);
  allocator_lock(allocator);
  assert(block->state == BLOCK_ALLOCATED || block->state == BLOCK_IMPORTED);
  if (!use_find(block, stream))
    status = use_add(allocator, block, stream);
  allocator_unlock(allocator);
  return status;
}

void openreg_uses_drop(struct allocator *allocator, struct block *block) {
  while (block->uses) {
    struct use *use = block->uses;
    block->uses = use->next;
    use_drop(allocator, use);
  }
}

bool openreg_uses_are_busy(const struct block *block) {
  for (const struct use *use = block->uses; use; use = use->next)
    if (!openreg_stream_is_idle(block->shown.device, use->stream))
      return true;
  return !openreg_stream_is_idle(block->shown.device, block->shown.stream);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Records the events of a freed block. */
static void record_events(struct allocator *allocator, struct block *block) {
  while (block->uses) {
    struct use *use = block->uses;
    block->uses = use->next;
    openreg_status status = openreg_event_record(use->event, use->stream);
    assert(status == OPENREG_OK); /* without timing it only reads how far the stream is */
    (void)status;
    struct uses *queue = &allocator->events[use->stream];
    use->next = NULL;
    *queue->last = use;
    queue->last = &use->next;
    block->events++;
    allocator->event_count++;
  }
}

static void end_use(struct allocator *allocator, struct use *use) {
  struct block *block = use->block;
  use_drop(allocator, use);
  allocator->event_count--;
  if (--block->events == 0)
    openreg_block_make_free(allocator, block);
}

/* Takes a use out of the queue that `link` is part of. */
static struct use *take_out(struct uses *queue, struct use **link) {
  struct use *use = *link;
  *link = use->next;
  if (!*link)
    queue->last = link;
  return use;
}

void openreg_events_defer(struct allocator *allocator, struct block *block) {
  block->state = BLOCK_AWAITING_STREAMS;
  block->events = 0;
  if (openreg_captures_exist() ||
      openreg_stream_has_inline_ahead(allocator->device, block->shown.stream)) {
    block->waiting = allocator->awaiting_idle;
    allocator->awaiting_idle = block;
  } else {
    record_events(allocator, block);
  }
}

/* False when an uncached block's memory cannot be given back yet. */
static bool end_waiting(struct allocator *allocator, struct block *block) {
  if (block_is_uncached(block))
    return openreg_uncached_release(allocator, block) == OPENREG_OK;
  if (block->uses)
    record_events(allocator, block);
  else
    openreg_block_make_free(allocator, block);
  return true;
}

static void process_waiting(struct allocator *allocator) {
  if (openreg_captures_exist())
    return;
  struct block **link = &allocator->awaiting_idle;
  while (*link) {
    struct block *block = *link, *next = block->waiting;
    if (openreg_stream_is_idle(allocator->device, block->shown.stream) &&
        end_waiting(allocator, block))
      *link = next;
    else
      link = &block->waiting;
  }
}

void openreg_events_process(struct allocator *allocator) {
  if (allocator->awaiting_idle)
    process_waiting(allocator);
  if (allocator->event_count == 0)
    return;
  for (int stream = 0; stream < OPENREG_STREAMS_PER_DEVICE; stream++) {
    struct uses *queue = &allocator->events[stream];
    while (queue->first && openreg_event_query(queue->first->event) == OPENREG_OK)
      end_use(allocator, take_out(queue, &queue->first));
  }
}

static bool is_meant(const struct use *use, const uint64_t *only) {
  return !only || pool_mempool(use->block->pool) == *only;
}

/* The streams for which anything waits. */
static void find_streams(const struct allocator *allocator, const uint64_t *only,
                         bool awaited[OPENREG_STREAMS_PER_DEVICE]) {
  for (int stream = 0; stream < OPENREG_STREAMS_PER_DEVICE; stream++)
    for (const struct use *use = allocator->events[stream].first; use; use = use->next)
      awaited[stream] |= is_meant(use, only);
  for (const struct block *block = allocator->awaiting_idle; block; block = block->waiting)
    awaited[block->shown.stream] = true;
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
  process_waiting(allocator);
  find_streams(allocator, only, awaited);
  openreg_status status = drain(allocator, awaited);
  if (status != OPENREG_OK)
    return status;
  process_waiting(allocator);
  for (int stream = 0; stream < OPENREG_STREAMS_PER_DEVICE; stream++) {
    struct uses *queue = &allocator->events[stream];
    for (struct use **link = &queue->first; *link;)
      if (is_meant(*link, only) && openreg_event_query((*link)->event) == OPENREG_OK)
        end_use(allocator, take_out(queue, link));
      else
        link = &(*link)->next;
  }
  return OPENREG_OK;
}
