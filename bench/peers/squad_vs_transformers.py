#!/usr/bin/env python3
"""MiniLM on a part of SQuAD 1.1, one epoch: exact match and F1 of Frostline and of a loop over transformers.

    python3 bench/peers/squad_vs_transformers.py TRAIN DEV [option]...

TRAIN, DEV  files in the format of SQuAD 1.1, plain or gzip; the first --questions and --dev-questions
            of them are used, without those whose id ends in --without
--out       a folder for the files of the parts and the runs; --model: the folder of MiniLM
--rows      which of the lines to print; each is computed by itself

Both train on the same windows (bench/bench_squad prints them) with the same hyper-parameters: AdamW
without decay, the linear schedule with 10 % warm-up, clipping to 1.0, dropout of config.json. The order of
the windows is each one's own. The scores of transformers' logits are those of SQuAD's official script.
A third line is the model before it was trained. Needs torch, transformers, numpy.
"""
import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/reference"))


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("train")
    p.add_argument("dev")
    p.add_argument("--out", required=True)
    p.add_argument("--model", default=".cache/squad-minilm/model")
    p.add_argument("--build", default="build/release", help="the folder of frostline and bench/bench_squad")
    p.add_argument("--questions", type=int, default=2000)
    p.add_argument("--dev-questions", type=int, default=1000)
    p.add_argument("--without", default=None, metavar="SUFFIX")
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rows", nargs="+", default=["untrained", "frostline", "transformers"])
    return p.parse_args()


def take_questions(path, n, without, to):
    """Write the first n questions of the file with their contexts; return them in their order."""
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as f:
        articles = json.load(f)["data"]
    paragraphs, questions = [], []
    for paragraph in (p for a in articles for p in a["paragraphs"]):
        qas = [q for q in paragraph["qas"] if without is None or not q["id"].endswith(without)]
        qas = qas[:n - len(questions)]
        if qas:
            paragraphs.append({"context": paragraph["context"], "qas": qas})
            questions += [(paragraph["context"], q) for q in qas]
    with open(to, "w", encoding="utf-8") as f:
        json.dump({"version": "1.1", "data": [{"title": "part", "paragraphs": paragraphs}]}, f)
    return questions


# ---- Frostline ----

def frostline(o, name, settings):
    job = f"{o.out}/{name}.yaml"
    with open(job, "w") as f:
        f.write(f"name: {name}\nmodel: {{kind: hf, path: {os.path.realpath(o.model)}}}\n"
                f"data: {{kind: squad, path: {{train: {o.out}/train.json, test: {o.out}/dev.json}}, "
                "max_tokens: 384, stride: 128}\n"
                f"train: {{epochs: 1, batch: {o.batch}, lr: {o.lr!r}, weight_decay: 0, warmup: 10%, decay: linear, "
                f"clip: 1.0, seed: {o.seed}, evaluate: false}}\n"
                f"devices: {{count: 1, cores: {o.threads}, memory: 4GiB}}\n"
                "fault: {deadline: 10min}\n")  # it may run beside other work
    program, run = f"{o.build}/frostline", f"{o.out}/{name}"
    begun = time.time()
    subprocess.run([program, "run", job, "--run-dir", run] + settings, check=True, stdout=subprocess.DEVNULL)
    took = time.time() - begun
    found = subprocess.run([program, "evaluate", run, "--json"], check=True, capture_output=True, text=True).stdout
    metrics = json.loads(found)["metrics"]
    with open(f"{run}/steps.jsonl") as f:
        losses = [json.loads(line)["loss"] for line in f]
    tail = losses[-max(1, len(losses) // 10):]
    return 100 * metrics["em"], 100 * metrics["f1"], sum(tail) / len(tail), took


# ---- transformers ----

def read_windows(o, name):
    """(question, start, end, ids, types) of each window."""
    command = [f"{o.build}/bench/bench_squad", "--print", f"{o.out}/{name}.json", o.model]
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        question, start, end, *tokens = line.split()
        pairs = [t.split(":") for t in tokens]
        yield int(question), int(start), int(end), [int(i) for i, _ in pairs], [int(t) for _, t in pairs]


def batch_of(windows):
    import torch
    longest = max(len(w[3]) for w in windows)
    ids, types, mask = (torch.zeros(len(windows), longest, dtype=torch.long) for _ in range(3))
    for i, (_, _, _, tokens, kinds) in enumerate(windows):
        ids[i, :len(tokens)] = torch.tensor(tokens)
        types[i, :len(tokens)] = torch.tensor(kinds)
        mask[i, :len(tokens)] = 1
    return dict(input_ids=ids, token_type_ids=types, attention_mask=mask)


def train(o, model, windows):
    import torch
    from transformers import get_linear_schedule_with_warmup
    n_steps = (len(windows) + o.batch - 1) // o.batch
    optimizer = torch.optim.AdamW(model.parameters(), lr=o.lr, weight_decay=0)
    schedule = get_linear_schedule_with_warmup(optimizer, n_steps // 10, n_steps)
    random.Random(o.seed).shuffle(windows)
    losses = []
    model.train()
    for at in range(0, len(windows), o.batch):
        part = windows[at:at + o.batch]
        loss = model(**batch_of(part), start_positions=torch.tensor([w[1] for w in part]),
                     end_positions=torch.tensor([w[2] for w in part])).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    tail = losses[-max(1, len(losses) // 10):]
    return sum(tail) / len(tail)


def best_span(start, end, types):
    """As postprocess_qa_predictions of transformers: the best 20 starts and ends, at most 30 tokens."""
    import numpy as np
    first, last = types.index(1), len(types) - 2
    best = None
    for s in np.argsort(start)[-1:-21:-1]:
        for e in np.argsort(end)[-1:-21:-1]:
            if first <= s <= e <= last and e - s < 30 and (best is None or start[s] + end[e] > best[0]):
                best = (start[s] + end[e], int(s) - first, int(e) - first)
    return best


def evaluate(o, model, windows, questions):
    import torch
    from tokenizers import BertWordPieceTokenizer
    from make_squad_reference import f1_score, normalize
    tokenizer = BertWordPieceTokenizer(f"{o.model}/vocab.txt", lowercase=True)
    model.eval()
    best, offsets, exact, f1 = {}, {}, 0.0, 0.0
    order = sorted(range(len(windows)), key=lambda i: len(windows[i][3]))
    for at in range(0, len(order), 32):
        part = [windows[i] for i in order[at:at + 32]]
        with torch.no_grad():
            out = model(**batch_of(part))
        for i, (question, _, _, ids, types) in enumerate(part):
            span = best_span(out.start_logits[i, :len(ids)].numpy(), out.end_logits[i, :len(ids)].numpy(), types)
            if span is not None and (question not in best or span[0] > best[question][0]):
                best[question] = span + (ids[types.index(1):-1],)
    for question, (context, qa) in enumerate(questions):
        answer = "empty"
        if question in best:
            if context not in offsets:
                e = tokenizer.encode(context, add_special_tokens=False)
                offsets[context] = e.ids, e.offsets
            all_ids, places = offsets[context]
            _, s, e, part = best[question]
            shift = next(k for k in range(len(all_ids)) if all_ids[k:k + len(part)] == part)
            answer = context[places[shift + s][0]:places[shift + e][1]]
        exact += max(float(normalize(answer) == normalize(a["text"])) for a in qa["answers"])
        f1 += max(f1_score(answer, a["text"]) for a in qa["answers"])
    return 100 * exact / len(questions), 100 * f1 / len(questions)


def transformers_run(o, questions):
    import torch
    from transformers import AutoModelForQuestionAnswering
    torch.manual_seed(o.seed)
    torch.set_num_threads(o.threads)
    model = AutoModelForQuestionAnswering.from_pretrained(o.model)
    windows = list(read_windows(o, "train"))
    begun = time.time()
    loss = train(o, model, windows)
    took = time.time() - begun
    return evaluate(o, model, list(read_windows(o, "dev")), questions) + (loss, took)


def main():
    o = options()
    o.out = os.path.realpath(o.out)
    os.makedirs(o.out, exist_ok=True)
    take_questions(o.train, o.questions, o.without, f"{o.out}/train.json")
    questions = take_questions(o.dev, o.dev_questions, None, f"{o.out}/dev.json")
    print(f"{o.questions} training questions, {len(questions)} of the dev set, one epoch, batch {o.batch}, lr {o.lr}")
    print(f"{'':16} {'EM':>7} {'F1':>7} {'loss':>7} {'s':>7}   loss: mean of the last tenth", flush=True)
    rows = [("untrained", lambda: frostline(o, "untrained", ["--set", "train.lr=1e-30", "--set", "train.max_steps=1"])),
            ("frostline", lambda: frostline(o, "frostline", [])),
            ("transformers", lambda: transformers_run(o, questions))]
    for name, row in (r for r in rows if r[0] in o.rows):
        em, f1, loss, took = row()
        print(f"{name:16} {em:7.2f} {f1:7.2f} {loss:7.3f} {took:7.1f}", flush=True)


main()
