/* reclaimer.c: the memory of processes that ended, as far as it is imported here.
 *
 * The memory file of such a process is kept whole by the kernel while anybody maps any of it. So
 * each process that imports from it gives back what nobody imports: of each gap between its own
 * imports it tries to get a write lock, which no other importer lets it have where that one has
 * memory, and punches a hole there. What cannot be had remains, and the ledger is told how much.
 * One importer at a time does so, or their sums would be of different moments. A process that finds
 * it is the only importer stays it, for nobody imports from the dead: from then on it looks only at
 * what it lets go of itself, and letting go of many ranges takes no more than one look for each.
 *
 * Only the importers know that a process has ended: a thread waits for it.
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

/* How long until the thread looks again: where the kernel cannot tell it of ends, after another
 * process was at the same file, and when the ledger could not be told. */
enum { LOOK_AGAIN_MS = 50, NEVER = -1 };

static int events = -1;  /* epoll: of what the thread waits for */
static int wake_up = -1; /* eventfd: there is something new */

/* ---- giving back ----------------------------------------------------------------------------- */

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

/* Gives back the whole pages of a range that no other process has; returns how many bytes. */
static uint64_t punch_unlocked(int file, uint64_t start, uint64_t end) {
  enum { ATTEMPTS = 100 }; /* at what others let go of, and lock, just when it is looked at */
  uint64_t page = page_bytes(), given = 0;
  start = round_up(start, page);
  end = end / page * page;
  for (int attempts = 0; start < end && attempts < ATTEMPTS;) {
    if (openreg_range_lock_try(file, F_WRLCK, start, end - start)) {
      given += punch(file, start, end) ? end - start : 0;
      openreg_range_lock_release(file, start, end - start);
      break;
    }
    uint64_t taken = start, bytes = end - start;
    if (!openreg_range_lock_find(file, &taken, &bytes)) {
      attempts++;
      continue;
    }
    given += punch_unlocked(file, start, taken);
    start = round_up(taken + bytes, page);
  }
  return given;
}

static void reclaim_gap(struct peer_file *file, uint64_t start, uint64_t end) {
  uint64_t first = round_up(start, page_bytes()), last = end / page_bytes() * page_bytes();
  if (first >= last)
    return;
  uint64_t given = punch_unlocked(file->file, first, last);
  file->remains -= given;
  file->is_sole_importer = file->is_sole_importer && given == last - first;
}

static void reclaim_gaps(struct peer_file *file) {
  uint64_t gap = 0;
  file->remains = file->arena_bytes;
  file->is_sole_importer = true;
  for (size_t i = 0; i < file->import_count; i++) {
    const openreg_import *import = file->imports[i];
    if (import->mapping == NULL)
      continue; /* of an event: behind the arena */
    reclaim_gap(file, gap, import->offset);
    gap = import->offset + import->bytes;
  }
  reclaim_gap(file, gap, file->arena_bytes);
}

/* The pages of a range that is a gap now, but for those that it shares with its neighbours. */
static void reclaim_range(struct peer_file *file, size_t place, uint64_t offset, uint64_t bytes) {
  uint64_t start = offset / page_bytes() * page_bytes();
  uint64_t end = round_up(offset + bytes, page_bytes());
  if (place > 0) {
    const openreg_import *before = file->imports[place - 1];
    start = before->offset + before->bytes > start ? before->offset + before->bytes : start;
  }
  if (place < file->import_count && file->imports[place]->offset < end)
    end = file->imports[place]->offset;
  reclaim_gap(file, start, end);
}

void openreg_reclaimer_wake(void) {
  uint64_t one = 1;
  if (wake_up >= 0 && write(wake_up, &one, sizeof one) < 0)
    return; /* it is full, and the thread awake */
}

static uint64_t reclaim_lock_position(const struct peer_file *file) {
  return openreg_export_position(file->arena_bytes, OPENREG_EXPORT_COUNT);
}

/* False when it is another importer's. */
static bool try_lock_for_reclaiming(struct peer_file *file) {
  return openreg_range_lock_try(file->file, F_WRLCK, reclaim_lock_position(file), 1);
}

/* False when the ledger could not be told. */
static bool report_and_unlock(struct peer_file *file) {
  openreg_status status = openreg_ledger_set_remains(file->peer, file->device, file->remains);
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

void openreg_reclaimer_reclaim_range_locked(struct peer_file *file, size_t place, uint64_t offset,
                                            uint64_t bytes) {
  if (!file->is_reclaimed || !file->is_sole_importer || !try_lock_for_reclaiming(file)) {
    openreg_reclaimer_reclaim_locked(file);
    return;
  }
  if (offset < file->arena_bytes) /* else an event's */
    reclaim_range(file, place, offset, bytes);
  file->is_reclaimed = report_and_unlock(file);
  if (!file->is_reclaimed)
    openreg_reclaimer_wake();
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* A pidfd may tell of the end of a process that goes on as far as the ledger knows: of one that has
 * the same pid elsewhere, or has just been forked and not closed its files yet. */
static void leave_to_the_clock(struct peer_file *file) {
  struct pollfd watch = {.fd = file->watch, .events = POLLIN};
  if (poll(&watch, 1, 0) > 0)
    openreg_reclaimer_unwatch_locked(file);
}

/* Returns whether the file is to be looked after by the clock. */
static bool look_after(struct peer_file *file) {
  if (!openreg_peer_file_has_ended_locked(file)) {
    if (file->watch >= 0)
      leave_to_the_clock(file);
    return file->watch < 0;
  }
  file->is_reclaimed = file->is_reclaimed || try_reclaim(file);
  return !file->is_reclaimed;
}

/* Returns how long the thread may sleep. */
static int look_after_all_locked(void) {
  int sleep_ms = NEVER;
  for (struct peer_file *file = openreg_peer_files, *next; file != NULL; file = next) {
    next = file->next;
    if (look_after(file))
      sleep_ms = LOOK_AGAIN_MS;
    else if (file->references == 0)
      openreg_peer_file_drop_locked(file);
  }
  return sleep_ms;
}

static void clear_wake_up(void) {
  uint64_t count;
  if (read(wake_up, &count, sizeof count) < 0)
    return; /* no news: a process ended, or time passed */
}

static void *run_reclaimer(void *unused) {
  (void)unused;
  openreg_thread_name("openreg reclaim");
  for (int sleep_ms = NEVER;;) {
    struct epoll_event event;
    (void)epoll_wait(events, &event, 1, sleep_ms);
    if (openreg_imports_lock() != OPENREG_OK)
      return NULL;
    clear_wake_up();
    sleep_ms = look_after_all_locked();
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
                  : openreg_thread_start(run_reclaimer, NULL);
  if (error == 0)
    return OPENREG_OK;
  openreg_reclaimer_abandon();
  return openreg_fail(OPENREG_SYSTEM,
                      "openreg: starting the thread that waits for the ends of "
                      "processes: %s",
                      strerror(error));
}

/* ---- what it waits for ----------------------------------------------------------------------- */

void openreg_reclaimer_watch_locked(struct peer_file *file) {
  file->watch = (int)syscall(SYS_pidfd_open, file->pid, 0);
  if (file->watch >= 0 && add_to_events(file->watch))
    return;
  if (file->watch >= 0)
    close(file->watch);
  file->watch = -1;
  openreg_reclaimer_wake(); /* the thread is to look by the clock */
}

void openreg_reclaimer_unwatch_locked(struct peer_file *file) {
  if (file->watch < 0)
    return;
  (void)epoll_ctl(events, EPOLL_CTL_DEL, file->watch, NULL);
  close(file->watch);
  file->watch = -1;
}
