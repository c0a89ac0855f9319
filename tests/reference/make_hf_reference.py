#!/usr/bin/env python3
"""Make tests/reference/hf_bert: a small Hugging Face folder, sentences, and what transformers computes.

To make it again (needs torch, transformers and safetensors; made with torch 2.15 and transformers 5.23):

    python3 tests/reference/make_hf_reference.py make tests/reference/hf_bert

base/        a BertModel as bert-base-uncased is saved: no classifier, position_ids, names without "bert."
tuned/       a BertForSequenceClassification with the labels bad and good, in names with "bert."
train.tsv, test.tsv   sentences and labels
logits.txt   of tuned/ for each line of test.tsv, a line "<bad> <good>"

With `score DIR TABLE` it prints the logits of another folder in this form, as Hugging Face loads it by
AutoTokenizer and AutoModelForSequenceClassification: what Frostline left is compared with its own
predictions by `frostline predict`:

    python3 tests/reference/make_hf_reference.py score RUN/model tests/reference/hf_bert/test.tsv
"""
import os
import random
import sys

import torch
from safetensors.torch import save_file
from transformers import (AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertForSequenceClassification,
                          BertModel)

WORDS = "the a film movie story plot is was good great fine bad dull poor not very and but we saw liked hated".split()
GOOD, BAD = {"good", "great", "fine", "liked"}, {"bad", "dull", "poor", "hated"}
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + WORDS + ["##s", "##ly", ".", ","]
SIZES = dict(vocab_size=len(VOCABULARY), hidden_size=16, num_hidden_layers=3, num_attention_heads=2,
             intermediate_size=24, max_position_embeddings=40, type_vocab_size=2)


def sentence(random_):
    words = random_.choices(WORDS, k=random_.randint(1, 24))
    score = sum(w in GOOD for w in words) - sum(w in BAD for w in words)
    return " ".join(words) + random_.choice([" .", ""]), "good" if score > 0 else "bad"


def write_table(path, n, seed):
    random_ = random.Random(seed)
    with open(path, "w") as out:
        out.write("sentence\tlabel\n")
        for _ in range(n):
            out.write("\t".join(sentence(random_)) + "\n")


def shake(model):
    """Larger than at the start of training, so that nothing is close to linear."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.add_((0.1 if "LayerNorm" in name else 0.08) * torch.randn_like(p))
    return model.eval()


def write_tokenizer(folder):
    with open(f"{folder}/vocab.txt", "w") as out:
        out.write("\n".join(VOCABULARY) + "\n")
    with open(f"{folder}/tokenizer_config.json", "w") as out:
        out.write('{"do_lower_case": true, "model_max_length": 40, "tokenizer_class": "BertTokenizer"}\n')


def make(folder):
    torch.manual_seed(3)
    os.makedirs(f"{folder}/base", exist_ok=True)
    base = shake(BertModel(BertConfig(**SIZES)))
    base.config.save_pretrained(f"{folder}/base")
    tensors = {n: p.contiguous() for n, p in base.state_dict().items()}
    tensors["embeddings.position_ids"] = torch.arange(SIZES["max_position_embeddings"])[None]
    save_file(tensors, f"{folder}/base/model.safetensors", metadata={"format": "pt"})
    tuned = shake(BertForSequenceClassification(BertConfig(**SIZES, id2label={0: "bad", 1: "good"},
                                                           label2id={"bad": 0, "good": 1})))
    tuned.save_pretrained(f"{folder}/tuned")
    for name in "base", "tuned":
        write_tokenizer(f"{folder}/{name}")
    write_table(f"{folder}/train.tsv", 96, 1)
    write_table(f"{folder}/test.tsv", 24, 2)
    with open(f"{folder}/logits.txt", "w") as out:
        score(f"{folder}/tuned", f"{folder}/test.tsv", out)


def score(folder, table, out):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, attn_implementation="eager").float().eval()
    for line in open(table).read().splitlines()[1:]:
        with torch.no_grad():
            logits = model(**tokenizer(line.split("\t")[0], return_tensors="pt", truncation=True)).logits[0]
        print(*(f"{v:.9g}" for v in logits.tolist()), file=out)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2])
    else:
        score(sys.argv[2], sys.argv[3], sys.stdout)
