/* Device memory that NCCL can register, in the plugin. */
#ifndef FL_DEVICE_CUDA_POOL_H
#define FL_DEVICE_CUDA_POOL_H

#include <stddef.h>

/* As the entries of the plugin's table; fl__cuda_pool_give takes memory of cudaMalloc, too. */
int fl__cuda_pool_take(size_t size_bytes, void **out, bool *registers);
int fl__cuda_pool_give(void *memory);

#endif
