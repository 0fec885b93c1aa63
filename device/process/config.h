/* config.h: the configuration, for this layer only. Extends device.h. */
#ifndef OPENREG_DEVICE_PROCESS_CONFIG_H
#define OPENREG_DEVICE_PROCESS_CONFIG_H

#include "device/device.h"

#pragma GCC visibility push(hidden)

/* Size of a huge page. Capacities, strides and arena bases are multiples of it. */
#define OPENREG_GRANULE_BYTES ((uint64_t)2 << 20)

/* Writes the name of the group: "group-" and OPENREG_GROUP, or "alike-" and 16 hexadecimal digits.
 * The digits are a hash of the number, capacities and profiles of the devices, which are the
 * same in all processes of an unnamed group. */
void openreg_config_name_group(const openreg_config *config, char group[OPENREG_GROUP_NAME_BYTES]);

/* ---- profile.c ------------------------------------------------------------------------------- */

/* Finds the profile that `length` characters at `text` name: a key of the table in upper or lower
 * case, or numbers such as 48x1536. Returns false if there is none. */
bool openreg_profile_find(const char *text, size_t length, openreg_profile *profile);

#pragma GCC visibility pop
#endif
