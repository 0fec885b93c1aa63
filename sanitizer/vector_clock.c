/* vector_clock.c: threads, their vector clocks, and the slots in these. */
#include "sanitizer/vector_clock.h"

#include <assert.h>
#include <string.h>

enum { FIRST_CAPACITY = 16 };

bool openreg_vector_clock_join(uint64_t epochs[], const uint64_t other[], uint32_t count) {
  uint64_t changed = 0;
  for (uint32_t i = 0; i < count; i++) {
    uint64_t later = other[i] > epochs[i] ? other[i] : epochs[i];
    changed |= later ^ epochs[i];
    epochs[i] = later;
  }
  return changed != 0;
}

bool openreg_vector_clock_grow(struct heap *heap, struct vector_clock *clock, uint32_t capacity) {
  size_t old = clock->capacity * sizeof *clock->epochs, bytes = capacity * sizeof *clock->epochs;
  if (clock->capacity >= capacity)
    return true;
  uint64_t *grown = openreg_heap_resize(heap, clock->epochs, old, bytes);
  if (grown == NULL)
    return false;
  memset(grown + clock->capacity, 0, bytes - old);
  *clock = (struct vector_clock){grown, capacity};
  return true;
}

void openreg_vector_clock_free(struct heap *heap, struct vector_clock *clock) {
  openreg_heap_give(heap, clock->epochs, clock->capacity * sizeof *clock->epochs);
  *clock = (struct vector_clock){NULL, 0};
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* Doubles the number of slots in all clocks. */
static bool grow(struct clocks *clocks) {
  uint32_t capacity = clocks->capacity == 0 ? FIRST_CAPACITY : 2 * clocks->capacity;
  for (uint32_t i = 0; i < clocks->count; i++) {
    openreg_sanitizer_thread *thread = clocks->slots[i].thread;
    if (thread != NULL && !openreg_vector_clock_grow(clocks->heap, &thread->clock, capacity))
      return false;
  }
  for (uint32_t i = 0; i < clocks->group_count; i++)
    if (!openreg_vector_clock_grow(clocks->heap, &clocks->groups[i].clock, capacity))
      return false;
  struct slot *slots = openreg_heap_resize(
      clocks->heap, clocks->slots, clocks->capacity * sizeof *slots, capacity * sizeof *slots);
  if (slots == NULL)
    return false;
  clocks->slots = slots;
  clocks->capacity = capacity;
  return true;
}

static uint64_t latest(const struct clocks *clocks, uint32_t slot) {
  const openreg_sanitizer_thread *thread = clocks->slots[slot].thread;
  return thread != NULL ? thread->clock.epochs[slot] : clocks->slots[slot].epoch;
}

/* Finds a slot for a thread that begins with a clock: see the top of vector_clock.h. The clock has
 * no entry for a new slot yet, but room for one. Returns false if there is no memory for a slot. */
static bool find_slot(struct clocks *clocks, struct vector_clock *clock, uint32_t *slot) {
  for (uint32_t i = 0; i < clocks->count; i++) {
    const struct slot *found = &clocks->slots[i];
    if (found->thread == NULL && (found->references == 0 || clock->epochs[i] >= found->epoch)) {
      *slot = i;
      return true;
    }
  }
  if (clocks->count == clocks->capacity &&
      !(grow(clocks) && openreg_vector_clock_grow(clocks->heap, clock, clocks->capacity)))
    return false;
  *slot = clocks->count++;
  clocks->slots[*slot] = (struct slot){NULL, 0, 0};
  return true;
}

uint32_t openreg_clock_dead_slots(const struct clocks *clocks) {
  uint32_t dead = 0;
  for (uint32_t i = 0; i < clocks->count; i++)
    dead += clocks->slots[i].thread == NULL && clocks->slots[i].references > 0;
  return dead;
}

/* ---- threads --------------------------------------------------------------------------------- */

/* Sets the clock to what happens before all live threads; to everything, if there are none. */
static void begin_after_all(struct clocks *clocks, uint64_t epochs[]) {
  for (uint32_t i = 0; i < clocks->count; i++) {
    if (clocks->slots[i].thread != NULL)
      clocks->slots[i].thread->is_acquired = true;
    epochs[i] = latest(clocks, i);
    for (uint32_t k = 0; k < clocks->count; k++) {
      const openreg_sanitizer_thread *thread = clocks->slots[k].thread;
      if (thread != NULL && thread->clock.epochs[i] < epochs[i])
        epochs[i] = thread->clock.epochs[i];
    }
  }
}

static struct ended_group *find_group(const struct clocks *clocks, int group) {
  for (uint32_t i = 0; i < clocks->group_count; i++)
    if (clocks->groups[i].group == group)
      return &clocks->groups[i];
  return NULL;
}

static bool make_group(struct clocks *clocks, int group) {
  struct vector_clock clock = {NULL, 0};
  if (group < 0 || find_group(clocks, group) != NULL)
    return true;
  if (!openreg_vector_clock_grow(clocks->heap, &clock, clocks->capacity))
    return false;
  size_t bytes = clocks->group_count * sizeof *clocks->groups;
  struct ended_group *groups =
      openreg_heap_resize(clocks->heap, clocks->groups, bytes, bytes + sizeof *groups);
  if (groups == NULL) {
    openreg_vector_clock_free(clocks->heap, &clock);
    return false;
  }
  groups[clocks->group_count++] = (struct ended_group){group, clock};
  clocks->groups = groups;
  return true;
}

openreg_sanitizer_thread *openreg_clock_begin_thread(struct clocks *clocks,
                                                     openreg_sanitizer_thread_kind kind, int group,
                                                     uint64_t tag,
                                                     openreg_sanitizer_thread *parent) {
  openreg_sanitizer_thread *thread = openreg_heap_take(clocks->heap, sizeof *thread);
  uint32_t slot;
  if (thread == NULL)
    return NULL;
  *thread = (openreg_sanitizer_thread){.kind = kind, .group = group, .tag = tag, .version = 1};
  if ((clocks->capacity == 0 && !grow(clocks)) ||
      !openreg_vector_clock_grow(clocks->heap, &thread->clock, clocks->capacity))
    goto failed;
  if (parent != NULL)
    memcpy(thread->clock.epochs, parent->clock.epochs,
           clocks->count * sizeof *thread->clock.epochs);
  else
    begin_after_all(clocks, thread->clock.epochs);
  if (!find_slot(clocks, &thread->clock, &slot) || !make_group(clocks, group))
    goto failed;
  if (parent != NULL)
    parent->is_acquired = true;
  thread->slot = slot;
  thread->id = ++clocks->last_id;
  thread->clock.epochs[slot] = clocks->slots[slot].epoch + 1;
  clocks->slots[slot].thread = thread;
  clocks->live++;
  return thread;
failed:
  openreg_vector_clock_free(clocks->heap, &thread->clock);
  openreg_heap_give(clocks->heap, thread, sizeof *thread);
  return NULL;
}

void openreg_clock_end_thread(struct clocks *clocks, openreg_sanitizer_thread *thread) {
  struct ended_group *group = find_group(clocks, thread->group);
  struct slot *slot = &clocks->slots[thread->slot];
  assert(slot->thread == thread);
  if (group != NULL)
    openreg_vector_clock_join(group->clock.epochs, thread->clock.epochs, clocks->count);
  slot->epoch = thread->clock.epochs[thread->slot];
  slot->thread = NULL;
  clocks->live--;
  openreg_vector_clock_free(clocks->heap, &thread->clock);
  openreg_heap_give(clocks->heap, thread, sizeof *thread);
}

void openreg_clock_clear(struct clocks *clocks) {
  for (uint32_t i = 0; i < clocks->count; i++)
    if (clocks->slots[i].thread != NULL)
      openreg_clock_end_thread(clocks, clocks->slots[i].thread);
  while (clocks->tokens != NULL) {
    clocks->tokens->references = 1;
    openreg_token_release(clocks, clocks->tokens);
  }
  for (uint32_t i = 0; i < clocks->group_count; i++)
    openreg_vector_clock_free(clocks->heap, &clocks->groups[i].clock);
  openreg_heap_give(clocks->heap, clocks->groups, clocks->group_count * sizeof *clocks->groups);
  openreg_heap_give(clocks->heap, clocks->slots, clocks->capacity * sizeof *clocks->slots);
}

/* ---- acquiring clocks ------------------------------------------------------------------------ */

void openreg_clock_acquire(struct clocks *clocks, openreg_sanitizer_thread *to,
                           const uint64_t epochs[], uint32_t count, uint64_t id, uint64_t version) {
  assert(count <= clocks->count);
  (void)clocks;
  if (to->acquired_id == id && to->acquired_version >= version)
    return;
  if (openreg_vector_clock_join(to->clock.epochs, epochs, count))
    to->version++;
  to->acquired_id = id;
  to->acquired_version = version;
}

void openreg_clock_acquire_thread(struct clocks *clocks, openreg_sanitizer_thread *from,
                                  openreg_sanitizer_thread *to) {
  if (from == to)
    return;
  from->is_acquired = true;
  openreg_clock_acquire(clocks, to, from->clock.epochs, clocks->count, from->id, from->version);
}

void openreg_clock_acquire_group(struct clocks *clocks, int group, openreg_sanitizer_thread *to) {
  struct ended_group *ended = find_group(clocks, group);
  if (ended != NULL &&
      openreg_vector_clock_join(to->clock.epochs, ended->clock.epochs, clocks->count))
    to->version++;
  for (uint32_t i = 0; i < clocks->count; i++) {
    openreg_sanitizer_thread *thread = clocks->slots[i].thread;
    if (thread != NULL && thread->group == group)
      openreg_clock_acquire_thread(clocks, thread, to);
  }
}

void openreg_clock_acquire_all(struct clocks *clocks, openreg_sanitizer_thread *to) {
  for (uint32_t i = 0; i < clocks->count; i++) {
    openreg_sanitizer_thread *thread = clocks->slots[i].thread;
    if (thread != NULL && thread != to)
      thread->is_acquired = true;
    to->clock.epochs[i] = latest(clocks, i);
  }
  to->version++;
}

bool openreg_clock_is_before_all(const struct clocks *clocks, uint32_t slot, uint64_t epoch) {
  for (uint32_t i = 0; i < clocks->count; i++) {
    const openreg_sanitizer_thread *thread = clocks->slots[i].thread;
    if (thread != NULL && thread->clock.epochs[slot] < epoch)
      return false;
  }
  return true;
}
