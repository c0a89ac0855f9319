#include "data/squad/answers.h"

#include "data/squad/normalize.h"
#include "device/system/alloc.h"

#include <math.h>
#include <string.h>

/* ---- one window ---- */

typedef struct best_list {
    int32_t row[FL_SQUAD_BEST];
    int n;
} best_list;

/* Keep the rows of the largest logits of a column, the largest first; of equal ones the later
 * first. */
static void find_best(const float *logits, int64_t n, best_list *out)
{
    out->n = 0;
    for (int64_t row = 0; row < n; row++) {
        int at = out->n < FL_SQUAD_BEST ? out->n : FL_SQUAD_BEST;
        while (at > 0 && logits[2 * out->row[at - 1]] <= logits[2 * row]) {
            at--;
        }
        if (at == FL_SQUAD_BEST) {
            continue;
        }
        int end = out->n < FL_SQUAD_BEST ? out->n++ : FL_SQUAD_BEST - 1;
        memmove(&out->row[at + 1], &out->row[at], (size_t)(end - at) * sizeof out->row[0]);
        out->row[at] = (int32_t)row;
    }
}

fl_squad_choice fl_squad_choose(const fl_squad_split *split, const fl_token_frame *frame,
                                int64_t window, const float *logits)
{
    const fl_squad_window *w = &split->windows[window];
    int32_t prefix = (int32_t)fl__squad_window_prefix(split, frame, w);
    int64_t length = fl__squad_window_length(split, frame, w);
    fl_squad_choice best = {.score = -INFINITY, .null = logits[0] + logits[1], .first = -1};
    best_list starts, ends;
    find_best(logits, length, &starts);
    find_best(logits + 1, length, &ends);
    for (int s = 0; s < starts.n; s++) {
        for (int e = 0; e < ends.n; e++) {
            int32_t first = starts.row[s] - prefix, last = ends.row[e] - prefix;
            float score = logits[2 * starts.row[s]] + logits[2 * ends.row[e] + 1];
            if (first >= 0 && last < w->n && last >= first &&
                last - first < FL_SQUAD_ANSWER_TOKENS && score > best.score) {
                best.score = score;
                best.first = first;
                best.n = last - first + 1;
            }
        }
    }
    return best;
}

/* The byte where code point `n` begins, or the end of the text. */
static size_t byte_of_char(fl_text text, int64_t n)
{
    size_t at = 0;
    for (int64_t i = 0; i < n && at < text.n_bytes; i++) {
        at++;
        while (at < text.n_bytes && ((unsigned char)text.bytes[at] & 0xC0) == 0x80) {
            at++;
        }
    }
    return at;
}

fl_text fl_squad_choice_text(const fl_squad_split *split, int64_t window,
                             const fl_squad_choice *choice)
{
    const fl_squad_window *w = &split->windows[window];
    int64_t context = split->questions[w->question].context;
    const fl_token_samples *tokens = &split->context_tokens;
    fl_text text = fl__text_pool_get(&split->contexts, context);
    if (choice->first < 0) {
        return (fl_text){.bytes = ""};
    }
    const fl_token_span *spans = tokens->spans + tokens->begin[context] + w->first + choice->first;
    size_t begin = byte_of_char(text, spans[0].begin);
    size_t end = byte_of_char(text, spans[choice->n - 1].end);
    return (fl_text){.bytes = text.bytes + begin, .n_bytes = end > begin ? end - begin : 0};
}

/* ---- the windows of a question ---- */

/* What transformers answers where no window has a choice. */
static const char unanswered[] = "empty";

fl_text fl_squad_answer_text(const fl_squad_split *split, bool impossible, int64_t first,
                             int64_t end, const fl_squad_choice *choices)
{
    int64_t best = -1;
    float null = INFINITY;
    for (int64_t i = first; i < end; i++) {
        const fl_squad_choice *c = &choices[i];
        if (c->n < 0) {
            continue;
        }
        null = c->null < null ? c->null : null;
        if (c->first >= 0 && (best < 0 || c->score > choices[best].score)) {
            best = i;
        }
    }
    if (best < 0 && !impossible) {
        return (fl_text){.bytes = unanswered, .n_bytes = sizeof unanswered - 1};
    }
    if (best < 0) {
        return (fl_text){.bytes = ""};
    }
    if (impossible && null > choices[best].score) {
        return (fl_text){.bytes = ""};
    }
    return fl_squad_choice_text(split, best, &choices[best]);
}

/* ---- scores ---- */

static bool same_word(fl_text a, fl_text b)
{
    return a.n_bytes == b.n_bytes && memcmp(a.bytes, b.bytes, a.n_bytes) == 0;
}

/* The words that both have, each as often as in the one that has it less often. Takes words of b
 * away. */
static size_t count_common(const fl_squad_words *a, fl_squad_words *b)
{
    size_t n = 0, left = b->n;
    for (size_t i = 0; i < a->n; i++) {
        for (size_t k = 0; k < left; k++) {
            if (same_word(a->word[i], b->word[k])) {
                b->word[k] = b->word[--left];
                n++;
                break;
            }
        }
    }
    return n;
}

static fl_squad_score compare_words(const fl_squad_words *a, fl_squad_words *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++) {
        same = same_word(a->word[i], b->word[i]);
    }
    size_t common = count_common(a, b);
    double precision = a->n == 0 ? 0 : (double)common / (double)a->n;
    double recall = b->n == 0 ? 0 : (double)common / (double)b->n;
    return (fl_squad_score){.exact = same,
                            .f1 = common == 0 ? 0 : 2 * precision * recall / (precision + recall)};
}

fl_status fl_squad_compare(const fl_char_table *chars, fl_text answer, fl_text wanted,
                           fl_squad_score *out)
{
    fl_squad_words a = {0}, b = {0};
    fl_status status = fl__squad_words_split(chars, answer, &a);
    if (status == FL_OK) {
        status = fl__squad_words_split(chars, wanted, &b);
    }
    if (status == FL_OK) {
        *out = compare_words(&a, &b);
    }
    fl__squad_words_fini(&a);
    fl__squad_words_fini(&b);
    return status;
}

/* SQuAD 2.0: where one of both is empty, F1 is that of the exact match; in 1.1 it is 0. */
static fl_status score_answer(const fl_squad_split *split, const fl_char_table *chars,
                              bool impossible, int64_t question, fl_text answer,
                              fl_squad_score *out)
{
    int64_t first, end;
    fl__squad_answers_of(split, question, &first, &end);
    *out = (fl_squad_score){0};
    if (first == end) {
        FL_TRY(fl_squad_compare(chars, answer, (fl_text){.bytes = ""}, out));
        out->f1 = impossible ? out->exact : out->f1;
    }
    for (int64_t i = first; i < end; i++) {
        fl_squad_score one;
        FL_TRY(fl_squad_compare(chars, answer, fl__text_pool_get(&split->answers, i), &one));
        out->exact = one.exact > out->exact ? one.exact : out->exact;
        out->f1 = one.f1 > out->f1 ? one.f1 : out->f1;
    }
    return FL_OK;
}

static fl_status score_questions(const fl_squad_split *split, const fl_char_table *chars,
                                 bool impossible, const fl_squad_choice *choices,
                                 fl_squad_sums *sums)
{
    for (int64_t first = 0, end; first < split->n_windows; first = end) {
        int64_t question = split->windows[first].question;
        bool any = false;
        for (end = first; end < split->n_windows && split->windows[end].question == question;
             end++) {
            any = any || choices[end].n >= 0;
        }
        if (!any) {
            continue;
        }
        fl_squad_score one;
        fl_text answer = fl_squad_answer_text(split, impossible, first, end, choices);
        FL_TRY(score_answer(split, chars, impossible, question, answer, &one));
        sums->n_questions++;
        sums->exact += one.exact;
        sums->f1 += one.f1;
    }
    return FL_OK;
}

fl_status fl_squad_score_all(const fl_squad_split *split, bool impossible,
                             const fl_squad_choice *choices, fl_squad_sums *out)
{
    fl_char_table *chars = NULL;
    fl_squad_sums sums = {0};
    FL_TRY(fl_alloc(sizeof *chars, (void **)&chars));
    fl_char_table_fill(chars);
    fl_status status = score_questions(split, chars, impossible, choices, &sums);
    fl_free(chars);
    if (status == FL_OK) {
        *out = sums;
    }
    return status;
}
