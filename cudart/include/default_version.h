/* default_version.h: the version of the CUDA runtime for sources that do not define CUDART_VERSION.
 * The installed package has another file of this name. */
#define CUDART_VERSION 13000
