/* order.c: actors, their clocks, and the slots in them. */
#include "sanitizer/vector_clock.h"

#include <assert.h>
#include <string.h>

enum { FIRST_CAPACITY = 16 };

bool openreg_clock_join(uint64_t times[], const uint64_t other[], uint32_t count) {
  uint64_t news = 0;
  for (uint32_t i = 0; i < count; i++) {
    uint64_t later = other[i] > times[i] ? other[i] : times[i];
    news |= later ^ times[i];
    times[i] = later;
  }
  return news != 0;
}

bool openreg_clock_grow(struct heap *heap, struct clock *clock, uint32_t capacity) {
  size_t old = clock->capacity * sizeof *clock->times, bytes = capacity * sizeof *clock->times;
  if (clock->capacity >= capacity)
    return true;
  uint64_t *grown = openreg_heap_resize(heap, clock->times, old, bytes);
  if (grown == NULL)
    return false;
  memset(grown + clock->capacity, 0, bytes - old);
  *clock = (struct clock){grown, capacity};
  return true;
}

void openreg_clock_free(struct heap *heap, struct clock *clock) {
  openreg_heap_give(heap, clock->times, clock->capacity * sizeof *clock->times);
  *clock = (struct clock){NULL, 0};
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* Makes room for twice as many slots in all clocks. */
static bool grow(struct order *order) {
  uint32_t capacity = order->capacity == 0 ? FIRST_CAPACITY : 2 * order->capacity;
  for (uint32_t i = 0; i < order->count; i++) {
    openreg_sanitizer_actor *actor = order->slots[i].actor;
    if (actor != NULL && !openreg_clock_grow(order->heap, &actor->clock, capacity))
      return false;
  }
  for (uint32_t i = 0; i < order->group_count; i++)
    if (!openreg_clock_grow(order->heap, &order->groups[i].clock, capacity))
      return false;
  struct slot *slots = openreg_heap_resize(
      order->heap, order->slots, order->capacity * sizeof *slots, capacity * sizeof *slots);
  if (slots == NULL)
    return false;
  order->slots = slots;
  order->capacity = capacity;
  return true;
}

static uint64_t latest(const struct order *order, uint32_t slot) {
  const openreg_sanitizer_actor *actor = order->slots[slot].actor;
  return actor != NULL ? actor->clock.times[slot] : order->slots[slot].time;
}

/* The slot for an actor that begins with a clock: see the top of order.h. The clock has no entry
 * for a new slot yet, but room for it. Returns false when there is no memory for one. */
static bool find_slot(struct order *order, struct clock *clock, uint32_t *slot) {
  for (uint32_t i = 0; i < order->count; i++) {
    const struct slot *found = &order->slots[i];
    if (found->actor == NULL && (found->references == 0 || clock->times[i] >= found->time)) {
      *slot = i;
      return true;
    }
  }
  if (order->count == order->capacity &&
      !(grow(order) && openreg_clock_grow(order->heap, clock, order->capacity)))
    return false;
  *slot = order->count++;
  order->slots[*slot] = (struct slot){NULL, 0, 0};
  return true;
}

uint32_t openreg_order_dead(const struct order *order) {
  uint32_t dead = 0;
  for (uint32_t i = 0; i < order->count; i++)
    dead += order->slots[i].actor == NULL && order->slots[i].references > 0;
  return dead;
}

/* ---- actors ---------------------------------------------------------------------------------- */

/* What is before all living actors; everything, if there are none. */
static void begin_after_settled(struct order *order, uint64_t times[]) {
  for (uint32_t i = 0; i < order->count; i++) {
    if (order->slots[i].actor != NULL)
      order->slots[i].actor->is_heard = true;
    times[i] = latest(order, i);
    for (uint32_t k = 0; k < order->count; k++) {
      const openreg_sanitizer_actor *actor = order->slots[k].actor;
      if (actor != NULL && actor->clock.times[i] < times[i])
        times[i] = actor->clock.times[i];
    }
  }
}

static struct ended_group *find_group(const struct order *order, int group) {
  for (uint32_t i = 0; i < order->group_count; i++)
    if (order->groups[i].group == group)
      return &order->groups[i];
  return NULL;
}

static bool make_group(struct order *order, int group) {
  struct clock clock = {NULL, 0};
  if (group < 0 || find_group(order, group) != NULL)
    return true;
  if (!openreg_clock_grow(order->heap, &clock, order->capacity))
    return false;
  size_t bytes = order->group_count * sizeof *order->groups;
  struct ended_group *groups =
      openreg_heap_resize(order->heap, order->groups, bytes, bytes + sizeof *groups);
  if (groups == NULL) {
    openreg_clock_free(order->heap, &clock);
    return false;
  }
  groups[order->group_count++] = (struct ended_group){group, clock};
  order->groups = groups;
  return true;
}

openreg_sanitizer_actor *openreg_order_begin(struct order *order, openreg_sanitizer_actor_kind kind,
                                             int group, uint64_t tag,
                                             openreg_sanitizer_actor *parent) {
  openreg_sanitizer_actor *actor = openreg_heap_take(order->heap, sizeof *actor);
  uint32_t slot;
  if (actor == NULL)
    return NULL;
  *actor = (openreg_sanitizer_actor){.kind = kind, .group = group, .tag = tag, .version = 1};
  if ((order->capacity == 0 && !grow(order)) ||
      !openreg_clock_grow(order->heap, &actor->clock, order->capacity))
    goto failed;
  if (parent != NULL)
    memcpy(actor->clock.times, parent->clock.times, order->count * sizeof *actor->clock.times);
  else
    begin_after_settled(order, actor->clock.times);
  if (!find_slot(order, &actor->clock, &slot) || !make_group(order, group))
    goto failed;
  if (parent != NULL)
    parent->is_heard = true;
  actor->slot = slot;
  actor->serial = ++order->serials;
  actor->clock.times[slot] = order->slots[slot].time + 1;
  order->slots[slot].actor = actor;
  order->live++;
  return actor;
failed:
  openreg_clock_free(order->heap, &actor->clock);
  openreg_heap_give(order->heap, actor, sizeof *actor);
  return NULL;
}

void openreg_order_end(struct order *order, openreg_sanitizer_actor *actor) {
  struct ended_group *group = find_group(order, actor->group);
  struct slot *slot = &order->slots[actor->slot];
  assert(slot->actor == actor);
  if (group != NULL)
    openreg_clock_join(group->clock.times, actor->clock.times, order->count);
  slot->time = actor->clock.times[actor->slot];
  slot->actor = NULL;
  order->live--;
  openreg_clock_free(order->heap, &actor->clock);
  openreg_heap_give(order->heap, actor, sizeof *actor);
}

void openreg_order_clear(struct order *order) {
  for (uint32_t i = 0; i < order->count; i++)
    if (order->slots[i].actor != NULL)
      openreg_order_end(order, order->slots[i].actor);
  while (order->tokens != NULL) {
    order->tokens->references = 1;
    openreg_token_release(order, order->tokens);
  }
  for (uint32_t i = 0; i < order->group_count; i++)
    openreg_clock_free(order->heap, &order->groups[i].clock);
  openreg_heap_give(order->heap, order->groups, order->group_count * sizeof *order->groups);
  openreg_heap_give(order->heap, order->slots, order->capacity * sizeof *order->slots);
}

/* ---- order ----------------------------------------------------------------------------------- */

void openreg_order_hear(struct order *order, openreg_sanitizer_actor *to, const uint64_t times[],
                        uint32_t count, uint64_t serial, uint64_t version) {
  assert(count <= order->count);
  (void)order;
  if (to->heard_serial == serial && to->heard_version >= version)
    return;
  if (openreg_clock_join(to->clock.times, times, count))
    to->version++;
  to->heard_serial = serial;
  to->heard_version = version;
}

void openreg_order_join(struct order *order, openreg_sanitizer_actor *from,
                        openreg_sanitizer_actor *to) {
  if (from == to)
    return;
  from->is_heard = true;
  openreg_order_hear(order, to, from->clock.times, order->count, from->serial, from->version);
}

void openreg_order_synchronize(struct order *order, int group, openreg_sanitizer_actor *to) {
  struct ended_group *ended = find_group(order, group);
  if (ended != NULL && openreg_clock_join(to->clock.times, ended->clock.times, order->count))
    to->version++;
  for (uint32_t i = 0; i < order->count; i++) {
    openreg_sanitizer_actor *actor = order->slots[i].actor;
    if (actor != NULL && actor->group == group)
      openreg_order_join(order, actor, to);
  }
}

void openreg_order_join_everything(struct order *order, openreg_sanitizer_actor *to) {
  for (uint32_t i = 0; i < order->count; i++) {
    openreg_sanitizer_actor *actor = order->slots[i].actor;
    if (actor != NULL && actor != to)
      actor->is_heard = true;
    to->clock.times[i] = latest(order, i);
  }
  to->version++;
}

bool openreg_order_is_settled(const struct order *order, uint32_t slot, uint64_t time) {
  for (uint32_t i = 0; i < order->count; i++) {
    const openreg_sanitizer_actor *actor = order->slots[i].actor;
    if (actor != NULL && actor->clock.times[slot] < time)
      return false;
  }
  return true;
}
