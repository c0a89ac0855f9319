/* How the kernels are launched and what they share. Two compilers read these files: nvcc, and for
 * tests a C++ compiler with tests/shim/cuda_c.h before them, which runs a launch on the host. */
#ifndef FL_DEVICE_CUDA_KERNELS_LAUNCH_CUH
#define FL_DEVICE_CUDA_KERNELS_LAUNCH_CUH

#ifdef __CUDACC__

/* FL_SHARED(float, tile, [32][33]) declares an array of the block. */
#define FL_SHARED(type, name, size) __shared__ type name size

/* Run a kernel with blocks of `threads`; 0 or the runtime's error code. */
template <typename... P, typename... A>
static int launch(void (*kernel)(P...), dim3 grid, unsigned threads, void *stream, A... arguments)
{
    kernel<<<grid, threads, 0, static_cast<cudaStream_t>(stream)>>>(arguments...);
    return static_cast<int>(cudaGetLastError());
}

#endif
#endif
