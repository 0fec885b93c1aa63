/* cudnn.c: cuDNN's interface of graphs, by which PyTorch convolves: one engine fits every graph.
 * Its workspace is a setting, because cuDNN's heuristics decide the sizes. Only programs with that
 * setting use cuDNN (plans/libraries.py). */
#include "cudart/planner/answers.h"

enum { VERSION = 92000, CUDART_VERSION_OF_CUDNN = 13000 };

/* Values of cudnnBackendAttributeName_t. */
enum { ENGINE_HEURISTICS_RESULTS = 202, EXECUTION_PLAN_WORKSPACE_SIZE = 402 };

RETURN(cudnnGetVersion, size_t, VERSION)
RETURN(cudnnGetCudartVersion, size_t, CUDART_VERSION_OF_CUDNN)
RETURN(cudnnGetErrorString, const char *, "openreg: no cuDNN")

int cudnnGetProperty(int property, int *value);
int cudnnGetProperty(int property, int *value) {
  static const int version[] = {9, 20, 0};
  *value = property >= 0 && property < 3 ? version[property] : 0;
  return 0;
}

void cudnnGetLastErrorString(char *text, size_t bytes);
void cudnnGetLastErrorString(char *text, size_t bytes) {
  if (bytes > 0)
    text[0] = '\0';
}

int cudnnBackendCreateDescriptor(int type, void **descriptor);
int cudnnBackendCreateDescriptor(int type, void **descriptor) {
  static int descriptors;
  (void)type;
  *descriptor = &descriptors;
  return 0;
}

int cudnnBackendGetAttribute(void *descriptor, int name, int type, int64_t requested,
                             int64_t *count, void *values);
int cudnnBackendGetAttribute(void *descriptor, int name, int type, int64_t requested,
                             int64_t *count, void *values) {
  (void)descriptor, (void)type;
  int64_t found = name == ENGINE_HEURISTICS_RESULTS || name == EXECUTION_PLAN_WORKSPACE_SIZE;
  if (name == EXECUTION_PLAN_WORKSPACE_SIZE && requested > 0)
    *(int64_t *)values = (int64_t)workspace_bytes("cudnn");
  if (count != NULL)
    *count = found;
  return 0;
}

/* No workspace for batch norm: openreg runs PyTorch's own kernel. */
ANSWER(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize, 8, size_t, 0)
ANSWER(cudnnGetBatchNormalizationBackwardExWorkspaceSize, 10, size_t, 0)
ANSWER(cudnnGetBatchNormalizationTrainingExReserveSpaceSize, 5, size_t, 0)
