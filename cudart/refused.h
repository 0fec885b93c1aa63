/* refused.h: the names of the functions that openreg does not implement, in alphabetical order.
 * With the functions of cuda_runtime_api.h and kernels.c they are all that CUDA 12.8 and 13.0
 * export. */
#ifndef OPENREG_CUDART_REFUSED_H
#define OPENREG_CUDART_REFUSED_H

/* clang-format off */

/* X(name): in both versions */
#define REFUSED_LIST(X)                                                                            \
  X(cudaArrayGetInfo) X(cudaArrayGetMemoryRequirements) X(cudaArrayGetPlane)                       \
  X(cudaArrayGetSparseProperties) X(cudaCreateSurfaceObject) X(cudaCreateTextureObject)            \
  X(cudaCtxResetPersistingL2Cache) X(cudaDestroyExternalMemory) X(cudaDestroyExternalSemaphore)    \
  X(cudaDestroySurfaceObject) X(cudaDestroyTextureObject) X(cudaDeviceFlushGPUDirectRDMAWrites)    \
  X(cudaDeviceGetGraphMemAttribute) X(cudaDeviceGetNvSciSyncAttributes)                            \
  X(cudaDeviceGetTexture1DLinearMaxWidth) X(cudaDeviceGraphMemTrim)                                \
  X(cudaDeviceRegisterAsyncNotification) X(cudaDeviceSetGraphMemAttribute)                         \
  X(cudaDeviceUnregisterAsyncNotification) X(cudaEGLStreamConsumerAcquireFrame)                    \
  X(cudaEGLStreamConsumerConnect) X(cudaEGLStreamConsumerConnectWithFlags)                         \
  X(cudaEGLStreamConsumerDisconnect) X(cudaEGLStreamConsumerReleaseFrame)                          \
  X(cudaEGLStreamProducerConnect) X(cudaEGLStreamProducerDisconnect)                               \
  X(cudaEGLStreamProducerPresentFrame) X(cudaEGLStreamProducerReturnFrame)                         \
  X(cudaEventCreateFromEGLSync) X(cudaExternalMemoryGetMappedBuffer)                               \
  X(cudaExternalMemoryGetMappedMipmappedArray) X(cudaFreeArray) X(cudaFreeMipmappedArray)          \
  X(cudaFuncGetParamInfo) X(cudaGLGetDevices) X(cudaGLMapBufferObject)                             \
  X(cudaGLMapBufferObjectAsync) X(cudaGLRegisterBufferObject) X(cudaGLSetBufferObjectMapFlags)     \
  X(cudaGLSetGLDevice) X(cudaGLUnmapBufferObject) X(cudaGLUnmapBufferObjectAsync)                  \
  X(cudaGLUnregisterBufferObject) X(cudaGetChannelDesc) X(cudaGetExportTable)                      \
  X(cudaGetMipmappedArrayLevel) X(cudaGetSurfaceObjectResourceDesc) X(cudaGetSymbolAddress)        \
  X(cudaGetSymbolSize) X(cudaGetTextureObjectResourceDesc)                                         \
  X(cudaGetTextureObjectResourceViewDesc) X(cudaGetTextureObjectTextureDesc)                       \
  X(cudaGraphAddChildGraphNode) X(cudaGraphAddDependencies) X(cudaGraphAddEmptyNode)               \
  X(cudaGraphAddEventRecordNode) X(cudaGraphAddEventWaitNode)                                      \
  X(cudaGraphAddExternalSemaphoresSignalNode) X(cudaGraphAddExternalSemaphoresWaitNode)            \
  X(cudaGraphAddHostNode) X(cudaGraphAddKernelNode) X(cudaGraphAddMemAllocNode)                    \
  X(cudaGraphAddMemFreeNode) X(cudaGraphAddMemcpyNode) X(cudaGraphAddMemcpyNode1D)                 \
  X(cudaGraphAddMemcpyNodeFromSymbol) X(cudaGraphAddMemcpyNodeToSymbol) X(cudaGraphAddMemsetNode)  \
  X(cudaGraphAddNode) X(cudaGraphChildGraphNodeGetGraph) X(cudaGraphClone)                         \
  X(cudaGraphConditionalHandleCreate) X(cudaGraphCreate) X(cudaGraphDebugDotPrint)                 \
  X(cudaGraphDestroyNode) X(cudaGraphEventRecordNodeGetEvent) X(cudaGraphEventRecordNodeSetEvent)  \
  X(cudaGraphEventWaitNodeGetEvent) X(cudaGraphEventWaitNodeSetEvent)                              \
  X(cudaGraphExecChildGraphNodeSetParams) X(cudaGraphExecEventRecordNodeSetEvent)                  \
  X(cudaGraphExecEventWaitNodeSetEvent) X(cudaGraphExecExternalSemaphoresSignalNodeSetParams)      \
  X(cudaGraphExecExternalSemaphoresWaitNodeSetParams) X(cudaGraphExecGetFlags)                     \
  X(cudaGraphExecHostNodeSetParams) X(cudaGraphExecKernelNodeSetParams)                            \
  X(cudaGraphExecMemcpyNodeSetParams) X(cudaGraphExecMemcpyNodeSetParams1D)                        \
  X(cudaGraphExecMemcpyNodeSetParamsFromSymbol) X(cudaGraphExecMemcpyNodeSetParamsToSymbol)        \
  X(cudaGraphExecMemsetNodeSetParams) X(cudaGraphExecNodeSetParams) X(cudaGraphExecUpdate)         \
  X(cudaGraphExternalSemaphoresSignalNodeGetParams)                                                \
  X(cudaGraphExternalSemaphoresSignalNodeSetParams)                                                \
  X(cudaGraphExternalSemaphoresWaitNodeGetParams) X(cudaGraphExternalSemaphoresWaitNodeSetParams)  \
  X(cudaGraphGetEdges) X(cudaGraphGetRootNodes) X(cudaGraphHostNodeGetParams)                      \
  X(cudaGraphHostNodeSetParams) X(cudaGraphInstantiateWithParams)                                  \
  X(cudaGraphKernelNodeCopyAttributes) X(cudaGraphKernelNodeGetAttribute)                          \
  X(cudaGraphKernelNodeGetParams) X(cudaGraphKernelNodeSetAttribute)                               \
  X(cudaGraphKernelNodeSetParams) X(cudaGraphMemAllocNodeGetParams)                                \
  X(cudaGraphMemFreeNodeGetParams) X(cudaGraphMemcpyNodeGetParams)                                 \
  X(cudaGraphMemcpyNodeSetParams) X(cudaGraphMemcpyNodeSetParams1D)                                \
  X(cudaGraphMemcpyNodeSetParamsFromSymbol) X(cudaGraphMemcpyNodeSetParamsToSymbol)                \
  X(cudaGraphMemsetNodeGetParams) X(cudaGraphMemsetNodeSetParams) X(cudaGraphNodeFindInClone)      \
  X(cudaGraphNodeGetDependentNodes) X(cudaGraphNodeGetEnabled) X(cudaGraphNodeGetType)             \
  X(cudaGraphNodeSetEnabled) X(cudaGraphNodeSetParams) X(cudaGraphReleaseUserObject)               \
  X(cudaGraphRemoveDependencies) X(cudaGraphRetainUserObject) X(cudaGraphicsEGLRegisterImage)      \
  X(cudaGraphicsGLRegisterBuffer) X(cudaGraphicsGLRegisterImage) X(cudaGraphicsMapResources)       \
  X(cudaGraphicsResourceGetMappedEglFrame) X(cudaGraphicsResourceGetMappedMipmappedArray)          \
  X(cudaGraphicsResourceGetMappedPointer) X(cudaGraphicsResourceSetMapFlags)                       \
  X(cudaGraphicsSubResourceGetMappedArray) X(cudaGraphicsUnmapResources)                           \
  X(cudaGraphicsUnregisterResource) X(cudaGraphicsVDPAURegisterOutputSurface)                      \
  X(cudaGraphicsVDPAURegisterVideoSurface) X(cudaImportExternalMemory)                             \
  X(cudaImportExternalSemaphore) X(cudaKernelSetAttributeForDevice)                                \
  X(cudaLibraryEnumerateKernels) X(cudaLibraryGetGlobal) X(cudaLibraryGetKernel)                   \
  X(cudaLibraryGetKernelCount) X(cudaLibraryGetManaged) X(cudaLibraryGetUnifiedFunction)           \
  X(cudaLibraryLoadData) X(cudaLibraryLoadFromFile) X(cudaLibraryUnload) X(cudaMalloc3D)           \
  X(cudaMalloc3DArray) X(cudaMallocArray) X(cudaMallocMipmappedArray)         \
  X(cudaMemAdvise) X(cudaMemPoolExportPointer) X(cudaMemPoolExportToShareableHandle)               \
  X(cudaMemPoolImportFromShareableHandle) X(cudaMemPoolImportPointer) X(cudaMemPrefetchAsync)      \
  X(cudaMemRangeGetAttribute) X(cudaMemRangeGetAttributes) X(cudaMemcpy2DArrayToArray)             \
  X(cudaMemcpy2DFromArray) X(cudaMemcpy2DFromArrayAsync) X(cudaMemcpy2DToArray)                    \
  X(cudaMemcpy2DToArrayAsync) X(cudaMemcpy3D) X(cudaMemcpy3DAsync) X(cudaMemcpy3DBatchAsync)       \
  X(cudaMemcpy3DPeer) X(cudaMemcpy3DPeerAsync) X(cudaMemcpyArrayToArray) X(cudaMemcpyBatchAsync)   \
  X(cudaMemcpyFromArray) X(cudaMemcpyFromArrayAsync) X(cudaMemcpyFromSymbol)                       \
  X(cudaMemcpyFromSymbolAsync) X(cudaMemcpyToArray) X(cudaMemcpyToArrayAsync)                      \
  X(cudaMemcpyToSymbol) X(cudaMemcpyToSymbolAsync) X(cudaMemset3D) X(cudaMemset3DAsync)            \
  X(cudaMipmappedArrayGetMemoryRequirements) X(cudaMipmappedArrayGetSparseProperties)              \
  X(cudaOccupancyAvailableDynamicSMemPerBlock) X(cudaOccupancyMaxActiveClusters)                   \
  X(cudaOccupancyMaxPotentialClusterSize) X(cudaSignalExternalSemaphoresAsync)                     \
  X(cudaStreamAttachMemAsync) X(cudaStreamBeginCaptureToGraph) X(cudaStreamCopyAttributes)         \
  X(cudaStreamGetAttribute) X(cudaStreamSetAttribute) X(cudaStreamUpdateCaptureDependencies)       \
  X(cudaUserObjectCreate) X(cudaUserObjectRelease) X(cudaUserObjectRetain) X(cudaVDPAUGetDevice)   \
  X(cudaVDPAUSetVDPAUDevice) X(cudaWaitExternalSemaphoresAsync)

/* X(name): only in CUDA 12 */
#define REFUSED_LIST_12(X)                                                                         \
  X(cudaGetDeviceProperties) X(cudaGraphAddDependencies_v2) X(cudaGraphAddNode_v2)                 \
  X(cudaGraphGetEdges_v2) X(cudaGraphNodeGetDependentNodes_v2) X(cudaGraphRemoveDependencies_v2)   \
  X(cudaLaunchCooperativeKernelMultiDevice) X(cudaMemAdvise_v2) X(cudaMemPrefetchAsync_v2)         \
  X(cudaSetDoubleForDevice) X(cudaSetDoubleForHost) X(cudaSignalExternalSemaphoresAsync_v2)        \
  X(cudaStreamUpdateCaptureDependencies_v2) X(cudaThreadExit) X(cudaThreadGetCacheConfig)          \
  X(cudaThreadGetLimit) X(cudaThreadSetCacheConfig) X(cudaThreadSetLimit)                          \
  X(cudaThreadSynchronize) X(cudaWaitExternalSemaphoresAsync_v2)

/* X(name): only in CUDA 13 */
#define REFUSED_LIST_13(X)                                                                         \
  X(__cudaGetProcAddress) X(cudaDeviceGetHostAtomicCapabilities)                                   \
  X(cudaDeviceGetP2PAtomicCapabilities) X(cudaLogsCurrent) X(cudaLogsDumpToFile)                   \
  X(cudaLogsDumpToMemory) X(cudaLogsRegisterCallback) X(cudaLogsUnregisterCallback)                \
  X(cudaMemDiscardAndPrefetchBatchAsync) X(cudaMemDiscardBatchAsync) X(cudaMemGetDefaultMemPool)   \
  X(cudaMemGetMemPool) X(cudaMemPrefetchBatchAsync) X(cudaMemSetMemPool)

/* X(name): in both versions, for programs whose default stream is that of the thread */
#define REFUSED_PER_THREAD_LIST(X)                                                                 \
  X(__cudaLaunchKernel_ptsz) X(cudaEventRecordWithFlags_ptsz) X(cudaEventRecord_ptsz)              \
  X(cudaFreeAsync_ptsz) X(cudaGetDriverEntryPointByVersion_ptsz) X(cudaGetDriverEntryPoint_ptsz)   \
  X(cudaGraphInstantiateWithParams_ptsz) X(cudaGraphLaunch_ptsz) X(cudaGraphUpload_ptsz)           \
  X(cudaLaunchCooperativeKernel_ptsz) X(cudaLaunchHostFunc_ptsz) X(cudaLaunchKernelExC_ptsz)       \
  X(cudaLaunchKernel_ptsz) X(cudaMallocAsync_ptsz) X(cudaMallocFromPoolAsync_ptsz)                 \
  X(cudaMemPrefetchAsync_ptsz) X(cudaMemcpy2DArrayToArray_ptds) X(cudaMemcpy2DAsync_ptsz)          \
  X(cudaMemcpy2DFromArrayAsync_ptsz) X(cudaMemcpy2DFromArray_ptds)                                 \
  X(cudaMemcpy2DToArrayAsync_ptsz) X(cudaMemcpy2DToArray_ptds) X(cudaMemcpy2D_ptds)                \
  X(cudaMemcpy3DAsync_ptsz) X(cudaMemcpy3DBatchAsync_ptsz) X(cudaMemcpy3DPeerAsync_ptsz)           \
  X(cudaMemcpy3DPeer_ptds) X(cudaMemcpy3D_ptds) X(cudaMemcpyArrayToArray_ptds)                     \
  X(cudaMemcpyAsync_ptsz) X(cudaMemcpyBatchAsync_ptsz) X(cudaMemcpyFromArrayAsync_ptsz)            \
  X(cudaMemcpyFromArray_ptds) X(cudaMemcpyFromSymbolAsync_ptsz) X(cudaMemcpyFromSymbol_ptds)       \
  X(cudaMemcpyToArrayAsync_ptsz) X(cudaMemcpyToArray_ptds) X(cudaMemcpyToSymbolAsync_ptsz)         \
  X(cudaMemcpyToSymbol_ptds) X(cudaMemcpy_ptds) X(cudaMemset2DAsync_ptsz) X(cudaMemset2D_ptds)     \
  X(cudaMemset3DAsync_ptsz) X(cudaMemset3D_ptds) X(cudaMemsetAsync_ptsz) X(cudaMemset_ptds)        \
  X(cudaSignalExternalSemaphoresAsync_ptsz) X(cudaStreamAddCallback_ptsz)                          \
  X(cudaStreamAttachMemAsync_ptsz) X(cudaStreamBeginCaptureToGraph_ptsz)                           \
  X(cudaStreamBeginCapture_ptsz) X(cudaStreamCopyAttributes_ptsz) X(cudaStreamEndCapture_ptsz)     \
  X(cudaStreamGetAttribute_ptsz) X(cudaStreamGetCaptureInfo_ptsz) X(cudaStreamGetDevice_ptsz)      \
  X(cudaStreamGetFlags_ptsz) X(cudaStreamGetId_ptsz) X(cudaStreamGetPriority_ptsz)                 \
  X(cudaStreamIsCapturing_ptsz) X(cudaStreamQuery_ptsz) X(cudaStreamSetAttribute_ptsz)             \
  X(cudaStreamSynchronize_ptsz) X(cudaStreamUpdateCaptureDependencies_ptsz)                        \
  X(cudaStreamWaitEvent_ptsz) X(cudaWaitExternalSemaphoresAsync_ptsz)

/* X(name): the same, only in CUDA 12 */
#define REFUSED_PER_THREAD_LIST_12(X)                                                              \
  X(cudaMemPrefetchAsync_v2_ptsz) X(cudaSignalExternalSemaphoresAsync_v2_ptsz)                     \
  X(cudaStreamGetCaptureInfo_v2_ptsz) X(cudaStreamGetCaptureInfo_v3_ptsz)                          \
  X(cudaStreamUpdateCaptureDependencies_v2_ptsz) X(cudaWaitExternalSemaphoresAsync_v2_ptsz)

/* X(name): the same, only in CUDA 13 */
#define REFUSED_PER_THREAD_LIST_13(X)                                                              \
  X(cudaMemDiscardAndPrefetchBatchAsync_ptsz) X(cudaMemDiscardBatchAsync_ptsz)                     \
  X(cudaMemPrefetchBatchAsync_ptsz)

/* clang-format on */

#endif
