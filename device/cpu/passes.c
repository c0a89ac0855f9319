/* Passes over memory that treat each element or each row by itself, split over the compute
 * threads. */
#include "device/cpu/wide.h"

#include <string.h>

/* Elements of one cache line: threads do not share lines. */
enum { LINE = 16 };

/* ---- activations ---- */

static fl_status run_activate(fl_device *d, const void *args)
{
    return fl__cpu_activate(d, NULL, args);
}

fl_status fl__cpu_activate(fl_device *d, FL__UNUSED fl_stream *s, const fl_activate_args *a)
{
    const fl__cpu *cpu = fl__cpu_of(d);
    if (a->dtype == FL_BF16) {
        fl_activate_args part = *a;
        part.dtype = FL_F32;
        return fl__cpu_run_wide(d, &(fl__wide_call){.args = &part,
                                                    .rows = &part.n,
                                                    .field = {{&part.in, 1, FL__WIDE_READ},
                                                              {&part.y, 1, FL__WIDE_WRITE}},
                                                    .run = run_activate});
    }
    const float *in = a->in;
    float *y = a->y;
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(a->n, LINE, d->n_threads, t);
        cpu->isa->activate(a->activation, in + r.begin, y + r.begin, r.end - r.begin);
    }
    return FL_OK;
}

static fl_status run_activate_backward(fl_device *d, const void *args)
{
    return fl__cpu_activate_backward(d, NULL, args);
}

fl_status fl__cpu_activate_backward(fl_device *d, FL__UNUSED fl_stream *s,
                                    const fl_activate_backward_args *a)
{
    const fl__cpu *cpu = fl__cpu_of(d);
    if (a->dtype == FL_BF16) {
        fl_activate_backward_args part = *a;
        part.dtype = FL_F32;
        return fl__cpu_run_wide(d, &(fl__wide_call){.args = &part,
                                                    .rows = &part.n,
                                                    .field = {{&part.grad_y, 1, FL__WIDE_READ},
                                                              {&part.pre, 1, FL__WIDE_READ},
                                                              {&part.grad_pre, 1, FL__WIDE_WRITE},
                                                              {&part.y, 1, FL__WIDE_WRITE}},
                                                    .run = run_activate_backward});
    }
    const float *grad_y = a->grad_y, *pre = a->pre;
    float *grad_pre = a->grad_pre, *y = a->y;
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(a->n, LINE, d->n_threads, t);
        cpu->isa->activate_backward(a->activation, grad_y + r.begin, pre + r.begin,
                                    grad_pre + r.begin, y == NULL ? NULL : y + r.begin,
                                    r.end - r.begin);
    }
    return FL_OK;
}

/* ---- sums and conversions ---- */

static fl_status run_add(fl_device *d, const void *args)
{
    return fl__cpu_add(d, NULL, args);
}

fl_status fl__cpu_add(fl_device *d, FL__UNUSED fl_stream *s, const fl_add_args *args)
{
    const fl__cpu *cpu = fl__cpu_of(d);
    if (args->dtype == FL_BF16) {
        fl_add_args part = *args;
        part.dtype = FL_F32;
        return fl__cpu_run_wide(d, &(fl__wide_call){.args = &part,
                                                    .rows = &part.n,
                                                    .field = {{&part.a, 1, FL__WIDE_READ},
                                                              {&part.b, 1, FL__WIDE_READ},
                                                              {&part.y, 1, FL__WIDE_WRITE}},
                                                    .run = run_add});
    }
    const float *a = args->a, *b = args->b;
    float *y = args->y;
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(args->n, LINE, d->n_threads, t);
        cpu->isa->add(a + r.begin, b + r.begin, y + r.begin, r.end - r.begin);
    }
    return FL_OK;
}

fl_status fl__cpu_convert(fl_device *d, FL__UNUSED fl_stream *s, const fl_convert_args *a)
{
    const fl__cpu *cpu = fl__cpu_of(d);
    size_t from = fl_dtype_size(a->from), to = fl_dtype_size(a->to);
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(a->n, 2 * LINE, d->n_threads, t);
        const void *in = (const char *)a->in + (size_t)r.begin * from;
        void *y = (char *)a->y + (size_t)r.begin * to;
        if (a->from == a->to) {
            memcpy(y, in, (size_t)(r.end - r.begin) * to);
        } else if (a->to == FL_BF16) {
            cpu->isa->narrow(in, y, r.end - r.begin);
        } else {
            cpu->isa->widen(in, y, r.end - r.begin);
        }
    }
    return FL_OK;
}
