#!/usr/bin/env python3
"""Make tests/reference/hf_gpt2 and hf_vit: small Hugging Face folders, data, and what transformers computes.

To make them again (needs torch, transformers and safetensors; made with torch 2.15 and transformers 5.23):

    python3 tests/reference/make_hf_models_reference.py gpt2 tests/reference/hf_gpt2
    python3 tests/reference/make_hf_models_reference.py vit tests/reference/hf_vit

model/       the folder, as save_pretrained writes it; its dropout is not 0
old/         of GPT-2: the same weights as old files have them, without "transformer." and with the
             buffers attn.bias and attn.masked_bias
stepped.safetensors   all tensors after one step of SGD with the rate 0.5 on all samples at once,
             without dropout: they show every gradient
loss.txt     the mean loss of all targets before that step
lines.txt    of GPT-2: for each line of text.txt alone, how many tokens it has and their mean loss
logits.txt   of ViT, a line for each image

The data are text.txt, whose blocks have 16 tokens, or the files of an idx folder.

With `score FOLDER DATA` it prints the loss of another folder on such data, as Hugging Face loads it
by AutoModel: what Frostline left is compared with its own evaluation:

    python3 tests/reference/make_hf_models_reference.py score RUN/model tests/reference/hf_gpt2
"""
import json
import os
import shutil
import struct
import sys

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import (AutoModelForCausalLM, AutoModelForImageClassification, AutoTokenizer, GPT2Config,
                          GPT2LMHeadModel, ViTConfig, ViTForImageClassification)

HERE = os.path.dirname(os.path.abspath(__file__))
BLOCK, RATE, SIZE, CLASSES, IMAGES = 16, 0.5, 12, 3, 10
TEXT = """First Citizen:
Before we proceed any further, hear me speak.

All:
Speak, speak.

First Citizen:
You are all resolved rather to die than to famish?
"""


def shake(model):
    """Larger than at the start of training, so that nothing is close to linear."""
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model.eval()


def gpt2():
    return shake(GPT2LMHeadModel(GPT2Config(vocab_size=520, n_positions=32, n_embd=12, n_layer=2, n_head=3,
                                            bos_token_id=0, eos_token_id=0)))


def vit():
    return shake(ViTForImageClassification(
        ViTConfig(hidden_size=18, num_hidden_layers=2, num_attention_heads=3, intermediate_size=25, num_channels=1,
                  image_size=SIZE, patch_size=4, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.2,
                  id2label={0: "bag", 1: "boot", 2: "shirt"}, label2id={"bag": 0, "boot": 1, "shirt": 2})))


def write_idx(path, values, dims):
    with open(path, "wb") as out:
        out.write(struct.pack(f">I{len(dims)}I", 0x800 + len(dims), *dims) + values.astype("u1").tobytes())


def write_data(kind, folder):
    if kind == "gpt2":
        with open(f"{folder}/text.txt", "w") as out:
            out.write(TEXT)
        for name in "vocab.json", "merges.txt":
            shutil.copy(f"{HERE}/tokenizer/gpt2/{name}", f"{folder}/model/{name}")
        return
    draw = np.random.default_rng(5)
    for prefix in "train", "t10k":
        write_idx(f"{folder}/{prefix}-images-idx3-ubyte", draw.integers(0, 256, IMAGES * SIZE * SIZE),
                  [IMAGES, SIZE, SIZE])
        write_idx(f"{folder}/{prefix}-labels-idx1-ubyte", np.arange(IMAGES) % CLASSES, [IMAGES])
    with open(f"{folder}/model/preprocessor_config.json", "w") as out:
        json.dump(dict(image_processor_type="ViTImageProcessor", do_normalize=True, do_rescale=True, do_resize=True,
                       image_mean=[0.4], image_std=[0.25], resample=2, rescale_factor=1 / 255,
                       size=dict(height=SIZE, width=SIZE)), out, indent=2)


def read_idx(path, header):
    return np.frombuffer(open(path, "rb").read()[header:], "u1")


def text_loss(model, folder, data):
    ids = torch.tensor(AutoTokenizer.from_pretrained(folder)(open(f"{data}/text.txt").read()).input_ids)
    blocks = range(0, len(ids) - 1, BLOCK)
    logits = torch.cat([model(ids[None, b:min(b + BLOCK, len(ids) - 1)]).logits[0] for b in blocks])
    return F.cross_entropy(logits, ids[1:]), logits


def write_lines(model, folder):
    tokenizer = AutoTokenizer.from_pretrained(f"{folder}/model")
    with open(f"{folder}/lines.txt", "w") as out:
        for line in open(f"{folder}/text.txt").read().splitlines():
            ids = torch.tensor(tokenizer(line).input_ids, dtype=torch.long)
            loss = model(ids[None], labels=ids[None]).loss.item() if len(ids) > 1 else float("nan")
            print(len(ids), f"{loss:.9g}", file=out)


def image_loss(model, folder, data, prefix="train"):
    with open(f"{folder}/preprocessor_config.json") as file:
        facts = json.load(file)
    pixels = torch.tensor(read_idx(f"{data}/{prefix}-images-idx3-ubyte", 16).astype("f8")).reshape(-1, 1, SIZE, SIZE)
    pixels = (pixels / 255 - facts["image_mean"][0]) / facts["image_std"][0]
    labels = torch.tensor(read_idx(f"{data}/{prefix}-labels-idx1-ubyte", 8).astype("i8"))
    logits = model(pixels.to(next(model.parameters()).dtype)).logits
    return F.cross_entropy(logits, labels), logits


def make(kind, folder):
    torch.manual_seed(4)
    os.makedirs(f"{folder}/model", exist_ok=True)
    model = dict(gpt2=gpt2, vit=vit)[kind]()
    model.save_pretrained(f"{folder}/model")
    if kind == "gpt2":
        os.remove(f"{folder}/model/generation_config.json")
    write_data(kind, folder)
    loss_of = dict(gpt2=text_loss, vit=image_loss)[kind]
    model = model.double()
    loss, logits = loss_of(model, f"{folder}/model", folder)
    loss.backward()
    with open(f"{folder}/loss.txt", "w") as out:
        print(f"{loss.item():.9g}", file=out)
    if kind == "gpt2":
        write_lines(model, folder)
    if kind == "vit":
        with open(f"{folder}/logits.txt", "w") as out:
            for row in loss_of(model, f"{folder}/model", folder, "t10k")[1].tolist():
                print(*(f"{v:.9g}" for v in row), file=out)
    with torch.no_grad():
        for p in model.parameters():
            p.sub_(RATE * p.grad)
    model.float().save_pretrained(f"{folder}/after")  # in the file's names, which differ from those in memory
    os.rename(f"{folder}/after/model.safetensors", f"{folder}/stepped.safetensors")
    shutil.rmtree(f"{folder}/after")
    if kind == "gpt2":
        write_old(folder)


def write_old(folder):
    os.makedirs(f"{folder}/old", exist_ok=True)
    for name in "config.json", "vocab.json", "merges.txt":
        shutil.copy(f"{folder}/model/{name}", f"{folder}/old/{name}")
    tensors = {n.removeprefix("transformer."): t for n, t in load_file(f"{folder}/model/model.safetensors").items()}
    for b in range(2):
        tensors[f"h.{b}.attn.bias"] = torch.tril(torch.ones(32, 32)).bool()[None, None]
        tensors[f"h.{b}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, f"{folder}/old/model.safetensors", metadata={"format": "pt"})


def score(folder, data):
    with open(f"{folder}/config.json") as file:
        language = json.load(file)["model_type"] == "gpt2"
    model = (AutoModelForCausalLM if language else AutoModelForImageClassification).from_pretrained(folder).eval()
    with torch.no_grad():
        loss = (text_loss(model, folder, data) if language else image_loss(model, folder, data, "t10k"))[0]
    print(f"{loss.item():.9g}")


if __name__ == "__main__":
    if sys.argv[1] == "score":
        score(sys.argv[2], sys.argv[3])
    else:
        make(sys.argv[1], sys.argv[2])
