#include "support/device/one_worker.h"

#include "pipe/measure/probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void describe_run(one_worker *w, const one_worker_options *o)
{
    w->job.train.batch = o->batch;
    w->job.train.accumulate = 1;
    w->job.train.optimizer = FL_SGD;
    w->job.fault.deadline_ms = 10000;
    w->plan = (fl_plan){.generation = 1,
                        .K = 1,
                        .R = 1,
                        .M = o->M,
                        .F = o->F,
                        .n_layers = fl_model_n_layers(o->model),
                        .n_workers = 1,
                        .first = {0, fl_model_n_layers(o->model)}};
    w->batches = (fl_run_batches){.job = &w->job,
                                  .sizes = w->sizes,
                                  .n_samples = o->n_samples,
                                  .n_steps = 100,
                                  .stores = {.n_stores = 1, .n_workers = 1}};
    w->context = (fl_worker_context){.model = o->model,
                                     .dataset = o->data,
                                     .job = &w->job,
                                     .batches = &w->batches,
                                     .n_samples = o->n_samples};
}

void one_worker_open(one_worker *w, const one_worker_options *o)
{
    memset(w, 0, sizeof *w);
    assert_int_equal(fl_sample_sizes_create(o->model, o->data, o->n_samples, o->batch, &w->sizes),
                     FL_OK);
    describe_run(w, o);
    fl_probe_store *store = test_calloc(1, sizeof *store);
    fl_kv kv = fl_probe_store_kv(store);
    fl_drawn_state drawn = {.model = o->model, .seed = w->job.train.seed};
    fl_state_source source = fl_drawn_source(&drawn);
    fl_generation_options options = {
        .worker = &w->context, .plan = &w->plan, .device = o->device, .kv = &kv, .source = &source};
    fl_status status = fl_generation_open(&options, &w->generation);
    assert_string_equal(status == FL_OK ? "" : fl_errmsg(), "");
    test_free(store);
}

void one_worker_close(one_worker *w)
{
    fl_generation_close(&w->generation);
    fl_sample_sizes_destroy(&w->sizes);
}

fl_global_batch one_worker_batch(const one_worker *w, fl_split split, int64_t step, int64_t *ids)
{
    int64_t n = w->job.train.batch;
    for (int64_t i = 0; i < n; i++) {
        ids[i] = step * n + i;
    }
    return (fl_global_batch){.split = split, .step = step, .ids = ids, .n = n};
}
