/* bf16 arguments of kernels that compute in fp32: blocks of rows are widened, computed and narrowed
 * again. A row's result depends on the row alone, so the blocks change no bit. */
#ifndef FL_DEVICE_CPU_WIDE_H
#define FL_DEVICE_CPU_WIDE_H

#include "device/cpu/cpu.h"

enum { FL__WIDE_FIELDS = 8 };

typedef enum fl__wide_use {
    FL__WIDE_READ,  /* bf16 */
    FL__WIDE_WRITE, /* bf16 */
    FL__WIDE_FP32   /* fp32 already; the pointer moves with the rows */
} fl__wide_use;

/* An argument with one row of `width` elements for each row of the call. */
typedef struct fl__wide_field {
    void *slot; /* where the arguments hold its pointer; a field that is NULL there stays so */
    int64_t width;
    fl__wide_use use;
} fl__wide_field;

/* args: a copy of the kernel's arguments that says FL_F32; rows: its count of rows. */
typedef struct fl__wide_call {
    const void *args;
    int64_t *rows;
    fl__wide_field field[FL__WIDE_FIELDS]; /* a slot of NULL ends the list */
    fl_status (*run)(fl_device *d, const void *args);
} fl__wide_call;

/* Run the call block by block. *call->args is overwritten. FL_ENOMEM, and what run gives. */
fl_status fl__cpu_run_wide(fl_device *d, const fl__wide_call *call) FL_MUST_CHECK;

/* FL_ENOTSUP with the names of kernel and type unless dtype is FL_F32. */
fl_status fl__cpu_fp32_only(const char *kernel, fl_dtype dtype) FL_MUST_CHECK;

#endif
