#include "support/data/situation.h"

#include "support/data/toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Layers that are only their parameters. */
static fl_status own_params(void *self, fl_param_list *list)
{
    int64_t n = *(int64_t *)self;
    return n == 0 ? FL_OK : fl_param_list_add(list, "w", n, 1, FL_INIT_ZEROS, 0.0f, true);
}

static fl_status never(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    (void)self, (void)x, (void)in, (void)out;
    return fl_fail(FL_EINTERNAL, "a planner runs no layer");
}

static const fl_layer_ops bare_layer = {.head = FL_TABLE_HEAD(fl_layer_ops),
                                        .kind = "bare",
                                        .shape = fl_toy_same_shape,
                                        .params = own_params,
                                        .forward = never,
                                        .backward = never,
                                        .destroy = free};

void situation_fini(situation *s)
{
    fl_model_destroy(&s->model);
}

void situation_init(situation *s, int n_layers, int n_workers, int64_t batch)
{
    memset(s, 0, sizeof *s);
    assert_int_equal(fl_model_create("bare", &s->model), FL_OK);
    s->profile = (fl_profile){.n_layers = n_layers,
                              .in_bytes = 100,
                              .optimizer_us_per_param = 1e-4,
                              .link_us = 1.0,
                              .link_bytes_per_us = 1e4,
                              .reduce_bytes_per_us = 1e4};
    for (int i = 0; i < n_layers; i++) {
        int64_t *n_params = malloc(sizeof *n_params);
        assert_non_null(n_params);
        *n_params = N_PARAMS;
        assert_int_equal(fl_model_add(s->model, i + 1, (fl_layer){&bare_layer, n_params}), FL_OK);
        s->profile.layer[i] =
            (fl_layer_cost){.fwd_us = 1.0, .bwd_us = 2.0, .out_bytes = 100, .n_params = N_PARAMS};
        s->memory[i] = (fl_layer_memory){
            .kept_bytes = 256, .scratch_bytes = 64, .in_bytes = 100, .out_bytes = 100};
    }
    s->job.train.batch = batch;
    s->job.train.accumulate = 1;
    s->job.devices.cores = 1;
    s->job.devices.memory_bytes = (int64_t)1 << 40;
    s->job.pipe.schedule = FL_1F1B;
    s->job.autodp.bucket_bytes = 4 << 20;
    s->input = (fl_plan_input){.model = s->model,
                               .job = &s->job,
                               .profile = &s->profile,
                               .memory_one = s->memory,
                               .n_workers = n_workers,
                               .generation = 7};
}

fl_plan chosen(const situation *s)
{
    fl_plan plan;
    fl_status status = fl_plan_choose(&s->input, &plan, NULL, 0, NULL);
    if (status != FL_OK) {
        print_message("%s\n", fl_errmsg());
    }
    assert_int_equal(status, FL_OK);
    assert_int_equal(fl_plan_check(&plan), FL_OK);
    return plan;
}
