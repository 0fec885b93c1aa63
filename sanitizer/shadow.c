/* shadow.c: blocks that come and go.
 *
 * A block that is freed leaves the accesses to it behind, as an extent that does not live. A new
 * block over it inherits those that touch its addresses, with a description of the block that they
 * were to, and what is then left of the extent stays. A caching allocator gives out the same range
 * again and again, for which an extent changes between living and not.
 */
#include "sanitizer/state.h"

enum { MOST_DEAD_SLOTS = 256 };

static struct extent *make_extent(openreg_sanitizer *sanitizer, uint64_t begin, uint64_t end) {
  struct extent *extent = openreg_heap_take(&sanitizer->heap, sizeof *extent);
  if (extent == NULL)
    return NULL;
  *extent = (struct extent){.begin = begin, .end = end, .capacity = RECORDS_INSIDE};
  extent->records = extent->inside;
  return extent;
}

/* One that stands nowhere any more. */
static void destroy(openreg_sanitizer *sanitizer, struct extent *extent) {
  openreg_records_drop(sanitizer, extent, NULL, NULL);
  openreg_runs_clear(&extent->unwritten, &sanitizer->heap);
  openreg_heap_give(&sanitizer->heap, extent, sizeof *extent);
}

static void remove_extent(openreg_sanitizer *sanitizer, struct extent *extent) {
  openreg_extents_remove(&sanitizer->extents, extent);
  destroy(sanitizer, extent);
}

static void forget_oldest(openreg_sanitizer *sanitizer) {
  remove_extent(sanitizer, sanitizer->extents.oldest);
  sanitizer->counters.forgotten_blocks++;
}

/* ---- freeing --------------------------------------------------------------------------------- */

/* Returns false when there is no memory for the description of the block. */
static bool describe(openreg_sanitizer *sanitizer, struct extent *extent) {
  struct origin *origin = NULL;
  for (uint32_t i = 0; i < extent->count; i++) {
    struct record *record = &extent->records[i];
    if (record->origin != NULL)
      continue;
    if (origin == NULL) {
      origin = openreg_heap_take(&sanitizer->heap, sizeof *origin);
      if (origin == NULL)
        return false;
      *origin = (struct origin){extent->block, 0};
    }
    record->origin = origin;
    origin->references++;
  }
  return true;
}

/* The extent may be gone then. */
static void free_extent(openreg_sanitizer *sanitizer, struct extent *extent, uint64_t site) {
  extent->block.is_freed = true;
  extent->block.freed_site = site;
  openreg_runs_clear(&extent->unwritten, &sanitizer->heap);
  openreg_records_drop(sanitizer, extent, openreg_record_is_settled, NULL);
  if (!describe(sanitizer, extent)) {
    sanitizer->counters.forgotten_blocks++;
    openreg_records_drop(sanitizer, extent, NULL, NULL);
  }
  if (extent->count == 0 && !sanitizer->options.report_freed) {
    remove_extent(sanitizer, extent);
    return;
  }
  openreg_extents_set_live(&sanitizer->extents, extent, false);
  if (sanitizer->extents.freed > sanitizer->options.most_freed)
    forget_oldest(sanitizer);
}

/* ---- what a freed extent leaves to others ---------------------------------------------------- */

static bool is_outside(const openreg_sanitizer *sanitizer, const struct record *record,
                       const void *context) {
  const struct extent *extent = context;
  (void)sanitizer;
  return record->high <= extent->begin || extent->end <= record->low;
}

static void inherit(openreg_sanitizer *sanitizer, struct extent *heir, const struct extent *freed) {
  for (uint32_t i = 0; i < freed->count; i++)
    if (!is_outside(sanitizer, &freed->records[i], heir))
      openreg_records_push(sanitizer, heir, &freed->records[i]);
}

static void keep_behind(openreg_sanitizer *sanitizer, struct extent *freed, uint64_t end) {
  struct extent *behind = make_extent(sanitizer, end, freed->end);
  if (behind == NULL) {
    sanitizer->counters.forgotten_blocks++;
    return;
  }
  behind->block = freed->block;
  inherit(sanitizer, behind, freed);
  if (behind->count > 0 || sanitizer->options.report_freed)
    openreg_extents_insert(&sanitizer->extents, behind);
  else
    destroy(sanitizer, behind);
}

/* Takes the addresses from `begin` to `end` away from a freed extent that has some of them. */
static void cut(openreg_sanitizer *sanitizer, struct extent *freed, uint64_t begin, uint64_t end) {
  bool has_before = freed->begin<begin, has_behind = freed->end> end;
  if (!has_before && !has_behind) {
    remove_extent(sanitizer, freed);
    return;
  }
  if (has_before && has_behind)
    keep_behind(sanitizer, freed, end);
  openreg_extents_unlearn(&sanitizer->extents, freed);
  if (has_before)
    freed->end = begin;
  else
    freed->begin = end;
  openreg_records_drop(sanitizer, freed, is_outside, freed);
  if (freed->count == 0 && !sanitizer->options.report_freed)
    remove_extent(sanitizer, freed);
}

/* ---- allocating ------------------------------------------------------------------------------ */

static struct extent *first_in(openreg_sanitizer *sanitizer, uint64_t begin, uint64_t end) {
  struct extent *extent = openreg_extents_find(&sanitizer->extents, begin);
  return extent != NULL && extent->begin < end ? extent : NULL;
}

/* Makes an extent of the addresses, or takes the one that has just these; it lives then. */
static struct extent *settle(openreg_sanitizer *sanitizer, uint64_t begin, uint64_t end,
                             uint64_t site) {
  struct extent *made = NULL, *old;
  while ((old = first_in(sanitizer, begin, end)) != NULL) {
    if (old->is_live) {
      free_extent(sanitizer, old, site);
    } else if (old->begin == begin && old->end == end) {
      openreg_extents_set_live(&sanitizer->extents, old, true);
      return old;
    } else {
      if (made == NULL)
        made = make_extent(sanitizer, begin, end);
      if (made == NULL)
        return NULL;
      inherit(sanitizer, made, old);
      cut(sanitizer, old, begin, end);
    }
  }
  if (made == NULL)
    made = make_extent(sanitizer, begin, end);
  if (made != NULL) {
    made->is_live = true;
    openreg_extents_insert(&sanitizer->extents, made);
  }
  return made;
}

static openreg_status allocate(openreg_sanitizer *sanitizer, const openreg_sanitizer_block *block,
                               bool is_initialised) {
  uint64_t end = block->address + block->bytes;
  struct extent *extent = settle(sanitizer, block->address, end, block->site);
  if (extent == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY,
                        "openreg: no host memory for the sanitizer to remember a block");
  extent->block = (openreg_sanitizer_block){.address = block->address,
                                            .bytes = block->bytes,
                                            .site = block->site,
                                            .tag = block->tag,
                                            .owner = block->owner,
                                            .generation = ++sanitizer->generations};
  bool is_unwritten =
      !is_initialised && openreg_sanitizer_reports(sanitizer, OPENREG_SANITIZER_UNINITIALISED_READ);
  openreg_runs_set(&extent->unwritten, block->address, is_unwritten ? end : block->address);
  while (openreg_heap_is_full(&sanitizer->heap) && sanitizer->extents.oldest != NULL)
    forget_oldest(sanitizer);
  return OPENREG_OK;
}

openreg_status openreg_sanitizer_alloc(openreg_sanitizer *sanitizer,
                                       const openreg_sanitizer_block *block, bool is_initialised) {
  if (block->bytes > UINT64_MAX - block->address)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: a block of %llu bytes at 0x%llx goes beyond the last address",
                        (unsigned long long)block->bytes, (unsigned long long)block->address);
  if (block->bytes == 0)
    return OPENREG_OK;
  openreg_sanitizer_enter(sanitizer);
  openreg_status status = allocate(sanitizer, block, is_initialised);
  openreg_sanitizer_leave(sanitizer);
  return status;
}

void openreg_sanitizer_free(openreg_sanitizer *sanitizer, uint64_t address, uint64_t site) {
  openreg_sanitizer_enter(sanitizer);
  struct extent *extent = openreg_extents_live_at(&sanitizer->extents, address);
  if (extent != NULL && extent->begin == address)
    free_extent(sanitizer, extent, site);
  openreg_sanitizer_leave(sanitizer);
}

/* ---- ranges ---------------------------------------------------------------------------------- */

static bool is_of_earlier_block_within(const openreg_sanitizer *sanitizer,
                                       const struct record *record, const void *context) {
  const openreg_sanitizer_run *range = context;
  (void)sanitizer;
  return record->origin != NULL && range->begin <= record->low && record->high <= range->end;
}

/* The end of a range that may go beyond the last address. */
static uint64_t end_of(uint64_t address, uint64_t bytes) {
  return bytes > UINT64_MAX - address ? UINT64_MAX : address + bytes;
}

void openreg_sanitizer_forget(openreg_sanitizer *sanitizer, uint64_t address, uint64_t bytes) {
  openreg_sanitizer_run range = {address, end_of(address, bytes)};
  struct extent *extent;
  openreg_sanitizer_enter(sanitizer);
  for (uint64_t at = address; (extent = first_in(sanitizer, at, range.end)) != NULL;) {
    at = extent->end;
    if (extent->is_live)
      openreg_records_drop(sanitizer, extent, is_of_earlier_block_within, &range);
    else
      cut(sanitizer, extent, range.begin, range.end);
  }
  openreg_sanitizer_leave(sanitizer);
}

void openreg_sanitizer_initialise(openreg_sanitizer *sanitizer, uint64_t address, uint64_t bytes) {
  uint64_t end = end_of(address, bytes);
  struct box box = {address, end, bytes, 0, true, NULL};
  struct extent *extent;
  openreg_sanitizer_enter(sanitizer);
  for (uint64_t at = address; (extent = first_in(sanitizer, at, end)) != NULL; at = extent->end)
    openreg_runs_remove(&extent->unwritten, &sanitizer->heap, &box,
                        sanitizer->options.most_intervals);
  openreg_sanitizer_leave(sanitizer);
}

bool openreg_sanitizer_block_at(openreg_sanitizer *sanitizer, uint64_t address,
                                openreg_sanitizer_block *block) {
  openreg_sanitizer_enter(sanitizer);
  const struct extent *extent = openreg_extents_live_at(&sanitizer->extents, address);
  if (extent != NULL)
    *block = extent->block;
  openreg_sanitizer_leave(sanitizer);
  return extent != NULL;
}

size_t openreg_sanitizer_blocks(openreg_sanitizer *sanitizer, openreg_sanitizer_block blocks[],
                                size_t capacity) {
  const struct extent *extent;
  size_t count = 0;
  openreg_sanitizer_enter(sanitizer);
  for (uint64_t at = 0; (extent = first_in(sanitizer, at, UINT64_MAX)) != NULL; at = extent->end) {
    if (extent->is_live && count < capacity)
      blocks[count] = extent->block;
    count += extent->is_live;
  }
  openreg_sanitizer_leave(sanitizer);
  return count;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static bool is_dead(const openreg_sanitizer *sanitizer, const struct record *record,
                    const void *context) {
  (void)context;
  return sanitizer->order.slots[record->slot].actor == NULL;
}

static void drop_everywhere(openreg_sanitizer *sanitizer,
                            bool (*is_dropped)(const openreg_sanitizer *, const struct record *,
                                               const void *)) {
  struct extent *extent;
  for (uint64_t at = 0; (extent = first_in(sanitizer, at, UINT64_MAX)) != NULL;) {
    uint32_t before = extent->count;
    at = extent->end;
    openreg_records_drop(sanitizer, extent, is_dropped, NULL);
    if (is_dropped == is_dead)
      sanitizer->counters.forgotten_records += before - extent->count;
    if (!extent->is_live && extent->count == 0 && !sanitizer->options.report_freed)
      remove_extent(sanitizer, extent);
  }
}

void openreg_shadow_sweep(openreg_sanitizer *sanitizer) {
  if (openreg_order_dead(&sanitizer->order) < MOST_DEAD_SLOTS)
    return;
  drop_everywhere(sanitizer, openreg_record_is_settled);
  if (openreg_order_dead(&sanitizer->order) > MOST_DEAD_SLOTS / 2)
    drop_everywhere(sanitizer, is_dead);
}

void openreg_shadow_clear(openreg_sanitizer *sanitizer) {
  while (sanitizer->extents.root != NULL)
    remove_extent(sanitizer, sanitizer->extents.root);
}
