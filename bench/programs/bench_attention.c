/* Times attention over long samples on one core, forward and backward.
 *
 *   bench_attention [tokens [samples [causal [repetitions]]]]      (1024, 4, 1 and 10)
 *
 * 12 heads of 64, C 768: GPT-2 and BERT-base. Prints the medians in milliseconds, and the rate in
 * GFLOP/s of the products that a causal mask leaves. bench/peers/peer_attention.py times PyTorch's.
 */
#include "device/device.h"
#include "device/random/random.h"
#include "device/system/clock.h"

#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 12, WIDTH = 768, MAX_REPS = 1000 };

static void must(fl_status status)
{
    if (status != FL_OK) {
        fprintf(stderr, "bench_attention: %s: %s\n", fl_status_text(status), fl_errmsg());
        exit(1);
    }
}

static float *filled(fl_device *d, int64_t n)
{
    void *memory = NULL;
    must(fl_device_alloc(d, (size_t)n * sizeof(float), "bench", &memory));
    float *p = memory;
    for (int64_t i = 0; i < n; i++) {
        p[i] = 2.0f * fl_unit((uint32_t)(fl_mix64(1, (uint64_t)i) >> 32)) - 1.0f;
    }
    return p;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *ms, int n)
{
    qsort(ms, (size_t)n, sizeof *ms, by_size);
    return ms[n / 2];
}

int main(int argc, char **argv)
{
    int64_t T = argc > 1 ? atoll(argv[1]) : 1024, n = argc > 2 ? atoll(argv[2]) : 4;
    bool causal = argc > 3 ? atoi(argv[3]) != 0 : true;
    int reps = argc > 4 ? atoi(argv[4]) : 10;
    static double forward[MAX_REPS], backward[MAX_REPS];
    static int32_t offsets[4097];
    fl_device *d = NULL;
    if (T < 1 || n < 1 || n > 4096 || reps < 1 || reps > MAX_REPS || n * T > INT32_MAX / WIDTH) {
        fprintf(stderr, "usage: bench_attention [tokens [samples [causal [repetitions]]]]\n");
        return 2;
    }
    must(fl_device_cpu_create(1, NULL, (size_t)1 << 40, &d));
    for (int64_t i = 0; i <= n; i++) {
        offsets[i] = (int32_t)(i * T);
    }
    float *grad_y = filled(d, n * T * WIDTH), *grad_qkv = filled(d, 3 * n * T * WIDTH);
    const fl_attention_args a = {.qkv = filled(d, 3 * n * T * WIDTH),
                                 .offsets = {offsets, offsets, n},
                                 .heads = HEADS,
                                 .width = WIDTH,
                                 .causal = causal,
                                 .scale = 0.125f,
                                 .y = filled(d, n * T * WIDTH),
                                 .lse = filled(d, n * T * HEADS)};
    const fl_attention_backward_args b = {.forward = a, .grad_y = grad_y, .grad_qkv = grad_qkv};
    for (int i = -1; i < reps; i++) {
        int64_t begun_us = fl_now_us();
        must(d->ops->attention(d, NULL, &a));
        int64_t between_us = fl_now_us();
        must(d->ops->attention_backward(d, NULL, &b));
        if (i >= 0) {
            forward[i] = (double)(between_us - begun_us) * 1e-3;
            backward[i] = (double)(fl_now_us() - between_us) * 1e-3;
        }
    }
    double gflop = 4e-9 * (double)(n * WIDTH) * (double)T * (double)(causal ? T + 1 : 2 * T) / 2;
    double f = median(forward, reps), g = median(backward, reps);
    printf("%lld samples of %lld tokens, %s: forward %.2f ms (%.0f GFLOP/s), backward %.2f ms "
           "(%.0f GFLOP/s)\n",
           (long long)n, (long long)T, causal ? "causal" : "all", f, gflop / f * 1e3, g,
           2.5 * gflop / g * 1e3);
    return 0;
}
