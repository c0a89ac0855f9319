/* Kernels that do one thing wrong on request: what the shim must find. */
#ifndef FL_TESTS_SHIM_FAULTS_H
#define FL_TESTS_SHIM_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All launch on the host and return 0, or not 0 and shim_take_error tells why. */

/* y[i] = the sum of x over each block of `threads`, by shared memory and barriers. skip_barrier:
 * the threads wait for each other's parts once, not in each round. */
int fault_block_sum(const float *x, float *y, int blocks, bool skip_barrier);

/* The same within a warp, through shared memory and __syncwarp, which `skip_barrier` leaves out. */
int fault_warp_exchange(const float *x, float *y, bool skip_barrier);

/* y[i] = x[i] for i < n + beyond, in whole blocks. */
int fault_copy(const float *x, float *y, int64_t n, int64_t beyond);

/* Thread `first_late` and later ones of a block return before its barrier. */
int fault_divergent_barrier(int first_late);

/* Odd lanes skip a shuffle. */
int fault_divergent_shuffle(void);

/* Shared memory, of which the last `unwritten` floats are not written before they are read. */
int fault_unwritten(float *y, int unwritten);

/* Read shared memory `beyond` floats behind its end. */
int fault_shared_bounds(float *y, int beyond);

/* Every thread of two blocks adds 1 to *sum: atomically, or with a load and a store. */
int fault_count(int *sum, bool atomic);

/* Threads of a block: y[i] is read by all, and written by thread `writer`, in the same interval. */
int fault_write_after_read(float *y, int writer);

/* y[i] = the value of lane `from`, by each kind of shuffle, then how many lanes from there on there
 * are, by a ballot: [4][32]. */
int fault_shuffles(const double *x, double *y, int from);

/* sum [16][8] += a [16][16] b [16][8] on tensor cores; lane `absent` does not take part. */
int fault_tensor_product(const float *a, const float *b, float *sum, int absent);

#ifdef __cplusplus
}
#endif
#endif
