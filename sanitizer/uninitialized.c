/* uninitialized.c: tracks which bytes were never written, and reports reads of them.
 *
 * Only launches that access a block with unwritten bytes come here. A read is judged by the state
 * before the launch. A byte that was reported counts as written from then on, so that it is
 * reported once. Bytes also count as written if the set of a block would get too many runs.
 */
#include "sanitizer/state.h"

/* What an access does to the unwritten bytes of a block. */
struct tracked {
  struct shadow_block *shadow;
  struct runs moved;
  bool is_moved;
  bool is_read; /* computes with all of its bytes, or with unwritten ones */
};

static void count_forgotten(openreg_sanitizer *sanitizer, const struct strided_region *strided) {
  sanitizer->counters.forgotten_bytes += strided->high - strided->low;
}

/* A partial access is reported only if its whole region is unwritten. One unwritten run must
 * contain the region's bounds; comparing more runs is not worth the time. */
static openreg_sanitizer_answer reads_unwritten(const struct shadow_block *shadow, unsigned mode,
                                                const struct strided_region *strided,
                                                openreg_sanitizer_run *bytes) {
  openreg_sanitizer_answer answer = openreg_runs_meet(&shadow->unwritten, strided, bytes);
  if (answer != OPENREG_SANITIZER_YES || (mode & OPENREG_SANITIZER_PARTIAL) == 0)
    return answer;
  const openreg_sanitizer_run *run =
      openreg_runs_of(&shadow->unwritten) + openreg_runs_find(&shadow->unwritten, strided->low);
  return run->begin <= strided->low && strided->high <= run->end ? answer : OPENREG_SANITIZER_NO;
}

/* Reports an access that computes with unwritten bytes. Returns whether it does. */
static bool check_read(openreg_sanitizer *sanitizer, const openreg_sanitizer_launch *launch,
                       const openreg_sanitizer_access *access, const struct strided_region *strided,
                       struct shadow_block *shadow) {
  struct current_access reading = {.thread = launch->thread,
                                   .call_site = launch->call_site,
                                   .tag = access->tag,
                                   .mode = access->mode,
                                   .strided = strided};
  openreg_sanitizer_run bytes;
  openreg_sanitizer_answer answer = reads_unwritten(shadow, access->mode, strided, &bytes);
  if (answer == OPENREG_SANITIZER_UNKNOWN)
    sanitizer->counters.unknown++;
  if (answer == OPENREG_SANITIZER_YES)
    openreg_findings_uninitialized(sanitizer, shadow, &reading, bytes);
  return answer == OPENREG_SANITIZER_YES;
}

/* Finds which bytes a copy makes unwritten. All sources are read before the first byte is written.
 */
static void find_moved(openreg_sanitizer *sanitizer, const openreg_sanitizer_launch *launch,
                       const struct strided_region *regions, size_t index,
                       struct tracked *tracked) {
  const openreg_sanitizer_access *to = &launch->accesses[index];
  if (openreg_strided_is_empty(&regions[index]))
    return;
  tracked->shadow = openreg_shadow_cache_find_live(&sanitizer->shadow_cache, regions[index].low);
  if (tracked->shadow == NULL || !to->is_moved)
    return;
  const struct shadow_block *shadow =
      openreg_shadow_cache_find_live(&sanitizer->shadow_cache, regions[to->source].low);
  if (shadow == NULL || shadow->unwritten.count == 0)
    return;
  tracked->is_moved =
      openreg_move_unwritten(sanitizer, &shadow->unwritten, &launch->accesses[to->source].region,
                             &to->region, &tracked->moved);
  if (!tracked->is_moved)
    count_forgotten(sanitizer, &regions[index]);
}

static void mark_written(openreg_sanitizer *sanitizer, struct shadow_block *shadow,
                         const struct strided_region *strided) {
  if (shadow->unwritten.count > 0 &&
      !openreg_runs_remove(&shadow->unwritten, &sanitizer->heap, strided,
                           sanitizer->options.max_intervals))
    count_forgotten(sanitizer, strided);
}

static void mark_moved(openreg_sanitizer *sanitizer, struct tracked *tracked,
                       const struct strided_region *strided) {
  if (tracked->is_moved && tracked->moved.count > 0 &&
      !openreg_runs_unite(&tracked->shadow->unwritten, &sanitizer->heap, &tracked->moved, strided,
                          tracked->shadow->end, sanitizer->options.max_intervals))
    count_forgotten(sanitizer, strided);
  openreg_runs_clear(&tracked->moved, &sanitizer->heap);
}

static bool is_computing(const openreg_sanitizer_access *access) {
  return (access->mode & OPENREG_SANITIZER_READ) != 0 &&
         (access->mode & OPENREG_SANITIZER_MOVED) == 0;
}

/* All of `tracked` must be zero. */
static void check_and_update(openreg_sanitizer *sanitizer, const openreg_sanitizer_launch *launch,
                             const struct strided_region *regions, struct tracked tracked[]) {
  const openreg_sanitizer_access *access = launch->accesses;
  for (size_t i = 0; i < launch->count; i++)
    find_moved(sanitizer, launch, regions, i, &tracked[i]);
  for (size_t i = 0; i < launch->count; i++)
    if (tracked[i].shadow != NULL && is_computing(&access[i]))
      tracked[i].is_read =
          check_read(sanitizer, launch, &access[i], &regions[i], tracked[i].shadow) ||
          (access[i].mode & OPENREG_SANITIZER_PARTIAL) == 0;
  for (size_t i = 0; i < launch->count; i++)
    if (tracked[i].shadow != NULL &&
        (tracked[i].is_read || (access[i].mode & OPENREG_SANITIZER_WRITE) != 0))
      mark_written(sanitizer, tracked[i].shadow, &regions[i]);
  for (size_t i = 0; i < launch->count; i++)
    if (tracked[i].shadow != NULL)
      mark_moved(sanitizer, &tracked[i], &regions[i]);
}

void openreg_uninitialized_check(openreg_sanitizer *sanitizer,
                                 const openreg_sanitizer_launch *launch,
                                 const struct strided_region *regions) {
  struct tracked few[8] = {{.shadow = NULL}};
  struct tracked *tracked = launch->count <= 8 ? few : calloc(launch->count, sizeof *tracked);
  if (tracked != NULL) {
    check_and_update(sanitizer, launch, regions, tracked);
  } else { /* treat everything as written */
    for (size_t i = 0; i < launch->count; i++) {
      struct shadow_block *shadow =
          openreg_shadow_cache_find_live(&sanitizer->shadow_cache, regions[i].low);
      if (shadow != NULL && !openreg_strided_is_empty(&regions[i]))
        mark_written(sanitizer, shadow, &regions[i]);
    }
  }
  if (tracked != few)
    free(tracked);
}
