/* launch.c: checks a launch. */
#include "sanitizer/state.h"

/* The normalized regions of a launch. Small launches need no memory. */
enum { INLINE_REGIONS = 16, INLINE_DIMS = 64 };

struct strided_regions {
  struct strided_region *strided;
  struct dim *dim;
  struct strided_region inline_regions[INLINE_REGIONS];
  struct dim inline_dims[INLINE_DIMS];
};

static openreg_status fail_access(size_t index, const char *what) {
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

static openreg_status validate(const openreg_sanitizer_launch *launch, size_t index) {
  const openreg_sanitizer_access *access = &launch->accesses[index];
  if ((access->mode & (OPENREG_SANITIZER_READ | OPENREG_SANITIZER_WRITE)) == 0)
    return fail_access(index, "must be a READ, a WRITE, or both");
  if (access->region.dims < 0 || access->region.dims > OPENREG_SANITIZER_MAX_DIMS)
    return fail_access(index, "has an invalid number of dimensions: expected 0 to 64");
  if (!access->is_moved)
    return OPENREG_OK;
  if ((access->mode & OPENREG_SANITIZER_WRITE) == 0 || access->source >= launch->count ||
      (launch->accesses[access->source].mode & OPENREG_SANITIZER_READ) == 0)
    return fail_access(index, "is a copy: it must be a WRITE, and its source a READ");
  if (!have_same_sizes(&access->region, &launch->accesses[access->source].region))
    return fail_access(index, "must have the same sizes as its source");
  return OPENREG_OK;
}

static void free_regions(struct strided_regions *regions) {
  if (regions->strided != regions->inline_regions)
    free(regions->strided);
  if (regions->dim != regions->inline_dims)
    free(regions->dim);
}

static openreg_status make_room(struct strided_regions *regions, size_t count, size_t dims) {
  regions->strided =
      count <= INLINE_REGIONS ? regions->inline_regions : malloc(count * sizeof *regions->strided);
  regions->dim = dims <= INLINE_DIMS ? regions->inline_dims : malloc(dims * sizeof *regions->dim);
  if (regions->strided != NULL && regions->dim != NULL)
    return OPENREG_OK;
  free_regions(regions);
  return openreg_fail(OPENREG_OUT_OF_MEMORY,
                      "openreg: out of host memory while the sanitizer checks a launch");
}

static openreg_status make_regions(struct strided_regions *regions,
                                   const openreg_sanitizer_launch *launch) {
  openreg_status status = OPENREG_OK;
  size_t dims = 0;
  for (size_t i = 0; i < launch->count && status == OPENREG_OK; i++) {
    status = validate(launch, i);
    dims += (size_t)launch->accesses[i].region.dims;
  }
  if (status == OPENREG_OK)
    status = make_room(regions, launch->count, dims);
  if (status != OPENREG_OK)
    return status;
  struct dim *room = regions->dim;
  for (size_t i = 0; i < launch->count; i++) {
    const openreg_sanitizer_region *region = &launch->accesses[i].region;
    if (!openreg_strided_make(&regions->strided[i], room, region)) {
      free_regions(regions);
      return fail_access(i, "has a negative size, or an address beyond 2^63");
    }
    room += region->dims;
  }
  return OPENREG_OK;
}

/* ---- checking -------------------------------------------------------------------------------- */

static void check_freed(openreg_sanitizer *sanitizer, const struct current_access *current) {
  const struct shadow_block *shadow =
      openreg_shadow_cache_find(&sanitizer->shadow_cache, current->strided->low);
  if (shadow != NULL && shadow->begin <= current->strided->low && shadow->block.is_freed)
    openreg_findings_freed(sanitizer, shadow, current);
}

/* Returns whether the access is to a block with unwritten bytes. */
static bool check_access(openreg_sanitizer *sanitizer, const struct current_access *current) {
  if (openreg_strided_is_empty(current->strided))
    return false;
  struct shadow_block *shadow =
      openreg_shadow_cache_find_live(&sanitizer->shadow_cache, current->strided->low);
  if (shadow == NULL) {
    if (sanitizer->options.report_freed)
      check_freed(sanitizer, current);
    return false;
  }
  openreg_records_check(sanitizer, shadow, current);
  return shadow->unwritten.count > 0;
}

static void check_accesses(openreg_sanitizer *sanitizer, const openreg_sanitizer_launch *launch,
                           const struct strided_region *regions) {
  bool is_unwritten = false;
  if (launch->submitter != NULL)
    openreg_clock_acquire_thread(&sanitizer->clocks, launch->submitter, launch->thread);
  struct current_access current = {.thread = launch->thread,
                                   .epoch = openreg_clock_now(launch->thread),
                                   .call_site = launch->call_site};
  for (size_t i = 0; i < launch->count; i++) {
    current.tag = launch->accesses[i].tag;
    current.mode = launch->accesses[i].mode;
    current.strided = &regions[i];
    is_unwritten |= check_access(sanitizer, &current);
  }
  sanitizer->counters.accesses += launch->count;
  if (is_unwritten)
    openreg_uninitialized_check(sanitizer, launch, regions);
}

openreg_status openreg_sanitizer_check_launch(openreg_sanitizer *sanitizer,
                                              const openreg_sanitizer_launch *launch) {
  struct strided_regions regions;
  openreg_status status = make_regions(&regions, launch);
  if (status != OPENREG_OK)
    return status;
  openreg_sanitizer_enter(sanitizer);
  check_accesses(sanitizer, launch, regions.strided);
  openreg_sanitizer_leave(sanitizer);
  free_regions(&regions);
  return OPENREG_OK;
}

bool openreg_sanitizer_would_conflict(openreg_sanitizer *sanitizer,
                                      openreg_sanitizer_thread *thread,
                                      const openreg_sanitizer_region *region, unsigned mode) {
  struct dim room[OPENREG_SANITIZER_MAX_DIMS];
  struct strided_region strided;
  if (!openreg_strided_make(&strided, room, region) || openreg_strided_is_empty(&strided))
    return false;
  struct current_access current = {.thread = thread, .mode = mode, .strided = &strided};
  openreg_sanitizer_enter(sanitizer);
  const struct shadow_block *shadow =
      openreg_shadow_cache_find_live(&sanitizer->shadow_cache, strided.low);
  bool conflicts = shadow != NULL && openreg_records_conflict(shadow, &current);
  openreg_sanitizer_leave(sanitizer);
  return conflicts;
}
