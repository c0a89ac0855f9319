/* CUDA C on the host: what a test needs of it.
 *
 * The kernels in device/cuda/kernels are CUDA C. cuda_c.h lets a C++ compiler read the same source;
 * the functions behind it run a launch on the host, one block after another, each thread as a fibre
 * (launch.c). The compiler reports every load and store that a kernel makes (-fsanitize=thread
 * calls the functions in instrument.c instead of ThreadSanitizer's), and the shim checks each of
 * them against the memory that the kernel may use and against what other threads did (shadow.c).
 *
 * A launch fails, with a line that names the kernel's launch, the block, the thread and the
 * address, if a thread
 *   - reads or writes outside device memory, shared arrays, its parameters and its own stack;
 *   - writes what another thread reads or writes with no barrier in between, or the reverse;
 *   - reads a byte of shared memory that no thread of its block has written;
 *   - waits at a barrier or a shuffle that another thread of the block or warp does not reach.
 *
 * Order between two threads comes from __syncthreads, and within a warp from __syncwarp. Shuffles
 * order nothing. Two blocks are in no order, so they may share memory through atomics only.
 * Nothing here is thread-safe: one thread launches. */
#ifndef FL_TESTS_SHIM_SHIM_H
#define FL_TESTS_SHIM_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Memory that kernels may use. It is the caller's; `name`, which stays the caller's, stands in
 * messages. Regions do not overlap. Threads: the one that launches. */
void shim_region_add(const void *memory, size_t size_bytes, const char *name);
void shim_region_remove(const void *memory);

/* Whether all of it lies in one region. */
bool shim_region_holds(const void *memory, size_t size_bytes);

/* What stopped the last launch that failed; "" if none did since the last call. */
const char *shim_take_error(void);

/* Whether kernels find tensor cores, which they do at first. */
void shim_set_tensor_cores(bool has);

/* Launches that ran to their end, threads in them, and products of tensor cores, one for each
 * thread: a test that launched nothing shows. */
typedef struct shim_counts {
    int64_t launches, threads, tensor_products;
} shim_counts;
shim_counts shim_count(void);

#ifdef __cplusplus
}
#endif
#endif
