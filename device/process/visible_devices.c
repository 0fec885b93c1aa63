/* visible.c: the list of devices that the environment chooses, as CUDA's driver reads it.
 *
 * Not set: all devices. Set to "": none; so the variable is not read as others are. Else a list,
 * separated by commas, of numbers in the group or of UUIDs: its first item says which of both.
 *
 * - A number is what strtol finds at the beginning of an item: "1gpu" is 1.
 * - A UUID is "GPU-" and as many of its characters as no other device of the group begins with.
 * - An item that means no device ends the list: those before it are visible. Such are no number,
 * one that is negative or too large, and a UUID that is unknown or ambiguous or is not of a GPU.
 * - A device that is there twice makes none visible.
 */
#include "device/process/visible_devices.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/environment.h"
#include "device/process/config.h"

#define UUID_PREFIX "GPU-"

enum { UUID_PREFIX_LENGTH = sizeof UUID_PREFIX - 1, NO_NUMBER = -1 };

static bool is_uuid(openreg_span item) {
  return item.length >= UUID_PREFIX_LENGTH &&
         strncmp(item.text, UUID_PREFIX, UUID_PREFIX_LENGTH) == 0;
}

static int find_uuid(const openreg_config *config, openreg_span item) {
  if (!is_uuid(item))
    return NO_NUMBER;
  const char *start = item.text + UUID_PREFIX_LENGTH;
  size_t length = item.length - UUID_PREFIX_LENGTH;
  char group[OPENREG_GROUP_NAME_BYTES];
  openreg_config_name_group(config, group);
  int found = NO_NUMBER;
  for (int i = 0; i < config->device_count; i++) {
    unsigned char uuid[OPENREG_UUID_BYTES];
    char text[OPENREG_UUID_TEXT_BYTES];
    openreg_device_make_uuid(group, i, uuid);
    openreg_device_write_uuid(uuid, text);
    if (strncmp(text, start, length) != 0)
      continue;
    if (found != NO_NUMBER)
      return NO_NUMBER;
    found = i;
  }
  return found;
}

/* The next item begins with a comma, where strtol stops, and is thus not taken for this one. */
static int find_number(const openreg_config *config, openreg_span item) {
  char *end;
  long number = strtol(item.text, &end, 10);
  return end > item.text && number >= 0 && number < config->device_count ? (int)number : NO_NUMBER;
}

/* False when the device is visible already. */
static bool add(struct openreg_visible *visible, int number) {
  if (visible->device_of[number] >= 0)
    return false;
  visible->device_of[number] = visible->count;
  visible->number_of[visible->count++] = number;
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
    int number = by_uuid ? find_uuid(config, item) : find_number(config, item);
    if (number == NO_NUMBER)
      return;
    if (!add(visible, number)) {
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

/* ---- the process's own ----------------------------------------------------------------------- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct openreg_visible process; /* none while the configuration is bad */

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

int openreg_visible_number(int device) {
  pthread_once(&once, read_process_environment);
  return process.number_of[device];
}

int openreg_visible_device(int number) {
  pthread_once(&once, read_process_environment);
  return number >= 0 && number < OPENREG_MAX_DEVICES ? process.device_of[number] : -1;
}
