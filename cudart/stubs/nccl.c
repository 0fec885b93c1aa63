/* nccl.c: libnccl.so.2. There is no NCCL: ranks use openreg's own collectives. PyTorch needs one
 * function of it, to destroy what only NCCL can create. */
enum { NCCL_INVALID_USAGE = 5 };

int ncclDevCommDestroy(void *comm, const void *device_comm);
int ncclDevCommDestroy(void *comm, const void *device_comm) {
  (void)comm;
  (void)device_comm;
  return NCCL_INVALID_USAGE;
}
