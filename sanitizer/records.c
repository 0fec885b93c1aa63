/* records.c: the accesses that are remembered of a block.
 *
 * An access need not be remembered beside a later one if all that conflicts with it, and is not
 * after it, conflicts with the later one as well, and is not after that. So a record is dropped for
 * an access that is after it and has all its bytes, if the access writes, or both read; of
 * contiguous ones also the bytes that an access has are taken away from the record. A host thread's
 * access takes the place of host threads' alone, for two of these never conflict. So a block that
 * one stream uses keeps a record or two.
 *
 * A record is also dropped when it is before all that anybody will do. That is looked for only when
 * there is no room for another; then accesses of one place in the program that follow each other in
 * memory become one as well. When nothing helps, the oldest are forgotten.
 */
#include "sanitizer/state.h"

#include <assert.h>
#include <string.h>

enum {
  PARTLY = OPENREG_SANITIZER_PARTLY,
  PARTLY_WRITTEN = OPENREG_SANITIZER_PARTLY | OPENREG_SANITIZER_WRITE,

  /* In which a record is compared with an access before it is kept; those of nested boxes are found
   * soon. */
  MOST_COVERED_RUNS = 64,
  MOST_TANGLED_RUNS = 2,
  MOST_LOOKED_BACK = 8 /* places in the program that take turns */
};

struct box openreg_record_box(const struct record *record) {
  const struct shape *shape = record->shape;
  if (shape == NULL)
    return (struct box){record->low, record->high, record->high - record->low, 0, true, NULL};
  return (struct box){record->low, record->high,     shape->run,
                      shape->dims, shape->is_nested, shape->dim};
}

/* ---- what a record has ----------------------------------------------------------------------- */

static size_t shape_bytes(int dims) {
  return sizeof(struct shape) + (size_t)dims * sizeof(struct dim);
}

static struct shape *make_shape(struct heap *heap, const struct box *box) {
  struct shape *shape = openreg_heap_take(heap, shape_bytes(box->dims));
  if (shape == NULL)
    return NULL;
  shape->references = 0;
  shape->dims = box->dims;
  shape->run = box->run;
  shape->is_nested = box->is_nested;
  memcpy(shape->dim, box->dim, (size_t)box->dims * sizeof *box->dim);
  return shape;
}

static void retain(openreg_sanitizer *sanitizer, const struct record *record) {
  sanitizer->order.slots[record->slot].references++;
  if (record->shape != NULL)
    record->shape->references++;
  if (record->origin != NULL)
    record->origin->references++;
}

static void release(openreg_sanitizer *sanitizer, const struct record *record) {
  sanitizer->order.slots[record->slot].references--;
  if (record->shape != NULL && --record->shape->references == 0)
    openreg_heap_give(&sanitizer->heap, record->shape, shape_bytes(record->shape->dims));
  if (record->origin != NULL && --record->origin->references == 0)
    openreg_heap_give(&sanitizer->heap, record->origin, sizeof *record->origin);
}

bool openreg_record_is_settled(const openreg_sanitizer *sanitizer, const struct record *record,
                               const void *context) {
  (void)context;
  return openreg_order_is_settled(&sanitizer->order, record->slot, record->time);
}

void openreg_records_drop(openreg_sanitizer *sanitizer, struct extent *extent,
                          bool (*is_dropped)(const openreg_sanitizer *, const struct record *,
                                             const void *context),
                          const void *context) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < extent->count; i++) {
    struct record *record = &extent->records[i];
    if (is_dropped == NULL || is_dropped(sanitizer, record, context))
      release(sanitizer, record);
    else
      extent->records[kept++] = *record;
  }
  extent->count = kept;
  if (kept == 0 && extent->capacity > RECORDS_INSIDE) {
    openreg_heap_give(&sanitizer->heap, extent->records,
                      extent->capacity * sizeof *extent->records);
    extent->records = extent->inside;
    extent->capacity = RECORDS_INSIDE;
  }
}

/* ---- making room ----------------------------------------------------------------------------- */

static bool is_of_one_place(const struct record *a, const struct record *b) {
  return a->slot == b->slot && a->time == b->time && a->site == b->site && a->mode == b->mode &&
         a->origin == b->origin;
}

static bool have_same_dims(const struct shape *a, const struct shape *b) {
  return a != NULL && b != NULL && a->dims == b->dims &&
         memcmp(a->dim, b->dim, (size_t)a->dims * sizeof *a->dim) == 0;
}

static void take_shape(struct heap *heap, struct record *record, struct shape *shape) {
  if (shape != NULL)
    shape->references = 1;
  if (--record->shape->references == 0)
    openreg_heap_give(heap, record->shape, shape_bytes(record->shape->dims));
  record->shape = shape;
}

/* Two boxes with the same steps, of which the runs touch, are one with longer runs. */
static bool join_strided(struct heap *heap, struct record *record, const struct record *next) {
  struct dim dim[OPENREG_SANITIZER_MAX_DIMS];
  if (!have_same_dims(record->shape, next->shape))
    return false;
  struct box box = openreg_record_box(record);
  uint64_t low = record->low < next->low ? record->low : next->low;
  uint64_t end = record->low + record->shape->run, next_end = next->low + next->shape->run;
  if (record->low > next_end || next->low > end)
    return false;
  if (end < next_end)
    end = next_end;
  box.high = record->high - (record->low + box.run) + end;
  box.low = low;
  box.run = end - low;
  memcpy(dim, box.dim, (size_t)box.dims * sizeof *dim);
  box.dim = dim;
  box.dims = openreg_dims_reduce(dim, box.dims, &box.run);
  box.is_nested = openreg_box_is_nested(&box);
  struct shape *shape = box.dims == 0 ? NULL : make_shape(heap, &box);
  if (box.dims > 0 && shape == NULL)
    return false;
  take_shape(heap, record, shape);
  record->low = box.low;
  record->high = box.high;
  return true;
}

static bool join(struct heap *heap, struct record *record, const struct record *next) {
  if (!is_of_one_place(record, next))
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

/* Looks for one that it continues among the last few that are kept. */
static bool join_any(struct heap *heap, struct record kept[], uint32_t count,
                     const struct record *next) {
  for (uint32_t i = 1; i <= MOST_LOOKED_BACK && i <= count; i++)
    if (join(heap, &kept[count - i], next))
      return true;
  return false;
}

static void join_records(openreg_sanitizer *sanitizer, struct extent *extent) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < extent->count; i++) {
    struct record next = extent->records[i];
    if (join_any(&sanitizer->heap, extent->records, kept, &next))
      release(sanitizer, &next);
    else
      extent->records[kept++] = next;
  }
  extent->count = kept;
}

static bool grow(openreg_sanitizer *sanitizer, struct extent *extent) {
  uint32_t capacity = extent->capacity * 2, old = extent->capacity;
  bool is_inside = old == RECORDS_INSIDE;
  if (capacity > sanitizer->options.most_records)
    capacity = sanitizer->options.most_records;
  if (capacity <= old || openreg_heap_is_full(&sanitizer->heap))
    return false;
  struct record *records =
      openreg_heap_resize(&sanitizer->heap, is_inside ? NULL : extent->records,
                          is_inside ? 0 : old * sizeof *records, capacity * sizeof *records);
  if (records == NULL)
    return false;
  if (is_inside)
    memcpy(records, extent->inside, sizeof extent->inside);
  extent->records = records;
  extent->capacity = capacity;
  return true;
}

static void forget_oldest(openreg_sanitizer *sanitizer, struct extent *extent) {
  uint32_t forgotten = 1 + extent->count / 8; /* some at once, since looking for room takes time */
  for (uint32_t i = 0; i < forgotten; i++)
    release(sanitizer, &extent->records[i]);
  extent->count -= forgotten;
  memmove(extent->records, extent->records + forgotten, extent->count * sizeof *extent->records);
  sanitizer->counters.forgotten_records += forgotten;
}

static void make_room(openreg_sanitizer *sanitizer, struct extent *extent) {
  if (extent->count < extent->capacity)
    return;
  openreg_records_drop(sanitizer, extent, openreg_record_is_settled, NULL);
  join_records(sanitizer, extent);
  if (extent->count > extent->capacity / 2 && !grow(sanitizer, extent) &&
      extent->count == extent->capacity)
    forget_oldest(sanitizer, extent);
}

void openreg_records_push(openreg_sanitizer *sanitizer, struct extent *extent,
                          const struct record *record) {
  struct record pushed = *record; /* it may be one of those that move */
  retain(sanitizer, &pushed);
  make_room(sanitizer, extent);
  extent->records[extent->count++] = pushed;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static bool covers(const struct box *box, const struct box *other) {
  uint64_t most = box->is_nested && other->is_nested ? MOST_COVERED_RUNS : MOST_TANGLED_RUNS;
  return openreg_box_covers(box, other, most) == OPENREG_SANITIZER_YES;
}

/* What is known to the byte replaces what is not, and not the other way; of two that are not, one
 * replaces what did the same to the same bytes. */
static bool replaces_partly(const struct doing *doing, const struct box *box, unsigned mode) {
  if ((mode & PARTLY) == 0 || !covers(doing->box, box))
    return false;
  return (doing->mode & PARTLY) == 0 ||
         (((doing->mode ^ mode) & OPENREG_SANITIZER_WRITE) == 0 && covers(box, doing->box));
}

/* Takes the bytes of an access that is after a record away from it. Returns whether none are left.
 */
static bool replaces(const struct doing *doing, struct record *record) {
  const struct box *box = doing->box;
  if (((record->mode & ~doing->mode) & OPENREG_SANITIZER_WRITE) != 0 ||
      (doing->actor->kind == OPENREG_SANITIZER_HOST &&
       record->actor_kind != OPENREG_SANITIZER_HOST))
    return false;
  if (record->high <= box->low || box->high <= record->low)
    return false;
  struct box other = openreg_record_box(record);
  if (((record->mode | doing->mode) & PARTLY) != 0)
    return replaces_partly(doing, &other, record->mode);
  if (record->shape == NULL && openreg_box_is_contiguous(box)) {
    if (box->low <= record->low)
      record->low = box->high;
    else if (box->high >= record->high)
      record->high = box->low;
    return record->low >= record->high;
  }
  return covers(box, &other);
}

/* Whether an access conflicts with a record that is not before it. */
static openreg_sanitizer_answer conflicts(const struct doing *doing, const struct record *record) {
  if (((record->mode | doing->mode) & OPENREG_SANITIZER_WRITE) == 0 ||
      (doing->actor->kind == OPENREG_SANITIZER_HOST &&
       record->actor_kind == OPENREG_SANITIZER_HOST))
    return OPENREG_SANITIZER_NO;
  struct box box = openreg_record_box(record);
  if ((record->mode & doing->mode & PARTLY) != 0)
    return OPENREG_SANITIZER_NO;
  if ((record->mode & PARTLY_WRITTEN) == PARTLY_WRITTEN)
    return openreg_box_covers(doing->box, &box, MOST_COVERED_RUNS);
  if ((doing->mode & PARTLY_WRITTEN) == PARTLY_WRITTEN)
    return openreg_box_covers(&box, doing->box, MOST_COVERED_RUNS);
  return openreg_boxes_meet(doing->box, &box);
}

static void report(openreg_sanitizer *sanitizer, const struct extent *extent,
                   const struct doing *doing, const struct record *record) {
  openreg_sanitizer_answer answer = conflicts(doing, record);
  sanitizer->counters.comparisons++;
  if (answer == OPENREG_SANITIZER_YES)
    openreg_findings_conflict(sanitizer, extent, record, doing);
  else if (answer == OPENREG_SANITIZER_UNKNOWN)
    sanitizer->counters.unknown++;
}

static struct shape *shape_of(openreg_sanitizer *sanitizer, const struct doing *doing) {
  return openreg_box_is_contiguous(doing->box) ? NULL : make_shape(&sanitizer->heap, doing->box);
}

static void remember(openreg_sanitizer *sanitizer, struct extent *extent,
                     const struct doing *doing) {
  struct record record = {.low = doing->box->low,
                          .high = doing->box->high,
                          .shape = shape_of(sanitizer, doing),
                          .time = doing->time,
                          .site = doing->site,
                          .tag = doing->tag,
                          .actor = doing->actor->tag,
                          .slot = doing->actor->slot,
                          .mode = (uint8_t)doing->mode,
                          .actor_kind = (uint8_t)doing->actor->kind};
  if (record.shape == NULL && !openreg_box_is_contiguous(doing->box))
    sanitizer->counters.forgotten_records++;
  else
    openreg_records_push(sanitizer, extent, &record);
}

void openreg_records_tell(openreg_sanitizer *sanitizer, struct extent *extent,
                          const struct doing *doing) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < extent->count; i++) {
    struct record *record = &extent->records[i];
    if (!openreg_order_has(doing->actor, record->slot, record->time)) {
      report(sanitizer, extent, doing, record);
    } else if (replaces(doing, record)) {
      release(sanitizer, record);
      continue;
    }
    if (kept < i)
      extent->records[kept] = *record;
    kept++;
  }
  extent->count = kept;
  remember(sanitizer, extent, doing);
}

bool openreg_records_conflict(const struct extent *extent, const struct doing *doing) {
  for (uint32_t i = 0; i < extent->count; i++) {
    const struct record *record = &extent->records[i];
    if (!openreg_order_has(doing->actor, record->slot, record->time) &&
        conflicts(doing, record) == OPENREG_SANITIZER_YES)
      return true;
  }
  return false;
}
