#!/usr/bin/env python3
"""Make bert_reference.bin: what Hugging Face's BertForSequenceClassification computes, and with --span
bert_span_reference.bin: the same of BertForQuestionAnswering.

To make it again (needs torch and transformers; made with torch 2.15 and transformers 5.23):

    python3 tests/reference/make_bert_reference.py tests/reference/bert_reference.bin
    python3 tests/reference/make_bert_reference.py --span tests/reference/bert_span_reference.bin

The model is computed in 64-bit floats and stored in 32, so that the file holds PyTorch's values and
not its rounding. The format is that of make_vit_reference.py. There are no dropout and no padding:
each sample goes through the model alone, and the loss is the mean over all samples.

lengths [n], ids, types (of all tokens, as floats), targets, logits [n, classes], loss (with --span:
targets [n, 2], the rows of start and end; logits [tokens, 2]),
then for every parameter of Frostline "<layer>.<name>": w/... (value), g/... (gradient)

One id is [PAD] in the midst of a sample: its embedding gets no gradient (padding_idx).
"""
import struct
import sys

import torch
from transformers import BertConfig, BertForQuestionAnswering, BertForSequenceClassification

LENGTHS, CLASSES = [5, 1, 9, 3], 3
CONFIG = BertConfig(vocab_size=29, hidden_size=18, num_hidden_layers=2, num_attention_heads=3, intermediate_size=25,
                    max_position_embeddings=11, type_vocab_size=2, num_labels=CLASSES, pad_token_id=4,
                    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="eager")
SELF = ["attention.self.query", "attention.self.key", "attention.self.value"]


def record(out, name, values):
    flat = values.detach().flatten().float().numpy().astype("<f4")
    out.write(struct.pack("<48si", name.encode(), flat.size) + flat.tobytes())


def parameters(value, blocks, span):
    """Frostline's parameters, by layer; value: what to take of one of Hugging Face's."""
    e = "bert.embeddings."
    yield "0.token", value(e + "word_embeddings.weight")
    yield "0.position", value(e + "position_embeddings.weight")
    yield "0.type", value(e + "token_type_embeddings.weight")
    for end in "weight", "bias":
        yield f"0.ln.{end}", value(f"{e}LayerNorm.{end}")
    for b in range(blocks):
        at = f"bert.encoder.layer.{b}."
        for end in "weight", "bias":
            yield f"{2 * b + 1}.ln.{end}", value(f"{at}attention.output.LayerNorm.{end}")
            yield f"{2 * b + 1}.qkv.{end}", torch.cat([value(f"{at}{part}.{end}") for part in SELF])
            yield f"{2 * b + 1}.proj.{end}", value(f"{at}attention.output.dense.{end}")
            yield f"{2 * b + 2}.ln.{end}", value(f"{at}output.LayerNorm.{end}")
            yield f"{2 * b + 2}.fc.{end}", value(f"{at}intermediate.dense.{end}")
            yield f"{2 * b + 2}.proj.{end}", value(f"{at}output.dense.{end}")
    head = 2 * blocks + 1
    for end in "weight", "bias":
        if not span:
            yield f"{head}.pooler.{end}", value(f"bert.pooler.dense.{end}")
        yield f"{head}.fc.{end}", value(f"{'qa_outputs' if span else 'classifier'}.{end}")


def build(span):
    CONFIG.num_labels = 2 if span else CLASSES
    model = (BertForQuestionAnswering if span else BertForSequenceClassification)(CONFIG)
    with torch.no_grad():
        for name, p in model.named_parameters():
            # Larger than at the start of training, so that nothing is close to linear.
            p.add_((0.2 if "LayerNorm" in name else 0.15) * torch.randn_like(p))
    # Values that 32-bit floats hold exactly, so that both sides start from the same ones.
    return model.float().double().eval()


def classify(model, inputs):
    targets = torch.randint(CLASSES, (len(inputs),))
    logits = torch.cat([model(**i).logits for i in inputs])
    return targets, logits, torch.nn.functional.cross_entropy(logits, targets)


def find_spans(model, inputs):
    """The model's own loss: the mean of start and end."""
    targets = torch.stack([torch.randint(n, (2,)).sort().values for n in LENGTHS])
    targets[2] = 0
    outputs = [model(**i, start_positions=t[:1], end_positions=t[1:]) for i, t in zip(inputs, targets)]
    logits = torch.cat([torch.stack([o.start_logits[0], o.end_logits[0]], 1) for o in outputs])
    return targets, logits, sum(o.loss for o in outputs) / len(outputs)


def main():
    span = sys.argv[1] == "--span"
    torch.manual_seed(2)
    torch.set_num_threads(1)
    model = build(span)
    ids = [torch.randint(5, CONFIG.vocab_size, (n,)) for n in LENGTHS]
    ids[0][2] = CONFIG.pad_token_id
    types = [(torch.arange(n) > n // 2).long() for n in LENGTHS]
    inputs = [dict(input_ids=i[None], token_type_ids=t[None], attention_mask=torch.ones_like(i)[None])
              for i, t in zip(ids, types)]
    targets, logits, loss = (find_spans if span else classify)(model, inputs)
    loss.backward()
    named = dict(model.named_parameters())
    with open(sys.argv[-1], "wb") as out:
        for name, values in dict(lengths=torch.tensor(LENGTHS), ids=torch.cat(ids), types=torch.cat(types),
                                 targets=targets, logits=logits, loss=loss[None]).items():
            record(out, name, values)
        for name, values in parameters(lambda n: named[n], CONFIG.num_hidden_layers, span):
            record(out, f"w/{name}", values)
        for name, values in parameters(lambda n: named[n].grad, CONFIG.num_hidden_layers, span):
            record(out, f"g/{name}", values)


if __name__ == "__main__":
    main()
