/* cusolver.c: sizes of cuSOLVER's work areas: a setting, because its heuristics decide them. Most
 * functions count elements. */
#include "cudart/planner/answers.h"

#define ELEMENTS(size) (int)(workspace_bytes("cusolver") / (size))

/* For the data types of 4, 8, 8 and 16 bytes: S, D, C and Z. */
#define FOR_TYPES(name, index)                                                                     \
  ANSWER(cusolverDnS##name, index, int, ELEMENTS(4))                                               \
  ANSWER(cusolverDnD##name, index, int, ELEMENTS(8))                                               \
  ANSWER(cusolverDnC##name, index, int, ELEMENTS(8))                                               \
  ANSWER(cusolverDnZ##name, index, int, ELEMENTS(16))
#define FOR_REAL_AND_COMPLEX(real, complex, index)                                                 \
  ANSWER(cusolverDnS##real, index, int, ELEMENTS(4))                                               \
  ANSWER(cusolverDnD##real, index, int, ELEMENTS(8))                                               \
  ANSWER(cusolverDnC##complex, index, int, ELEMENTS(8))                                            \
  ANSWER(cusolverDnZ##complex, index, int, ELEMENTS(16))

FOR_TYPES(geqrf_bufferSize, 5)
FOR_TYPES(gesvd_bufferSize, 3)
FOR_TYPES(gesvdj_bufferSize, 12)
FOR_TYPES(gesvdjBatched_bufferSize, 11)
FOR_TYPES(gesvdaStridedBatched_bufferSize, 16)
FOR_TYPES(getrf_bufferSize, 5)
FOR_TYPES(potrf_bufferSize, 5)
FOR_TYPES(sytrf_bufferSize, 4)
FOR_REAL_AND_COMPLEX(orgqr_bufferSize, ungqr_bufferSize, 7)
FOR_REAL_AND_COMPLEX(ormqr_bufferSize, unmqr_bufferSize, 11)
FOR_REAL_AND_COMPLEX(syevd_bufferSize, heevd_bufferSize, 7)
FOR_REAL_AND_COMPLEX(syevjBatched_bufferSize, heevjBatched_bufferSize, 7)

/* The newer functions have two sizes, on the device and on the host. */
#define FOR_BOTH(name, index)                                                                      \
  int name(void *first, ...);                                                                      \
  int name(void *first, ...) {                                                                     \
    (void)first;                                                                                   \
    va_list arguments;                                                                             \
    va_start(arguments, first);                                                                    \
    for (int i = 1; i < (index); i++)                                                              \
      (void)va_arg(arguments, void *);                                                             \
    *va_arg(arguments, size_t *) = workspace_bytes("cusolver");                                    \
    *va_arg(arguments, size_t *) = 0;                                                              \
    va_end(arguments);                                                                             \
    return 0;                                                                                      \
  }

FOR_BOTH(cusolverDnXgeev_bufferSize, 17)
FOR_BOTH(cusolverDnXgeqrf_bufferSize, 10)
FOR_BOTH(cusolverDnXpotrf_bufferSize, 8)
FOR_BOTH(cusolverDnXsyevBatched_bufferSize, 11)
FOR_BOTH(cusolverDnXsyevd_bufferSize, 11)
FOR_BOTH(cusolverDnXsytrs_bufferSize, 11)
