#!/usr/bin/env python3
"""Writes tests/reference/tokenizer/: small tokenizers, texts that are hard for one, and the ids, types
and spans that Hugging Face's tokenizers give for them.

    make_tokenizer_reference.py

Needs tokenizers 0.23.3 and transformers 5.23.0 (without torch). Not part of the product.

    bert       vocab.txt and tokenizer_config.json, as BertTokenizer reads them
    cased      tokenizer.json of a WordPiece with case and accents, and added tokens of every kind
    gpt2       vocab.json and merges.txt, as GPT2Tokenizer reads them
    roberta    tokenizer.json of a byte-level BPE with a prefix space, trimmed spans and added tokens
    texts.jsonl            a request a line: text, pair, max_tokens, cut
    NAME.expected.jsonl    what tokenizer NAME gives for each of them
"""
import json
import os
import random

import tokenizers
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

assert tokenizers.__version__ == "0.23.3"
from transformers import BertTokenizer, GPT2Tokenizer

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizer")
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CORPUS = """
A glacier moves slowly, and what it carries it leaves behind: stones, sand, the shape of a valley.
The frost line is the depth to which the ground freezes in winter; below it the soil stays unfrozen.
Workers freeze the lower layers first. They don't unfreeze them; we've measured that it isn't needed.
In 1984 the ice was 3,200 metres deep, in 2024 only 2,950: that's 7.8 percent less within 40 years.
She'll say: "I'm sure you're right!" He'd answer (quietly) that they'll see who's faster, won't they?
Freezing, frozen, freezes, froze; trained, training, trains, trainer; running, runs, runner, ran.
La façade du café était gelée à Noël; Überraschung: die Straße führt nach Zürich und Århus.
ΑΒΓΔ αβγδ ΟΔΥΣΣΕΥΣ και Ἀθῆναι; Москва и Санкт-Петербург зимой; 中文字符和汉字 かな カナ 한국어 조선.
int main(void) { return fl_main(argc, argv, fl_commands); } /* x += y * 2 - z % 3 */ a_b-c@d.org
""" * 3

# One thing each, which one rule or one version of Unicode decides.
HARD = [
    "", " ", "  ", "\t", "Hello, world!", "hello world", "HELLO WORLD", "don't we've they'll I'm he'd you're it's",
    "DON'T WE'VE IT'S", "'s 't 're 've 'm 'll 'd 'S '", " 's  's ''s", "''", "a'b'c'", "l'll'l", "'r 'v 'l 'e 'lk",
    "1234567890 1,234.5 ½ ² Ⅷ ৩ 𝟘", "a1b2c3 a 1 b", "x  y   z    ", "   x", "\n\nx\n y \n", "x \t \n \t y", "\r\nx\r",
    "a\u000bb a\u000cb a\u0085b a\u001cb", "a\u00a0b\u1680c\u2003d\u2028e\u2029f\u202fg\u205fh\u3000i",
    "a\u0000b\ufffdc\u0001d\u007fe\u0080f", "a\u00adb\u200bc\u200dd\u200ee\ufefff", "\ufeffstart",
    "\ue000 \uf8ff \U000f0000 \U0010fffd a\ue000b", "\ufdd0a\uffffb\U0001ffffc", "a\u0378b\u05ffc",
    "caf\u00e9 cafe\u0301 CAF\u00c9 \u00c5rhus A\u030arhus Stra\u00dfe \u1e9e", "\u0130stanbul I\u0307 \u0131 i\u0307",
    "\u039f\u0394\u03a5\u03a3\u03a3\u0395\u03a5\u03a3 \u03a3 \u03c3\u03c2 \u1f08\u03b8\u1fc6\u03bd\u03b1\u03b9 \u1f82\u1fb3",
    "\ufb01n \ufb04 \u01c4 \u01c5 \u1e9b\u0323 \u2126 \u212a \u212b", "\u0958\u0929 \u09cb \u0f73\u0f75\u0f81",
    "a\u0315\u0300\u05ae\u0062 a\u0327\u0301\u0323 \u0301x \u0345\u0301", "e\u0301\u0327\u08d4\u0301z q\u08d4\u0327 \u1df6\u0301a",
    "\u302e\ub098\u302f \U0001d165\U0001d16e\U0001d158\U0001d15e", "\ud55c\uad6d\uc5b4 \u1112\u1161\u11ab \uac00\uac01\ud7a3",
    "\u4e2d\u6587a\u5b57b \u3400\u4dbf\u4e00\u9fff\uf900\ufaff", "\u3041\u30a2\uff21\uff01\u3002\u3001",
    "\U00020000\U0002a6df\U0002a700\U0002b73f\U0002b740\U0002b81f", "a\U0002b820b a\U0002b91fb a\U0002b920b a\U0002ceafb a\U0002ceb0b",
    "a\U0002f800b a\U0002fa1fb \uf8ffa\u33ffb\ua000c\u4dc0d", "a\u2e52b a\u2e44b a\u2e2eb a\u166db a\U000111c9b a\u1734b",
    "a$b+c<d=e>f^g`h|i~j", "!\"#$%&'()*+,-./:;<=>?@[\\]^_{|}", "a\u2014b\u2026c\u201cd\u201de\u00a1f\u00bfg\u00a7h\u00b6i",
    "a\u20acb\u00a3c\u00d7d\u2192e\u2603f", "x\u037ey a\u1fefb \u2000\u2001x", "snow\u2744\ufe0f \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
    "\u0644\u0627 \u0627\u0644\u0639\u0631\u0628\u064a\u0629\u064b \u05e9\u05b8\u05dc\u05d5\u05b9\u05dd", "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 \u0928\u092e\u0938\u094d\u0924\u0947",
    "\ua7cb\ua7dc\u1c89\U00010d50\U00016ea0\ua7d4 \U00010400\U00010428 \u13a0\uab70", "\u0345\u1e9e\u01f0\u0390\u03b0",
    "freez" * 20, "freez" * 20 + "e", "freez" * 20 + "es", "\u00e9" * 100, "e\u0301" * 100, "\u00e9" * 101, "\uac00" * 33, "\uac00" * 34 + "\u1100",
    "z\u2603z", "##ing ##", "unfreezing unfrozen trainings", "a" * 300, "a" * 23 + " " + "b" * 24 + " " + "a" * 23,
    "\u0301" * 40, "!" * 60, " " * 50, "'s" * 30, "\n" * 30 + "a", "0" * 70, "\u4e2d" * 40,
    "[MASK] [mask] a[MASK]b [MASK][MASK] [CLS]x[SEP] [UNK] [MASK [[MASK]] [MASK\u0301]", "frost line [FROST] FrostLine frostline xfrostline",
    "<mask> a<mask>b  <mask>  c \t<mask>", "<s>x</s> <s> </s> <|endoftext|>x<|endoftext|> <|endoftext|", "ICE ice Ice iceberg an ice age\u00ef\u00e7\u00e9 \u0130ce",
    "alpha alphabet betaalpha alpha1 alpha\u0301 (alpha) \u03b1alpha alpha_ alpha-\u200dalpha", "left  <left> <left>x  <right>  x<right> \u3000<right>\u3000y",
]
POOL = ("abcdefgz ABCDEFZ '''sstmdrevl  \t\n0123456789.,;:!?()[]<>-_\u00e9\u00c9\u00fc\u00df\u0301\u0327\u0323\u08d4\u00a0\u3000\u2028"
        "\u4e2d\uac00\u3042\u0130\u03a3\u0416\u2603\u00bd\u2160\ufffd\u0000\u000b\u0085\u200d\ufeff\U0001f600\U0002b920\U0002b820\u2e52\u0378")
WORDS = ("the glacier freezing frozen don't 2024 [MASK] [mask] <mask> <s> </s> <|endoftext|> frost line ice Ice alpha <left> <right> "
         "caf\u00e9 Stra\u00dfe \u4e2d\u6587 \ud55c\uad6d").split()


def texts():
    draw = random.Random(15)
    lines = [{"text": text} for text in HARD]
    for i in range(120):
        lines.append({"text": "".join(draw.choice(POOL) for _ in range(draw.randint(1, 40)))})
    for i in range(60):
        parts = [draw.choice(WORDS) + draw.choice(["", " ", "  ", ",", "\n"]) for _ in range(draw.randint(1, 12))]
        lines.append({"text": "".join(parts)})
    for i in range(80):
        long, short = draw.randint(0, 30), draw.randint(0, 30)
        lines.append({"text": " ".join(draw.choice(WORDS) for _ in range(long)),
                      "pair": " ".join(draw.choice(WORDS) for _ in range(short)),
                      "max_tokens": draw.randint(4, 40), "cut": draw.choice(["longest_first", "only_first", "only_second"])})
    lines += [{"text": draw.choice(WORDS) * 9, "max_tokens": draw.randint(2, 9)} for _ in range(12)]
    return lines


def expect(tokenizer, line):
    """None where the tokenizer refuses the request."""
    backend = tokenizer
    try:
        if "max_tokens" in line:
            backend.enable_truncation(line["max_tokens"], strategy=line.get("cut", "longest_first"))
        else:
            backend.no_truncation()
        got = backend.encode(line["text"], line.get("pair"))
        return {"ids": got.ids, "types": got.type_ids, "spans": [list(span) for span in got.offsets]}
    except BaseException as error:  # a panic of Rust is no Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        return None


def save(name, rows):
    with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=True, separators=(",", ":")) + "\n")


def train_wordpiece(normalizer):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(CORPUS.split("\n"), trainers.WordPieceTrainer(
        vocab_size=420, special_tokens=SPECIALS, show_progress=False, initial_alphabet=list("abcdefghijklmnopqrstuvwxyz0123456789#")))
    return tokenizer


def train_bpe(prefix_space, specials):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    tokenizer.train_from_iterator(CORPUS.split("\n"), trainers.BpeTrainer(
        vocab_size=520, special_tokens=specials, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def make_bert():
    vocab = train_wordpiece(normalizers.BertNormalizer()).get_vocab()
    pieces = sorted(vocab, key=vocab.get)
    assert [vocab[piece] for piece in pieces] == list(range(len(pieces)))
    os.makedirs(os.path.join(FOLDER, "bert"), exist_ok=True)
    with open(os.path.join(FOLDER, "bert", "vocab.txt"), "w", encoding="utf-8") as file:
        file.write("".join(piece + "\n" for piece in pieces))
    with open(os.path.join(FOLDER, "bert", "tokenizer_config.json"), "w") as file:
        json.dump({"tokenizer_class": "BertTokenizer", "do_lower_case": True, "strip_accents": None,
                   "tokenize_chinese_chars": True, "model_max_length": 512}, file, indent=1)
    return BertTokenizer.from_pretrained(os.path.join(FOLDER, "bert"))._tokenizer


def make_cased():
    tokenizer = train_wordpiece(normalizers.BertNormalizer(lowercase=False))
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in SPECIALS])
    tokenizer.add_tokens([AddedToken("[FROST]", special=True, normalized=False), AddedToken("frost line"), AddedToken("ice", single_word=True),
                          AddedToken("alpha", single_word=True, normalized=False), AddedToken("<left>", lstrip=True),
                          AddedToken("<right>", rstrip=True, normalized=False), AddedToken("caf\u00e9"), AddedToken("frost")])
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", tokenizer.token_to_id("[SEP]")), ("[CLS]", tokenizer.token_to_id("[CLS]")))
    return keep(tokenizer, "cased")


def make_gpt2():
    folder = os.path.join(FOLDER, "gpt2")
    os.makedirs(folder, exist_ok=True)
    train_bpe(False, ["<|endoftext|>"]).model.save(folder)
    return GPT2Tokenizer.from_pretrained(folder)._tokenizer


def make_roberta():
    tokenizer = train_bpe(True, ["<s>", "<pad>", "</s>", "<unk>"])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=True)])
    tokenizer.add_tokens([AddedToken("frost line"), AddedToken("alpha", single_word=True), AddedToken("<left>", lstrip=True, rstrip=True)])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=True)
    return keep(tokenizer, "roberta")


def keep(tokenizer, name):
    os.makedirs(os.path.join(FOLDER, name), exist_ok=True)
    path = os.path.join(FOLDER, name, "tokenizer.json")
    tokenizer.save(path, pretty=False)
    return Tokenizer.from_file(path)


if __name__ == "__main__":
    requests = texts()
    save("texts.jsonl", requests)
    for name, make in (("bert", make_bert), ("cased", make_cased), ("gpt2", make_gpt2), ("roberta", make_roberta)):
        tokenizer = make()
        save(f"{name}.expected.jsonl", [expect(tokenizer, line) for line in requests])
