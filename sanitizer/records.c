/* records.c: the remembered accesses of a block.
 *
 * A record is redundant beside a later access if everything that conflicts with the record, and is
 * not ordered after it, also conflicts with the later access. So an access drops the records that
 * happen before it and whose bytes it contains, if the access writes or if both only read. From a
 * contiguous record it removes the bytes that it contains. An access of a host thread only replaces
 * records of host threads, because accesses of two host threads never conflict. So a block that one
 * stream uses keeps one or two records.
 *
 * A record is also dropped if it happens before everything that any thread will do. The code checks
 * this only when a block has no room for another record. At that point it also merges adjacent
 * accesses of one call site. If nothing helps, it forgets the oldest records.
 */
#include "sanitizer/state.h"

#include <assert.h>
#include <string.h>

enum {
  PARTIAL = OPENREG_SANITIZER_PARTIAL,
  PARTIAL_WRITE = OPENREG_SANITIZER_PARTIAL | OPENREG_SANITIZER_WRITE,

  /* Limits for the comparison of a record with an access. Runs of nested regions are found quickly.
   */
  MAX_COVERED_RUNS = 64,
  MAX_INTERLEAVED_RUNS = 2,
  MAX_LOOKED_BACK = 8 /* call sites that may take turns */
};

struct strided_region openreg_record_region(const struct record *record) {
  const struct shape *shape = record->shape;
  if (shape == NULL)
    return (struct strided_region){record->low, record->high, record->high - record->low,
                                   0,           true,         NULL};
  return (struct strided_region){record->low, record->high,     shape->run,
                                 shape->dims, shape->is_nested, shape->dim};
}

/* ---- references of a record ------------------------------------------------------------------ */

static size_t shape_bytes(int dims) {
  return sizeof(struct shape) + (size_t)dims * sizeof(struct dim);
}

static struct shape *make_shape(struct heap *heap, const struct strided_region *strided) {
  struct shape *shape = openreg_heap_take(heap, shape_bytes(strided->dims));
  if (shape == NULL)
    return NULL;
  shape->references = 0;
  shape->dims = strided->dims;
  shape->run = strided->run;
  shape->is_nested = strided->is_nested;
  memcpy(shape->dim, strided->dim, (size_t)strided->dims * sizeof *strided->dim);
  return shape;
}

static void retain(openreg_sanitizer *sanitizer, const struct record *record) {
  sanitizer->clocks.slots[record->slot].references++;
  if (record->shape != NULL)
    record->shape->references++;
  if (record->origin != NULL)
    record->origin->references++;
}

static void release(openreg_sanitizer *sanitizer, const struct record *record) {
  sanitizer->clocks.slots[record->slot].references--;
  if (record->shape != NULL && --record->shape->references == 0)
    openreg_heap_give(&sanitizer->heap, record->shape, shape_bytes(record->shape->dims));
  if (record->origin != NULL && --record->origin->references == 0)
    openreg_heap_give(&sanitizer->heap, record->origin, sizeof *record->origin);
}

bool openreg_record_is_before_all(const openreg_sanitizer *sanitizer, const struct record *record,
                                  const void *context) {
  (void)context;
  return openreg_clock_is_before_all(&sanitizer->clocks, record->slot, record->epoch);
}

void openreg_records_drop(openreg_sanitizer *sanitizer, struct shadow_block *shadow,
                          bool (*is_dropped)(const openreg_sanitizer *, const struct record *,
                                             const void *context),
                          const void *context) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < shadow->count; i++) {
    struct record *record = &shadow->records[i];
    if (is_dropped == NULL || is_dropped(sanitizer, record, context))
      release(sanitizer, record);
    else
      shadow->records[kept++] = *record;
  }
  shadow->count = kept;
  if (kept == 0 && shadow->capacity > RECORDS_INSIDE) {
    openreg_heap_give(&sanitizer->heap, shadow->records,
                      shadow->capacity * sizeof *shadow->records);
    shadow->records = shadow->inside;
    shadow->capacity = RECORDS_INSIDE;
  }
}

/* ---- making room ----------------------------------------------------------------------------- */

static bool have_same_origin(const struct record *a, const struct record *b) {
  return a->slot == b->slot && a->epoch == b->epoch && a->call_site == b->call_site &&
         a->mode == b->mode && a->origin == b->origin;
}

static bool have_same_dims(const struct shape *a, const struct shape *b) {
  return a != NULL && b != NULL && a->dims == b->dims &&
         memcmp(a->dim, b->dim, (size_t)a->dims * sizeof *a->dim) == 0;
}

static void replace_shape(struct heap *heap, struct record *record, struct shape *shape) {
  if (shape != NULL)
    shape->references = 1;
  if (--record->shape->references == 0)
    openreg_heap_give(heap, record->shape, shape_bytes(record->shape->dims));
  record->shape = shape;
}

/* Merges two regions with the same strides whose runs touch into one with longer runs. */
static bool join_strided(struct heap *heap, struct record *record, const struct record *next) {
  struct dim dim[OPENREG_SANITIZER_MAX_DIMS];
  if (!have_same_dims(record->shape, next->shape))
    return false;
  struct strided_region strided = openreg_record_region(record);
  uint64_t low = record->low < next->low ? record->low : next->low;
  uint64_t end = record->low + record->shape->run, next_end = next->low + next->shape->run;
  if (record->low > next_end || next->low > end)
    return false;
  if (end < next_end)
    end = next_end;
  strided.high = record->high - (record->low + strided.run) + end;
  strided.low = low;
  strided.run = end - low;
  memcpy(dim, strided.dim, (size_t)strided.dims * sizeof *dim);
  strided.dim = dim;
  strided.dims = openreg_dims_reduce(dim, strided.dims, &strided.run);
  strided.is_nested = openreg_strided_is_nested(&strided);
  struct shape *shape = strided.dims == 0 ? NULL : make_shape(heap, &strided);
  if (strided.dims > 0 && shape == NULL)
    return false;
  replace_shape(heap, record, shape);
  record->low = strided.low;
  record->high = strided.high;
  return true;
}

static bool join(struct heap *heap, struct record *record, const struct record *next) {
  if (!have_same_origin(record, next))
    return false;
  if (record->shape == NULL && next->shape == NULL) {
    if (next->high < record->low || record->high < next->low)
      return false;
    record->low = record->low < next->low ? record->low : next->low;
    record->high = record->high > next->high ? record->high : next->high;
  } else if (record->shape == NULL || !join_strided(heap, record, next)) {
    return false;
  }
  record->tag = next->tag;
  return true;
}

/* Merges `next` into one of the last few kept records, if it continues one. */
static bool join_any(struct heap *heap, struct record kept[], uint32_t count,
                     const struct record *next) {
  for (uint32_t i = 1; i <= MAX_LOOKED_BACK && i <= count; i++)
    if (join(heap, &kept[count - i], next))
      return true;
  return false;
}

static void join_records(openreg_sanitizer *sanitizer, struct shadow_block *shadow) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < shadow->count; i++) {
    struct record next = shadow->records[i];
    if (join_any(&sanitizer->heap, shadow->records, kept, &next))
      release(sanitizer, &next);
    else
      shadow->records[kept++] = next;
  }
  shadow->count = kept;
}

static bool grow(openreg_sanitizer *sanitizer, struct shadow_block *shadow) {
  uint32_t capacity = shadow->capacity * 2, old = shadow->capacity;
  bool is_inside = old == RECORDS_INSIDE;
  if (capacity > sanitizer->options.max_records)
    capacity = sanitizer->options.max_records;
  if (capacity <= old || openreg_heap_is_full(&sanitizer->heap))
    return false;
  struct record *records =
      openreg_heap_resize(&sanitizer->heap, is_inside ? NULL : shadow->records,
                          is_inside ? 0 : old * sizeof *records, capacity * sizeof *records);
  if (records == NULL)
    return false;
  if (is_inside)
    memcpy(records, shadow->inside, sizeof shadow->inside);
  shadow->records = records;
  shadow->capacity = capacity;
  return true;
}

static void forget_oldest(openreg_sanitizer *sanitizer, struct shadow_block *shadow) {
  uint32_t forgotten = 1 + shadow->count / 8; /* several at once, because making room takes time */
  for (uint32_t i = 0; i < forgotten; i++)
    release(sanitizer, &shadow->records[i]);
  shadow->count -= forgotten;
  memmove(shadow->records, shadow->records + forgotten, shadow->count * sizeof *shadow->records);
  sanitizer->counters.forgotten_records += forgotten;
}

static void make_room(openreg_sanitizer *sanitizer, struct shadow_block *shadow) {
  if (shadow->count < shadow->capacity)
    return;
  openreg_records_drop(sanitizer, shadow, openreg_record_is_before_all, NULL);
  join_records(sanitizer, shadow);
  if (shadow->count > shadow->capacity / 2 && !grow(sanitizer, shadow) &&
      shadow->count == shadow->capacity)
    forget_oldest(sanitizer, shadow);
}

void openreg_records_push(openreg_sanitizer *sanitizer, struct shadow_block *shadow,
                          const struct record *record) {
  struct record pushed = *record; /* `record` may be one of those that move */
  retain(sanitizer, &pushed);
  make_room(sanitizer, shadow);
  shadow->records[shadow->count++] = pushed;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static bool covers(const struct strided_region *strided, const struct strided_region *other) {
  uint64_t max = strided->is_nested && other->is_nested ? MAX_COVERED_RUNS : MAX_INTERLEAVED_RUNS;
  return openreg_strided_covers(strided, other, max) == OPENREG_SANITIZER_YES;
}

/* An access whose bytes are known replaces a partial record, but not the other way round. A partial
 * access replaces a partial record of the same mode and the same bytes. */
static bool replaces_partly(const struct current_access *current,
                            const struct strided_region *strided, unsigned mode) {
  if ((mode & PARTIAL) == 0 || !covers(current->strided, strided))
    return false;
  return (current->mode & PARTIAL) == 0 ||
         (((current->mode ^ mode) & OPENREG_SANITIZER_WRITE) == 0 &&
          covers(strided, current->strided));
}

/* Removes the bytes of a later access from a record. Returns whether none are left. */
static bool replaces(const struct current_access *current, struct record *record) {
  const struct strided_region *strided = current->strided;
  if (((record->mode & ~current->mode) & OPENREG_SANITIZER_WRITE) != 0 ||
      (current->thread->kind == OPENREG_SANITIZER_HOST &&
       record->thread_kind != OPENREG_SANITIZER_HOST))
    return false;
  if (record->high <= strided->low || strided->high <= record->low)
    return false;
  struct strided_region other = openreg_record_region(record);
  if (((record->mode | current->mode) & PARTIAL) != 0)
    return replaces_partly(current, &other, record->mode);
  if (record->shape == NULL && openreg_strided_is_contiguous(strided)) {
    if (strided->low <= record->low)
      record->low = strided->high;
    else if (strided->high >= record->high)
      record->high = strided->low;
    return record->low >= record->high;
  }
  return covers(strided, &other);
}

/* Returns whether an access conflicts with a record that does not happen before it. */
static openreg_sanitizer_answer conflicts(const struct current_access *current,
                                          const struct record *record) {
  if (((record->mode | current->mode) & OPENREG_SANITIZER_WRITE) == 0 ||
      (current->thread->kind == OPENREG_SANITIZER_HOST &&
       record->thread_kind == OPENREG_SANITIZER_HOST))
    return OPENREG_SANITIZER_NO;
  struct strided_region strided = openreg_record_region(record);
  if ((record->mode & current->mode & PARTIAL) != 0)
    return OPENREG_SANITIZER_NO;
  if ((record->mode & PARTIAL_WRITE) == PARTIAL_WRITE)
    return openreg_strided_covers(current->strided, &strided, MAX_COVERED_RUNS);
  if ((current->mode & PARTIAL_WRITE) == PARTIAL_WRITE)
    return openreg_strided_covers(&strided, current->strided, MAX_COVERED_RUNS);
  return openreg_strided_overlap(current->strided, &strided);
}

static void report(openreg_sanitizer *sanitizer, const struct shadow_block *shadow,
                   const struct current_access *current, const struct record *record) {
  openreg_sanitizer_answer answer = conflicts(current, record);
  sanitizer->counters.comparisons++;
  if (answer == OPENREG_SANITIZER_YES)
    openreg_findings_conflict(sanitizer, shadow, record, current);
  else if (answer == OPENREG_SANITIZER_UNKNOWN)
    sanitizer->counters.unknown++;
}

static struct shape *shape_of(openreg_sanitizer *sanitizer, const struct current_access *current) {
  return openreg_strided_is_contiguous(current->strided)
             ? NULL
             : make_shape(&sanitizer->heap, current->strided);
}

static void remember(openreg_sanitizer *sanitizer, struct shadow_block *shadow,
                     const struct current_access *current) {
  struct record record = {.low = current->strided->low,
                          .high = current->strided->high,
                          .shape = shape_of(sanitizer, current),
                          .epoch = current->epoch,
                          .call_site = current->call_site,
                          .tag = current->tag,
                          .thread = current->thread->tag,
                          .slot = current->thread->slot,
                          .mode = (uint8_t)current->mode,
                          .thread_kind = (uint8_t)current->thread->kind};
  if (record.shape == NULL && !openreg_strided_is_contiguous(current->strided))
    sanitizer->counters.forgotten_records++;
  else
    openreg_records_push(sanitizer, shadow, &record);
}

void openreg_records_check(openreg_sanitizer *sanitizer, struct shadow_block *shadow,
                           const struct current_access *current) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < shadow->count; i++) {
    struct record *record = &shadow->records[i];
    if (!openreg_clock_includes(current->thread, record->slot, record->epoch)) {
      report(sanitizer, shadow, current, record);
    } else if (replaces(current, record)) {
      release(sanitizer, record);
      continue;
    }
    if (kept < i)
      shadow->records[kept] = *record;
    kept++;
  }
  shadow->count = kept;
  remember(sanitizer, shadow, current);
}

bool openreg_records_conflict(const struct shadow_block *shadow,
                              const struct current_access *current) {
  for (uint32_t i = 0; i < shadow->count; i++) {
    const struct record *record = &shadow->records[i];
    if (!openreg_clock_includes(current->thread, record->slot, record->epoch) &&
        conflicts(current, record) == OPENREG_SANITIZER_YES)
      return true;
  }
  return false;
}
