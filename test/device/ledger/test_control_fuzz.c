/* Control files with random bytes: numbers may be wrong, but no process crashes or accesses other
 * memory.
 */
#define _GNU_SOURCE
#include "helper.h"
#include "device/ledger/control.h"
#include "device/ledger/ledger.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MIB = 1 << 20, ROUNDS = 3000, JOINS = 100, SEED = 20260714 };

static uint64_t random_state = SEED;

static uint32_t random_below(uint64_t end) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((random_state >> 32) * end >> 32);
}

/* Sorts after the groups of other tests; otherwise it would be listed before them. */
static void choose_group(void) {
  char group[32];
  snprintf(group, sizeof group, "z-test-%d", (int)getpid());
  REQUIRE(setenv("OPENREG_GROUP", group, 1) == 0);
}

static void hold(void) {
  REQUIRE_OK(openreg_ledger_reserve(0, 8 * MIB));
  report(0);
  await_cue();
}

/* ---- mutations ------------------------------------------------------------------------------- */

/* Chooses header, slots and numbers with equal probability, although the numbers fill most of the
 * file. Within each, chooses one of the first bytes. */
static size_t random_place(void) {
  static const size_t regions[][2] = {
      {0, 32},
      {0, sizeof(struct control_header)},
      {offsetof(struct control, used_slots), 8},
      {offsetof(struct control, sampled_until_ns),
       offsetof(struct control, processes) - offsetof(struct control, sampled_until_ns)},
      {offsetof(struct control, processes), 2 * sizeof(struct control_record)},
      {offsetof(struct control, processes), sizeof(((struct control *)0)->processes)},
      {offsetof(struct control, bytes), 64},
      {offsetof(struct control, bytes), sizeof(((struct control *)0)->bytes)},
  };
  const size_t *region = regions[random_below(sizeof regions / sizeof regions[0])];
  return region[0] + random_below(region[1]);
}

static void mutate(unsigned char *bytes) {
  static const unsigned char edges[] = {0x00, 0xFF, 0x7F, 0x80, 0x01};
  for (uint32_t count = 1 + random_below(4); count > 0; count--) {
    size_t place = random_place(), length = 1 + random_below(16);
    unsigned char value = edges[random_below(sizeof edges)];
    bool is_random = random_below(2) != 0;
    for (size_t i = place; i < place + length && i < sizeof(struct control); i++)
      bytes[i] = is_random ? (unsigned char)random_below(256) : value;
  }
}

/* Does not change the size: mapped memory without a file behind it is fatal, as control.h says. */
static unsigned char *map_own_control_file(void) {
  int file = open(child_control_file(child_group()), O_RDWR | O_CLOEXEC);
  REQUIRE(file >= 0);
  void *bytes = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  REQUIRE(bytes != MAP_FAILED);
  close(file);
  return bytes;
}

/* A control file with another process in it, and a copy of its valid contents. */
typedef struct kept_control {
  helper process; /* keeps the control file from being removed */
  unsigned char *bytes, *sound;
} kept_control;

static kept_control keep_own_control_file(void) {
  choose_group();
  kept_control kept = {.process = helper_start(hold)};
  helper_receive(&kept.process);
  kept.bytes = map_own_control_file();
  kept.sound = malloc(sizeof(struct control));
  REQUIRE(kept.sound != NULL);
  memcpy(kept.sound, kept.bytes, sizeof(struct control));
  return kept;
}

static void mend(const kept_control *kept) {
  memcpy(kept->bytes, kept->sound, sizeof(struct control));
}

static void released(kept_control *kept) {
  helper_dismiss(&kept->process);
  munmap(kept->bytes, sizeof(struct control));
  free(kept->sound);
}

static void look_at_everything(void) {
  openreg_ledger_snapshot *snapshots;
  int count;
  const char *problem;
  REQUIRE_OK(openreg_ledger_list(&snapshots, &count, &problem));
  for (int i = 0; i < count; i++) {
    REQUIRE(snapshots[i].device_count >= 1 && snapshots[i].device_count <= OPENREG_MAX_DEVICES);
    for (int device = 0; device < snapshots[i].device_count; device++)
      REQUIRE(snapshots[i].devices[device].used_bytes <= snapshots[i].devices[device].total_bytes);
    for (int process = 0; process < snapshots[i].process_count; process++)
      REQUIRE(strlen(snapshots[i].processes[process].name) < OPENREG_NAME_BYTES);
  }
  openreg_ledger_free_snapshots(snapshots, count);
}

/* Opens the file like joining and querying processes; every tenth time also like a listing process,
 * which opens the control files of all tests that run at the time. */
static void open_own_control_file(int round) {
  char group[OPENREG_GROUP_NAME_BYTES];
  struct control_file file;
  snprintf(group, sizeof group, "group-%s", getenv("OPENREG_GROUP"));
  openreg_status status = openreg_control_open(group, CONTROL_WAIT_FOREVER, &file);
  REQUIRE(status == OPENREG_OK || status == OPENREG_INVALID_CONFIGURATION);
  if (status == OPENREG_OK) {
    openreg_control_reclaim(&file);
    (void)openreg_control_sum(&file, round % OPENREG_MAX_DEVICES);
    openreg_control_close(&file);
  }
  if (round % 10 == 0)
    look_at_everything();
}

/* ---- tests ----------------------------------------------------------------------------------- */

CHILD_TEST(snapshots_of_mutated_control_files) {
  kept_control kept = keep_own_control_file();
  for (int i = 0; i < ROUNDS; i++) {
    mutate(kept.bytes);
    open_own_control_file(i);
    mend(&kept);
  }
  look_at_everything();
  released(&kept);
}

static void mutate_until_killed(void) {
  unsigned char *bytes = map_own_control_file();
  report(0);
  for (;;)
    mutate(bytes);
}

CHILD_TEST(snapshots_while_another_process_mutates_the_control_file) {
  kept_control kept = keep_own_control_file();
  helper mutator = helper_start(mutate_until_killed);
  helper_receive(&mutator);
  for (int i = 0; i < ROUNDS; i++) {
    mend(&kept); /* makes it likely that the file is valid while it is checked */
    open_own_control_file(i);
  }
  helper_kill(&mutator);
  mend(&kept);
  released(&kept);
}

static void join(void) {
  openreg_status status = openreg_ledger_reserve(0, 1 * MIB);
  REQUIRE(status == OPENREG_OK || status == OPENREG_INVALID_CONFIGURATION ||
          status == OPENREG_OUT_OF_MEMORY);
  if (status == OPENREG_OK)
    openreg_ledger_release(0, 1 * MIB);
}

CHILD_TEST(processes_that_join_mutated_control_files) {
  kept_control kept = keep_own_control_file();
  for (int i = 0; i < JOINS; i++) {
    mutate(kept.bytes);
    helper next = helper_start(join);
    helper_finish(&next);
    mend(&kept);
  }
  released(&kept);
  unlink(child_control_file(child_group()));
}

static openreg_peer random_peer(openreg_peer self) {
  openreg_peer peer = self;
  peer.slot = random_below(2) != 0 ? random_below(4) : random_below(UINT64_C(1) << 32);
  return peer;
}

/* A process can release what it reserved, whatever the control file says. */
static void use(void) {
  uint64_t bytes = random_below(2 * MIB), free_bytes, total_bytes;
  int device = (int)random_below(2);
  openreg_status status = openreg_ledger_reserve(device, bytes);
  REQUIRE(status == OPENREG_OK || status == OPENREG_OUT_OF_MEMORY);
  REQUIRE_OK(openreg_ledger_query(device, &free_bytes, &total_bytes));
  REQUIRE(total_bytes == 64 * MIB && free_bytes <= total_bytes);
  if (status == OPENREG_OK)
    openreg_ledger_release(device, bytes);
  openreg_peer peer = random_peer(openreg_ledger_self());
  openreg_peer_location file;
  if (openreg_ledger_find_peer(peer, device, &file))
    REQUIRE(file.pid > 0 && file.file >= 0);
  (void)openreg_ledger_is_alive(peer);
  if (openreg_ledger_pin_record(peer) == OPENREG_OK)
    openreg_ledger_unpin_record(peer);
  if (peer.slot != openreg_ledger_self().slot)
    REQUIRE_OK(openreg_ledger_set_orphaned_bytes(peer, device, bytes));
}

CHILD_TEST(processes_in_a_control_file_that_is_mutated) {
  choose_group();
  REQUIRE_OK(openreg_initialize());
  unsigned char *bytes = map_own_control_file();
  for (int i = 0; i < ROUNDS; i++) {
    mutate(bytes);
    use();
    use();
  }
  unlink(child_control_file(child_group()));
  munmap(bytes, sizeof(struct control));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(snapshots_of_mutated_control_files),
      cmocka_unit_test(snapshots_while_another_process_mutates_the_control_file),
      cmocka_unit_test(processes_that_join_mutated_control_files),
      cmocka_unit_test(processes_in_a_control_file_that_is_mutated),
  };
  print_message("seed %d\n", SEED);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
