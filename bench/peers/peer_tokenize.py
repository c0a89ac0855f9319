#!/usr/bin/env python3
"""How fast Hugging Face's tokenizers encode the lines of a file, on one thread. Prints MB/s of
encode_batch, of encode_batch_fast (which leaves out positions) and of encode, line by line: each the best
of the repetitions.

    peer_tokenize.py DIR TEXT [repetitions]

Needs transformers and tokenizers. Not part of the product.
"""
import os
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
from transformers import BertTokenizer, GPT2Tokenizer

folder, path = sys.argv[1:3]
repetitions = int(sys.argv[3]) if len(sys.argv) > 3 else 3
make = BertTokenizer if os.path.exists(os.path.join(folder, "vocab.txt")) else GPT2Tokenizer
tokenizer = make.from_pretrained(folder)._tokenizer
with open(path, encoding="utf-8", newline="") as file:
    text = file.read()
lines = text.split("\n")
n_bytes = len(text.encode())


def encode_each(texts):
    for line in texts:
        tokenizer.encode(line)


rates = []
for encode in (tokenizer.encode_batch, tokenizer.encode_batch_fast, encode_each):
    best = float("inf")
    for _ in range(repetitions):
        begin = time.perf_counter()
        encode(lines)
        best = min(best, time.perf_counter() - begin)
    rates.append(n_bytes / best / 1e6)
print(" ".join(f"{rate:.2f}" for rate in rates))
