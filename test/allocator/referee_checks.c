/* referee_checks.c: what must be so, by the referee's account. See referee.h. */
#include "referee.h"

#include <stdlib.h>

/* ---- what must be so after operations -------------------------------------------------------- */

void assert_stats_are_the_referees(int device) {
  const openreg_memory_stats *sums = &arenas[device].sums;
  openreg_memory_stats stats = stats_of(device);
#define SAME(name) assert_memory_equal(&stats.name, &sums->name, sizeof stats.name)
  SAME(allocation);
  SAME(allocated_bytes);
  SAME(active);
  SAME(active_bytes);
  SAME(requested_bytes);
  SAME(reserved_bytes);
  SAME(ooms);
  SAME(device_allocs);
  SAME(device_frees);
#undef SAME
  assert_true(stats.alloc_retries >= stats.ooms);
}

void assert_nothing_waits_in_vain(int device, bool shared_too) {
  for (int i = 0; waiting_count > 0 && i < MOST; i++) {
    const struct slot *slot = &slots[i];
    if (slot->device != device)
      continue;
    if (slot->is == AWAITING)
      assert_true(slot->waiting != 0);
    if (slot->is == GIVEN_BACK && shared_too)
      assert_true(slot->holders > 0);
  }
}

void assert_is_empty(int device, uint64_t only) {
  const struct arena *arena = &arenas[device];
  for (size_t i = 0; i < GRANULES; i++) {
    const struct owner *owner = &arena->owners[i];
    bool concerned = only ? owner->mempool == only : !is_kept(owner->mempool);
    if (owner->kind == 0 || !concerned)
      continue;
    bool used = false;
    for (size_t unit = i * GRANULE / UNIT; unit < (i + 1) * GRANULE / UNIT && !used; unit++)
      used = arena->blocks[unit] != 0;
    assert_true(used);
  }
}

/* ---- what must be so at any time ------------------------------------------------------------- */

/* Segments are runs of granules of one owner; what is free in them must be so in the snapshot. */
static void assert_snapshot_is_the_referees(int device) {
  const struct arena *arena = &arenas[device];
  openreg_memory_snapshot snapshot = snapshot_of(device);
  size_t granules = 0;
  for (size_t i = 0; i < snapshot.segment_count; i++) {
    const openreg_segment_info *segment = &snapshot.segments[i];
    size_t first = (segment->address - (uintptr_t)arena->base) / GRANULE;
    for (size_t j = first; j < first + segment->bytes / GRANULE; j++, granules++)
      assert_true(owns(&arena->owners[j], segment->mempool, segment->stream, segment->kind));
    for (size_t j = 0; j < segment->block_count; j++) {
      const openreg_block_info *block = &snapshot.blocks[segment->first_block + j];
      size_t unit = (block->address - (uintptr_t)arena->base) / UNIT;
      const struct slot *slot = arena->blocks[unit] ? &slots[arena->blocks[unit] - 1] : NULL;
      assert_true((block->state == OPENREG_BLOCK_FREE) == !slot);
      assert_true((block->state == OPENREG_BLOCK_AWAITING_FREE) == (slot && slot->is == AWAITING));
      assert_true(!slot || (slot->unit == unit && slot->units == block->bytes / UNIT &&
                            slot->requested == block->requested_bytes));
    }
  }
  size_t reserved = 0;
  for (int i = 0; i < GRANULES; i++)
    reserved += arena->owners[i].kind != 0;
  assert_int_equal(granules, reserved);
  openreg_memory_free_snapshot(&snapshot);
}

/* What each memory pool has reserved now; of one that is gone, nothing. */
static void assert_accounts_are_the_referees(int device) {
  openreg_mempool_stats *accounts;
  size_t count;
  int64_t reserved = 0, owned = 0;
  assert_ok(openreg_mempool_get_stats(device, &accounts, &count));
  for (int i = 0; i < GRANULES; i++) {
    const struct owner *owner = &arenas[device].owners[i];
    for (size_t j = 0; owner->kind != 0 && owner->mempool != 0 && j < count; j++)
      if (accounts[j].mempool == owner->mempool)
        accounts[j].reserved_bytes[owner->kind].current -= GRANULE;
    owned += owner->kind != 0 && owner->mempool != 0;
  }
  for (size_t j = 0; j < count; j++) {
    assert_int_equal(accounts[j].reserved_bytes[SMALL].current, 0);
    assert_int_equal(accounts[j].reserved_bytes[LARGE].current, 0);
    reserved += accounts[j].reserved_bytes[ALL].current;
  }
  assert_int_equal(reserved, owned * GRANULE);
  free(accounts);
}

void look_at_everything(void) {
  for (int device = 0; device < TEST_DEVICES; device++) {
    assert_snapshot_agrees(device);
    assert_snapshot_is_the_referees(device);
    assert_accounts_are_the_referees(device);
    if (!openreg_memory_is_valid(device))
      fail_msg("%s", openreg_last_error());
    assert_int_equal(CAPACITY - ledger_free(device),
                     arenas[device].sums.reserved_bytes[ALL].current);
  }
}

/* ---- refusals -------------------------------------------------------------------------------- */

/* Whether a request of `units` could have been cut from free memory of an owner. */
static bool has_room(const struct arena *arena, uint64_t mempool, size_t units, int kind) {
  size_t run = 0;
  for (size_t unit = 0; unit < UNITS; unit++) {
    bool is_free = !arena->blocks[unit] &&
                   owns(&arena->owners[unit / (GRANULE / UNIT)], mempool, now.stream, kind);
    run = is_free ? run + 1 : 0;
    if (run >= units)
      return true;
  }
  return false;
}

/* Free bytes of the current pool right below a granule. */
static size_t free_below(const struct arena *arena, size_t granule) {
  size_t unit = granule * GRANULE / UNIT;
  while (unit > 0 && !arena->blocks[unit - 1] &&
         owns(&arena->owners[(unit - 1) / (GRANULE / UNIT)], now.mempool, now.stream, LARGE))
    unit--;
  return granule * GRANULE - unit * UNIT;
}

/* Whether what a request lacks could have been reserved. */
static bool could_reserve(const struct arena *arena, size_t bytes, int kind) {
  double allowed = arena->fraction * CAPACITY - (double)arena->sums.reserved_bytes[ALL].current;
  for (size_t first = 0; first < GRANULES; first++) {
    if (arena->owners[first].kind != 0 || (first > 0 && arena->owners[first - 1].kind == 0))
      continue;
    size_t last = first;
    while (last < GRANULES && arena->owners[last].kind == 0)
      last++;
    size_t lacking = bytes - (kind == LARGE ? free_below(arena, first) : 0);
    lacking = (lacking + GRANULE - 1) / GRANULE * GRANULE;
    if (lacking <= (last - first) * GRANULE && (double)lacking <= allowed)
      return true;
  }
  return false;
}

void assert_refusal_is_right(void) {
  const struct arena *arena = &arenas[now.device];
  size_t units = (now.requested + UNIT - 1) / UNIT;
  int kind = units * UNIT > MIB ? LARGE : SMALL;
  assert_false(has_room(arena, now.mempool, units, kind));
  assert_false(could_reserve(arena, units * UNIT, kind));
  for (int i = 0; now.mempool == 0 && i < POOLS; i++)
    assert_false(mempools[i].use_on_oom && has_room(arena, mempools[i].number, units, kind));
}
