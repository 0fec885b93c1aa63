/* What processes of a group know about each other: which are alive, where their memory files are,
 * and what remains after their death.
 */
#define _GNU_SOURCE
#include "devices.h"
#include "helper.h"
#include "device/ledger/ledger.h"
#include "device/memory/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void report_self(void) {
  openreg_peer self = openreg_ledger_self();
  report(self.group);
  report(self.identity);
  report(self.slot);
}

static openreg_peer hear_peer(helper *helper) {
  openreg_peer peer = {.group = helper_receive(helper), .identity = helper_receive(helper)};
  peer.slot = (uint32_t)helper_receive(helper);
  return peer;
}

static void take_8(void) {
  REQUIRE_OK(openreg_ledger_reserve(1, 8 * MIB));
  report_self();
  await_cue();
}

CHILD_TEST(a_process_knows_itself) {
  REQUIRE_OK(openreg_initialize());
  openreg_peer self = openreg_ledger_self();
  openreg_peer_location file;
  REQUIRE(self.group != 0 && self.identity != 0 && self.slot == 0);
  REQUIRE(openreg_ledger_is_alive(self));
  REQUIRE(openreg_ledger_find_peer(self, 1, &file));
  REQUIRE(file.pid == getpid() && file.file == openreg_arena_file(1));
}

CHILD_TEST(the_memory_files_of_a_living_peer_are_found) {
  helper other = helper_start(take_8);
  openreg_peer peer = hear_peer(&other);
  REQUIRE_OK(openreg_initialize());
  REQUIRE(peer.group == openreg_ledger_self().group && peer.slot != openreg_ledger_self().slot);
  REQUIRE(openreg_ledger_is_alive(peer));
  for (int device = 0; device < 2; device++) {
    openreg_peer_location file;
    char path[64], name[64] = "", expected[64];
    struct stat status;
    REQUIRE(openreg_ledger_find_peer(peer, device, &file));
    REQUIRE(file.pid == other.pid);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", file.pid, file.file);
    snprintf(expected, sizeof expected, "/memfd:openreg:%d (deleted)", device);
    REQUIRE(readlink(path, name, sizeof name - 1) > 0 && strcmp(name, expected) == 0);
    REQUIRE(stat(path, &status) == 0 && status.st_ino == file.inode);
  }
  helper_kill(&other);
}

CHILD_TEST(devices_that_a_peer_does_not_have_are_not_found) {
  REQUIRE_OK(openreg_initialize());
  openreg_peer_location file;
  REQUIRE(!openreg_ledger_find_peer(openreg_ledger_self(), 2, &file));
  REQUIRE(!openreg_ledger_find_peer(openreg_ledger_self(), -1, &file));
}

static void require_unknown(openreg_peer peer) {
  openreg_peer_location file;
  REQUIRE(!openreg_ledger_is_alive(peer));
  REQUIRE(!openreg_ledger_find_peer(peer, 0, &file));
  REQUIRE(openreg_ledger_pin_record(peer) == OPENREG_INVALID_ARGUMENT);
  REQUIRE_OK(
      openreg_ledger_set_orphaned_bytes((openreg_peer){peer.group, peer.identity, 5}, 0, MIB));
  REQUIRE(free_on(0) == 64 * MIB);
}

CHILD_TEST(processes_outside_the_group_are_unknown) {
  REQUIRE_OK(openreg_initialize());
  openreg_peer self = openreg_ledger_self();
  require_unknown((openreg_peer){self.group + 1, self.identity, self.slot});
  require_unknown((openreg_peer){self.group, self.identity + 1, self.slot});
  require_unknown((openreg_peer){self.group, 0, self.slot + 1});
  require_unknown((openreg_peer){self.group, self.identity, self.slot + 1});
  require_unknown((openreg_peer){self.group, self.identity, OPENREG_MAX_PROCESSES});
  require_unknown((openreg_peer){self.group, self.identity, UINT32_MAX});
}

/* A third process keeps the control file. */
CHILD_TEST(dead_peers_are_not_mistaken_for_later_processes_in_their_slot) {
  helper third = helper_start(take_8);
  (void)hear_peer(&third);
  helper first = helper_start(take_8), second;
  openreg_peer dead = hear_peer(&first);
  helper_kill(&first);
  second = helper_start(take_8);
  openreg_peer living = hear_peer(&second);
  REQUIRE_OK(openreg_initialize());
  REQUIRE(living.slot == dead.slot && living.group == dead.group);
  REQUIRE(openreg_ledger_is_alive(living));
  require_unknown(dead);
  helper_kill(&second);
  openreg_peer_location file;
  REQUIRE(!openreg_ledger_is_alive(living) && !openreg_ledger_find_peer(living, 0, &file));
  REQUIRE(free_on(1) == 56 * MIB);
  require_unknown(living);
  helper_kill(&third);
}

/* ---- after death ----------------------------------------------------------------------------- */

static void remains_body(void (*end)(helper *)) {
  helper other = helper_start(take_8);
  openreg_peer peer = hear_peer(&other);
  REQUIRE_OK(openreg_initialize());
  REQUIRE_OK(openreg_ledger_pin_record(peer));
  REQUIRE_OK(openreg_ledger_pin_record(peer));
  end(&other);
  REQUIRE(!openreg_ledger_is_alive(peer));
  REQUIRE(free_on(1) == 56 * MIB);
  REQUIRE_OK(openreg_ledger_set_orphaned_bytes(peer, 1, 3 * MIB));
  REQUIRE(free_on(1) == 61 * MIB);
  openreg_ledger_unpin_record(peer);
  REQUIRE(free_on(1) == 61 * MIB);
  openreg_ledger_unpin_record(peer);
  REQUIRE(free_on(1) == 64 * MIB);
  require_unknown(peer);
}

static void cue_and_finish(helper *helper) {
  helper_cue(helper);
  helper_finish(helper);
}

CHILD_TEST(memory_of_a_killed_process_counts_while_its_record_is_pinned) {
  remains_body(helper_kill);
}

CHILD_TEST(memory_of_an_exited_process_counts_while_its_record_is_pinned) {
  remains_body(cue_and_finish);
}

static openreg_peer to_remember;

static void remember(void) {
  REQUIRE_OK(openreg_ledger_reserve(0, 0));
  REQUIRE_OK(openreg_ledger_pin_record(to_remember));
  report(0);
  await_cue();
}

CHILD_TEST(memory_pinned_only_by_a_killed_process_is_free_again) {
  helper other = helper_start(take_8);
  to_remember = hear_peer(&other);
  helper importer = helper_start(remember);
  helper_receive(&importer);
  helper_kill(&other);
  REQUIRE(free_on(1) == 56 * MIB);
  helper_kill(&importer);
  REQUIRE(free_on(1) == 64 * MIB);
}

CHILD_TEST(unpinning_does_not_affect_a_living_process) {
  helper other = helper_start(take_8);
  openreg_peer peer = hear_peer(&other);
  REQUIRE_OK(openreg_initialize());
  REQUIRE_OK(openreg_ledger_pin_record(peer));
  openreg_ledger_unpin_record(peer);
  REQUIRE(free_on(1) == 56 * MIB && openreg_ledger_is_alive(peer));
  helper_kill(&other);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_process_knows_itself),
      cmocka_unit_test(the_memory_files_of_a_living_peer_are_found),
      cmocka_unit_test(devices_that_a_peer_does_not_have_are_not_found),
      cmocka_unit_test(processes_outside_the_group_are_unknown),
      cmocka_unit_test(dead_peers_are_not_mistaken_for_later_processes_in_their_slot),
      cmocka_unit_test(memory_of_a_killed_process_counts_while_its_record_is_pinned),
      cmocka_unit_test(memory_of_an_exited_process_counts_while_its_record_is_pinned),
      cmocka_unit_test(memory_pinned_only_by_a_killed_process_is_free_again),
      cmocka_unit_test(unpinning_does_not_affect_a_living_process),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
