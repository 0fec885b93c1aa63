/* control.c: opens, creates, removes and locks control files. See control.h.
 */
#define _GNU_SOURCE /* open file description locks, O_TMPFILE */
#include "device/ledger/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/proc.h"

static const char magic[8] = "openreg";

enum {
  CONTROL_LOCK = 0,
  LIFE_LOCKS = 1,
  MEMORY_LOCKS = LIFE_LOCKS + OPENREG_MAX_PROCESSES,
  MAX_ATTEMPTS = 1000, /* how often opening retries while files are created and removed */
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

/* Whether another description holds a lock on any of the bytes. If the system cannot tell, assume
 * yes: nothing of a living process may be taken away. */
static bool is_locked(int file, int first, int count) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = first, .l_len = count};
  return fcntl(file, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

static openreg_status fail_system(const char *path, const char *what) {
  return openreg_fail(OPENREG_SYSTEM, "openreg: %s: %s: %s", path, what, strerror(errno));
}

static openreg_status fail_through_proc(const char *path, const char *what) {
  return openreg_fail(OPENREG_SYSTEM, "openreg: %s: %s: %s", path, what, openreg_proc_error(errno));
}

openreg_status openreg_control_lock(struct control_file *file) {
  if (lock_bytes(file->locks, F_OFD_SETLKW, F_WRLCK, CONTROL_LOCK, 1) != 0)
    return fail_system(file->path, "cannot lock the control file");
  return OPENREG_OK;
}

void openreg_control_unlock(struct control_file *file) {
  lock_bytes(file->locks, F_OFD_SETLK, F_UNLCK, CONTROL_LOCK, 1);
}

bool openreg_control_is_alive(const struct control_file *file, int slot) {
  return is_locked(file->locks, LIFE_LOCKS + slot, 1);
}

bool openreg_control_has_others(const struct control_file *file) {
  return is_locked(file->locks, LIFE_LOCKS, OPENREG_MAX_PROCESSES);
}

bool openreg_control_claim_slot(struct control_file *file, int slot) {
  return lock_bytes(file->locks, F_OFD_SETLK, F_WRLCK, LIFE_LOCKS + slot, 1) == 0;
}

void openreg_control_release_slot(struct control_file *file, int slot) {
  lock_bytes(file->locks, F_OFD_SETLK, F_UNLCK, LIFE_LOCKS + slot, 1);
}

openreg_status openreg_control_pin_record(struct control_file *file, int slot) {
  if (file->pin_counts[slot] == 0 &&
      lock_bytes(file->locks, F_OFD_SETLK, F_RDLCK, MEMORY_LOCKS + slot, 1) != 0)
    return fail_system(file->path, "cannot pin the record of another process");
  file->pin_counts[slot]++;
  return OPENREG_OK;
}

void openreg_control_unpin_record(struct control_file *file, int slot) {
  if (--file->pin_counts[slot] == 0)
    lock_bytes(file->locks, F_OFD_SETLK, F_UNLCK, MEMORY_LOCKS + slot, 1);
}

bool openreg_control_is_record_pinned(const struct control_file *file, int slot) {
  return file->pin_counts[slot] > 0 || is_locked(file->locks, MEMORY_LOCKS + slot, 1);
}

/* ---- checking control files ------------------------------------------------------------------ */

__attribute__((format(printf, 2, 3))) static openreg_status refuse(const char *path,
                                                                   const char *format, ...) {
  char what[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  return openreg_fail(OPENREG_INVALID_CONFIGURATION,
                      "openreg: %s cannot be used as the control file of a group of processes: %s; "
                      "remove it, or choose another OPENREG_GROUP",
                      path, what);
}

static openreg_status check_file(const char *path, const struct stat *status) {
  if (!S_ISREG(status->st_mode))
    return refuse(path, "it is not a regular file");
  if (status->st_uid != geteuid())
    return refuse(path, "it belongs to user %u, not to %u", status->st_uid, geteuid());
  if ((status->st_mode & 077) != 0)
    return refuse(path, "other users can access it (mode %03o, not 600)", status->st_mode & 0777u);
  if (status->st_size != sizeof(struct control))
    return refuse(path, "it has %lld bytes, not %zu", (long long)status->st_size,
                  sizeof(struct control));
  return OPENREG_OK;
}

static bool is_terminated(const char *text, size_t text_bytes) {
  return memchr(text, '\0', text_bytes) != NULL;
}

static openreg_status check_device(const char *path, const struct control_device *device,
                                   int index) {
  if (device->capacity_bytes == 0 || device->capacity_bytes % OPENREG_GRANULE_BYTES != 0)
    return refuse(path, "device %d has an invalid capacity of %llu bytes", index,
                  (unsigned long long)device->capacity_bytes);
  if (device->numa_node < -1 || device->numa_node > INT32_MAX)
    return refuse(path, "device %d has an invalid NUMA node, %lld", index,
                  (long long)device->numa_node);
  if (!is_terminated(device->profile, sizeof device->profile) ||
      !is_terminated(device->name, sizeof device->name) ||
      !is_terminated(device->cpuset, sizeof device->cpuset))
    return refuse(path, "a name of device %d is not terminated", index);
  return OPENREG_OK;
}

/* Copies the header and checks the copy, because other programs can change the file at any time. */
static openreg_status check_contents(struct control_file *file) {
  const char *path = file->path;
  const struct control *control = file->control;
  const struct control_header *header = &file->header;
  memcpy(&file->header, &control->header, sizeof file->header);
  if (memcmp(header->magic, magic, sizeof magic) != 0)
    return refuse(path, "it does not begin with '%s'", magic);
  if (header->version != OPENREG_CONTROL_VERSION || header->control_bytes != sizeof *control)
    return refuse(path, "it has version %u and %u bytes instead of version %d and %zu bytes",
                  header->version, header->control_bytes, OPENREG_CONTROL_VERSION, sizeof *control);
  if (header->device_count < 1 || header->device_count > OPENREG_MAX_DEVICES)
    return refuse(path, "it has %llu devices, not 1 to %d",
                  (unsigned long long)header->device_count, OPENREG_MAX_DEVICES);
  if (header->identity == 0 || atomic_load(&control->used_slots) > OPENREG_MAX_PROCESSES)
    return refuse(path, "its counts are out of range");
  openreg_status status = OPENREG_OK;
  for (int i = 0; status == OPENREG_OK && i < (int)header->device_count; i++)
    status = check_device(path, &header->devices[i], i);
  return status;
}

/* ---- opening --------------------------------------------------------------------------------- */

static void name_file(const char *group, char path[OPENREG_CONTROL_PATH_BYTES]) {
  openreg_control_folder(path);
  size_t length = strlen(path);
  snprintf(path + length, OPENREG_CONTROL_PATH_BYTES - length, "/%s", group);
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
    return refuse(path, "this user has no permission to open it");
  return fail_system(path, "cannot open the control file");
}

/* Maps the file through a separate description, which the mapping keeps alive. */
static openreg_status map_control(struct control_file *file) {
  int mapped = openreg_proc_reopen(file->locks);
  if (mapped < 0)
    return fail_through_proc(file->path, "cannot reopen the control file");
  void *control = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, mapped, 0);
  int error = errno;
  close(mapped);
  errno = error;
  if (control == MAP_FAILED)
    return fail_system(file->path, "cannot map the control file");
  file->control = control;
  if (madvise(control, sizeof(struct control), MADV_DONTFORK) != 0)
    return fail_system(file->path, "cannot exclude the control file from forked processes");
  return OPENREG_OK;
}

/* Whether the control file still has its name. The name does not change while this process holds
 * the file's lock. */
static bool has_name(const struct control_file *file) {
  struct stat named, opened;
  return lstat(file->path, &named) == 0 && fstat(file->locks, &opened) == 0 &&
         named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
}

static openreg_status lock_within_one_second(struct control_file *file) {
  const struct timespec pause = {.tv_nsec = 1000000};
  for (int i = 0; i < 1000; i++) {
    if (lock_bytes(file->locks, F_OFD_SETLK, F_WRLCK, CONTROL_LOCK, 1) == 0)
      return OPENREG_OK;
    if (errno != EAGAIN && errno != EACCES)
      return fail_system(file->path, "cannot lock the control file");
    nanosleep(&pause, NULL);
  }
  return openreg_fail(OPENREG_INVALID_CONFIGURATION,
                      "openreg: %s: another process has kept this control file locked for a "
                      "second; check whether a process of the group is stopped",
                      file->path);
}

/* Sets *retired if the file lost its name before this process had its lock. Such a file is not
 * mapped. */
static openreg_status open_once(struct control_file *file, enum control_timeout timeout,
                                bool *retired) {
  struct stat status;
  openreg_status result = open_file(file->path, &file->locks);
  if (result != OPENREG_OK)
    return result;
  if (fstat(file->locks, &status) != 0)
    return fail_system(file->path, "cannot examine the control file");
  result = check_file(file->path, &status);
  if (result == OPENREG_OK)
    result =
        timeout == CONTROL_WAIT_FOREVER ? openreg_control_lock(file) : lock_within_one_second(file);
  *retired = result == OPENREG_OK && !has_name(file);
  if (result != OPENREG_OK || *retired)
    return result;
  result = map_control(file);
  if (result == OPENREG_OK)
    result = check_contents(file);
  return result;
}

openreg_status openreg_control_open(const char *group, enum control_timeout timeout,
                                    struct control_file *file) {
  for (int i = 0; i < MAX_ATTEMPTS; i++) {
    bool retired = false;
    *file = (struct control_file){.locks = -1, .own_slot = -1};
    name_file(group, file->path);
    openreg_status status = openreg_control_check_folder();
    if (status == OPENREG_OK)
      status = open_once(file, timeout, &retired);
    if (status == OPENREG_OK && !retired)
      return OPENREG_OK;
    openreg_control_close(file);
    if (status != OPENREG_OK)
      return status;
  }
  return openreg_fail(
      OPENREG_SYSTEM,
      "openreg: %s: the control file was replaced %d times while this process opened it",
      file->path, MAX_ATTEMPTS);
}

void openreg_control_close(struct control_file *file) {
  if (file->control != NULL)
    munmap(file->control, sizeof *file->control);
  if (file->locks >= 0) {
    /* Unlock explicitly: a child that is being forked may also have the description, and would keep
     * the locks. */
    lock_bytes(file->locks, F_OFD_SETLK, F_UNLCK, 0, 0);
    close(file->locks);
  }
  file->control = NULL;
  file->locks = -1;
}

/* ---- creating and retiring ------------------------------------------------------------------- */

/* Allocates all pages at once. Running out of them later would kill a process with SIGBUS. The mode
 * does not depend on the process's umask. */
static openreg_status fill_file(int file, const char *path, const struct control_header *header) {
  if (fchmod(file, 0600) != 0)
    return fail_system(path, "cannot set the control file's mode");
  int error;
  do
    error = posix_fallocate(file, 0, sizeof(struct control));
  while (error == EINTR);
  if (error != 0)
    return openreg_fail(OPENREG_SYSTEM,
                        "openreg: %s: cannot allocate %zu bytes for the control file: %s", path,
                        sizeof(struct control), strerror(error));
  if (pwrite(file, header, sizeof *header, 0) != (ssize_t)sizeof *header)
    return fail_system(path, "cannot write the control file");
  return OPENREG_OK;
}

static openreg_status give_name(int file, const char *path) {
  char nameless[OPENREG_PROC_PATH_BYTES];
  openreg_proc_path(file, nameless);
  if (linkat(AT_FDCWD, nameless, AT_FDCWD, path, AT_SYMLINK_FOLLOW) != 0 && errno != EEXIST)
    return fail_through_proc(path, "cannot name the control file");
  return OPENREG_OK;
}

openreg_status openreg_control_create(const char *group, const struct control_header *header) {
  struct control_header complete = *header;
  memcpy(complete.magic, magic, sizeof magic);
  complete.version = OPENREG_CONTROL_VERSION;
  complete.control_bytes = sizeof(struct control);
  char folder[OPENREG_CONTROL_PATH_BYTES], path[OPENREG_CONTROL_PATH_BYTES];
  openreg_control_folder(folder);
  name_file(group, path);
  openreg_status status = openreg_control_make_folder();
  if (status != OPENREG_OK)
    return status;
  int file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0)
    return fail_system(path, "cannot create the control file");
  status = fill_file(file, path, &complete);
  if (status == OPENREG_OK)
    status = give_name(file, path);
  close(file);
  return status;
}

void openreg_control_retire(struct control_file *file) {
  if (has_name(file))
    unlink(file->path);
}

/* ---- changes that other processes see -------------------------------------------------------- */

void openreg_control_set_identity(struct control_file *file, int slot, uint64_t identity) {
  atomic_store(&file->control->processes[slot].identity, identity);
}

void openreg_control_set_used_slots(struct control_file *file, int used_slots) {
  atomic_store(&file->control->used_slots, (uint64_t)used_slots);
}

void openreg_control_set_bytes(struct control_file *file, int device, int slot, uint64_t bytes) {
  atomic_store(&file->control->bytes[device][slot], bytes);
}
