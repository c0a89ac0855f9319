/* Which layers of workers on other hosts are in the model's file. Would catch: a run that finishes
 * without a model, because the host of a layer's owner was lost after all had met at the end and
 * before its last report came; a model with layers that nobody has written, or that a host has
 * written into a file that only it sees. */
#include "control/controller/members/far.h"
#include "nn/model.h"
#include "pipe/state/weights/model_file.h"
#include "support/data/toy.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 3, LAYERS = 6 };

/* Worker 0 is on the head; 1 and 2 are on another host, and share the second stage. */
typedef struct rig {
    fl_job job;
    fl_hosts hosts;
    fl_model_file file;
    fl_model *model;
    int run_fd;
    char dir[64];
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
    snprintf(r.dir, sizeof r.dir, "/tmp/frostline-far-XXXXXX");
    assert_non_null(mkdtemp(r.dir));
    r.run_fd = open(r.dir, O_RDONLY | O_DIRECTORY);
    assert_int_equal(fl_toy_model(LAYERS - 4, 0, &r.model), FL_OK);
    assert_int_equal(fl_model_n_layers(r.model), LAYERS);
    assert_int_equal(fl_model_file_create(r.model, "{}", r.run_fd, false, &r.file), FL_OK);
    r.options = (fl_controller_options){
        .job = &r.job, .hosts = &r.hosts, .model_file = &r.file, .run_dir = r.dir};
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

static int tear_down(void **state)
{
    (void)state;
    fl_model_file_fini(&r.file);
    fl_model_destroy(&r.model);
    close(r.run_fd);
    return rmdir(r.dir);
}

/* As the other host does, and all report. */
static void write_layers(void)
{
    static float weights[64 * 1024];
    r.c.saved.n = LAYERS;
    for (int layer = 2; layer < LAYERS; layer++) {
        weights[0] = (float)layer;
        assert_int_equal(fl_model_file_write_host(&r.file, weights, layer), FL_OK);
        assert_int_equal(fl_model_file_hash(&r.file, layer, &r.c.saved.hash[layer]), FL_OK);
        atomic_store(&r.file.written[layer], 0); /* in the memory of that host alone */
    }
}

static void expect_written(int layer_2, int layer_3)
{
    assert_int_equal(fl_far_note_layers(&r.c), FL_OK);
    assert_int_equal(r.file.written[0] + r.file.written[1], 0); /* the head's own worker notes */
    assert_int_equal(r.file.written[2], layer_2);
    assert_int_equal(r.file.written[3], layer_3);
}

static void test_far__nothing_counts_before_all_have_met(void **state)
{
    (void)state;
    write_layers();
    expect_written(0, 0);
    r.workers[2].done = r.workers[2].departed = true; /* left before the end */
    expect_written(0, 0);
}

static void test_far__a_worker_that_is_lost_after_all_have_met_has_written(void **state)
{
    (void)state;
    write_layers();
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

static void test_far__a_layer_that_is_not_here_does_not_count(void **state)
{
    (void)state;
    write_layers();
    r.workers[0].done = true;
    r.c.saved.hash[3] ^= 1;
    assert_int_equal(fl_far_note_layers(&r.c), FL_EIO);
    assert_non_null(strstr(fl_errmsg(), "layer 3 of "));
    assert_int_equal(r.file.written[3], 0);
}

static void test_far__nor_does_one_that_nobody_reports(void **state)
{
    (void)state;
    write_layers();
    r.workers[0].done = true;
    r.c.saved.n = 0;
    assert_int_equal(fl_far_note_layers(&r.c), FL_EIO);
    assert_int_equal(r.file.written[2], 0);
}

#define FAR(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAR(test_far__nothing_counts_before_all_have_met),
        FAR(test_far__a_worker_that_is_lost_after_all_have_met_has_written),
        FAR(test_far__files_of_the_head_alone_are_noted_there),
        FAR(test_far__a_layer_that_is_not_here_does_not_count),
        FAR(test_far__nor_does_one_that_nobody_reports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
