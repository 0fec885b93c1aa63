/* ledger.c: how much of each device this process uses, and the other processes of its group.
 *
 * The group's control file (control.h) has the numbers of all processes. This process also keeps
 * its own numbers here and only copies them there. So releases are checked against what was really
 * reserved, whatever the file says, and need no system call.
 *
 *     self.bytes[device] == control.bytes[group index][own slot]   whenever self.lock is free
 *     sum of control.bytes[group index] <= capacity                whenever the file is not locked
 *
 * The file has all devices of the group, and this process only those that it sees
 * (visible_devices.h).
 *
 * self.lock excludes other threads of this process, which the file's lock does not. Acquire
 * self.lock first. When the process ends it gives up its slot, but the file stays mapped and the
 * descriptor with the locks stays open, because other threads may still use them.
 */
#define _GNU_SOURCE /* getrandom */
#include "device/ledger/ledger.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "device/ledger/control.h"
#include "device/memory/arena.h"
#include "device/memory/fault.h"
#include "device/process/state.h"
#include "device/process/visible_devices.h"
#include "device/streams/busy_time.h"

static struct {
  pthread_mutex_t lock;
  _Atomic int joined; /* this process's id while it has a slot, else 0, also in a forked child */
  struct control_file file;
  int slot; /* same as file.own_slot; also valid after the slot was given up */
  uint64_t identity;
  int device_count;
  uint64_t capacity[OPENREG_MAX_DEVICES];
  uint64_t bytes[OPENREG_MAX_DEVICES];         /* including the context */
  uint64_t context_bytes[OPENREG_MAX_DEVICES]; /* 0: no context */
} self = {.lock = PTHREAD_MUTEX_INITIALIZER, .file = {.locks = -1, .own_slot = -1}};

/* ---- locking --------------------------------------------------------------------------------- */

/* On failure, no lock is held. */
static openreg_status lock_control(void) {
  pthread_mutex_lock(&self.lock);
  openreg_status status = OPENREG_OK;
  if (atomic_load(&self.joined) == 0)
    status = openreg_fail(OPENREG_NOT_PERMITTED,
                          "openreg: this process is exiting and can no longer use devices");
  else
    status = openreg_control_lock(&self.file);
  if (status != OPENREG_OK)
    pthread_mutex_unlock(&self.lock);
  return status;
}

static void unlock_control(void) {
  openreg_control_unlock(&self.file);
  pthread_mutex_unlock(&self.lock);
}

/* ---- joining --------------------------------------------------------------------------------- */

static int64_t real_time_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Never 0. If the kernel has no random numbers yet, the time still differs from earlier processes
 * in the slot. */
static uint64_t make_identity(void) {
  uint64_t identity = 0;
  if (getrandom(&identity, sizeof identity, GRND_NONBLOCK) != sizeof identity || identity == 0)
    identity = (uint64_t)real_time_ns();
  return identity;
}

static void describe(const openreg_config *config, const openreg_device_properties properties[],
                     struct control_header *header) {
  *header = (struct control_header){.identity = make_identity(),
                                    .device_count = (uint64_t)config->device_count};
  for (int i = 0; i < config->device_count; i++) {
    struct control_device *device = &header->devices[i];
    device->capacity_bytes = config->memory_bytes[i];
    device->numa_node = properties[i].numa_node;
    snprintf(device->profile, sizeof device->profile, "%s", config->profiles[i].key);
    snprintf(device->name, sizeof device->name, "%s", config->profiles[i].name);
    snprintf(device->cpuset, sizeof device->cpuset, "%s", properties[i].cpuset);
  }
}

static bool is_same_device(const struct control_device *a, const struct control_device *b) {
  return a->capacity_bytes == b->capacity_bytes && strcmp(a->profile, b->profile) == 0;
}

static bool are_same_devices(const struct control_header *a, const struct control_header *b) {
  bool same = a->device_count == b->device_count;
  for (int i = 0; same && i < (int)b->device_count; i++)
    same = is_same_device(&a->devices[i], &b->devices[i]);
  return same;
}

/* Writes "2 x h100 of 64 MiB, t4 of 32 MiB", truncated with "...". */
static void list_devices(const struct control_header *header, char *text, size_t text_bytes) {
  size_t used = 0;
  int count = (int)header->device_count;
  for (int i = 0, run = 1; i < count && used < text_bytes; i += run) {
    const struct control_device *device = &header->devices[i];
    char key[OPENREG_NAME_BYTES], times[16] = "";
    for (run = 1; i + run < count && is_same_device(device, &header->devices[i + run]); run++)
      ;
    openreg_control_copy_text(key, sizeof key, device->profile, sizeof device->profile);
    if (run > 1)
      snprintf(times, sizeof times, "%d x ", run);
    used += (size_t)snprintf(text + used, text_bytes - used, "%s%s%s of %" PRIu64 " MiB",
                             i > 0 ? ", " : "", times, key, device->capacity_bytes >> 20);
  }
  if (used >= text_bytes)
    memcpy(text + text_bytes - sizeof "...", "...", sizeof "...");
}

static openreg_status fail_different(const openreg_config *config,
                                     const struct control_header *theirs,
                                     const struct control_header *ours) {
  char their_devices[256], our_devices[256];
  list_devices(theirs, their_devices, sizeof their_devices);
  list_devices(ours, our_devices, sizeof our_devices);
  return openreg_fail(
      OPENREG_INVALID_CONFIGURATION,
      "openreg: OPENREG_GROUP=%s: running processes of this group have %s, but this process is "
      "configured for %s; use their configuration, or choose another OPENREG_GROUP",
      config->group, their_devices, our_devices);
}

/* Reads the process's command line, separated by spaces. */
static void read_command(char name[OPENREG_NAME_BYTES]) {
  char text[OPENREG_NAME_BYTES] = "";
  int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? 0 : read(file, text, sizeof text - 1);
  if (file >= 0)
    close(file);
  while (length > 0 && text[length - 1] == '\0')
    length--;
  for (ssize_t i = 0; i < length; i++)
    text[i] = text[i] == '\0' ? ' ' : text[i];
  openreg_control_copy_text(name, OPENREG_NAME_BYTES, text, sizeof text);
}

static void clear_slot(struct control_record *process) {
  for (int i = 0; i < (int)self.file.header.device_count; i++) {
    atomic_store(&process->files[i], -1);
    atomic_store(&process->inodes[i], 0);
    openreg_control_set_bytes(&self.file, i, self.file.own_slot, 0);
    atomic_store(&process->busy_counters[i], 0);
  }
}

static openreg_status fill_slot(struct control_record *process) {
  clear_slot(process);
  for (int i = 0; i < self.device_count; i++) {
    struct stat status;
    int file = openreg_arena_file(i), index = openreg_visible_group_index(i);
    if (fstat(file, &status) != 0)
      return openreg_fail(OPENREG_SYSTEM, "openreg: device %d: cannot examine its memory file: %s",
                          i, strerror(errno));
    atomic_store(&process->files[index], file);
    atomic_store(&process->inodes[index], status.st_ino);
    self.bytes[i] = 0;
  }
  read_command(process->name);
  atomic_store(&process->pid, (int32_t)getpid());
  atomic_store(&process->started_ns, real_time_ns());
  atomic_store(&process->has_exited, 0);
  return OPENREG_OK;
}

/* Claims a slot before filling it, so that the slot is free if this process dies meanwhile. */
static openreg_status enter(void) {
  struct control *control = self.file.control;
  openreg_control_reclaim(&self.file);
  int slot = 0;
  while (slot < OPENREG_MAX_PROCESSES && (atomic_load(&control->processes[slot].identity) != 0 ||
                                          !openreg_control_claim_slot(&self.file, slot)))
    slot++;
  if (slot == OPENREG_MAX_PROCESSES)
    return openreg_fail(OPENREG_OUT_OF_MEMORY,
                        "openreg: this group already has %d processes, the maximum; end some of "
                        "them, or choose another OPENREG_GROUP",
                        OPENREG_MAX_PROCESSES);
  self.file.own_slot = self.slot = slot;
  openreg_status status = fill_slot(&control->processes[slot]);
  if (status != OPENREG_OK)
    return status;
  if (slot >= openreg_control_used_slots(&self.file))
    openreg_control_set_used_slots(&self.file, slot + 1);
  self.identity = make_identity();
  openreg_control_set_identity(&self.file, slot, self.identity);
  openreg_busy_publish(control->processes[slot].busy_counters, &control->sampled_until_ns);
  atomic_store(&self.joined, (int)getpid());
  return OPENREG_OK;
}

/* Opens or creates the group's control file and leaves it locked. A file for other devices is
 * replaced if no process is in it. */
static openreg_status open_control(const openreg_config *config,
                                   const struct control_header *ours) {
  char group[OPENREG_GROUP_NAME_BYTES];
  openreg_config_name_group(config, group);
  for (;;) {
    openreg_status status = openreg_control_open(group, CONTROL_WAIT_FOREVER, &self.file);
    if (status == OPENREG_OK && are_same_devices(&self.file.header, ours))
      return OPENREG_OK;
    if (status == OPENREG_OK && openreg_control_has_others(&self.file)) {
      status = fail_different(config, &self.file.header, ours);
      openreg_control_close(&self.file);
    } else if (status == OPENREG_OK) {
      openreg_control_retire(&self.file);
      openreg_control_close(&self.file);
    } else if (status == OPENREG_NOT_READY) {
      status = openreg_control_create(group, ours);
    }
    if (status != OPENREG_OK)
      return status;
  }
}

openreg_status openreg_ledger_join(const openreg_config *config,
                                   const openreg_device_properties properties[]) {
  struct control_header header;
  describe(config, properties, &header);
  openreg_status status = openreg_device_count(&self.device_count);
  if (status == OPENREG_OK)
    status = open_control(config, &header);
  if (status != OPENREG_OK)
    return status;
  for (int i = 0; i < self.device_count; i++)
    self.capacity[i] = config->memory_bytes[openreg_visible_group_index(i)];
  status = enter();
  if (status == OPENREG_OK) {
    openreg_control_unlock(&self.file);
    openreg_fault_watch_file(self.file.control, sizeof(struct control), self.file.path);
    return OPENREG_OK;
  }
  if (!openreg_control_has_others(&self.file))
    openreg_control_retire(&self.file);
  openreg_control_close(&self.file);
  return status;
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* Runs after the atexit handlers, which may still release memory. */
__attribute__((destructor)) void openreg_leave_group(void) {
  if (atomic_load(&self.joined) != (int)getpid())
    return;
  pthread_mutex_lock(&self.lock);
  if (atomic_exchange(&self.joined, 0) != 0 && openreg_control_lock(&self.file) == OPENREG_OK) {
    int slot = self.file.own_slot;
    openreg_busy_publish(NULL, NULL);
    self.file.own_slot = -1;
    openreg_control_reclaim(&self.file);
    if (!openreg_control_has_others(&self.file))
      openreg_control_retire(&self.file);
    openreg_control_release_slot(&self.file, slot);
    openreg_control_unlock(&self.file);
  }
  pthread_mutex_unlock(&self.lock);
}

/* A thread that the child does not have may hold self.lock. */
void openreg_ledger_abandon(void) {
  openreg_busy_publish(NULL, NULL);
  atomic_store(&self.joined, 0);
  pthread_mutex_init(&self.lock, NULL);
  if (self.file.locks >= 0)
    close(self.file.locks);
  self.file.locks = -1;
  self.file.control = NULL;
}

/* ---- reserving and releasing ----------------------------------------------------------------- */

static uint64_t free_bytes_of(int device) {
  uint64_t used = openreg_control_sum(&self.file, openreg_visible_group_index(device));
  return used < self.capacity[device] ? self.capacity[device] - used : 0;
}

static void set_own(int device, uint64_t bytes) {
  self.bytes[device] = bytes;
  openreg_control_set_bytes(&self.file, openreg_visible_group_index(device), self.file.own_slot,
                            bytes);
}

/* Reserves `bytes` if they fit. Returns how much was free before. */
static bool reserve_locked(int device, uint64_t bytes, uint64_t *free_bytes) {
  *free_bytes = free_bytes_of(device);
  if (bytes > *free_bytes) {
    openreg_control_reclaim(&self.file);
    *free_bytes = free_bytes_of(device);
  }
  if (bytes > *free_bytes)
    return false;
  set_own(device, self.bytes[device] + bytes);
  return true;
}

openreg_status openreg_ledger_reserve_context(int device, const openreg_profile *profile) {
  openreg_status status = lock_control();
  if (status != OPENREG_OK)
    return status;
  uint64_t free_bytes, bytes = profile->context_bytes;
  bool reserved = self.context_bytes[device] != 0 || reserve_locked(device, bytes, &free_bytes);
  if (reserved)
    self.context_bytes[device] = bytes;
  unlock_control();
  if (!reserved)
    return openreg_fail(
        OPENREG_OUT_OF_MEMORY,
        "openreg: device %d is out of memory: with OPENREG_GPU_OVERHEAD=1 each process needs a "
        "context of %" PRIu64 " MiB on a device like %s, but only %" PRIu64 " of %" PRIu64
        " MiB are free",
        device, bytes >> 20, profile->name, free_bytes >> 20, self.capacity[device] >> 20);
  return OPENREG_OK;
}

openreg_status openreg_ledger_reserve(int device, uint64_t bytes) {
  openreg_status status = openreg_require_context(device);
  if (status == OPENREG_OK)
    status = lock_control();
  if (status != OPENREG_OK)
    return status;
  uint64_t free_bytes;
  bool reserved = reserve_locked(device, bytes, &free_bytes);
  unlock_control();
  if (!reserved)
    return openreg_fail(OPENREG_OUT_OF_MEMORY,
                        "openreg: device %d is out of memory: %" PRIu64
                        " bytes were requested, but only %" PRIu64 " of %" PRIu64 " are free",
                        device, bytes, free_bytes, self.capacity[device]);
  return OPENREG_OK;
}

void openreg_ledger_release(int device, uint64_t bytes) {
  assert(device >= 0 && device < OPENREG_MAX_DEVICES);
  pthread_mutex_lock(&self.lock);
  if (atomic_load(&self.joined) != 0) {
    assert(bytes <= self.bytes[device] - self.context_bytes[device]);
    set_own(device, self.bytes[device] - bytes);
  }
  pthread_mutex_unlock(&self.lock);
}

openreg_status openreg_ledger_query(int device, uint64_t *free_bytes, uint64_t *total_bytes) {
  openreg_status status = openreg_require_context(device);
  if (status == OPENREG_OK)
    status = lock_control();
  if (status != OPENREG_OK)
    return status;
  openreg_control_reclaim(&self.file);
  *free_bytes = free_bytes_of(device);
  *total_bytes = self.capacity[device];
  unlock_control();
  return OPENREG_OK;
}

/* ---- other processes ------------------------------------------------------------------------- */

openreg_peer openreg_ledger_self(void) {
  assert(self.file.control != NULL);
  return (openreg_peer){
      .group = self.file.header.identity, .identity = self.identity, .slot = (uint32_t)self.slot};
}

openreg_peer openreg_ledger_peer_at(uint32_t slot) {
  struct control *control = self.file.control;
  assert(control != NULL && slot < OPENREG_MAX_PROCESSES);
  return (openreg_peer){.group = self.file.header.identity,
                        .identity = atomic_load(&control->processes[slot].identity),
                        .slot = slot};
}

/* The record of a process, alive or dead; NULL if it is gone. */
static struct control_record *record_of(openreg_peer peer) {
  struct control *control = self.file.control;
  if (control == NULL || peer.group != self.file.header.identity || peer.identity == 0 ||
      peer.slot >= OPENREG_MAX_PROCESSES ||
      atomic_load(&control->processes[peer.slot].identity) != peer.identity)
    return NULL;
  return &control->processes[peer.slot];
}

/* Does not take the control file's lock. A slot gets a new process only after its identity was
 * cleared. So if the identity has not changed, the life lock that was seen belongs to this peer. */
bool openreg_ledger_is_alive(openreg_peer peer) {
  if (record_of(peer) == NULL)
    return false;
  bool alive = (int)peer.slot == self.slot || openreg_control_is_alive(&self.file, (int)peer.slot);
  return alive && record_of(peer) != NULL;
}

bool openreg_ledger_find_peer(openreg_peer peer, int device, openreg_peer_location *location) {
  if (device < 0 || device >= self.device_count || lock_control() != OPENREG_OK)
    return false;
  int index = openreg_visible_group_index(device);
  struct control_record *process = openreg_ledger_is_alive(peer) ? record_of(peer) : NULL;
  if (process != NULL)
    *location = (openreg_peer_location){.pid = atomic_load(&process->pid),
                                        .file = atomic_load(&process->files[index]),
                                        .inode = atomic_load(&process->inodes[index])};
  unlock_control();
  return process != NULL && location->pid > 0 && location->file >= 0;
}

openreg_status openreg_ledger_pin_record(openreg_peer peer) {
  openreg_status status = lock_control();
  if (status != OPENREG_OK)
    return status;
  if (record_of(peer) != NULL)
    status = openreg_control_pin_record(&self.file, (int)peer.slot);
  else
    status = openreg_fail(OPENREG_INVALID_ARGUMENT,
                          "openreg: the process has ended or belongs to another group");
  unlock_control();
  return status;
}

/* If the control file cannot be locked, the next process that reclaims frees the record. */
void openreg_ledger_unpin_record(openreg_peer peer) {
  assert(peer.slot < OPENREG_MAX_PROCESSES);
  pthread_mutex_lock(&self.lock);
  if (atomic_load(&self.joined) != 0) {
    assert(self.file.pin_counts[peer.slot] > 0);
    openreg_control_unpin_record(&self.file, (int)peer.slot);
    if (openreg_control_lock(&self.file) == OPENREG_OK) {
      openreg_control_reclaim(&self.file);
      openreg_control_unlock(&self.file);
    }
  }
  pthread_mutex_unlock(&self.lock);
}

openreg_status openreg_ledger_set_orphaned_bytes(openreg_peer peer, int device, uint64_t bytes) {
  assert(device >= 0 && device < OPENREG_MAX_DEVICES);
  assert((int)peer.slot != self.slot);
  openreg_status status = lock_control();
  if (status != OPENREG_OK)
    return status;
  if (record_of(peer) != NULL)
    openreg_control_set_bytes(&self.file, openreg_visible_group_index(device), (int)peer.slot,
                              bytes);
  unlock_control();
  return OPENREG_OK;
}
