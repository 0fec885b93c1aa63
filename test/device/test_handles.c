/* Handles that must be refused, and exporters that lie. Nothing is mapped for them, and nothing
 * that they write can crash who opens them.
 */
#define _GNU_SOURCE
#include "board.h"
#include "imports.h"
#include "ipc_handle.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What the ledger says of a peer's file, when a test wants it to lie. */
bool __real_openreg_ledger_find_peer(openreg_peer peer, int device, openreg_peer_file *file);
static openreg_peer_file lie;

bool __wrap_openreg_ledger_find_peer(openreg_peer peer, int device, openreg_peer_file *file) {
  bool found = __real_openreg_ledger_find_peer(peer, device, file);
  if (lie.inode != 0) {
    file->file = lie.file;
    file->inode = lie.inode;
  }
  return found;
}

/* What happens just before a range is locked, and just after. */
bool __real_openreg_range_lock_try(int file, short type, uint64_t start, uint64_t bytes);
static void (*before_lock)(void), (*after_lock)(void);

static void happen_once(void (**what)(void)) {
  void (*happening)(void) = *what;
  *what = NULL;
  if (happening != NULL)
    happening();
}

bool __wrap_openreg_range_lock_try(int file, short type, uint64_t start, uint64_t bytes) {
  happen_once(&before_lock);
  bool locked = __real_openreg_range_lock_try(file, type, start, bytes);
  happen_once(&after_lock);
  return locked;
}

/* A generator of its own, so that a failure can be repeated anywhere. */
static uint64_t seed = 20240229;

static uint64_t draw(void) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return seed;
}

static openreg_status open_handle(const openreg_ipc_handle *handle) {
  void *address;
  size_t bytes;
  int device;
  openreg_status status = openreg_ipc_open(handle, 0, &address, &bytes, &device);
  if (status == OPENREG_OK)
    REQUIRE_OK(openreg_ipc_close(address));
  return status;
}

static void expect_refusal(const openreg_ipc_handle *handle, const char *why) {
  REQUIRE(open_handle(handle) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(strstr(openreg_last_error(), "openreg: the handle is refused: ") == openreg_last_error());
  REQUIRE(strstr(openreg_last_error(), why) != NULL);
  REQUIRE(openreg_peer_files == NULL);
}

static void export_two(void) {
  openreg_event *event;
  char *base = base_of(0);
  export_memory(base, PAGE, &board->handles[0]);
  export_memory(base + 4 * MIB + 512, 5 * MIB, &board->handles[1]);
  REQUIRE_OK(openreg_event_create(0, false, &event));
  REQUIRE_OK(openreg_event_export(event, &board->handles[2]));
  report(0);
  await_cue();
  openreg_event_destroy(event);
}

/* ---- wrong handles --------------------------------------------------------------------------- */

CHILD_TEST(a_handle_with_any_byte_changed_is_refused) {
  board_make();
  actor exporter = actor_start(export_two);
  actor_hear(&exporter);
  REQUIRE_OK(open_handle(&board->handles[0]));
  int descriptors = count_descriptors(), mappings = count_mappings();
  for (size_t i = 0; i < sizeof(openreg_ipc_handle); i++)
    for (int change = 1; change < 256; change++) {
      openreg_ipc_handle changed = board->handles[0];
      changed.bytes[i] ^= (unsigned char)change;
      REQUIRE(open_handle(&changed) == OPENREG_INVALID_ARGUMENT);
    }
  for (size_t length = 0; length < sizeof(openreg_ipc_handle); length++) {
    openreg_ipc_handle cut = {{0}};
    memcpy(cut.bytes, board->handles[0].bytes, length);
    expect_refusal(&cut, "it is not a handle, or not a whole one");
  }
  REQUIRE(count_descriptors() == descriptors && count_mappings() == mappings);
  REQUIRE_OK(open_handle(&board->handles[0]));
  actor_kill(&exporter);
}

CHILD_TEST(random_handles_are_refused) {
  REQUIRE_OK(openreg_initialize());
  for (int i = 0; i < 100000; i++) {
    openreg_ipc_handle handle;
    openreg_event *event;
    for (size_t j = 0; j < sizeof handle; j += sizeof(uint64_t)) {
      uint64_t word = draw();
      memcpy(handle.bytes + j, &word, sizeof word);
    }
    REQUIRE(open_handle(&handle) == OPENREG_INVALID_ARGUMENT);
    REQUIRE(openreg_event_import(&handle, &event) == OPENREG_INVALID_ARGUMENT);
  }
  REQUIRE(openreg_peer_files == NULL);
}

static void seal(struct openreg_handle *parts, openreg_ipc_handle *handle) {
  uint64_t check = 0xcbf29ce484222325;
  memcpy(handle->bytes, parts, sizeof *parts);
  for (size_t i = 0; i < offsetof(struct openreg_handle, check); i++)
    check = (check ^ handle->bytes[i]) * 0x100000001b3;
  parts->check = check;
  memcpy(handle->bytes, parts, sizeof *parts);
}

static uint64_t draw_nasty(uint64_t honest) {
  static const uint64_t edges[] = {
      0,          1,        2,        63,        64,         511,
      512,        32766,    32767,    32768,     1024,       INT32_MAX,
      UINT32_MAX, 64 * MIB, 66 * MIB, INT64_MAX, UINT64_MAX, 64 * MIB - 512};
  switch (draw() % 4) {
  case 0:
    return edges[draw() % (sizeof edges / sizeof edges[0])];
  case 1:
    return honest + (draw() % 9) - 4;
  case 2:
    return honest ^ (uint64_t)1 << draw() % 64;
  default:
    return draw();
  }
}

static void forge(struct openreg_handle *parts) {
  switch (draw() % 8) {
  case 0:
    parts->version = (uint32_t)draw_nasty(parts->version);
    break;
  case 1:
    parts->kind = (uint32_t)draw_nasty(parts->kind);
    break;
  case 2:
    parts->device = (uint32_t)draw_nasty(parts->device);
    break;
  case 3:
    parts->slot = (uint32_t)draw_nasty(parts->slot);
    break;
  case 4:
    parts->group = draw_nasty(parts->group);
    break;
  case 5:
    parts->identity = draw_nasty(parts->identity);
    break;
  case 6:
    parts->index = (uint32_t)draw_nasty(parts->index);
    break;
  default:
    parts->nonce = draw_nasty(parts->nonce);
  }
}

CHILD_TEST(forged_handles_are_refused) {
  board_make();
  actor exporter = actor_start(export_two);
  actor_hear(&exporter);
  for (int i = 0; i < 100000; i++) {
    struct openreg_handle honest, parts;
    openreg_ipc_handle forged;
    openreg_event *event;
    REQUIRE(openreg_handle_unpack(&board->handles[draw() % 3], &honest));
    parts = honest;
    forge(&parts);
    if (draw() % 2 == 0)
      forge(&parts);
    seal(&parts, &forged);
    if (memcmp(&parts, &honest, sizeof parts) == 0)
      continue;
    REQUIRE(open_handle(&forged) == OPENREG_INVALID_ARGUMENT);
    REQUIRE(openreg_event_import(&forged, &event) == OPENREG_INVALID_ARGUMENT);
  }
  REQUIRE(openreg_peer_files == NULL);
  struct openreg_handle parts;
  openreg_ipc_handle forged;
  REQUIRE(openreg_handle_unpack(&board->handles[0], &parts));
  parts.point += 1;
  seal(&parts, &forged);
  expect_refusal(&forged, "values that cannot be");
  actor_kill(&exporter);
}

CHILD_TEST(handles_are_for_memory_or_for_events) {
  board_make();
  actor exporter = actor_start(export_two);
  openreg_event *event;
  actor_hear(&exporter);
  expect_refusal(&board->handles[2], "it is not for memory");
  REQUIRE(openreg_event_import(&board->handles[0], &event) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(strstr(openreg_last_error(), "it is not for an event") != NULL);
  actor_kill(&exporter);
}

CHILD_TEST(handles_of_this_very_process_are_refused) {
  openreg_ipc_handle handle;
  export_memory(base_of(0), PAGE, &handle);
  expect_refusal(&handle, "this process made it");
}

CHILD_TEST(handles_that_came_back_give_the_address) {
  openreg_ipc_handle handle;
  void *address;
  export_memory((char *)base_of(1) + PAGE, PAGE, &handle);
  REQUIRE(openreg_ipc_withdraw((char *)base_of(1) + PAGE) == OPENREG_NOT_READY);
  REQUIRE_OK(openreg_ipc_recall(&handle, &address));
  REQUIRE(address == (char *)base_of(1) + PAGE);
  REQUIRE_OK(openreg_ipc_withdraw(address));
  REQUIRE(openreg_ipc_recall(&handle, &address) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(strstr(openreg_last_error(), "has withdrawn") != NULL);
}

CHILD_TEST(handles_of_others_are_not_recalled) {
  board_make();
  actor exporter = actor_start(export_two);
  actor_hear(&exporter);
  void *address = &exporter;
  REQUIRE_OK(openreg_ipc_recall(&board->handles[0], &address));
  REQUIRE(address == NULL);
  openreg_ipc_handle garbage = {.bytes = {1, 2, 3}};
  address = &exporter;
  REQUIRE_OK(openreg_ipc_recall(&garbage, &address));
  REQUIRE(address == NULL);
  actor_kill(&exporter);
}

static void export_in_another_group(void) {
  setenv("OPENREG_GROUP", "test-another-group", 1);
  export_two();
}

CHILD_TEST(handles_of_another_group_are_refused) {
  board_make();
  actor exporter = actor_start(export_in_another_group);
  actor_hear(&exporter);
  expect_refusal(&board->handles[0], "it is of another group of processes");
  actor_cue(&exporter);
  actor_finish(&exporter);
}

static void export_withdraw_export(void) {
  char *base = base_of(0);
  export_memory(base, PAGE, &board->handles[0]);
  report(0);
  await_cue();
  REQUIRE_OK(openreg_ipc_withdraw(base));
  report(0);
  await_cue();
  export_memory(base, PAGE, &board->handles[1]);
  report(0);
  await_cue();
}

CHILD_TEST(handles_of_what_was_withdrawn_are_refused) {
  board_make();
  actor exporter = actor_start(export_withdraw_export);
  actor_hear(&exporter);
  REQUIRE_OK(open_handle(&board->handles[0]));
  actor_cue(&exporter);
  actor_hear(&exporter);
  expect_refusal(&board->handles[0], "withdrawn by its exporter");
  actor_cue(&exporter);
  actor_hear(&exporter);
  expect_refusal(&board->handles[0], "withdrawn by its exporter");
  REQUIRE_OK(open_handle(&board->handles[1]));
  actor_kill(&exporter);
}

/* ---- what happens meanwhile ------------------------------------------------------------------ */

static actor meanwhile;

static void let_it_go_on(void) {
  actor_cue(&meanwhile);
  actor_hear(&meanwhile);
}

static void kill_it(void) {
  actor_kill(&meanwhile);
}

CHILD_TEST(what_is_withdrawn_while_it_is_opened_is_refused) {
  board_make();
  meanwhile = actor_start(export_withdraw_export);
  actor_hear(&meanwhile);
  REQUIRE_OK(open_handle(&board->handles[0]));
  before_lock = let_it_go_on;
  expect_refusal(&board->handles[0], "withdrawn by its exporter");
  let_it_go_on();
  REQUIRE_OK(open_handle(&board->handles[1]));
  actor_kill(&meanwhile);
}

static void let_it_go_on_twice(void) {
  let_it_go_on();
  let_it_go_on();
}

CHILD_TEST(what_is_withdrawn_and_exported_again_while_it_is_opened_is_refused) {
  board_make();
  meanwhile = actor_start(export_withdraw_export);
  actor_hear(&meanwhile);
  REQUIRE_OK(open_handle(&board->handles[0]));
  before_lock = let_it_go_on_twice;
  expect_refusal(&board->handles[0], "withdrawn by its exporter");
  REQUIRE_OK(open_handle(&board->handles[1]));
  actor_kill(&meanwhile);
}

static void expect_end_while_opening(void (**moment)(void)) {
  board_make();
  meanwhile = actor_start(export_two);
  actor_hear(&meanwhile);
  REQUIRE_OK(openreg_initialize());
  *moment = kill_it;
  expect_refusal(&board->handles[0], "the process that made it has ended");
}

CHILD_TEST(an_exporter_that_dies_before_its_memory_is_locked_is_noticed) {
  expect_end_while_opening(&before_lock);
}

CHILD_TEST(an_exporter_that_dies_after_its_memory_was_locked_is_noticed) {
  expect_end_while_opening(&after_lock);
}

static void import_second_and_stay(void) {
  await_cue();
  open_memory(&board->handles[1]);
  report(0);
  await_cue();
}

enum { SECOND = 5 * MIB + PAGE }; /* whole pages around it */

static uint64_t used_on_0(void) {
  uint64_t free_bytes, total_bytes;
  REQUIRE_OK(openreg_ledger_query(0, &free_bytes, &total_bytes));
  return total_bytes - free_bytes;
}

static void kill_it_and_let_the_other_heir_settle(void) {
  actor_kill(&meanwhile);
  while (used_on_0() != SECOND + PAGE)
    sched_yield();
}

CHILD_TEST(what_was_locked_in_vain_is_given_back) {
  board_make();
  meanwhile = actor_start(export_two);
  actor other_heir = actor_start(import_second_and_stay);
  actor_hear(&meanwhile);
  actor_cue(&other_heir);
  actor_hear(&other_heir);
  REQUIRE_OK(openreg_initialize());
  after_lock = kill_it_and_let_the_other_heir_settle;
  REQUIRE(open_handle(&board->handles[0]) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(strstr(openreg_last_error(), "the process that made it has ended") != NULL);
  while (used_on_0() != SECOND) /* soon, when the other heir was not done yet */
    sched_yield();
  actor_cue(&other_heir);
  actor_finish(&other_heir);
}

/* ---- wrong files ----------------------------------------------------------------------------- */

enum { NOT_SEALED, TOO_SHORT, TOO_LONG, OF_A_STRANGER, A_PIPE, A_FOLDER, NO_FILE, WRONG_FILES };

static int make_wrong_file(int which) {
  size_t bytes = 66 * MIB;
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

CHILD_TEST(files_that_are_not_what_they_should_be_are_refused) {
  static const char *const why[WRONG_FILES] = {
      [NOT_SEALED] = "is not sealed",
      [TOO_SHORT] = "has another size",
      [TOO_LONG] = "has another size",
      [OF_A_STRANGER] = "belongs to another user",
      [A_PIPE] = "is not the memory file that it stated",
      [A_FOLDER] = "opening the memory file of process",
  };
  board_make();
  actor exporter = actor_start(offer_wrong_files);
  actor_hear(&exporter);
  REQUIRE_OK(openreg_initialize());
  int descriptors = count_descriptors(), mappings = count_mappings();
  for (int i = 0; i < NO_FILE; i++) {
    if (i == OF_A_STRANGER && geteuid() != 0)
      continue; /* only root can make one */
    lie.file = (int)(board->numbers[i] >> 48);
    lie.inode = board->numbers[i] & (((uint64_t)1 << 48) - 1);
    expect_refusal(&board->handles[0], why[i]);
  }
  lie.file = 1000;
  expect_refusal(&board->handles[0], "No such file or directory");
  lie = (openreg_peer_file){.file = (int)(board->numbers[TOO_LONG] >> 48), .inode = 1};
  expect_refusal(&board->handles[0], "is not the memory file that it stated");
  REQUIRE(count_descriptors() == descriptors && count_mappings() == mappings);
  lie.inode = 0;
  REQUIRE_OK(open_handle(&board->handles[0]));
  actor_kill(&exporter);
}

/* ---- an exporter whose table changes at any time --------------------------------------------- */

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
    atomic_store(&entry->received, draw());
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
  REQUIRE_OK(openreg_exports_map(openreg_arena_file(0), 64 * MIB, &entries));
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

/* Without waiting for the signal, which a liar never has to reach. */
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

CHILD_TEST(a_table_that_changes_at_any_time_harms_nobody) {
  board_make();
  actor exporter = actor_start(export_lies);
  int opened = 0, refused = 0;
  openreg_import *kept[2] = {NULL, NULL};
  actor_hear(&exporter);
  seed = 7;
  for (int i = 0; i < 50000 || opened < 100 || refused < 100; i++) {
    int which = (int)(draw() % 2);
    if (open_and_use(&board->handles[which], &kept[draw() % 2]))
      opened++;
    else
      refused++;
  }
  board->flag = STOP;
  actor_finish(&exporter);
  for (int i = 0; i < 2; i++)
    if (kept[i] != NULL)
      openreg_import_close(kept[i]);
  REQUIRE(openreg_peer_files == NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_handle_with_any_byte_changed_is_refused),
      cmocka_unit_test(random_handles_are_refused),
      cmocka_unit_test(forged_handles_are_refused),
      cmocka_unit_test(handles_are_for_memory_or_for_events),
      cmocka_unit_test(handles_of_this_very_process_are_refused),
      cmocka_unit_test(handles_that_came_back_give_the_address),
      cmocka_unit_test(handles_of_others_are_not_recalled),
      cmocka_unit_test(handles_of_another_group_are_refused),
      cmocka_unit_test(handles_of_what_was_withdrawn_are_refused),
      cmocka_unit_test(what_is_withdrawn_while_it_is_opened_is_refused),
      cmocka_unit_test(what_is_withdrawn_and_exported_again_while_it_is_opened_is_refused),
      cmocka_unit_test(an_exporter_that_dies_before_its_memory_is_locked_is_noticed),
      cmocka_unit_test(an_exporter_that_dies_after_its_memory_was_locked_is_noticed),
      cmocka_unit_test(what_was_locked_in_vain_is_given_back),
      cmocka_unit_test(files_that_are_not_what_they_should_be_are_refused),
      cmocka_unit_test(a_table_that_changes_at_any_time_harms_nobody),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
