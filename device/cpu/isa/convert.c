/* fp32 to bf16 and back. narrow and widen are integer operations only: the processor's settings for
 * denormals and rounding change nothing, and every instruction set gives the same bits. narrow_rows
 * is for what arithmetic gave (narrow_of). */
#include "device/cpu/isa/element.h"
#include "device/cpu/isa/passes.h"

void FL_ISA_NAME(narrow)(const float *from, uint16_t *to, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        *(vh_any *)(to + i) = __builtin_convertvector(narrowed((vu)v_load(from + i)), vh_any);
    }
    if (i < n) {
        vh_any last = __builtin_convertvector(narrowed((vu)v_load_part(from + i, n - i)), vh_any);
        memcpy(to + i, &last, (size_t)(n - i) * sizeof *to);
    }
}

/* A vector is read before its place is written, and what is written never passes what is yet to be
 * read, where `from` is the end of `to`. */
void FL_ISA_NAME(widen)(const void *from, float *to, int64_t n)
{
    const unsigned char *at = from;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vu bits = __builtin_convertvector(*(const vh_any *)(at + 2 * i), vu) << 16;
        v_store(to + i, (vf)bits);
    }
    if (i < n) {
        vh_any last = {0};
        memcpy(&last, at + 2 * i, (size_t)(n - i) * 2);
        v_store_part(to + i, (vf)(__builtin_convertvector(last, vu) << 16), n - i);
    }
}

void FL_ISA_NAME(narrow_rows)(const float *from, int64_t from_row, uint16_t *to, int64_t to_row,
                              int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < cols; j += LANES) {
            vf x = v_load_left(from + i * from_row + j, cols - j);
            e_store_left(FL_BF16, to, i * to_row + j, x, cols - j);
        }
    }
}

void FL_ISA_NAME(widen_rows)(const uint16_t *from, int64_t from_row, float *to, int64_t to_row,
                             int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < cols; j += LANES) {
            vf x = e_load_left(FL_BF16, from, i * from_row + j, cols - j);
            v_store_left(to + i * to_row + j, x, cols - j);
        }
    }
}
