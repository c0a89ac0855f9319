/* How fast text becomes token ids, on one thread.
 *
 *   bench_tokenize DIR TEXT [repetitions [spans]]      (the tokenizer's folder; 5)
 *
 * Encodes each line of the file TEXT, which is in memory. Prints MB/s of the first pass, with an
 * empty cache of words, and of the best of the others; and millions of tokens a second of that one.
 * With "spans", each token's place in the text is computed, too. */
#include "data/tokenizer/files/tokenizer_open.h"
#include "device/system/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(fl_status status)
{
    if (status != FL_OK) {
        fprintf(stderr, "bench_tokenize: %s: %s\n", fl_status_text(status), fl_errmsg());
        exit(1);
    }
}

static char *load_text(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    long size = file == NULL || fseek(file, 0, SEEK_END) != 0 ? -1 : ftell(file);
    char *text = size < 0 ? NULL : malloc((size_t)size + 1);
    if (text == NULL || fseek(file, 0, SEEK_SET) != 0 ||
        fread(text, 1, (size_t)size, file) != (size_t)size) {
        fprintf(stderr, "bench_tokenize: cannot read %s\n", path);
        exit(1);
    }
    fclose(file);
    *n = (size_t)size;
    return text;
}

/* Tokens of all lines. */
static int64_t encode_lines(const fl_tokenizer *t, fl_token_scratch *s, const char *text, size_t n,
                            fl_tokens *tokens)
{
    int64_t n_tokens = 0;
    for (size_t at = 0, size; at < n; at += size + 1) {
        const char *end = memchr(text + at, '\n', n - at);
        size = end == NULL ? n - at : (size_t)(end - text) - at;
        fl_token_request request = {.text = {text + at, size}, .special = true};
        must(fl_tokenizer_encode(t, s, &request, tokens));
        n_tokens += tokens->n;
    }
    return n_tokens;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: bench_tokenize DIR TEXT [repetitions [spans]]\n");
        return 2;
    }
    int repetitions = argc > 3 ? atoi(argv[3]) : 5;
    bool with_spans = argc > 4 && strcmp(argv[4], "spans") == 0;
    fl_tokenizer *t = NULL;
    fl_token_scratch *s = NULL;
    size_t n;
    char *text = load_text(argv[2], &n);
    must(fl_tokenizer_open(argv[1], &t));
    must(fl_token_scratch_create(t, &s));
    fl_tokens tokens = {.capacity = fl_tokenizer_capacity(t, n)};
    tokens.ids = malloc((size_t)tokens.capacity * sizeof *tokens.ids);
    tokens.spans = with_spans ? malloc((size_t)tokens.capacity * sizeof *tokens.spans) : NULL;
    double first_us = 0, best_us = 1e18;
    int64_t n_tokens = 0;
    for (int i = 0; i <= repetitions; i++) {
        int64_t begin_us = fl_now_us();
        n_tokens = encode_lines(t, s, text, n, &tokens);
        double us = (double)(fl_now_us() - begin_us);
        first_us = i == 0 ? us : first_us;
        best_us = i > 0 && us < best_us ? us : best_us;
    }
    printf("%.1f %.1f %.1f\n", (double)n / first_us, (double)n / best_us,
           (double)n_tokens / best_us);
    free(tokens.ids);
    free(tokens.spans);
    free(text);
    fl_token_scratch_destroy(&s);
    fl_tokenizer_close(&t);
    return 0;
}
