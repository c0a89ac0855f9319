/* From the outputs of a model to answers, and their scores.
 *
 *     logits of a window ──> fl_squad_choice: its best span ──> over the windows of a question:
 *         the answer's text ──> exact match and F1 against the question's answers
 *
 * The rules are those of transformers' question answering and of SQuAD's official script; where
 * the data has questions without an answer, those of SQuAD 2.0. All functions are pure. */
#ifndef FL_DATA_SQUAD_ANSWERS_H
#define FL_DATA_SQUAD_ANSWERS_H

#include "data/squad/windows.h"

#include "data/tokenizer/unicode/unicode.h"

enum {
    FL_SQUAD_BEST = 20,          /* the starts and the ends that are combined */
    FL_SQUAD_ANSWER_TOKENS = 30, /* the longest answer */
};

/* What one window says. */
typedef struct fl_squad_choice {
    float score;   /* the logits of the start and of the end, summed */
    float null;    /* the same of the first token: the window has no answer */
    int32_t first; /* the answer's first token in the window's part of the context; -1: none */
    int32_t n;     /* its tokens */
} fl_squad_choice;

/* The best span of a window: of FL_SQUAD_BEST starts and ends, one within the context, of at most
 * FL_SQUAD_ANSWER_TOKENS tokens.
 * logits  [length of the window, 2]: start and end */
fl_squad_choice fl_squad_choose(const fl_squad_split *split, const fl_token_frame *frame,
                                int64_t window, const float *logits);

/* The text of a choice, borrowed from its context; empty where it has none. */
fl_text fl_squad_choice_text(const fl_squad_split *split, int64_t window,
                             const fl_squad_choice *choice);

/* The answer that the choices of the windows first .. end - 1 of one question give together. Where
 * `impossible` (some question of the data has no answer), it may be the empty text. "empty" where
 * no window has a choice, as in transformers.
 * choices  those of all windows; one whose `n` is below 0 was not evaluated */
fl_text fl_squad_answer_text(const fl_squad_split *split, bool impossible, int64_t first,
                             int64_t end, const fl_squad_choice *choices);

/* Whether both texts are the same once articles, punctuation and case are gone, and the F1 of their
 * words. FL_ENOMEM */
typedef struct fl_squad_score {
    double exact, f1;
} fl_squad_score;
fl_status fl_squad_compare(const fl_char_table *chars, fl_text answer, fl_text wanted,
                           fl_squad_score *out) FL_MUST_CHECK;

/* Sums over all questions of which a window was evaluated. */
typedef struct fl_squad_sums {
    double n_questions, exact, f1;
} fl_squad_sums;

/* choices [n_windows], as above. FL_ENOMEM */
fl_status fl_squad_score_all(const fl_squad_split *split, bool impossible,
                             const fl_squad_choice *choices, fl_squad_sums *out) FL_MUST_CHECK;

#endif
