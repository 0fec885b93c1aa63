/* Invalid, forged, stale and foreign handles: they are rejected and nothing is mapped. */
#define _GNU_SOURCE
#include "device/ipc/handle.h"
#include "device/ipc/imports.h"
#include "refusals.h"

#include <stdlib.h>
#include <string.h>

CHILD_TEST(a_handle_with_any_byte_changed_is_refused) {
  helper exporter = board_with(export_two_and_an_event);
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
    if (memcmp(&cut, &board->handles[0], sizeof cut) == 0)
      continue; /* its checksum ends with zeros, which happens for one handle in 256 */
    expect_refusal(&cut, "it is not a handle, or it is truncated");
  }
  REQUIRE(count_descriptors() == descriptors && count_mappings() == mappings);
  REQUIRE_OK(open_handle(&board->handles[0]));
  helper_kill(&exporter);
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

static void forge(struct openreg_handle *parts) {
  switch (draw() % 8) {
  case 0:
    parts->version = (uint32_t)draw_nasty(parts->version);
    break;
  case 1:
    parts->kind = (uint32_t)draw_nasty(parts->kind);
    break;
  case 2:
    parts->group_index = (uint32_t)draw_nasty(parts->group_index);
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
  helper exporter = board_with(export_two_and_an_event);
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
  expect_refusal(&forged, "the exporter's table is corrupt");
  helper_kill(&exporter);
}

CHILD_TEST(handles_are_for_memory_or_for_events) {
  helper exporter = board_with(export_two_and_an_event);
  openreg_event *event;
  expect_refusal(&board->handles[2], "it is not a handle of memory");
  REQUIRE(openreg_event_import(&board->handles[0], &event) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(strstr(openreg_last_error(), "it is not a handle of an event") != NULL);
  helper_kill(&exporter);
}

CHILD_TEST(handles_of_this_process_are_rejected) {
  openreg_ipc_handle handle;
  export_memory(base_of(0), PAGE, &handle);
  expect_refusal(&handle, "this process made it");
}

CHILD_TEST(returned_handles_give_the_address) {
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
  helper exporter = board_with(export_two_and_an_event);
  void *address = &exporter;
  REQUIRE_OK(openreg_ipc_recall(&board->handles[0], &address));
  REQUIRE(address == NULL);
  openreg_ipc_handle garbage = {.bytes = {1, 2, 3}};
  address = &exporter;
  REQUIRE_OK(openreg_ipc_recall(&garbage, &address));
  REQUIRE(address == NULL);
  helper_kill(&exporter);
}

static void export_in_another_group(void) {
  setenv("OPENREG_GROUP", "test-another-group", 1);
  export_two_and_an_event();
}

CHILD_TEST(handles_of_another_group_are_refused) {
  helper exporter = board_with(export_in_another_group);
  expect_refusal(&board->handles[0], "it belongs to another group of processes");
  helper_dismiss(&exporter);
}

CHILD_TEST(handles_of_withdrawn_memory_are_rejected) {
  helper exporter = board_with(export_withdraw_export);
  REQUIRE_OK(open_handle(&board->handles[0]));
  helper_step(&exporter);
  expect_refusal(&board->handles[0], "its exporter has withdrawn the memory");
  helper_step(&exporter);
  expect_refusal(&board->handles[0], "its exporter has withdrawn the memory");
  REQUIRE_OK(open_handle(&board->handles[1]));
  helper_kill(&exporter);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_handle_with_any_byte_changed_is_refused),
      cmocka_unit_test(random_handles_are_refused),
      cmocka_unit_test(forged_handles_are_refused),
      cmocka_unit_test(handles_are_for_memory_or_for_events),
      cmocka_unit_test(handles_of_this_process_are_rejected),
      cmocka_unit_test(returned_handles_give_the_address),
      cmocka_unit_test(handles_of_others_are_not_recalled),
      cmocka_unit_test(handles_of_another_group_are_refused),
      cmocka_unit_test(handles_of_withdrawn_memory_are_rejected),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
