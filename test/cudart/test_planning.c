/* Planning: kernels, copies and fills do nothing, and memory has addresses only. */
#include "support.h"

#include "cudart/include/openreg_planning.h"

static char *plan_malloc(ssize_t bytes) {
  return openreg_cudart_plan_malloc(bytes, 0, NULL);
}

static void plan_free(void *address, ssize_t bytes) {
  openreg_cudart_plan_free(address, bytes, 0, NULL);
}

CHILD_TEST_IN(a_wrong_configuration_is_named_to_the_planner,
              ENVIRONMENT("OPENREG_PROFILE=nonsense")) {
  const char *error = openreg_cudart_device_error();
  REQUIRE(error != NULL && strstr(error, "OPENREG_PROFILE=nonsense") != NULL);
}

CHILD_TEST(with_devices_there_is_no_error) {
  REQUIRE(openreg_cudart_device_error() == NULL);
}

CHILD_TEST(launches_of_any_kernel_succeed) {
  static const dim3 one = {1, 1, 1};
  static char stub;
  REQUIRE(openreg_cudart_start_planning(90) == 0);
  REQUIRE_SUCCESS(cudaLaunchKernel(&stub, one, one, NULL, 0, NULL));
}

CHILD_TEST(events_are_recorded_with_the_requested_sizes) {
  REQUIRE(openreg_cudart_start_planning(90) == 0);
  char *kept = plan_malloc(1000);
  openreg_cudart_clear_plan(0);
  char *a = plan_malloc(1), *b = plan_malloc((ssize_t)1 << 36);
  plan_free(a, 1);
  REQUIRE((uintptr_t)a % 512 == 0 && a - kept == 1024 && b - a == 512);
  const struct openreg_planned_event *events;
  REQUIRE(openreg_cudart_planned_events(&events) == 3);
  REQUIRE(events[0].address == (uintptr_t)a && events[0].bytes == 1);
  REQUIRE(events[1].bytes == (int64_t)1 << 36);
  REQUIRE(events[2].address == (uintptr_t)a && events[2].bytes == -1);
}

CHILD_TEST(addresses_are_used_again_when_all_above_are_free) {
  REQUIRE(openreg_cudart_start_planning(90) == 0);
  char *a = plan_malloc(512), *b = plan_malloc(512);
  plan_free(a, 512);
  char *c = plan_malloc(512);
  REQUIRE(c > b);
  plan_free(b, 512);
  plan_free(c, 512);
  REQUIRE(plan_malloc(512) == a);
  REQUIRE(plan_malloc(0) == NULL);
  REQUIRE(plan_malloc(INT64_MAX) == NULL);
}

CHILD_TEST(the_host_reads_a_constant_and_writes_nothing) {
  REQUIRE(openreg_cudart_start_planning(90) == 0);
  int64_t read[4] = {5, 5, 5, 5};
  char *memory = plan_malloc((ssize_t)1 << 36), *other = plan_malloc((ssize_t)1 << 36);
  REQUIRE_SUCCESS(cudaMemcpy(memory, read, sizeof read, cudaMemcpyHostToDevice));
  REQUIRE_SUCCESS(cudaMemcpy(other, memory, (size_t)1 << 36, cudaMemcpyDeviceToDevice));
  REQUIRE_SUCCESS(cudaMemset(memory, 1, (size_t)1 << 36));
  REQUIRE(openreg_cudart_planned_reads() == 0);
  REQUIRE_SUCCESS(cudaMemcpyAsync(read, memory, sizeof read, cudaMemcpyDeviceToHost, NULL));
  REQUIRE(openreg_cudart_planned_reads() == 1);
  REQUIRE(read[0] == 0 && read[3] == 0);
  openreg_cudart_clear_plan(1);
  REQUIRE_SUCCESS(cudaMemcpy(read, other, sizeof read, cudaMemcpyDefault));
  REQUIRE(read[0] == 1 && read[3] == 1);
}

CHILD_TEST(addresses_are_device_memory) {
  struct cudaPointerAttributes attributes;
  REQUIRE(openreg_cudart_start_planning(90) == 0);
  REQUIRE_SUCCESS(cudaPointerGetAttributes(&attributes, plan_malloc(512)));
  REQUIRE(attributes.type == cudaMemoryTypeDevice && attributes.device == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_wrong_configuration_is_named_to_the_planner),
      cmocka_unit_test(with_devices_there_is_no_error),
      cmocka_unit_test(launches_of_any_kernel_succeed),
      cmocka_unit_test(events_are_recorded_with_the_requested_sizes),
      cmocka_unit_test(addresses_are_used_again_when_all_above_are_free),
      cmocka_unit_test(the_host_reads_a_constant_and_writes_nothing),
      cmocka_unit_test(addresses_are_device_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
