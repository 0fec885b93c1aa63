/* config.c: the settings of the allocation policy, and the memory limit of the process. */
#include "allocator/internal.h"

#include <pthread.h>

#define MIB ((size_t)1 << 20)

/* The values are CUDA's defaults. */
static struct {
  pthread_mutex_t lock; /* taken before a device's lock */
  openreg_memory_settings settings;
} current = {.lock = PTHREAD_MUTEX_INITIALIZER,
             .settings = {.max_split_bytes = SIZE_MAX,
                          .max_non_split_rounding_bytes = 20 * MIB,
                          .large_segment_bytes = 20 * MIB,
                          .memory_fraction = 1}};

static void set_fraction(struct allocator *allocator, double fraction) {
  allocator->allowed_bytes =
      fraction < 1 ? (size_t)(fraction * (double)allocator->capacity + 0.5) : SIZE_MAX;
}

void openreg_settings_initialize(struct allocator *allocator) {
  openreg_memory_get_settings(&allocator->settings);
  set_fraction(allocator, allocator->settings.memory_fraction);
  allocator->stats.max_split_bytes = allocator->settings.max_split_bytes;
}

/* ---- settings -------------------------------------------------------------------------------- */

static openreg_status require_valid(const openreg_memory_settings *settings) {
  if (openreg_in_bad_fork())
    return openreg_require_no_bad_fork();
  if (!settings)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_memory_set_settings: settings is NULL");
  if (settings->large_segment_bytes <= OWN_SEGMENT_BYTES ||
      settings->large_segment_bytes % MIB != 0)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg_memory_set_settings: large_segment_bytes=%zu: expected a multiple "
                        "of 1 MiB above 10 MiB",
                        settings->large_segment_bytes);
  if (settings->max_split_bytes < settings->large_segment_bytes)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg_memory_set_settings: max_split_bytes=%zu: expected %zu or more",
                        settings->max_split_bytes, settings->large_segment_bytes);
  for (int i = 0; i < OPENREG_ROUNDUP_INTERVALS; i++) {
    size_t divisions = settings->roundup_power2_divisions[i];
    if (divisions & (divisions - 1))
      return openreg_fail(OPENREG_INVALID_ARGUMENT,
                          "openreg_memory_set_settings: roundup_power2_divisions[%d]=%zu: expected "
                          "0 or a power of two",
                          i, divisions);
  }
  if (!(settings->memory_fraction >= 0 && settings->memory_fraction <= 1) ||
      !(settings->garbage_collection_threshold >= 0 && settings->garbage_collection_threshold < 1))
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg_memory_set_settings: memory_fraction=%g, "
                        "garbage_collection_threshold=%g: expected 0 to 1, and the threshold below "
                        "1",
                        settings->memory_fraction, settings->garbage_collection_threshold);
  return OPENREG_OK;
}

openreg_status openreg_memory_set_settings(const openreg_memory_settings *settings) {
  openreg_status status = require_valid(settings);
  if (status != OPENREG_OK)
    return status;
  pthread_mutex_lock(&current.lock);
  current.settings = *settings;
  pthread_mutex_unlock(&current.lock);
  for (int device = 0; device < OPENREG_MAX_DEVICES; device++) {
    struct allocator *allocator = openreg_allocator_ready(device);
    if (!allocator)
      continue;
    allocator_lock(allocator);
    openreg_memory_get_settings(&allocator->settings);
    allocator_unlock(allocator);
  }
  return OPENREG_OK;
}

void openreg_memory_get_settings(openreg_memory_settings *settings) {
  bool is_locked = !openreg_in_bad_fork(); /* in a forked process the thread that held the lock may
                                            * not exist */
  if (is_locked)
    pthread_mutex_lock(&current.lock);
  *settings = current.settings;
  if (is_locked)
    pthread_mutex_unlock(&current.lock);
}

/* ---- the limit of the process ---------------------------------------------------------------- */

openreg_status openreg_memory_set_fraction(int device, double fraction) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_open(device, &allocator);
  if (status != OPENREG_OK)
    return status;
  if (!(fraction >= 0 && fraction <= 1))
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg_memory_set_fraction: fraction %g: expected 0 to 1", fraction);
  allocator_lock(allocator);
  set_fraction(allocator, fraction);
  allocator_unlock(allocator);
  return OPENREG_OK;
}

openreg_status openreg_memory_get_fraction(int device, double *fraction) {
  struct allocator *allocator;
  openreg_status status = openreg_allocator_get_existing(device, &allocator);
  if (status != OPENREG_OK)
    return status;
  if (!fraction)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg_memory_get_fraction: fraction is NULL");
  openreg_memory_settings settings;
  openreg_memory_get_settings(&settings);
  *fraction = settings.memory_fraction;
  if (allocator) {
    allocator_lock(allocator);
    *fraction = allocator->allowed_bytes == SIZE_MAX
                    ? 1
                    : (double)allocator->allowed_bytes / (double)allocator->capacity;
    allocator_unlock(allocator);
  }
  return OPENREG_OK;
}
