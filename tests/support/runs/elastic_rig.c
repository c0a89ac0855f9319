#include "support/runs/elastic_rig.h"

#include "device/system/clock.h"
#include "nn/model.h"
#include "support/data/toy.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

fl_plan rig_plan(int K, int R)
{
    fl_plan plan = {
        .generation = 1, .K = K, .R = R, .M = 2, .n_layers = RIG_LAYERS, .n_workers = RIG_WORKERS};
    for (int k = 0; k <= K; k++) {
        plan.first[k] = RIG_LAYERS * k / K;
    }
    for (int i = 0; i < K * R; i++) {
        plan.rank_of[i] = i;
    }
    return plan;
}

int rig_set_up(void **state)
{
    rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    make_folder(r->dir);
    r->dir_fd = open(r->dir, O_RDONLY | O_DIRECTORY);
    r->out = fopen("/dev/null", "w");
    fl_job_defaults(&r->job);
    r->plan = rig_plan(2, 1);
    r->options = (fl_controller_options){
        .job = &r->job, .plan = &r->plan, .n_steps = RIG_STEPS, .n_epochs = 1};
    r->phase = (fl_phase){.state = FL_CONTROLLER_RUNNING, .lost = -1};
    r->facts = (fl_run_facts){.options = &r->options,
                              .plan = &r->elastic.plan,
                              .phase = &r->phase,
                              .stats = &r->stats,
                              .n_workers = RIG_WORKERS,
                              .workers = r->workers};
    r->elastic = (fl_elastic){.run = &r->facts,
                              .cache = &r->cache,
                              .workers = r->workers,
                              .router = &r->router,
                              .log = &r->log,
                              .dump = &r->dump,
                              .job = &r->job,
                              .plan = r->plan};
    for (int i = 0; i < RIG_WORKERS; i++) {
        r->workers[i].rank = i;
    }
    assert_int_equal(fl_flight_create(RIG_WORKERS, &r->flight), FL_OK);
    r->facts.flight = r->flight;
    r->options.dir_fd = r->dir_fd;
    assert_int_equal(fl_flight_dump_init(&r->dump, &r->facts), FL_OK);
    assert_int_equal(fl_store_create(&r->elastic.store), FL_OK);
    assert_int_equal(fl_event_log_open(&r->log, r->dir_fd, r->out, &r->elastic.plan), FL_OK);
    fl_run_stats_init(&r->stats, 1000, 10, RIG_STEPS, 1, false);
    r->stats.steps = 10;
    r->elastic.due = (fl_due_steps){
        .job = &r->job, .steps_per_epoch = 100, .n_steps = RIG_STEPS, .lead = RIG_LEAD};
    r->elastic.decide.due_at = -1; /* no policy has anything to say */
    *state = r;
    return 0;
}

int rig_tear_down(void **state)
{
    rig *r = *state;
    fl_event_log_close(&r->log);
    fl_store_destroy(&r->elastic.store);
    fl_flight_dump_fini(&r->dump);
    fl_flight_destroy(&r->flight);
    fl_model_destroy(&r->model);
    fclose(r->out);
    close(r->dir_fd);
    int removed = remove_folder(r->dir);
    free(r);
    return removed;
}

void rig_know_the_model(rig *r)
{
    assert_int_equal(fl_toy_model(2, 0.0f, &r->model), FL_OK);
    r->profile.n_layers = fl_model_n_layers(r->model);
    assert_true(r->profile.n_layers <= RIG_LAYERS_MAX);
    r->input = (fl_plan_input){.job = &r->job,
                               .n_workers = RIG_WORKERS,
                               .model = r->model,
                               .profile = &r->profile,
                               .memory_one = r->memory};
    r->options.plan_input = &r->input;
}

void rig_answer(rig *r, int rank, fl_status status, const char *text)
{
    fl_prepared_report report = {.generation = r->elastic.transition.next.generation,
                                 .status = status,
                                 .took_us = 1000 * rank};
    snprintf(report.text, sizeof report.text, "%s", text);
    fl_elastic_prepared(&r->elastic, &r->workers[rank], &report);
    fl_elastic_watch(&r->elastic, 0, fl_now_us());
}

void rig_ask(rig *r, int K, int R)
{
    fl_plan next = rig_plan(K, R);
    assert_int_equal(fl_elastic_ask(&r->elastic, &next, 0, "by hand"), FL_OK);
    assert_int_equal(r->elastic.transition.state, FL_ELASTIC_PREPARING);
}

const fl_elastic_outcome *rig_outcome(const rig *r)
{
    const fl_elastic_outcome *o =
        fl_elastic_outcome_of(&r->elastic, r->elastic.transition.requested);
    assert_non_null(o);
    return o;
}

void rig_switch_all(rig *r, int64_t step)
{
    fl_transition_parts parts = {.generation = r->elastic.transition.next.generation, .step = step};
    for (int i = 0; i < RIG_WORKERS; i++) {
        fl_elastic_moved(&r->elastic, &r->workers[i], &parts);
    }
    assert_int_equal(r->elastic.transition.state, FL_ELASTIC_IDLE);
}

void rig_commit(rig *r, int64_t step)
{
    for (int i = 0; i < RIG_WORKERS; i++) {
        rig_answer(r, i, FL_OK, "");
    }
    rig_switch_all(r, step);
}
