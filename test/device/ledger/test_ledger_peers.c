/* What processes of a group know of each other: who lives, where its memory files are, and what is
 * left of it when it is dead. */
#define _GNU_SOURCE
#include "actor.h"
#include "device/ledger/ledger.h"
#include "device/memory/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

static uint64_t free_on(int device) {
  uint64_t free_bytes, total_bytes;
  REQUIRE_OK(openreg_ledger_query(device, &free_bytes, &total_bytes));
  return free_bytes;
}

static void report_self(void) {
  openreg_peer self = openreg_ledger_self();
  report(self.group);
  report(self.identity);
  report(self.slot);
}

static openreg_peer hear_peer(actor *actor) {
  openreg_peer peer = {.group = actor_hear(actor), .identity = actor_hear(actor)};
  peer.slot = (uint32_t)actor_hear(actor);
  return peer;
}

static void take_8(void) {
  REQUIRE_OK(openreg_ledger_take(1, 8 * MIB));
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
  actor other = actor_start(take_8);
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
  actor_kill(&other);
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
  REQUIRE(openreg_ledger_remember(peer) == OPENREG_INVALID_ARGUMENT);
  REQUIRE_OK(openreg_ledger_set_remains((openreg_peer){peer.group, peer.identity, 5}, 0, MIB));
  REQUIRE(free_on(0) == 64 * MIB);
}

CHILD_TEST(whoever_is_not_of_the_group_is_unknown) {
  REQUIRE_OK(openreg_initialize());
  openreg_peer self = openreg_ledger_self();
  require_unknown((openreg_peer){self.group + 1, self.identity, self.slot});
  require_unknown((openreg_peer){self.group, self.identity + 1, self.slot});
  require_unknown((openreg_peer){self.group, 0, self.slot + 1});
  require_unknown((openreg_peer){self.group, self.identity, self.slot + 1});
  require_unknown((openreg_peer){self.group, self.identity, OPENREG_MAX_PROCESSES});
  require_unknown((openreg_peer){self.group, self.identity, UINT32_MAX});
}

/* The control file stays meanwhile, since there is a third. */
CHILD_TEST(the_dead_are_not_taken_for_who_has_their_place) {
  actor third = actor_start(take_8);
  (void)hear_peer(&third);
  actor first = actor_start(take_8), second;
  openreg_peer dead = hear_peer(&first);
  actor_kill(&first);
  second = actor_start(take_8);
  openreg_peer living = hear_peer(&second);
  REQUIRE_OK(openreg_initialize());
  REQUIRE(living.slot == dead.slot && living.group == dead.group);
  REQUIRE(openreg_ledger_is_alive(living));
  require_unknown(dead);
  actor_kill(&second);
  openreg_peer_location file;
  REQUIRE(!openreg_ledger_is_alive(living) && !openreg_ledger_find_peer(living, 0, &file));
  REQUIRE(free_on(1) == 56 * MIB);
  require_unknown(living);
  actor_kill(&third);
}

/* ---- what is left of the dead ---------------------------------------------------------------- */

static void remains_body(void (*end)(actor *)) {
  actor other = actor_start(take_8);
  openreg_peer peer = hear_peer(&other);
  REQUIRE_OK(openreg_initialize());
  REQUIRE_OK(openreg_ledger_remember(peer));
  REQUIRE_OK(openreg_ledger_remember(peer));
  end(&other);
  REQUIRE(!openreg_ledger_is_alive(peer));
  REQUIRE(free_on(1) == 56 * MIB);
  REQUIRE_OK(openreg_ledger_set_remains(peer, 1, 3 * MIB));
  REQUIRE(free_on(1) == 61 * MIB);
  openreg_ledger_forget(peer);
  REQUIRE(free_on(1) == 61 * MIB);
  openreg_ledger_forget(peer);
  REQUIRE(free_on(1) == 64 * MIB);
  require_unknown(peer);
}

static void cue_and_finish(actor *actor) {
  actor_cue(actor);
  actor_finish(actor);
}

CHILD_TEST(memory_of_a_killed_process_counts_while_it_is_remembered) {
  remains_body(actor_kill);
}

CHILD_TEST(memory_of_a_process_that_exits_counts_while_it_is_remembered) {
  remains_body(cue_and_finish);
}

static openreg_peer to_remember;

static void remember(void) {
  REQUIRE_OK(openreg_ledger_take(0, 0));
  REQUIRE_OK(openreg_ledger_remember(to_remember));
  report(0);
  await_cue();
}

CHILD_TEST(what_only_a_killed_process_remembered_is_free_again) {
  actor other = actor_start(take_8);
  to_remember = hear_peer(&other);
  actor importer = actor_start(remember);
  actor_hear(&importer);
  actor_kill(&other);
  REQUIRE(free_on(1) == 56 * MIB);
  actor_kill(&importer);
  REQUIRE(free_on(1) == 64 * MIB);
}

CHILD_TEST(the_memory_of_the_living_is_not_touched_by_forgetting_them) {
  actor other = actor_start(take_8);
  openreg_peer peer = hear_peer(&other);
  REQUIRE_OK(openreg_initialize());
  REQUIRE_OK(openreg_ledger_remember(peer));
  openreg_ledger_forget(peer);
  REQUIRE(free_on(1) == 56 * MIB && openreg_ledger_is_alive(peer));
  actor_kill(&other);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_process_knows_itself),
      cmocka_unit_test(the_memory_files_of_a_living_peer_are_found),
      cmocka_unit_test(devices_that_a_peer_does_not_have_are_not_found),
      cmocka_unit_test(whoever_is_not_of_the_group_is_unknown),
      cmocka_unit_test(the_dead_are_not_taken_for_who_has_their_place),
      cmocka_unit_test(memory_of_a_killed_process_counts_while_it_is_remembered),
      cmocka_unit_test(memory_of_a_process_that_exits_counts_while_it_is_remembered),
      cmocka_unit_test(what_only_a_killed_process_remembered_is_free_again),
      cmocka_unit_test(the_memory_of_the_living_is_not_touched_by_forgetting_them),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
