/* libFuzzer over files of questions: the first byte chooses whether the split trains, the limit of
 * a window and its stride, and whether the rest is packed; the rest is the file. */
#include "data/squad/answers.h"
#include "data/tokenizer/files/tokenizer_open.h"
#include "pack.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 1 << 16, TRAINS = 1, SHORT = 2, PACKED = 4, TOKENS = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static fl_tokenizer *open_tokenizer(void)
{
    fl_tokenizer *t = NULL;
    if (fl_tokenizer_open(FL_SOURCE_DIR "/tests/reference/tokenizer/bert", &t) != FL_OK) {
        abort();
    }
    return t;
}

/* Every window fits the limit, its targets lie in it, and its answer in its context. */
static void check_window(const fl_squad_split *split, const fl_token_frame *frame, int64_t i,
                         int64_t most)
{
    const fl_squad_window *w = &split->windows[i];
    int64_t length = fl__squad_window_length(split, frame, w);
    int32_t ids[2 * TOKENS];
    float logits[2 * TOKENS];
    if (length > most || w->target[0] < -1 || w->target[0] >= length || w->target[1] < -1 ||
        w->target[1] >= length) {
        abort();
    }
    fl__squad_window_write(split, frame, w, true, ids);
    for (int64_t k = 0; k < 2 * length; k++) {
        logits[k] = (float)(ids[k] * 7919 % 97);
    }
    const fl_squad_choice choice = fl_squad_choose(split, frame, i, logits);
    const fl_text text = fl_squad_choice_text(split, i, &choice);
    const fl_text context =
        fl__text_pool_get(&split->contexts, split->questions[w->question].context);
    if (choice.first >= 0 && (text.bytes < context.bytes ||
                              text.bytes + text.n_bytes > context.bytes + context.n_bytes)) {
        abort();
    }
}

static void check_split(const fl_squad_split *split, const fl_token_frame *frame, int64_t most)
{
    fl_squad_choice *choices = calloc((size_t)split->n_windows, sizeof *choices);
    fl_squad_sums sums;
    if (choices == NULL) {
        abort();
    }
    for (int64_t i = 0; i < split->n_windows; i++) {
        check_window(split, frame, i, most);
        choices[i] = (fl_squad_choice){.first = 0, .n = 1, .score = 1};
    }
    if (fl_squad_score_all(split, false, choices, &sums) != FL_OK ||
        sums.n_questions != (double)(split->ids.n - split->n_left_out) ||
        sums.exact > sums.n_questions || sums.f1 > sums.n_questions * 1.000001) {
        abort();
    }
    free(choices);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t packed[FILE_MAX];
    static fl_tokenizer *tokenizer;
    if (size < 1 || size > FILE_MAX / 2) {
        return 0;
    }
    tokenizer = tokenizer == NULL ? open_tokenizer() : tokenizer;
    const uint8_t *file = data + 1;
    size_t n = size - 1;
    if ((data[0] & PACKED) != 0) {
        n = pack(file, n, packed, sizeof packed);
        file = packed;
    }
    const fl_squad_cut cut = {.tokenizer = tokenizer,
                              .max_tokens = (data[0] & SHORT) != 0 ? 16 : TOKENS,
                              .stride = (data[0] & SHORT) != 0 ? 3 : 20,
                              .trains = (data[0] & TRAINS) != 0};
    fl_content content;
    fl_squad_file questions;
    fl_squad_split split;
    fl_token_frame frame;
    if (fl_tokenizer_pair_frame(tokenizer, &frame) != FL_OK) {
        abort();
    }
    const char *name = (data[0] & PACKED) != 0 ? "a.json.gz" : "a.json";
    if (fl__content_copy(name, file, n, FL_SQUAD_FILE_BYTES_MAX, &content) != FL_OK) {
        return 0;
    }
    if (fl__squad_file_read(&content, &questions) == FL_OK) {
        if (fl__squad_windows_cut(name, &questions, &cut, &split) == FL_OK) {
            check_split(&split, &frame, cut.max_tokens);
            fl__squad_split_fini(&split);
        }
        fl__squad_file_fini(&questions);
    }
    fl__content_fini(&content);
    return 0;
}
