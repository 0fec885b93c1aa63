/* cudnn.c: versions. The planner does not use cuDNN: its heuristics decide the sizes. */
#include "cudart/planner/answers.h"

enum { VERSION = 92000, CUDART_VERSION_OF_CUDNN = 13000, NOT_SUPPORTED = 3000 };

RETURN(cudnnGetVersion, size_t, VERSION)
RETURN(cudnnGetCudartVersion, size_t, CUDART_VERSION_OF_CUDNN)
RETURN(cudnnGetErrorString, const char *, "openreg: no cuDNN")
RETURN(cudnnBackendFinalize, int, NOT_SUPPORTED)

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
