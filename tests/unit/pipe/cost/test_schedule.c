/* The schedules against the tables drawn in pipe/cost/schedule.h, and what must hold for any K and
 * M. */
#include "pipe/cost/schedule.h"

#include "support/draw.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_OPS = 256, LINE_MAX_BYTES = 256, DRAWN_K = 3, DRAWN_M = 4 };

/* The row "stage N ..." that follows the line which begins with `title` in pipe/cost/schedule.h. */
static void drawn_row(const char *title, int stage, char *row)
{
    FILE *file = fopen(FL_SOURCE_DIR "/pipe/cost/schedule.h", "r");
    assert_non_null(file);
    char line[LINE_MAX_BYTES], wanted[32];
    bool in_table = false, found = false;
    snprintf(wanted, sizeof wanted, "stage %d", stage);
    while (!found && fgets(line, sizeof line, file) != NULL) {
        in_table = in_table || strncmp(line, title, strlen(title)) == 0;
        char *at = in_table ? strstr(line, wanted) : NULL;
        if (at != NULL) {
            at += strlen(wanted);
            at += strspn(at, " ");
            at[strcspn(at, "\n")] = '\0';
            snprintf(row, LINE_MAX_BYTES, "%s", at);
            found = true;
        }
    }
    fclose(file);
    assert_true(found);
}

/* The same row from the code: one cell a unit of time when everything costs 1 and links nothing. */
static void played_row(fl_schedule schedule, int K, int M, int stage, char *row)
{
    double one[FL_MAX_STAGES], zero[FL_MAX_STAGES] = {0};
    fl_tick ticks[DRAWN_K * 2 * DRAWN_M];
    fl_op ops[2 * DRAWN_M];
    for (int s = 0; s < K; s++) {
        one[s] = 1.0;
    }
    int width = (int)fl_schedule_play(schedule, K, M, one, one, zero, ticks);
    fl_schedule_ops(schedule, K, M, stage, ops);
    size_t n = 0;
    for (int t = 0, i = 0; t < width; t++) {
        const fl_tick *tick = &ticks[stage * 2 * M + i];
        n += (size_t)snprintf(row + n, LINE_MAX_BYTES - n, "%s", t == 0 ? "" : " ");
        if (i < 2 * M && (int)tick->begin == t) {
            n += (size_t)snprintf(row + n, LINE_MAX_BYTES - n, "%c%d",
                                  ops[i].kind == FL_OP_FORWARD ? 'F' : 'B', ops[i].micro_batch);
            i++;
        } else {
            n += (size_t)snprintf(row + n, LINE_MAX_BYTES - n, t == width - 1 ? "." : ". ");
        }
    }
}

/* A schedule that changes without its drawing, or a drawing that is wrong. */
static void test_schedule__is_as_drawn(void **state)
{
    (void)state;
    const char *titles[] = {" * GPipe, K = 3, M = 4", " * 1F1B, K = 3, M = 4"};
    const fl_schedule schedules[] = {FL_GPIPE, FL_1F1B};
    for (int i = 0; i < 2; i++) {
        for (int stage = 0; stage < DRAWN_K; stage++) {
            char drawn[LINE_MAX_BYTES], played[LINE_MAX_BYTES];
            drawn_row(titles[i], stage, drawn);
            played_row(schedules[i], DRAWN_K, DRAWN_M, stage, played);
            assert_string_equal(drawn, played);
        }
    }
}

/* A micro-batch that is run twice, never, or backward before forward; activations of more
 * micro-batches held than memory was planned for. */
static void check_ops(fl_schedule schedule, int K, int M, int stage)
{
    fl_op ops[MAX_OPS];
    fl_schedule_ops(schedule, K, M, stage, ops);
    int n_forward = 0, n_backward = 0, peak = 0;
    for (int i = 0; i < 2 * M; i++) {
        /* Both kinds come in the order of the micro-batches, as messages on a link do. */
        if (ops[i].kind == FL_OP_FORWARD) {
            assert_int_equal(ops[i].micro_batch, n_forward++);
        } else {
            assert_int_equal(ops[i].micro_batch, n_backward++);
        }
        assert_true(n_backward <= n_forward);
        peak = n_forward - n_backward > peak ? n_forward - n_backward : peak;
    }
    assert_int_equal(n_forward, M);
    assert_int_equal(n_backward, M);
    /* Exactly: one slot more than is ever used would be memory for nothing. */
    assert_int_equal(peak, fl_schedule_in_flight(schedule, K, M, stage));
    int bound = schedule == FL_GPIPE || M < K - stage ? M : K - stage;
    assert_int_equal(peak, bound);
}

static void test_schedule__runs_each_micro_batch_once_in_order(void **state)
{
    (void)state;
    for (int K = 1; K <= 9; K++) {
        for (int M = 1; M <= 20; M++) {
            for (int stage = 0; stage < K; stage++) {
                check_ops(FL_GPIPE, K, M, stage);
                check_ops(FL_1F1B, K, M, stage);
            }
        }
    }
}

/* A bubble larger than the schedule's own. */
static void test_schedule__equal_costs_take_m_plus_k_minus_1(void **state)
{
    (void)state;
    seed_random();
    for (int i = 0; i < 300; i++) {
        int K = draw(1, FL_MAX_STAGES), M = draw(1, 300);
        double f = draw(1, 50), b = draw(1, 50);
        double fwd[FL_MAX_STAGES], bwd[FL_MAX_STAGES], link[FL_MAX_STAGES] = {0};
        for (int s = 0; s < K; s++) {
            fwd[s] = f;
            bwd[s] = b;
        }
        double expected = (M + K - 1) * (f + b);
        assert_true(fl_schedule_play(FL_GPIPE, K, M, fwd, bwd, link, NULL) == expected);
        assert_true(fl_schedule_play(FL_1F1B, K, M, fwd, bwd, link, NULL) == expected);
    }
}

/* When each operation of each stage begins, computed the slow way: visit the stages in turn until
 * none of them can continue. */
static double play_slowly(fl_schedule schedule, int K, int M, const double *fwd, const double *bwd,
                          const double *link, double *forward_end, double *backward_end)
{
    fl_op ops[MAX_OPS];
    int next[FL_MAX_STAGES] = {0};
    double free_at[FL_MAX_STAGES] = {0}, makespan = 0;
    for (int i = 0; i < K * M; i++) {
        forward_end[i] = backward_end[i] = -1;
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < K; s++) {
            fl_schedule_ops(schedule, K, M, s, ops);
            while (next[s] < 2 * M) {
                fl_op op = ops[next[s]];
                bool is_forward = op.kind == FL_OP_FORWARD;
                int from = is_forward ? s - 1 : s + 1;
                double ready = 0;
                if (is_forward ? s > 0 : s < K - 1) {
                    double came =
                        (is_forward ? forward_end : backward_end)[from * M + op.micro_batch];
                    if (came < 0) {
                        break;
                    }
                    ready = came + link[is_forward ? s - 1 : s];
                }
                double end = fmax(ready, free_at[s]) + (is_forward ? fwd : bwd)[s];
                (is_forward ? forward_end : backward_end)[s * M + op.micro_batch] = end;
                free_at[s] = end;
                makespan = fmax(makespan, end);
                next[s]++;
                moved = true;
            }
        }
    }
    return makespan;
}

/* A receiver that does not wait for its message, or a stage that does two things at once. */
static void test_schedule__plays_like_stages_that_wait_for_messages(void **state)
{
    (void)state;
    seed_random();
    for (int i = 0; i < 400; i++) {
        int K = draw(1, 7), M = draw(1, 15);
        fl_schedule schedule = i % 2 == 0 ? FL_GPIPE : FL_1F1B;
        double fwd[FL_MAX_STAGES], bwd[FL_MAX_STAGES], link[FL_MAX_STAGES];
        double forward_end[7 * 15], backward_end[7 * 15], ends[FL_MAX_STAGES];
        fl_tick ticks[7 * 2 * 15];
        for (int s = 0; s < K; s++) {
            fwd[s] = draw(0, 20);
            bwd[s] = draw(0, 20);
            link[s] = draw(0, 9);
        }
        double makespan = fl_schedule_play(schedule, K, M, fwd, bwd, link, ticks);
        assert_true(makespan ==
                    play_slowly(schedule, K, M, fwd, bwd, link, forward_end, backward_end));
        fl_schedule_ends(schedule, K, M, fwd, bwd, link, NULL, ends);
        for (int s = 0; s < K; s++) {
            fl_op ops[MAX_OPS];
            fl_schedule_ops(schedule, K, M, s, ops);
            for (int j = 0; j < 2 * M; j++) {
                const double *end = ops[j].kind == FL_OP_FORWARD ? forward_end : backward_end;
                assert_true(ticks[s * 2 * M + j].end == end[s * M + ops[j].micro_batch]);
            }
            assert_true(ends[s] == backward_end[s * M + M - 1]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedule__is_as_drawn),
        cmocka_unit_test(test_schedule__runs_each_micro_batch_once_in_order),
        cmocka_unit_test(test_schedule__equal_costs_take_m_plus_k_minus_1),
        cmocka_unit_test(test_schedule__plays_like_stages_that_wait_for_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
