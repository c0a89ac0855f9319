/* TensorBoard's event files: records with checksums around Event messages, written by hand. The
 * formats: tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto. */
#ifndef FL_LAUNCHER_REPORT_EXPORT_TFEVENTS_H
#define FL_LAUNCHER_REPORT_EXPORT_TFEVENTS_H

#include <frostline/status.h>

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { FL_TF_SCALARS_MAX = 32, FL_TF_TAG_MAX = 64 };

typedef struct fl_tf_scalar {
    const char *tag; /* at most FL_TF_TAG_MAX bytes */
    float value;
} fl_tf_scalar;

/* The record that begins a file: the version of the format. FL_EIO. */
fl_status fl_tfevents_begin(FILE *file, double wall_s) FL_MUST_CHECK;

/* One event with the values of a step; nothing if n is 0.
 * wall_s   seconds since 1970
 * n        at most FL_TF_SCALARS_MAX
 * Returns  FL_EIO */
fl_status fl_tfevents_put(FILE *file, double wall_s, int64_t step, const fl_tf_scalar *scalars,
                          int n) FL_MUST_CHECK;

/* CRC-32C (Castagnoli), as RFC 3720 has it. Pure. */
uint32_t fl_crc32c(const void *bytes, size_t n);

#endif
