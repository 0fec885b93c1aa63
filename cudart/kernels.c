/* kernels.c: CUDA kernels. A compiled program registers them when it is loaded; openreg has no
 * processor that could run them, so each launch is refused with a sentence that names the kernel.
 *
 * A program names a kernel by the address of a host function, the kernel's stub. A hash table leads
 * from there to the name. In programs of CUDA 13 a launch goes through a cudaKernel_t, which is a
 * pointer to the table's record. The sentence is also printed once for each kernel, because the
 * syntax kernel<<<...>>>(...) drops the error, and a program that does not ask for it would go on
 * with wrong results. In the planner's process launches succeed and do nothing (planning.c).
 */
#include "cudart/internal.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kernel {
  const void *stub;
  const char *name; /* mangled; in the program's own data */
  const void *module;
  bool is_reported;
};

/* Records are never moved or freed, because a cudaKernel_t points to one. */
static struct {
  pthread_mutex_t lock;
  struct kernel **slots; /* open addressing */
  size_t count, room;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- the table ------------------------------------------------------------------------------- */

static size_t first_slot(const void *stub) {
  return (size_t)((uintptr_t)stub * UINT64_C(0x9E3779B97F4A7C15) >> 20) & (table.room - 1);
}

/* Returns the slot of a stub: its record's, or the empty one where the record belongs. */
static struct kernel **find_slot(const void *stub) {
  size_t at = first_slot(stub);
  while (table.slots[at] != NULL && table.slots[at]->stub != stub)
    at = (at + 1) & (table.room - 1);
  return &table.slots[at];
}

static bool ensure_room(void) {
  enum { FIRST_ROOM = 256 };
  if (2 * (table.count + 1) <= table.room)
    return true;
  struct kernel **before = table.slots;
  size_t room_before = table.room, room = room_before > 0 ? 2 * room_before : FIRST_ROOM;
  struct kernel **slots = calloc(room, sizeof(struct kernel *));
  if (slots == NULL)
    return false;
  table.slots = slots;
  table.room = room;
  for (size_t i = 0; i < room_before; i++)
    if (before[i] != NULL)
      *find_slot(before[i]->stub) = before[i];
  free(before);
  return true;
}

static struct kernel *find(const void *stub) {
  pthread_mutex_lock(&table.lock);
  struct kernel *found = table.room > 0 ? *find_slot(stub) : NULL;
  pthread_mutex_unlock(&table.lock);
  return found;
}

static void add(const void *stub, const char *name, const void *module) {
  pthread_mutex_lock(&table.lock);
  struct kernel **slot = ensure_room() ? find_slot(stub) : NULL;
  if (slot != NULL && *slot == NULL) {
    *slot = calloc(1, sizeof **slot);
    table.count += *slot != NULL;
  }
  if (slot != NULL && *slot != NULL)
    **slot = (struct kernel){.stub = stub, .name = name, .module = module};
  pthread_mutex_unlock(&table.lock);
}

/* An unloaded library takes its names along. */
static void forget_names(const void *module) {
  pthread_mutex_lock(&table.lock);
  for (size_t i = 0; i < table.room; i++)
    if (table.slots[i] != NULL && table.slots[i]->module == module)
      table.slots[i]->name = NULL;
  pthread_mutex_unlock(&table.lock);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Demangles with the C++ library, which a program with CUDA kernels has loaded. Returns memory of
 * malloc; NULL: not possible. */
static char *demangle(const char *name) {
  typedef char *(*demangler)(const char *name, char *buffer, size_t *length, int *status);
  void *library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
  if (library == NULL)
    return NULL;
  demangler function = (demangler)dlsym(library, "__cxa_demangle");
  int status;
  char *text = function != NULL ? function(name, NULL, NULL, &status) : NULL;
  dlclose(library);
  return text;
}

static cudaError_t launch(struct kernel *kernel, const void *stub) {
  static const char why[] = "openreg simulates the memory and the streams of a GPU, and cannot run "
                            "CUDA code. Use the operator's CPU implementation";
  cudaError_t error;
  if (cudart_is_planning())
    return cudaSuccess;
  if (kernel == NULL || kernel->name == NULL)
    return cudart_fail(cudaErrorInvalidDeviceFunction,
                       "openreg: %p is not the host function of a registered CUDA kernel", stub);
  char *name = demangle(kernel->name);
  error = cudart_fail(cudaErrorNotSupported, "openreg: the CUDA kernel %s was not launched: %s",
                      name != NULL ? name : kernel->name, why);
  free(name);
  pthread_mutex_lock(&table.lock);
  bool is_first = !kernel->is_reported;
  kernel->is_reported = true;
  pthread_mutex_unlock(&table.lock);
  if (is_first)
    fprintf(stderr, "%s\n", openreg_cudart_sentence(error));
  return error;
}

/* ---- registration: called by code that NVIDIA's compiler generates --------------------------- */

void **__cudaRegisterFatBinary(void *fatCubin);
void __cudaRegisterFatBinaryEnd(void **fatCubinHandle);
void __cudaUnregisterFatBinary(void **fatCubinHandle);
void __cudaRegisterFunction(void **fatCubinHandle, const char *hostFun, char *deviceFun,
                            const char *deviceName, int thread_limit, uint3 *tid, uint3 *bid,
                            dim3 *bDim, dim3 *gDim, int *wSize);
void __cudaRegisterVar(void **fatCubinHandle, char *hostVar, char *deviceAddress,
                       const char *deviceName, int ext, size_t size, int constant, int global);
void __cudaRegisterManagedVar(void **fatCubinHandle, void **hostVarPtrAddress, char *deviceAddress,
                              const char *deviceName, int ext, size_t size, int constant,
                              int global);
void __cudaRegisterHostVar(void **fatCubinHandle, const char *deviceName, char *hostVar,
                           size_t size);
void __cudaRegisterUnifiedTable(void **fatCubinHandle, const void *unified);
char __cudaInitModule(void **fatCubinHandle);
unsigned __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem,
                                     struct CUstream_st *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *gridDim, dim3 *blockDim, size_t *sharedMem,
                                       void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *stub);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void **args,
                               size_t sharedMem, cudaStream_t stream);

/* The handle of a module is the address of memory that holds the module's code. */
void **__cudaRegisterFatBinary(void *fatCubin) {
  void **handle = malloc(sizeof *handle);
  if (handle != NULL)
    *handle = fatCubin;
  return handle;
}

void __cudaRegisterFatBinaryEnd(void **fatCubinHandle) {
  (void)fatCubinHandle;
}

void __cudaUnregisterFatBinary(void **fatCubinHandle) {
  forget_names(fatCubinHandle);
  free(fatCubinHandle);
}

void __cudaRegisterFunction(void **fatCubinHandle, const char *hostFun, char *deviceFun,
                            const char *deviceName, int thread_limit, uint3 *tid, uint3 *bid,
                            dim3 *bDim, dim3 *gDim, int *wSize) {
  (void)deviceFun, (void)thread_limit, (void)tid, (void)bid, (void)bDim, (void)gDim, (void)wSize;
  add(hostFun, deviceName, fatCubinHandle);
}

/* Variables of kernels have no memory: the functions that copy to and from them are refused. */
void __cudaRegisterVar(void **fatCubinHandle, char *hostVar, char *deviceAddress,
                       const char *deviceName, int ext, size_t size, int constant, int global) {
  (void)fatCubinHandle, (void)hostVar, (void)deviceAddress, (void)deviceName;
  (void)ext, (void)size, (void)constant, (void)global;
}

void __cudaRegisterManagedVar(void **fatCubinHandle, void **hostVarPtrAddress, char *deviceAddress,
                              const char *deviceName, int ext, size_t size, int constant,
                              int global) {
  (void)fatCubinHandle, (void)hostVarPtrAddress, (void)deviceAddress, (void)deviceName;
  (void)ext, (void)size, (void)constant, (void)global;
}

void __cudaRegisterHostVar(void **fatCubinHandle, const char *deviceName, char *hostVar,
                           size_t size) {
  (void)fatCubinHandle, (void)deviceName, (void)hostVar, (void)size;
}

void __cudaRegisterUnifiedTable(void **fatCubinHandle, const void *unified) {
  (void)fatCubinHandle, (void)unified;
}

char __cudaInitModule(void **fatCubinHandle) {
  (void)fatCubinHandle;
  return 1;
}

/* ---- launches -------------------------------------------------------------------------------- */

/* Between kernel<<<...>>> and the kernel's stub. The configuration is dropped with the launch, but
 * the stub does not launch unless it can read one. */
static _Thread_local unsigned pushed;

unsigned __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem,
                                     struct CUstream_st *stream) {
  (void)gridDim, (void)blockDim, (void)sharedMem, (void)stream;
  pushed++;
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *gridDim, dim3 *blockDim, size_t *sharedMem,
                                       void *stream) {
  if (pushed == 0)
    return cudart_fail(cudaErrorMissingConfiguration,
                       "openreg: a kernel was called without a launch configuration");
  pushed--;
  gridDim->x = gridDim->y = gridDim->z = 1;
  *blockDim = *gridDim;
  *sharedMem = 0;
  *(cudaStream_t *)stream = NULL;
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *func, dim3 gridDim, dim3 blockDim, void **args,
                             size_t sharedMem, cudaStream_t stream) {
  (void)gridDim, (void)blockDim, (void)args, (void)sharedMem, (void)stream;
  return launch(find(func), func);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *func, void **args) {
  (void)config, (void)args;
  return launch(find(func), func);
}

cudaError_t cudaLaunchCooperativeKernel(const void *func, dim3 gridDim, dim3 blockDim, void **args,
                                        size_t sharedMem, cudaStream_t stream) {
  return cudaLaunchKernel(func, gridDim, blockDim, args, sharedMem, stream);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void **args,
                               size_t sharedMem, cudaStream_t stream) {
  (void)gridDim, (void)blockDim, (void)args, (void)sharedMem, (void)stream;
  return launch((struct kernel *)kernel, kernel);
}

/* ---- questions about kernels ----------------------------------------------------------------- */

static cudaError_t require(const void *func, struct kernel **kernel) {
  *kernel = find(func);
  return *kernel != NULL && (*kernel)->name != NULL
             ? cudaSuccess
             : cudart_fail(cudaErrorInvalidDeviceFunction,
                           "openreg: %p is not the host function of a registered CUDA kernel",
                           func);
}

cudaError_t cudaGetKernel(cudaKernel_t *kernelPtr, const void *entryFuncAddr) {
  struct kernel *kernel;
  if (kernelPtr == NULL)
    return cudart_fail_null(__func__, "kernelPtr");
  cudaError_t error = require(entryFuncAddr, &kernel);
  if (error == cudaSuccess)
    *kernelPtr = (cudaKernel_t)kernel;
  return error;
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *stub) {
  return cudaGetKernel(kernel, stub);
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t *functionPtr, const void *symbolPtr) {
  return cudaGetKernel((cudaKernel_t *)functionPtr, symbolPtr);
}

cudaError_t cudaFuncGetName(const char **name, const void *func) {
  struct kernel *kernel;
  if (name == NULL)
    return cudart_fail_null(__func__, "name");
  cudaError_t error = require(func, &kernel);
  if (error == cudaSuccess)
    *name = kernel->name;
  return error;
}

/* openreg does not read a kernel's code. So it reports what every kernel may have: as many threads
 * as a block holds, and no registers or memory. */
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr, const void *func) {
  struct kernel *kernel;
  if (attr == NULL)
    return cudart_fail_null(__func__, "attr");
  cudaError_t error = require(func, &kernel);
  int device, threads, shared, major, minor;
  if (error == cudaSuccess)
    error = cudart_return(cudart_enter(&device));
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerBlock, device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlock, device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (error != cudaSuccess)
    return error;
  memset(attr, 0, sizeof *attr);
  attr->maxThreadsPerBlock = threads;
  attr->maxDynamicSharedSizeBytes = shared;
  attr->ptxVersion = attr->binaryVersion =
      cudart_is_planning() ? cudart_plan_binary_version() : 10 * major + minor;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attr, int value) {
  struct kernel *kernel;
  (void)value;
  if ((int)attr < cudaFuncAttributeMaxDynamicSharedMemorySize || attr >= cudaFuncAttributeMax)
    return cudart_fail(cudaErrorInvalidValue, "cudaFuncSetAttribute: unknown attribute %d",
                       (int)attr);
  return require(func, &kernel);
}

cudaError_t cudaFuncSetCacheConfig(const void *func, enum cudaFuncCache cacheConfig) {
  struct kernel *kernel;
  (void)cacheConfig;
  return require(func, &kernel);
}

cudaError_t cudaFuncSetSharedMemConfig(const void *func, enum cudaSharedMemConfig config) {
  struct kernel *kernel;
  (void)config;
  return require(func, &kernel);
}

static int least(int a, int b) {
  return a < b ? a : b;
}

/* An upper bound: the registers that the kernel needs are not known. */
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, const void *func,
                                                                   int blockSize,
                                                                   size_t dynamicSMemSize,
                                                                   unsigned int flags) {
  (void)flags;
  struct kernel *kernel;
  struct cudaDeviceProp prop;
  int device;
  if (numBlocks == NULL || blockSize < 1)
    return cudart_fail(cudaErrorInvalidValue,
                       "cudaOccupancyMaxActiveBlocksPerMultiprocessor: expected an address and 1 "
                       "thread or more");
  cudaError_t error = require(func, &kernel);
  if (error == cudaSuccess)
    error = cudart_return(cudart_enter(&device));
  if (error == cudaSuccess)
    error = cudaGetDeviceProperties(&prop, device);
  if (error != cudaSuccess)
    return error;
  int warps = (blockSize + prop.warpSize - 1) / prop.warpSize;
  int blocks = least(prop.maxBlocksPerMultiProcessor,
                     prop.maxThreadsPerMultiProcessor / (warps * prop.warpSize));
  size_t shared = dynamicSMemSize + prop.reservedSharedMemPerBlock;
  if (shared > 0 && prop.sharedMemPerMultiprocessor / shared < (size_t)blocks)
    blocks = (int)(prop.sharedMemPerMultiprocessor / shared);
  *numBlocks = blockSize > prop.maxThreadsPerBlock ? 0 : blocks;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, const void *func,
                                                          int blockSize, size_t dynamicSMemSize) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize,
                                                                dynamicSMemSize, 0);
}
