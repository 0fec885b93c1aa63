/* config.c: reads the configuration from environment variables, once.
 *
 * openreg_config_read is a pure function of the variables it is given, so tests can check every
 * value and every error without changing the process. openreg_config_get stores its result, valid
 * or not, for the life of the process. A variable that is set to "" counts as not set.
 */
#define _GNU_SOURCE /* strchrnul */
#include "device/process/config.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/environment.h"
#include "base/status.h"

#define DEFAULT_DEVICE_COUNT 2
#define DEFAULT_PROFILE      "h100"

/* Two views of one such device use all addresses that x86-64 gives a process (47 bits). */
#define MAX_MEMORY_BYTES ((uint64_t)64 << 40)

/* Parses a capacity and rounds it down to whole granules. Returns false if it is malformed or out
 * of range. */
static bool parse_memory(openreg_span text, uint64_t *bytes) {
  if (!openreg_parse_bytes(text, MAX_MEMORY_BYTES, bytes))
    return false;
  *bytes &= ~(OPENREG_GRANULE_BYTES - 1);
  return *bytes > 0;
}

/* Splits a comma-separated list and returns its length. A single item applies to all devices.
 * Returns 0 if the list has several items, but not one for each of `device_count` devices. */
static int split_list(const char *list, int device_count, openreg_span items[OPENREG_MAX_DEVICES]) {
  int count = 0;
  for (const char *start = list;; count++) {
    const char *end = strchrnul(start, ',');
    if (count == OPENREG_MAX_DEVICES)
      return 0;
    items[count] = (openreg_span){start, (size_t)(end - start)};
    if (*end == '\0')
      break;
    start = end + 1;
  }
  count++;
  if (count == 1) {
    for (int i = 1; i < device_count; i++)
      items[i] = items[0];
  }
  return count == 1 || count == device_count ? count : 0;
}

static void list_profiles(char *text, size_t text_bytes) {
  size_t used = 0;
  text[0] = '\0';
  for (int i = 0; openreg_profile_at(i) != NULL && used < text_bytes; i++)
    used += (size_t)snprintf(text + used, text_bytes - used, "%s%s", i > 0 ? ", " : "",
                             openreg_profile_at(i)->key);
}

static uint64_t this_machine_bytes(void) {
  return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* ---- variables ------------------------------------------------------------------------------- */

static openreg_status read_device_count(openreg_getenv lookup, openreg_config *config) {
  const char *value = openreg_environment_value(lookup, "OPENREG_DEVICE_COUNT");
  uint64_t count = DEFAULT_DEVICE_COUNT;
  if (value != NULL) {
    size_t length = strlen(value);
    if (openreg_parse_digits((openreg_span){value, length}, &count) != length || count < 1 ||
        count > OPENREG_MAX_DEVICES)
      return openreg_environment_reject("OPENREG_DEVICE_COUNT", value, "1 to %d",
                                        OPENREG_MAX_DEVICES);
  }
  config->device_count = (int)count;
  return OPENREG_OK;
}

static openreg_status reject_profile(const char *value, openreg_span item, int device_count) {
  char known[OPENREG_MESSAGE_BYTES / 4];
  list_profiles(known, sizeof known);
  return openreg_environment_reject(
      "OPENREG_PROFILE", value,
      "a GPU name such as h100 for all devices, or one name per device, separated by commas "
      "(there are %d devices); '%.*s' is not allowed; known names: %s; or numbers of "
      "multiprocessors and of threads on each, such as 48x1536",
      device_count, (int)(item.length < 40 ? item.length : 40), item.text, known);
}

static openreg_status read_profiles(openreg_getenv lookup, openreg_config *config) {
  const char *value = openreg_environment_value(lookup, "OPENREG_PROFILE");
  if (value == NULL)
    value = DEFAULT_PROFILE;
  openreg_span items[OPENREG_MAX_DEVICES];
  if (split_list(value, config->device_count, items) == 0)
    return reject_profile(value, (openreg_span){value, strlen(value)}, config->device_count);
  for (int i = 0; i < config->device_count; i++) {
    if (!openreg_profile_find(items[i].text, items[i].length, &config->profiles[i]))
      return reject_profile(value, items[i], config->device_count);
  }
  return OPENREG_OK;
}

/* The memory of a device in a dry run, for a profile that is no real GPU. */
#define DRY_MEMORY_BYTES ((uint64_t)80 << 30)

/* Returns the profile's memory, but at most `limit_bytes`. A dry run does not touch the memory, so
 * the machine's memory does not limit it. */
static uint64_t default_memory(const openreg_profile *profile, bool is_dry, uint64_t limit_bytes) {
  uint64_t bytes = limit_bytes;
  if (is_dry)
    bytes = profile->memory_bytes != 0 ? profile->memory_bytes : DRY_MEMORY_BYTES;
  else if (profile->memory_bytes != 0 && profile->memory_bytes < bytes)
    bytes = profile->memory_bytes;
  bytes &= ~(OPENREG_GRANULE_BYTES - 1);
  return bytes > 0 ? bytes : OPENREG_GRANULE_BYTES;
}

static openreg_status read_memory(openreg_getenv lookup, uint64_t machine_bytes,
                                  openreg_config *config) {
  const char *value = openreg_environment_value(lookup, "OPENREG_DEVICE_MEMORY");
  if (value == NULL) {
    bool is_dry = false;
    openreg_status status = openreg_environment_switch(lookup, "OPENREG_DRY_RUN", &is_dry);
    uint64_t share_bytes = machine_bytes / (uint64_t)config->device_count;
    for (int i = 0; i < config->device_count; i++)
      config->memory_bytes[i] = default_memory(&config->profiles[i], is_dry, share_bytes);
    return status;
  }
  openreg_span items[OPENREG_MAX_DEVICES];
  bool good = split_list(value, config->device_count, items) > 0;
  for (int i = 0; good && i < config->device_count; i++)
    good = parse_memory(items[i], &config->memory_bytes[i]);
  if (!good)
    return openreg_environment_reject(
        "OPENREG_DEVICE_MEMORY", value,
        "a size such as 8G or 512M, from 2M to 64T, for all devices, or one size per device, "
        "separated by commas (there are %d devices)",
        config->device_count);
  return OPENREG_OK;
}

static openreg_status read_group(openreg_getenv lookup, openreg_config *config) {
  static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
  const char *value = openreg_environment_value(lookup, "OPENREG_GROUP");
  if (value == NULL)
    return OPENREG_OK;
  size_t length = strlen(value);
  if (length >= sizeof config->group || strspn(value, allowed) != length)
    return openreg_environment_reject(
        "OPENREG_GROUP", value, "1 to %d letters, digits, '_', '.' or '-'", OPENREG_NAME_BYTES - 1);
  memcpy(config->group, value, length + 1);
  return OPENREG_OK;
}

/* ---- missing features ------------------------------------------------------------------------ */

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"

/* "library::name" or "library::name.overload". */
static bool is_operator(openreg_span item) {
  size_t library = strspn(item.text, LETTERS);
  if (library == 0 || library + 2 > item.length || strncmp(item.text + library, "::", 2) != 0)
    return false;
  size_t name = strspn(item.text + library + 2, LETTERS);
  size_t length = library + 2 + name;
  if (name > 0 && length < item.length && item.text[length] == '.') {
    size_t overload = strspn(item.text + length + 1, LETTERS);
    length += overload > 0 ? 1 + overload : 0;
  }
  return name > 0 && length == item.length;
}

static bool is_dtype(openreg_span item) {
  static const char *const names[] = {
      "bool",           "uint8",         "uint16",      "uint32",          "uint64",
      "int8",           "int16",         "int32",       "int64",           "float16",
      "bfloat16",       "float32",       "float64",     "complex32",       "complex64",
      "complex128",     "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
      "float8_e8m0fnu", "quint8",        "qint8",       "qint32",
  };
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    if (strlen(names[i]) == item.length && strncmp(names[i], item.text, item.length) == 0)
      return true;
  }
  return false;
}

static openreg_status read_list(openreg_getenv lookup, const char *name,
                                bool (*is_item)(openreg_span), const char *allowed,
                                char list[OPENREG_LIST_BYTES]) {
  const char *value = openreg_environment_value(lookup, name);
  if (value == NULL)
    return OPENREG_OK;
  size_t length = strlen(value);
  if (length >= OPENREG_LIST_BYTES)
    return openreg_environment_reject(name, value, "%d characters at most", OPENREG_LIST_BYTES - 1);
  for (const char *start = value, *end = value; *end != '\0'; start = end + 1) {
    end = strchrnul(start, ',');
    if (!is_item((openreg_span){start, (size_t)(end - start)}))
      return openreg_environment_reject(name, value, "%s, separated by commas", allowed);
  }
  memcpy(list, value, length + 1);
  return OPENREG_OK;
}

openreg_status openreg_config_read(openreg_getenv lookup, uint64_t machine_bytes,
                                   openreg_config *config) {
  openreg_config result = {0};
  if (machine_bytes == 0)
    machine_bytes = this_machine_bytes();
  openreg_status status = read_device_count(lookup, &result);
  if (status == OPENREG_OK)
    status = read_profiles(lookup, &result);
  if (status == OPENREG_OK)
    status = read_memory(lookup, machine_bytes, &result);
  if (status == OPENREG_OK)
    status = read_group(lookup, &result);
  if (status == OPENREG_OK)
    status = openreg_environment_switch(lookup, "OPENREG_LAUNCH_BLOCKING", &result.launch_blocking);
  if (status == OPENREG_OK)
    status = openreg_environment_switch(lookup, "OPENREG_HOST_ACCESS", &result.host_access);
  if (status == OPENREG_OK)
    status = openreg_environment_switch(lookup, "OPENREG_DEBUG_MEMORY", &result.debug_memory);
  result.launch_blocking = result.launch_blocking || result.debug_memory;
  if (status == OPENREG_OK)
    status = openreg_environment_switch(lookup, "OPENREG_GPU_OVERHEAD", &result.gpu_overhead);
  if (status == OPENREG_OK)
    status = read_list(lookup, "OPENREG_BLOCK_OPERATORS", is_operator,
                       "operators such as aten::svd or aten::add.Tensor", result.block_operators);
  if (status == OPENREG_OK)
    status = read_list(lookup, "OPENREG_UNSUPPORTED_DTYPES", is_dtype,
                       "dtypes such as float64 or bfloat16", result.unsupported_dtypes);
  if (status == OPENREG_OK)
    *config = result;
  return status;
}

/* ---- the group ------------------------------------------------------------------------------- */

/* FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv/: continues `hash` with these bytes. */
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t count) {
  for (size_t i = 0; i < count; i++)
    hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3;
  return hash;
}

void openreg_config_name_group(const openreg_config *config, char group[OPENREG_GROUP_NAME_BYTES]) {
  if (config->group[0] != '\0') {
    snprintf(group, OPENREG_GROUP_NAME_BYTES, "group-%s", config->group);
    return;
  }
  uint64_t hash = 0xcbf29ce484222325;
  for (int i = 0; i < config->device_count; i++) {
    const char *key = config->profiles[i].key;
    hash = hash_bytes(hash, &config->memory_bytes[i], sizeof config->memory_bytes[i]);
    hash = hash_bytes(hash, key, strlen(key) + 1);
  }
  snprintf(group, OPENREG_GROUP_NAME_BYTES, "alike-%016llx", (unsigned long long)hash);
}

/* ---- this process ---------------------------------------------------------------------------- */

static struct {
  pthread_once_t once;
  openreg_status status;
  char message[OPENREG_MESSAGE_BYTES]; /* of the failure, for later calls */
  openreg_config config;
} process = {.once = PTHREAD_ONCE_INIT};

static void read_process_environment(void) {
  process.status = openreg_config_read(NULL, 0, &process.config);
  if (process.status != OPENREG_OK)
    snprintf(process.message, sizeof process.message, "%s", openreg_last_error());
}

openreg_status openreg_config_get(const openreg_config **config) {
  pthread_once(&process.once, read_process_environment);
  if (process.status != OPENREG_OK)
    return openreg_fail(process.status, "%s", process.message);
  *config = &process.config;
  return OPENREG_OK;
}
