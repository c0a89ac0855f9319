#!/usr/bin/env python3
"""Make export_reference.bin: what PyTorch computes with a model that Frostline exported.

To make it again (needs torch and safetensors), let the test write the exported folder first:

    FL_EXPORT_DIR=exported build/release/tests/test_model_export
    python3 tests/reference/make_export_reference.py exported tests/reference/export_reference.bin

The vision transformer is written in plain PyTorch, from config.json and model.safetensors alone, and
computed in 64-bit floats. The images are bytes: byte i of all images together is (7 i + 3) mod 251.
They enter as config.json says: (value / 255 - mean) / deviation. Records are stored as in
vit_reference.bin: logits, then the tensors of the file as "w/<name>".

    python3 tests/reference/make_export_reference.py exported --predictions FILE --data FOLDER

compares the lines of `frostline predict exported --data FOLDER` instead, where FOLDER holds the file
t10k-images-idx3-ubyte of the images, and prints the largest difference of a probability.

    python3 tests/reference/make_export_reference.py exported --against half --data FOLDER

computes the logits of the same images from two exported folders, and prints the type of the second
one's tensors, the largest and the mean difference of a logit, the largest difference of a
probability, and how many images get another class.
"""
import json
import struct
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

N_IMAGES = 6


def load(folder):
    config = json.loads((Path(folder) / "config.json").read_text())
    assert (config["format"], config["version"], config["model"]["kind"]) == ("frostline-model", 1, "vit")
    return config, {k: v.double() for k, v in load_file(Path(folder) / "model.safetensors").items()}


def norm(w, name, x):
    return F.layer_norm(x, x.shape[-1:], w[f"{name}.ln.weight"], w[f"{name}.ln.bias"])


def linear(w, name, x):
    return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])


def attention(w, name, heads, x):
    n, t, c = x.shape
    parts = linear(w, f"{name}.qkv", norm(w, name, x)).view(n, t, 3, heads, c // heads)
    q, k, v = parts.permute(2, 0, 3, 1, 4)
    y = F.scaled_dot_product_attention(q, k, v)
    return x + linear(w, f"{name}.proj", y.transpose(1, 2).reshape(n, t, c))


def mlp(w, name, x):
    hidden = F.gelu(linear(w, f"{name}.fc", norm(w, name, x)), approximate="tanh")
    return x + linear(w, f"{name}.proj", hidden)


def logits(config, w, pixels):
    m, by = config["model"], config["data"]["normalization"]
    images = (pixels.double() / 255 - by["mean"]) / by["deviation"]
    images = images.view(-1, m["channels"], m["height"], m["width"])
    kernel = w["embed.patch.weight"].view(m["dim"], m["channels"], m["patch"], m["patch"])
    x = F.conv2d(images, kernel, w["embed.patch.bias"], stride=m["patch"]).flatten(2).transpose(1, 2)
    x = torch.cat([w["embed.cls"].expand(len(x), 1, -1), x], 1) + w["embed.pos"]
    for block in range(1, m["blocks"] + 1):
        x = attention(w, f"blocks.{block}.attn", m["heads"], x)
        x = mlp(w, f"blocks.{block}.mlp", x)
    return linear(w, "head.fc", norm(w, "head", x[:, 0]))


def record(out, name, values):
    flat = values.detach().flatten().float().tolist()
    out.write(struct.pack(f"<48si{len(flat)}f", name.encode(), len(flat), *flat))


def make(config, w, path):
    size = config["model"]["height"] * config["model"]["width"]
    pixels = torch.tensor([(7 * i + 3) % 251 for i in range(N_IMAGES * size)])
    with open(path, "wb") as out:
        record(out, "logits", logits(config, w, pixels))
        for name, values in w.items():
            record(out, f"w/{name}", values)


def images(data):
    raw = (Path(data) / "t10k-images-idx3-ubyte").read_bytes()
    return torch.frombuffer(bytearray(raw[16:]), dtype=torch.uint8)


def compare(config, w, predictions, data):
    found = logits(config, w, images(data)).softmax(1)
    lines = [json.loads(line) for line in open(predictions)]
    assert [line["id"] for line in lines] == list(range(len(found)))
    print((torch.tensor([line["scores"] for line in lines]) - found).abs().max().item())


def compare_models(config, w, other, data):
    ours, theirs = logits(config, w, images(data)), logits(*load(other), images(data))
    dtypes = {v.dtype for v in load_file(Path(other) / "model.safetensors").values()}
    apart = (ours - theirs).abs()
    probability = (ours.softmax(1) - theirs.softmax(1)).abs().max()
    changed = (ours.argmax(1) != theirs.argmax(1)).sum()
    print(f"{dtypes}: logits differ by at most {apart.max():.2g}, {apart.mean():.2g} in the mean, "
          f"probabilities by at most {probability:.2g}; {changed} of {len(ours)} images get another class")


def main():
    config, w = load(sys.argv[1])
    if len(sys.argv) == 3:
        make(config, w, sys.argv[2])
    elif sys.argv[2] == "--against":
        compare_models(config, w, sys.argv[3], sys.argv[5])
    else:
        compare(config, w, sys.argv[3], sys.argv[5])


if __name__ == "__main__":
    main()
