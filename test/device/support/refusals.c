/* Handles that must be rejected. See refusals.h. */
#include "refusals.h"
#include "device/ipc/imports.h"

#include <string.h>

void export_two_and_an_event(void) {
  openreg_event *event;
  char *base = base_of(0);
  export_memory(base, PAGE, &board->handles[0]);
  export_memory(base + 4 * MIB + 512, 5 * MIB, &board->handles[1]);
  REQUIRE_OK(openreg_event_create(0, false, &event));
  REQUIRE_OK(openreg_event_export(event, &board->handles[2]));
  report(0);
  await_cue();
  openreg_event_destroy(event);
}

void export_withdraw_export(void) {
  char *base = base_of(0);
  export_memory(base, PAGE, &board->handles[0]);
  report(0);
  await_cue();
  REQUIRE_OK(openreg_ipc_withdraw(base));
  report(0);
  await_cue();
  export_memory(base, PAGE, &board->handles[1]);
  report(0);
  await_cue();
}

openreg_status open_handle(const openreg_ipc_handle *handle) {
  void *address;
  size_t bytes;
  int device;
  openreg_status status = openreg_ipc_open(handle, 0, &address, &bytes, &device);
  if (status == OPENREG_OK)
    REQUIRE_OK(openreg_ipc_close(address));
  return status;
}

void expect_refusal(const openreg_ipc_handle *handle, const char *why) {
  REQUIRE(open_handle(handle) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(strstr(openreg_last_error(), "openreg: the handle is rejected: ") ==
          openreg_last_error());
  REQUIRE(strstr(openreg_last_error(), why) != NULL);
  REQUIRE(openreg_peer_files == NULL);
}

void seal(struct openreg_handle *parts, openreg_ipc_handle *handle) {
  uint64_t check = 0xcbf29ce484222325;
  memcpy(handle->bytes, parts, sizeof *parts);
  for (size_t i = 0; i < offsetof(struct openreg_handle, check); i++)
    check = (check ^ handle->bytes[i]) * 0x100000001b3;
  parts->check = check;
  memcpy(handle->bytes, parts, sizeof *parts);
}

uint64_t seed = 20240229;

uint64_t draw(void) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return seed;
}

uint64_t draw_nasty(uint64_t honest) {
  static const uint64_t edges[] = {
      0,          1,        2,        63,        64,         511,
      512,        32766,    32767,    32768,     1024,       INT32_MAX,
      UINT32_MAX, 64 * MIB, 66 * MIB, INT64_MAX, UINT64_MAX, 64 * MIB - 512};
  switch (draw() % 4) {
  case 0:
    return edges[draw() % (sizeof edges / sizeof edges[0])];
  case 1:
    return honest + (draw() % 9) - 4;
  case 2:
    return honest ^ (uint64_t)1 << draw() % 64;
  default:
    return draw();
  }
}
