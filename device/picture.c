/* picture.c: all groups of this user, as they are seen from outside.
 *
 * Each page is opened as by a process that joins, looked at under its lock, and closed again; one
 * that nobody is in any more is removed. No fork happens meanwhile: a child would keep the lock.
 */
#define _GNU_SOURCE /* scandir */
#include "page.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one page -------------------------------------------------------------------------------- */

static uint64_t smaller(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

static void picture_devices(const struct page_file *file, openreg_ledger_picture *picture) {
  for (int i = 0; i < picture->device_count; i++) {
    const struct page_device *source = &file->page->header.devices[i];
    openreg_ledger_device *device = &picture->devices[i];
    openreg_page_copy_text(device->profile, sizeof device->profile, source->profile,
                           sizeof source->profile);
    openreg_page_copy_text(device->name, sizeof device->name, source->name, sizeof source->name);
    openreg_page_copy_text(device->cpuset, sizeof device->cpuset, source->cpuset,
                           sizeof source->cpuset);
    device->numa_node = (int)source->numa_node;
    device->total_bytes = source->capacity_bytes;
    device->used_bytes = smaller(openreg_page_sum(file, i), device->total_bytes);
  }
}

static void picture_process(const struct page_file *file, int slot,
                            const openreg_ledger_picture *picture,
                            openreg_ledger_process *process) {
  const struct page_process *source = &file->page->processes[slot];
  process->pid = atomic_load(&source->pid);
  process->has_exited = atomic_load(&source->has_exited) != 0;
  process->started_ns = atomic_load(&source->started_ns);
  openreg_page_copy_text(process->name, sizeof process->name, source->name, sizeof source->name);
  for (int i = 0; i < picture->device_count; i++)
    process->bytes[i] =
        smaller(atomic_load(&file->page->bytes[i][slot]), picture->devices[i].total_bytes);
}

static int compare_starts(const void *a, const void *b) {
  int64_t first = ((const openreg_ledger_process *)a)->started_ns;
  int64_t second = ((const openreg_ledger_process *)b)->started_ns;
  return (first > second) - (first < second);
}

/* Errors: OUT_OF_MEMORY. */
static openreg_status picture_page(const struct page_file *file, openreg_ledger_picture *picture) {
  int used = openreg_page_used_slots(file);
  picture->device_count = (int)file->page->header.device_count;
  picture->processes = calloc((size_t)used + 1, sizeof *picture->processes);
  if (picture->processes == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no memory for a picture of %d processes",
                        used);
  picture_devices(file, picture);
  for (int i = 0; i < used; i++) {
    if (atomic_load(&file->page->processes[i].identity) != 0)
      picture_process(file, i, picture, &picture->processes[picture->process_count++]);
  }
  qsort(picture->processes, (size_t)picture->process_count, sizeof *picture->processes,
        compare_starts);
  return OPENREG_OK;
}

/* Adds the group's picture to `pictures` when somebody is in it. */
static openreg_status add_group(const char *group, openreg_ledger_picture *pictures, int *count) {
  struct page_file file;
  openreg_status status = openreg_page_open(group, PAGE_WAIT_A_SECOND, &file);
  if (status != OPENREG_OK)
    return status == OPENREG_NOT_READY ? OPENREG_OK : status;
  if (openreg_page_has_others(&file)) {
    openreg_page_reclaim(&file);
    status = picture_page(&file, &pictures[*count]);
    if (status == OPENREG_OK)
      strcpy(pictures[(*count)++].group, group);
  } else {
    openreg_page_retire(&file);
  }
  openreg_page_close(&file);
  return status;
}

/* ---- all pages ------------------------------------------------------------------------------- */

static int is_page(const struct dirent *entry) {
  char prefix[OPENREG_PAGE_PATH_BYTES];
  openreg_page_prefix(prefix);
  size_t length = strlen(prefix);
  return strncmp(entry->d_name, prefix, length) == 0 &&
         strlen(entry->d_name + length) < OPENREG_GROUP_NAME_BYTES;
}

static int compare_names(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

/* Sentences of several pages come one after the other. */
static void note_problem(char sentences[OPENREG_SENTENCE_BYTES]) {
  size_t used = strlen(sentences);
  snprintf(sentences + used, OPENREG_SENTENCE_BYTES - used, "%s%s", used > 0 ? "\n" : "",
           openreg_last_error());
}

static openreg_status add_groups(struct dirent **entries, int entry_count,
                                 openreg_ledger_picture *pictures, int *count,
                                 char sentences[OPENREG_SENTENCE_BYTES]) {
  char prefix[OPENREG_PAGE_PATH_BYTES];
  openreg_page_prefix(prefix);
  openreg_status status = OPENREG_OK;
  for (int i = 0; status == OPENREG_OK && i < entry_count; i++) {
    status = add_group(entries[i]->d_name + strlen(prefix), pictures, count);
    if (status == OPENREG_INVALID_CONFIGURATION) {
      note_problem(sentences);
      status = OPENREG_OK;
    }
  }
  return status;
}

static openreg_status list(openreg_ledger_picture **pictures, int *count,
                           char sentences[OPENREG_SENTENCE_BYTES]) {
  struct dirent **entries;
  int entry_count = scandir(OPENREG_PAGE_FOLDER, &entries, is_page, compare_names);
  if (entry_count < 0)
    return openreg_fail(OPENREG_SYSTEM, "openreg: reading " OPENREG_PAGE_FOLDER ": %s",
                        strerror(errno));
  openreg_ledger_picture *made = calloc((size_t)entry_count + 1, sizeof *made);
  int made_count = 0;
  openreg_status status =
      made != NULL ? add_groups(entries, entry_count, made, &made_count, sentences)
                   : openreg_fail(OPENREG_OUT_OF_MEMORY,
                                  "openreg: no memory for pictures of %d groups", entry_count);
  for (int i = 0; i < entry_count; i++)
    free(entries[i]);
  free(entries);
  if (status != OPENREG_OK) {
    openreg_ledger_free_pictures(made, made_count);
    return status;
  }
  *pictures = made;
  *count = made_count;
  return OPENREG_OK;
}

openreg_status openreg_ledger_list(openreg_ledger_picture **pictures, int *count,
                                   const char **problem) {
  openreg_status status = openreg_forks_hold();
  if (status != OPENREG_OK)
    return status;
  char sentences[OPENREG_SENTENCE_BYTES] = "";
  status = list(pictures, count, sentences);
  openreg_forks_release();
  if (status != OPENREG_OK)
    return status;
  *problem = NULL;
  if (sentences[0]) {
    openreg_fail(OPENREG_INVALID_CONFIGURATION, "%s", sentences);
    *problem = openreg_last_error();
  }
  return OPENREG_OK;
}

void openreg_ledger_free_pictures(openreg_ledger_picture *pictures, int count) {
  for (int i = 0; pictures != NULL && i < count; i++)
    free(pictures[i].processes);
  free(pictures);
}
