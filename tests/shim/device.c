#include "tests/shim/device.h"

#include "device/cuda/launches.h"
#include "tests/shim/shim.h"

#include <stdlib.h>

/* The CPU device's table, and the one that takes its place. */
static const fl_device_ops *cpu_ops;
static fl_device_ops shim_ops;
static fl__cuda_queue queue;

static fl_status take_memory(fl_device *d, size_t size_bytes, void **out)
{
    FL_TRY(cpu_ops->memory_take(d, size_bytes, out));
    shim_region_add(*out, size_bytes, "device memory");
    return FL_OK;
}

static void give_memory(fl_device *d, void *memory, size_t size_bytes)
{
    shim_region_remove(memory);
    cpu_ops->memory_give(d, memory, size_bytes);
}

/* Exactly what the last launch missed, so that the shim sees a launch that takes more. */
static void grow_workspace(void)
{
    if (queue.workspace != NULL) {
        shim_region_remove(queue.workspace);
        free(queue.workspace);
    }
    queue.workspace = malloc(queue.needed_bytes);
    queue.workspace_bytes = queue.needed_bytes;
    if (queue.workspace == NULL) {
        abort();
    }
    shim_region_add(queue.workspace, queue.workspace_bytes, "workspace");
}

static fl_status status_of(int launched, const char *kernel)
{
    return launched == 0 ? FL_OK
                         : fl_fail(FL_EINTERNAL, "%s: %d: %s", kernel, launched, shim_take_error());
}

#define LAUNCH(kernel, ...)                                                                        \
    int launched = fl__cuda_##kernel(&queue, __VA_ARGS__);                                         \
    if (launched == FL__CUDA_MORE) {                                                               \
        grow_workspace();                                                                          \
        launched = fl__cuda_##kernel(&queue, __VA_ARGS__);                                         \
    }                                                                                              \
    (void)d;                                                                                       \
    (void)s;                                                                                       \
    return status_of(launched, #kernel)

#define FL_CASE(kernel, args)                                                                      \
    static fl_status launch_##kernel(fl_device *d, fl_stream *s, const args *a)                    \
    {                                                                                              \
        LAUNCH(kernel, a);                                                                         \
    }
FL__CUDA_KERNELS(FL_CASE)
#undef FL_CASE

static fl_status launch_add_to_sum(fl_device *d, fl_stream *s, double value, double *sum)
{
    LAUNCH(add_to_sum, value, sum);
}

static fl_status launch_adamw_many(fl_device *d, fl_stream *s, const fl_update *list, int n,
                                   const fl_adamw_step *step)
{
    LAUNCH(adamw_many, list, n, step);
}

static fl_status launch_sgd_many(fl_device *d, fl_stream *s, const fl_update *list, int n,
                                 const fl_sgd_step *step)
{
    LAUNCH(sgd_many, list, n, step);
}

static fl_status launch_sum_squares_many(fl_device *d, fl_stream *s, const fl_square_sum *list,
                                         int n)
{
    LAUNCH(sum_squares_many, list, n);
}

static void destroy_device(fl_device *d)
{
    if (queue.workspace != NULL) {
        shim_region_remove(queue.workspace);
        free(queue.workspace);
    }
    queue = (fl__cuda_queue){0};
    cpu_ops->destroy(d);
}

fl_status shim_device_create(fl_device **out)
{
    FL_TRY(fl_device_cpu_create(1, NULL, SIZE_MAX, out));
    cpu_ops = (*out)->ops;
    shim_ops = *cpu_ops;
    shim_ops.kind = "cuda";
    shim_ops.memory_take = take_memory;
    shim_ops.memory_give = give_memory;
    shim_ops.destroy = destroy_device;
#define FL_CASE(kernel, args) shim_ops.kernel = launch_##kernel;
    FL__CUDA_KERNELS(FL_CASE)
#undef FL_CASE
    shim_ops.add_to_sum = launch_add_to_sum;
    shim_ops.adamw_many = launch_adamw_many;
    shim_ops.sgd_many = launch_sgd_many;
    shim_ops.sum_squares_many = launch_sum_squares_many;
    (*out)->ops = &shim_ops;
    return FL_OK;
}
