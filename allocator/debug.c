/* debug.c: OPENREG_DEBUG_MEMORY=1, which finds writes to memory that the writer does not own.
 *
 * While the lock is free, and as long as the program writes only to its own memory, these hold:
 *
 *     free memory                               contains FREED
 *     a block, from requested_bytes to its end  contains ZONE
 *
 * Requests are RED_ZONE_BYTES longer, so the first thing above a block is its own red zone. The
 * allocator writes and checks patterns only when no work can use the memory. For a block that waits
 * for streams, that is when they are done.
 *
 * Damage is repaired at once, so that it is reported once. The report waits until the lock is free,
 * because the program's stacks may need locks of their own (allocator_unlock).
 *
 * A stack is kept at the address where its allocation started, until another allocation gets that
 * memory; then it moves to the start of the rest. So freed memory, even if merged, still has the
 * stack of its last owner.
 */
#include "allocator/internal.h"

#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- stacks ---------------------------------------------------------------------------------- */

/* The stack of an allocation, and the memory that it got. */
struct stack {
  atomic_int references;
  const openreg_stack_provider *provider; /* NULL: `made` holds frames of the C library's backtrace
                                           */
  void *made;
  char *start, *end; /* of the block */
  size_t requested_bytes;
  struct stack *next; /* in the list of stacks to drop */
};

struct frames {
  int count;
  void *at[OPENREG_DEBUG_STACK_FRAMES];
};

/* Providers are never freed, because existing stacks can be described and dropped only by their
 * own. */
struct provider {
  openreg_stack_provider stacks;
  struct provider *before;
};

static pthread_mutex_t provider_lock = PTHREAD_MUTEX_INITIALIZER;
static struct provider *providers;
static _Atomic(const openreg_stack_provider *) current_provider;

void openreg_memory_set_stack_provider(const openreg_stack_provider *stacks) {
  struct provider *provider = stacks ? malloc(sizeof *provider) : NULL;
  if (stacks && !provider)
    return;
  pthread_mutex_lock(&provider_lock);
  if (provider) {
    *provider = (struct provider){*stacks, providers};
    providers = provider;
  }
  atomic_store_explicit(&current_provider, provider ? &provider->stacks : NULL,
                        memory_order_release);
  pthread_mutex_unlock(&provider_lock);
}

static void *frames_capture(void) {
  struct frames *frames = malloc(sizeof *frames);
  if (frames)
    frames->count = backtrace(frames->at, OPENREG_DEBUG_STACK_FRAMES);
  return frames;
}

/* Returns NULL if the host has no memory. Then reports cannot name the allocation. */
struct stack *openreg_debug_capture_stack(void) {
  struct stack *stack = calloc(1, sizeof *stack);
  if (!stack)
    return NULL;
  atomic_init(&stack->references, 1);
  stack->provider = atomic_load_explicit(&current_provider, memory_order_acquire);
  stack->made = stack->provider ? stack->provider->capture() : frames_capture();
  return stack;
}

static struct stack *stack_share(struct stack *stack) {
  if (stack)
    atomic_fetch_add(&stack->references, 1);
  return stack;
}

void openreg_debug_drop_stack(struct stack *stack) {
  if (!stack || atomic_fetch_sub(&stack->references, 1) > 1)
    return;
  if (stack->provider && stack->made)
    stack->provider->drop(stack->made);
  else
    free(stack->made);
  free(stack);
}

static void print_frames(FILE *file, const struct frames *frames) {
  char **names = backtrace_symbols(frames->at, frames->count);
  for (int i = 0; i < frames->count; i++)
    if (names)
      fprintf(file, "  %s\n", names[i]);
    else
      fprintf(file, "  %p\n", frames->at[i]);
  free(names);
}

static void print_stack(FILE *file, const struct stack *stack) {
  if (!stack || !stack->made) {
    fputs("  (the allocation is not known)\n", file);
    return;
  }
  if (!stack->provider) {
    print_frames(file, stack->made);
    return;
  }
  char *text = stack->provider->describe(stack->made);
  fputs(text ? text : "  (the stack has no description)\n", file);
  if (text && *text && text[strlen(text) - 1] != '\n')
    fputc('\n', file);
  free(text);
}

/* ---- the stacks of a device ------------------------------------------------------------------ */

atomic_bool openreg_memory_debug_is_on;

bool openreg_debug_initialize(struct allocator *allocator) {
  const openreg_config *config;
  if (openreg_config_get(&config) != OPENREG_OK || !config->debug_memory)
    return true;
  allocator->debug.stacks =
      openreg_pages_map(allocator->arena_bytes / UNIT_BYTES * sizeof(struct stack *));
  if (!allocator->debug.stacks)
    return false;
  atomic_store_explicit(&openreg_memory_debug_is_on, true, memory_order_relaxed);
  return true;
}

static struct stack **stack_at(const struct allocator *allocator, const char *address) {
  return &allocator->debug.stacks[(size_t)(address - allocator->base) / UNIT_BYTES];
}

/* Returns the stack of the last allocation that contained an address of a segment, or NULL. */
static struct stack *stack_of(const struct allocator *allocator, const struct segment *segment,
                              const char *address) {
  size_t first = (size_t)(segment->address - allocator->base) / UNIT_BYTES;
  for (size_t unit = (size_t)(address - allocator->base) / UNIT_BYTES + 1; unit-- > first;) {
    struct stack *stack = allocator->debug.stacks[unit];
    if (stack && address < stack->end)
      return stack;
  }
  return NULL;
}

/* Removes the stacks of a range. A stack whose memory extends beyond the range stays if
 * `rest_stays`. The others are dropped when the lock is free. */
static void forget_stacks(struct allocator *allocator, char *from, char *to, bool rest_stays) {
  for (char *at = from; at < to; at += UNIT_BYTES) {
    struct stack *stack = *stack_at(allocator, at);
    if (!stack)
      continue;
    *stack_at(allocator, at) = NULL;
    if (rest_stays && stack->end > to && !*stack_at(allocator, to)) {
      *stack_at(allocator, to) = stack;
    } else {
      stack->next = allocator->debug.to_drop;
      allocator->debug.to_drop = stack;
    }
  }
}

/* ---- damage ---------------------------------------------------------------------------------- */

struct damage {
  openreg_memory_damage kind;
  char *address;       /* of the first byte that was overwritten */
  unsigned found;      /* its value */
  struct stack *stack; /* NULL: unknown */
  struct damage *next;
};

static void record_damage(struct allocator *allocator, const struct segment *segment,
                          openreg_memory_damage kind, char *address) {
  struct damage *damage = calloc(1, sizeof *damage), **end = &allocator->debug.found;
  if (!damage) {
    fprintf(stderr, "openreg: memory of device %d was damaged at %p\n", allocator->device,
            (void *)address);
    return;
  }
  damage->kind = kind;
  damage->address = address;
  damage->found = *(const unsigned char *)openreg_kernel_view(address);
  damage->stack = stack_share(stack_of(allocator, segment, address));
  while (*end)
    end = &(*end)->next;
  *end = damage;
}

/* Checks that a range holds its pattern, and repairs it. */
static void check_pattern(struct allocator *allocator, const struct segment *segment,
                          openreg_memory_damage kind, char *address, size_t bytes) {
  int value = kind == OPENREG_DAMAGE_OVERFLOW ? OPENREG_DEBUG_ZONE : OPENREG_DEBUG_FREED;
  size_t begin, end;
  if (!openreg_pattern_find_damage(address, bytes, value, &begin, &end))
    return;
  record_damage(allocator, segment, kind, address + begin);
  openreg_pattern_fill(address + begin, end - begin, value);
}

static void check_red_zone(struct allocator *allocator, const struct block *block) {
  const openreg_block *base = &block->base;
  check_pattern(allocator, block->segment, OPENREG_DAMAGE_OVERFLOW,
                block_address(block) + base->requested_bytes, base->bytes - base->requested_bytes);
}

void openreg_debug_on_reserve(char *address, size_t bytes) {
  openreg_pattern_fill(address, bytes, OPENREG_DEBUG_FREED);
}

void openreg_debug_on_release(struct allocator *allocator, const struct block *block, char *address,
                              size_t bytes) {
  check_pattern(allocator, block->segment, OPENREG_DAMAGE_USE_AFTER_FREE, address, bytes);
  forget_stacks(allocator, address, address + bytes, address + bytes < block_end(block));
}

void openreg_debug_on_allocate(struct allocator *allocator, const struct block *block,
                               struct stack *stack) {
  size_t requested_bytes = block->base.requested_bytes;
  char *start = block_address(block), *end = block_end(block);
  check_pattern(allocator, block->segment, OPENREG_DAMAGE_USE_AFTER_FREE, start,
                (size_t)(end - start));
  forget_stacks(allocator, start, end, true);
  if (stack) {
    stack->start = start;
    stack->end = end;
    stack->requested_bytes = requested_bytes;
    *stack_at(allocator, start) = stack_share(stack);
  }
  openreg_pattern_fill(start, requested_bytes, OPENREG_DEBUG_FRESH);
  openreg_pattern_fill(start + requested_bytes, (size_t)(end - start) - requested_bytes,
                       OPENREG_DEBUG_ZONE);
}

void openreg_debug_on_free(struct allocator *allocator, const struct block *block) {
  check_red_zone(allocator, block);
  openreg_pattern_fill(block->base.address, block->base.bytes, OPENREG_DEBUG_FREED);
}

/* ---- reports --------------------------------------------------------------------------------- */

/* Records the message of a damage. */
static openreg_status record_error(int device, const struct damage *damage) {
  bool overflow = damage->kind == OPENREG_DAMAGE_OVERFLOW;
  char where[128] = "memory of no known block";
  if (damage->stack)
    snprintf(where, sizeof where, "the block of %zu bytes at %p, offset %zu",
             damage->stack->requested_bytes, (void *)damage->stack->start,
             (size_t)(damage->address - damage->stack->start));
  return openreg_fail(
      OPENREG_LAUNCH_FAILURE,
      "openreg: device %d: memory was written %s: %s: the byte at %p is 0x%02x instead of 0x%02x",
      device, overflow ? "past the end of a block" : "after it was freed", where,
      (void *)damage->address, damage->found, overflow ? OPENREG_DEBUG_ZONE : OPENREG_DEBUG_FREED);
}

/* Prints in one piece, because other threads may print too. */
static void print_damage(const struct damage *damage) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *file = open_memstream(&text, &bytes);
  if (!file) {
    fprintf(stderr, "%s\n", openreg_last_error());
    return;
  }
  fprintf(file, "%s\nIt was allocated at:\n", openreg_last_error());
  print_stack(file, damage->stack);
  fclose(file);
  fputs(text, stderr);
  free(text);
}

static struct debug take_pending_reports(struct allocator *allocator) {
  struct debug pending = allocator->debug;
  allocator->debug.found = NULL;
  allocator->debug.to_drop = NULL;
  return pending;
}

/* Call without the lock. Records the message of the first damage last. */
static openreg_status report_damage(int device, const struct debug *pending) {
  openreg_status status = OPENREG_OK;
  for (struct damage *damage = pending->found; damage; damage = damage->next) {
    status = record_error(device, damage);
    print_damage(damage);
  }
  if (pending->found)
    record_error(device, pending->found);
  for (struct damage *damage = pending->found, *next; damage; damage = next) {
    next = damage->next;
    openreg_debug_drop_stack(damage->stack);
    free(damage);
  }
  for (struct stack *stack = pending->to_drop, *next; stack; stack = next) {
    next = stack->next;
    openreg_debug_drop_stack(stack);
  }
  return status;
}

void openreg_debug_unlock(struct allocator *allocator) {
  struct debug pending = take_pending_reports(allocator);
  lock_give(&allocator->lock);
  char message[1024]; /* the error of the operation itself, which may have failed */
  snprintf(message, sizeof message, "%s", openreg_last_error());
  openreg_status status = report_damage(allocator->device, &pending);
  if (status != OPENREG_OK)
    openreg_device_keep_failure(allocator->device, status);
  openreg_fail(OPENREG_OK, "%s", message);
}

static void check_all_memory(struct allocator *allocator) {
  for (struct segment *segment = NULL; (segment = segment_next(allocator, segment));)
    for (struct block *block = segment->first; block; block = block->next)
      if (block_is_active(block))
        check_red_zone(allocator, block);
      else if (block->state == BLOCK_FREE)
        check_pattern(allocator, segment, OPENREG_DAMAGE_USE_AFTER_FREE, block->base.address,
                      block->base.bytes);
}

openreg_status openreg_memory_check(int device) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_get_existing(device, &allocator);
  if (status != OPENREG_OK || !allocator || !memory_debug_is_on())
    return status;
  lock_take(&allocator->lock);
  check_all_memory(allocator);
  struct debug pending = take_pending_reports(allocator);
  lock_give(&allocator->lock);
  return report_damage(device, &pending);
}
