/* uuid.c: UUIDs of devices.
 *
 * A UUID is computed from what identifies a device: the user, the group and the group index. It is
 * not stored anywhere, so every process computes the same one. It consists of two 64-bit FNV-1a
 * hashes of the same bytes with different starting values. The finalizer of MurmurHash3 is applied
 * to each hash; without it, devices of one group would differ in only a few bits.
 */
#include "device/process/config.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { UUID_VERSION_BYTE = 6, UUID_VARIANT_BYTE = 8 };

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t count) {
  const unsigned char *next = bytes;
  for (size_t i = 0; i < count; i++)
    hash = (hash ^ next[i]) * 0x100000001b3;
  return hash;
}

static uint64_t mix(uint64_t hash) {
  hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccd;
  hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53;
  return hash ^ hash >> 33;
}

void openreg_device_make_uuid(const char *group, int group_index,
                              unsigned char uuid[OPENREG_UUID_BYTES]) {
  const uint32_t user = geteuid(), number = (uint32_t)group_index;
  uint64_t halves[2] = {0xcbf29ce484222325, 0x9ae16a3b2f90404f};
  for (int i = 0; i < 2; i++) {
    halves[i] = hash_bytes(halves[i], &user, sizeof user);
    halves[i] = hash_bytes(halves[i], group, strlen(group) + 1);
    halves[i] = mix(hash_bytes(halves[i], &number, sizeof number));
  }
  memcpy(uuid, halves, OPENREG_UUID_BYTES);
  /* RFC 9562: version 8 (custom) and the variant of that document. */
  uuid[UUID_VERSION_BYTE] = (unsigned char)((uuid[UUID_VERSION_BYTE] & 0x0f) | 0x80);
  uuid[UUID_VARIANT_BYTE] = (unsigned char)((uuid[UUID_VARIANT_BYTE] & 0x3f) | 0x80);
}

void openreg_device_write_uuid(const unsigned char uuid[OPENREG_UUID_BYTES],
                               char text[OPENREG_UUID_TEXT_BYTES]) {
  size_t used = 0;
  for (int i = 0; i < OPENREG_UUID_BYTES; i++) {
    if (i == 4 || i == 6 || i == 8 || i == 10)
      text[used++] = '-';
    used += (size_t)snprintf(text + used, OPENREG_UUID_TEXT_BYTES - used, "%02x", uuid[i]);
  }
}
