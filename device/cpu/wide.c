#include "device/cpu/wide.h"

#include "device/system/alloc.h"

#include <string.h>

/* Elements of the widest field in one block. */
enum { BLOCK_ELEMENTS = 1 << 16, ALIGN = 16 };

/* A field's buffer, and where the whole argument lies. */
typedef struct buffer {
    unsigned char *whole; /* NULL: the argument is not given */
    float *wide;
} buffer;

static int64_t block_rows(const fl__wide_call *c)
{
    int64_t widest = 1;
    for (int i = 0; i < FL__WIDE_FIELDS && c->field[i].slot != NULL; i++) {
        widest = c->field[i].width > widest ? c->field[i].width : widest;
    }
    int64_t rows = BLOCK_ELEMENTS / widest;
    return rows < 1 ? 1 : rows;
}

static fl_status grow(fl__cpu *cpu, size_t size_bytes)
{
    void *fresh = NULL;
    if (size_bytes <= cpu->wide_bytes) {
        return FL_OK;
    }
    FL_TRY(fl_alloc(size_bytes, &fresh));
    fl_free(cpu->wide);
    cpu->wide = fresh;
    cpu->wide_bytes = size_bytes;
    return FL_OK;
}

static fl_status take_buffers(fl__cpu *cpu, const fl__wide_call *c, int64_t rows, buffer *b)
{
    int64_t at[FL__WIDE_FIELDS] = {0}, total = 0;
    for (int i = 0; i < FL__WIDE_FIELDS && c->field[i].slot != NULL; i++) {
        at[i] = total;
        total += (rows * c->field[i].width + ALIGN - 1) / ALIGN * ALIGN;
        memcpy(&b[i].whole, c->field[i].slot, sizeof b[i].whole);
    }
    FL_TRY(grow(cpu, (size_t)total * sizeof(float)));
    for (int i = 0; i < FL__WIDE_FIELDS; i++) {
        b[i].wide = cpu->wide + at[i];
    }
    return FL_OK;
}

static void convert(fl__cpu *cpu, unsigned char *bf16, float *wide, int64_t n, bool narrow)
{
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(n, 2 * ALIGN, cpu->base.n_threads, t);
        void *at = bf16 + 2 * r.begin;
        if (narrow) {
            cpu->isa->narrow(wide + r.begin, at, r.end - r.begin);
        } else {
            cpu->isa->widen(at, wide + r.begin, r.end - r.begin);
        }
    }
}

static fl_status run_block(fl__cpu *cpu, const fl__wide_call *c, const buffer *b, int64_t row)
{
    for (int i = 0; i < FL__WIDE_FIELDS && c->field[i].slot != NULL; i++) {
        const fl__wide_field *f = &c->field[i];
        size_t size = f->use == FL__WIDE_FP32 ? sizeof(float) : sizeof(uint16_t);
        if (b[i].whole == NULL) {
            continue;
        }
        unsigned char *part = b[i].whole + (size_t)(row * f->width) * size;
        void *pointer = f->use == FL__WIDE_FP32 ? (void *)part : (void *)b[i].wide;
        memcpy(f->slot, &pointer, sizeof pointer);
        if (f->use == FL__WIDE_READ) {
            convert(cpu, part, b[i].wide, *c->rows * f->width, false);
        }
    }
    FL_TRY(c->run(&cpu->base, c->args));
    for (int i = 0; i < FL__WIDE_FIELDS && c->field[i].slot != NULL; i++) {
        const fl__wide_field *f = &c->field[i];
        if (f->use == FL__WIDE_WRITE && b[i].whole != NULL) {
            convert(cpu, b[i].whole + (size_t)(row * f->width) * sizeof(uint16_t), b[i].wide,
                    *c->rows * f->width, true);
        }
    }
    return FL_OK;
}

fl_status fl__cpu_run_wide(fl_device *d, const fl__wide_call *call)
{
    fl__cpu *cpu = fl__cpu_of(d);
    buffer b[FL__WIDE_FIELDS] = {{0}};
    int64_t all = *call->rows, rows = block_rows(call);
    FL_TRY(take_buffers(cpu, call, rows, b));
    for (int64_t row = 0; row < all; row += rows) {
        *call->rows = all - row < rows ? all - row : rows;
        FL_TRY(run_block(cpu, call, b, row));
    }
    return FL_OK;
}

fl_status fl__cpu_fp32_only(const char *kernel, fl_dtype dtype)
{
    return dtype == FL_F32 ? FL_OK
                           : fl_fail(FL_ENOTSUP, "the cpu device has no kernel %s for %s", kernel,
                                     fl_dtype_name(dtype));
}
