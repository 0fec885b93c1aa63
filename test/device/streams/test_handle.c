/* Handles of streams. */
#include "child.h"
#include "device/device.h"

static void require_parsed(uintptr_t handle, int device, int stream) {
  int found_device = -1, found_stream = -1;
  REQUIRE_OK(openreg_stream_parse_handle(handle, &found_device, &found_stream));
  REQUIRE(found_device == device && found_stream == stream);
}

CHILD_TEST(a_handle_leads_back_to_its_stream) {
  for (int device = 0; device < 2; device++)
    for (int stream = 1; stream < OPENREG_STREAMS_PER_DEVICE; stream++)
      require_parsed(openreg_stream_make_handle(device, stream), device, stream);
}

CHILD_TEST(handles_are_different_and_none_of_cudas_names) {
  enum { STREAMS = OPENREG_STREAMS_PER_DEVICE, CUDA_STREAM_PER_THREAD = 2 };
  for (int i = 1; i < 2 * STREAMS; i++)
    for (int j = 1; j < i; j++)
      REQUIRE(i % STREAMS == 0 || j % STREAMS == 0 ||
              openreg_stream_make_handle(i / STREAMS, i % STREAMS) !=
                  openreg_stream_make_handle(j / STREAMS, j % STREAMS));
  REQUIRE(openreg_stream_make_handle(0, 1) > CUDA_STREAM_PER_THREAD);
}

CHILD_TEST(the_default_stream_is_that_of_the_current_device) {
  REQUIRE(openreg_stream_make_handle(1, 0) == OPENREG_HANDLE_DEFAULT);
  require_parsed(OPENREG_HANDLE_DEFAULT, 0, 0);
  REQUIRE_OK(openreg_device_set_current(1));
  require_parsed(OPENREG_HANDLE_DEFAULT, 1, 0);
  require_parsed(OPENREG_HANDLE_LEGACY, 1, 0);
}

CHILD_TEST(other_numbers_are_no_handles) {
  int device, stream;
  const uintptr_t wrong[] = {2,
                             OPENREG_STREAMS_PER_DEVICE,
                             openreg_stream_make_handle(0, 1) - 1,
                             openreg_stream_make_handle(2, 1),
                             openreg_stream_make_handle(0, OPENREG_STREAMS_PER_DEVICE),
                             (uintptr_t)&device,
                             UINTPTR_MAX};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    REQUIRE(openreg_stream_parse_handle(wrong[i], &device, &stream) == OPENREG_INVALID_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_handle_leads_back_to_its_stream),
      cmocka_unit_test(handles_are_different_and_none_of_cudas_names),
      cmocka_unit_test(the_default_stream_is_that_of_the_current_device),
      cmocka_unit_test(other_numbers_are_no_handles),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
