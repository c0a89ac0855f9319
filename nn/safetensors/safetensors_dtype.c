#include "nn/safetensors/safetensors_dtype.h"

#include "device/cpu/bf16.h"

#include <string.h>

static const struct {
    const char *name;
    size_t size_bytes;
} dtypes[] = {
#define FL_ST_ROW(id, text, size) [id] = {text, size},
    FL_ST_DTYPE_MAP(FL_ST_ROW)
#undef FL_ST_ROW
};

const char *fl_st_dtype_name(fl_st_dtype dtype)
{
    return dtypes[dtype].name;
}

size_t fl_st_dtype_size(fl_st_dtype dtype)
{
    return dtypes[dtype].size_bytes;
}

/* fp16: sign, 5 bits of exponent (bias 15), 10 of fraction. fp32: 8 (bias 127) and 23. */
static float widen_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 0x1fu, fraction = half & 0x3ffu;
    uint32_t bits;
    if (exponent == 0x1f) { /* infinity or NaN */
        bits = sign | 0x7f800000u | fraction << 13;
    } else if (exponent != 0) {
        bits = sign | (exponent + 112) << 23 | fraction << 13;
    } else { /* zero or denormal: fraction * 2^-24, which fp32 holds exactly */
        float value = (float)fraction * 0x1p-24f;
        memcpy(&bits, &value, sizeof bits);
        bits |= sign;
    }
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* `bits` without its `n` lowest bits, rounded to nearest, ties to even. */
static uint32_t round_off(uint32_t bits, uint32_t n)
{
    uint32_t half = 1u << (n - 1), rest = bits & ((1u << n) - 1), kept = bits >> n;
    return kept + (rest > half || (rest == half && (kept & 1u)));
}

static uint16_t narrow_half(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u);
    }
    if (magnitude >= 0x477ff000u) { /* rounds to 65536 or more */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (magnitude >= 0x38800000u) { /* 2^-14 and above: normal */
        return (uint16_t)(sign | (round_off(magnitude, 13) - (112u << 10)));
    }
    if (magnitude < 0x33000000u) { /* below 2^-25 */
        return (uint16_t)sign;
    }
    uint32_t shift = 126 - (magnitude >> 23); /* so that the lowest bit counts 2^-24 */
    return (uint16_t)(sign | round_off((magnitude & 0x7fffffu) | 0x800000u, shift));
}

void fl__st_widen(fl_st_dtype dtype, const uint16_t *from, int64_t n, float *to)
{
    if (dtype == FL_ST_BF16) {
        fl_bf16_widen(from, n, to);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        to[i] = widen_half(from[i]);
    }
}

void fl__st_narrow(fl_st_dtype dtype, const float *from, int64_t n, uint16_t *to)
{
    if (dtype == FL_ST_BF16) {
        fl_bf16_narrow(from, n, to);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        to[i] = narrow_half(from[i]);
    }
}
