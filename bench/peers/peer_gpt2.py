#!/usr/bin/env python3
"""The GPT-2 of gpt2_vs_pytorch.sh in PyTorch: tokens a second of training steps on random ids.

    python3 bench/peers/peer_gpt2.py --mode single --threads 2 --steps 8      needs only torch

The head is tied to the token embedding and its table padded to a multiple of 64, as Frostline's is.
single: one process of --threads threads; ddp: --processes processes, gradients averaged over Gloo.
"""
import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

UNTIMED = 2


def arguments():
    p = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    p.add_argument("--mode", choices=["single", "ddp"], default="single")
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--batch", type=int, default=16, help="samples of all processes")
    p.add_argument("--tokens", type=int, default=128, help="of a sample")
    p.add_argument("--blocks", type=int, default=6)
    p.add_argument("--dim", type=int, default=384)
    p.add_argument("--heads", type=int, default=6)
    p.add_argument("--rows", type=int, default=50304)
    p.add_argument("--ids", type=int, default=50257)
    return p.parse_args()


args = arguments()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        d = args.dim
        self.norm1, self.qkv, self.proj = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.norm2, self.fc, self.out = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, args.heads, c // args.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.out(F.gelu(self.fc(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.position = nn.Embedding(args.rows, args.dim), nn.Embedding(args.tokens, args.dim)
        self.blocks = nn.Sequential(*[Block() for _ in range(args.blocks)])
        self.norm = nn.LayerNorm(args.dim)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids):
        x = self.token(ids) + self.position.weight[:ids.shape[1]]
        return F.linear(self.norm(self.blocks(x)), self.token.weight)


def train(rank, world):
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model = Gpt2()
    net = nn.parallel.DistributedDataParallel(model) if world > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, weight_decay=0.1, fused=True)
    times = []
    for _ in range(UNTIMED + args.steps):
        text = torch.randint(args.ids, (args.batch // world, args.tokens + 1))
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        logits = net(text[:, :-1])
        F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append(time.perf_counter() - begin)
    if rank == 0:
        print(f"{args.batch * args.tokens / statistics.median(times[UNTIMED:]):.0f}")


def process(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29541"))
    dist.init_process_group("gloo", rank=rank, world_size=args.processes)
    train(rank, args.processes)
    dist.destroy_process_group()


if __name__ == "__main__":
    if args.mode == "single":
        train(0, 1)
    else:
        torch.multiprocessing.start_processes(process, nprocs=args.processes, start_method="spawn")
