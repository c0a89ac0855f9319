/* From outputs to answers and scores. Would catch: a span that transformers would not choose, a
 * text other than the context's, a score other than that of SQuAD's official script, and the rules
 * of SQuAD 2.0 where 1.1 asks for others. */
#include "data/squad/answers.h"
#include "data/squad/squad_dataset.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define REFERENCE FL_SOURCE_DIR "/tests/reference/squad/"
#define BERT FL_SOURCE_DIR "/tests/reference/tokenizer/bert"

enum { TOKENS = 80, WINDOWS_MAX = 64 };

typedef struct trial {
    fl_dataset d;
    const fl_squad_split *split;
    const fl_token_frame *frame;
    fl_squad_choice choices[WINDOWS_MAX];
    float logits[2 * TOKENS];
} trial;

static void begin(trial *t, const char *path)
{
    const fl_squad_options o = {
        .path = {NULL, path}, .tokenizer = BERT, .max_tokens = TOKENS, .stride = 20, .types = true};
    memset(t, 0, sizeof *t);
    if (fl_dataset_squad_open(&o, &t->d, NULL) != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    t->split = fl_dataset_squad_split(&t->d, FL_TEST);
    t->frame = fl_dataset_squad_frame(&t->d);
    assert_true(t->split->n_windows < WINDOWS_MAX);
}

static void end(trial *t)
{
    fl_dataset_destroy(&t->d);
}

/* ---- scores ---- */

/* Every line of scores.txt: answer, wanted, exact match, F1. */
static void test_squad_answers__scores_are_those_of_the_official_script(void **state)
{
    (void)state;
    char line[512];
    int n = 0;
    fl_char_table *chars = malloc(sizeof *chars);
    FILE *file = fopen(REFERENCE "scores.txt", "r");
    assert_non_null(file);
    assert_non_null(chars);
    fl_char_table_fill(chars);
    for (; fgets(line, sizeof line, file) != NULL; n++) {
        char *wanted = strchr(line, '\t') + 1, *exact = strchr(wanted, '\t') + 1;
        char *f1 = strchr(exact, '\t') + 1;
        fl_squad_score score;
        const fl_text a = {line, (size_t)(wanted - line) - 1};
        const fl_text b = {wanted, (size_t)(exact - wanted) - 1};
        assert_int_equal(fl_squad_compare(chars, a, b, &score), FL_OK);
        if (score.exact != strtod(exact, NULL) || fabs(score.f1 - strtod(f1, NULL)) > 1e-15) {
            fail_msg("exact %g, F1 %.17g: %s", score.exact, score.f1, line);
        }
    }
    assert_true(n > 20);
    fclose(file);
    free(chars);
}

/* ---- one window ---- */

/* Logits that prefer the tokens first .. last of the context of a window. */
static void point_at(trial *t, int64_t window, int first, int last)
{
    int64_t prefix = fl__squad_window_prefix(t->split, t->frame, &t->split->windows[window]);
    for (int i = 0; i < 2 * TOKENS; i++) {
        t->logits[i] = -1.0f - 0.001f * (float)i;
    }
    t->logits[2 * (prefix + first)] = 5.0f;
    t->logits[2 * (prefix + last) + 1] = 4.0f;
}

static void choose(trial *t, int64_t window)
{
    t->choices[window] = fl_squad_choose(t->split, t->frame, window, t->logits);
}

static void test_squad_answers__the_best_span_of_a_window(void **state)
{
    (void)state;
    trial t;
    begin(&t, REFERENCE "questions.json");
    point_at(&t, 0, 3, 7);
    choose(&t, 0);
    assert_true(t.choices[0].first == 3 && t.choices[0].n == 5 && t.choices[0].score == 9.0f);
    assert_true(t.choices[0].null == t.logits[0] + t.logits[1]);
    /* An end before its start is none. */
    point_at(&t, 0, 7, 3);
    choose(&t, 0);
    assert_true(t.choices[0].score < 9.0f && t.choices[0].n >= 1);
    /* 30 tokens are allowed, 31 are not. */
    point_at(&t, 0, 2, 31);
    choose(&t, 0);
    assert_true(t.choices[0].first == 2 && t.choices[0].n == 30);
    point_at(&t, 0, 2, 32);
    choose(&t, 0);
    assert_true(t.choices[0].score < 9.0f && t.choices[0].n <= 30);
    /* Neither is a token of the question. */
    point_at(&t, 0, -2, 4);
    choose(&t, 0);
    assert_true(t.choices[0].first >= 0 && t.choices[0].score < 9.0f);
    end(&t);
}

/* Only the 20 best starts and ends are combined: with all of them outside the context, there is no
 * span. */
static void test_squad_answers__only_the_best_starts_and_ends_count(void **state)
{
    (void)state;
    trial t;
    int64_t n_questions_rows = 0, window = 0;
    begin(&t, REFERENCE "questions.json");
    for (; n_questions_rows < FL_SQUAD_BEST; window += n_questions_rows < FL_SQUAD_BEST) {
        assert_true(window < t.split->n_windows);
        n_questions_rows = fl__squad_window_prefix(t.split, t.frame, &t.split->windows[window]);
    }
    for (int64_t i = 0; i < TOKENS; i++) {
        t.logits[2 * i] = t.logits[2 * i + 1] = i < n_questions_rows ? 1.0f : 0.0f;
    }
    choose(&t, window);
    assert_int_equal(t.choices[window].first, -1);
    t.logits[2 * n_questions_rows] = t.logits[2 * n_questions_rows + 1] = 2.0f;
    choose(&t, window);
    assert_true(t.choices[window].first == 0 && t.choices[window].n == 1);
    end(&t);
}

/* ---- a question ---- */

/* Choices that say what the targets say; a window without an answer prefers none. */
static void choose_targets(trial *t)
{
    for (int64_t i = 0; i < t->split->n_windows; i++) {
        const fl_squad_window *w = &t->split->windows[i];
        int64_t prefix = fl__squad_window_prefix(t->split, t->frame, w);
        bool has = w->target[0] > 0;
        t->choices[i] = (fl_squad_choice){.score = has ? 5.0f : -5.0f,
                                          .null = has ? 0.0f : 3.0f,
                                          .first = has ? w->target[0] - (int32_t)prefix : 0,
                                          .n = has ? w->target[1] - w->target[0] + 1 : 2};
    }
}

static void test_squad_answers__the_targets_are_right_answers(void **state)
{
    (void)state;
    trial t;
    fl_squad_sums sums;
    begin(&t, REFERENCE "questions.json");
    choose_targets(&t);
    assert_int_equal(fl_squad_score_all(t.split, false, t.choices, &sums), FL_OK);
    assert_true(sums.n_questions == 11 && sums.exact == 11 && sums.f1 == 11);
    /* The second question's answer, as the context spells it. */
    for (int64_t i = 0; i < t.split->n_windows; i++) {
        if (t.split->windows[i].question == 1 && t.split->windows[i].target[0] > 0) {
            fl_text text = fl_squad_choice_text(t.split, i, &t.choices[i]);
            assert_int_equal(text.n_bytes, 6);
            assert_memory_equal(text.bytes, "$1,000", 6);
        }
    }
    /* Windows that were not evaluated: their questions do not count. */
    for (int64_t i = 0; i < t.split->n_windows; i++) {
        t.choices[i].n = t.split->windows[i].question > 2 ? -1 : t.choices[i].n;
    }
    assert_int_equal(fl_squad_score_all(t.split, false, t.choices, &sums), FL_OK);
    assert_true(sums.n_questions == 3 && sums.exact == 3);
    end(&t);
}

static void test_squad_answers__no_answer_is_one_where_the_data_has_such_questions(void **state)
{
    (void)state;
    trial t;
    fl_squad_sums sums;
    begin(&t, REFERENCE "impossible.json");
    choose_targets(&t);
    assert_int_equal(fl_squad_score_all(t.split, true, t.choices, &sums), FL_OK);
    assert_true(sums.n_questions == 11 && sums.exact == 11 && sums.f1 == 11);
    /* By the rules of SQuAD 1.1 some span is the answer, which is wrong for four questions. */
    assert_int_equal(fl_squad_score_all(t.split, false, t.choices, &sums), FL_OK);
    assert_true(sums.exact == 7 && sums.f1 == 7);
    /* The least null score of all windows counts, and only a larger one is no answer. */
    for (int64_t i = 0; i < t.split->n_windows; i++) {
        t.choices[i].null = 5.0f;
    }
    assert_int_equal(fl_squad_score_all(t.split, true, t.choices, &sums), FL_OK);
    assert_true(sums.exact == 11);
    end(&t);
}

/* A window without a span and one that was not evaluated. */
static void test_squad_answers__a_question_without_a_choice(void **state)
{
    (void)state;
    trial t;
    begin(&t, REFERENCE "questions.json");
    t.choices[0] = (fl_squad_choice){.first = -1, .score = -INFINITY};
    t.choices[1] = (fl_squad_choice){.n = -1};
    fl_text text = fl_squad_answer_text(t.split, false, 0, 2, t.choices);
    assert_int_equal(text.n_bytes, 5);
    assert_memory_equal(text.bytes, "empty", 5);
    text = fl_squad_answer_text(t.split, true, 0, 2, t.choices);
    assert_int_equal(text.n_bytes, 0);
    end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_squad_answers__scores_are_those_of_the_official_script),
        cmocka_unit_test(test_squad_answers__the_best_span_of_a_window),
        cmocka_unit_test(test_squad_answers__only_the_best_starts_and_ends_count),
        cmocka_unit_test(test_squad_answers__the_targets_are_right_answers),
        cmocka_unit_test(test_squad_answers__no_answer_is_one_where_the_data_has_such_questions),
        cmocka_unit_test(test_squad_answers__a_question_without_a_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
