#!/usr/bin/env python3
"""Make the folder squad/: windows as Hugging Face's tokenizer cuts them, and SQuAD's scores.

To make it again (needs tokenizers; made with tokenizers 0.23.3, whose windows are complete):

    python3 tests/reference/make_squad_reference.py tests/reference/squad

questions.json  a file in the format of SQuAD 1.1
impossible.json the same in that of SQuAD 2.0
windows.txt     a line for each window of questions.json, with max_tokens 80 and stride 20:
                question, the two targets, then id:type of each token
scores.txt      lines of answer, wanted answer, exact match and F1, with tabs between them

    python3 tests/reference/make_squad_reference.py --windows FILE VOCAB MAX_TOKENS STRIDE

prints the windows of any file in that format, which bench/squad_windows.sh compares with ours.
"""
import collections
import gzip
import json
import os
import re
import string
import sys

from tokenizers import BertWordPieceTokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
MAX_TOKENS, STRIDE = 80, 20

CONTEXTS = [
    ("The quick brown fox jumps over the lazy dog. It was seen in Paris, near the old town hall, on the 3rd of May "
     "1987; nobody knows where it went, although many people looked for it in every street of the city and in the "
     "woods around it. A reward of $1,000 was offered by the mayor, Mr. O'Neill-Smith.",
     [("What jumps over the dog?", ["The quick brown fox", "quick brown fox", "fox"]),
      ("How much was the reward?", ["$1,000", "1,000"]),
      ("   Where was it seen?", ["Paris", "in Paris, near the old town hall"]),
      ("Who offered the reward?", ["the mayor, Mr. O'Neill-Smith", "O'Neill-Smith"])]),
    ("Beyonc\u00e9 Giselle Knowles\u2013Carter (born 1981) \u2014 caf\u00e9 na\u00efve \u00c5ngstr\u00f6m \u4e2d\u6587\u5b57 "
     "\u0130stanbul e\u0301clair \U0001F600 emoji. Z\u00fcrich, S\u00e3o Paulo und K\u00f8benhavn liegen weit auseinander, "
     "aber die Z\u00fcge fahren jeden Tag.",
     [("Who was born in 1981?", ["Beyonc\u00e9 Giselle Knowles\u2013Carter"]),
      ("Which characters?", ["\u4e2d\u6587\u5b57", "\u4e2d"]),
      ("What is sweet?", ["e\u0301clair"]),
      ("Which cities are far apart?", ["Z\u00fcrich, S\u00e3o Paulo und K\u00f8benhavn"]),
      ("What runs?", ["Z\u00fcge"])]),
    ("Short one.", [("Which?", ["one"]), ("What kind of a sentence is this very short one here, would you say?",
                                        ["Short one."])]),
]

SCORES = [
    ("The fox", "fox"), ("a quick, brown fox!", "Quick Brown Fox"), ("fox dog", "dog fox"), ("", ""), ("the", ""),
    ("the", "an"), ("cat", ""), ("", "cat"), ("in the the city", "in city"), ("theatre an a.n", "theatre an"),
    ("$1,000", "1000"), ("caf\u00e9 au lait", "caf\u00e9"), ("\u00c9CLAIR", "\u00e9clair"), ("a\u00e9 the", "a\u00e9"),
    ("one two two three", "two two two four"), ("state-of-the-art", "state of the art"), ("a b\u00a0c", "b c"),
    ("\u0130stanbul", "i\u0307stanbul"), ("a\u2013the", "\u2013"), ("U.S. of A.", "us of"), ("3rd", "3 rd"),
]


def tokenizer(vocab=None):
    t = BertWordPieceTokenizer(vocab or os.path.join(HERE, "tokenizer/bert/vocab.txt"), lowercase=True)
    t.no_padding()
    return t


def cut_windows(t, questions, max_tokens, stride):
    """As prepare_train_features of transformers' run_qa.py; yields question, targets, ids, types.

    There, an answer that begins in the window's last token of the context gets a target behind it,
    because the search runs on into the special tokens. Here the search ends with the context."""
    t.enable_truncation(max_tokens, stride=stride, strategy="only_second")
    for number, (question, context, answers, starts) in enumerate(questions):
        first = t.encode(question.lstrip(), context)
        for window in [first] + first.overflowing:
            ids, offsets = window.ids, window.offsets
            sequence = window.sequence_ids
            target = (0, 0)
            begin, end = sequence.index(1), len(ids) - 1 - sequence[::-1].index(1)
            if answers and offsets[begin][0] <= starts[0] and offsets[end][1] >= starts[0] + len(answers[0]):
                start, stop = begin, end
                while start <= end and offsets[start][0] <= starts[0]:
                    start += 1
                while offsets[stop][1] >= starts[0] + len(answers[0]):
                    stop -= 1
                target = (start - 1, stop + 1)
            yield number, target, ids, window.type_ids


def read_questions(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as f:
        for article in json.load(f)["data"]:
            for paragraph in article["paragraphs"]:
                for qa in paragraph["qas"]:
                    yield (qa["question"], paragraph["context"], [a["text"] for a in qa["answers"]],
                           [a["answer_start"] for a in qa["answers"]])


# ---- the official evaluation script of SQuAD 1.1 ----

def normalize(s):
    s = "".join(c for c in s.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", s).split())


def f1_score(prediction, truth):
    p, t = normalize(prediction).split(), normalize(truth).split()
    same = sum((collections.Counter(p) & collections.Counter(t)).values())
    if same == 0:
        return 0.0
    precision, recall = 1.0 * same / len(p), 1.0 * same / len(t)
    return (2 * precision * recall) / (precision + recall)


# ---- files ----

def write_questions(path, impossible):
    article, n = [], 0
    for context, qas in CONTEXTS:
        paragraph = {"context": context, "qas": []}
        for question, answers in qas:
            qa = {"id": f"q{n}", "question": question,
                  "answers": [{"text": a, "answer_start": context.index(a)} for a in answers]}
            if impossible:
                qa["is_impossible"] = n % 3 == 0
                qa["answers"] = [] if n % 3 == 0 else qa["answers"]
            paragraph["qas"].append(qa)
            n += 1
        article.append(paragraph)
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"version": "2.0" if impossible else "1.1", "data": [{"title": "t", "paragraphs": article}]}, f,
                  ensure_ascii=False, indent=1)


def lines_of(path, t, max_tokens, stride):
    for number, target, ids, types in cut_windows(t, read_questions(path), max_tokens, stride):
        yield f"{number} {target[0]} {target[1]} " + " ".join(f"{i}:{t}" for i, t in zip(ids, types)) + "\n"


def make(folder):
    os.makedirs(folder, exist_ok=True)
    write_questions(f"{folder}/questions.json", False)
    write_questions(f"{folder}/impossible.json", True)
    with open(f"{folder}/windows.txt", "w") as f:
        f.writelines(lines_of(f"{folder}/questions.json", tokenizer(), MAX_TOKENS, STRIDE))
    with open(f"{folder}/scores.txt", "w", encoding="utf-8") as f:
        for answer, wanted in SCORES:
            exact = float(normalize(answer) == normalize(wanted))
            f.write(f"{answer}\t{wanted}\t{exact}\t{f1_score(answer, wanted)!r}\n")


def main():
    if sys.argv[1] == "--windows":
        path, vocab, max_tokens, stride = sys.argv[2:]
        sys.stdout.writelines(lines_of(path, tokenizer(vocab), int(max_tokens), int(stride)))
    else:
        make(sys.argv[1])


if __name__ == "__main__":
    main()
