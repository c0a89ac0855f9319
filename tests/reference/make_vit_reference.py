#!/usr/bin/env python3
"""Make vit_reference.bin: what PyTorch computes for a small vision transformer.

To make it again (needs only torch):

    python3 tests/reference/make_vit_reference.py tests/reference/vit_reference.bin

The model is computed in 64-bit floats and stored in 32, so that the file holds PyTorch's values and
not its rounding. The file is a list of records until its end:

    name [48 bytes, zero-padded], count [int32], values [count float32], little-endian

images, targets (as floats), logits, loss [3] (before each step), norm [3] (of the gradient),
then for every parameter "<layer>.<name>": w0/... (start), g/... (first gradient), w3/... (after
three steps of AdamW with the global norm clipped).
"""
import struct
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

BLOCKS, DIM, HEADS, PATCH, SIZE, CLASSES, BATCH, STEPS = 2, 18, 3, 7, 14, 5, 5, 3
# A large epsilon: the gradient of the keys' bias is nothing but rounding (softmax does not see a
# shift of all scores), and Adam with a small one would blow it up to full steps.
LR, DECAY, BETAS, EPSILON, CLIP = 1e-2, 0.1, (0.9, 0.95), 1e-3, 0.5


class Embed(nn.Module):
    def __init__(self):
        super().__init__()
        n = (SIZE // PATCH) ** 2
        self.patch = nn.Conv2d(1, DIM, PATCH, PATCH)
        self.cls = nn.Parameter(0.5 * torch.randn(1, 1, DIM))
        self.pos = nn.Parameter(0.5 * torch.randn(1, n + 1, DIM))

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        return torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln, self.qkv, self.proj = nn.LayerNorm(DIM), nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)

    def forward(self, x):
        n, t, c = x.shape
        parts = self.qkv(self.ln(x)).view(n, t, 3, HEADS, c // HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.proj(y.transpose(1, 2).reshape(n, t, c))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln, self.fc, self.proj = nn.LayerNorm(DIM), nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        return x + self.proj(F.gelu(self.fc(self.ln(x)), approximate="tanh"))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln, self.fc = nn.LayerNorm(DIM), nn.Linear(DIM, CLASSES)

    def forward(self, x):
        return self.fc(self.ln(x[:, 0]))


def build():
    layers = [Embed()]
    for _ in range(BLOCKS):
        layers += [Attention(), Mlp()]
    model = nn.Sequential(*layers, Classifier())
    with torch.no_grad():
        for name, p in model.named_parameters():
            if ".ln." in name:
                p.add_(0.2 * torch.randn_like(p))
    # Values that 32-bit floats hold exactly, so that both sides start from the same ones.
    return model.float().double()


def record(out, name, values):
    flat = values.detach().flatten().float().tolist()
    out.write(struct.pack(f"<48si{len(flat)}f", name.encode(), len(flat), *flat))


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = build()
    images = torch.randn(BATCH, 1, SIZE, SIZE).double()
    targets = torch.randint(CLASSES, (BATCH,))
    names = dict(model.named_parameters())
    decayed = [p for n, p in names.items() if n.endswith((".cls", ".pos")) or
               (n.endswith(".weight") and ".ln." not in n)]
    plain = [p for p in names.values() if not any(p is d for d in decayed)]
    optimizer = torch.optim.AdamW([dict(params=decayed, weight_decay=DECAY), dict(params=plain, weight_decay=0.0)],
                                  lr=LR, betas=BETAS, eps=EPSILON)
    start = {n: p.detach().clone() for n, p in names.items()}
    first, losses, norms, logits = {}, [], [], None
    for step in range(STEPS):
        optimizer.zero_grad()
        out = model(images)
        loss = F.cross_entropy(out, targets)
        loss.backward()
        if step == 0:
            logits = out.detach().clone()
            first = {n: p.grad.clone() for n, p in names.items()}
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), CLIP))
        losses.append(loss.detach())
        optimizer.step()
    with open(sys.argv[1], "wb") as out:
        for name, values in dict(images=images, targets=targets, logits=logits, loss=torch.stack(losses),
                                 norm=torch.stack(norms)).items():
            record(out, name, values)
        for n, p in names.items():
            record(out, f"w0/{n}", start[n])
            record(out, f"g/{n}", first[n])
            record(out, f"w3/{n}", p)


if __name__ == "__main__":
    main()
