/* shadow.c: allocates and frees blocks.
 *
 * A freed block leaves its records behind in a shadow block that is not live. A new block at the
 * same addresses inherits the records that touch it, with a description of the freed block. The
 * rest of the old shadow block stays. A caching allocator returns the same range again and again;
 * its shadow block just changes between live and freed.
 */
#include "sanitizer/state.h"

enum { MAX_DEAD_SLOTS = 256 };

static struct shadow_block *make_shadow_block(openreg_sanitizer *sanitizer, uint64_t begin,
                                              uint64_t end) {
  struct shadow_block *shadow = openreg_heap_take(&sanitizer->heap, sizeof *shadow);
  if (shadow == NULL)
    return NULL;
  *shadow = (struct shadow_block){.begin = begin, .end = end, .capacity = RECORDS_INSIDE};
  shadow->records = shadow->inside;
  return shadow;
}

/* Frees a shadow block that is in no tree. */
static void destroy(openreg_sanitizer *sanitizer, struct shadow_block *shadow) {
  openreg_records_drop(sanitizer, shadow, NULL, NULL);
  openreg_runs_clear(&shadow->unwritten, &sanitizer->heap);
  openreg_heap_give(&sanitizer->heap, shadow, sizeof *shadow);
}

static void remove_shadow_block(openreg_sanitizer *sanitizer, struct shadow_block *shadow) {
  openreg_shadow_cache_remove(&sanitizer->shadow_cache, shadow);
  destroy(sanitizer, shadow);
}

static void forget_oldest(openreg_sanitizer *sanitizer) {
  remove_shadow_block(sanitizer, sanitizer->shadow_cache.oldest);
  sanitizer->counters.forgotten_blocks++;
}

/* ---- freeing --------------------------------------------------------------------------------- */

/* Gives the records of a block a description of it. Returns false if there is no memory for that.
 */
static bool attach_origin(openreg_sanitizer *sanitizer, struct shadow_block *shadow) {
  struct origin *origin = NULL;
  for (uint32_t i = 0; i < shadow->count; i++) {
    struct record *record = &shadow->records[i];
    if (record->origin != NULL)
      continue;
    if (origin == NULL) {
      origin = openreg_heap_take(&sanitizer->heap, sizeof *origin);
      if (origin == NULL)
        return false;
      *origin = (struct origin){shadow->block, 0};
    }
    record->origin = origin;
    origin->references++;
  }
  return true;
}

/* May free the shadow block. */
static void free_shadow_block(openreg_sanitizer *sanitizer, struct shadow_block *shadow,
                              uint64_t call_site) {
  shadow->block.is_freed = true;
  shadow->block.freed_call_site = call_site;
  openreg_runs_clear(&shadow->unwritten, &sanitizer->heap);
  openreg_records_drop(sanitizer, shadow, openreg_record_is_before_all, NULL);
  if (!attach_origin(sanitizer, shadow)) {
    sanitizer->counters.forgotten_blocks++;
    openreg_records_drop(sanitizer, shadow, NULL, NULL);
  }
  if (shadow->count == 0 && !sanitizer->options.report_freed) {
    remove_shadow_block(sanitizer, shadow);
    return;
  }
  openreg_shadow_cache_set_live(&sanitizer->shadow_cache, shadow, false);
  if (sanitizer->shadow_cache.freed > sanitizer->options.max_freed)
    forget_oldest(sanitizer);
}

/* ---- reusing the addresses of freed blocks --------------------------------------------------- */

static bool is_outside(const openreg_sanitizer *sanitizer, const struct record *record,
                       const void *context) {
  const struct shadow_block *shadow = context;
  (void)sanitizer;
  return record->high <= shadow->begin || shadow->end <= record->low;
}

static void inherit(openreg_sanitizer *sanitizer, struct shadow_block *heir,
                    const struct shadow_block *freed) {
  for (uint32_t i = 0; i < freed->count; i++)
    if (!is_outside(sanitizer, &freed->records[i], heir))
      openreg_records_push(sanitizer, heir, &freed->records[i]);
}

static void keep_rest_after(openreg_sanitizer *sanitizer, struct shadow_block *freed,
                            uint64_t end) {
  struct shadow_block *rest = make_shadow_block(sanitizer, end, freed->end);
  if (rest == NULL) {
    sanitizer->counters.forgotten_blocks++;
    return;
  }
  rest->block = freed->block;
  inherit(sanitizer, rest, freed);
  if (rest->count > 0 || sanitizer->options.report_freed)
    openreg_shadow_cache_insert(&sanitizer->shadow_cache, rest);
  else
    destroy(sanitizer, rest);
}

/* Takes the addresses from `begin` to `end` away from a freed shadow block that has some of them.
 */
static void cut(openreg_sanitizer *sanitizer, struct shadow_block *freed, uint64_t begin,
                uint64_t end) {
  bool has_before = freed->begin<begin, has_after = freed->end> end;
  if (!has_before && !has_after) {
    remove_shadow_block(sanitizer, freed);
    return;
  }
  if (has_before && has_after)
    keep_rest_after(sanitizer, freed, end);
  openreg_shadow_cache_evict(&sanitizer->shadow_cache, freed);
  if (has_before)
    freed->end = begin;
  else
    freed->begin = end;
  openreg_records_drop(sanitizer, freed, is_outside, freed);
  if (freed->count == 0 && !sanitizer->options.report_freed)
    remove_shadow_block(sanitizer, freed);
}

/* ---- allocating ------------------------------------------------------------------------------ */

static struct shadow_block *first_in(openreg_sanitizer *sanitizer, uint64_t begin, uint64_t end) {
  struct shadow_block *shadow = openreg_shadow_cache_find(&sanitizer->shadow_cache, begin);
  return shadow != NULL && shadow->begin < end ? shadow : NULL;
}

/* Returns a live shadow block for a range: a new one, or the freed one with the same range. */
static struct shadow_block *place_block(openreg_sanitizer *sanitizer, uint64_t begin, uint64_t end,
                                        uint64_t call_site) {
  struct shadow_block *made = NULL, *old;
  while ((old = first_in(sanitizer, begin, end)) != NULL) {
    if (old->is_live) {
      free_shadow_block(sanitizer, old, call_site);
    } else if (old->begin == begin && old->end == end) {
      openreg_shadow_cache_set_live(&sanitizer->shadow_cache, old, true);
      return old;
    } else {
      if (made == NULL)
        made = make_shadow_block(sanitizer, begin, end);
      if (made == NULL)
        return NULL;
      inherit(sanitizer, made, old);
      cut(sanitizer, old, begin, end);
    }
  }
  if (made == NULL)
    made = make_shadow_block(sanitizer, begin, end);
  if (made != NULL) {
    made->is_live = true;
    openreg_shadow_cache_insert(&sanitizer->shadow_cache, made);
  }
  return made;
}

static openreg_status allocate(openreg_sanitizer *sanitizer, const openreg_sanitizer_block *block,
                               bool is_initialised) {
  uint64_t end = block->address + block->bytes;
  struct shadow_block *shadow = place_block(sanitizer, block->address, end, block->call_site);
  if (shadow == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY,
                        "openreg: out of host memory for the sanitizer's description of a block");
  shadow->block = (openreg_sanitizer_block){.address = block->address,
                                            .bytes = block->bytes,
                                            .call_site = block->call_site,
                                            .tag = block->tag,
                                            .owner = block->owner,
                                            .generation = ++sanitizer->generations};
  bool is_unwritten =
      !is_initialised && openreg_sanitizer_reports(sanitizer, OPENREG_SANITIZER_UNINITIALISED_READ);
  openreg_runs_set(&shadow->unwritten, block->address, is_unwritten ? end : block->address);
  while (openreg_heap_is_full(&sanitizer->heap) && sanitizer->shadow_cache.oldest != NULL)
    forget_oldest(sanitizer);
  return OPENREG_OK;
}

openreg_status openreg_sanitizer_alloc(openreg_sanitizer *sanitizer,
                                       const openreg_sanitizer_block *block, bool is_initialised) {
  if (block->bytes > UINT64_MAX - block->address)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: a block of %llu bytes at 0x%llx ends beyond the last address",
                        (unsigned long long)block->bytes, (unsigned long long)block->address);
  if (block->bytes == 0)
    return OPENREG_OK;
  openreg_sanitizer_enter(sanitizer);
  openreg_status status = allocate(sanitizer, block, is_initialised);
  openreg_sanitizer_leave(sanitizer);
  return status;
}

void openreg_sanitizer_free(openreg_sanitizer *sanitizer, uint64_t address, uint64_t call_site) {
  openreg_sanitizer_enter(sanitizer);
  struct shadow_block *shadow = openreg_shadow_cache_find_live(&sanitizer->shadow_cache, address);
  if (shadow != NULL && shadow->begin == address)
    free_shadow_block(sanitizer, shadow, call_site);
  openreg_sanitizer_leave(sanitizer);
}

/* ---- ranges ---------------------------------------------------------------------------------- */

static bool is_of_earlier_block_within(const openreg_sanitizer *sanitizer,
                                       const struct record *record, const void *context) {
  const openreg_sanitizer_run *range = context;
  (void)sanitizer;
  return record->origin != NULL && range->begin <= record->low && record->high <= range->end;
}

/* The end of a range, limited to the last address. */
static uint64_t end_of(uint64_t address, uint64_t bytes) {
  return bytes > UINT64_MAX - address ? UINT64_MAX : address + bytes;
}

void openreg_sanitizer_forget(openreg_sanitizer *sanitizer, uint64_t address, uint64_t bytes) {
  openreg_sanitizer_run range = {address, end_of(address, bytes)};
  struct shadow_block *shadow;
  openreg_sanitizer_enter(sanitizer);
  for (uint64_t at = address; (shadow = first_in(sanitizer, at, range.end)) != NULL;) {
    at = shadow->end;
    if (shadow->is_live)
      openreg_records_drop(sanitizer, shadow, is_of_earlier_block_within, &range);
    else
      cut(sanitizer, shadow, range.begin, range.end);
  }
  openreg_sanitizer_leave(sanitizer);
}

void openreg_sanitizer_initialise(openreg_sanitizer *sanitizer, uint64_t address, uint64_t bytes) {
  uint64_t end = end_of(address, bytes);
  struct strided_region strided = {address, end, bytes, 0, true, NULL};
  struct shadow_block *shadow;
  openreg_sanitizer_enter(sanitizer);
  for (uint64_t at = address; (shadow = first_in(sanitizer, at, end)) != NULL; at = shadow->end)
    openreg_runs_remove(&shadow->unwritten, &sanitizer->heap, &strided,
                        sanitizer->options.max_intervals);
  openreg_sanitizer_leave(sanitizer);
}

bool openreg_sanitizer_block_at(openreg_sanitizer *sanitizer, uint64_t address,
                                openreg_sanitizer_block *block) {
  openreg_sanitizer_enter(sanitizer);
  const struct shadow_block *shadow =
      openreg_shadow_cache_find_live(&sanitizer->shadow_cache, address);
  if (shadow != NULL)
    *block = shadow->block;
  openreg_sanitizer_leave(sanitizer);
  return shadow != NULL;
}

size_t openreg_sanitizer_blocks(openreg_sanitizer *sanitizer, openreg_sanitizer_block blocks[],
                                size_t capacity) {
  const struct shadow_block *shadow;
  size_t count = 0;
  openreg_sanitizer_enter(sanitizer);
  for (uint64_t at = 0; (shadow = first_in(sanitizer, at, UINT64_MAX)) != NULL; at = shadow->end) {
    if (shadow->is_live && count < capacity)
      blocks[count] = shadow->block;
    count += shadow->is_live;
  }
  openreg_sanitizer_leave(sanitizer);
  return count;
}

/* ---- all blocks ------------------------------------------------------------------------------ */

static bool is_of_ended_thread(const openreg_sanitizer *sanitizer, const struct record *record,
                               const void *context) {
  (void)context;
  return sanitizer->clocks.slots[record->slot].thread == NULL;
}

static void drop_everywhere(openreg_sanitizer *sanitizer,
                            bool (*is_dropped)(const openreg_sanitizer *, const struct record *,
                                               const void *)) {
  struct shadow_block *shadow;
  for (uint64_t at = 0; (shadow = first_in(sanitizer, at, UINT64_MAX)) != NULL;) {
    uint32_t before = shadow->count;
    at = shadow->end;
    openreg_records_drop(sanitizer, shadow, is_dropped, NULL);
    if (is_dropped == is_of_ended_thread)
      sanitizer->counters.forgotten_records += before - shadow->count;
    if (!shadow->is_live && shadow->count == 0 && !sanitizer->options.report_freed)
      remove_shadow_block(sanitizer, shadow);
  }
}

void openreg_shadow_sweep(openreg_sanitizer *sanitizer) {
  if (openreg_clock_dead_slots(&sanitizer->clocks) < MAX_DEAD_SLOTS)
    return;
  drop_everywhere(sanitizer, openreg_record_is_before_all);
  if (openreg_clock_dead_slots(&sanitizer->clocks) > MAX_DEAD_SLOTS / 2)
    drop_everywhere(sanitizer, is_of_ended_thread);
}

void openreg_shadow_clear(openreg_sanitizer *sanitizer) {
  while (sanitizer->shadow_cache.root != NULL)
    remove_shadow_block(sanitizer, sanitizer->shadow_cache.root);
}
