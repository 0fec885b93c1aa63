/* debug.c: OPENREG_DEBUG_MEMORY=1, which finds who writes where nothing is his.
 *
 * Between two operations of the allocator, with the lock free,
 *
 *   free memory                               holds FREED
 *   a block, from requested_bytes to its end  holds ZONE
 *
 * as long as the program only writes to what it has. Requests are made ZONE_BYTES longer, so
 * whatever lies above a block, its own zone comes first. Patterns are written and looked at when no
 * work can use the memory: a block that streams wait for when they are done.
 *
 * What is found is mended at once, so that it is reported once; but it is reported when the lock is
 * free, for the program's stacks may need locks of their own (allocator_unlock).
 *
 * A stack is kept where an allocation began until that memory is somebody else's, and then where
 * the rest of it begins: so freed memory, however merged, still has the stack of who had it last.
 */
#include "allocator/internal.h"

#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- stacks ---------------------------------------------------------------------------------- */

/* Of an allocation, with what it got. */
struct stack {
  atomic_int references;
  const openreg_memory_stacks *maker; /* NULL: `made` are frames */
  void *made;
  char *start, *end; /* of the extent */
  size_t requested_bytes;
  struct stack *next; /* of those to drop */
};

struct frames {
  int count;
  void *at[OPENREG_DEBUG_STACK_FRAMES];
};

/* Each is kept for good, for there are stacks that only it can describe and drop. */
struct maker {
  openreg_memory_stacks stacks;
  struct maker *before;
};

static pthread_mutex_t maker_lock = PTHREAD_MUTEX_INITIALIZER;
static struct maker *makers;
static _Atomic(const openreg_memory_stacks *) current_maker;

void openreg_memory_set_stacks(const openreg_memory_stacks *stacks) {
  struct maker *maker = stacks ? malloc(sizeof *maker) : NULL;
  if (stacks && !maker)
    return;
  pthread_mutex_lock(&maker_lock);
  if (maker) {
    *maker = (struct maker){*stacks, makers};
    makers = maker;
  }
  atomic_store_explicit(&current_maker, maker ? &maker->stacks : NULL, memory_order_release);
  pthread_mutex_unlock(&maker_lock);
}

static void *frames_capture(void) {
  struct frames *frames = malloc(sizeof *frames);
  if (frames)
    frames->count = backtrace(frames->at, OPENREG_DEBUG_STACK_FRAMES);
  return frames;
}

/* NULL when the host has no memory: then nobody can tell who allocated. */
struct stack *openreg_debug_capture(void) {
  struct stack *stack = calloc(1, sizeof *stack);
  if (!stack)
    return NULL;
  atomic_init(&stack->references, 1);
  stack->maker = atomic_load_explicit(&current_maker, memory_order_acquire);
  stack->made = stack->maker ? stack->maker->capture() : frames_capture();
  return stack;
}

static struct stack *stack_share(struct stack *stack) {
  if (stack)
    atomic_fetch_add(&stack->references, 1);
  return stack;
}

void openreg_debug_drop(struct stack *stack) {
  if (!stack || atomic_fetch_sub(&stack->references, 1) > 1)
    return;
  if (stack->maker && stack->made)
    stack->maker->drop(stack->made);
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
    fputs("  (who allocated it is not known)\n", file);
    return;
  }
  if (!stack->maker) {
    print_frames(file, stack->made);
    return;
  }
  char *text = stack->maker->describe(stack->made);
  fputs(text ? text : "  (cannot be described)\n", file);
  if (text && *text && text[strlen(text) - 1] != '\n')
    fputc('\n', file);
  free(text);
}

/* ---- the stacks of a device ------------------------------------------------------------------ */

atomic_bool openreg_memory_debugged;

bool openreg_debug_open(struct allocator *allocator) {
  const openreg_config *config;
  if (openreg_config_get(&config) != OPENREG_OK || !config->debug_memory)
    return true;
  allocator->debug.stacks =
      openreg_pages_map(allocator->arena_bytes / UNIT_BYTES * sizeof(struct stack *));
  if (!allocator->debug.stacks)
    return false;
  atomic_store_explicit(&openreg_memory_debugged, true, memory_order_relaxed);
  return true;
}

static struct stack **stack_at(const struct allocator *allocator, const char *address) {
  return &allocator->debug.stacks[(size_t)(address - allocator->base) / UNIT_BYTES];
}

/* Of the allocation that last had an address of a segment, or NULL. */
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

/* Nobody had the memory of a range of addresses before. What reaches further stays if `rest_stays`.
 * Stacks are dropped when the lock is free. */
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

/* ---- patterns -------------------------------------------------------------------------------- */

static void fill(char *address, size_t bytes, int value) {
  memset(openreg_kernel_view(address), value, bytes);
}

/* The first of the bytes that is not `value`; `bytes` when all are. */
static size_t first_other(const char *address, size_t bytes, int value) {
  const unsigned char *memory = openreg_kernel_view(address);
  if (bytes == 0 || (memory[0] == value && memcmp(memory, memory + 1, bytes - 1) == 0))
    return bytes;
  size_t at = 0;
  while (memory[at] == value)
    at++;
  return at;
}

/* ---- what is found --------------------------------------------------------------------------- */

struct damage {
  openreg_memory_damage kind;
  char *address;       /* of the byte that was written */
  unsigned found;      /* in it */
  struct stack *stack; /* NULL: nobody's that is known */
  struct damage *next;
};

static void found_damage(struct allocator *allocator, const struct segment *segment,
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

/* Looks whether a range holds what it must, and mends it. */
static void look(struct allocator *allocator, const struct segment *segment,
                 openreg_memory_damage kind, char *address, size_t bytes) {
  int value = kind == OPENREG_DAMAGE_OVERFLOW ? OPENREG_DEBUG_ZONE : OPENREG_DEBUG_FREED;
  size_t at = first_other(address, bytes, value);
  if (at == bytes)
    return;
  found_damage(allocator, segment, kind, address + at);
  fill(address + at, bytes - at, value);
}

static void look_behind(struct allocator *allocator, const struct block *block) {
  const openreg_block *shown = &block->shown;
  look(allocator, block->segment, OPENREG_DAMAGE_OVERFLOW,
       block_address(block) + shown->requested_bytes, shown->bytes - shown->requested_bytes);
}

void openreg_debug_reserved(char *address, size_t bytes) {
  fill(address, bytes, OPENREG_DEBUG_FREED);
}

void openreg_debug_release(struct allocator *allocator, const struct block *block, char *address,
                           size_t bytes) {
  look(allocator, block->segment, OPENREG_DAMAGE_USE_AFTER_FREE, address, bytes);
  forget_stacks(allocator, address, address + bytes, address + bytes < block_end(block));
}

void openreg_debug_handed_out(struct allocator *allocator, const struct block *block,
                              struct stack *stack) {
  size_t requested_bytes = block->shown.requested_bytes;
  char *start = block_address(block), *end = block_end(block);
  look(allocator, block->segment, OPENREG_DAMAGE_USE_AFTER_FREE, start, (size_t)(end - start));
  forget_stacks(allocator, start, end, true);
  if (stack) {
    stack->start = start;
    stack->end = end;
    stack->requested_bytes = requested_bytes;
    *stack_at(allocator, start) = stack_share(stack);
  }
  fill(start, requested_bytes, OPENREG_DEBUG_FRESH);
  fill(start + requested_bytes, (size_t)(end - start) - requested_bytes, OPENREG_DEBUG_ZONE);
}

void openreg_debug_freed(struct allocator *allocator, const struct block *block) {
  look_behind(allocator, block);
  fill(block->shown.address, block->shown.bytes, OPENREG_DEBUG_FREED);
}

/* ---- reports --------------------------------------------------------------------------------- */

/* Records the sentence of a damage. */
static openreg_status describe(int device, const struct damage *damage) {
  bool overflow = damage->kind == OPENREG_DAMAGE_OVERFLOW;
  char where[128] = "memory that no known block had";
  if (damage->stack)
    snprintf(where, sizeof where, "the block of %zu bytes at %p, offset %zu",
             damage->stack->requested_bytes, (void *)damage->stack->start,
             (size_t)(damage->address - damage->stack->start));
  return openreg_fail(
      OPENREG_LAUNCH_FAILURE,
      "openreg: device %d: memory was written %s: %s: the byte at %p is 0x%02x instead of 0x%02x",
      device, overflow ? "behind the end of a block" : "after it was freed", where,
      (void *)damage->address, damage->found, overflow ? OPENREG_DEBUG_ZONE : OPENREG_DEBUG_FREED);
}

/* In one piece, though other threads print as well. */
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

static struct debug take_news(struct allocator *allocator) {
  struct debug news = allocator->debug;
  allocator->debug.found = NULL;
  allocator->debug.to_drop = NULL;
  return news;
}

/* Without the lock. The first one's sentence is the last that is recorded. */
static openreg_status tell(int device, const struct debug *news) {
  openreg_status status = OPENREG_OK;
  for (struct damage *damage = news->found; damage; damage = damage->next) {
    status = describe(device, damage);
    print_damage(damage);
  }
  if (news->found)
    describe(device, news->found);
  for (struct damage *damage = news->found, *next; damage; damage = next) {
    next = damage->next;
    openreg_debug_drop(damage->stack);
    free(damage);
  }
  for (struct stack *stack = news->to_drop, *next; stack; stack = next) {
    next = stack->next;
    openreg_debug_drop(stack);
  }
  return status;
}

void openreg_debug_unlock(struct allocator *allocator) {
  struct debug news = take_news(allocator);
  lock_give(&allocator->lock);
  char sentence[1024]; /* of the operation itself, which may have failed */
  snprintf(sentence, sizeof sentence, "%s", openreg_last_error());
  openreg_status status = tell(allocator->device, &news);
  if (status != OPENREG_OK)
    openreg_device_keep_failure(allocator->device, status);
  openreg_fail(OPENREG_OK, "%s", sentence);
}

static void look_at_everything(struct allocator *allocator) {
  for (struct segment *segment = NULL; (segment = segment_next(allocator, segment));)
    for (struct block *block = segment->first; block; block = block->next)
      if (block_is_active(block))
        look_behind(allocator, block);
      else if (block->state == BLOCK_FREE)
        look(allocator, segment, OPENREG_DAMAGE_USE_AFTER_FREE, block->shown.address,
             block->shown.bytes);
}

openreg_status openreg_memory_check(int device) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_peek(device, &allocator);
  if (status != OPENREG_OK || !allocator || !memory_is_debugged())
    return status;
  lock_take(&allocator->lock);
  look_at_everything(allocator);
  struct debug news = take_news(allocator);
  lock_give(&allocator->lock);
  return tell(device, &news);
}
