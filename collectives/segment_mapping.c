/* attachment.c: the control segments that this process has mapped. See attachment.h.
 *
 * A process that ends by exit marks its ranks as having left; one that is killed cannot, which is
 * the difference that others see. A forked child has no segment mapped and nothing to leave.
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
static openreg_attachment *first;

/* ---- the lock and forks ---------------------------------------------------------------------- */

static void before_fork(void) {
  pthread_mutex_lock(&lock);
}

static void after_fork_in_parent(void) {
  pthread_mutex_unlock(&lock);
}

/* What the parent had mapped is not mapped here, and the addresses may come to be used otherwise.
 */
static void after_fork_in_child(void) {
  for (openreg_attachment *attachment = first; attachment != NULL; attachment = attachment->next)
    attachment->segment = NULL;
  first = NULL;
  openreg_watchdog_abandon();
  pthread_mutex_unlock(&lock);
}

static struct openreg_fork_watch fork_watch =
    OPENREG_FORK_WATCH(before_fork, after_fork_in_parent, after_fork_in_child);

openreg_status openreg_attachments_lock(void) {
  openreg_status status = openreg_forks_watch(&fork_watch);
  if (status == OPENREG_OK)
    pthread_mutex_lock(&lock);
  return status;
}

void openreg_attachments_unlock(void) {
  pthread_mutex_unlock(&lock);
}

openreg_attachment *openreg_attachments_first(void) {
  return first;
}

/* ---- mapping --------------------------------------------------------------------------------- */

static int choose_looks(int size) {
  cpu_set_t cores;
  bool enough = sched_getaffinity(getpid(), sizeof cores, &cores) == 0 && CPU_COUNT(&cores) >= size;
  return enough ? openreg_looks_before_sleep() : 0;
}

static openreg_status take_names(openreg_attachment *attachment,
                                 const openreg_comm_options *options) {
  snprintf(attachment->name, sizeof attachment->name, "%s",
           options->name == NULL ? "" : options->name);
  if (options->rank_names == NULL)
    return OPENREG_OK;
  size_t bytes = (size_t)attachment->size * sizeof(int);
  attachment->rank_names = malloc(bytes);
  if (attachment->rank_names == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for a communicator");
  memcpy(attachment->rank_names, options->rank_names, bytes);
  return OPENREG_OK;
}

static openreg_status make(const struct openreg_segment_name *name,
                           const openreg_comm_options *options, openreg_attachment **made) {
  openreg_attachment *attachment = calloc(1, sizeof *attachment);
  if (attachment == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for a communicator");
  attachment->nonce = name->nonce;
  attachment->size = (int)name->size;
  attachment->looks = choose_looks(attachment->size);
  openreg_status status = take_names(attachment, options);
  if (status == OPENREG_OK)
    status = openreg_segment_map(name, &attachment->segment);
  if (status != OPENREG_OK) {
    free(attachment->rank_names);
    free(attachment);
    return status;
  }
  attachment->next = first;
  first = attachment;
  *made = attachment;
  return OPENREG_OK;
}

openreg_status openreg_attachment_get(const struct openreg_segment_name *name,
                                      const openreg_comm_options *options,
                                      openreg_attachment **attachment) {
  openreg_status status = openreg_attachments_lock();
  if (status != OPENREG_OK)
    return status;
  openreg_attachment *found = first;
  while (found != NULL && found->nonce != name->nonce)
    found = found->next;
  if (found == NULL)
    status = make(name, options, &found);
  if (status == OPENREG_OK) {
    found->users++;
    *attachment = found;
  }
  pthread_mutex_unlock(&lock);
  return status;
}

static void forget_locked(openreg_attachment *attachment) {
  openreg_watchdog_remove_locked(attachment);
  openreg_attachment **link = &first;
  while (*link != attachment)
    link = &(*link)->next;
  *link = attachment->next;
  openreg_segment_unmap(attachment->segment);
}

void openreg_attachment_put(openreg_attachment *attachment) {
  pthread_mutex_lock(&lock);
  bool is_last = --attachment->users == 0;
  if (is_last && attachment->segment != NULL)
    forget_locked(attachment);
  pthread_mutex_unlock(&lock);
  if (!is_last)
    return;
  free(attachment->rank_names);
  free(attachment);
}

/* ---- places ---------------------------------------------------------------------------------- */

bool openreg_attachment_take_place(openreg_attachment *attachment, int rank) {
  uint32_t absent = OPENREG_MEMBER_ABSENT;
  pthread_mutex_lock(&lock);
  bool is_taken = atomic_compare_exchange_strong(&attachment->segment->members[rank].state, &absent,
                                                 OPENREG_MEMBER_JOINING);
  if (is_taken)
    attachment->own[rank] = true;
  pthread_mutex_unlock(&lock);
  return is_taken;
}

static void leave_locked(openreg_attachment *attachment, int rank) {
  if (attachment->segment == NULL || !attachment->own[rank])
    return;
  attachment->own[rank] = false;
  atomic_store(&attachment->segment->members[rank].state, OPENREG_MEMBER_LEFT);
  atomic_fetch_add(&attachment->segment->left, 1);
  openreg_attachment_ring_all(attachment);
}

void openreg_attachment_leave(openreg_attachment *attachment, int rank) {
  pthread_mutex_lock(&lock);
  leave_locked(attachment, rank);
  pthread_mutex_unlock(&lock);
}

/* At the end of a process that ends by itself. */
__attribute__((destructor)) static void leave_all(void) {
  pthread_mutex_lock(&lock);
  for (openreg_attachment *attachment = first; attachment != NULL; attachment = attachment->next)
    for (int rank = 0; rank < attachment->size; rank++)
      leave_locked(attachment, rank);
  pthread_mutex_unlock(&lock);
}

/* ---- ends ------------------------------------------------------------------------------------ */

void openreg_attachment_ring_all(const openreg_attachment *attachment) {
  struct openreg_segment *segment = attachment->segment;
  openreg_doorbell_ring(&segment->bell);
  for (int rank = 0; rank < attachment->size; rank++)
    openreg_doorbell_ring(&segment->members[rank].letters);
}

void openreg_attachment_end(openreg_attachment *attachment, const char *format, ...) {
  struct openreg_segment *segment = attachment->segment;
  uint32_t not_ended = OPENREG_NOT_ENDED;
  if (!atomic_compare_exchange_strong(&segment->end, &not_ended, OPENREG_END_BEGINS))
    return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(segment->sentence, sizeof segment->sentence, format, arguments);
  va_end(arguments);
  atomic_store(&segment->end, OPENREG_ENDED);
  openreg_attachment_ring_all(attachment);
}

/* Who ends it writes a sentence: that takes a moment, or for ever, if it is killed meanwhile. */
const char *openreg_attachment_sentence(const openreg_attachment *attachment) {
  enum { MOMENT_NS = 100000000 };
  struct openreg_segment *segment = attachment->segment;
  int64_t deadline_ns = openreg_deadline_ns(MOMENT_NS);
  while (atomic_load(&segment->end) != OPENREG_ENDED) {
    if (openreg_now_ns() >= deadline_ns)
      return "openreg: a rank ended the group, and died before it said why";
    sched_yield();
  }
  return segment->sentence;
}
