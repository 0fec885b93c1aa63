/* Error messages if /proc is not mounted. The linker's --wrap simulates that. */
#include "base/proc.h"
#include "peers.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/types.h>

static bool has_proc = true;

static bool is_missing(const char *path) {
  bool missing = !has_proc && strncmp(path, "/proc", 5) == 0;
  if (missing)
    errno = ENOENT;
  return missing;
}

int __real_open64(const char *path, int flags, mode_t mode);
int __wrap_open64(const char *path, int flags, mode_t mode);
int __wrap_open64(const char *path, int flags, mode_t mode) {
  return is_missing(path) ? -1 : __real_open64(path, flags, mode);
}

int __real_access(const char *path, int how);
int __wrap_access(const char *path, int how);
int __wrap_access(const char *path, int how) {
  return is_missing(path) ? -1 : __real_access(path, how);
}

int __real_linkat(int from, const char *old, int to, const char *new, int flags);
int __wrap_linkat(int from, const char *old, int to, const char *new, int flags);
int __wrap_linkat(int from, const char *old, int to, const char *new, int flags) {
  return is_missing(old) ? -1 : __real_linkat(from, old, to, new, flags);
}

static void require_message(openreg_status status, openreg_status expected, const char *what) {
  REQUIRE(status == expected);
  REQUIRE(strstr(openreg_last_error(), what) != NULL);
  REQUIRE(strstr(openreg_last_error(), ": /proc is not mounted, but this operation needs it"));
}

CHILD_TEST(the_first_process_of_a_group_gets_a_clear_message) {
  has_proc = false;
  require_message(openreg_initialize(), OPENREG_SYSTEM, "cannot name the control file");
  has_proc = true;
  REQUIRE_OK(openreg_initialize());
}

static void hold(void) {
  REQUIRE_OK(openreg_initialize());
  report(0);
  await_cue();
}

CHILD_TEST(a_joining_process_gets_a_clear_message) {
  helper other = helper_start(hold);
  helper_receive(&other);
  has_proc = false;
  require_message(openreg_initialize(), OPENREG_SYSTEM, "cannot reopen the control file");
  helper_dismiss(&other);
}

CHILD_TEST(an_exporter_gets_a_clear_message) {
  openreg_ipc_handle handle;
  char *base = base_of(1);
  has_proc = false;
  require_message(openreg_ipc_export(base, PAGE, 0, &handle), OPENREG_SYSTEM,
                  "cannot reopen the memory file of device 1");
}

CHILD_TEST(an_importer_gets_a_clear_message) {
  void *address;
  size_t bytes;
  int device;
  helper exporter = board_with(export_three);
  REQUIRE_OK(openreg_initialize());
  has_proc = false;
  require_message(openreg_ipc_open(&board->handles[0], 0, &address, &bytes, &device),
                  OPENREG_INVALID_ARGUMENT, "cannot open the memory file of process ");
  has_proc = true;
  open_memory(&board->handles[0]);
  has_proc = false;
  require_message(openreg_ipc_open(&board->handles[2], 0, &address, &bytes, &device),
                  OPENREG_SYSTEM, "cannot reopen the memory file of process ");
  helper_kill(&exporter);
}

CHILD_TEST(other_errors_are_reported_unchanged) {
  REQUIRE_OK(openreg_initialize());
  REQUIRE(strcmp(openreg_proc_error(EMFILE), strerror(EMFILE)) == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_first_process_of_a_group_gets_a_clear_message),
      cmocka_unit_test(a_joining_process_gets_a_clear_message),
      cmocka_unit_test(an_exporter_gets_a_clear_message),
      cmocka_unit_test(an_importer_gets_a_clear_message),
      cmocka_unit_test(other_errors_are_reported_unchanged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
