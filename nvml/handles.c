/* handles.c: finds devices by index, UUID and PCI bus id. */
#include "nvml/view.h"

#include <stdio.h>
#include <string.h>

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
  struct openreg_nvml_view view;
  nvmlReturn_t code = openreg_nvml_require_initialized();
  if (code == NVML_SUCCESS && count == NULL)
    code = NVML_ERROR_INVALID_ARGUMENT;
  if (code == NVML_SUCCESS)
    code = openreg_nvml_view(false, &view);
  if (code != NVML_SUCCESS)
    return code;
  *count = (unsigned)view.group->device_count;
  openreg_nvml_close(&view);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned *count) {
  return nvmlDeviceGetCount_v2(count);
}

/* Returns the handle of device `index`, or `if_none` if there is no such device. */
static nvmlReturn_t return_handle(unsigned index, nvmlReturn_t if_none, nvmlDevice_t *device) {
  unsigned count;
  nvmlReturn_t code = nvmlDeviceGetCount_v2(&count);
  if (code == NVML_SUCCESS && device == NULL)
    code = NVML_ERROR_INVALID_ARGUMENT;
  if (code == NVML_SUCCESS && index >= count)
    code = if_none;
  if (code == NVML_SUCCESS)
    *device = &openreg_nvml_devices[index];
  return code;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
  return return_handle(index, NVML_ERROR_INVALID_ARGUMENT, device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static unsigned find_uuid(const openreg_ledger_snapshot *group, const char *uuid) {
  for (int i = 0; i < group->device_count; i++) {
    char text[OPENREG_UUID_TEXT_BYTES];
    openreg_device_write_uuid(group->devices[i].uuid, text);
    if (strncmp(uuid, "GPU-", 4) == 0 && strcmp(uuid + 4, text) == 0)
      return (unsigned)i;
  }
  return OPENREG_MAX_DEVICES;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
  struct openreg_nvml_view view;
  nvmlReturn_t code = openreg_nvml_require_initialized();
  if (code == NVML_SUCCESS && uuid == NULL)
    code = NVML_ERROR_INVALID_ARGUMENT;
  if (code == NVML_SUCCESS)
    code = openreg_nvml_view(false, &view);
  if (code != NVML_SUCCESS)
    return code;
  unsigned index = find_uuid(view.group, uuid);
  openreg_nvml_close(&view);
  return return_handle(index, NVML_ERROR_NOT_FOUND, device);
}

/* Parses [domain:]bus:device[.function], hexadecimal. */
static unsigned find_bus_id(const char *bus_id) {
  unsigned domain = 0, bus, device, function = 0;
  if (sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &device, &function) < 3) {
    domain = function = 0;
    if (sscanf(bus_id, "%x:%x.%x", &bus, &device, &function) < 2)
      return OPENREG_MAX_DEVICES;
  }
  unsigned first = (unsigned)openreg_device_pci_bus(0);
  return domain == 0 && device == 0 && function == 0 && bus >= first ? bus - first
                                                                     : OPENREG_MAX_DEVICES;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
  nvmlReturn_t code = openreg_nvml_require_initialized();
  if (code == NVML_SUCCESS && bus_id == NULL)
    code = NVML_ERROR_INVALID_ARGUMENT;
  return code == NVML_SUCCESS ? return_handle(find_bus_id(bus_id), NVML_ERROR_NOT_FOUND, device)
                              : code;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device) {
  return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

/* No device has a serial index. */
nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
  nvmlReturn_t code = openreg_nvml_require_initialized();
  if (code == NVML_SUCCESS && (serial == NULL || device == NULL))
    code = NVML_ERROR_INVALID_ARGUMENT;
  return code == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : code;
}
