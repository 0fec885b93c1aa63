/* watchdog.c: one thread of a process that sees the processes of its peers die.
 *
 * It sleeps until a pidfd of theirs, or the watchdog's own descriptor, is ready. Where there are no
 * pidfds it looks ten times a second. What is to be watched it reads anew from the attachments,
 * each time that it wakes: they are few, and it wakes seldom.
 */
#define _GNU_SOURCE /* eventfd */
#include "collectives/segment_mapping.h"

#include "base/threads.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "collectives/liveness.h"
#include "collectives/error_text.h"

enum { LOOK_EVERY_MS = 100 };

/* A process that is watched, for any number of segments. */
struct peer {
  int pid;
  uint64_t started;
  int watch; /* a pidfd, or -1 */
  bool has_died, is_needed;
};

static struct peer *peers;
static size_t peer_count, peer_room;
static int wake_up = -1; /* an eventfd; -1: no thread runs */

/* ---- whom to watch --------------------------------------------------------------------------- */

static struct peer *find_peer(int pid, uint64_t started) {
  for (size_t i = 0; i < peer_count; i++)
    if (peers[i].pid == pid && peers[i].started == started)
      return &peers[i];
  return NULL;
}

static bool add_peer(int pid, uint64_t started) {
  if (peer_count == peer_room) {
    size_t room = peer_room == 0 ? 16 : 2 * peer_room;
    struct peer *grown = realloc(peers, room * sizeof *peers);
    if (grown == NULL)
      return false;
    peers = grown;
    peer_room = room;
  }
  struct peer *peer = &peers[peer_count++];
  *peer = (struct peer){.pid = pid, .started = started, .is_needed = true};
  peer->watch = openreg_process_watch(pid);
  /* It may be another process's by now. */
  peer->has_died = openreg_process_has_ended(pid, started);
  return true;
}

/* Marks the peers of an attachment as needed, and adds those that are new. */
static bool need_peers(const openreg_attachment *attachment) {
  for (int rank = 0; rank < attachment->size; rank++) {
    const struct openreg_member *member = &attachment->segment->members[rank];
    if (member->pid == getpid())
      continue;
    struct peer *peer = find_peer(member->pid, member->started);
    if (peer != NULL)
      peer->is_needed = true;
    else if (!add_peer(member->pid, member->started))
      return false;
  }
  return true;
}

static void close_watch(struct peer *peer) {
  if (peer->watch >= 0)
    close(peer->watch);
}

static void drop_unneeded_peers(void) {
  for (size_t i = 0; i < peer_count; i++)
    peers[i].is_needed = false;
  for (openreg_attachment *it = openreg_attachments_first(); it != NULL; it = it->next)
    if (it->is_watched)
      need_peers(it);
  size_t kept = 0;
  for (size_t i = 0; i < peer_count; i++) {
    if (peers[i].is_needed)
      peers[kept++] = peers[i];
    else
      close_watch(&peers[i]);
  }
  peer_count = kept;
}

/* ---- who has died ---------------------------------------------------------------------------- */

static void look_after(struct peer *peer) {
  struct pollfd poll_one = {.fd = peer->watch, .events = POLLIN};
  if (peer->watch < 0)
    peer->has_died = openreg_process_has_ended(peer->pid, peer->started);
  else if (poll(&poll_one, 1, 0) == 1)
    peer->has_died = true;
}

static void bury(openreg_attachment *attachment, const struct peer *peer) {
  for (int rank = 0; rank < attachment->size; rank++) {
    struct openreg_member *member = &attachment->segment->members[rank];
    uint32_t joined = OPENREG_MEMBER_JOINED;
    if (member->pid != peer->pid || member->started != peer->started)
      continue;
    atomic_store(&member->moving, 0); /* it left, or died, in the middle of it */
    bool has_left = !atomic_compare_exchange_strong(&member->state, &joined, OPENREG_MEMBER_DEAD);
    if (has_left && joined != OPENREG_MEMBER_DEAD)
      continue;
    char name[OPENREG_RANK_TEXT_BYTES], group[OPENREG_GROUP_TEXT_BYTES];
    openreg_attachment_end(attachment, "openreg: %s%s has died (process %d)",
                           openreg_rank_text(attachment, rank, name),
                           openreg_group_text(attachment, group), peer->pid);
  }
  /* Also for those who wait until nobody moves data. */
  openreg_attachment_ring_all(attachment);
}

static void bury_the_dead(void) {
  for (size_t i = 0; i < peer_count; i++) {
    if (!peers[i].has_died)
      look_after(&peers[i]);
    if (!peers[i].has_died)
      continue;
    for (openreg_attachment *it = openreg_attachments_first(); it != NULL; it = it->next)
      if (it->is_watched)
        bury(it, &peers[i]);
  }
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void stop_locked(void) {
  close(wake_up);
  wake_up = -1;
  for (size_t i = 0; i < peer_count; i++)
    close_watch(&peers[i]);
  free(peers);
  peers = NULL;
  peer_count = peer_room = 0;
}

/* What to sleep on. The caller frees it; NULL without memory: then it looks as without pidfds. */
static struct pollfd *list_watches_locked(nfds_t *count, int *timeout_ms) {
  struct pollfd *list = calloc(peer_count + 1, sizeof *list);
  *count = 0;
  *timeout_ms = list == NULL ? LOOK_EVERY_MS : -1;
  if (list == NULL)
    return NULL;
  list[(*count)++] = (struct pollfd){.fd = wake_up, .events = POLLIN};
  for (size_t i = 0; i < peer_count; i++) {
    if (peers[i].has_died)
      continue;
    if (peers[i].watch >= 0)
      list[(*count)++] = (struct pollfd){.fd = peers[i].watch, .events = POLLIN};
    else
      *timeout_ms = LOOK_EVERY_MS;
  }
  return list;
}

static void clear_wake_up(void) {
  uint64_t wakes;
  if (read(wake_up, &wakes, sizeof wakes) < 0)
    return; /* nobody woke it */
}

static bool has_work_locked(void) {
  for (openreg_attachment *it = openreg_attachments_first(); it != NULL; it = it->next)
    if (it->is_watched)
      return true;
  return false;
}

static void *watch(void *nothing) {
  (void)nothing;
  openreg_thread_name("openreg-watch");
  while (openreg_attachments_lock() == OPENREG_OK) {
    clear_wake_up();
    drop_unneeded_peers();
    bury_the_dead();
    if (!has_work_locked()) {
      stop_locked();
      openreg_attachments_unlock();
      break;
    }
    nfds_t count;
    int timeout_ms;
    struct pollfd *list = list_watches_locked(&count, &timeout_ms);
    openreg_attachments_unlock();
    poll(list, count, timeout_ms);
    free(list);
  }
  return NULL;
}

static openreg_status start_locked(void) {
  if (wake_up >= 0)
    return OPENREG_OK;
  wake_up = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_up < 0)
    return openreg_fail(OPENREG_SYSTEM, "openreg: making the watchdog's descriptor: %s",
                        strerror(errno));
  int error = openreg_thread_start(watch, NULL);
  if (error == 0)
    return OPENREG_OK;
  stop_locked();
  return openreg_fail(OPENREG_SYSTEM, "openreg: starting the watchdog: %s", strerror(error));
}

static void wake_locked(void) {
  uint64_t one = 1;
  if (wake_up >= 0 && write(wake_up, &one, sizeof one) < 0)
    return; /* it is full of wake-ups */
}

/* ---- for attachment.c and comm.c ------------------------------------------------------------- */

static bool has_peers(const openreg_attachment *attachment) {
  for (int rank = 0; rank < attachment->size; rank++)
    if (attachment->segment->members[rank].pid != getpid())
      return true;
  return false;
}

openreg_status openreg_watchdog_add_locked(openreg_attachment *attachment) {
  if (attachment->is_watched || !has_peers(attachment))
    return OPENREG_OK;
  openreg_status status = start_locked();
  if (status != OPENREG_OK)
    return status;
  attachment->is_watched = true;
  if (!need_peers(attachment)) {
    openreg_watchdog_remove_locked(attachment);
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for the watchdog");
  }
  wake_locked();
  return OPENREG_OK;
}

void openreg_watchdog_remove_locked(openreg_attachment *attachment) {
  if (!attachment->is_watched)
    return;
  attachment->is_watched = false;
  wake_locked();
}

void openreg_watchdog_abandon(void) {
  if (wake_up >= 0)
    stop_locked();
}
