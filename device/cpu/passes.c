/* Passes over memory that treat each element or each row by itself, split over the compute
 * threads. */
#include "device/cpu/cpu.h"

#include <string.h>

/* Elements of one cache line, of two in bf16: threads do not share lines. */
enum { LINE = 32 };

/* ---- activations ---- */

fl_status fl__cpu_activate(fl_device *d, FL__UNUSED fl_stream *s, const fl_activate_args *a)
{
    const fl__cpu *cpu = fl__cpu_of(d);
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(a->n, LINE, d->n_threads, t);
        cpu->isa->activate(a->activation, a->dtype, fl__in_at(a->dtype, a->in, r.begin),
                           fl__out_at(a->dtype, a->y, r.begin), r.end - r.begin);
    }
    return FL_OK;
}

fl_status fl__cpu_activate_backward(fl_device *d, FL__UNUSED fl_stream *s,
                                    const fl_activate_backward_args *a)
{
    const fl__cpu *cpu = fl__cpu_of(d);
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(a->n, LINE, d->n_threads, t);
        cpu->isa->activate_backward(
            a->activation, a->dtype, fl__in_at(a->dtype, a->grad_y, r.begin),
            fl__in_at(a->dtype, a->pre, r.begin), fl__out_at(a->dtype, a->grad_pre, r.begin),
            fl__out_at(a->dtype, a->y, r.begin), r.end - r.begin);
    }
    return FL_OK;
}

/* ---- sums and conversions ---- */

fl_status fl__cpu_add(fl_device *d, FL__UNUSED fl_stream *s, const fl_add_args *args)
{
    const fl__cpu *cpu = fl__cpu_of(d);
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(args->n, LINE, d->n_threads, t);
        const void *a = fl__in_at(args->dtype, args->a, r.begin);
        const void *b = fl__in_at(args->dtype, args->b, r.begin);
        void *y = fl__out_at(args->dtype, args->y, r.begin);
        if (args->dtype == FL_BF16) {
            cpu->isa->add_bf16(a, b, y, r.end - r.begin);
        } else {
            cpu->isa->add(a, b, y, r.end - r.begin);
        }
    }
    return FL_OK;
}

fl_status fl__cpu_convert(fl_device *d, FL__UNUSED fl_stream *s, const fl_convert_args *a)
{
    const fl__cpu *cpu = fl__cpu_of(d);
    size_t from = fl_dtype_size(a->from), to = fl_dtype_size(a->to);
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(a->n, LINE, d->n_threads, t);
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
