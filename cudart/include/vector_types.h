/* vector_types.h: the vectors that the CUDA runtime's interface uses. */
#ifndef OPENREG_VECTOR_TYPES_H
#define OPENREG_VECTOR_TYPES_H

struct uint3 {
  unsigned int x, y, z;
};
typedef struct uint3 uint3;

struct dim3 {
  unsigned int x, y, z;
#ifdef __cplusplus
  constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
#endif
};
typedef struct dim3 dim3;

#endif
