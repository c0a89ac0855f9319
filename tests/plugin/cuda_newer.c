/* A CUDA plugin of the next version. Its table has nothing that this version knows. */
#include "device/cuda/plugin.h"

const fl_cuda_plugin fl_cuda_plugin_table = {.version = FL_CUDA_PLUGIN_VERSION + 1,
                                             .size_bytes = sizeof(fl_cuda_plugin) + 8};
