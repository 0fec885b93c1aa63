/* bundled_cudart.c: a library that consists of another name of libcudart.
 *
 * Some wheels (torchvision) bring NVIDIA's libcudart under a name of their own, such as
 * libcudart.0123abcd.so.13. The SONAME of this library has zeros in place of the eight digits.
 * torch_openreg/cuda/bundled_libraries.py loads a copy with a wheel's digits. The wheel's extension
 * then finds that name loaded, and the functions in openreg's libcudart, which this library needs.
 */
int cudaPeekAtLastError(void);

/* Makes the linker keep the dependency, and gives the version of the symbols a member. */
int openreg_bundled_cudart(void);
int openreg_bundled_cudart(void) {
  return cudaPeekAtLastError();
}
