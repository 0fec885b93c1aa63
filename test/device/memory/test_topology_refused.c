/* Where the system refuses to place devices: they work, and a person is told why, once.
 *
 * hwloc's functions that bind are the test's own; the machine is one that hwloc is told to imagine
 * and to take for this one. */
#include "child.h"
#include "device/memory/topology.h"

#include <errno.h>
#include <hwloc.h>
#include <string.h>

int __wrap_hwloc_set_cpubind(hwloc_topology_t machine, hwloc_const_cpuset_t cores, int flags);
int __wrap_hwloc_set_area_membind(hwloc_topology_t machine, const void *address, size_t bytes,
                                  hwloc_const_bitmap_t nodes, hwloc_membind_policy_t policy,
                                  int flags);

static bool refuses_memory, refuses_cores;

int __wrap_hwloc_set_cpubind(hwloc_topology_t machine, hwloc_const_cpuset_t cores, int flags) {
  (void)machine, (void)cores, (void)flags;
  errno = EPERM;
  return refuses_cores ? -1 : 0;
}

int __wrap_hwloc_set_area_membind(hwloc_topology_t machine, const void *address, size_t bytes,
                                  hwloc_const_bitmap_t nodes, hwloc_membind_policy_t policy,
                                  int flags) {
  (void)machine, (void)address, (void)bytes, (void)nodes, (void)policy, (void)flags;
  errno = ENOSYS;
  return refuses_memory ? -1 : 0;
}

static openreg_status nothing(void *data) {
  (void)data;
  return OPENREG_OK;
}

static void use_workers(void) {
  for (int device = 0; device < 2; device++) {
    REQUIRE_OK(openreg_stream_launch(device, 0, nothing, NULL));
    REQUIRE_OK(openreg_stream_synchronize(device, 0));
  }
}

static void refuse_memory(void) {
  refuses_memory = true;
  use_workers();
}

static void refuse_cores(void) {
  refuses_cores = true;
  use_workers();
}

static void refuse_both(void) {
  refuses_memory = refuses_cores = true;
  use_workers();
}

static void load_again(void) {
  REQUIRE(openreg_topology_load(2) == NULL);
  use_workers();
}

static void expect_said(void (*body)(void), const char *const variables[], const char *said) {
  child_result result;
  child_run(&result, body, variables);
  assert_int_equal(result.wait_status, 0);
  assert_string_equal(result.errors, said);
}

#define TWO_NODES(...)                                                                             \
  ENVIRONMENT("OPENREG_DEVICE_COUNT=2", "OPENREG_DEVICE_MEMORY=2M",                                \
              "HWLOC_SYNTHETIC=numa:2 core:2 pu:1", __VA_ARGS__)

static const char memory_said[] =
    "openreg: the memory of devices cannot be bound to their NUMA nodes (Function not implemented):"
    " devices work without it, perhaps slower\n";

static void memory_that_cannot_be_bound_is_said(void **state) {
  (void)state;
  expect_said(refuse_memory, TWO_NODES("HWLOC_THISSYSTEM=1"), memory_said);
}

static void threads_that_cannot_be_bound_are_said(void **state) {
  (void)state;
  expect_said(refuse_cores, TWO_NODES("HWLOC_THISSYSTEM=1"),
              "openreg: threads of devices cannot be bound to their cores (Operation not "
              "permitted): devices work without it, perhaps slower\n");
}

static void one_line_is_said_in_all(void **state) {
  (void)state;
  expect_said(refuse_both, TWO_NODES("HWLOC_THISSYSTEM=1"), memory_said);
}

static void a_machine_that_cannot_be_described_is_said_once(void **state) {
  (void)state;
  expect_said(load_again, ENVIRONMENT("OPENREG_DEVICE_MEMORY=2M", "HWLOC_COMPONENTS=stop"),
              "openreg: devices are not placed on this machine's cores and memory (hwloc cannot "
              "describe it): devices work without it, perhaps slower\n");
}

static void of_another_machine_nothing_is_said(void **state) {
  (void)state;
  expect_said(refuse_both, TWO_NODES("HWLOC_THISSYSTEM=0"), "");
}

static void where_nothing_is_refused_nothing_is_said(void **state) {
  (void)state;
  expect_said(use_workers, TWO_NODES("HWLOC_THISSYSTEM=1"), "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_that_cannot_be_bound_is_said),
      cmocka_unit_test(threads_that_cannot_be_bound_are_said),
      cmocka_unit_test(one_line_is_said_in_all),
      cmocka_unit_test(a_machine_that_cannot_be_described_is_said_once),
      cmocka_unit_test(of_another_machine_nothing_is_said),
      cmocka_unit_test(where_nothing_is_refused_nothing_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
