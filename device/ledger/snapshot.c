/* snapshot.c: snapshots of all groups of this user.
 *
 * Opens each control file as a joining process would, reads it under its lock, and closes it.
 * Removes files that no process uses any more. Forks are blocked meanwhile, because a child would
 * keep the lock.
 */
#define _GNU_SOURCE /* scandir */
#include "device/ledger/control.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/forks.h"
#include "base/status.h"

/* ---- one control file ------------------------------------------------------------------------ */

static uint64_t smaller(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

/* Another version of this library may have written the file, so its profile may be unknown here. */
static void add_profile(openreg_ledger_device *device) {
  openreg_profile profile = {0};
  openreg_profile_find(device->profile, strlen(device->profile), &profile);
  device->multiprocessor_count = profile.multiprocessor_count;
  device->major = profile.major;
  device->minor = profile.minor;
}

static void snapshot_devices(const struct control_file *file, openreg_ledger_snapshot *snapshot) {
  for (int i = 0; i < snapshot->device_count; i++) {
    const struct control_device *source = &file->header.devices[i];
    openreg_ledger_device *device = &snapshot->devices[i];
    openreg_control_copy_text(device->profile, sizeof device->profile, source->profile,
                              sizeof source->profile);
    openreg_control_copy_text(device->name, sizeof device->name, source->name, sizeof source->name);
    openreg_control_copy_text(device->cpuset, sizeof device->cpuset, source->cpuset,
                              sizeof source->cpuset);
    add_profile(device);
    openreg_device_make_uuid(snapshot->group, i, device->uuid);
    device->busy_percent = -1;
    device->numa_node = (int)source->numa_node;
    device->total_bytes = source->capacity_bytes;
    device->used_bytes = smaller(openreg_control_sum(file, i), device->total_bytes);
  }
}

static void snapshot_process(const struct control_file *file, int slot,
                             const openreg_ledger_snapshot *snapshot,
                             openreg_ledger_process *process) {
  const struct control_record *source = &file->control->processes[slot];
  process->pid = atomic_load(&source->pid);
  process->has_exited = atomic_load(&source->has_exited) != 0;
  process->started_ns = atomic_load(&source->started_ns);
  openreg_control_copy_text(process->name, sizeof process->name, source->name, sizeof source->name);
  for (int i = 0; i < snapshot->device_count; i++)
    process->bytes[i] =
        smaller(atomic_load(&file->control->bytes[i][slot]), snapshot->devices[i].total_bytes);
}

static int compare_starts(const void *a, const void *b) {
  int64_t first = ((const openreg_ledger_process *)a)->started_ns;
  int64_t second = ((const openreg_ledger_process *)b)->started_ns;
  return (first > second) - (first < second);
}

static void add_utilization(struct control_file *file, openreg_ledger_snapshot *snapshot) {
  int busy_percent[OPENREG_MAX_DEVICES];
  openreg_control_sample_utilization(file, busy_percent);
  for (int i = 0; i < snapshot->device_count; i++)
    snapshot->devices[i].busy_percent = busy_percent[i];
}

/* Errors: OUT_OF_MEMORY. */
static openreg_status snapshot_group(const struct control_file *file, const char *group,
                                     openreg_ledger_snapshot *snapshot) {
  int used = openreg_control_used_slots(file);
  strcpy(snapshot->group, group);
  snapshot->device_count = (int)file->header.device_count;
  snapshot->processes = calloc((size_t)used + 1, sizeof *snapshot->processes);
  if (snapshot->processes == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY,
                        "openreg: no host memory for a snapshot of %d processes", used);
  snapshot_devices(file, snapshot);
  for (int i = 0; i < used; i++) {
    if (atomic_load(&file->control->processes[i].identity) != 0)
      snapshot_process(file, i, snapshot, &snapshot->processes[snapshot->process_count++]);
  }
  qsort(snapshot->processes, (size_t)snapshot->process_count, sizeof *snapshot->processes,
        compare_starts);
  return OPENREG_OK;
}

/* Returns NOT_READY if no process is in the group. Errors: as openreg_control_open;
 * OUT_OF_MEMORY. */
static openreg_status open_group(const char *group, bool with_utilization,
                                 openreg_ledger_snapshot *snapshot) {
  struct control_file file;
  openreg_status status = openreg_control_open(group, CONTROL_WAIT_ONE_SECOND, &file);
  if (status != OPENREG_OK)
    return status;
  if (openreg_control_has_others(&file)) {
    openreg_control_reclaim(&file);
    status = snapshot_group(&file, group, snapshot);
    if (status == OPENREG_OK && with_utilization)
      add_utilization(&file, snapshot);
  } else {
    openreg_control_retire(&file);
    status = OPENREG_NOT_READY;
  }
  openreg_control_close(&file);
  return status;
}

/* ---- all control files ----------------------------------------------------------------------- */

static int is_control_file(const struct dirent *entry) {
  return entry->d_name[0] != '.' && strlen(entry->d_name) < OPENREG_GROUP_NAME_BYTES;
}

static int compare_names(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

/* Appends the last error, so that messages about several control files are kept. */
static void note_problem(char messages[OPENREG_MESSAGE_BYTES]) {
  size_t used = strlen(messages);
  snprintf(messages + used, OPENREG_MESSAGE_BYTES - used, "%s%s", used > 0 ? "\n" : "",
           openreg_last_error());
}

static openreg_status add_groups(struct dirent **entries, int entry_count,
                                 openreg_ledger_snapshot *snapshots, int *count,
                                 char messages[OPENREG_MESSAGE_BYTES]) {
  openreg_status status = OPENREG_OK;
  for (int i = 0; status == OPENREG_OK && i < entry_count; i++) {
    status = open_group(entries[i]->d_name, true, &snapshots[*count]);
    if (status == OPENREG_OK)
      (*count)++;
    if (status == OPENREG_INVALID_CONFIGURATION)
      note_problem(messages);
    if (status == OPENREG_INVALID_CONFIGURATION || status == OPENREG_NOT_READY)
      status = OPENREG_OK;
  }
  return status;
}

/* A user who never had a group has no folder. A folder that cannot be used is reported as a
 * problem. */
static openreg_status read_folder(struct dirent ***entries, int *count,
                                  char messages[OPENREG_MESSAGE_BYTES]) {
  char folder[OPENREG_CONTROL_PATH_BYTES];
  openreg_control_folder(folder);
  *entries = NULL;
  *count = 0;
  openreg_status status = openreg_control_check_folder();
  if (status == OPENREG_INVALID_CONFIGURATION)
    note_problem(messages);
  if (status == OPENREG_INVALID_CONFIGURATION || status == OPENREG_NOT_READY)
    return OPENREG_OK;
  if (status != OPENREG_OK)
    return status;
  int found = scandir(folder, entries, is_control_file, compare_names);
  if (found < 0)
    return openreg_fail(OPENREG_SYSTEM, "openreg: cannot read %s: %s", folder, strerror(errno));
  *count = found;
  return OPENREG_OK;
}

static openreg_status list(openreg_ledger_snapshot **snapshots, int *count,
                           char messages[OPENREG_MESSAGE_BYTES]) {
  struct dirent **entries;
  int entry_count;
  openreg_status status = read_folder(&entries, &entry_count, messages);
  if (status != OPENREG_OK)
    return status;
  openreg_ledger_snapshot *made = calloc((size_t)entry_count + 1, sizeof *made);
  int made_count = 0;
  status = made != NULL
               ? add_groups(entries, entry_count, made, &made_count, messages)
               : openreg_fail(OPENREG_OUT_OF_MEMORY,
                              "openreg: no host memory for snapshots of %d groups", entry_count);
  for (int i = 0; i < entry_count; i++)
    free(entries[i]);
  free(entries);
  if (status != OPENREG_OK) {
    openreg_ledger_free_snapshots(made, made_count);
    return status;
  }
  *snapshots = made;
  *count = made_count;
  return OPENREG_OK;
}

openreg_status openreg_ledger_list(openreg_ledger_snapshot **snapshots, int *count,
                                   const char **problem) {
  openreg_status status = openreg_forks_block();
  if (status != OPENREG_OK)
    return status;
  char messages[OPENREG_MESSAGE_BYTES] = "";
  status = list(snapshots, count, messages);
  openreg_forks_unblock();
  if (status != OPENREG_OK)
    return status;
  *problem = NULL;
  if (messages[0]) {
    openreg_fail(OPENREG_INVALID_CONFIGURATION, "%s", messages);
    *problem = openreg_last_error();
  }
  return OPENREG_OK;
}

/* ---- this process's group -------------------------------------------------------------------- */

static openreg_status find(const char *group, bool with_utilization,
                           openreg_ledger_snapshot **snapshot) {
  openreg_ledger_snapshot *made = calloc(1, sizeof *made);
  if (made == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for a snapshot");
  openreg_status status = open_group(group, with_utilization, made);
  if (status == OPENREG_OK)
    *snapshot = made;
  else
    openreg_ledger_free_snapshots(made, 1);
  return status;
}

openreg_status openreg_ledger_find_own(bool with_utilization, openreg_ledger_snapshot **snapshot) {
  const openreg_config *config;
  char group[OPENREG_GROUP_NAME_BYTES];
  openreg_status status = openreg_config_get(&config);
  if (status == OPENREG_OK)
    status = openreg_forks_block();
  if (status != OPENREG_OK)
    return status;
  openreg_config_name_group(config, group);
  status = find(group, with_utilization, snapshot);
  openreg_forks_unblock();
  return status;
}

void openreg_ledger_free_snapshots(openreg_ledger_snapshot *snapshots, int count) {
  for (int i = 0; snapshots != NULL && i < count; i++)
    free(snapshots[i].processes);
  free(snapshots);
}
