/* Malicious exporters: wrong memory files, and tables that change at any time. Whatever they write
 * must not crash a process that opens their handles.
 */
#define _GNU_SOURCE
#include "device/ipc/handle.h"
#include "device/ipc/imports.h"
#include "refusals.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Replaces the location of a peer's file in the ledger. */
bool __real_openreg_ledger_find_peer(openreg_peer peer, int device, openreg_peer_location *file);
static openreg_peer_location lie;

bool __wrap_openreg_ledger_find_peer(openreg_peer peer, int device, openreg_peer_location *file) {
  bool found = __real_openreg_ledger_find_peer(peer, device, file);
  if (lie.inode != 0) {
    file->file = lie.file;
    file->inode = lie.inode;
  }
  return found;
}

/* ---- wrong files ----------------------------------------------------------------------------- */

enum { NOT_SEALED, TOO_SHORT, TOO_LONG, OF_A_STRANGER, A_PIPE, A_FOLDER, NO_FILE, WRONG_FILES };

static int make_wrong_file(int which) {
  size_t bytes = arena_bytes() + OPENREG_EXPORTS_BYTES;
  int ends[2];
  if (which == A_PIPE)
    return pipe(ends) == 0 ? ends[0] : -1;
  if (which == A_FOLDER)
    return open("/", O_RDONLY | O_DIRECTORY);
  int file = memfd_create("wrong", MFD_ALLOW_SEALING);
  bytes += which == TOO_LONG ? PAGE : 0;
  bytes -= which == TOO_SHORT ? PAGE : 0;
  REQUIRE(ftruncate(file, (off_t)bytes) == 0);
  if (which != NOT_SEALED)
    REQUIRE(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  if (which == OF_A_STRANGER && geteuid() == 0)
    REQUIRE(fchown(file, 12345, 12345) == 0);
  return file;
}

static void offer_wrong_files(void) {
  export_memory(base_of(0), PAGE, &board->handles[0]);
  for (int i = 0; i < NO_FILE; i++) {
    struct stat status;
    int file = make_wrong_file(i);
    REQUIRE(file >= 0 && fstat(file, &status) == 0);
    board->numbers[i] = (uint64_t)file << 48 | status.st_ino;
  }
  report(0);
  await_cue();
}

CHILD_TEST(wrong_files_are_rejected) {
  static const char *const why[WRONG_FILES] = {
      [NOT_SEALED] = "is not sealed",
      [TOO_SHORT] = "does not have the size of this device",
      [TOO_LONG] = "does not have the size of this device",
      [OF_A_STRANGER] = "belongs to another user",
      [A_PIPE] = "open file is not the expected memory file",
      [A_FOLDER] = "cannot open the memory file of process",
  };
  helper exporter = board_with(offer_wrong_files);
  REQUIRE_OK(openreg_initialize());
  int descriptors = count_descriptors(), mappings = count_mappings();
  for (int i = 0; i < NO_FILE; i++) {
    if (i == OF_A_STRANGER && geteuid() != 0)
      continue; /* only root can create one */
    lie.file = (int)(board->numbers[i] >> 48);
    lie.inode = board->numbers[i] & (((uint64_t)1 << 48) - 1);
    expect_refusal(&board->handles[0], why[i]);
  }
  lie.file = 1000;
  expect_refusal(&board->handles[0], "No such file or directory");
  lie = (openreg_peer_location){.file = (int)(board->numbers[TOO_LONG] >> 48), .inode = 1};
  expect_refusal(&board->handles[0], "open file is not the expected memory file");
  REQUIRE(count_descriptors() == descriptors && count_mappings() == mappings);
  lie.inode = 0;
  REQUIRE_OK(open_handle(&board->handles[0]));
  helper_kill(&exporter);
}

/* ---- a table that changes at any time -------------------------------------------------------- */

static void mutate(struct openreg_export *entry) {
  switch (draw() % 8) {
  case 0:
    atomic_store(&entry->kind, (uint32_t)draw_nasty(OPENREG_EXPORT_MEMORY));
    break;
  case 1:
  case 2:
    atomic_store(&entry->offset, draw_nasty(4 * MIB));
    break;
  case 3:
  case 4:
    atomic_store(&entry->bytes, draw_nasty(5 * MIB));
    break;
  case 5:
    atomic_store(&entry->handles_opened, draw());
    break;
  case 6:
    atomic_store(&entry->signal.recorded, (uint32_t)draw_nasty(1));
    break;
  default:
    atomic_store(&entry->nonce, draw_nasty(entry->nonce));
  }
}

enum { LIVE, STOP };

static void export_lies(void) {
  struct openreg_export *entries, honest[3];
  export_memory(base_of(0), PAGE, &board->handles[0]);
  export_memory(base_of(0) + 4 * MIB + 512, 5 * MIB, &board->handles[1]);
  REQUIRE_OK(openreg_exports_map(openreg_arena_file(0), arena_bytes(), &entries));
  memcpy(honest, (const void *)entries, sizeof honest);
  report(0);
  while (board->flag == LIVE) {
    int index = (int)(draw() % 2);
    if (draw() % 3 == 0) {
      atomic_store(&entries[index].kind, honest[index].kind);
      atomic_store(&entries[index].nonce, honest[index].nonce);
      atomic_store(&entries[index].offset, honest[index].offset);
      atomic_store(&entries[index].bytes, honest[index].bytes);
      atomic_store(&entries[index].signal.recorded, 1);
    } else {
      mutate(&entries[index]);
    }
  }
}

/* Does not wait for the signal, which a malicious exporter may never reach. */
static bool open_and_use(const openreg_ipc_handle *handle, openreg_import **kept) {
  openreg_import *import;
  uint32_t point;
  openreg_status status = openreg_import_open(handle, OPENREG_EXPORT_MEMORY, &import, &point);
  REQUIRE(status == OPENREG_OK || status == OPENREG_INVALID_ARGUMENT ||
          status == OPENREG_OUT_OF_MEMORY);
  if (status != OPENREG_OK)
    return false;
  char byte;
  REQUIRE_OK(openreg_copy(&byte, import->address, 1));
  REQUIRE_OK(openreg_copy(&byte, (char *)import->address + import->bytes - 1, 1));
  REQUIRE_OK(openreg_fill(import->address, 1, import->bytes < PAGE ? import->bytes : PAGE));
  if (*kept != NULL)
    openreg_import_close(*kept);
  *kept = import;
  return true;
}

CHILD_TEST(a_table_that_changes_at_any_time_does_no_harm) {
  helper exporter = board_with(export_lies);
  int opened = 0, refused = 0;
  openreg_import *kept[2] = {NULL, NULL};
  seed = 7;
  for (int i = 0; i < 50000 || opened < 100 || refused < 100; i++) {
    int which = (int)(draw() % 2);
    if (open_and_use(&board->handles[which], &kept[draw() % 2]))
      opened++;
    else
      refused++;
  }
  board->flag = STOP;
  helper_finish(&exporter);
  for (int i = 0; i < 2; i++)
    if (kept[i] != NULL)
      openreg_import_close(kept[i]);
  REQUIRE(openreg_peer_files == NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(wrong_files_are_rejected),
      cmocka_unit_test(a_table_that_changes_at_any_time_does_no_harm),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
