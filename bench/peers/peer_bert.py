#!/usr/bin/env python3
"""transformers' BERT, fine-tuned to classify the rows of a table: what configs/sst2-minilm.yaml does.

    python3 bench/peers/peer_bert.py --weights DIR --train FILE --test FILE --text sentence --label label

Needs torch, transformers and safetensors. Prints one line for programs and people:

    samples/s S, seconds T, test accuracy A f1 F, other accuracy ...

single: one process of --threads threads. ddp: --processes processes, gradients averaged over Gloo.
--pad longest fills the samples of a batch up to its longest one, as is usual; bucket first sorts pools of
50 batches by length, so that a batch holds samples of like length. --freeze ALPHA freezes the embedding
and F(e) = ceil(L (1 - (1 - ALPHA)^e)) of the L blocks in epoch e, as PipeTransformer's closed form does,
and keeps --keep of them active.
"""
import argparse
import csv
import gzip
import math
import os
import random
import statistics
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

UNTIMED = 3
POOL = 50  # batches


def arguments():
    p = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    p.add_argument("--weights", required=True)
    p.add_argument("--train", required=True)
    p.add_argument("--test", required=True, action="append", help="repeatable: each is measured at the end")
    p.add_argument("--text", required=True)
    p.add_argument("--pair", default="")
    p.add_argument("--label", required=True)
    p.add_argument("--mode", choices=["single", "ddp"], default="single")
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--pad", choices=["longest", "bucket"], default="longest")
    p.add_argument("--samples", type=int, default=0, help="the first N rows; 0: all")
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--steps", type=int, default=0, help="stop after N steps, without a test")
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--tokens", type=int, default=128, help="of a sample at most")
    p.add_argument("--lr", type=float, default=5e-5)
    p.add_argument("--weight-decay", type=float, default=0.01)
    p.add_argument("--warmup", type=float, default=0.06, help="share of the steps")
    p.add_argument("--clip", type=float, default=1.0)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--freeze", type=float, default=0.0)
    p.add_argument("--keep", type=int, default=1)
    return p.parse_args()


args = arguments()


def read_table(path, limit=0):
    """Token ids and labels; --text, --pair and --label are columns by name."""
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(args.weights)
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8-sig", newline="\n") as f:
        rows = list(csv.DictReader(f, delimiter="\t", quoting=csv.QUOTE_NONE))
    rows = rows[:limit] if limit else rows
    texts = [[r[args.text] for r in rows]] + ([[r[args.pair] for r in rows]] if args.pair else [])
    encoded = tokenizer(*texts, truncation=True, max_length=args.tokens, padding=False)
    types = encoded.get("token_type_ids", [[0] * len(i) for i in encoded["input_ids"]])
    return list(zip(encoded["input_ids"], types)), torch.tensor([int(r[args.label]) for r in rows])


def pad(samples):
    width = max(len(ids) for ids, _ in samples)
    out = torch.zeros(3, len(samples), width, dtype=torch.long)
    for i, (ids, types) in enumerate(samples):
        out[0, i, :len(ids)], out[1, i, :len(ids)], out[2, i, :len(ids)] = torch.tensor(ids), torch.tensor(types), 1
    return dict(input_ids=out[0], token_type_ids=out[1], attention_mask=out[2])


def batches_of(samples, epoch):
    """Lists of indices; the last, smaller one is left out, as Frostline does."""
    order = list(range(len(samples)))
    draw = random.Random(1000 * args.seed + epoch)
    draw.shuffle(order)
    if args.pad == "bucket":
        sorted_pools = []
        for at in range(0, len(order), POOL * args.batch):
            sorted_pools += sorted(order[at:at + POOL * args.batch], key=lambda i: len(samples[i][0]))
        order = sorted_pools
    out = [order[at:at + args.batch] for at in range(0, len(order) - args.batch + 1, args.batch)]
    if args.pad == "bucket":
        draw.shuffle(out)
    return out


def groups_of(model):
    """AdamW's parameter groups, as transformers' Trainer makes them."""
    plain = [p for n, p in model.named_parameters() if n.endswith("bias") or "LayerNorm" in n]
    skip = {id(p) for p in plain}
    return [{"params": [p for p in model.parameters() if id(p) not in skip], "weight_decay": args.weight_decay},
            {"params": plain, "weight_decay": 0.0}]


def freeze(model, epoch):
    layers = model.base_model.encoder.layer
    n = min(len(layers) - args.keep, math.ceil(len(layers) * (1 - (1 - args.freeze) ** epoch)))
    for module in ([model.base_model.embeddings] if n > 0 else []) + list(layers[:n]):
        module.requires_grad_(False)


def test(model, path):
    samples, labels = read_table(path)
    model.eval()
    guess = []
    with torch.no_grad():
        for at in range(0, len(samples), 64):
            guess.append(model(**pad(samples[at:at + 64])).logits.argmax(-1))
    guess = torch.cat(guess)
    hit, positive = (guess == labels), labels == 1
    f1 = 2 * (hit & positive).sum() / ((guess == 1).sum() + positive.sum()).clamp(min=1)
    return f"accuracy {hit.float().mean():.5f} f1 {f1:.5f}"


def train(rank, world):
    from transformers import AutoModelForSequenceClassification
    torch.set_num_threads(args.threads)
    samples, labels = read_table(args.train, args.samples)
    torch.manual_seed(args.seed)
    model = AutoModelForSequenceClassification.from_pretrained(args.weights, num_labels=int(labels.max()) + 1)
    net = model
    if world > 1:
        net = nn.parallel.DistributedDataParallel(model, find_unused_parameters=args.freeze > 0)
    optimizer = torch.optim.AdamW(groups_of(model), lr=args.lr, fused=True)
    total = len(samples) // args.batch * args.epochs
    warmup = max(1, round(args.warmup * total))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min(1, (s + 1) / warmup) * (1 if s < warmup else (total - s) / (total - warmup)))
    model.train()
    times, begin = [], time.perf_counter()
    for epoch in range(args.epochs):
        if args.freeze > 0:
            freeze(model, epoch)
        for which in batches_of(samples, epoch):
            start = time.perf_counter()
            mine = which[rank::world]
            loss = F.cross_entropy(net(**pad([samples[i] for i in mine])).logits, labels[mine])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            schedule.step()
            times.append(time.perf_counter() - start)
            if len(times) == args.steps:
                break
        if args.steps and len(times) >= args.steps:
            break
    seconds = time.perf_counter() - begin
    if rank > 0:
        return
    line = f"samples/s {args.batch / statistics.median(times[UNTIMED:] or times):.1f}, seconds {seconds:.1f}"
    if not args.steps:
        line += "".join(f", test {test(model, path)}" for path in args.test)
    print(line, flush=True)


def worker(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    train(rank, world)
    dist.destroy_process_group()


if __name__ == "__main__":
    if args.mode == "ddp":
        import socket
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        torch.multiprocessing.spawn(worker, args=(args.processes, port), nprocs=args.processes)
    else:
        train(0, 1)
