#!/usr/bin/env python3
"""Make kernel_reference.bin: what PyTorch computes where Frostline has a kernel of its own.

To make it again (needs only torch):

    python3 tests/reference/make_kernel_reference.py tests/reference/kernel_reference.bin

Values are computed in 64-bit floats from inputs that 32-bit floats hold exactly, and stored in 32,
so that the file holds PyTorch's values and not its rounding. Records as in make_vit_reference.py:

    name [48 bytes, zero-padded], count [int32], values [count float32], little-endian

Each kernel has its inputs, outputs and gradients for the gradient `g` of its output under
"<kernel>/<what>". Integers (ids, targets) are stored as floats.
"""
import struct
import sys

import torch
import torch.nn.functional as F

RECORDS = {}


def draw(*shape, scale=1.0):
    return (scale * torch.randn(*shape)).float().double().requires_grad_()


def keep(kernel, **values):
    for name, value in values.items():
        RECORDS[f"{kernel}/{name}"] = value


def activations():
    x = torch.linspace(-6, 6, 241).float().double().requires_grad_()
    g = draw(241).detach()
    keep("activation", x=x, g=g)
    forms = dict(gelu_tanh=lambda v: F.gelu(v, approximate="tanh"), gelu_erf=F.gelu, tanh=torch.tanh, silu=F.silu)
    for name, form in forms.items():
        y = form(x)
        keep("activation", **{f"{name}_y": y, f"{name}_grad": torch.autograd.grad(y, x, g)[0]})


def norms():
    m, n = 7, 37
    x, gamma, beta, g = draw(m, n, scale=2), draw(n), draw(n), draw(m, n).detach()
    keep("norm", x=x, gamma=gamma, beta=beta, g=g)
    for name, y, inputs in (("layer", F.layer_norm(x, (n,), gamma, beta, 1e-12), (x, gamma, beta)),
                            ("rms", F.rms_norm(x, (n,), gamma, 1e-6), (x, gamma))):
        grads = torch.autograd.grad(y, inputs, g)
        keep("norm", **{f"{name}_y": y}, **{f"{name}_grad{i}": grad for i, grad in enumerate(grads)})


def attention():
    lengths, heads, head_dim, scale = (5, 1, 17, 8), 3, 10, 0.25
    width, tokens = heads * head_dim, sum(lengths)
    qkv, g = draw(tokens, 3 * width), draw(tokens, width).detach()
    keep("attention", qkv=qkv, g=g)
    for name, causal in (("full", False), ("causal", True)):
        rows, at = [], 0
        for n in lengths:
            q, k, v = qkv[at:at + n].view(n, 3, heads, head_dim).permute(1, 2, 0, 3)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
            rows.append(y.permute(1, 0, 2).reshape(n, width))
            at += n
        y = torch.cat(rows)
        keep("attention", **{f"{name}_y": y, f"{name}_grad": torch.autograd.grad(y, qkv, g)[0]})


def embedding():
    lengths, rows, positions, width = (3, 1, 6), 11, 6, 13
    tokens = sum(lengths)
    ids, token, position = torch.randint(rows, (tokens,)), draw(rows, width), draw(positions, width)
    g = draw(tokens, width).detach()
    place = torch.cat([torch.arange(n) for n in lengths])
    y = F.embedding(ids, token) + F.embedding(place, position)
    grads = torch.autograd.grad(y, (token, position), g)
    keep("embedding", ids=ids, token=token, position=position, g=g, y=y, grad_token=grads[0], grad_position=grads[1])


def losses():
    logits, targets = draw(9, 21, scale=3), torch.randint(21, (9,))
    targets[2], targets[7] = -100, -100
    loss = F.cross_entropy(logits, targets, reduction="sum")
    keep("cross_entropy", logits=logits, targets=targets, loss=loss, grad=torch.autograd.grad(0.5 * loss, logits)[0])
    lengths, spans = (4, 1, 19, 7), ((1, 3), (0, 0), (18, 2), (5, 6))
    logits, loss, at = draw(sum(lengths), 2, scale=3), 0, 0
    for n, span in zip(lengths, spans):
        for column, target in enumerate(span):
            loss = loss + F.cross_entropy(logits[None, at:at + n, column], torch.tensor([target]), reduction="sum")
        at += n
    keep("span", logits=logits, targets=torch.tensor(spans), loss=loss, grad=torch.autograd.grad(0.5 * loss, logits)[0])


def main():
    torch.manual_seed(2)
    torch.set_num_threads(1)
    for make in (activations, norms, attention, embedding, losses):
        make()
    with open(sys.argv[1], "wb") as out:
        for name, values in RECORDS.items():
            flat = values.detach().flatten().float().tolist()
            out.write(struct.pack(f"<48si{len(flat)}f", name.encode(), len(flat), *flat))


if __name__ == "__main__":
    main()
