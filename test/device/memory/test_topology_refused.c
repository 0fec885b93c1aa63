/* The system refuses to bind devices: they still work, and the user gets one message with the
 * reason.
 *
 * The test replaces hwloc's binding functions. The machine is synthetic, and hwloc treats it as
 * this machine.
 */
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

static void invalidate_memory(void) {
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

static const char memory_said[] = "openreg: cannot bind device memory to NUMA nodes (Function not "
                                  "implemented); devices still work, but may be slower\n";

static void memory_that_cannot_be_bound_is_reported(void **state) {
  (void)state;
  expect_said(invalidate_memory, TWO_NODES("HWLOC_THISSYSTEM=1"), memory_said);
}

static void threads_that_cannot_be_bound_are_reported(void **state) {
  (void)state;
  expect_said(refuse_cores, TWO_NODES("HWLOC_THISSYSTEM=1"),
              "openreg: cannot bind device threads to cores (Operation not "
              "permitted); devices still work, but may be slower\n");
}

static void only_one_line_is_printed(void **state) {
  (void)state;
  expect_said(refuse_both, TWO_NODES("HWLOC_THISSYSTEM=1"), memory_said);
}

static void a_machine_that_cannot_be_described_is_reported_once(void **state) {
  (void)state;
  expect_said(load_again, ENVIRONMENT("OPENREG_DEVICE_MEMORY=2M", "HWLOC_COMPONENTS=stop"),
              "openreg: cannot place devices on cores and NUMA nodes (hwloc cannot describe this "
              "machine); devices still work, but may be slower\n");
}

static void nothing_is_reported_for_another_machine(void **state) {
  (void)state;
  expect_said(refuse_both, TWO_NODES("HWLOC_THISSYSTEM=0"), "");
}

static void nothing_is_printed_if_binding_works(void **state) {
  (void)state;
  expect_said(use_workers, TWO_NODES("HWLOC_THISSYSTEM=1"), "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_that_cannot_be_bound_is_reported),
      cmocka_unit_test(threads_that_cannot_be_bound_are_reported),
      cmocka_unit_test(only_one_line_is_printed),
      cmocka_unit_test(a_machine_that_cannot_be_described_is_reported_once),
      cmocka_unit_test(nothing_is_reported_for_another_machine),
      cmocka_unit_test(nothing_is_printed_if_binding_works),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
