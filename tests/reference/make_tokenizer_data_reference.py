#!/usr/bin/env python3
"""Writes tests/reference/tokenizer/datasets.json: for each data set and tokenizer, how many texts and
tokens there are, and the CRC-32 of all ids as Hugging Face's tokenizers give them.

    make_tokenizer_data_reference.py DATA

DATA is a folder with sst2/{train,dev}.tsv.gz, mrpc/{train,dev}.tsv.gz, squad/dev-v1.1.json.gz,
squad/train-v1.1-rebuilt.json.gz, lm/tinyshakespeare.txt.gz, lm/wikitext-2.valid.txt.gz, and vocab/ with
bert-base-uncased-vocab.txt.gz, gpt2-vocab.json.gz and gpt2-merges.txt.gz. tests/slow/test_tokenizer_data.c
makes the same texts of it. Needs tokenizers 0.23.3, transformers 5.23.0. Not part of the product.
"""
import array
import gzip
import json
import os
import sys
import tempfile
import zlib

from transformers import BertTokenizer, GPT2Tokenizer

DATA = sys.argv[1]
FILES = ["sst2/train.tsv.gz", "sst2/dev.tsv.gz", "mrpc/train.tsv.gz", "mrpc/dev.tsv.gz", "squad/dev-v1.1.json.gz",
         "squad/train-v1.1-rebuilt.json.gz", "lm/tinyshakespeare.txt.gz", "lm/wikitext-2.valid.txt.gz"]


def read(name):
    with gzip.open(os.path.join(DATA, name)) as file:
        return file.read().decode("utf-8")


def texts(name):
    """Texts, and pairs of texts."""
    content = read(name)
    if name.startswith("squad"):
        for article in json.loads(content)["data"]:
            for paragraph in article["paragraphs"]:
                yield paragraph["context"]
                for question in paragraph["qas"]:
                    yield question["question"], paragraph["context"]
        return
    lines = content.split("\n")
    lines = lines[:-1] if lines[-1] == "" else lines
    if name.startswith("lm"):
        yield content
        yield from lines
    for line in lines[1:]:
        fields = line.split("\t")
        if name.startswith("sst2"):
            yield fields[0]
        elif name.startswith("mrpc"):
            yield fields[3]
            yield fields[4]
            yield fields[3], fields[4]


def tokenizer(make, files):
    with tempfile.TemporaryDirectory() as folder:
        for name, source in files.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8", newline="") as file:
                file.write(read(source))
        return make.from_pretrained(folder)._tokenizer


rows = []
for model, made in (("bert", tokenizer(BertTokenizer, {"vocab.txt": "vocab/bert-base-uncased-vocab.txt.gz"})),
                    ("gpt2", tokenizer(GPT2Tokenizer, {"vocab.json": "vocab/gpt2-vocab.json.gz",
                                                       "merges.txt": "vocab/gpt2-merges.txt.gz"}))):
    for name in FILES:
        crc, n_texts, n_tokens = 0, 0, 0
        for encoding in made.encode_batch(list(texts(name))):
            crc = zlib.crc32(array.array("i", [len(encoding.ids)] + encoding.ids).tobytes(), crc)
            n_texts, n_tokens = n_texts + 1, n_tokens + len(encoding.ids)
        rows.append({"model": model, "file": name, "texts": n_texts, "tokens": n_tokens, "crc32": crc})
        print(rows[-1], file=sys.stderr)
here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "tokenizer", "datasets.json"), "w") as file:
    file.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
