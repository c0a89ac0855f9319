/* Tensor cores: one instruction, as the PTX manual spreads its operands over the lanes of a warp.
 * With g = lane / 4 and t = lane % 4, two elements in each word, the first in its lower half:
 *
 *   a [16][16]  word 0: row g,     columns 2t and 2t + 1      word 2: the same, columns + 8
 *               word 1: row g + 8, columns 2t and 2t + 1      word 3: the same, columns + 8
 *   b [16][8]   word 0: rows 2t and 2t + 1, column g          word 1: the same, rows + 8
 *   sum [16][8] 0, 1: row g, columns 2t and 2t + 1            2, 3: row g + 8 */
#include "tests/shim/parts.h"

#include "device/cpu/bf16.h"

enum { ROWS = 16, COLUMNS = 8, DEPTH = 16, WARPS = SHIM_THREADS_MAX / SHIM_WARP };

static bool missing;
static int64_t n_products;

int64_t shim_tensor_products(void)
{
    return n_products;
}

void shim_set_tensor_cores(bool has)
{
    missing = !has;
}

bool shim_has_tensor_cores(void)
{
    return !missing;
}

/* What the lanes of each warp have brought. */
static struct {
    float a[ROWS][DEPTH], b[DEPTH][COLUMNS];
} brought[WARPS];

static void put_pair(uint32_t word, float *first, float *second)
{
    const uint16_t half[2] = {(uint16_t)word, (uint16_t)(word >> 16)};
    fl_bf16_widen(&half[0], 1, first);
    fl_bf16_widen(&half[1], 1, second);
}

/* Barriers of a warp that order nothing else: the elements travel in registers. */
static void meet(const char *file, int line)
{
    (void)shim_sync_warp(file, line, SHIM_XOR, 0xFFFFFFFFu, 0, 0);
}

void shim_mma(const char *file, int line, float sum[4], const uint32_t a[4], const uint32_t b[2])
{
    uint32_t thread = shim_thread_idx().x, lane = thread % SHIM_WARP, g = lane / 4, t = lane % 4;
    float(*left)[DEPTH] = brought[thread / SHIM_WARP].a;
    float(*right)[COLUMNS] = brought[thread / SHIM_WARP].b;
    for (uint32_t i = 0; i < 4; i++) {
        float *row = left[g + i % 2 * 8] + 2 * t + i / 2 * 8;
        put_pair(a[i], row, row + 1);
    }
    for (uint32_t i = 0; i < 2; i++) {
        put_pair(b[i], &right[2 * t + i * 8][g], &right[2 * t + 1 + i * 8][g]);
    }
    meet(file, line);
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t k = 0; k < DEPTH; k++) {
            sum[i] += left[g + i / 2 * 8][k] * right[k][2 * t + i % 2];
        }
    }
    meet(file, line);
    n_products++;
}
