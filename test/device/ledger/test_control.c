/* Control files: which ones are rejected, and that two control files in use never have the same
 * name.
 */
#define _GNU_SOURCE
#include "helper.h"
#include "device/ledger/control.h"
#include "device/ledger/ledger.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

static const char *own_path(void) {
  return child_control_file(child_group());
}

static struct control_header two_devices(void) {
  struct control_header header = {.identity = 77, .device_count = 2};
  for (int i = 0; i < 2; i++) {
    header.devices[i].capacity_bytes = 64 * MIB;
    strcpy(header.devices[i].profile, "h100");
  }
  return header;
}

/* ---- rejected files -------------------------------------------------------------------------- */

static bool has_mapped(const char *name) {
  char line[512];
  bool found = false;
  FILE *maps = fopen("/proc/self/maps", "re");
  REQUIRE(maps != NULL);
  while (!found && fgets(line, sizeof line, maps) != NULL)
    found = strstr(line, name) != NULL;
  fclose(maps);
  return found;
}

/* Initialization fails with a message that names the file, and leaves nothing behind. It succeeds
 * once the file is removed. */
static void require_refused(const char *why) {
  int files_before = count_descriptors();
  REQUIRE(openreg_initialize() == OPENREG_INVALID_CONFIGURATION);
  REQUIRE(strstr(openreg_last_error(), own_path()) != NULL);
  REQUIRE(strstr(openreg_last_error(), why) != NULL);
  REQUIRE(strstr(openreg_last_error(), "remove it, or choose another OPENREG_GROUP") != NULL);
  REQUIRE(!openreg_is_initialized() && count_descriptors() == files_before);
  REQUIRE(!has_mapped("memfd:openreg") && !has_mapped("/dev/shm/openreg"));
  REQUIRE(openreg_kernel_offset == 0);
  REQUIRE(remove(own_path()) == 0);
  REQUIRE_OK(openreg_ledger_reserve(0, 64 * MIB));
}

/* Returns the file, which is complete before it gets its name. */
static int write_control_file(const struct control_header *header, off_t bytes) {
  char draft[256];
  snprintf(draft, sizeof draft, "/dev/shm/openreg-%u/.draft-%s", geteuid(), child_group());
  int file = open(draft, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  REQUIRE(file >= 0 && ftruncate(file, bytes) == 0);
  REQUIRE(pwrite(file, header, sizeof *header, 0) == sizeof *header);
  /* Simulates a process in the last slot: listing groups removes a control file without
   * processes. */
  struct flock life = {.l_type = F_WRLCK, .l_start = OPENREG_MAX_PROCESSES, .l_len = 1};
  REQUIRE(fcntl(file, F_OFD_SETLK, &life) == 0);
  REQUIRE(rename(draft, own_path()) == 0);
  return file;
}

static struct control_header sound_header(void) {
  struct control_header header = two_devices();
  strcpy(header.magic, "openreg");
  header.version = OPENREG_CONTROL_VERSION;
  header.control_bytes = sizeof(struct control);
  return header;
}

CHILD_TEST(a_valid_control_file_is_joined) {
  struct control_header header = sound_header();
  int file = write_control_file(&header, sizeof(struct control));
  REQUIRE_OK(openreg_initialize());
  REQUIRE(openreg_ledger_self().group == 77);
  close(file);
}

CHILD_TEST(a_symbolic_link_is_refused) {
  REQUIRE(symlink("/dev/zero", own_path()) == 0);
  require_refused("it is a symbolic link");
}

CHILD_TEST(a_folder_is_refused) {
  REQUIRE(mkdir(own_path(), 0700) == 0);
  require_refused("it is not a regular file");
}

CHILD_TEST(a_pipe_is_refused) {
  REQUIRE(mkfifo(own_path(), 0600) == 0);
  require_refused("it is not a regular file");
}

CHILD_TEST(a_control_file_that_others_may_use_is_refused) {
  struct control_header header = sound_header();
  write_control_file(&header, sizeof(struct control));
  REQUIRE(chmod(own_path(), 0640) == 0);
  require_refused("other users can access it (mode 640, not 600)");
}

CHILD_TEST(a_control_file_of_another_user_is_refused) {
  struct control_header header = sound_header();
  write_control_file(&header, sizeof(struct control));
  if (chown(own_path(), 4711, 0) != 0) { /* only root can do this */
    REQUIRE(unlink(own_path()) == 0);
    return;
  }
  require_refused("it belongs to user 4711, not to 0");
}

CHILD_TEST(a_control_file_that_is_too_short_is_refused) {
  struct control_header header = sound_header();
  write_control_file(&header, sizeof(struct control) - 1);
  require_refused("bytes, not ");
}

#define REFUSED_HEADER_TEST(name, change, why)                                                     \
  CHILD_TEST(name) {                                                                               \
    struct control_header header = sound_header();                                                 \
    change;                                                                                        \
    write_control_file(&header, sizeof(struct control));                                           \
    require_refused(why);                                                                          \
  }

REFUSED_HEADER_TEST(a_control_file_with_another_magic_is_rejected, header.magic[0] = 'O',
                    "it does not begin with 'openreg'")
REFUSED_HEADER_TEST(a_control_file_of_another_version_is_refused, header.version++,
                    "it has version 4")
REFUSED_HEADER_TEST(a_control_file_without_devices_is_refused, header.device_count = 0,
                    "it has 0 devices")
REFUSED_HEADER_TEST(a_control_file_with_too_many_devices_is_refused, header.device_count = 65,
                    "it has 65 devices")
REFUSED_HEADER_TEST(a_control_file_without_identity_is_refused, header.identity = 0,
                    "its counts are out of range")
REFUSED_HEADER_TEST(a_control_file_with_odd_capacities_is_refused,
                    header.devices[1].capacity_bytes++,
                    "device 1 has an invalid capacity of 67108865 bytes")
REFUSED_HEADER_TEST(a_control_file_with_impossible_nodes_is_refused,
                    header.devices[0].numa_node = -2, "device 0 has an invalid NUMA node, -2")
REFUSED_HEADER_TEST(a_control_file_with_unterminated_names_is_refused,
                    memset(header.devices[1].cpuset, '1', sizeof header.devices[1].cpuset),
                    "a name of device 1 is not terminated")

/* ---- other devices --------------------------------------------------------------------------- */

static void hold_other_devices(void) {
  REQUIRE(setenv("OPENREG_DEVICE_COUNT", "3", 1) == 0);
  REQUIRE(setenv("OPENREG_PROFILE", "t4,h100,h100", 1) == 0);
  REQUIRE_OK(openreg_initialize());
  report(0);
  await_cue();
}

CHILD_TEST(a_group_of_processes_with_other_devices_is_refused) {
  helper other = helper_start(hold_other_devices);
  helper_receive(&other);
  REQUIRE(openreg_initialize() == OPENREG_INVALID_CONFIGURATION);
  char expected[1024];
  snprintf(expected, sizeof expected,
           "openreg: OPENREG_GROUP=%s: running processes of this group have t4 of 64 MiB, 2 x h100 "
           "of 64 MiB, but this process is configured for 2 x h100 of 64 MiB; use their "
           "configuration, or choose another OPENREG_GROUP",
           getenv("OPENREG_GROUP"));
  REQUIRE(strcmp(openreg_last_error(), expected) == 0);
  helper_kill(&other);
  REQUIRE_OK(openreg_ledger_reserve(1, 64 * MIB));
}

/* ---- names ----------------------------------------------------------------------------------- */

static void open_and_report_control_file(void) {
  report(0);
  REQUIRE_OK(openreg_initialize());
  report(openreg_ledger_self().group);
}

/* It waits for the control file, or opens it later. */
CHILD_TEST(a_control_file_that_is_retired_while_it_is_opened_is_not_entered) {
  struct control_header header = two_devices();
  struct control_file file;
  REQUIRE_OK(openreg_control_create(child_group(), &header));
  REQUIRE_OK(openreg_control_open(child_group(), CONTROL_WAIT_FOREVER, &file));
  helper other = helper_start(open_and_report_control_file);
  helper_receive(&other);
  openreg_control_retire(&file);
  openreg_control_close(&file);
  REQUIRE(helper_receive(&other) != 77);
  helper_finish(&other);
}

CHILD_TEST(a_control_file_without_its_name_still_serves_its_processes) {
  REQUIRE_OK(openreg_ledger_reserve(0, 10 * MIB));
  REQUIRE(unlink(own_path()) == 0);
  REQUIRE_OK(openreg_ledger_reserve(0, 54 * MIB));
  REQUIRE(openreg_ledger_reserve(0, 1) == OPENREG_OUT_OF_MEMORY);
}

static void join_and_wait(void) {
  REQUIRE_OK(openreg_initialize());
  report(openreg_ledger_self().group);
  await_cue();
}

CHILD_TEST(retiring_leaves_a_name_that_another_control_file_has) {
  helper first = helper_start(join_and_wait);
  uint64_t first_control_file = helper_receive(&first);
  REQUIRE(unlink(own_path()) == 0);
  helper second = helper_start(join_and_wait);
  uint64_t second_control_file = helper_receive(&second);
  REQUIRE(first_control_file != second_control_file);
  helper_dismiss(&first);
  helper third = helper_start(join_and_wait);
  REQUIRE(helper_receive(&third) == second_control_file);
  helper_kill(&second);
  helper_kill(&third);
}

static void open_or_make(struct control_file *file) {
  struct control_header header = two_devices();
  openreg_status status;
  while ((status = openreg_control_open(child_group(), CONTROL_WAIT_FOREVER, file)) ==
         OPENREG_NOT_READY)
    REQUIRE_OK(openreg_control_create(child_group(), &header));
  REQUIRE_OK(status);
}

static void require_own_control_file_has_the_name(const struct control_file *file) {
  struct stat named, opened;
  REQUIRE(stat(own_path(), &named) == 0 && fstat(file->locks, &opened) == 0);
  REQUIRE(named.st_ino == opened.st_ino);
}

static void come_and_go(void) {
  for (int i = 0; i < 300; i++) {
    struct control_file file;
    int slot = 0;
    open_or_make(&file);
    while (!openreg_control_claim_slot(&file, slot))
      slot++;
    openreg_control_unlock(&file);
    require_own_control_file_has_the_name(&file);
    REQUIRE_OK(openreg_control_lock(&file));
    require_own_control_file_has_the_name(&file);
    if (!openreg_control_has_others(&file))
      openreg_control_retire(&file);
    openreg_control_close(&file);
  }
}

CHILD_TEST(processes_that_come_and_go_at_once_are_never_in_two_control_files) {
  enum { PROCESSES = 4 };
  helper helpers[PROCESSES];
  for (int i = 0; i < PROCESSES; i++)
    helpers[i] = helper_start(come_and_go);
  for (int i = 0; i < PROCESSES; i++)
    helper_finish(&helpers[i]);
  REQUIRE(access(own_path(), F_OK) != 0);
}

/* ---- truncated files ------------------------------------------------------------------------- */

/* Other tests list all groups at the same time. They open the file only while it has its name, and
 * use it only under its lock. */
static void take_after_another_made_it_shorter(void) {
  REQUIRE_OK(openreg_initialize());
  struct control_file file;
  REQUIRE_OK(openreg_control_open(child_group(), CONTROL_WAIT_FOREVER, &file));
  REQUIRE(unlink(own_path()) == 0);
  REQUIRE(ftruncate(file.locks, 0) == 0);
  openreg_control_close(&file);
  fprintf(stderr, "made %s shorter\n", own_path());
  fflush(stderr);
  (void)openreg_ledger_reserve(0, MIB);
}

static void truncating_the_control_file_ends_its_processes_with_a_message(void **state) {
  (void)state;
  child_result result;
  char path[256] = "", expected[1024];
  child_expect_signal(&result, SIGBUS, take_after_another_made_it_shorter, SMALL_DEVICES);
  const char *message = strstr(result.errors, "truncated /dev/shm/");
  assert_non_null(message);
  assert_int_equal(sscanf(message, "truncated %255[^:]", path), 1);
  snprintf(expected, sizeof expected,
           "openreg: another program truncated %s: processes that share devices through this file "
           "cannot continue; end them and remove the file\n",
           path);
  assert_non_null(strstr(result.errors, expected));
}

/* ---- a full control file --------------------------------------------------------------------- */

CHILD_TEST(one_process_too_many_gets_an_error) {
  struct control_file file;
  open_or_make(&file);
  for (int i = 0; i < OPENREG_MAX_PROCESSES; i++) {
    REQUIRE(openreg_control_claim_slot(&file, i));
    openreg_control_set_identity(&file, i, 1 + (uint64_t)i);
    openreg_control_set_bytes(&file, 1, i, 1024);
  }
  openreg_control_set_used_slots(&file, OPENREG_MAX_PROCESSES);
  REQUIRE(openreg_control_sum(&file, 1) == 1 * MIB);
  openreg_control_unlock(&file);
  REQUIRE(openreg_initialize() == OPENREG_OUT_OF_MEMORY);
  REQUIRE(strcmp(openreg_last_error(),
                 "openreg: this group already has 1024 processes, the maximum; "
                 "end some of them, or choose another OPENREG_GROUP") == 0);
  openreg_control_release_slot(&file, 1000);
  REQUIRE_OK(openreg_initialize());
  REQUIRE(openreg_ledger_self().slot == 1000);
  uint64_t free_bytes, total_bytes;
  REQUIRE_OK(openreg_ledger_query(1, &free_bytes, &total_bytes));
  REQUIRE(free_bytes == 63 * MIB + 1024);
  openreg_control_close(&file);
  REQUIRE_OK(openreg_ledger_reserve(1, 64 * MIB));
}

/* Tests put their own files into it. */
static int make_folder(void **state) {
  (void)state;
  return openreg_control_make_folder() == OPENREG_OK ? 0 : -1;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_valid_control_file_is_joined),
      cmocka_unit_test(a_symbolic_link_is_refused),
      cmocka_unit_test(a_folder_is_refused),
      cmocka_unit_test(a_pipe_is_refused),
      cmocka_unit_test(a_control_file_that_others_may_use_is_refused),
      cmocka_unit_test(a_control_file_of_another_user_is_refused),
      cmocka_unit_test(a_control_file_that_is_too_short_is_refused),
      cmocka_unit_test(a_control_file_with_another_magic_is_rejected),
      cmocka_unit_test(a_control_file_of_another_version_is_refused),
      cmocka_unit_test(a_control_file_without_devices_is_refused),
      cmocka_unit_test(a_control_file_with_too_many_devices_is_refused),
      cmocka_unit_test(a_control_file_without_identity_is_refused),
      cmocka_unit_test(a_control_file_with_odd_capacities_is_refused),
      cmocka_unit_test(a_control_file_with_impossible_nodes_is_refused),
      cmocka_unit_test(a_control_file_with_unterminated_names_is_refused),
      cmocka_unit_test(a_group_of_processes_with_other_devices_is_refused),
      cmocka_unit_test(a_control_file_that_is_retired_while_it_is_opened_is_not_entered),
      cmocka_unit_test(a_control_file_without_its_name_still_serves_its_processes),
      cmocka_unit_test(retiring_leaves_a_name_that_another_control_file_has),
      cmocka_unit_test(processes_that_come_and_go_at_once_are_never_in_two_control_files),
      cmocka_unit_test(truncating_the_control_file_ends_its_processes_with_a_message),
      cmocka_unit_test(one_process_too_many_gets_an_error),
  };
  return cmocka_run_group_tests(tests, make_folder, NULL);
}
