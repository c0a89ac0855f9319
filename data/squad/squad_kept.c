/* The parts of the file: counts | the arrays of the training split | those of the test split. */
#include "data/squad/squad_kept.h"

#include <string.h>

enum { N_SPLITS = 2, N_ARRAYS = 13, N_PARTS = 1 + N_SPLITS * N_ARRAYS };
_Static_assert((int)N_PARTS <= (int)FL_KEPT_PARTS_MAX, "they fit the header");

typedef struct split_counts {
    int64_t n_contexts, n_questions, n_answers, n_windows, n_left_out;
    int64_t context_bytes, id_bytes, answer_bytes, context_tokens, question_tokens;
} split_counts;

static size_t begins_of(int64_t n)
{
    return n == 0 ? 0 : (size_t)(n + 1) * sizeof(int64_t);
}

/* The same for reading and writing. */
static void list_arrays(const split_counts *c, fl_squad_split *s, fl_kept_array out[N_ARRAYS])
{
    const size_t contexts = begins_of(c->n_contexts), questions = begins_of(c->n_questions);
    const size_t n_tokens = (size_t)c->context_tokens;
    const fl_kept_array arrays[N_ARRAYS] = {
        {(void **)&s->contexts.begin, contexts},
        {(void **)&s->contexts.bytes, (size_t)c->context_bytes},
        {(void **)&s->ids.begin, questions},
        {(void **)&s->ids.bytes, (size_t)c->id_bytes},
        {(void **)&s->answers.begin, begins_of(c->n_answers)},
        {(void **)&s->answers.bytes, (size_t)c->answer_bytes},
        {(void **)&s->questions, (size_t)c->n_questions * sizeof *s->questions},
        {(void **)&s->context_tokens.begin, contexts},
        {(void **)&s->context_tokens.ids, n_tokens * sizeof *s->context_tokens.ids},
        {(void **)&s->context_tokens.spans, n_tokens * sizeof *s->context_tokens.spans},
        {(void **)&s->question_tokens.begin, questions},
        {(void **)&s->question_tokens.ids,
         (size_t)c->question_tokens * sizeof *s->question_tokens.ids},
        {(void **)&s->windows, (size_t)c->n_windows * sizeof *s->windows},
    };
    memcpy(out, arrays, sizeof arrays);
}

static split_counts count_split(const fl_squad_split *s)
{
    return (split_counts){.n_contexts = s->contexts.n,
                          .n_questions = s->ids.n,
                          .n_answers = s->answers.n,
                          .n_windows = s->n_windows,
                          .n_left_out = s->n_left_out,
                          .context_bytes = fl__text_pool_bytes(&s->contexts),
                          .id_bytes = fl__text_pool_bytes(&s->ids),
                          .answer_bytes = fl__text_pool_bytes(&s->answers),
                          .context_tokens = fl__token_samples_total(&s->context_tokens),
                          .question_tokens = fl__token_samples_total(&s->question_tokens)};
}

/* ---- reading ---- */

static void set_counts(const split_counts *c, fl_squad_split *s)
{
    s->contexts.n = s->context_tokens.n = c->n_contexts;
    s->ids.n = s->question_tokens.n = c->n_questions;
    s->answers.n = c->n_answers;
    s->n_windows = c->n_windows;
    s->n_left_out = c->n_left_out;
}

/* Sizes of such counts do not overflow. */
static bool counts_are_sound(const split_counts *c)
{
    const int64_t most = INT64_C(1) << 44;
    const int64_t counts[] = {c->n_contexts,     c->n_questions,    c->n_answers, c->n_windows,
                              c->n_left_out,     c->context_bytes,  c->id_bytes,  c->answer_bytes,
                              c->context_tokens, c->question_tokens};
    bool good = true;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        good = good && counts[i] >= 0 && counts[i] <= most;
    }
    return good;
}

static bool take_arrays(const split_counts *c, fl_kept_part *parts, fl_squad_split *s)
{
    fl_kept_array arrays[N_ARRAYS];
    if (!counts_are_sound(c)) {
        return false;
    }
    list_arrays(c, s, arrays);
    bool good = fl__kept_arrays_take(arrays, N_ARRAYS, parts);
    set_counts(c, s);
    return good;
}

static bool questions_are_sound(const fl_squad_split *s)
{
    bool good = true;
    int64_t before = 0;
    for (int64_t i = 0; good && i < s->ids.n; i++) {
        const fl_squad_question *q = &s->questions[i];
        good = q->context >= 0 && q->context < s->contexts.n && q->first_answer >= before &&
               q->first_answer <= s->answers.n;
        before = q->first_answer;
    }
    return good;
}

static bool windows_are_sound(const fl_squad_split *s, const fl_token_frame *frame)
{
    bool good = true;
    int64_t before = 0;
    for (int64_t i = 0; good && i < s->n_windows; i++) {
        const fl_squad_window *w = &s->windows[i];
        good = w->question >= before && w->question < s->ids.n && w->first >= 0 && w->n >= 1 &&
               w->n <=
                   fl__token_samples_length(&s->context_tokens, s->questions[w->question].context) -
                       w->first;
        before = w->question;
        for (int k = 0; good && k < 2; k++) {
            good = w->target[k] >= -1 && w->target[k] < fl__squad_window_length(s, frame, w);
        }
    }
    return good;
}

/* What all users of the arrays rely on. */
static bool is_sound(const split_counts *c, const fl_squad_split *s, int32_t n_ids,
                     const fl_token_frame *frame)
{
    return fl__text_pool_is_sound(&s->contexts, c->context_bytes) &&
           fl__text_pool_is_sound(&s->ids, c->id_bytes) &&
           fl__text_pool_is_sound(&s->answers, c->answer_bytes) &&
           fl__token_samples_are_sound(&s->context_tokens, c->context_tokens, 1, n_ids) &&
           fl__token_samples_are_sound(&s->question_tokens, c->question_tokens, 0, n_ids) &&
           questions_are_sound(s) && windows_are_sound(s, frame);
}

static fl_status take_parts(const char *path, fl_kept_part parts[N_PARTS], int32_t n_ids,
                            const fl_token_frame *frame, fl_squad_split split[N_SPLITS])
{
    split_counts counts[N_SPLITS];
    if (parts[0].n_bytes != sizeof counts) {
        return fl__kept_refuse(path, "the kept tokens of other data");
    }
    memcpy(counts, parts[0].bytes, sizeof counts);
    for (int s = 0; s < N_SPLITS; s++) {
        if (!take_arrays(&counts[s], parts + 1 + s * N_ARRAYS, &split[s]) ||
            !is_sound(&counts[s], &split[s], n_ids, frame)) {
            return fl__kept_refuse(path, "windows that do not fit together");
        }
    }
    return FL_OK;
}

fl_status fl__squad_kept_read(const char *path, const fl_kept_key *key, int32_t n_ids,
                              const fl_token_frame *frame, fl_squad_split split[N_SPLITS],
                              bool *found)
{
    fl_kept_part parts[N_PARTS];
    fl_squad_split read[N_SPLITS];
    memset(read, 0, sizeof read);
    FL_TRY(fl__kept_read(path, key, parts, N_PARTS, found));
    if (!*found) {
        return FL_OK;
    }
    fl_status status = take_parts(path, parts, n_ids, frame, read);
    fl__kept_parts_free(parts, N_PARTS);
    for (int s = 0; s < N_SPLITS; s++) {
        if (status == FL_OK) {
            split[s] = read[s];
        } else {
            fl__squad_split_fini(&read[s]);
        }
    }
    return status;
}

/* ---- writing ---- */

fl_status fl__squad_kept_write(const char *path, const fl_kept_key *key,
                               const fl_squad_split split[N_SPLITS])
{
    fl_kept_part parts[N_PARTS];
    split_counts counts[N_SPLITS];
    parts[0] = (fl_kept_part){counts, sizeof counts};
    for (int s = 0; s < N_SPLITS; s++) {
        fl_kept_array arrays[N_ARRAYS];
        fl_squad_split same = split[s];
        counts[s] = count_split(&split[s]);
        list_arrays(&counts[s], &same, arrays);
        fl__kept_arrays_list(arrays, N_ARRAYS, parts + 1 + s * N_ARRAYS);
    }
    return fl__kept_write(path, key, parts, N_PARTS);
}
