/* libFuzzer over tokenizers: their files, and texts. The first byte chooses which files there are;
 * the rest is their content and two texts, with the byte 0x1E (a record separator) between them.
 * Whatever opens must encode, the same with spans as without (from the cache of words), within
 * bounds. */
#include "parts.h"

enum { INPUT_MAX = 1 << 16, PARTS_MAX = 5 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[FOLDER_ROOM];

static const char *const names[3][2] = {
    {"vocab.txt", "tokenizer_config.json"},
    {"vocab.json", "merges.txt"},
    {"tokenizer.json", "tokenizer_config.json"},
};

static void remove_files(void)
{
    for (int i = 0; i < 6; i++) {
        save_part(folder, names[i / 2][i % 2], (fl_text){0});
    }
}

static void remove_all(void)
{
    remove_files();
    rmdir(folder);
}

static void check_tokens(const fl_tokenizer *t, const fl_tokens *got, size_t n_bytes)
{
    require(got->n <= got->capacity);
    for (int64_t i = 0; i < got->n; i++) {
        require(got->ids[i] >= 0 && got->ids[i] < fl_tokenizer_n_ids(t));
        require(got->spans[i].begin >= 0 && got->spans[i].begin <= got->spans[i].end);
        require((size_t)got->spans[i].end <= n_bytes);
    }
}

static void check_texts(const fl_tokenizer *t, fl_text text, fl_text pair)
{
    fl_token_scratch *s = NULL;
    fl_token_request request = {.text = text, .pair = pair, .special = true};
    int64_t capacity = fl_tokenizer_capacity(t, text.n_bytes + pair.n_bytes);
    fl_tokens with = {.capacity = capacity}, without = {.capacity = capacity};
    with.ids = malloc((size_t)capacity * sizeof *with.ids);
    without.ids = malloc((size_t)capacity * sizeof *without.ids);
    with.spans = malloc((size_t)capacity * sizeof *with.spans);
    require(fl_token_scratch_create(t, &s) == FL_OK);
    fl_status status = fl_tokenizer_encode(t, s, &request, &with);
    require(status == FL_OK || status == FL_EFORMAT || status == FL_EINVAL);
    for (int i = 0; i < 2 && status == FL_OK; i++) {
        require(fl_tokenizer_encode(t, s, &request, &without) == FL_OK);
        require(with.n == without.n);
        require(memcmp(with.ids, without.ids, (size_t)with.n * sizeof *with.ids) == 0);
    }
    if (status == FL_OK) {
        check_tokens(t, &with, text.n_bytes + pair.n_bytes);
    }
    fl_token_scratch_destroy(&s);
    free(with.ids);
    free(without.ids);
    free(with.spans);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int n_runs;
    fl_text parts[PARTS_MAX];
    fl_tokenizer *t = NULL;
    if (size < 1 || size > INPUT_MAX) {
        return 0;
    }
    if (n_runs++ == 0) {
        make_part_folder("fuzz_tokenizer", folder);
        atexit(remove_all);
    }
    split_parts(data + 1, size - 1, parts, PARTS_MAX);
    remove_files();
    save_part(folder, names[data[0] % 3][0], parts[0]);
    save_part(folder, names[data[0] % 3][1], parts[1]);
    if (fl_tokenizer_open(folder, &t) == FL_OK) {
        check_texts(t, parts[2].bytes == NULL ? (fl_text){"", 0} : parts[2], parts[3]);
    }
    fl_tokenizer_close(&t);
    return 0;
}
