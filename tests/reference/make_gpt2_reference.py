#!/usr/bin/env python3
"""Make gpt2_reference.bin: what transformers' GPT2LMHeadModel computes for a small configuration.

To make it again (needs torch and transformers):

    python3 tests/reference/make_gpt2_reference.py tests/reference/gpt2_reference.bin

The model is computed in 64-bit floats and stored in 32, as in make_vit_reference.py, which also has
the format of the file. Samples differ in length; each runs alone, so that nothing is padded. The
loss is the mean over the tokens of the whole batch.

ids and targets (as floats, all samples one after another), logits, loss [3] (before each step),
norm [3] (of the gradient, the tied weight counted once), then for every parameter "<layer>.<name>",
named and laid out as Frostline has it (a Conv1D of transformers is transposed; the head's weight is
the token embedding): w0/..., g/..., w3/... (after three steps of AdamW with the global norm clipped).
"""
import struct
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

VOCABULARY, POSITIONS, BLOCKS, DIM, HEADS, LENGTHS, STEPS = 50, 12, 2, 15, 3, (12, 1, 7, 4), 3
# See make_vit_reference.py for the large epsilon.
LR, DECAY, BETAS, EPSILON, CLIP = 1e-2, 0.1, (0.9, 0.95), 1e-3, 0.5


def build():
    config = GPT2Config(vocab_size=VOCABULARY, n_positions=POSITIONS, n_embd=DIM, n_layer=BLOCKS, n_head=HEADS,
                        attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        for p in model.parameters():  # away from zeros and ones, which hide wrong gradients
            p.add_(0.2 * torch.randn_like(p))
    return model.float().double().train()


def names():
    """Frostline's name of each parameter, and whether it is transposed."""
    out = {"transformer.wte.weight": ("0.token", False), "transformer.wpe.weight": ("0.position", False)}
    for b in range(BLOCKS):
        attention, mlp = 2 * b + 1, 2 * b + 2
        for theirs, ours in (("ln_1", f"{attention}.ln"), ("attn.c_attn", f"{attention}.qkv"),
                             ("attn.c_proj", f"{attention}.proj"), ("ln_2", f"{mlp}.ln"),
                             ("mlp.c_fc", f"{mlp}.fc"), ("mlp.c_proj", f"{mlp}.proj")):
            for part in ("weight", "bias"):
                out[f"transformer.h.{b}.{theirs}.{part}"] = (f"{ours}.{part}", part == "weight" and "c_" in theirs)
    for part in ("weight", "bias"):
        out[f"transformer.ln_f.{part}"] = (f"{2 * BLOCKS + 1}.ln.{part}", False)
    return out


def record(out, name, values):
    flat = values.detach().flatten().float().tolist()
    out.write(struct.pack(f"<48si{len(flat)}f", name.encode(), len(flat), *flat))


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = build()
    texts = [torch.randint(VOCABULARY, (n + 1,)) for n in LENGTHS]
    parameters = dict(model.named_parameters())
    assert set(parameters) == set(names())
    plain = [p for n, p in parameters.items() if n.endswith("bias") or ".ln_" in n]
    decayed = [p for p in parameters.values() if not any(p is q for q in plain)]
    optimizer = torch.optim.AdamW([dict(params=decayed, weight_decay=DECAY), dict(params=plain, weight_decay=0.0)],
                                  lr=LR, betas=BETAS, eps=EPSILON)
    start = {n: p.detach().clone() for n, p in parameters.items()}
    first, losses, norms, logits = {}, [], [], None
    for step in range(STEPS):
        optimizer.zero_grad()
        out = torch.cat([model(t[None, :-1]).logits[0] for t in texts])
        loss = F.cross_entropy(out, torch.cat([t[1:] for t in texts]))
        loss.backward()
        if step == 0:
            logits = out.detach().clone()
            first = {n: p.grad.clone() for n, p in parameters.items()}
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), CLIP))
        losses.append(loss.detach())
        optimizer.step()
    with open(sys.argv[1], "wb") as out:
        for name, values in dict(ids=torch.cat([t[:-1] for t in texts]), targets=torch.cat([t[1:] for t in texts]),
                                 logits=logits, loss=torch.stack(losses), norm=torch.stack(norms)).items():
            record(out, name, values)
        for theirs, (ours, transposed) in names().items():
            for prefix, values in (("w0", start), ("g", first), ("w3", parameters)):
                record(out, f"{prefix}/{ours}", values[theirs].t() if transposed else values[theirs])


if __name__ == "__main__":
    main()
