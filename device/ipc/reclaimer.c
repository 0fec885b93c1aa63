/* reclaimer.c: returns memory of ended processes to the system, as far as nobody imports it.
 *
 * The kernel keeps the whole memory file of an ended process while any process maps a part of it.
 * So each importer returns what nobody imports. For each gap between its own imports it tries to
 * get a write lock, which fails where another importer has memory, and punches a hole there. It
 * reports the rest to the ledger.
 *
 * Only one importer at a time does this; otherwise their sums would belong to different moments. An
 * importer that finds no other importers remains the only one, because no process can import from a
 * dead one. From then on it only handles ranges that it closes itself, so closing many ranges takes
 * constant time for each.
 *
 * Only the importers learn that a process has ended: a thread waits for that.
 */
#define _GNU_SOURCE /* fallocate */
#include "device/ipc/imports.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/range_lock.h"
#include "base/threads.h"

/* How long the thread sleeps before it checks a file again. Used if the kernel cannot notify it of
 * the process's end, if another process was reclaiming the file, or if the ledger could not be
 * updated. */
enum { RETRY_MS = 50, NEVER = -1 };

static int events = -1;  /* epoll descriptor of everything that the thread waits for */
static int wake_up = -1; /* eventfd that wakes the thread */

/* ---- reclaiming ------------------------------------------------------------------------------ */

static uint64_t page_bytes(void) {
  return (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

static bool punch(int file, uint64_t start, uint64_t end) {
  return fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)start,
                   (off_t)(end - start)) == 0;
}

/* Punches holes in the whole pages of a range that no other process has locked. Returns the number
 * of bytes. */
static uint64_t punch_unlocked(int file, uint64_t start, uint64_t end) {
  enum { ATTEMPTS = 100 }; /* limit for ranges that others lock and unlock while this looks */
  uint64_t page = page_bytes(), released = 0;
  start = round_up(start, page);
  end = end / page * page;
  for (int attempts = 0; start < end && attempts < ATTEMPTS;) {
    if (openreg_range_lock_try(file, F_WRLCK, start, end - start)) {
      released += punch(file, start, end) ? end - start : 0;
      openreg_range_lock_release(file, start, end - start);
      break;
    }
    uint64_t taken = start, bytes = end - start;
    if (!openreg_range_lock_find(file, &taken, &bytes)) {
      attempts++;
      continue;
    }
    released += punch_unlocked(file, start, taken);
    start = round_up(taken + bytes, page);
  }
  return released;
}

static void reclaim_gap(struct peer_file *file, uint64_t start, uint64_t end) {
  uint64_t first = round_up(start, page_bytes()), last = end / page_bytes() * page_bytes();
  if (first >= last)
    return;
  uint64_t released = punch_unlocked(file->file, first, last);
  file->orphaned_bytes -= released;
  file->is_sole_importer = file->is_sole_importer && released == last - first;
}

static void reclaim_gaps(struct peer_file *file) {
  uint64_t gap = 0;
  file->orphaned_bytes = file->arena_bytes;
  file->is_sole_importer = true;
  for (size_t i = 0; i < file->import_count; i++) {
    const openreg_import *import = file->imports[i];
    if (import->mapping == NULL)
      continue; /* the entry of an event, behind the arena */
    reclaim_gap(file, gap, import->offset);
    gap = import->offset + import->bytes;
  }
  reclaim_gap(file, gap, file->arena_bytes);
}

/* Reclaims the pages of a range that was just closed, except pages shared with neighboring
 * imports. */
static void reclaim_range(struct peer_file *file, size_t position, uint64_t offset,
                          uint64_t bytes) {
  uint64_t start = offset / page_bytes() * page_bytes();
  uint64_t end = round_up(offset + bytes, page_bytes());
  if (position > 0) {
    const openreg_import *before = file->imports[position - 1];
    start = before->offset + before->bytes > start ? before->offset + before->bytes : start;
  }
  if (position < file->import_count && file->imports[position]->offset < end)
    end = file->imports[position]->offset;
  reclaim_gap(file, start, end);
}

void openreg_reclaimer_wake(void) {
  uint64_t one = 1;
  if (wake_up >= 0 && write(wake_up, &one, sizeof one) < 0)
    return; /* the counter is full, so the thread is awake */
}

static uint64_t reclaim_lock_position(const struct peer_file *file) {
  return openreg_export_position(file->arena_bytes, OPENREG_EXPORT_COUNT);
}

/* Returns false if another importer holds the lock. */
static bool try_lock_for_reclaiming(struct peer_file *file) {
  return openreg_range_lock_try(file->file, F_WRLCK, reclaim_lock_position(file), 1);
}

/* Returns false if the ledger could not be updated. */
static bool report_and_unlock(struct peer_file *file) {
  openreg_status status =
      openreg_ledger_set_orphaned_bytes(file->peer, file->device, file->orphaned_bytes);
  openreg_range_lock_release(file->file, reclaim_lock_position(file), 1);
  return status == OPENREG_OK;
}

static bool try_reclaim(struct peer_file *file) {
  if (!try_lock_for_reclaiming(file))
    return false;
  reclaim_gaps(file);
  return report_and_unlock(file);
}

void openreg_reclaimer_reclaim_locked(struct peer_file *file) {
  file->is_reclaimed = try_reclaim(file);
  if (!file->is_reclaimed)
    openreg_reclaimer_wake();
}

void openreg_reclaimer_reclaim_range_locked(struct peer_file *file, size_t position,
                                            uint64_t offset, uint64_t bytes) {
  if (!file->is_reclaimed || !file->is_sole_importer || !try_lock_for_reclaiming(file)) {
    openreg_reclaimer_reclaim_locked(file);
    return;
  }
  if (offset < file->arena_bytes) /* otherwise the entry of an event */
    reclaim_range(file, position, offset, bytes);
  file->is_reclaimed = report_and_unlock(file);
  if (!file->is_reclaimed)
    openreg_reclaimer_wake();
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* A pidfd may signal the end of a process that is still alive for the ledger: the pid may belong to
 * another process in another container, or a child that was just forked has not closed its files
 * yet. Poll in that case. */
static void fall_back_to_polling(struct peer_file *file) {
  struct pollfd watch = {.fd = file->pidfd, .events = POLLIN};
  if (poll(&watch, 1, 0) > 0)
    openreg_reclaimer_unwatch_locked(file);
}

/* Returns whether the file must be polled. */
static bool check_file(struct peer_file *file) {
  if (!openreg_peer_file_has_ended_locked(file)) {
    if (file->pidfd >= 0)
      fall_back_to_polling(file);
    return file->pidfd < 0;
  }
  file->is_reclaimed = file->is_reclaimed || try_reclaim(file);
  return !file->is_reclaimed;
}

/* Returns how long the thread may sleep. */
static int check_all_files_locked(void) {
  int sleep_ms = NEVER;
  for (struct peer_file *file = openreg_peer_files, *next; file != NULL; file = next) {
    next = file->next;
    if (check_file(file))
      sleep_ms = RETRY_MS;
    else if (file->references == 0)
      openreg_peer_file_drop_locked(file);
  }
  return sleep_ms;
}

static void drain_wake_up(void) {
  uint64_t count;
  if (read(wake_up, &count, sizeof count) < 0)
    return; /* no notification: a process ended or time has passed */
}

static void *reclaimer_main(void *unused) {
  (void)unused;
  openreg_thread_name("openreg reclaim");
  for (int sleep_ms = NEVER;;) {
    struct epoll_event event;
    (void)epoll_wait(events, &event, 1, sleep_ms);
    if (openreg_imports_lock() != OPENREG_OK)
      return NULL;
    drain_wake_up();
    sleep_ms = check_all_files_locked();
    openreg_imports_unlock();
  }
}

static bool add_to_events(int file) {
  struct epoll_event event = {.events = EPOLLIN};
  return epoll_ctl(events, EPOLL_CTL_ADD, file, &event) == 0;
}

void openreg_reclaimer_abandon(void) {
  if (events >= 0)
    close(events);
  if (wake_up >= 0)
    close(wake_up);
  events = wake_up = -1;
}

openreg_status openreg_reclaimer_start_locked(void) {
  if (events >= 0)
    return OPENREG_OK;
  events = epoll_create1(EPOLL_CLOEXEC);
  wake_up = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  int error = events < 0 || wake_up < 0 || !add_to_events(wake_up)
                  ? errno
                  : openreg_thread_start(reclaimer_main, NULL);
  if (error == 0)
    return OPENREG_OK;
  openreg_reclaimer_abandon();
  return openreg_fail(OPENREG_SYSTEM,
                      "openreg: cannot start the thread that waits for processes to end: %s",
                      strerror(error));
}

/* ---- watching processes ---------------------------------------------------------------------- */

void openreg_reclaimer_watch_locked(struct peer_file *file) {
  file->pidfd = (int)syscall(SYS_pidfd_open, file->pid, 0);
  if (file->pidfd >= 0 && add_to_events(file->pidfd))
    return;
  if (file->pidfd >= 0)
    close(file->pidfd);
  file->pidfd = -1;
  openreg_reclaimer_wake(); /* the thread must poll */
}

void openreg_reclaimer_unwatch_locked(struct peer_file *file) {
  if (file->pidfd < 0)
    return;
  (void)epoll_ctl(events, EPOLL_CTL_DEL, file->pidfd, NULL);
  close(file->pidfd);
  file->pidfd = -1;
}
