/* Files of tokenizers that are wrong: each is refused with the file, the place, what was found and
 * what is allowed. And files that are right in an unusual way. */
#include "data/tokenizer/files/tokenizer_open.h"
#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[FOLDER_SIZE];

static int set_up(void **state)
{
    (void)state;
    make_folder(folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return remove_folder(folder);
}

static void save_bytes(const char *name, const char *bytes, size_t n)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void save(const char *name, const char *text)
{
    if (text != NULL) {
        save_bytes(name, text, strlen(text));
    }
}

/* Opening fails with this status and exactly this message; "DIR" stands for the folder. */
static void expect_refusal(fl_status status, const char *message)
{
    fl_tokenizer *t = NULL;
    char expected[1024] = "";
    const char *at = strstr(message, "DIR");
    if (at != NULL) {
        snprintf(expected, sizeof expected, "%.*s%s%s", (int)(at - message), message, folder,
                 at + 3);
    } else {
        snprintf(expected, sizeof expected, "%s", message);
    }
    assert_int_equal(fl_tokenizer_open(folder, &t), status);
    assert_string_equal(fl_errmsg(), expected);
    assert_null(t);
}

static void empty_folder(void)
{
    assert_int_equal(remove_folder(folder), 0);
    assert_int_equal(mkdir(folder, 0700), 0);
}

/* ---- vocab.txt, vocab.json, merges.txt, tokenizer_config.json ---- */

#define BERT "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nice\n##s\n"
#define GPT2 "{\"a\":0,\"b\":1,\"ab\":2,\"<|endoftext|>\":3}"

typedef struct bad_folder {
    const char *vocab_txt, *vocab_json, *merges, *config;
    fl_status status;
    const char *message;
} bad_folder;

static const bad_folder bad_folders[] = {
    {NULL, NULL, NULL, NULL, FL_EIO,
     "DIR: no tokenizer there: neither tokenizer.json, nor vocab.txt, nor vocab.json with "
     "merges.txt"},
    {NULL, GPT2, NULL, NULL, FL_EIO,
     "DIR: no tokenizer there: neither tokenizer.json, nor vocab.txt, nor vocab.json with "
     "merges.txt"},
    {"", NULL, NULL, NULL, FL_EFORMAT, "DIR/vocab.txt: the file is empty"},
    {"ice\n[CLS]\n[SEP]\n", NULL, NULL, NULL, FL_EFORMAT,
     "DIR/tokenizer_config.json: unk_token is \"[UNK]\", which the vocabulary lacks"},
    {"[UNK]\n[SEP]\n", NULL, NULL, NULL, FL_EFORMAT,
     "DIR/tokenizer_config.json: cls_token is \"[CLS]\", which the vocabulary lacks"},
    {"[UNK]\n[CLS]\n", NULL, NULL, NULL, FL_EFORMAT,
     "DIR/tokenizer_config.json: sep_token is \"[SEP]\", which the vocabulary lacks"},
    {BERT "caf\xE9\n", NULL, NULL, NULL, FL_EFORMAT,
     "DIR/vocab.txt: line 8, byte 4: 0xE9 is no UTF-8"},
    {BERT, NULL, NULL, "", FL_EFORMAT,
     "DIR/tokenizer_config.json: line 1, column 0: no valid JSON: '[' or '{' expected near end of "
     "file"},
    {BERT, NULL, NULL, "[]", FL_EFORMAT, "DIR/tokenizer_config.json: no JSON object"},
    {BERT, NULL, NULL, "{\"do_lower_case\": 1}", FL_EFORMAT,
     "DIR/tokenizer_config.json: do_lower_case: found 1, allowed: true or false"},
    {BERT, NULL, NULL, "{\"strip_accents\": \"no\"}", FL_EFORMAT,
     "DIR/tokenizer_config.json: strip_accents: found \"no\", allowed: true or false"},
    {BERT, NULL, NULL, "{\"tokenize_chinese_chars\": []}", FL_EFORMAT,
     "DIR/tokenizer_config.json: tokenize_chinese_chars: found a list, allowed: true or false"},
    {BERT, NULL, NULL, "{\"cls_token\": 5}", FL_EFORMAT,
     "DIR/tokenizer_config.json: cls_token: found 5, allowed: a text, or an object with a content"},
    {BERT, NULL, NULL, "{\"unk_token\": \"<unk>\"}", FL_EFORMAT,
     "DIR/tokenizer_config.json: unk_token is \"<unk>\", which the vocabulary lacks"},
    {BERT, NULL, NULL, "{\"added_tokens_decoder\": [1]}", FL_EFORMAT,
     "DIR/tokenizer_config.json: added_tokens_decoder: found a list, allowed: an object of ids and "
     "tokens"},
    {BERT, NULL, NULL, "{\"added_tokens_decoder\": {\"7\": {\"lstrip\": 3}}}", FL_EFORMAT,
     "DIR/tokenizer_config.json: added_tokens_decoder.7.lstrip: found 3, allowed: true or false"},
    {NULL, "", "", NULL, FL_EFORMAT,
     "DIR/vocab.json: line 1, column 0: no valid JSON: '[' or '{' expected near end of file"},
    {NULL, "{\"a\":0,\n\"a\":1}", "", NULL, FL_EFORMAT,
     "DIR/vocab.json: line 2, column 3: no valid JSON: duplicate object key near '\"a\"'"},
    {NULL, "[\"a\"]", "", NULL, FL_EFORMAT, "DIR/vocab.json: no JSON object"},
    {NULL, "{}", "", NULL, FL_EFORMAT, "DIR/vocab.json: the vocabulary has no piece"},
    {NULL, "{\"a\":-1}", "", NULL, FL_EFORMAT,
     "DIR/vocab.json: the vocabulary: \"a\": id -1, allowed: 0 to 4194303"},
    {NULL, "{\"a\":4194304}", "", NULL, FL_EFORMAT,
     "DIR/vocab.json: the vocabulary: \"a\": id 4194304, allowed: 0 to 4194303"},
    {NULL, "{\"a\":99999999999999999999}", "", NULL, FL_EFORMAT,
     "DIR/vocab.json: the vocabulary.a: found 1e+20, allowed: an integer from 0 up"},
    {NULL, "{\"a\":1.5}", "", NULL, FL_EFORMAT,
     "DIR/vocab.json: the vocabulary.a: found 1.5, allowed: an integer from 0 up"},
    {NULL, "{\"a\":0,\"b\":0}", "", NULL, FL_EFORMAT,
     "DIR/vocab.json: the vocabulary: \"b\": id 0 is given to \"a\" and to \"b\""},
    {NULL, GPT2, "#version: 0.2\na\n", NULL, FL_EFORMAT,
     "DIR/merges.txt: line 2: \"a\", allowed: two pieces with one space between them"},
    {NULL, GPT2, "#version: 0.2\na b\n\n", NULL, FL_EFORMAT,
     "DIR/merges.txt: line 3: \"\", allowed: two pieces with one space between them"},
    {NULL, GPT2, "a b c\n", NULL, FL_EFORMAT,
     "DIR/merges.txt: line 1: \"a b c\", allowed: two pieces with one space between them"},
    {NULL, GPT2, "a c\n", NULL, FL_EFORMAT,
     "DIR/merges.txt: line 1: \"c\" is no piece of the vocabulary"},
    {NULL, GPT2, "a  b\n", NULL, FL_EFORMAT,
     "DIR/merges.txt: line 1: \"a  b\", allowed: two pieces with one space between them"},
    {NULL, GPT2, "b a\n", NULL, FL_EFORMAT,
     "DIR/merges.txt: line 1: \"b\" and \"a\" make no piece of the vocabulary"},
    {NULL, GPT2, "a \xFF\n", NULL, FL_EFORMAT, "DIR/merges.txt: line 1, byte 3: 0xFF is no UTF-8"},
    {NULL, GPT2, "a b\n", "{\"add_prefix_space\": 0}", FL_EFORMAT,
     "DIR/tokenizer_config.json: add_prefix_space: found 0, allowed: true or false"},
    {NULL, GPT2, "a b\n", "{\"add_bos_token\": true, \"bos_token\": {\"content\": 3}}", FL_EFORMAT,
     "DIR/tokenizer_config.json: bos_token: found an object, allowed: a text, or an object with a "
     "content"},
};

static void test_tokenizer_files__names_what_is_wrong_with_a_folder(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_folders / sizeof *bad_folders; i++) {
        const bad_folder *b = &bad_folders[i];
        empty_folder();
        save("vocab.txt", b->vocab_txt);
        save("vocab.json", b->vocab_json);
        save("merges.txt", b->merges);
        save("tokenizer_config.json", b->config);
        expect_refusal(b->status, b->message);
    }
}

/* ---- tokenizer.json ---- */

#define WORDPIECE                                                                                  \
    "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"a\":1}}"
#define BEFORE "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}"
#define BPE "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"
#define BYTES "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"
#define BPE_WITH(fields)                                                                           \
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2}," fields "}," BYTES "}"

static const struct {
    const char *json;
    fl_status status;
    const char *message; /* behind "DIR/tokenizer.json: " */
} bad_json[] = {
    {"{", FL_EFORMAT, "line 1, column 1: no valid JSON: string or '}' expected near end of file"},
    {"3", FL_EFORMAT, "line 1, column 1: no valid JSON: '[' or '{' expected near '3'"},
    {"{}", FL_EFORMAT, "model: found nothing, allowed: an object"},
    {"{\"version\":\"2.0\"}", FL_EFORMAT, "version: found \"2.0\", allowed: \"1.0\""},
    {"{\"version\":2}", FL_EFORMAT, "version: found 2, allowed: a text"},
    {"{\"model\":[]}", FL_EFORMAT, "model: found a list, allowed: an object with a type"},
    {"{\"model\":{\"type\":\"Unigram\"}}", FL_ENOTSUP,
     "model.type: found \"Unigram\", allowed: WordPiece or BPE"},
    {"{\"model\":{\"type\":7}}", FL_EFORMAT, "model.type: found 7, allowed: a text"},
    {"{\"model\":{\"type\":\"WordPiece\"}}", FL_EFORMAT,
     "model.vocab: found nothing, allowed: an object of pieces and their ids"},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}}", FL_EFORMAT,
     "model.unk_token: found \"[UNK]\", allowed: a piece of model.vocab"},
    {"{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"a\",\"vocab\":{\"a\":0},"
     "\"max_input_chars_per_word\":-1}}",
     FL_EFORMAT, "model.max_input_chars_per_word: found -1, allowed: an integer from 0 up"},
    {"{" WORDPIECE "}", FL_ENOTSUP,
     "pre_tokenizer.type: found \"nothing\", allowed: BertPreTokenizer with a WordPiece model"},
    {"{" WORDPIECE ",\"pre_tokenizer\":{\"type\":\"Whitespace\"}}", FL_ENOTSUP,
     "pre_tokenizer.type: found \"Whitespace\", allowed: BertPreTokenizer with a WordPiece model"},
    {"{" WORDPIECE "," BEFORE ",\"normalizer\":{\"type\":\"NFC\"}}", FL_ENOTSUP,
     "normalizer.type: found \"NFC\", allowed: BertNormalizer with a WordPiece model"},
    {"{" WORDPIECE "," BEFORE ",\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":\"x\"}}",
     FL_EFORMAT, "normalizer.lowercase: found \"x\", allowed: true or false"},
    {"{" WORDPIECE "," BEFORE ",\"added_tokens\":{}}", FL_EFORMAT,
     "added_tokens: found an object, allowed: a list"},
    {"{" WORDPIECE "," BEFORE ",\"added_tokens\":[{\"content\":\"x\"},3]}", FL_EFORMAT,
     "added_tokens[1]: found 3, allowed: an object"},
    {"{" WORDPIECE "," BEFORE ",\"added_tokens\":[{\"id\":3}]}", FL_EFORMAT,
     "added_tokens[0].content: found nothing, allowed: a text"},
    {"{" WORDPIECE "," BEFORE ",\"post_processor\":\"x\"}", FL_EFORMAT,
     "post_processor: found \"x\", allowed: an object with a type"},
    {"{" WORDPIECE "," BEFORE ",\"post_processor\":{\"type\":\"Other\"}}", FL_ENOTSUP,
     "post_processor.type: found \"Other\", allowed: TemplateProcessing, BertProcessing, "
     "RobertaProcessing, ByteLevel, or a Sequence of these"},
    {"{" WORDPIECE "," BEFORE
     ",\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"u\",0]}}",
     FL_EFORMAT, "post_processor.cls: found nothing, allowed: a list of a text and its id"},
    {"{" WORDPIECE "," BEFORE
     ",\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"u\",0],\"cls\":[\"x\",2]}}",
     FL_EFORMAT, "post_processor: found 2, allowed: an id from 0 to 1"},
    {"{" WORDPIECE "," BEFORE ",\"post_processor\":{\"type\":\"TemplateProcessing\"}}", FL_EFORMAT,
     "post_processor.single: found nothing, allowed: a list of items"},
    {"{" WORDPIECE "," BEFORE
     ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"x\":1}]}}",
     FL_EFORMAT,
     "post_processor.single[0]: found an object, allowed: a SpecialToken or a Sequence with id and "
     "type_id"},
    {"{" WORDPIECE "," BEFORE ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
     "\"SpecialToken\":{\"id\":\"[CLS]\",\"type_id\":0}}]}}",
     FL_EFORMAT, "post_processor.single[0]: \"[CLS]\" has no ids in post_processor.special_tokens"},
    {"{" WORDPIECE "," BEFORE ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
     "\"SpecialToken\":{\"id\":\"c\"}}],\"special_tokens\":{\"c\":{\"ids\":[\"1\"]}}}}",
     FL_EFORMAT, "post_processor.single[0]: found \"1\", allowed: an id from 0 to 1"},
    {"{" WORDPIECE "," BEFORE ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
     "\"Sequence\":{\"id\":\"C\"}}]}}",
     FL_EFORMAT, "post_processor.single[0].Sequence.id: found \"C\", allowed: \"A\" or \"B\""},
    {"{" BPE "}", FL_ENOTSUP,
     "pre_tokenizer.type: found \"nothing\", allowed: ByteLevel with a BPE model"},
    {"{" BPE "," BYTES ",\"normalizer\":{\"type\":\"NFC\"}}", FL_ENOTSUP,
     "normalizer.type: found \"NFC\", allowed: null with a BPE model"},
    {"{" BPE ",\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"use_regex\":false}}", FL_ENOTSUP,
     "pre_tokenizer.use_regex: found false, allowed: true"},
    {"{" WORDPIECE "," BEFORE ",\"normalizer\":{}}", FL_ENOTSUP,
     "normalizer.type: found \"nothing\", allowed: BertNormalizer with a WordPiece model"},
    {"{" BPE "," BYTES ",\"normalizer\":{}}", FL_ENOTSUP,
     "normalizer.type: found \"nothing\", allowed: null with a BPE model"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":3},\"merges\":[]}," BYTES
     ",\"added_tokens\":[{\"id\":1,\"content\":\"b\"},{\"id\":2,\"content\":\"x\"}]}",
     FL_EFORMAT,
     "added_tokens[1].id: found 2, allowed: 4: added tokens are numbered behind model.vocab"},
    {BPE_WITH("\"x\":0"), FL_EFORMAT, "model.merges: found nothing, allowed: a list of merges"},
    {BPE_WITH("\"merges\":[\"a b\",\"b\"]"), FL_EFORMAT,
     "model.merges[1]: \"b\", allowed: two pieces with one space between them"},
    {BPE_WITH("\"merges\":[[\"a\",\"b\",\"c\"]]"), FL_EFORMAT,
     "model.merges[0]: allowed: a text \"left right\", or a list of two texts"},
    {BPE_WITH("\"merges\":[[\"a\",\"c\"]]"), FL_EFORMAT,
     "model.merges[0]: \"c\" is no piece of the vocabulary"},
    {BPE_WITH("\"merges\":[],\"dropout\":0.1"), FL_EFORMAT,
     "model.dropout: found 0.1, allowed: null"},
    {BPE_WITH("\"merges\":[],\"end_of_word_suffix\":\"</w>\""), FL_EFORMAT,
     "model.end_of_word_suffix: found \"</w>\", allowed: \"\", as byte-level BPE has it"},
    {BPE_WITH("\"merges\":[],\"continuing_subword_prefix\":\"##\""), FL_EFORMAT,
     "model.continuing_subword_prefix: found \"##\", allowed: \"\", as byte-level BPE has it"},
    {BPE_WITH("\"merges\":[],\"byte_fallback\":true"), FL_EFORMAT,
     "model.byte_fallback: found true, allowed: false"},
    {BPE_WITH("\"merges\":[],\"unk_token\":\"x\""), FL_EFORMAT,
     "model.unk_token: found \"x\", allowed: a piece of model.vocab"},
};

static void test_tokenizer_files__names_what_is_wrong_with_tokenizer_json(void **state)
{
    (void)state;
    char message[1024];
    for (size_t i = 0; i < sizeof bad_json / sizeof *bad_json; i++) {
        save("tokenizer.json", bad_json[i].json);
        snprintf(message, sizeof message, "DIR/tokenizer.json: %s", bad_json[i].message);
        expect_refusal(bad_json[i].status, message);
    }
}

static void test_tokenizer_files__refuses_what_is_no_file(void **state)
{
    (void)state;
    char path[256];
    snprintf(path, sizeof path, "%s/vocab.txt", folder);
    empty_folder();
    assert_int_equal(mkdir(path, 0700), 0);
    expect_refusal(FL_EIO, "DIR/vocab.txt is no regular file");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_refusal(FL_EIO, "DIR/vocab.txt is no regular file");
    assert_int_equal(unlink(path), 0);
    save_bytes("vocab.txt", "[UNK]\n[CLS]\n[SEP]\na\0b\n", 22);
    expect_refusal(FL_EFORMAT, "DIR/vocab.txt: line 4: a zero byte");
    save("vocab.txt", BERT);
    save("added_tokens.json", "{}");
    expect_refusal(FL_ENOTSUP, "DIR/added_tokens.json is not read: save the tokenizer with "
                               "transformers 4 or later, which writes tokenizer.json");
}

/* ---- unusual, but right ---- */

static void expect_ids(const char *text, const char *expected)
{
    fl_tokenizer *t = NULL;
    fl_token_scratch *s = NULL;
    int32_t ids[64];
    char got[512] = "";
    fl_token_request request = {.text = {text, strlen(text)}, .special = true};
    fl_tokens tokens = {.ids = ids, .capacity = 64};
    assert_int_equal(fl_tokenizer_open(folder, &t), FL_OK);
    assert_int_equal(fl_token_scratch_create(t, &s), FL_OK);
    assert_int_equal(fl_tokenizer_encode(t, s, &request, &tokens), FL_OK);
    for (int64_t i = 0; i < tokens.n; i++) {
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d", i == 0 ? "" : " ", ids[i]);
    }
    assert_string_equal(got, expected);
    fl_token_scratch_destroy(&s);
    fl_tokenizer_close(&t);
}

/* Lines end in CR LF or in nothing, have space at their end, are empty, or come twice: the last one
 * counts. */
static void test_tokenizer_files__reads_vocab_txt_line_by_line(void **state)
{
    (void)state;
    empty_folder();
    save("vocab.txt", "[PAD]\r\n[UNK]\r\n[CLS]  \n[SEP]\n\nice\n##s\nice\n\xE3\x80\x80\nsnow");
    expect_ids("ices snow x", "2 7 6 9 1 3");
}

/* What tokenizer_config.json says counts more than tokenizer.json. */
static void test_tokenizer_files__lets_the_config_override(void **state)
{
    (void)state;
    empty_folder();
    save("tokenizer.json",
         "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"continuing_subword_prefix\":\"##"
         "\","
         "\"max_input_chars_per_word\":5,\"vocab\":{\"u\":0,\"a\":1,\"A\":2,\"##a\":3,\"\xC3\xA4\":"
         "4}},"
         "\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":true}," BEFORE "}");
    expect_ids("A aa aaaaa aaaaaa \xC3\xA4", "1 1 3 1 3 3 3 3 0 1");
    save("tokenizer_config.json", "{\"do_lower_case\": false}");
    expect_ids("A aa \xC3\xA4", "2 1 3 4");
    save("tokenizer_config.json", "{\"do_lower_case\": false, \"strip_accents\": true}");
    expect_ids("A aa \xC3\xA4", "2 1 3 1");
    save("tokenizer_config.json", "{\"strip_accents\": false}");
    expect_ids("A \xC3\x84", "1 4");
    /* as transformers writes it for a tokenizer without a limit */
    save("tokenizer_config.json",
         "{\"strip_accents\": false, \"model_max_length\": 1000000000000000019884624838656}");
    expect_ids("A \xC3\x84", "1 4");
}

static void test_tokenizer_files__leaves_out_bytes_that_the_vocabulary_lacks(void **state)
{
    (void)state;
    empty_folder();
    save("vocab.json", GPT2);
    save("merges.txt", "#version: 0.2\na b\n");
    expect_ids("ab.ab<|endoftext|>ba", "2 2 3 1 0");
    save("tokenizer_config.json", "{\"add_bos_token\": true, \"add_eos_token\": true}");
    expect_ids("ab", "3 2 3");
    empty_folder();
    save("tokenizer.json", BPE_WITH("\"merges\":[],\"unk_token\":\"ab\",\"ignore_merges\":true"));
    expect_ids("ab..a", "2 2 2 0");
    save("tokenizer.json", BPE_WITH("\"merges\":[],\"unk_token\":\"ab\",\"fuse_unk\":true"));
    expect_ids("a..", "0 2");
    expect_ids("...", "2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokenizer_files__names_what_is_wrong_with_a_folder),
        cmocka_unit_test(test_tokenizer_files__names_what_is_wrong_with_tokenizer_json),
        cmocka_unit_test(test_tokenizer_files__refuses_what_is_no_file),
        cmocka_unit_test(test_tokenizer_files__reads_vocab_txt_line_by_line),
        cmocka_unit_test(test_tokenizer_files__lets_the_config_override),
        cmocka_unit_test(test_tokenizer_files__leaves_out_bytes_that_the_vocabulary_lacks),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
