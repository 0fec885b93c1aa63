/* Placement of devices on synthetic machines of hwloc. */
#define _GNU_SOURCE
#include "child.h"
#include "device/memory/topology.h"

#include <dirent.h>
#include <hwloc.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *cores_of(int device) {
  static openreg_device_properties properties;
  REQUIRE_OK(openreg_device_get_properties(device, &properties));
  return properties.cpuset;
}

static int node_of(int device) {
  openreg_device_properties properties;
  REQUIRE_OK(openreg_device_get_properties(device, &properties));
  return properties.numa_node;
}

static void require_working(int device) {
  char there[] = "there and back", back[sizeof there] = "";
  void *base;
  size_t bytes;
  REQUIRE_OK(openreg_arena_get(device, &base, &bytes));
  REQUIRE_OK(openreg_copy(base, there, sizeof there));
  REQUIRE_OK(openreg_copy(back, base, sizeof back));
  REQUIRE(strcmp(there, back) == 0);
}

/* 2 packages of 4 nodes of 16 cores: core c is on node c / 16. */
#define LARGE_MACHINE "HWLOC_SYNTHETIC=pack:2 numa:4 core:16 pu:1"
#define HYPERTHREADS  "HWLOC_SYNTHETIC=pack:2 numa:4 core:16 pu:2"
enum { LARGE_NODES = 8, LARGE_CORES = 128 };

static void eight_devices_on_eight_nodes_body(void) {
  static const char *const expected[] = {"0-15",  "16-31", "32-47",  "48-63",
                                         "64-79", "80-95", "96-111", "112-127"};
  for (int i = 0; i < 8; i++) {
    REQUIRE(strcmp(cores_of(i), expected[i]) == 0);
    REQUIRE(node_of(i) == i);
  }
}

static void each_device_gets_a_node_when_there_are_as_many(void **state) {
  (void)state;
  child_expect_pass(
      eight_devices_on_eight_nodes_body,
      ENVIRONMENT("OPENREG_DEVICE_COUNT=8", "OPENREG_DEVICE_MEMORY=2M", LARGE_MACHINE));
}

/* Every thread of the machine belongs to one device, cores are not divided, shares differ by at
 * most one core, and each device is placed on the node of its first core. */
static void require_shares(int threads_of_a_core) {
  int count, covered = 0;
  hwloc_bitmap_t cores = hwloc_bitmap_alloc();
  REQUIRE_OK(openreg_device_count(&count));
  for (int i = 0; i < count; i++) {
    REQUIRE(hwloc_bitmap_list_sscanf(cores, cores_of(i)) == 0);
    int threads = hwloc_bitmap_weight(cores);
    REQUIRE(threads % threads_of_a_core == 0 && covered % threads_of_a_core == 0);
    REQUIRE(threads / threads_of_a_core == LARGE_CORES / count ||
            threads / threads_of_a_core == LARGE_CORES / count + 1);
    REQUIRE(hwloc_bitmap_first(cores) == covered);
    REQUIRE(hwloc_bitmap_last(cores) == covered + threads - 1);
    REQUIRE(node_of(i) == covered / (LARGE_CORES / LARGE_NODES * threads_of_a_core));
    covered += threads;
  }
  REQUIRE(covered == LARGE_CORES * threads_of_a_core);
  hwloc_bitmap_free(cores);
}

static void shares_of_cores_body(void) {
  require_shares(1);
}

static void shares_of_threads_body(void) {
  require_shares(2);
}

static void any_number_of_devices_has_equal_shares_of_whole_cores(void **state) {
  (void)state;
  static const char *const counts[] = {"1", "2", "3", "5", "8", "48", "64"};
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
    char count[64];
    snprintf(count, sizeof count, "OPENREG_DEVICE_COUNT=%s", counts[i]);
    child_expect_pass(shares_of_cores_body,
                      ENVIRONMENT(count, "OPENREG_DEVICE_MEMORY=2M", LARGE_MACHINE));
    child_expect_pass(shares_of_threads_body,
                      ENVIRONMENT(count, "OPENREG_DEVICE_MEMORY=2M", HYPERTHREADS));
  }
}

static void two_devices_on_two_packages_body(void) {
  REQUIRE(strcmp(cores_of(0), "0-7") == 0);
  REQUIRE(strcmp(cores_of(1), "8-15") == 0);
}

static void devices_share_the_machine_equally(void **state) {
  (void)state;
  child_expect_pass(two_devices_on_two_packages_body,
                    ENVIRONMENT("OPENREG_DEVICE_COUNT=2", "OPENREG_DEVICE_MEMORY=2M",
                                "HWLOC_SYNTHETIC=package:2 numa:1 core:8 pu:1"));
}

static void eight_devices_on_four_cores_body(void) {
  static const char *const cores[] = {"0-1", "2-3", "4-5", "6-7"};
  for (int i = 0; i < 8; i++)
    REQUIRE(strcmp(cores_of(i), cores[i / 2]) == 0);
}

static void more_devices_than_cores_share_whole_cores(void **state) {
  (void)state;
  child_expect_pass(eight_devices_on_four_cores_body,
                    ENVIRONMENT("OPENREG_DEVICE_COUNT=8", "OPENREG_DEVICE_MEMORY=2M",
                                "HWLOC_SYNTHETIC=package:2 core:2 pu:2"));
}

/* From linux/mempolicy.h: policies, and the flag for querying the policy of an address. */
enum { SYSTEM_DEFAULT, PREFERRED, OF_ADDRESS = 1 << 1 };

/* The nodes from which memory at an address comes, one bit each, queried without hwloc; 0: any. */
static unsigned long nodes_behind(const void *device_address) {
  int policy;
  unsigned long nodes[16] = {0};
  const void *address = openreg_kernel_view(device_address);
  bool reported =
      syscall(SYS_get_mempolicy, &policy, nodes, sizeof nodes * 8, address, OF_ADDRESS) == 0;
  return reported && policy != SYSTEM_DEFAULT ? nodes[0] : 0;
}

/* Whether the system can bind to a node, queried without hwloc. */
static bool system_binds_to(int node) {
  unsigned long mask = 1ul << node;
  void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  long result = syscall(SYS_mbind, page, 4096ul, PREFERRED, &mask, sizeof mask * 8, 0u);
  munmap(page, 4096);
  return result == 0;
}

static void on_an_imagined_machine_body(void) {
  for (int i = 0; i < 2; i++) {
    REQUIRE(node_of(i) == i);
    require_working(i);
    void *base;
    size_t bytes;
    REQUIRE_OK(openreg_arena_get(i, &base, &bytes));
    REQUIRE(nodes_behind(base) == 0);
  }
}

static void nothing_is_bound_to_a_synthetic_machine(void **state) {
  (void)state;
  child_expect_pass(on_an_imagined_machine_body,
                    ENVIRONMENT("OPENREG_DEVICE_COUNT=2", "OPENREG_DEVICE_MEMORY=2M",
                                "HWLOC_SYNTHETIC=numa:2 core:2 pu:1"));
}

static void bound_or_refused_body(void) {
  for (int i = 0; i < 2; i++) {
    void *base;
    size_t bytes;
    REQUIRE_OK(openreg_arena_get(i, &base, &bytes));
    REQUIRE(nodes_behind(base) == (system_binds_to(i) ? 1ul << i : 0));
    REQUIRE(node_of(i) == i);
    require_working(i);
  }
}

static void a_device_is_bound_to_its_node_and_works_where_that_is_refused(void **state) {
  (void)state;
  child_expect_pass(bound_or_refused_body,
                    ENVIRONMENT("OPENREG_DEVICE_COUNT=2", "OPENREG_DEVICE_MEMORY=2M",
                                "HWLOC_SYNTHETIC=numa:2 core:2 pu:1", "HWLOC_THISSYSTEM=1"));
}

static void without_topology_body(void) {
  REQUIRE(openreg_topology_load(2) == NULL);
  for (int i = 0; i < 2; i++) {
    REQUIRE(strcmp(cores_of(i), "") == 0);
    REQUIRE(node_of(i) == -1);
    require_working(i);
  }
}

static void devices_work_on_a_machine_that_cannot_be_described(void **state) {
  (void)state;
  child_expect_pass(
      without_topology_body,
      ENVIRONMENT("OPENREG_DEVICE_COUNT=2", "OPENREG_DEVICE_MEMORY=2M", "HWLOC_COMPONENTS=stop"));
}

static void working_body(void) {
  for (int i = 0; i < 2; i++) {
    REQUIRE(node_of(i) >= -1);
    require_working(i);
  }
}

static void devices_work_without_the_requested_topology(void **state) {
  (void)state;
  static const char *const descriptions[] = {
      "HWLOC_XMLFILE=/nonexistent", "HWLOC_XMLFILE=/dev/null", "HWLOC_SYNTHETIC=no machine"};
  for (size_t i = 0; i < sizeof descriptions / sizeof descriptions[0]; i++)
    child_expect_pass(working_body, ENVIRONMENT("OPENREG_DEVICE_COUNT=2",
                                                "OPENREG_DEVICE_MEMORY=2M", descriptions[i]));
}

static void a_list_too_long_body(void) {
  char list[256];
  openreg_topology *topology = openreg_topology_load(2);
  REQUIRE(topology != NULL);
  openreg_topology_list_cores(topology, 0, list, sizeof list);
  REQUIRE(strcmp(list, "0,2,4,6,8,10,12,14") == 0);
  openreg_topology_list_cores(topology, 0, list, 13);
  REQUIRE(strcmp(list, "0,2,4,6,8") == 0);
  openreg_topology_list_cores(topology, 0, list, 2);
  REQUIRE(strcmp(list, "") == 0);
  openreg_topology_free(topology);
}

static void a_list_of_cores_too_long_is_cut_after_a_whole_range(void **state) {
  (void)state;
  child_expect_pass(
      a_list_too_long_body,
      ENVIRONMENT("HWLOC_SYNTHETIC=package:2 core:8 pu:1(indexes=0,2,4,6,8,10,12,14,1,3,5,7,"
                  "9,11,13,15)"));
}

static void on_this_machine_body(void) {
  int count;
  REQUIRE_OK(openreg_device_count(&count));
  for (int i = 0; i < count; i++) {
    REQUIRE(strlen(cores_of(i)) > 0);
    REQUIRE(node_of(i) >= 0);
    require_working(i);
  }
}

static void devices_on_this_machine_have_cores(void **state) {
  (void)state;
  child_expect_pass(on_this_machine_body, SMALL_DEVICES);
}

static openreg_status note_cores(void *cores) {
  REQUIRE(sched_getaffinity(0, sizeof(cpu_set_t), cores) == 0);
  return OPENREG_OK;
}

static void require_worker_on(int device, const cpu_set_t *expected) {
  cpu_set_t cores;
  REQUIRE_OK(openreg_stream_launch(device, 0, note_cores, &cores));
  REQUIRE_OK(openreg_stream_synchronize(device, 0));
  REQUIRE(CPU_EQUAL(&cores, expected));
}

static void workers_on_their_cores_body(void) {
  for (int device = 0; device < 2; device++) {
    cpu_set_t allowed, expected;
    hwloc_bitmap_t cores = hwloc_bitmap_alloc();
    note_cores(&allowed);
    CPU_ZERO(&expected);
    REQUIRE(hwloc_bitmap_list_sscanf(cores, cores_of(device)) == 0);
    for (int i = 0; i < CPU_SETSIZE; i++)
      if (CPU_ISSET(i, &allowed) && hwloc_bitmap_isset(cores, (unsigned)i))
        CPU_SET(i, &expected);
    hwloc_bitmap_free(cores);
    require_worker_on(device, CPU_COUNT(&expected) > 0 ? &expected : &allowed);
  }
}

static void workers_run_on_the_cores_of_their_device(void **state) {
  (void)state;
  child_expect_pass(workers_on_their_cores_body, SMALL_DEVICES);
  child_expect_pass(workers_on_their_cores_body,
                    ENVIRONMENT("OPENREG_DEVICE_MEMORY=64M", "OPENREG_VISIBLE_DEVICES=1,0"));
}

/* Restricts all threads of this process; a sanitizer may have started one. */
static void confine_to(const cpu_set_t *cores) {
  DIR *tasks = opendir("/proc/self/task");
  REQUIRE(tasks != NULL);
  for (struct dirent *entry; (entry = readdir(tasks)) != NULL;)
    if (entry->d_name[0] != '.')
      REQUIRE(sched_setaffinity(atoi(entry->d_name), sizeof *cores, cores) == 0);
  closedir(tasks);
}

CHILD_TEST(workers_stay_on_the_cores_to_which_the_process_is_confined) {
  cpu_set_t allowed, one;
  note_cores(&allowed);
  int core = 0;
  while (!CPU_ISSET(core, &allowed))
    core++;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  confine_to(&one);
  require_worker_on(0, &one);
  require_worker_on(1, &one);
}

static void workers_on_an_imagined_machine_body(void) {
  cpu_set_t allowed;
  note_cores(&allowed);
  require_worker_on(0, &allowed);
}

static void workers_are_not_bound_to_cores_of_a_synthetic_machine(void **state) {
  (void)state;
  child_expect_pass(
      workers_on_an_imagined_machine_body,
      ENVIRONMENT("OPENREG_DEVICE_MEMORY=2M", "HWLOC_SYNTHETIC=package:2 numa:1 core:8 pu:1"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_device_gets_a_node_when_there_are_as_many),
      cmocka_unit_test(any_number_of_devices_has_equal_shares_of_whole_cores),
      cmocka_unit_test(devices_share_the_machine_equally),
      cmocka_unit_test(more_devices_than_cores_share_whole_cores),
      cmocka_unit_test(nothing_is_bound_to_a_synthetic_machine),
      cmocka_unit_test(a_device_is_bound_to_its_node_and_works_where_that_is_refused),
      cmocka_unit_test(devices_work_on_a_machine_that_cannot_be_described),
      cmocka_unit_test(devices_work_without_the_requested_topology),
      cmocka_unit_test(a_list_of_cores_too_long_is_cut_after_a_whole_range),
      cmocka_unit_test(devices_on_this_machine_have_cores),
      cmocka_unit_test(workers_run_on_the_cores_of_their_device),
      cmocka_unit_test(workers_stay_on_the_cores_to_which_the_process_is_confined),
      cmocka_unit_test(workers_are_not_bound_to_cores_of_a_synthetic_machine),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
