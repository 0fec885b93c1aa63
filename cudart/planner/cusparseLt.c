/* cusparseLt.c: sizes of work areas and of compressed matrices, which its heuristics decide: none.
 */
#include "cudart/planner/answers.h"

ANSWER(cusparseLtMatmulGetWorkspace, 2, size_t, 0)
ANSWER(cusparseLtMatmulAlgGetAttribute, 3, int, 0)

int cusparseLtSpMMACompressedSize2(void *handle, void *descriptor, size_t *bytes,
                                   size_t *buffer_bytes);
int cusparseLtSpMMACompressedSize2(void *handle, void *descriptor, size_t *bytes,
                                   size_t *buffer_bytes) {
  (void)handle, (void)descriptor;
  *bytes = *buffer_bytes = 0;
  return 0;
}
