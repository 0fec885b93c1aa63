/* visible_devices.c: parses the list of visible devices in the same way as CUDA's driver.
 *
 * A variable that is not set selects all devices, and "" selects none. (Other variables treat "" as
 * not set.) Otherwise the value is a comma-separated list of group indices or of UUIDs; the first
 * item decides which.
 *
 * - An index is what strtol finds at the beginning of an item: "1gpu" means 1.
 * - A UUID is "GPU-" and enough of its characters to be unambiguous in the group.
 * - An invalid item ends the list; the devices before it are visible. Invalid items are: no number,
 *   a negative or too large number, and a UUID that is unknown, ambiguous or does not start with
 *   "GPU-".
 * - If a device occurs twice, no device is visible.
 */
#include "device/process/visible_devices.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/environment.h"
#include "device/process/config.h"

#define UUID_PREFIX "GPU-"

enum { UUID_PREFIX_LENGTH = sizeof UUID_PREFIX - 1, NO_DEVICE = -1 };

static bool is_uuid(openreg_span item) {
  return item.length >= UUID_PREFIX_LENGTH &&
         strncmp(item.text, UUID_PREFIX, UUID_PREFIX_LENGTH) == 0;
}

static int find_uuid(const openreg_config *config, openreg_span item) {
  if (!is_uuid(item))
    return NO_DEVICE;
  const char *start = item.text + UUID_PREFIX_LENGTH;
  size_t length = item.length - UUID_PREFIX_LENGTH;
  char group[OPENREG_GROUP_NAME_BYTES];
  openreg_config_name_group(config, group);
  int found = NO_DEVICE;
  for (int i = 0; i < config->device_count; i++) {
    unsigned char uuid[OPENREG_UUID_BYTES];
    char text[OPENREG_UUID_TEXT_BYTES];
    openreg_device_make_uuid(group, i, uuid);
    openreg_device_write_uuid(uuid, text);
    if (strncmp(text, start, length) != 0)
      continue;
    if (found != NO_DEVICE)
      return NO_DEVICE;
    found = i;
  }
  return found;
}

/* The item is not terminated, but strtol stops at the comma that follows it. */
static int find_index(const openreg_config *config, openreg_span item) {
  char *end;
  long index = strtol(item.text, &end, 10);
  return end > item.text && index >= 0 && index < config->device_count ? (int)index : NO_DEVICE;
}

/* Returns false if the device is in the list already. */
static bool add(struct openreg_visible *visible, int index) {
  if (visible->device_of[index] >= 0)
    return false;
  visible->device_of[index] = visible->count;
  visible->group_index_of[visible->count++] = index;
  return true;
}

static void clear(struct openreg_visible *visible) {
  visible->count = 0;
  for (int i = 0; i < OPENREG_MAX_DEVICES; i++)
    visible->device_of[i] = -1;
}

static void read_list(const char *list, const openreg_config *config,
                      struct openreg_visible *visible) {
  const bool by_uuid = is_uuid((openreg_span){list, strlen(list)});
  for (const char *start = list, *end;; start = end + 1) {
    end = start + strcspn(start, ",");
    openreg_span item = {start, (size_t)(end - start)};
    int index = by_uuid ? find_uuid(config, item) : find_index(config, item);
    if (index == NO_DEVICE)
      return;
    if (!add(visible, index)) {
      clear(visible);
      return;
    }
    if (*end == '\0')
      return;
  }
}

static const char *find_list(openreg_getenv lookup, const char *variable,
                             struct openreg_visible *visible) {
  visible->variable = variable;
  return lookup != NULL ? lookup(variable) : getenv(variable);
}

void openreg_visible_read(openreg_getenv lookup, const openreg_config *config,
                          struct openreg_visible *visible) {
  const char *type = openreg_environment_value(lookup, "OPENREG_DEVICE_TYPE");
  bool is_cuda = type != NULL && strcmp(type, "cuda") == 0;
  const char *list = is_cuda ? find_list(lookup, "CUDA_VISIBLE_DEVICES", visible)
                             : find_list(lookup, "OPENREG_VISIBLE_DEVICES", visible);
  clear(visible);
  if (list != NULL)
    read_list(list, config, visible);
  for (int i = 0; list == NULL && i < config->device_count; i++)
    add(visible, i);
}

/* ---- this process ---------------------------------------------------------------------------- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct openreg_visible process; /* empty while the configuration is invalid */

static void read_process_environment(void) {
  const openreg_config *config;
  clear(&process);
  if (openreg_config_get(&config) == OPENREG_OK)
    openreg_visible_read(NULL, config, &process);
}

openreg_status openreg_visible_get(const struct openreg_visible **visible) {
  const openreg_config *config;
  openreg_status status = openreg_config_get(&config);
  if (status != OPENREG_OK)
    return status;
  pthread_once(&once, read_process_environment);
  *visible = &process;
  return OPENREG_OK;
}

int openreg_visible_group_index(int device) {
  pthread_once(&once, read_process_environment);
  return process.group_index_of[device];
}

int openreg_visible_device(int index) {
  pthread_once(&once, read_process_environment);
  return index >= 0 && index < OPENREG_MAX_DEVICES ? process.device_of[index] : -1;
}
