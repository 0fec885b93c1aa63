/* runs.c: sets of bytes.
 *
 * Each operation makes a new set in one pass over both operands. The exception is the most frequent
 * operation: a contiguous write to a set of one run. The code visits the runs of a region from the
 * first byte that matters, so runs outside of the set cost nothing.
 */
#include "sanitizer/runs.h"

#include <string.h>

/* Finding the runs of a region that is not nested takes long, so the code visits only few of them.
 */
enum { MAX_INTERLEAVED_RUNS = 256 };

static bool has_too_many_runs(const struct strided_region *strided) {
  uint64_t runs = 1;
  for (int i = 0; i < strided->dims && runs <= MAX_INTERLEAVED_RUNS; i++)
    runs *= strided->dim[i].size;
  return !strided->is_nested && runs > MAX_INTERLEAVED_RUNS;
}

void openreg_runs_clear(struct runs *set, struct heap *heap) {
  openreg_heap_give(heap, set->many, set->capacity * sizeof *set->many);
  *set = (struct runs){.count = 0};
}

uint32_t openreg_runs_find(const struct runs *set, uint64_t address) {
  const openreg_sanitizer_run *runs = openreg_runs_of(set);
  uint32_t low = 0, high = set->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (runs[middle].end > address)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

openreg_sanitizer_answer openreg_runs_meet(const struct runs *set,
                                           const struct strided_region *strided,
                                           openreg_sanitizer_run *found) {
  const openreg_sanitizer_run *runs = openreg_runs_of(set);
  uint64_t begin = strided->low;
  uint32_t index = openreg_runs_find(set, begin);
  if (has_too_many_runs(strided))
    return OPENREG_SANITIZER_UNKNOWN;
  while (index < set->count && runs[index].begin < strided->high) {
    if (begin < runs[index].begin)
      begin = runs[index].begin;
    openreg_sanitizer_answer answer = openreg_strided_find(strided, begin, strided->high, found);
    if (answer != OPENREG_SANITIZER_YES)
      return answer;
    if (found->begin < runs[index].end) {
      if (found->end > runs[index].end)
        found->end = runs[index].end;
      return OPENREG_SANITIZER_YES;
    }
    begin = found->begin;
    while (index < set->count && runs[index].end <= begin)
      index++;
  }
  return OPENREG_SANITIZER_NO;
}

bool openreg_runs_append(struct runs *set, struct heap *heap, openreg_sanitizer_run run,
                         uint32_t max) {
  openreg_sanitizer_run *last = set->many != NULL ? &set->many[set->count - 1] : &set->one;
  if (run.begin == run.end)
    return true;
  if (set->count > 0 && run.begin <= last->end) {
    if (run.end > last->end)
      last->end = run.end;
    return true;
  }
  if (set->count == 0) {
    *last = run;
    set->count = 1;
    return true;
  }
  if (set->count >= max)
    return false;
  if (set->count >= set->capacity) {
    uint32_t capacity = set->capacity == 0 ? 4 : 2 * set->capacity;
    openreg_sanitizer_run *many =
        openreg_heap_is_full(heap)
            ? NULL
            : openreg_heap_resize(heap, set->many, set->capacity * sizeof *many,
                                  capacity * sizeof *many);
    if (many == NULL)
      return false;
    if (set->many == NULL)
      many[0] = set->one;
    set->many = many;
    set->capacity = capacity;
  }
  set->many[set->count++] = run;
  return true;
}

static bool append_part(struct runs *made, struct heap *heap, openreg_sanitizer_run run,
                        uint64_t begin, uint64_t end, uint32_t max) {
  if (run.begin < begin)
    run.begin = begin;
  if (run.end > end)
    run.end = end;
  return run.begin >= run.end || openreg_runs_append(made, heap, run, max);
}

/* Replaces a set by the new one, if the new one could be made. */
static bool replace(struct runs *set, struct heap *heap, struct runs *made, bool is_made) {
  openreg_runs_clear(is_made ? set : made, heap);
  if (is_made)
    *set = *made;
  return is_made;
}

static bool remove_contiguous(struct runs *set, struct heap *heap, uint64_t begin, uint64_t end,
                              uint32_t max) {
  const openreg_sanitizer_run *runs = openreg_runs_of(set);
  struct runs made = {.count = 0};
  bool is_made = true;
  if (set->count == 0 || end <= runs[0].begin || runs[set->count - 1].end <= begin)
    return true;
  if (begin <= runs[0].begin && runs[set->count - 1].end <= end) {
    openreg_runs_clear(set, heap);
    return true;
  }
  for (uint32_t i = 0; i < set->count && is_made; i++)
    is_made = append_part(&made, heap, runs[i], 0, begin, max) &&
              append_part(&made, heap, runs[i], end, UINT64_MAX, max);
  return replace(set, heap, &made, is_made);
}

/* Removing only needs memory if the bounds lie inside of a run. If there is none, clears the whole
 * set. */
static void forget(struct runs *set, struct heap *heap, const struct strided_region *strided) {
  if (!remove_contiguous(set, heap, strided->low, strided->high, UINT32_MAX))
    openreg_runs_clear(set, heap);
}

static bool remove_strided(struct runs *set, struct heap *heap,
                           const struct strided_region *strided, struct runs *made, uint32_t max) {
  const openreg_sanitizer_run *runs = openreg_runs_of(set);
  openreg_sanitizer_run taken;
  if (has_too_many_runs(strided))
    return false;
  for (uint32_t i = 0; i < set->count; i++) {
    uint64_t begin = runs[i].begin, end = runs[i].end;
    openreg_sanitizer_answer answer;
    while ((answer = openreg_strided_find(strided, begin, end, &taken)) == OPENREG_SANITIZER_YES) {
      if (!openreg_runs_append(made, heap, (openreg_sanitizer_run){begin, taken.begin}, max))
        return false;
      begin = taken.end;
    }
    if (answer == OPENREG_SANITIZER_UNKNOWN ||
        !openreg_runs_append(made, heap, (openreg_sanitizer_run){begin, end}, max))
      return false;
  }
  return true;
}

bool openreg_runs_remove(struct runs *set, struct heap *heap, const struct strided_region *strided,
                         uint32_t max) {
  struct runs made = {.count = 0};
  openreg_sanitizer_run found;
  if (set->count == 0 || openreg_strided_is_empty(strided))
    return true;
  if (openreg_strided_is_contiguous(strided)) {
    if (remove_contiguous(set, heap, strided->low, strided->high, max))
      return true;
  } else {
    if (openreg_runs_meet(set, strided, &found) == OPENREG_SANITIZER_NO)
      return true;
    if (replace(set, heap, &made, remove_strided(set, heap, strided, &made, max)))
      return true;
  }
  forget(set, heap, strided);
  return false;
}

/* Lists the runs of a region. Some may touch, so the list may be shorter than the number of runs.
 */
static bool list_runs(const struct strided_region *strided, struct heap *heap, struct runs *list,
                      uint32_t max) {
  openreg_sanitizer_answer answer;
  openreg_sanitizer_run run;
  uint64_t begin = strided->low;
  if (has_too_many_runs(strided))
    return false;
  while ((answer = openreg_strided_find(strided, begin, strided->high, &run)) ==
         OPENREG_SANITIZER_YES) {
    if (!openreg_runs_append(list, heap, run, max))
      return false;
    begin = run.end;
  }
  return answer == OPENREG_SANITIZER_NO;
}

bool openreg_runs_add(struct runs *set, struct heap *heap, const struct strided_region *strided,
                      uint64_t end, uint32_t max) {
  struct runs list = {.count = 0};
  bool is_listed = list_runs(strided, heap, &list, max);
  bool is_added = is_listed && openreg_runs_unite(set, heap, &list, strided, end, max);
  openreg_runs_clear(&list, heap);
  if (!is_listed)
    forget(set, heap, strided);
  return is_added;
}

bool openreg_runs_unite(struct runs *set, struct heap *heap, const struct runs *other,
                        const struct strided_region *bounds, uint64_t end, uint32_t max) {
  const openreg_sanitizer_run *a = openreg_runs_of(set), *b = openreg_runs_of(other);
  const openreg_sanitizer_run *a_end = a + set->count, *b_end = b + other->count;
  struct runs made = {.count = 0};
  bool is_made = true;
  while (is_made && (a < a_end || b < b_end)) {
    bool is_a = b == b_end || (a < a_end && a->begin <= b->begin);
    is_made = is_a ? openreg_runs_append(&made, heap, *a++, max)
                   : append_part(&made, heap, *b++, 0, end, max);
  }
  if (!replace(set, heap, &made, is_made)) {
    forget(set, heap, bounds);
    return false;
  }
  return true;
}
