#!/usr/bin/env python3
"""PyTorch's scaled_dot_product_attention at the shapes of bench_attention, on one thread.

    python3 bench/peers/peer_attention.py [tokens [samples [causal [repetitions]]]]      (1024, 4, 1 and 10)
"""
import statistics
import sys
import time

import torch
import torch.nn.functional as F

T, n, causal, reps = ([int(a) for a in sys.argv[1:]] + [1024, 4, 1, 10][len(sys.argv) - 1:])[:4]
HEADS, D = 12, 64
torch.set_num_threads(1)
torch.manual_seed(0)
# As a model has them: parts of one product's output, and a gradient in the layout of the next one.
qkv = torch.rand(n, T, 3, HEADS, D).mul_(2).sub_(1).requires_grad_()
grad = torch.rand(n, T, HEADS, D).mul_(2).sub_(1).transpose(1, 2)
forward, backward = [], []
for i in range(reps + 1):
    qkv.grad = None
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    begin = time.perf_counter()
    y = F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal))
    between = time.perf_counter()
    y.backward(grad)
    if i > 0:
        forward.append(between - begin)
        backward.append(time.perf_counter() - between)
f, g = (statistics.median(x) * 1e3 for x in (forward, backward))
gflop = 4e-9 * n * HEADS * D * T * (T + 1 if causal else 2 * T) / 2
print(f"PyTorch: {n} samples of {T} tokens, {'causal' if causal else 'all'}: forward {f:.2f} ms "
      f"({gflop / f * 1e3:.0f} GFLOP/s), backward {g:.2f} ms ({2.5 * gflop / g * 1e3:.0f} GFLOP/s)")
