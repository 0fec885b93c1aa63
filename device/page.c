/* page.c: control pages as files: opening, making and retiring them, and their locks. See page.h.
 */
#define _GNU_SOURCE /* open file description locks, O_TMPFILE */
#include "page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char magic[8] = "openreg";

enum {
  PAGE_LOCK = 0,
  LIFE_LOCKS = 1,
  MEMORY_LOCKS = LIFE_LOCKS + OPENREG_MAX_PROCESSES,
  PATIENCE = 1000, /* pages that come and go while one is opened: a limit, lest it never ends */
};

/* ---- locks ----------------------------------------------------------------------------------- */

static int lock_bytes(int file, int command, short type, int first, int count) {
  struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = first, .l_len = count};
  int result;
  do
    result = fcntl(file, command, &lock);
  while (result != 0 && errno == EINTR);
  return result;
}

/* Whether another description holds a lock on any of the bytes. When that cannot be asked: yes, for
 * nothing of the living may be taken away. */
static bool is_locked(int file, int first, int count) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = first, .l_len = count};
  return fcntl(file, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

static openreg_status fail_system(const char *path, const char *what) {
  return openreg_fail(OPENREG_SYSTEM, "openreg: %s: %s: %s", path, what, strerror(errno));
}

openreg_status openreg_page_lock(struct page_file *file) {
  if (lock_bytes(file->locks, F_OFD_SETLKW, F_WRLCK, PAGE_LOCK, 1) != 0)
    return fail_system(file->path, "locking the control page");
  return OPENREG_OK;
}

void openreg_page_unlock(struct page_file *file) {
  lock_bytes(file->locks, F_OFD_SETLK, F_UNLCK, PAGE_LOCK, 1);
}

bool openreg_page_is_alive(const struct page_file *file, int slot) {
  return is_locked(file->locks, LIFE_LOCKS + slot, 1);
}

bool openreg_page_has_others(const struct page_file *file) {
  return is_locked(file->locks, LIFE_LOCKS, OPENREG_MAX_PROCESSES);
}

bool openreg_page_claim(struct page_file *file, int slot) {
  return lock_bytes(file->locks, F_OFD_SETLK, F_WRLCK, LIFE_LOCKS + slot, 1) == 0;
}

void openreg_page_unclaim(struct page_file *file, int slot) {
  lock_bytes(file->locks, F_OFD_SETLK, F_UNLCK, LIFE_LOCKS + slot, 1);
}

openreg_status openreg_page_remember(struct page_file *file, int slot) {
  if (file->remembered[slot] == 0 &&
      lock_bytes(file->locks, F_OFD_SETLK, F_RDLCK, MEMORY_LOCKS + slot, 1) != 0)
    return fail_system(file->path, "keeping the record of another process");
  file->remembered[slot]++;
  return OPENREG_OK;
}

void openreg_page_forget(struct page_file *file, int slot) {
  if (--file->remembered[slot] == 0)
    lock_bytes(file->locks, F_OFD_SETLK, F_UNLCK, MEMORY_LOCKS + slot, 1);
}

bool openreg_page_is_remembered(const struct page_file *file, int slot) {
  return file->remembered[slot] > 0 || is_locked(file->locks, MEMORY_LOCKS + slot, 1);
}

/* ---- what a sound page is -------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static openreg_status refuse(const char *path,
                                                                   const char *format, ...) {
  char what[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  return openreg_fail(OPENREG_INVALID_CONFIGURATION,
                      "openreg: %s cannot be used as the control page of a group of processes: %s; "
                      "remove it, or choose another OPENREG_GROUP",
                      path, what);
}

static openreg_status check_file(const char *path, const struct stat *status) {
  if (!S_ISREG(status->st_mode))
    return refuse(path, "it is not a regular file");
  if (status->st_uid != geteuid())
    return refuse(path, "it belongs to user %u, not to %u", status->st_uid, geteuid());
  if ((status->st_mode & 077) != 0)
    return refuse(path, "other users may use it (mode %03o, not 600)", status->st_mode & 0777u);
  if (status->st_size != sizeof(struct page))
    return refuse(path, "it has %lld bytes, not %zu", (long long)status->st_size,
                  sizeof(struct page));
  return OPENREG_OK;
}

static bool is_terminated(const char *text, size_t text_bytes) {
  return memchr(text, '\0', text_bytes) != NULL;
}

static openreg_status check_device(const char *path, const struct page_device *device, int index) {
  if (device->capacity_bytes == 0 || device->capacity_bytes % OPENREG_GRANULE_BYTES != 0)
    return refuse(path, "device %d in it has %llu bytes", index,
                  (unsigned long long)device->capacity_bytes);
  if (device->numa_node < -1 || device->numa_node > INT32_MAX)
    return refuse(path, "device %d in it is on NUMA node %lld", index,
                  (long long)device->numa_node);
  if (!is_terminated(device->profile, sizeof device->profile) ||
      !is_terminated(device->name, sizeof device->name) ||
      !is_terminated(device->cpuset, sizeof device->cpuset))
    return refuse(path, "a name of device %d in it has no end", index);
  return OPENREG_OK;
}

static openreg_status check_contents(const char *path, const struct page *page) {
  const struct page_header *header = &page->header;
  if (memcmp(header->magic, magic, sizeof magic) != 0)
    return refuse(path, "it does not begin with '%s'", magic);
  if (header->version != OPENREG_PAGE_VERSION || header->page_bytes != sizeof *page)
    return refuse(path, "it is of version %u with %u bytes, not of version %d with %zu",
                  header->version, header->page_bytes, OPENREG_PAGE_VERSION, sizeof *page);
  if (header->device_count < 1 || header->device_count > OPENREG_MAX_DEVICES)
    return refuse(path, "it has %llu devices, not 1 to %d",
                  (unsigned long long)header->device_count, OPENREG_MAX_DEVICES);
  if (header->identity == 0 || atomic_load(&page->used_slots) > OPENREG_MAX_PROCESSES)
    return refuse(path, "its counts are out of range");
  openreg_status status = OPENREG_OK;
  for (int i = 0; status == OPENREG_OK && i < (int)header->device_count; i++)
    status = check_device(path, &header->devices[i], i);
  return status;
}

/* ---- opening --------------------------------------------------------------------------------- */

void openreg_page_prefix(char prefix[OPENREG_PAGE_PATH_BYTES]) {
  snprintf(prefix, OPENREG_PAGE_PATH_BYTES, "openreg-%u-", geteuid());
}

static void name_page(const char *group, char path[OPENREG_PAGE_PATH_BYTES]) {
  char prefix[OPENREG_PAGE_PATH_BYTES];
  openreg_page_prefix(prefix);
  int length = snprintf(path, OPENREG_PAGE_PATH_BYTES, OPENREG_PAGE_FOLDER "/%s", prefix);
  snprintf(path + length, OPENREG_PAGE_PATH_BYTES - (size_t)length, "%s", group);
}

static openreg_status open_file(const char *path, int *file) {
  *file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (*file >= 0)
    return OPENREG_OK;
  if (errno == ENOENT)
    return OPENREG_NOT_READY;
  if (errno == ELOOP)
    return refuse(path, "it is a symbolic link");
  if (errno == EISDIR || errno == ENXIO)
    return refuse(path, "it is not a regular file");
  if (errno == EACCES)
    return refuse(path, "this user may not open it");
  return fail_system(path, "opening the control page");
}

/* Maps the file through a description of its own, which the mapping keeps. */
static openreg_status map_page(struct page_file *file) {
  char again[64];
  snprintf(again, sizeof again, "/proc/self/fd/%d", file->locks);
  int mapped = open(again, O_RDWR | O_CLOEXEC);
  if (mapped < 0)
    return fail_system(file->path, "opening the control page through /proc");
  void *page = mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, mapped, 0);
  int error = errno;
  close(mapped);
  errno = error;
  if (page == MAP_FAILED)
    return fail_system(file->path, "mapping the control page");
  file->page = page;
  if (madvise(page, sizeof(struct page), MADV_DONTFORK) != 0)
    return fail_system(file->path, "keeping the control page out of forked processes");
  return OPENREG_OK;
}

/* Whether the page still has its name. Nobody changes that while this process has it locked. */
static bool has_name(const struct page_file *file) {
  struct stat named, opened;
  return lstat(file->path, &named) == 0 && fstat(file->locks, &opened) == 0 &&
         named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
}

static openreg_status lock_within_a_second(struct page_file *file) {
  const struct timespec pause = {.tv_nsec = 1000000};
  for (int i = 0; i < 1000; i++) {
    if (lock_bytes(file->locks, F_OFD_SETLK, F_WRLCK, PAGE_LOCK, 1) == 0)
      return OPENREG_OK;
    if (errno != EAGAIN && errno != EACCES)
      return fail_system(file->path, "locking the control page");
    nanosleep(&pause, NULL);
  }
  return openreg_fail(
      OPENREG_INVALID_CONFIGURATION,
      "openreg: %s: a process has had this control page locked for a second: is one "
      "of its group stopped?",
      file->path);
}

/* *gone: the page was retired while it was being opened. */
static openreg_status open_once(struct page_file *file, enum page_patience patience, bool *gone) {
  struct stat status;
  openreg_status result = open_file(file->path, &file->locks);
  if (result != OPENREG_OK)
    return result;
  if (fstat(file->locks, &status) != 0)
    return fail_system(file->path, "looking at the control page");
  result = check_file(file->path, &status);
  if (result == OPENREG_OK)
    result = patience == PAGE_WAIT ? openreg_page_lock(file) : lock_within_a_second(file);
  if (result == OPENREG_OK)
    result = map_page(file);
  if (result == OPENREG_OK)
    result = check_contents(file->path, file->page);
  *gone = result == OPENREG_OK && !has_name(file);
  return result;
}

openreg_status openreg_page_open(const char *group, enum page_patience patience,
                                 struct page_file *file) {
  for (int i = 0; i < PATIENCE; i++) {
    bool gone = false;
    *file = (struct page_file){.locks = -1, .own = -1};
    name_page(group, file->path);
    openreg_status status = open_once(file, patience, &gone);
    if (status == OPENREG_OK && !gone)
      return OPENREG_OK;
    openreg_page_close(file);
    if (status != OPENREG_OK)
      return status;
  }
  return openreg_fail(OPENREG_SYSTEM,
                      "openreg: %s: the control page was replaced %d times while it was opened",
                      file->path, PATIENCE);
}

void openreg_page_close(struct page_file *file) {
  if (file->page != NULL)
    munmap(file->page, sizeof *file->page);
  if (file->locks >= 0) {
    /* Not by closing alone: a child that is being forked may have the description too. */
    lock_bytes(file->locks, F_OFD_SETLK, F_UNLCK, 0, 0);
    close(file->locks);
  }
  file->page = NULL;
  file->locks = -1;
}

/* ---- making and retiring --------------------------------------------------------------------- */

/* All its pages are there from the start: no process can run out of them later, which would be a
 * death by SIGBUS. The mode does not depend on the process's umask. */
static openreg_status fill_file(int file, const char *path, const struct page_header *header) {
  if (fchmod(file, 0600) != 0)
    return fail_system(path, "setting the control page's mode");
  int error;
  do
    error = posix_fallocate(file, 0, sizeof(struct page));
  while (error == EINTR);
  if (error != 0)
    return openreg_fail(OPENREG_SYSTEM, "openreg: %s: %zu bytes for the control page: %s", path,
                        sizeof(struct page), strerror(error));
  if (pwrite(file, header, sizeof *header, 0) != (ssize_t)sizeof *header)
    return fail_system(path, "writing the control page");
  return OPENREG_OK;
}

static openreg_status give_name(int file, const char *path) {
  char nameless[64];
  snprintf(nameless, sizeof nameless, "/proc/self/fd/%d", file);
  if (linkat(AT_FDCWD, nameless, AT_FDCWD, path, AT_SYMLINK_FOLLOW) != 0 && errno != EEXIST)
    return fail_system(path, "naming the control page");
  return OPENREG_OK;
}

openreg_status openreg_page_create(const char *group, const struct page_header *header) {
  struct page_header complete = *header;
  memcpy(complete.magic, magic, sizeof magic);
  complete.version = OPENREG_PAGE_VERSION;
  complete.page_bytes = sizeof(struct page);
  char path[OPENREG_PAGE_PATH_BYTES];
  name_page(group, path);
  int file = open(OPENREG_PAGE_FOLDER, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0)
    return fail_system(path,
                       "making the control page, a file without a name in " OPENREG_PAGE_FOLDER);
  openreg_status status = fill_file(file, path, &complete);
  if (status == OPENREG_OK)
    status = give_name(file, path);
  close(file);
  return status;
}

void openreg_page_retire(struct page_file *file) {
  if (has_name(file))
    unlink(file->path);
}

/* ---- what others see ------------------------------------------------------------------------- */

void openreg_page_set_identity(struct page_file *file, int slot, uint64_t identity) {
  atomic_store(&file->page->processes[slot].identity, identity);
}

void openreg_page_set_used_slots(struct page_file *file, int used_slots) {
  atomic_store(&file->page->used_slots, (uint64_t)used_slots);
}

void openreg_page_set_bytes(struct page_file *file, int device, int slot, uint64_t bytes) {
  atomic_store(&file->page->bytes[device][slot], bytes);
}
