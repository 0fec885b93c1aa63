/* launch.c: what is told of a launch. */
#include "sanitizer/state.h"

/* The regions of a launch in their normal form; few of few dimensions take no memory. */
enum { FEW_BOXES = 16, FEW_DIMS = 64 };

struct boxes {
  struct box *box;
  struct dim *dim;
  struct box few_boxes[FEW_BOXES];
  struct dim few_dims[FEW_DIMS];
};

static openreg_status refuse(size_t index, const char *what) {
  return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: access %zu of a launch %s", index, what);
}

static bool have_same_sizes(const openreg_sanitizer_region *a, const openreg_sanitizer_region *b) {
  if (a->dims != b->dims)
    return false;
  for (int i = 0; i < a->dims; i++)
    if (a->sizes[i] != b->sizes[i])
      return false;
  return true;
}

static openreg_status check(const openreg_sanitizer_launch *launch, size_t index) {
  const openreg_sanitizer_access *access = &launch->accesses[index];
  if ((access->mode & (OPENREG_SANITIZER_READ | OPENREG_SANITIZER_WRITE)) == 0)
    return refuse(index, "neither reads nor writes");
  if (access->region.dims < 0 || access->region.dims > OPENREG_SANITIZER_MAX_DIMS)
    return refuse(index, "has fewer than 0 or more than 64 dimensions");
  if (!access->is_moved)
    return OPENREG_OK;
  if ((access->mode & OPENREG_SANITIZER_WRITE) == 0 || access->source >= launch->count ||
      (launch->accesses[access->source].mode & OPENREG_SANITIZER_READ) == 0)
    return refuse(index, "is moved, but is no write, or its source is no read");
  if (!have_same_sizes(&access->region, &launch->accesses[access->source].region))
    return refuse(index, "has other sizes than its source");
  return OPENREG_OK;
}

static void drop_boxes(struct boxes *boxes) {
  if (boxes->box != boxes->few_boxes)
    free(boxes->box);
  if (boxes->dim != boxes->few_dims)
    free(boxes->dim);
}

static openreg_status make_room(struct boxes *boxes, size_t count, size_t dims) {
  boxes->box = count <= FEW_BOXES ? boxes->few_boxes : malloc(count * sizeof *boxes->box);
  boxes->dim = dims <= FEW_DIMS ? boxes->few_dims : malloc(dims * sizeof *boxes->dim);
  if (boxes->box != NULL && boxes->dim != NULL)
    return OPENREG_OK;
  drop_boxes(boxes);
  return openreg_fail(OPENREG_OUT_OF_MEMORY,
                      "openreg: no host memory for the sanitizer to look at a launch");
}

static openreg_status make_boxes(struct boxes *boxes, const openreg_sanitizer_launch *launch) {
  openreg_status status = OPENREG_OK;
  size_t dims = 0;
  for (size_t i = 0; i < launch->count && status == OPENREG_OK; i++) {
    status = check(launch, i);
    dims += (size_t)launch->accesses[i].region.dims;
  }
  if (status == OPENREG_OK)
    status = make_room(boxes, launch->count, dims);
  if (status != OPENREG_OK)
    return status;
  struct dim *room = boxes->dim;
  for (size_t i = 0; i < launch->count; i++) {
    const openreg_sanitizer_region *region = &launch->accesses[i].region;
    if (!openreg_box_make(&boxes->box[i], room, region)) {
      drop_boxes(boxes);
      return refuse(i, "has a negative size, or goes beyond what addresses can be");
    }
    room += region->dims;
  }
  return OPENREG_OK;
}

/* ---- telling --------------------------------------------------------------------------------- */

static void tell_freed(openreg_sanitizer *sanitizer, const struct doing *doing) {
  const struct extent *extent = openreg_extents_find(&sanitizer->extents, doing->box->low);
  if (extent != NULL && extent->begin <= doing->box->low && extent->block.is_freed)
    openreg_findings_freed(sanitizer, extent, doing);
}

/* Returns whether it was to a block with unwritten bytes. */
static bool tell_access(openreg_sanitizer *sanitizer, const struct doing *doing) {
  if (openreg_box_is_empty(doing->box))
    return false;
  struct extent *extent = openreg_extents_live_at(&sanitizer->extents, doing->box->low);
  if (extent == NULL) {
    if (sanitizer->options.report_freed)
      tell_freed(sanitizer, doing);
    return false;
  }
  openreg_records_tell(sanitizer, extent, doing);
  return extent->unwritten.count > 0;
}

static void tell(openreg_sanitizer *sanitizer, const openreg_sanitizer_launch *launch,
                 const struct box *boxes) {
  bool is_unwritten = false;
  if (launch->submitter != NULL)
    openreg_order_join(&sanitizer->order, launch->submitter, launch->actor);
  struct doing doing = {
      .actor = launch->actor, .time = openreg_order_now(launch->actor), .site = launch->site};
  for (size_t i = 0; i < launch->count; i++) {
    doing.tag = launch->accesses[i].tag;
    doing.mode = launch->accesses[i].mode;
    doing.box = &boxes[i];
    is_unwritten |= tell_access(sanitizer, &doing);
  }
  sanitizer->counters.accesses += launch->count;
  if (is_unwritten)
    openreg_unwritten_tell(sanitizer, launch, boxes);
}

openreg_status openreg_sanitizer_run_launch(openreg_sanitizer *sanitizer,
                                            const openreg_sanitizer_launch *launch) {
  struct boxes boxes;
  openreg_status status = make_boxes(&boxes, launch);
  if (status != OPENREG_OK)
    return status;
  openreg_sanitizer_enter(sanitizer);
  tell(sanitizer, launch, boxes.box);
  openreg_sanitizer_leave(sanitizer);
  drop_boxes(&boxes);
  return OPENREG_OK;
}

bool openreg_sanitizer_would_conflict(openreg_sanitizer *sanitizer, openreg_sanitizer_actor *actor,
                                      const openreg_sanitizer_region *region, unsigned mode) {
  struct dim room[OPENREG_SANITIZER_MAX_DIMS];
  struct box box;
  if (!openreg_box_make(&box, room, region) || openreg_box_is_empty(&box))
    return false;
  struct doing doing = {.actor = actor, .mode = mode, .box = &box};
  openreg_sanitizer_enter(sanitizer);
  const struct extent *extent = openreg_extents_live_at(&sanitizer->extents, box.low);
  bool conflicts = extent != NULL && openreg_records_conflict(extent, &doing);
  openreg_sanitizer_leave(sanitizer);
  return conflicts;
}
