/* cudnn.c: libcudnn.so.9. There is no cuDNN; PyTorch asks only for its version. */
enum { CUDNN_STATUS_NOT_SUPPORTED = 3000 };

int cudnnGetProperty(int property, int *value);
int cudnnGetProperty(int property, int *value) {
  (void)property;
  *value = 0;
  return CUDNN_STATUS_NOT_SUPPORTED;
}
