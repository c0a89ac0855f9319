/* What the parts of the shim share. */
#ifndef FL_TESTS_SHIM_PARTS_H
#define FL_TESTS_SHIM_PARTS_H

#include "tests/shim/shim.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SHIM_WARP = 32, SHIM_THREADS_MAX = 1024, SHIM_SHARED_MAX = 48 * 1024 };

/* What a launch returns; also what a CUDA runtime would return for a kernel that failed. */
enum { SHIM_OK = 0, SHIM_LAUNCH_FAILED = 719 };

typedef struct shim_dim {
    unsigned x, y, z;
} shim_dim;

/* ---- launch.c: blocks and threads ---- */

/* Run grid.x * y * z blocks. run(call) runs the kernel for the thread that is current.
 * call [call_bytes]: the launch's parameters, which the kernel may read */
int shim_launch(const char *file, int line, shim_dim grid, shim_dim block, void (*run)(void *call),
                void *call, size_t call_bytes);

/* The same as work of a stream: where the stream is captured, the launch is noted with a copy of
 * its parameters. */
int shim_launch_on(const void *stream, const char *file, int line, shim_dim grid, shim_dim block,
                   void (*run)(void *call), void *call, size_t call_bytes);

shim_dim shim_thread_idx(void), shim_block_idx(void), shim_block_dim(void), shim_grid_dim(void);

/* Memory of the block for the array that is declared at (file, line); the same for all threads. */
void *shim_shared(const char *file, int line, const char *name, size_t size_bytes);

void shim_sync_block(const char *file, int line);

/* What a warp does together. */
typedef enum shim_warp_op { SHIM_SYNC, SHIM_XOR, SHIM_DOWN, SHIM_FROM, SHIM_BALLOT } shim_warp_op;

/* The value of the lane that `op` and `argument` name; SHIM_BALLOT: a bit for each lane, set where
 * its value is not 0. All lanes take part: mask is ~0. */
uint64_t shim_sync_warp(const char *file, int line, shim_warp_op op, uint32_t mask, uint64_t value,
                        int argument);

/* sum += a b: the instruction mma.m16n8k16 of bf16 values, as its definition spreads the elements
 * over the lanes of a warp. */
void shim_mma(const char *file, int line, float sum[4], const uint32_t a[4], const uint32_t b[2]);
bool shim_has_tensor_cores(void);
int64_t shim_tensor_products(void); /* so far */

/* Whether a kernel's thread is running now. */
bool shim_running(void);

/* Stop the launch: the current thread does not go on. */
_Noreturn void shim_stop(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- shadow.c: who touched which byte ---- */

typedef enum shim_access_kind { SHIM_READ, SHIM_WRITE, SHIM_ATOMIC } shim_access_kind;

/* The thread that is running, as an order in time. Blocks count through all launches. */
typedef struct shim_now {
    uint32_t first_block; /* of this launch */
    uint32_t block;
    uint32_t epoch;      /* barriers of the block so far */
    uint32_t warp_epoch; /* of the thread's warp */
    uint32_t thread;
    const char *stack; /* [stack_bytes], of the thread itself */
    size_t stack_bytes;
} shim_now;

/* Check an access by the current thread, and remember it. */
void shim_access(const void *memory, size_t size_bytes, shim_access_kind kind);

/* launch.c has it. */
const shim_now *shim_current(void);

/* As shim_region_add. shared: of one block, unwritten when a block begins. */
void shim_region_enter(const void *memory, size_t size_bytes, const char *name, bool shared);

#ifdef __cplusplus
}
#endif
#endif
