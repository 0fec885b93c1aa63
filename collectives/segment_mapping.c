/* segment_mapping.c: the control segments that this process has mapped. See segment_mapping.h.
 *
 * A process that exits marks its ranks as having left. A process that is killed cannot, and that is
 * how others tell the two apart. A forked child has no segment mapped and no ranks to release.
 */
#define _GNU_SOURCE /* sched_getaffinity */
#include "collectives/segment_mapping.h"

#include "base/forks.h"
#include "base/futex.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static openreg_segment_mapping *first;

/* ---- the lock and forks ---------------------------------------------------------------------- */

static void before_fork(void) {
  pthread_mutex_lock(&lock);
}

static void after_fork_in_parent(void) {
  pthread_mutex_unlock(&lock);
}

/* The parent's mappings do not exist in the child (MADV_DONTFORK), and their addresses may be
 * reused.
 */
static void after_fork_in_child(void) {
  for (openreg_segment_mapping *mapping = first; mapping != NULL; mapping = mapping->next)
    mapping->shm = NULL;
  first = NULL;
  openreg_watchdog_close_after_fork();
  pthread_mutex_unlock(&lock);
}

static struct openreg_fork_handlers fork_watch =
    OPENREG_FORK_HANDLERS(before_fork, after_fork_in_parent, after_fork_in_child);

openreg_status openreg_mappings_lock(void) {
  openreg_status status = openreg_forks_register(&fork_watch);
  if (status == OPENREG_OK)
    pthread_mutex_lock(&lock);
  return status;
}

void openreg_mappings_unlock(void) {
  pthread_mutex_unlock(&lock);
}

openreg_segment_mapping *openreg_mappings_first(void) {
  return first;
}

/* ---- mapping --------------------------------------------------------------------------------- */

static int choose_spins(int size) {
  cpu_set_t cores;
  bool enough = sched_getaffinity(getpid(), sizeof cores, &cores) == 0 && CPU_COUNT(&cores) >= size;
  return enough ? openreg_spin_count() : 0;
}

static openreg_status copy_names(openreg_segment_mapping *mapping,
                                 const openreg_comm_options *options) {
  snprintf(mapping->name, sizeof mapping->name, "%s", options->name == NULL ? "" : options->name);
  if (options->rank_names == NULL)
    return OPENREG_OK;
  size_t bytes = (size_t)mapping->size * sizeof(int);
  mapping->rank_names = malloc(bytes);
  if (mapping->rank_names == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: out of host memory for a communicator");
  memcpy(mapping->rank_names, options->rank_names, bytes);
  return OPENREG_OK;
}

static openreg_status make(const struct openreg_comm_shm_locator *locator,
                           const openreg_comm_options *options, openreg_segment_mapping **made) {
  openreg_segment_mapping *mapping = calloc(1, sizeof *mapping);
  if (mapping == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: out of host memory for a communicator");
  mapping->nonce = locator->nonce;
  mapping->size = (int)locator->size;
  mapping->spins = choose_spins(mapping->size);
  openreg_status status = copy_names(mapping, options);
  if (status == OPENREG_OK)
    status = openreg_comm_shm_map(locator, &mapping->shm);
  if (status != OPENREG_OK) {
    free(mapping->rank_names);
    free(mapping);
    return status;
  }
  mapping->next = first;
  first = mapping;
  *made = mapping;
  return OPENREG_OK;
}

openreg_status openreg_mapping_get(const struct openreg_comm_shm_locator *locator,
                                   const openreg_comm_options *options,
                                   openreg_segment_mapping **mapping) {
  openreg_status status = openreg_mappings_lock();
  if (status != OPENREG_OK)
    return status;
  openreg_segment_mapping *found = first;
  while (found != NULL && found->nonce != locator->nonce)
    found = found->next;
  if (found == NULL)
    status = make(locator, options, &found);
  if (status == OPENREG_OK) {
    found->users++;
    *mapping = found;
  }
  pthread_mutex_unlock(&lock);
  return status;
}

static void unmap_locked(openreg_segment_mapping *mapping) {
  openreg_watchdog_remove_locked(mapping);
  openreg_segment_mapping **link = &first;
  while (*link != mapping)
    link = &(*link)->next;
  *link = mapping->next;
  openreg_comm_shm_unmap(mapping->shm);
}

void openreg_mapping_put(openreg_segment_mapping *mapping) {
  pthread_mutex_lock(&lock);
  bool is_last = --mapping->users == 0;
  if (is_last && mapping->shm != NULL)
    unmap_locked(mapping);
  pthread_mutex_unlock(&lock);
  if (!is_last)
    return;
  free(mapping->rank_names);
  free(mapping);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

bool openreg_mapping_claim_rank(openreg_segment_mapping *mapping, int rank) {
  uint32_t absent = OPENREG_MEMBER_ABSENT;
  pthread_mutex_lock(&lock);
  bool is_claimed = atomic_compare_exchange_strong(&mapping->shm->members[rank].state, &absent,
                                                   OPENREG_MEMBER_JOINING);
  if (is_claimed)
    mapping->is_local_rank[rank] = true;
  pthread_mutex_unlock(&lock);
  return is_claimed;
}

static void release_locked(openreg_segment_mapping *mapping, int rank) {
  if (mapping->shm == NULL || !mapping->is_local_rank[rank])
    return;
  mapping->is_local_rank[rank] = false;
  atomic_store(&mapping->shm->members[rank].state, OPENREG_MEMBER_LEFT);
  atomic_fetch_add(&mapping->shm->left_count, 1);
  openreg_mapping_wake_all(mapping);
}

void openreg_mapping_release_rank(openreg_segment_mapping *mapping, int rank) {
  pthread_mutex_lock(&lock);
  release_locked(mapping, rank);
  pthread_mutex_unlock(&lock);
}

/* Runs when the process exits; a killed process does not run it. */
__attribute__((destructor)) void openreg_comm_leave(void) {
  pthread_mutex_lock(&lock);
  for (openreg_segment_mapping *mapping = first; mapping != NULL; mapping = mapping->next)
    for (int rank = 0; rank < mapping->size; rank++)
      release_locked(mapping, rank);
  pthread_mutex_unlock(&lock);
}

/* ---- waking and aborting --------------------------------------------------------------------- */

void openreg_mapping_wake_all(const openreg_segment_mapping *mapping) {
  struct openreg_comm_shm *shm = mapping->shm;
  openreg_doorbell_ring(&shm->bell);
  for (int rank = 0; rank < mapping->size; rank++)
    openreg_doorbell_ring(&shm->members[rank].mailbox_bell);
}

void openreg_mapping_abort(openreg_segment_mapping *mapping, const char *format, ...) {
  struct openreg_comm_shm *shm = mapping->shm;
  uint32_t not_aborted = OPENREG_NOT_ABORTED;
  if (!atomic_compare_exchange_strong(&shm->abort_state, &not_aborted, OPENREG_ABORTING))
    return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(shm->abort_message, sizeof shm->abort_message, format, arguments);
  va_end(arguments);
  atomic_store(&shm->abort_state, OPENREG_ABORTED);
  openreg_mapping_wake_all(mapping);
}

/* The rank that aborts writes the message after it has claimed the abort. It may be killed in
 * between, so this waits for a moment only. */
const char *openreg_mapping_abort_message(const openreg_segment_mapping *mapping) {
  enum { MOMENT_NS = 100000000 };
  struct openreg_comm_shm *shm = mapping->shm;
  int64_t deadline_ns = openreg_deadline_ns(MOMENT_NS);
  while (atomic_load(&shm->abort_state) != OPENREG_ABORTED) {
    if (openreg_now_ns() >= deadline_ns)
      return "openreg: a rank aborted the group and died before it wrote the reason";
    sched_yield();
  }
  return shm->abort_message;
}
