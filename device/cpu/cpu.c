/* The CPU device: its table, its memory, its threads, and the choice of an instruction set. */
#include "device/cpu/cpu.h"

#include "device/cpu/cpu_kernels.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <errno.h>
#include <omp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

extern const fl__isa fl__isa_baseline;
#ifdef FL_ISA_X86
extern const fl__isa fl__isa_avx2, fl__isa_avx512, fl__isa_avx512bf16;

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

/* Bytes of scratch a thread starts with. */
enum { SCRATCH_START = 64 * 1024, SCRATCH_GRAIN = 4096 };

static fl_status memory_take(FL__UNUSED fl_device *d, size_t size_bytes, void **out)
{
    return fl_alloc(size_bytes, out);
}

static fl_status memory_reserve(FL__UNUSED fl_device *d, size_t size_bytes, void **out)
{
    return fl_alloc_untouched(size_bytes, out);
}

static void memory_give(FL__UNUSED fl_device *d, void *memory, FL__UNUSED size_t size_bytes)
{
    fl_free(memory);
}

/* Ordinary memory: nothing is faster for a device that computes in it. */
static fl_status host_take(FL__UNUSED fl_device *d, size_t size_bytes, void **out)
{
    return fl_alloc(size_bytes, out);
}

static fl_status memory_share(FL__UNUSED fl_device *d, size_t size_bytes, void **out,
                              fl_shared **shared)
{
    FL_TRY(fl_shared_create(size_bytes, shared));
    *out = fl_shared_data(*shared);
    return FL_OK;
}

static fl_status copy_in(FL__UNUSED fl_device *d, FL__UNUSED fl_stream *s, void *to,
                         const void *from_host, size_t n)
{
    memcpy(to, from_host, n);
    return FL_OK;
}

static fl_status copy_out(FL__UNUSED fl_device *d, FL__UNUSED fl_stream *s, void *to_host,
                          const void *from, size_t n)
{
    memcpy(to_host, from, n);
    return FL_OK;
}

static fl_status fill_zero(FL__UNUSED fl_device *d, FL__UNUSED fl_stream *s, void *to, size_t n)
{
    memset(to, 0, n);
    return FL_OK;
}

static fl_status copy_within(FL__UNUSED fl_device *d, FL__UNUSED fl_stream *s, void *to,
                             const void *from, size_t n)
{
    memmove(to, from, n);
    return FL_OK;
}

/* All work is done when its call returns, so a stream has nothing to keep, and an event only the
 * time. */
struct fl_stream {
    char nothing;
};

struct fl_event {
    int64_t recorded_us;
};

static fl_status stream_create(FL__UNUSED fl_device *d, fl_stream **out)
{
    return fl_alloc(sizeof **out, (void **)out);
}

static void stream_destroy(FL__UNUSED fl_device *d, fl_stream **s)
{
    fl_free(*s);
    *s = NULL;
}

static fl_status event_create(FL__UNUSED fl_device *d, fl_event **out)
{
    return fl_alloc(sizeof **out, (void **)out);
}

static void event_destroy(FL__UNUSED fl_device *d, fl_event **e)
{
    fl_free(*e);
    *e = NULL;
}

static fl_status event_record(FL__UNUSED fl_device *d, fl_event *e, FL__UNUSED fl_stream *s)
{
    e->recorded_us = fl_now_us();
    return FL_OK;
}

static fl_status event_wait(FL__UNUSED fl_device *d, FL__UNUSED fl_event *e)
{
    return FL_OK;
}

static fl_status stream_wait(FL__UNUSED fl_device *d, FL__UNUSED fl_stream *s,
                             FL__UNUSED fl_event *e)
{
    return FL_OK;
}

static fl_status event_elapsed(FL__UNUSED fl_device *d, const fl_event *from, const fl_event *to,
                               double *us)
{
    *us = (double)(to->recorded_us - from->recorded_us);
    return FL_OK;
}

static fl_status event_reached(FL__UNUSED fl_device *d, FL__UNUSED fl_event *e, bool *reached)
{
    *reached = true;
    return FL_OK;
}

static fl_status sync(FL__UNUSED fl_device *d, FL__UNUSED fl_stream *s)
{
    return FL_OK;
}

static void destroy(fl_device *d)
{
    fl__cpu *cpu = fl__cpu_of(d);
    fl_free(cpu->scratch);
    fl_free(cpu->wide);
    fl_free(cpu);
}

static void weight_release(FL__UNUSED fl_device *d, fl_weight *w)
{
    w->pack = NULL;
}

static const fl_device_ops cpu_ops = {
    .version = FL_DEVICE_OPS_VERSION,
    .size_bytes = sizeof(fl_device_ops),
    .kind = "cpu",
    .host_memory = true,
    .memory_take = memory_take,
    .memory_reserve = memory_reserve,
    .memory_give = memory_give,
    .memory_share = memory_share,
    .memory_export = fl_device_no_export,
    .view_open = fl_device_no_view,
    .view_close = fl_device_no_view_close,
    .host_take = host_take,
    .host_give = memory_give,
    .host_pin = fl_device_no_pin,
    .host_unpin = fl_device_no_unpin,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy = copy_within,
    .fill_zero = fill_zero,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .sync = sync,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .stream_wait = stream_wait,
    .event_elapsed = event_elapsed,
    .event_reached = event_reached,
    .stream_native = fl_device_no_native,
    .capture_begin = fl_device_no_capture,
    .capture_end = fl_device_no_capture_end,
    .graph_launch = fl_device_no_launch,
    .graph_destroy = fl_device_no_graph_destroy,
    .destroy = destroy,
    .weight_release = weight_release,
    .linear = fl__cpu_linear,
    .linear_backward_input = fl__cpu_linear_backward_input,
    .linear_backward_weights = fl__cpu_linear_backward_weights,
    .activate = fl__cpu_activate,
    .activate_backward = fl__cpu_activate_backward,
    .layernorm = fl__cpu_layernorm,
    .layernorm_backward = fl__cpu_layernorm_backward,
    .rmsnorm = fl__cpu_rmsnorm,
    .rmsnorm_backward = fl__cpu_rmsnorm_backward,
    .attention = fl__cpu_attention,
    .attention_backward = fl__cpu_attention_backward,
    .dropout = fl__cpu_dropout,
    .add = fl__cpu_add,
    .convert = fl__cpu_convert,
    .gather_rows = fl__cpu_gather_rows,
    .scatter_rows = fl__cpu_scatter_rows,
    .embed = fl__cpu_embed,
    .embed_backward = fl__cpu_embed_backward,
    .patchify = fl__cpu_patchify,
    .patchify_backward = fl__cpu_patchify_backward,
    .vit_assemble = fl__cpu_vit_assemble,
    .vit_assemble_backward = fl__cpu_vit_assemble_backward,
    .cross_entropy = fl__cpu_cross_entropy,
    .span_cross_entropy = fl__cpu_span_cross_entropy,
    .squared_error = fl__cpu_squared_error,
    .add_to_sum = fl__cpu_add_to_sum,
    .adamw_many = fl__cpu_adamw_many,
    .sgd_many = fl__cpu_sgd_many,
    .sum_squares_many = fl__cpu_sum_squares_many,
};

fl_status fl__cpu_reserve(fl__cpu *cpu, size_t size_bytes)
{
    if (size_bytes <= cpu->scratch_bytes) {
        return FL_OK;
    }
    size_t each = (size_bytes + SCRATCH_GRAIN - 1) / SCRATCH_GRAIN * SCRATCH_GRAIN;
    void *fresh = NULL;
    FL_TRY(fl_alloc_array((size_t)cpu->base.n_threads, each, &fresh));
    fl_free(cpu->scratch);
    cpu->scratch = fresh;
    cpu->scratch_bytes = each;
    atomic_store(&cpu->base.workspace_bytes, (size_t)cpu->base.n_threads * each);
    return FL_OK;
}

/* The instruction sets that this processor has, best first; NULL ends the list. A build with a
 * sanitizer may be without some of them. */
enum { ISAS_MAX = 5 };

static void usable_isas(const fl__isa *list[ISAS_MAX])
{
#ifdef FL_ISA_X86
    __builtin_cpu_init();
    if (has_avx512() && __builtin_cpu_supports("avx512bf16")) {
        *list++ = &fl__isa_avx512bf16;
    }
#ifndef FL_ISA_WITHOUT_AVX512
    if (has_avx512()) {
        *list++ = &fl__isa_avx512;
    }
#endif
#ifndef FL_ISA_WITHOUT_AVX2
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        *list++ = &fl__isa_avx2;
    }
#endif
#endif
    *list++ = &fl__isa_baseline;
    *list = NULL;
}

fl_status fl__cpu_isa_set(fl_device *d, const char *name)
{
    const fl__isa *list[ISAS_MAX];
    usable_isas(list);
    for (int i = 0; list[i] != NULL; i++) {
        if (strcmp(list[i]->name, name) == 0) {
            fl__cpu_of(d)->isa = list[i];
            return FL_OK;
        }
    }
    return fl_fail(FL_ENOTSUP, "no kernels for the instruction set %s on this processor", name);
}

/* The set that FROSTLINE_KERNELS names, where the processor has it; else the best. */
const fl__isa *fl__cpu_best_isa(void)
{
    const fl__isa *list[ISAS_MAX];
    const char *named = getenv("FROSTLINE_KERNELS");
    usable_isas(list);
    for (int i = 0; named != NULL && list[i] != NULL; i++) {
        if (strcmp(list[i]->name, named) == 0) {
            return list[i];
        }
    }
    return list[0];
}

fl_status fl_device_cpu_check_kernels(void)
{
    const fl__isa *list[ISAS_MAX];
    char names[128] = "";
    const char *named = getenv("FROSTLINE_KERNELS");
    usable_isas(list);
    for (int i = 0; list[i] != NULL; i++) {
        size_t used = strlen(names);
        if (named == NULL || strcmp(list[i]->name, named) == 0) {
            return FL_OK;
        }
        snprintf(names + used, sizeof names - used, "%s%s", i == 0 ? "" : ", ", list[i]->name);
    }
    return fl_fail(FL_EINVAL, "FROSTLINE_KERNELS: found '%.32s', allowed on this processor: %s",
                   named, names);
}

const char *fl_device_cpu_isa(void)
{
    return fl__cpu_best_isa()->name;
}

/* Results below 1e-38 become zero: a product with a denormal takes a hundred times as long. */
static void flush_denormals(void)
{
#if defined(__SSE2__)
    _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
    _mm_setcsr(_mm_getcsr() | 0x0040u); /* denormals are zero on the way in, too */
#endif
}

/* Every compute thread sets itself up; the OpenMP threads stay the same ones afterwards. */
static fl_status set_up_threads(int n_threads, const int *cpu_ids)
{
    int error = 0;
    omp_set_dynamic(0);
    omp_set_num_threads(n_threads);
#pragma omp parallel for schedule(static, 1) num_threads(n_threads)
    for (int t = 0; t < n_threads; t++) {
        flush_denormals();
        if (cpu_ids != NULL) {
            cpu_set_t set;
            CPU_ZERO(&set);
            CPU_SET((size_t)cpu_ids[t], &set);
            if (sched_setaffinity(0, sizeof set, &set) != 0) {
#pragma omp atomic write
                error = errno;
            }
        }
    }
    if (error != 0) {
        return fl_fail(FL_EINVAL, "cannot pin the %d compute threads to their processors: %s",
                       n_threads, strerror(error));
    }
    return FL_OK;
}

fl_status fl_device_cpu_create(int n_threads, const int *cpu_ids, size_t budget_bytes,
                               fl_device **out)
{
    if (n_threads < 1) {
        return fl_fail(FL_EINVAL, "%d compute threads; at least 1 is needed", n_threads);
    }
    for (int i = 0; cpu_ids != NULL && i < n_threads; i++) {
        if (cpu_ids[i] < 0 || cpu_ids[i] >= CPU_SETSIZE) {
            return fl_fail(FL_EINVAL, "there is no processor %d", cpu_ids[i]);
        }
    }
    FL_TRY(fl_device_cpu_check_kernels());
    FL_TRY(set_up_threads(n_threads, cpu_ids));
    void *memory = NULL;
    FL_TRY(fl_alloc(sizeof(fl__cpu), &memory));
    fl__cpu *cpu = memory;
    *cpu = (fl__cpu){
        .base = {.ops = &cpu_ops, .n_threads = n_threads, .budget_bytes = budget_bytes},
        .isa = fl__cpu_best_isa(),
    };
    fl_status status = fl__cpu_reserve(cpu, SCRATCH_START);
    if (status != FL_OK) {
        fl_free(cpu);
        return status;
    }
    *out = &cpu->base;
    return FL_OK;
}
