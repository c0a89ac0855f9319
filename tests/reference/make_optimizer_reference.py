#!/usr/bin/env python3
"""Print the tables of tests/unit/nn/test_optimizer.c: what torch.optim does to four elements.

    python3 tests/reference/make_optimizer_reference.py
"""
import torch

START = [1.0, -0.5, 0.25, 3.0]
GRADS = [[0.1, -2.0, 1e-4, 0.0], [0.2, 1.0, -3e-4, 0.5], [-0.4, 0.5, 2e-4, 1e-7]]


def run(make):
    p = torch.nn.Parameter(torch.tensor(START, dtype=torch.float64))
    optimizer = make([p])
    rows = []
    for g in GRADS:
        p.grad = torch.tensor(g, dtype=torch.float64)
        optimizer.step()
        rows.append(p.detach().tolist())
    return rows


CASES = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1),
    "adamw without decay": lambda p: torch.optim.AdamW(p, lr=1e-2, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.0),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-1, momentum=0.9, weight_decay=0.05),
    "sgd without momentum": lambda p: torch.optim.SGD(p, lr=1e-1),
}

# Groups of parameters with a rate of their own, as layer-wise decay makes them: one group an element.
RATES = [1.0, 0.5, 0.25, 0.125]


def run_groups(make):
    p = [torch.nn.Parameter(torch.tensor([x], dtype=torch.float64)) for x in START]
    optimizer = make([{"params": [x], "lr": LR * rate} for x, rate in zip(p, RATES)])
    rows = []
    for g in GRADS:
        for x, gx in zip(p, g):
            x.grad = torch.tensor([gx], dtype=torch.float64)
        optimizer.step()
        rows.append([x.item() for x in p])
    return rows


LR = 1e-2
CASES |= {
    "adamw, groups": (lambda groups: torch.optim.AdamW(groups, lr=LR, weight_decay=0.1)),
    "sgd, groups": (lambda groups: torch.optim.SGD(groups, lr=LR, momentum=0.9, weight_decay=0.05)),
}

for name, make in CASES.items():
    print(f"/* {name} */")
    for row in (run_groups if name.endswith("groups") else run)(make):
        print("{" + ", ".join(f"{v:.9g}" for v in row) + "},")
