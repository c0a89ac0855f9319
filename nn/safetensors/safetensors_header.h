/* What the header of a safetensors file says of its tensors, checked (safetensors_read.c). */
#ifndef FL_NN_SAFETENSORS_SAFETENSORS_HEADER_H
#define FL_NN_SAFETENSORS_SAFETENSORS_HEADER_H

#include "nn/safetensors/safetensors.h"

#include <jansson.h>

typedef struct fl_st_header {
    const char *path; /* the file's, for messages */
    const json_t *json;
    int part;                    /* the file's number among several */
    int64_t data_at, data_bytes; /* where the bytes of the tensors begin in the file; how many */
} fl_st_header;

/* Its tensors, tensors[*n] out: there is room for one per entry of the header. Their names are the
 * header's, which outlives them. FL_EFORMAT: a type, a shape or a place that cannot be, or tensors
 * that overlap or leave bytes without a tensor. */
fl_status fl_st_header_read(const fl_st_header *header, fl_st_tensor *tensors,
                            int *n) FL_MUST_CHECK;

/* Whether a name has control characters: a message shows names as they are, and they must not
 * control a terminal. */
bool fl__st_has_control(const char *name);

#endif
