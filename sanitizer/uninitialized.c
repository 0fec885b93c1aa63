/* unwritten.c: which bytes were never written, and who computes with them.
 *
 * Only launches that touch a block with such bytes come here. What a launch reads is judged by what
 * was before it; a byte that was found is taken for written from then on, so that it is found
 * once. Where the set of a block would have too many runs, bytes are taken for written as well.
 */
#include "sanitizer/state.h"

/* The extent that an access is to, and the runs that it brings there. */
struct followed {
  struct extent *extent;
  struct runs moved;
  bool is_moved;
};

static void lose(openreg_sanitizer *sanitizer, const struct box *box) {
  sanitizer->counters.forgotten_bytes += box->high - box->low;
}

static void judge(openreg_sanitizer *sanitizer, const openreg_sanitizer_launch *launch,
                  const openreg_sanitizer_access *access, const struct box *box,
                  struct extent *extent) {
  struct doing reading = {.actor = launch->actor,
                          .site = launch->site,
                          .tag = access->tag,
                          .mode = access->mode,
                          .box = box};
  openreg_sanitizer_run bytes;
  openreg_sanitizer_answer answer = openreg_runs_meet(&extent->unwritten, box, &bytes);
  if (answer == OPENREG_SANITIZER_UNKNOWN)
    sanitizer->counters.unknown++;
  if (answer == OPENREG_SANITIZER_YES)
    openreg_findings_unwritten(sanitizer, extent, &reading, bytes);
}

/* What is moved must be known before the first byte is written. */
static void follow(openreg_sanitizer *sanitizer, const openreg_sanitizer_launch *launch,
                   const struct box *boxes, size_t index, struct followed *followed) {
  const openreg_sanitizer_access *to = &launch->accesses[index];
  if (openreg_box_is_empty(&boxes[index]))
    return;
  followed->extent = openreg_extents_live_at(&sanitizer->extents, boxes[index].low);
  if (followed->extent == NULL || !to->is_moved)
    return;
  const struct extent *extent = openreg_extents_live_at(&sanitizer->extents, boxes[to->source].low);
  if (extent == NULL || extent->unwritten.count == 0)
    return;
  followed->is_moved =
      openreg_move_unwritten(sanitizer, &extent->unwritten, &launch->accesses[to->source].region,
                             &to->region, &followed->moved);
  if (!followed->is_moved)
    lose(sanitizer, &boxes[index]);
}

static void take_out(openreg_sanitizer *sanitizer, struct extent *extent, const struct box *box) {
  if (extent->unwritten.count > 0 && !openreg_runs_remove(&extent->unwritten, &sanitizer->heap, box,
                                                          sanitizer->options.most_intervals))
    lose(sanitizer, box);
}

static void bring(openreg_sanitizer *sanitizer, struct followed *followed, const struct box *box) {
  if (followed->is_moved && followed->moved.count > 0 &&
      !openreg_runs_unite(&followed->extent->unwritten, &sanitizer->heap, &followed->moved, box,
                          followed->extent->end, sanitizer->options.most_intervals))
    lose(sanitizer, box);
  openreg_runs_clear(&followed->moved, &sanitizer->heap);
}

static bool is_computing(const openreg_sanitizer_access *access) {
  return (access->mode & OPENREG_SANITIZER_READ) != 0 &&
         (access->mode & (OPENREG_SANITIZER_MOVED | OPENREG_SANITIZER_PARTLY)) == 0;
}

/* For each access of a launch, `followed` is zeros. */
static void tell(openreg_sanitizer *sanitizer, const openreg_sanitizer_launch *launch,
                 const struct box *boxes, struct followed followed[]) {
  const openreg_sanitizer_access *access = launch->accesses;
  for (size_t i = 0; i < launch->count; i++)
    follow(sanitizer, launch, boxes, i, &followed[i]);
  for (size_t i = 0; i < launch->count; i++)
    if (followed[i].extent != NULL && is_computing(&access[i]))
      judge(sanitizer, launch, &access[i], &boxes[i], followed[i].extent);
  for (size_t i = 0; i < launch->count; i++)
    if (followed[i].extent != NULL &&
        (is_computing(&access[i]) || (access[i].mode & OPENREG_SANITIZER_WRITE) != 0))
      take_out(sanitizer, followed[i].extent, &boxes[i]);
  for (size_t i = 0; i < launch->count; i++)
    if (followed[i].extent != NULL)
      bring(sanitizer, &followed[i], &boxes[i]);
}

void openreg_unwritten_tell(openreg_sanitizer *sanitizer, const openreg_sanitizer_launch *launch,
                            const struct box *boxes) {
  struct followed few[8] = {{.extent = NULL}};
  struct followed *followed = launch->count <= 8 ? few : calloc(launch->count, sizeof *followed);
  if (followed != NULL) {
    tell(sanitizer, launch, boxes, followed);
  } else { /* as if all had been written */
    for (size_t i = 0; i < launch->count; i++) {
      struct extent *extent = openreg_extents_live_at(&sanitizer->extents, boxes[i].low);
      if (extent != NULL && !openreg_box_is_empty(&boxes[i]))
        take_out(sanitizer, extent, &boxes[i]);
    }
  }
  if (followed != few)
    free(followed);
}
