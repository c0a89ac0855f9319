/* Windows: a question and a part of its context that fits beside it, as the model reads them.
 *
 *     frame | question | frame | context[first .. first + n) | frame
 *
 * The next window begins max_tokens less the question, the frame and the stride further, so that
 * `stride` tokens of the context are in both. The tokens of a context are kept once, and a window
 * is put together when it is read. */
#ifndef FL_DATA_SQUAD_WINDOWS_H
#define FL_DATA_SQUAD_WINDOWS_H

#include "data/squad/squad_file.h"
#include "data/tokens/encode.h"

#include <stdbool.h>

/* target: the rows, within the sample, of the answer's first and last token; 0, the first token,
 * where the window has no answer; -1 where nothing is known of it. */
typedef struct fl_squad_window {
    int32_t question, first, n;
    int32_t target[2];
} fl_squad_window;

/* One file as windows, and what their answers are scored by. A struct of zeros holds nothing. */
typedef struct fl_squad_split {
    fl_text_pool contexts, ids, answers;
    fl_squad_question *questions;     /* [ids.n] */
    fl_token_samples context_tokens;  /* with spans, without types */
    fl_token_samples question_tokens; /* ids alone */
    fl_squad_window *windows;         /* [n_windows], those of a question one after another */
    int64_t n_windows, n_left_out;    /* questions that have no window */
} fl_squad_split;

void fl__squad_split_fini(fl_squad_split *split);

/* The answers of a question are first .. end - 1. */
void fl__squad_answers_of(const fl_squad_split *split, int64_t question, int64_t *first,
                          int64_t *end);

/* The tokens of a window; where those of the context begin in it. */
int64_t fl__squad_window_length(const fl_squad_split *split, const fl_token_frame *frame,
                                const fl_squad_window *window);
int64_t fl__squad_window_prefix(const fl_squad_split *split, const fl_token_frame *frame,
                                const fl_squad_window *window);

/* Write ids [length], or [length, 2] of ids and types. */
void fl__squad_window_write(const fl_squad_split *split, const fl_token_frame *frame,
                            const fl_squad_window *window, bool types, int32_t *out);

typedef struct fl_squad_cut {
    const fl_tokenizer *tokenizer;
    int64_t max_tokens, stride;
    bool trains; /* a question whose answer does not stand in its place is left out */
} fl_squad_cut;

/* Tokenize the file and cut its windows. What the split keeps is moved out of `file`.
 * Returns FL_EFORMAT for a context without a token, FL_EINVAL for data.max_tokens or data.stride
 * that do not fit a question, FL_ENOTSUP for a tokenizer without pairs, FL_ENOMEM */
fl_status fl__squad_windows_cut(const char *path, fl_squad_file *file, const fl_squad_cut *cut,
                                fl_squad_split *out) FL_MUST_CHECK;

#endif
