/* cupti.c: libcupti.so.13 and libcupti.so.12. There is no CUPTI: each call fails.
 *
 * PyTorch's profiler asks CUPTI for the activities of a GPU. openreg reports the work of its
 * devices to the profiler itself (pymodule/bridge/profiler/), so nothing is missing.
 */
#include <stddef.h>
#include <stdint.h>

enum {
  CUPTI_SUCCESS = 0,
  CUPTI_ERROR_INVALID_PARAMETER = 1,
  CUPTI_ERROR_MAX_LIMIT_REACHED = 12,
  CUPTI_ERROR_NOT_SUPPORTED = 27,
};

/* X(name): the functions that PyTorch's profiler calls, of those that return a CUptiResult. */
#define CUPTI_LIST(X)                                                                              \
  X(cuptiActivityDisable)                                                                          \
  X(cuptiActivityEnable)                                                                           \
  X(cuptiActivityEnableCudaEventDeviceTimestamps)                                                  \
  X(cuptiActivityEnableDriverApi)                                                                  \
  X(cuptiActivityEnableRuntimeApi)                                                                 \
  X(cuptiActivityFlushAll)                                                                         \
  X(cuptiActivityGetNumDroppedRecords)                                                             \
  X(cuptiActivityPopExternalCorrelationId)                                                         \
  X(cuptiActivityPushExternalCorrelationId)                                                        \
  X(cuptiActivityRegisterCallbacks)                                                                \
  X(cuptiActivityRegisterTimestampCallback)                                                        \
  X(cuptiActivitySetAttribute)                                                                     \
  X(cuptiEnableCallback)                                                                           \
  X(cuptiEnableDomain)                                                                             \
  X(cuptiFinalize)                                                                                 \
  X(cuptiGetCallbackName)                                                                          \
  X(cuptiSubscribe)                                                                                \
  X(cuptiUnsubscribe)

#define X(name)                                                                                    \
  int name(void);                                                                                  \
  int name(void) {                                                                                 \
    return CUPTI_ERROR_NOT_SUPPORTED;                                                              \
  }
CUPTI_LIST(X)
#undef X

int cuptiGetVersion(uint32_t *version);
int cuptiGetVersion(uint32_t *version) {
  if (version == NULL)
    return CUPTI_ERROR_INVALID_PARAMETER;
  *version = CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}

/* There are no records. */
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t bytes, void **record);
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t bytes, void **record) {
  (void)buffer;
  (void)bytes;
  (void)record;
  return CUPTI_ERROR_MAX_LIMIT_REACHED;
}

int cuptiGetResultString(int result, const char **text);
int cuptiGetResultString(int result, const char **text) {
  if (text == NULL)
    return CUPTI_ERROR_INVALID_PARAMETER;
  *text =
      result == CUPTI_SUCCESS ? "CUPTI_SUCCESS" : "CUPTI is not available: openreg simulates GPUs";
  return CUPTI_SUCCESS;
}
