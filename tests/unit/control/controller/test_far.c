/* Which layers of workers on other hosts are in the model's file. Would catch: a run that finishes
 * without a model, because the host of a layer's owner was lost after all had met at the end and
 * before its last report came; a model with layers that nobody has written. */
#include "control/controller/members/far.h"
#include "pipe/state/weights/model_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { N = 3, LAYERS = 4 };

/* Worker 0 is on the head; 1 and 2 are on another host, and share the second stage. */
typedef struct rig {
    fl_job job;
    fl_hosts hosts;
    fl_model_file file;
    atomic_uchar written[LAYERS];
    fl_controller_options options;
    fl_worker workers[N];
    fl_controller c;
} rig;

static rig r;

static int set_up(void **state)
{
    (void)state;
    memset(&r, 0, sizeof r);
    r.job.run.shared = true;
    r.hosts.n = 2;
    r.hosts.host[0].n = 1;
    r.hosts.host[1] = (fl_host){.first = 1, .n = 2};
    r.file.written = r.written;
    r.options = (fl_controller_options){.job = &r.job, .hosts = &r.hosts, .model_file = &r.file};
    r.c.options = &r.options;
    r.c.n_workers = N;
    r.c.workers = r.workers;
    r.c.elastic.plan = (fl_plan){.generation = 1,
                                 .K = 2,
                                 .R = 1,
                                 .M = 1,
                                 .n_layers = LAYERS,
                                 .n_workers = N,
                                 .first = {0, 2, LAYERS},
                                 .rank_of = {0, 1}};
    return 0;
}

static void expect_written(int layer_2, int layer_3)
{
    fl_far_note_layers(&r.c);
    assert_int_equal(r.written[0] + r.written[1], 0); /* the head's own worker notes them */
    assert_int_equal(r.written[2], layer_2);
    assert_int_equal(r.written[3], layer_3);
}

static void test_far__nothing_counts_before_all_have_met(void **state)
{
    (void)state;
    expect_written(0, 0);
    r.workers[2].done = r.workers[2].departed = true; /* left before the end */
    expect_written(0, 0);
}

static void test_far__a_worker_that_is_lost_after_all_have_met_has_written(void **state)
{
    (void)state;
    r.workers[0].done = true;
    r.workers[1].lost = true;
    expect_written(1, 1);
}

static void test_far__files_of_the_head_alone_are_noted_there(void **state)
{
    (void)state;
    r.workers[0].done = r.workers[1].done = true;
    r.job.run.shared = false;
    expect_written(0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_far__nothing_counts_before_all_have_met, set_up),
        cmocka_unit_test_setup(test_far__a_worker_that_is_lost_after_all_have_met_has_written,
                               set_up),
        cmocka_unit_test_setup(test_far__files_of_the_head_alone_are_noted_there, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
