/* runs.c: sets of bytes.
 *
 * Each operation makes a new set from the old one, in one pass over both sides, but for the one
 * that is frequent: a contiguous write to a set of one run. A box is passed through run by run,
 * from the first byte on that matters, so that what lies outside of the set costs nothing.
 */
#include "sanitizer/runs.h"

#include <string.h>

/* To find the runs of a box that is not nested one after the other takes long: only few are. */
enum { MOST_TANGLED_RUNS = 256 };

static bool is_tangled(const struct box *box) {
  uint64_t runs = 1;
  for (int i = 0; i < box->dims && runs <= MOST_TANGLED_RUNS; i++)
    runs *= box->dim[i].size;
  return !box->is_nested && runs > MOST_TANGLED_RUNS;
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

openreg_sanitizer_answer openreg_runs_meet(const struct runs *set, const struct box *box,
                                           openreg_sanitizer_run *found) {
  const openreg_sanitizer_run *runs = openreg_runs_of(set);
  uint64_t begin = box->low;
  uint32_t index = openreg_runs_find(set, begin);
  if (is_tangled(box))
    return OPENREG_SANITIZER_UNKNOWN;
  while (index < set->count && runs[index].begin < box->high) {
    if (begin < runs[index].begin)
      begin = runs[index].begin;
    openreg_sanitizer_answer answer = openreg_box_find(box, begin, box->high, found);
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
                         uint32_t most) {
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
  if (set->count >= most)
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
                        uint64_t begin, uint64_t end, uint32_t most) {
  if (run.begin < begin)
    run.begin = begin;
  if (run.end > end)
    run.end = end;
  return run.begin >= run.end || openreg_runs_append(made, heap, run, most);
}

/* The new set takes the place of the old one, if it was made. */
static bool replace(struct runs *set, struct heap *heap, struct runs *made, bool is_made) {
  openreg_runs_clear(is_made ? set : made, heap);
  if (is_made)
    *set = *made;
  return is_made;
}

static bool remove_contiguous(struct runs *set, struct heap *heap, uint64_t begin, uint64_t end,
                              uint32_t most) {
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
    is_made = append_part(&made, heap, runs[i], 0, begin, most) &&
              append_part(&made, heap, runs[i], end, UINT64_MAX, most);
  return replace(set, heap, &made, is_made);
}

/* Forgetting needs memory only if the bounds lie within a run; then all of that is forgotten. */
static void forget(struct runs *set, struct heap *heap, const struct box *box) {
  if (!remove_contiguous(set, heap, box->low, box->high, UINT32_MAX))
    openreg_runs_clear(set, heap);
}

static bool remove_strided(struct runs *set, struct heap *heap, const struct box *box,
                           struct runs *made, uint32_t most) {
  const openreg_sanitizer_run *runs = openreg_runs_of(set);
  openreg_sanitizer_run taken;
  if (is_tangled(box))
    return false;
  for (uint32_t i = 0; i < set->count; i++) {
    uint64_t begin = runs[i].begin, end = runs[i].end;
    openreg_sanitizer_answer answer;
    while ((answer = openreg_box_find(box, begin, end, &taken)) == OPENREG_SANITIZER_YES) {
      if (!openreg_runs_append(made, heap, (openreg_sanitizer_run){begin, taken.begin}, most))
        return false;
      begin = taken.end;
    }
    if (answer == OPENREG_SANITIZER_UNKNOWN ||
        !openreg_runs_append(made, heap, (openreg_sanitizer_run){begin, end}, most))
      return false;
  }
  return true;
}

bool openreg_runs_remove(struct runs *set, struct heap *heap, const struct box *box,
                         uint32_t most) {
  struct runs made = {.count = 0};
  openreg_sanitizer_run found;
  if (set->count == 0 || openreg_box_is_empty(box))
    return true;
  if (openreg_box_is_contiguous(box)) {
    if (remove_contiguous(set, heap, box->low, box->high, most))
      return true;
  } else {
    if (openreg_runs_meet(set, box, &found) == OPENREG_SANITIZER_NO)
      return true;
    if (replace(set, heap, &made, remove_strided(set, heap, box, &made, most)))
      return true;
  }
  forget(set, heap, box);
  return false;
}

/* A box whose runs touch was made of more of them than it has. */
static bool list_runs(const struct box *box, struct heap *heap, struct runs *list, uint32_t most) {
  openreg_sanitizer_answer answer;
  openreg_sanitizer_run run;
  uint64_t begin = box->low;
  if (is_tangled(box))
    return false;
  while ((answer = openreg_box_find(box, begin, box->high, &run)) == OPENREG_SANITIZER_YES) {
    if (!openreg_runs_append(list, heap, run, most))
      return false;
    begin = run.end;
  }
  return answer == OPENREG_SANITIZER_NO;
}

bool openreg_runs_add(struct runs *set, struct heap *heap, const struct box *box, uint64_t end,
                      uint32_t most) {
  struct runs list = {.count = 0};
  bool is_listed = list_runs(box, heap, &list, most);
  bool is_added = is_listed && openreg_runs_unite(set, heap, &list, box, end, most);
  openreg_runs_clear(&list, heap);
  if (!is_listed)
    forget(set, heap, box);
  return is_added;
}

bool openreg_runs_unite(struct runs *set, struct heap *heap, const struct runs *other,
                        const struct box *bounds, uint64_t end, uint32_t most) {
  const openreg_sanitizer_run *a = openreg_runs_of(set), *b = openreg_runs_of(other);
  const openreg_sanitizer_run *a_end = a + set->count, *b_end = b + other->count;
  struct runs made = {.count = 0};
  bool is_made = true;
  while (is_made && (a < a_end || b < b_end)) {
    bool is_a = b == b_end || (a < a_end && a->begin <= b->begin);
    is_made = is_a ? openreg_runs_append(&made, heap, *a++, most)
                   : append_part(&made, heap, *b++, 0, end, most);
  }
  if (!replace(set, heap, &made, is_made)) {
    forget(set, heap, bounds);
    return false;
  }
  return true;
}
