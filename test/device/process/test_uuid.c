/* UUIDs of devices: always the same, and all different. */
#include "child.h"
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = OPENREG_MAX_DEVICES, GROUPS = 50 };

CHILD_TEST(devices_of_groups_have_different_uuids) {
  static unsigned char uuids[GROUPS * DEVICES][OPENREG_UUID_BYTES];
  for (int i = 0; i < GROUPS * DEVICES; i++) {
    char group[OPENREG_GROUP_NAME_BYTES];
    snprintf(group, sizeof group, "group-%d", i / DEVICES);
    openreg_device_make_uuid(group, i % DEVICES, uuids[i]);
    for (int j = 0; j < i; j++)
      REQUIRE(memcmp(uuids[i], uuids[j], OPENREG_UUID_BYTES) != 0);
  }
}

CHILD_TEST(a_uuid_has_the_form_of_one) {
  for (int i = 0; i < DEVICES; i++) {
    unsigned char uuid[OPENREG_UUID_BYTES];
    openreg_device_make_uuid("group-a", i, uuid);
    REQUIRE(uuid[6] >> 4 == 8 && uuid[8] >> 6 == 2); /* RFC 9562: version 8, and the variant */
  }
}

CHILD_TEST(a_uuid_is_written_in_five_parts) {
  const unsigned char uuid[OPENREG_UUID_BYTES] = {0x00, 0x12, 0xab, 0xff, 4,  5,  6,  7,
                                                  8,    9,    10,   11,   12, 13, 14, 15};
  char text[OPENREG_UUID_TEXT_BYTES];
  memset(text, '?', sizeof text);
  openreg_device_write_uuid(uuid, text);
  REQUIRE(strcmp(text, "0012abff-0405-0607-0809-0a0b0c0d0e0f") == 0);
}

/* Before initialization, in a snapshot, and in the process itself. */
CHILD_TEST(every_query_returns_the_same_uuid) {
  static openreg_ledger_snapshot preview;
  openreg_ledger_snapshot *group;
  openreg_device_properties properties;
  REQUIRE_OK(openreg_ledger_preview(&preview));
  REQUIRE(!openreg_is_initialized());
  for (int i = 0; i < 2; i++) {
    REQUIRE_OK(openreg_device_get_properties(i, &properties));
    REQUIRE(memcmp(properties.uuid, preview.devices[i].uuid, OPENREG_UUID_BYTES) == 0);
  }
  REQUIRE_OK(openreg_ledger_find_own(false, &group));
  for (int i = 0; i < 2; i++)
    REQUIRE(memcmp(group->devices[i].uuid, preview.devices[i].uuid, OPENREG_UUID_BYTES) == 0);
  openreg_ledger_free_snapshots(group, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(devices_of_groups_have_different_uuids),
      cmocka_unit_test(a_uuid_has_the_form_of_one),
      cmocka_unit_test(a_uuid_is_written_in_five_parts),
      cmocka_unit_test(every_query_returns_the_same_uuid),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
