/* nvjpeg.c: the functions of libnvjpeg.so.13 that torchvision needs. There is no nvJPEG: each call
 * fails. As in bundled_cudart.c, the SONAME has zeros in place of a wheel's eight digits. */
enum { NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED = 9 };

/* clang-format off */
#define NVJPEG_LIST(X)                                                                             \
  X(nvjpegBufferDeviceCreate) X(nvjpegBufferPinnedCreate) X(nvjpegCreateEx) X(nvjpegCreateSimple)  \
  X(nvjpegDecodeBatched) X(nvjpegDecodeBatchedInitialize) X(nvjpegDecodeBatchedSupported)          \
  X(nvjpegDecodeJpegDevice) X(nvjpegDecodeJpegHost) X(nvjpegDecodeJpegTransferToDevice)            \
  X(nvjpegDecodeParamsCreate) X(nvjpegDecodeParamsSetOutputFormat) X(nvjpegDecoderCreate)          \
  X(nvjpegDecoderStateCreate) X(nvjpegEncodeImage) X(nvjpegEncodeRetrieveBitstream)                \
  X(nvjpegEncodeRetrieveBitstreamDevice) X(nvjpegEncoderParamsCreate)                              \
  X(nvjpegEncoderParamsDestroy) X(nvjpegEncoderParamsSetQuality)                                   \
  X(nvjpegEncoderParamsSetSamplingFactors) X(nvjpegEncoderStateCreate)                             \
  X(nvjpegEncoderStateDestroy) X(nvjpegGetImageInfo) X(nvjpegGetProperty)                          \
  X(nvjpegJpegStateCreate) X(nvjpegJpegStateDestroy) X(nvjpegJpegStreamCreate)                     \
  X(nvjpegJpegStreamDestroy) X(nvjpegJpegStreamParse) X(nvjpegJpegStreamParseHeader)               \
  X(nvjpegStateAttachDeviceBuffer) X(nvjpegStateAttachPinnedBuffer) X(nvjpegDestroy)
/* clang-format on */

#define X(name)                                                                                    \
  int name(void);                                                                                  \
  int name(void) {                                                                                 \
    return NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED;                                             \
  }
NVJPEG_LIST(X)
