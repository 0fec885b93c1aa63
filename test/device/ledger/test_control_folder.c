/* The folder of a user's control files: it belongs to this user alone, or is rejected with advice.
 *
 * Tests that depend on the user run as an unused user id, which only root can switch to. Run by
 * anybody else, these tests check nothing.
 */
#define _GNU_SOURCE
#include "helper.h"
#include "device/ledger/control.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static uid_t first_user; /* two for each test process, which removes their folders */

static uid_t some_user(int which) {
  return first_user + (uid_t)which;
}

static const char *folder_of(uid_t user) {
  static char path[64];
  snprintf(path, sizeof path, "/dev/shm/openreg-%u", user);
  return path;
}

static bool choose_users(void) {
  first_user = (1u << 24) + 2 * (uid_t)getpid();
  return geteuid() == 0;
}

static void become(uid_t user) {
  REQUIRE(setgid(user) == 0 && setuid(user) == 0);
  REQUIRE(prctl(PR_SET_DUMPABLE, 1) == 0); /* otherwise root owns /proc/self */
}

/* Runs `body` as the user until the test ends. */
static void act(void (*body)(void)) {
  helper other = helper_start(body);
  helper_finish(&other);
}

/* ---- creation -------------------------------------------------------------------------------- */

static void require_own_folder(void) {
  struct stat status;
  REQUIRE(lstat(folder_of(geteuid()), &status) == 0);
  REQUIRE(S_ISDIR(status.st_mode) && (status.st_mode & 0777) == 0700);
  REQUIRE(status.st_uid == geteuid());
}

static void make_folder(void) {
  become(some_user(0));
  REQUIRE_OK(openreg_initialize());
  require_own_folder();
  REQUIRE(access(child_control_file(child_group()), F_OK) == 0);
}

CHILD_TEST(a_folder_is_made_for_its_user_alone_and_stays) {
  if (!choose_users())
    return;
  act(make_folder);
  REQUIRE(rmdir(folder_of(some_user(0))) == 0); /* it was empty */
}

static void make_folder_with_a_strict_umask(void) {
  umask(0777);
  make_folder();
}

CHILD_TEST(a_folder_is_made_whatever_the_umask) {
  if (!choose_users())
    return;
  act(make_folder_with_a_strict_umask);
  act(make_folder);
  REQUIRE(rmdir(folder_of(some_user(0))) == 0);
}

static void list_without_a_folder(void) {
  openreg_ledger_snapshot *snapshots;
  const char *problem;
  int count;
  become(some_user(0));
  REQUIRE_OK(openreg_ledger_list(&snapshots, &count, &problem));
  REQUIRE(count == 0 && problem == NULL);
  openreg_ledger_free_snapshots(snapshots, count);
  REQUIRE(access(folder_of(some_user(0)), F_OK) != 0);
}

CHILD_TEST(a_user_without_a_folder_has_no_groups) {
  if (choose_users())
    act(list_without_a_folder);
}

/* ---- no access for others -------------------------------------------------------------------- */

static void hold_a_group(void) {
  become(some_user(0));
  REQUIRE_OK(openreg_initialize());
  report(0);
  await_cue();
}

static void try_to_reach_it(void) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", folder_of(some_user(0)), child_group());
  become(some_user(1));
  REQUIRE(open(path, O_RDWR | O_CLOEXEC) < 0 && truncate(path, 0) != 0 && unlink(path) != 0);
  REQUIRE(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) < 0);
  REQUIRE(rename(folder_of(some_user(0)), "/dev/shm/openreg-elsewhere") != 0);
}

CHILD_TEST(another_user_cannot_access_its_files) {
  if (!choose_users())
    return;
  helper holder = helper_start(hold_a_group);
  helper_receive(&holder);
  act(try_to_reach_it);
  helper_dismiss(&holder);
  REQUIRE(rmdir(folder_of(some_user(0))) == 0);
}

/* ---- rejected folders ------------------------------------------------------------------------ */

static char expected[512];

static void expect_refusal(const char *why) {
  snprintf(expected, sizeof expected,
           "openreg: %s cannot be used as the folder of this user's control files: %s",
           folder_of(some_user(0)), why);
}

/* Initialization fails, and listing finds nothing and says why. After the obstacle is removed, both
 * work. */
static void be_refused(void) {
  openreg_ledger_snapshot *snapshots;
  const char *problem;
  int count;
  become(some_user(0));
  REQUIRE(openreg_initialize() == OPENREG_INVALID_CONFIGURATION);
  REQUIRE(strcmp(openreg_last_error(), expected) == 0);
  REQUIRE(!openreg_is_initialized());
  REQUIRE_OK(openreg_ledger_list(&snapshots, &count, &problem));
  REQUIRE(count == 0 && problem != NULL && strcmp(problem, expected) == 0);
  openreg_ledger_free_snapshots(snapshots, count);
  report(0);
  await_cue();
  REQUIRE_OK(openreg_initialize());
}

static void require_refused(int (*remove_it)(const char *path)) {
  helper other = helper_start(be_refused);
  helper_receive(&other);
  REQUIRE(remove_it(folder_of(some_user(0))) == 0);
  helper_dismiss(&other);
  REQUIRE(rmdir(folder_of(some_user(0))) == 0);
}

CHILD_TEST(a_folder_that_another_user_made_is_refused) {
  if (!choose_users())
    return;
  char why[128];
  snprintf(why, sizeof why, "it belongs to user 0, not to %u; have that user or root remove it",
           some_user(0));
  expect_refusal(why);
  REQUIRE(mkdir(folder_of(some_user(0)), 0700) == 0);
  REQUIRE(chmod(folder_of(some_user(0)), 0777) == 0);
  require_refused(rmdir);
}

CHILD_TEST(a_folder_that_others_may_use_is_refused) {
  if (!choose_users())
    return;
  expect_refusal(
      "other users can access it (mode 750, not 700); remove it, or set its mode to 700");
  REQUIRE(mkdir(folder_of(some_user(0)), 0750) == 0);
  REQUIRE(chown(folder_of(some_user(0)), some_user(0), some_user(0)) == 0);
  require_refused(rmdir);
}

CHILD_TEST(a_link_instead_of_the_folder_is_refused) {
  if (!choose_users())
    return;
  expect_refusal("it is not a directory; remove it");
  REQUIRE(symlink("/tmp", folder_of(some_user(0))) == 0);
  REQUIRE(lchown(folder_of(some_user(0)), some_user(0), some_user(0)) == 0);
  require_refused(unlink);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_folder_is_made_for_its_user_alone_and_stays),
      cmocka_unit_test(a_folder_is_made_whatever_the_umask),
      cmocka_unit_test(a_user_without_a_folder_has_no_groups),
      cmocka_unit_test(another_user_cannot_access_its_files),
      cmocka_unit_test(a_folder_that_another_user_made_is_refused),
      cmocka_unit_test(a_folder_that_others_may_use_is_refused),
      cmocka_unit_test(a_link_instead_of_the_folder_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
