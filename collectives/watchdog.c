/* watchdog.c: a thread of this process that detects when processes of other ranks die.
 *
 * It sleeps until a pidfd of such a process, or the watchdog's own eventfd, is readable. Where the
 * system has no pidfds it polls /proc ten times a second. Each time it wakes, it rebuilds the list
 * of processes from the mappings: there are few, and it wakes rarely.
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

enum { POLL_INTERVAL_MS = 100 };

/* A watched process. It may belong to any number of segments. */
struct peer {
  int pid;
  uint64_t started;
  int pidfd; /* -1: none */
  bool has_died, is_needed;
};

static struct peer *peers;
static size_t peer_count, peer_room;
static int wake_fd = -1; /* an eventfd; -1: no thread runs */

/* ---- the watched processes ------------------------------------------------------------------- */

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
  peer->pidfd = openreg_process_open_pidfd(pid);
  /* The pid may have been reused before the pidfd was opened. */
  peer->has_died = openreg_process_has_ended(pid, started);
  return true;
}

/* Marks the peers of a mapping as needed and adds new ones. Returns false without memory. */
static bool need_peers(const openreg_segment_mapping *mapping) {
  for (int rank = 0; rank < mapping->size; rank++) {
    const struct openreg_member *member = &mapping->shm->members[rank];
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

static void close_pidfd(struct peer *peer) {
  if (peer->pidfd >= 0)
    close(peer->pidfd);
}

static void drop_unneeded_peers(void) {
  for (size_t i = 0; i < peer_count; i++)
    peers[i].is_needed = false;
  for (openreg_segment_mapping *it = openreg_mappings_first(); it != NULL; it = it->next)
    if (it->is_watched)
      need_peers(it);
  size_t kept = 0;
  for (size_t i = 0; i < peer_count; i++) {
    if (peers[i].is_needed)
      peers[kept++] = peers[i];
    else
      close_pidfd(&peers[i]);
  }
  peer_count = kept;
}

/* ---- deaths ---------------------------------------------------------------------------------- */

static void poll_peer(struct peer *peer) {
  struct pollfd poll_one = {.fd = peer->pidfd, .events = POLLIN};
  if (peer->pidfd < 0)
    peer->has_died = openreg_process_has_ended(peer->pid, peer->started);
  else if (poll(&poll_one, 1, 0) == 1)
    peer->has_died = true;
}

static void mark_dead(openreg_segment_mapping *mapping, const struct peer *peer) {
  for (int rank = 0; rank < mapping->size; rank++) {
    struct openreg_member *member = &mapping->shm->members[rank];
    uint32_t joined = OPENREG_MEMBER_JOINED;
    if (member->pid != peer->pid || member->started != peer->started)
      continue;
    atomic_store(&member->active_transfers, 0); /* it may have died during a transfer */
    bool has_left = !atomic_compare_exchange_strong(&member->state, &joined, OPENREG_MEMBER_DEAD);
    if (has_left && joined != OPENREG_MEMBER_DEAD)
      continue;
    char name[OPENREG_RANK_TEXT_BYTES], group[OPENREG_GROUP_TEXT_BYTES];
    openreg_mapping_abort(mapping, "openreg: %s%s has died (process %d)",
                          openreg_rank_text(mapping, rank, name),
                          openreg_group_text(mapping, group), peer->pid);
  }
  /* Ranks that wait for active transfers to end must check again, too. */
  openreg_mapping_wake_all(mapping);
}

static void mark_dead_peers(void) {
  for (size_t i = 0; i < peer_count; i++) {
    if (!peers[i].has_died)
      poll_peer(&peers[i]);
    if (!peers[i].has_died)
      continue;
    for (openreg_segment_mapping *it = openreg_mappings_first(); it != NULL; it = it->next)
      if (it->is_watched)
        mark_dead(it, &peers[i]);
  }
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void stop_locked(void) {
  close(wake_fd);
  wake_fd = -1;
  for (size_t i = 0; i < peer_count; i++)
    close_pidfd(&peers[i]);
  free(peers);
  peers = NULL;
  peer_count = peer_room = 0;
}

/* The descriptors to poll; the caller frees the list. Returns NULL without memory: then the
 * watchdog polls as it does without pidfds. */
static struct pollfd *list_descriptors_locked(nfds_t *count, int *timeout_ms) {
  struct pollfd *list = calloc(peer_count + 1, sizeof *list);
  *count = 0;
  *timeout_ms = list == NULL ? POLL_INTERVAL_MS : -1;
  if (list == NULL)
    return NULL;
  list[(*count)++] = (struct pollfd){.fd = wake_fd, .events = POLLIN};
  for (size_t i = 0; i < peer_count; i++) {
    if (peers[i].has_died)
      continue;
    if (peers[i].pidfd >= 0)
      list[(*count)++] = (struct pollfd){.fd = peers[i].pidfd, .events = POLLIN};
    else
      *timeout_ms = POLL_INTERVAL_MS;
  }
  return list;
}

static void clear_wake_fd(void) {
  uint64_t wakes;
  if (read(wake_fd, &wakes, sizeof wakes) < 0)
    return; /* a peer woke the thread, not the eventfd */
}

static bool has_work_locked(void) {
  for (openreg_segment_mapping *it = openreg_mappings_first(); it != NULL; it = it->next)
    if (it->is_watched)
      return true;
  return false;
}

static void *watch(void *nothing) {
  (void)nothing;
  openreg_thread_name("openreg-watch");
  while (openreg_mappings_lock() == OPENREG_OK) {
    clear_wake_fd();
    drop_unneeded_peers();
    mark_dead_peers();
    if (!has_work_locked()) {
      stop_locked();
      openreg_mappings_unlock();
      break;
    }
    nfds_t count;
    int timeout_ms;
    struct pollfd *list = list_descriptors_locked(&count, &timeout_ms);
    openreg_mappings_unlock();
    poll(list, count, timeout_ms);
    free(list);
  }
  return NULL;
}

static openreg_status start_locked(void) {
  if (wake_fd >= 0)
    return OPENREG_OK;
  wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd < 0)
    return openreg_fail(OPENREG_SYSTEM, "openreg: cannot create the watchdog's eventfd: %s",
                        strerror(errno));
  int error = openreg_thread_start(watch, NULL);
  if (error == 0)
    return OPENREG_OK;
  stop_locked();
  return openreg_fail(OPENREG_SYSTEM, "openreg: cannot start the watchdog thread: %s",
                      strerror(error));
}

static void wake_locked(void) {
  uint64_t one = 1;
  if (wake_fd >= 0 && write(wake_fd, &one, sizeof one) < 0)
    return; /* the counter is full, so the thread wakes anyway */
}

/* ---- interface ------------------------------------------------------------------------------- */

static bool has_peers(const openreg_segment_mapping *mapping) {
  for (int rank = 0; rank < mapping->size; rank++)
    if (mapping->shm->members[rank].pid != getpid())
      return true;
  return false;
}

openreg_status openreg_watchdog_add_locked(openreg_segment_mapping *mapping) {
  if (mapping->is_watched || !has_peers(mapping))
    return OPENREG_OK;
  openreg_status status = start_locked();
  if (status != OPENREG_OK)
    return status;
  mapping->is_watched = true;
  if (!need_peers(mapping)) {
    openreg_watchdog_remove_locked(mapping);
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: out of host memory for the watchdog");
  }
  wake_locked();
  return OPENREG_OK;
}

void openreg_watchdog_remove_locked(openreg_segment_mapping *mapping) {
  if (!mapping->is_watched)
    return;
  mapping->is_watched = false;
  wake_locked();
}

void openreg_watchdog_close_after_fork(void) {
  if (wake_fd >= 0)
    stop_locked();
}
