/* Between fp32 and the 16-bit types of a file. */
#ifndef FL_NN_SAFETENSORS_SAFETENSORS_DTYPE_H
#define FL_NN_SAFETENSORS_SAFETENSORS_DTYPE_H

#include "nn/safetensors/safetensors.h"

/* Elements are converted in pieces of this many. */
enum { FL_ST_PIECE = 16384 };

/* fp32 [n] from the file's bytes, exactly; a NaN stays one. dtype: F16 or BF16. */
void fl__st_widen(fl_st_dtype dtype, const uint16_t *from, int64_t n, float *to);

/* Rounded to nearest, ties to even; beyond the largest, infinity. */
void fl__st_narrow(fl_st_dtype dtype, const float *from, int64_t n, uint16_t *to);

#endif
