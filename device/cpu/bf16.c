#include "device/cpu/bf16.h"

#include "device/cpu/cpu.h"

void fl_bf16_narrow(const float *from, int64_t n, uint16_t *to)
{
    fl__cpu_best_isa()->narrow(from, to, n);
}

void fl_bf16_widen(const void *from, int64_t n, float *to)
{
    fl__cpu_best_isa()->widen(from, to, n);
}
