/* move.c: copies the state "unwritten" along with the bytes when memory is copied.
 *
 * Both regions have the same sizes, so a copy is a nest of loops. Dimensions that continue each
 * other in both regions become one loop. If the innermost loop is contiguous in both, a whole row
 * of elements is one step. Each step looks up the unwritten bytes of its source.
 */
#include "sanitizer/state.h"

enum { MAX_STEPS = 1 << 16 };

struct loop {
  int64_t size, from, to; /* strides in bytes */
};

struct nest {
  int loops;
  struct loop loop[OPENREG_SANITIZER_MAX_DIMS]; /* innermost first */
  uint64_t from_bytes, to_bytes;                /* of an element */
  uint64_t row;                                 /* elements per step */
};

/* The unwritten runs of all steps, in any order. */
struct pieces {
  openreg_sanitizer_run *piece;
  uint32_t count, capacity;
  bool is_ascending;
};

static int64_t length(int64_t stride) {
  return stride < 0 ? -stride : stride;
}

/* The innermost loop is the one with the smallest stride in the destination. */
static void sort_loops(struct nest *nest) {
  for (int i = 1; i < nest->loops; i++) {
    struct loop moved = nest->loop[i];
    int place = i;
    for (; place > 0 && length(nest->loop[place - 1].to) > length(moved.to); place--)
      nest->loop[place] = nest->loop[place - 1];
    nest->loop[place] = moved;
  }
}

static void make_nest(struct nest *nest, const openreg_sanitizer_region *from,
                      const openreg_sanitizer_region *to) {
  struct loop *loop = nest->loop;
  int left = 0;
  nest->loops = 0;
  nest->row = 1;
  nest->from_bytes = from->element_bytes;
  nest->to_bytes = to->element_bytes;
  for (int i = to->dims - 1; i >= 0; i--)
    if (to->sizes[i] != 1)
      loop[nest->loops++] = (struct loop){to->sizes[i], from->strides[i], to->strides[i]};
  sort_loops(nest);
  for (int i = 0; i < nest->loops; i++) {
    struct loop *last = &loop[left - 1];
    if (left > 0 && loop[i].from == last->from * last->size && loop[i].to == last->to * last->size)
      last->size *= loop[i].size;
    else
      loop[left++] = loop[i];
  }
  nest->loops = left;
  if (left > 0 && loop[0].from == (int64_t)nest->from_bytes &&
      loop[0].to == (int64_t)nest->to_bytes) {
    nest->row = (uint64_t)loop[0].size;
    loop[0].size = 1;
  }
}

static bool add_piece(openreg_sanitizer *sanitizer, struct pieces *pieces, uint64_t begin,
                      uint64_t end) {
  if (pieces->count == pieces->capacity) {
    uint32_t capacity = pieces->capacity == 0 ? 64 : 2 * pieces->capacity;
    openreg_sanitizer_run *piece =
        openreg_heap_resize(&sanitizer->heap, pieces->piece, pieces->capacity * sizeof *piece,
                            capacity * sizeof *piece);
    if (piece == NULL)
      return false;
    pieces->piece = piece;
    pieces->capacity = capacity;
  }
  if (pieces->count > 0 && begin < pieces->piece[pieces->count - 1].begin)
    pieces->is_ascending = false;
  pieces->piece[pieces->count++] = (openreg_sanitizer_run){begin, end};
  return true;
}

/* Copies a row of elements. If the element sizes differ, an element is unwritten if one of its
 * bytes is. Otherwise each byte counts for itself. */
static bool move_row(openreg_sanitizer *sanitizer, const struct nest *nest,
                     const struct runs *unwritten, uint64_t from, uint64_t to,
                     struct pieces *pieces) {
  const openreg_sanitizer_run *runs = openreg_runs_of(unwritten);
  uint64_t size = nest->from_bytes, end = from + nest->row * size;
  for (uint32_t i = openreg_runs_find(unwritten, from); i < unwritten->count && runs[i].begin < end;
       i++) {
    uint64_t first = (runs[i].begin > from ? runs[i].begin : from) - from;
    uint64_t last = (runs[i].end < end ? runs[i].end : end) - from;
    if (size != nest->to_bytes) {
      first = first / size * nest->to_bytes;
      last = (last + size - 1) / size * nest->to_bytes;
    }
    if (!add_piece(sanitizer, pieces, to + first, to + last))
      return false;
  }
  return true;
}

static bool move_rows(openreg_sanitizer *sanitizer, const struct nest *nest,
                      const struct runs *unwritten, uint64_t from, uint64_t to,
                      struct pieces *pieces) {
  int64_t index[OPENREG_SANITIZER_MAX_DIMS] = {0};
  uint32_t steps = 0;
  for (;;) {
    int k = 0;
    if (++steps > MAX_STEPS || !move_row(sanitizer, nest, unwritten, from, to, pieces))
      return false;
    for (; k < nest->loops; k++) {
      const struct loop *loop = &nest->loop[k];
      from += (uint64_t)loop->from;
      to += (uint64_t)loop->to;
      if (++index[k] < loop->size)
        break;
      from -= (uint64_t)(loop->size * loop->from);
      to -= (uint64_t)(loop->size * loop->to);
      index[k] = 0;
    }
    if (k == nest->loops)
      return true;
  }
}

static int compare(const void *left, const void *right) {
  const openreg_sanitizer_run *a = left, *b = right;
  return (a->begin > b->begin) - (a->begin < b->begin);
}

static bool collect(openreg_sanitizer *sanitizer, struct pieces *pieces, struct runs *moved) {
  uint32_t max = sanitizer->options.max_intervals;
  if (!pieces->is_ascending)
    qsort(pieces->piece, pieces->count, sizeof *pieces->piece, compare);
  for (uint32_t i = 0; i < pieces->count; i++)
    if (!openreg_runs_append(moved, &sanitizer->heap, pieces->piece[i], max))
      return false;
  return true;
}

bool openreg_move_unwritten(openreg_sanitizer *sanitizer, const struct runs *unwritten,
                            const openreg_sanitizer_region *from,
                            const openreg_sanitizer_region *to, struct runs *moved) {
  struct pieces pieces = {.is_ascending = true};
  struct dim room[OPENREG_SANITIZER_MAX_DIMS];
  openreg_sanitizer_run met;
  struct nest nest;
  struct strided_region strided;
  if (!openreg_strided_make(&strided, room, from))
    return false;
  if (openreg_strided_is_empty(&strided) ||
      openreg_runs_meet(unwritten, &strided, &met) == OPENREG_SANITIZER_NO)
    return true;
  const openreg_sanitizer_run *run =
      openreg_runs_of(unwritten) + openreg_runs_find(unwritten, strided.low);
  if (run->begin <= strided.low && strided.high <= run->end) /* the whole source is unwritten */
    return openreg_strided_make(&strided, room, to) &&
           openreg_runs_add(moved, &sanitizer->heap, &strided, UINT64_MAX,
                            sanitizer->options.max_intervals);
  make_nest(&nest, from, to);
  bool is_moved = move_rows(sanitizer, &nest, unwritten, from->address, to->address, &pieces) &&
                  collect(sanitizer, &pieces, moved);
  openreg_heap_give(&sanitizer->heap, pieces.piece, pieces.capacity * sizeof *pieces.piece);
  if (!is_moved)
    openreg_runs_clear(moved, &sanitizer->heap);
  return is_moved;
}
