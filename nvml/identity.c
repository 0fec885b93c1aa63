/* identity.c: what a device is: its name and ids, and the GPU model of its profile. */
#include "nvml/view.h"

#include <stdio.h>
#include <string.h>

/* ---- names and numbers ----------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length) {
  struct openreg_nvml_view view;
  nvmlReturn_t code = openreg_nvml_view_device(device, false, &view);
  if (code != NVML_SUCCESS)
    return code;
  code = openreg_nvml_copy_text(view.device->name, name, length);
  openreg_nvml_close(&view);
  return code;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length) {
  struct openreg_nvml_view view;
  nvmlReturn_t code = openreg_nvml_view_device(device, false, &view);
  if (code != NVML_SUCCESS)
    return code;
  char text[4 + OPENREG_UUID_TEXT_BYTES] = "GPU-";
  openreg_device_write_uuid(view.device->uuid, text + 4);
  openreg_nvml_close(&view);
  return openreg_nvml_copy_text(text, uuid, length);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
  int number;
  nvmlReturn_t code = openreg_nvml_require_device(device, &number);
  if (code == NVML_SUCCESS && index == NULL)
    code = NVML_ERROR_INVALID_ARGUMENT;
  if (code == NVML_SUCCESS)
    *index = (unsigned)number;
  return code;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *number) {
  return nvmlDeviceGetIndex(device, number);
}

/* ---- PCI ------------------------------------------------------------------------------------- */

enum {
  PCI_VENDOR_NVIDIA = 0x10de, /* assigned by PCI-SIG; the device part of the id is unknown: 0 */
  PCI_CLASS_DISPLAY = 3,
  PCI_SUBCLASS_3D = 2,
};

/* Checks the device and finds its bus. */
static nvmlReturn_t find_bus(nvmlDevice_t device, const void *answer, unsigned *bus) {
  int number;
  nvmlReturn_t code = openreg_nvml_require_device(device, &number);
  if (code == NVML_SUCCESS && answer == NULL)
    code = NVML_ERROR_INVALID_ARGUMENT;
  if (code == NVML_SUCCESS)
    *bus = (unsigned)openreg_device_pci_bus(number);
  return code;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_v2_t *info) {
  unsigned bus;
  nvmlReturn_t code = find_bus(device, info, &bus);
  if (code != NVML_SUCCESS)
    return code;
  *info = (nvmlPciInfo_v2_t){.bus = bus, .pciDeviceId = PCI_VENDOR_NVIDIA};
  snprintf(info->busId, sizeof info->busId, "0000:%02X:00.0", bus & 0xff);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_v2_t *info) {
  return nvmlDeviceGetPciInfo_v2(device, info);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info) {
  unsigned bus;
  nvmlReturn_t code = find_bus(device, info, &bus);
  if (code != NVML_SUCCESS)
    return code;
  *info = (nvmlPciInfo_t){.bus = bus, .pciDeviceId = PCI_VENDOR_NVIDIA};
  snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "0000:%02X:00.0", bus & 0xff);
  snprintf(info->busId, sizeof info->busId, "00000000:%02X:00.0", bus & 0xff);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_v1_t *info) {
  unsigned bus;
  nvmlReturn_t code = find_bus(device, info, &bus);
  if (code == NVML_SUCCESS && info->version != NVML_STRUCT_VERSION(nvmlPciInfoExt_v1_t, 1))
    code = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (code != NVML_SUCCESS)
    return code;
  *info = (nvmlPciInfoExt_v1_t){.version = info->version,
                                .bus = bus,
                                .pciDeviceId = PCI_VENDOR_NVIDIA,
                                .baseClass = PCI_CLASS_DISPLAY,
                                .subClass = PCI_SUBCLASS_3D};
  snprintf(info->busId, sizeof info->busId, "00000000:%02X:00.0", bus & 0xff);
  return NVML_SUCCESS;
}

/* ---- the GPU model --------------------------------------------------------------------------- */

/* NVIDIA's GPUs by compute capability: CUDA C++ Programming Guide, "Compute Capabilities". */
static const struct generation {
  int major, least_minor;
  unsigned architecture, cores_per_multiprocessor;
} generations[] = {
    {7, 0, NVML_DEVICE_ARCH_VOLTA, 64},       {7, 5, NVML_DEVICE_ARCH_TURING, 64},
    {8, 0, NVML_DEVICE_ARCH_AMPERE, 64},      {8, 6, NVML_DEVICE_ARCH_AMPERE, 128},
    {8, 9, NVML_DEVICE_ARCH_ADA, 128},        {9, 0, NVML_DEVICE_ARCH_HOPPER, 128},
    {10, 0, NVML_DEVICE_ARCH_BLACKWELL, 128},
};

/* Returns NULL for a profile that this version does not know. */
static const struct generation *generation_of(const openreg_ledger_device *device) {
  const struct generation *found = NULL;
  for (size_t i = 0; i < sizeof generations / sizeof generations[0]; i++) {
    if (generations[i].major == device->major && generations[i].least_minor <= device->minor)
      found = &generations[i];
  }
  return found;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned *architecture) {
  struct openreg_nvml_view view;
  nvmlReturn_t code = openreg_nvml_view_device(device, false, &view);
  if (code != NVML_SUCCESS)
    return code;
  const struct generation *generation = generation_of(view.device);
  openreg_nvml_close(&view);
  if (architecture == NULL)
    return NVML_ERROR_INVALID_ARGUMENT;
  *architecture = generation != NULL ? generation->architecture : NVML_DEVICE_ARCH_UNKNOWN;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned *count) {
  struct openreg_nvml_view view;
  nvmlReturn_t code = openreg_nvml_view_device(device, false, &view);
  if (code != NVML_SUCCESS)
    return code;
  const struct generation *generation = generation_of(view.device);
  unsigned multiprocessors = (unsigned)view.device->multiprocessor_count;
  openreg_nvml_close(&view);
  if (count == NULL)
    return NVML_ERROR_INVALID_ARGUMENT;
  if (generation == NULL)
    return NVML_ERROR_NOT_SUPPORTED;
  *count = multiprocessors * generation->cores_per_multiprocessor;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
  struct openreg_nvml_view view;
  nvmlReturn_t code = openreg_nvml_view_device(device, false, &view);
  if (code != NVML_SUCCESS)
    return code;
  if (major == NULL || minor == NULL) {
    code = NVML_ERROR_INVALID_ARGUMENT;
  } else if (view.device->major == 0) {
    code = NVML_ERROR_NOT_SUPPORTED;
  } else {
    *major = view.device->major;
    *minor = view.device->minor;
  }
  openreg_nvml_close(&view);
  return code;
}

static int brand_of(const char *name) {
  if (strstr(name, "GeForce RTX") != NULL)
    return NVML_BRAND_GEFORCE_RTX;
  if (strncmp(name, "Tesla", 5) == 0)
    return NVML_BRAND_TESLA;
  return strncmp(name, "NVIDIA", 6) == 0 ? NVML_BRAND_NVIDIA : NVML_BRAND_UNKNOWN;
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, int *brand) {
  struct openreg_nvml_view view;
  nvmlReturn_t code = openreg_nvml_view_device(device, false, &view);
  if (code != NVML_SUCCESS)
    return code;
  if (brand != NULL)
    *brand = brand_of(view.device->name);
  openreg_nvml_close(&view);
  return brand != NULL ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}
