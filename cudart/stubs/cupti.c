/* cupti.c: libcupti.so.13 and libcupti.so.12. CUPTI succeeds, and never records anything.
 *
 * PyTorch's profiler asks CUPTI for the activities of a GPU. openreg reports the work of its
 * devices to the profiler itself (pymodule/bridge/profiler/). If these functions failed, the
 * profiler would warn that activities of devices are missing, which is not the case.
 */
#include <stddef.h>
#include <stdint.h>

enum {
  CUPTI_SUCCESS = 0,
  CUPTI_ERROR_INVALID_PARAMETER = 1,
  CUPTI_ERROR_MAX_LIMIT_REACHED = 12,
};

/* X(name): functions without results. The arguments are not looked at. */
#define CUPTI_LIST(X)                                                                              \
  X(cuptiActivityDisable)                                                                          \
  X(cuptiActivityEnable)                                                                           \
  X(cuptiActivityEnableCudaEventDeviceTimestamps)                                                  \
  X(cuptiActivityEnableDriverApi)                                                                  \
  X(cuptiActivityEnableRuntimeApi)                                                                 \
  X(cuptiActivityFlushAll)                                                                         \
  X(cuptiActivityPushExternalCorrelationId)                                                        \
  X(cuptiActivityRegisterCallbacks)                                                                \
  X(cuptiActivityRegisterTimestampCallback)                                                        \
  X(cuptiActivitySetAttribute)                                                                     \
  X(cuptiEnableCallback)                                                                           \
  X(cuptiEnableDomain)                                                                             \
  X(cuptiFinalize)                                                                                 \
  X(cuptiUnsubscribe)

#define X(name)                                                                                    \
  int name(void);                                                                                  \
  int name(void) {                                                                                 \
    return CUPTI_SUCCESS;                                                                          \
  }
CUPTI_LIST(X)
#undef X

int cuptiGetVersion(uint32_t *version);
int cuptiSubscribe(void **subscriber, void *callback, void *data);
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t bytes, void **record);
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped);
int cuptiActivityPopExternalCorrelationId(int kind, uint64_t *last);
int cuptiGetCallbackName(int domain, uint32_t callback, const char **name);
int cuptiGetResultString(int result, const char **text);

int cuptiGetVersion(uint32_t *version) {
  if (version == NULL)
    return CUPTI_ERROR_INVALID_PARAMETER;
  *version = CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}

int cuptiSubscribe(void **subscriber, void *callback, void *data) {
  static char only_subscriber;
  (void)callback;
  (void)data;
  if (subscriber == NULL)
    return CUPTI_ERROR_INVALID_PARAMETER;
  *subscriber = &only_subscriber;
  return CUPTI_SUCCESS;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t bytes, void **record) {
  (void)buffer;
  (void)bytes;
  (void)record;
  return CUPTI_ERROR_MAX_LIMIT_REACHED; /* there is none */
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped) {
  (void)context;
  (void)stream;
  if (dropped == NULL)
    return CUPTI_ERROR_INVALID_PARAMETER;
  *dropped = 0;
  return CUPTI_SUCCESS;
}

int cuptiActivityPopExternalCorrelationId(int kind, uint64_t *last) {
  (void)kind;
  if (last != NULL)
    *last = 0;
  return CUPTI_SUCCESS;
}

int cuptiGetCallbackName(int domain, uint32_t callback, const char **name) {
  (void)domain;
  (void)callback;
  if (name == NULL)
    return CUPTI_ERROR_INVALID_PARAMETER;
  *name = "unknown";
  return CUPTI_SUCCESS;
}

int cuptiGetResultString(int result, const char **text) {
  if (text == NULL)
    return CUPTI_ERROR_INVALID_PARAMETER;
  *text = result == CUPTI_SUCCESS                   ? "CUPTI_SUCCESS"
          : result == CUPTI_ERROR_INVALID_PARAMETER ? "CUPTI_ERROR_INVALID_PARAMETER"
                                                    : "CUPTI_ERROR_MAX_LIMIT_REACHED";
  return CUPTI_SUCCESS;
}
