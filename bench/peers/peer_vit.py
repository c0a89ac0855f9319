#!/usr/bin/env python3
"""The ViT of configs/vit-fashion.yaml in PyTorch, to compare with. Prints samples a second.

    peer_vit.py --mode single --threads 2       one process
    peer_vit.py --mode ddp --processes 2        DistributedDataParallel over Gloo, one batch shared out
    peer_vit.py --epochs 8 --seed 0             train to the end; prints the test accuracy too
    peer_vit.py --bf16 --compile ...            under autocast to bf16; compiled by torch.compile
    torchrun --nproc-per-node 2 --max-restarts 3 peer_vit.py --mode torchrun --steps 600 --keep FILE --steps-file LOG
                                                the same as ddp; a checkpoint in FILE after every 100 steps, from which
                                                it goes on; LOG gets a line for each step: number, seconds, process

Needs torch and numpy. Not part of the product.
"""
import argparse
import gzip
import math
import os
import statistics
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--mode", choices=["single", "ddp", "torchrun"], default="single")
parser.add_argument("--processes", type=int, default=2)
parser.add_argument("--threads", type=int, default=1, help="a process")
parser.add_argument("--steps", type=int, default=0, help="measure this number of steps after ten others")
parser.add_argument("--epochs", type=int, default=1, help="without --steps: train so long")
parser.add_argument("--batch", type=int, default=128, help="samples of all processes together")
parser.add_argument("--blocks", type=int, default=12)
parser.add_argument("--dim", type=int, default=128)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--patch", type=int, default=7)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--weight-decay", type=float, default=0.01)
parser.add_argument("--warmup", type=float, default=0.05, help="share of the steps")
parser.add_argument("--decay", choices=["linear", "cosine"], default="linear")
parser.add_argument("--dropout", type=float, default=0.0, help="share of each sublayer's outputs")
parser.add_argument("--augment", choices=["none", "crop", "crop-flip"], default="none")
parser.add_argument("--crop", type=int, default=2, help="pixels within which a random crop moves")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--bf16", action="store_true", help="autocast")
parser.add_argument("--compile", action="store_true", help="torch.compile")
parser.add_argument("--keep", help="file of the checkpoint")
parser.add_argument("--keep-every", type=int, default=100, help="steps")
parser.add_argument("--steps-file", help="file for a line a step and process")
parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
args = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(args.threads)

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

UNTIMED = 10


def read_idx(name, header_bytes):
    with gzip.open(os.path.join(args.data, name)) as file:
        return torch.from_numpy(np.frombuffer(file.read(), np.uint8, offset=header_bytes).copy())


def read_split(prefix):
    images = read_idx(f"{prefix}-images-idx3-ubyte.gz", 16).view(-1, 1, 28, 28).float() / 255
    return images, read_idx(f"{prefix}-labels-idx1-ubyte.gz", 8).long()


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.proj = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.drop = nn.Dropout(args.dropout)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.drop(self.proj(y.transpose(1, 2).reshape(b, t, c)))


class Mlp(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.fc, self.proj = nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.drop = nn.Dropout(args.dropout)

    def forward(self, x):
        return x + self.drop(self.proj(F.gelu(self.fc(self.norm(x)), approximate="tanh")))


class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        dim, n_patches = args.dim, (28 // args.patch) ** 2
        self.patches = nn.Conv2d(1, dim, args.patch, args.patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.randn(1, n_patches + 1, dim) * 0.3)
        self.trunk = nn.Sequential(*[m for _ in range(args.blocks) for m in (Attention(dim, args.heads), Mlp(dim))])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 10)
        with torch.no_grad():
            for layer in self.trunk:
                layer.proj.weight /= math.sqrt(2 * args.blocks)
                layer.proj.bias /= math.sqrt(2 * args.blocks)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.pos
        return self.head(self.norm(self.trunk(x)[:, 0]))


def augment(images, generator):
    """A random crop after padding, and a flip of every other image where that is asked for."""
    n, pad = len(images), args.crop
    wide = F.pad(images, (pad, pad, pad, pad))
    top, left = torch.randint(0, 2 * pad + 1, (2, n), generator=generator)
    rows = top[:, None] + torch.arange(28)
    cols = left[:, None] + torch.arange(28)
    flipped = torch.rand(n, generator=generator) < (0.5 if args.augment == "crop-flip" else 0.0)
    cols[flipped] = cols[flipped].flip(1)
    return wide[torch.arange(n)[:, None, None], 0, rows[:, :, None], cols[:, None, :]].unsqueeze(1)


def accuracy(model, images, labels):
    model.eval()
    with torch.no_grad():
        right = sum((model(images[i:i + 500]).argmax(1) == labels[i:i + 500]).sum().item()
                    for i in range(0, len(labels), 500))
    model.train()
    return right / len(labels)


def load(parts):
    """The number of steps that the checkpoint has; 0 without one."""
    if not args.keep or not os.path.exists(args.keep):
        return 0
    saved = torch.load(args.keep, weights_only=False)
    for name, part in parts.items():
        part.load_state_dict(saved[name])
    return saved["steps"]


def keep(parts, steps):
    torch.save({"steps": steps} | {name: part.state_dict() for name, part in parts.items()}, args.keep + ".new")
    os.replace(args.keep + ".new", args.keep)


def train(rank, world):
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    images, labels = read_split("train")
    mean, deviation = images.mean(), images.std()
    images = (images - mean) / deviation
    model = Vit()
    net = nn.parallel.DistributedDataParallel(model) if world > 1 else model
    if args.compile:
        net = torch.compile(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=args.weight_decay, fused=True)
    per_epoch = -(-len(labels) // args.batch)
    n_steps = args.steps + UNTIMED if args.steps else per_epoch * args.epochs
    n_warmup = max(1, int(args.warmup * n_steps))

    def rate_at(step):
        if step < n_warmup:
            return (step + 1) / n_warmup
        left = (n_steps - step) / max(1, n_steps - n_warmup)
        return left if args.decay == "linear" else 0.5 - 0.5 * math.cos(math.pi * left)

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate_at)
    generator = torch.Generator().manual_seed(args.seed)
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
    done = load(parts)
    log = open(args.steps_file, "a", buffering=1) if args.steps_file else None
    times, epoch = [0.0] * done, 0
    while len(times) < n_steps:
        order = torch.randperm(len(labels), generator=generator)
        epoch += 1
        for at in range(0, len(order), args.batch):
            if (epoch - 1) * per_epoch + at // args.batch < done:
                continue
            begin = time.perf_counter()
            mine = order[at:at + args.batch][rank::world]
            x = images[mine]
            if args.augment != "none":
                x = augment(x, generator)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
                y = net(x)
            F.cross_entropy(y.float(), labels[mine]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            times.append(time.perf_counter() - begin)
            if log:
                print(len(times), f"{time.time():.3f}", os.getpid(), rank, file=log)
            if args.keep and rank == 0 and len(times) % args.keep_every == 0:
                keep(parts, len(times))
            if len(times) == n_steps:
                break
    if rank == 0:
        rate = args.batch / statistics.median(times[UNTIMED:])
        if args.steps:
            print(f"{rate:.1f}")
        else:
            test_images, test_labels = read_split("t10k")
            test_accuracy = accuracy(model, (test_images - mean) / deviation, test_labels)
            print(f"{rate:.1f} samples/s, test accuracy {test_accuracy:.4f}")


def worker(rank, world, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    train(rank, world)
    dist.destroy_process_group()


if __name__ == "__main__":
    if args.mode == "single":
        train(0, 1)
    elif args.mode == "torchrun":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo")
        train(dist.get_rank(), dist.get_world_size())
        dist.destroy_process_group()
    else:
        import tempfile

        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(worker, (args.processes, os.path.join(folder, "store")), args.processes)
