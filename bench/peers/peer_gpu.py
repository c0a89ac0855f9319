#!/usr/bin/env python3
"""The models of bench/gpu.sh in PyTorch, on random inputs, and the data that Frostline's runs need.

    peer_gpu.py train --model gpt2 --batch 16         prints tokens or samples a second and the MFU
    peer_gpu.py mfu --model gpt2 --rate 100000        the MFU of a rate that another program reached
    peer_gpu.py bert FOLDER                           a Hugging Face folder of BERT-base's shape
    peer_gpu.py table FILE ROWS                       a table whose rows are all 126 words long
    peer_gpu.py images FOLDER N                       PNG files of 224 x 224 pixels
    peer_gpu.py tokens FILE N                         token ids as llm.c's train_gpt2 reads them

gpt2: 124M, blocks of --tokens tokens, tied head. vit: ViT-B/16 on 224 x 224 pixels, 1000 classes.
bert: BERT-base, 128 tokens, 2 classes. Attention is scaled_dot_product_attention, the optimizer fused
AdamW, the gradient's norm is clipped. MFU is model FLOPs (three times the forward pass) over
--peak TFLOPS. --tiny makes every size small, for a trial without a GPU. Only train, bert need torch.
"""
import argparse
import json
import math
import os
import random
import struct
import sys
import time
import zlib

UNTIMED = 5
TEXT_ROWS = 50304  # GPT-2's 50,257 ids, padded

SHAPES = {  # blocks, width, heads, tokens of a sample
    "gpt2": (12, 768, 12, 1024),
    "vit": (12, 768, 12, 197),
    "bert": (12, 768, 12, 128),
}
TINY = {"gpt2": (2, 32, 2, 64), "vit": (2, 32, 2, 197), "bert": (2, 32, 2, 128)}
WORDS = ["frost", "line", "ice", "cold", "layer", "stage", "train", "weight"]


def arguments():
    p = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    p.add_argument("action", choices=["train", "mfu", "bert", "table", "images", "tokens"])
    p.add_argument("out", nargs="?")
    p.add_argument("n", nargs="?", type=int)
    p.add_argument("--model", choices=list(SHAPES), default="gpt2")
    p.add_argument("--device", default="cuda")
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--rate", type=float, help="tokens a second of gpt2, else samples a second")
    p.add_argument("--peak", type=float, default=0.0, help="TFLOPS of the GPU; 0: no MFU")
    p.add_argument("--precision", choices=["bf16", "tf32", "fp32"], default="bf16")
    p.add_argument("--eager", action="store_true", help="without torch.compile")
    p.add_argument("--tiny", action="store_true")
    return p.parse_args()


def shape_of(a):
    return (TINY if a.tiny else SHAPES)[a.model]


# ---- model FLOPs ----

def sample_flops(a):
    """Forward and backward of one sample: products with weights and of attention."""
    blocks, width, _, tokens = shape_of(a)
    block = 2 * tokens * 12 * width * width + 2 * 2 * tokens * tokens * width
    outside = {
        "gpt2": 2 * tokens * width * TEXT_ROWS,
        "vit": 2 * 196 * 768 * width + 2 * width * 1000,
        "bert": 2 * width * width + 2 * width * 2,
    }[a.model]
    return 3 * (blocks * block + outside)


def unit_of(a):
    return "tokens" if a.model == "gpt2" else "samples"


def report(a, rate):
    """rate: in units a second."""
    samples = rate / shape_of(a)[3] if a.model == "gpt2" else rate
    mfu = f"{100 * samples * sample_flops(a) / (a.peak * 1e12):.1f} %" if a.peak > 0 else "-"
    print(f"{rate:.1f} {unit_of(a)}/s, MFU {mfu}")


# ---- training ----

def build(a, torch):
    nn, F = torch.nn, torch.nn.functional
    blocks, width, heads, tokens = shape_of(a)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.qkv, self.proj = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.norm2, self.fc, self.out = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def attend(self, x):
            b, t, c = x.shape
            q, k, v = self.qkv(x).view(b, t, 3, heads, c // heads).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=a.model == "gpt2")
            return self.proj(y.transpose(1, 2).reshape(b, t, c))

        def expand(self, x):
            return self.out(F.gelu(self.fc(x), approximate="tanh" if a.model == "gpt2" else "none"))

        def forward(self, x):
            if a.model == "bert":  # normalization follows the addition
                x = self.norm1(x + self.attend(x))
                return self.norm2(x + self.expand(x))
            x = x + self.attend(self.norm1(x))
            return x + self.expand(self.norm2(x))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.position = nn.Parameter(0.02 * torch.randn(tokens, width))
            self.blocks = nn.Sequential(*[Block() for _ in range(blocks)])
            self.norm = nn.LayerNorm(width)
            if a.model == "vit":
                self.patches, self.cls = nn.Conv2d(3, width, 16, 16), nn.Parameter(torch.zeros(1, 1, width))
                self.head = nn.Linear(width, 1000)
            else:
                self.token = nn.Embedding(TEXT_ROWS if a.model == "gpt2" else 30522, width)
                nn.init.normal_(self.token.weight, std=0.02)
            if a.model == "bert":
                self.pool, self.head = nn.Linear(width, width), nn.Linear(width, 2)

        def forward(self, x):
            if a.model == "gpt2":
                return F.linear(self.norm(self.blocks(self.token(x) + self.position)), self.token.weight)
            if a.model == "bert":
                x = self.blocks(self.norm(self.token(x) + self.position))
                return self.head(torch.tanh(self.pool(x[:, 0])))
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.position
            return self.head(self.norm(self.blocks(x))[:, 0])

    return Net()


def draw(a, torch):
    tokens = shape_of(a)[3]
    if a.model == "gpt2":
        text = torch.randint(50257, (a.batch, tokens + 1))
        return text[:, :-1], text[:, 1:]
    if a.model == "bert":
        return torch.randint(30522, (a.batch, tokens)), torch.randint(2, (a.batch,))
    return torch.randn(a.batch, 3, 224, 224), torch.randint(1000, (a.batch,))


def train(a):
    import torch
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high" if a.precision == "tf32" else "highest")
    net = build(a, torch).to(a.device)
    run = net if a.eager else torch.compile(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=6e-4, weight_decay=0.1, fused=a.device == "cuda")
    batches = [[t.to(a.device) for t in draw(a, torch)] for _ in range(4)]
    wait = torch.cuda.synchronize if a.device == "cuda" else lambda: None
    for step in range(UNTIMED + a.steps):
        if step == UNTIMED:
            wait()
            begin = time.perf_counter()
        x, y = batches[step % len(batches)]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(a.device, torch.bfloat16, enabled=a.precision == "bf16"):
            logits = run(x)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), y.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    wait()
    seconds = time.perf_counter() - begin
    units = a.batch * a.steps * (shape_of(a)[3] if a.model == "gpt2" else 1)
    report(a, units / seconds)


# ---- data ----

def make_bert(a):
    """config.json, weights that were drawn, and a vocabulary with the words of `table`."""
    import torch
    from safetensors.torch import save_file
    a.model = "bert"
    blocks, width, heads, _ = shape_of(a)
    ids = 30522
    os.makedirs(a.out, exist_ok=True)
    config = dict(architectures=["BertForSequenceClassification"], model_type="bert", vocab_size=ids, hidden_size=width,
                  num_hidden_layers=blocks, num_attention_heads=heads, intermediate_size=4 * width, hidden_act="gelu",
                  hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, max_position_embeddings=512,
                  type_vocab_size=2, layer_norm_eps=1e-12, pad_token_id=0, num_labels=2)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + WORDS
    words += [f"w{i}" for i in range(ids - len(words))]
    tensors = {}

    def linear(name, rows, cols):
        tensors[f"bert.{name}.weight"], tensors[f"bert.{name}.bias"] = 0.02 * torch.randn(rows, cols), torch.zeros(rows)

    def norm(name):
        tensors[f"bert.{name}.weight"], tensors[f"bert.{name}.bias"] = torch.ones(width), torch.zeros(width)

    for name, rows in (("word", ids), ("position", 512), ("token_type", 2)):
        tensors[f"bert.embeddings.{name}_embeddings.weight"] = 0.02 * torch.randn(rows, width)
    norm("embeddings.LayerNorm")
    for i in range(blocks):
        layer = f"encoder.layer.{i}"
        for name in ("query", "key", "value"):
            linear(f"{layer}.attention.self.{name}", width, width)
        linear(f"{layer}.attention.output.dense", width, width)
        norm(f"{layer}.attention.output.LayerNorm")
        linear(f"{layer}.intermediate.dense", 4 * width, width)
        linear(f"{layer}.output.dense", width, 4 * width)
        norm(f"{layer}.output.LayerNorm")
    linear("pooler.dense", width, width)
    save_file(tensors, f"{a.out}/model.safetensors", metadata={"format": "pt"})
    with open(f"{a.out}/config.json", "w") as f:
        json.dump(config, f, indent=1)
    with open(f"{a.out}/vocab.txt", "w") as f:
        f.write("\n".join(words) + "\n")
    with open(f"{a.out}/tokenizer_config.json", "w") as f:
        json.dump(dict(tokenizer_class="BertTokenizer", do_lower_case=True), f)


def make_table(a):
    """126 words, [CLS] and [SEP] make 128 tokens."""
    draw_word = random.Random(0)
    with open(a.out, "w") as f:
        f.write("text\tlabel\n")
        for i in range(a.n):
            f.write(" ".join(draw_word.choice(WORDS) for _ in range(126)) + f"\t{i % 2}\n")


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def make_images(a):
    """A gradient for each image; 10 classes."""
    side = 224
    for i in range(a.n):
        folder = f"{a.out}/{i % 10}"
        os.makedirs(folder, exist_ok=True)
        rows = b"".join(b"\0" + bytes((x + y * (i + 1) + 7 * c) % 256 for x in range(side) for c in range(3))
                        for y in range(side))
        with open(f"{folder}/{i}.png", "wb") as f:
            f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) +
                    chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


def make_tokens(a):
    """llm.c: 256 integers, of which the first are a magic number, version 1 and the count; then uint16."""
    header = [20240520, 1, a.n] + [0] * 253
    draw_id = random.Random(0)
    with open(a.out, "wb") as f:
        f.write(struct.pack("<256i", *header))
        f.write(struct.pack(f"<{a.n}H", *(draw_id.randrange(50257) for _ in range(a.n))))


def main():
    a = arguments()
    if a.action in ("bert", "table", "images", "tokens") and not a.out:
        sys.exit(f"peer_gpu.py {a.action}: where to?")
    if a.action in ("table", "images", "tokens") and not a.n:
        sys.exit(f"peer_gpu.py {a.action}: how many?")
    if a.action == "mfu":
        if a.rate is None or not math.isfinite(a.rate):
            sys.exit("peer_gpu.py mfu: --rate is missing")
        report(a, a.rate)
    else:
        dict(train=train, bert=make_bert, table=make_table, images=make_images, tokens=make_tokens)[a.action](a)


main()
