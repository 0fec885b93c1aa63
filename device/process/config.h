/* config.h: what the environment asks for, for this layer: beside device.h. */
#ifndef OPENREG_DEVICE_PROCESS_CONFIG_H
#define OPENREG_DEVICE_PROCESS_CONFIG_H

#include "device/device.h"

#pragma GCC visibility push(hidden)

/* Capacities, strides and arena bases are multiples of this: the size of a huge page. */
#define OPENREG_GRANULE_BYTES ((uint64_t)2 << 20)

/* What stands for the group: "group-" and OPENREG_GROUP, or "alike-" and 16 hexadecimal digits made
 * of what processes without it must have in common: number, capacities and profiles of devices. */
void openreg_config_name_group(const openreg_config *config, char group[OPENREG_GROUP_NAME_BYTES]);

/* ---- profile.c ------------------------------------------------------------------------------- */

/* The profile that `length` characters at `text` name: a key of the table, upper or lower case, or
 * numbers such as 48x1536. False when they name none. */
bool openreg_profile_find(const char *text, size_t length, openreg_profile *profile);

#pragma GCC visibility pop
#endif
