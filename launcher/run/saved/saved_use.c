/* From a saved model to something that can be used:
 *   ① where its parts lie                         fl_saved_model_open
 *   ② the job: a file, or that of the run         load_job
 *   ③ model and data, as config.json has them     fl__saved_build
 *   ④ which samples                               list_samples
 *   ⑤ nothing of training                         forget_training */
#include "launcher/run/saved/saved_model.h"

#include "autodp/validation.h"
#include "data/view.h"
#include "device/errors/failure.h"
#include "device/system/alloc.h"
#include "launcher/job/job.h"
#include "launcher/job/text/text.h"
#include "launcher/run/saved/saved_build.h"
#include "launcher/run/saved/use_view.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const split_names[] = {"test", "train", "validation"};
enum { N_SPLIT_NAMES = sizeof split_names / sizeof *split_names };

fl_status fl_use_split_parse(const char *text, fl_use_split *out)
{
    char shown[FL_SHOWN_MAX];
    for (int i = 0; i < N_SPLIT_NAMES; i++) {
        if (strcmp(text, split_names[i]) == 0) {
            *out = (fl_use_split)i;
            return FL_OK;
        }
    }
    return fl_fail(FL_EINVAL, "--split: found %s, allowed: test, train or validation",
                   fl_shown(text, strlen(text), shown));
}

/* ---- ② ---- */

/* The fields that have an effect where nothing is trained: whole names, or sections with their dot.
 */
static const char *const used_fields[] = {
    "data.path",       "data.classes", "data.samples", "data.validation", "train.batch",
    "train.precision", "train.seed",   "devices.",     "pipe.k",          "pipe.m",
    "pipe.partition",  "autodp.r",     "fault.",       "model.plugin",
};

static fl_status check_override(const char *text)
{
    char shown[FL_SHOWN_MAX];
    size_t n = strcspn(text, "=");
    for (size_t i = 0; i < sizeof used_fields / sizeof *used_fields; i++) {
        size_t length = strlen(used_fields[i]);
        bool section = used_fields[i][length - 1] == '.';
        if (strncmp(text, used_fields[i], length) == 0 && (section || n == length)) {
            return FL_OK;
        }
    }
    return fl_fail(
        FL_EINVAL,
        "--set %s: has no effect on a saved model; allowed: data.path, data.classes, data.samples, "
        "data.validation, train.batch, train.precision, train.seed, model.plugin, pipe.k, pipe.m, "
        "pipe.partition, autodp.r, and the fields of devices and fault",
        fl_shown(text, n, shown));
}

static fl_status load_with(const fl_use_request *r, const char *const *overrides, int n,
                           fl_use *use)
{
    static const char empty[] = "name: use\n";
    if (r->job != NULL) {
        return fl_job_load(r->job, overrides, n, &use->job);
    }
    return use->saved.job[0] != '\0'
               ? fl_job_load_kept(use->saved.job, overrides, n, &use->job)
               : fl_job_parse("", empty, sizeof empty - 1, overrides, n, &use->job);
}

/* A pass accumulates nothing, so that pipe.m of the command line is not compared with what the run
 * accumulated. */
static fl_status load_job(const fl_use_request *r, fl_use *use)
{
    const char **overrides = NULL;
    int n = 0;
    for (int i = 0; i < r->n_overrides; i++) {
        FL_TRY(check_override(r->overrides[i]));
    }
    FL_TRY(fl_alloc_array((size_t)r->n_overrides + 1, sizeof *overrides, (void **)&overrides));
    if (fl__use_has_override(r, "pipe.m")) {
        overrides[n++] = "train.accumulate=1";
    }
    for (int i = 0; i < r->n_overrides; i++) {
        overrides[n++] = r->overrides[i];
    }
    fl_status status = load_with(r, overrides, n, use);
    fl_free(overrides);
    return status;
}

/* ---- ④ ---- */

static fl_status refuse_split(const fl_use *use, const char *why)
{
    const char *kind = use->whole.ops->kind;
    return fl_fail(FL_EINVAL, "--split: the %s data set has no %s", kind, why);
}

/* The numbers, in the data set, of the training or validation samples of the job. */
static fl_status list_trained(const fl_use *use, fl_use_split split, int64_t *ids, int64_t *n)
{
    const fl_job *job = &use->job;
    int64_t all = use->whole.ops->count(use->whole.self, FL_TRAIN);
    int64_t n_used = job->data.samples > 0 ? job->data.samples : all;
    int64_t n_validation = fl_job_n_validation(job, n_used);
    fl_dataset view = {0};
    if (n_used > all) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("data.samples"),
                             "%" PRId64 ", but the data set has %" PRId64, n_used, all);
    }
    if (n_validation > 0) {
        FL_TRY(fl_validation_create(&use->whole, n_used, n_validation, job->train.seed, &view));
    }
    bool validates = split == FL_USE_VALIDATION;
    *n = validates ? n_validation : n_used - n_validation;
    for (int64_t i = 0; i < *n; i++) {
        ids[i] = n_validation == 0 ? i : fl_view_own(&view, validates ? FL_TEST : FL_TRAIN, i).id;
    }
    fl_dataset_destroy(&view);
    return FL_OK;
}

static int compare_ids(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static fl_status list_samples(fl_use *use, fl_use_split split, int64_t *ids, int64_t *n)
{
    *n = use->whole.ops->count(use->whole.self, FL_TEST);
    if (split != FL_USE_TEST) {
        FL_TRY(list_trained(use, split, ids, n));
        qsort(ids, (size_t)*n, sizeof *ids, compare_ids);
    }
    for (int64_t i = 0; split == FL_USE_TEST && i < *n; i++) {
        ids[i] = i;
    }
    return *n > 0 ? FL_OK
           : split == FL_USE_VALIDATION
               ? refuse_split(use, "validation samples; set data.validation")
               : refuse_split(use, "such samples");
}

/* One batch has at most all n samples, and nothing is accumulated; what the job says of the shares
 * of a step may no longer fit. */
static void fit_batch(fl_job *job, int64_t n)
{
    n = job->train.batch < n ? job->train.batch : n;
    job->train.batch = n;
    job->train.accumulate = 1;
    job->autodp.r = job->autodp.r > n ? FL_JOB_AUTO : job->autodp.r;
    job->pipe.m = job->pipe.m * (job->autodp.r == FL_JOB_AUTO ? 1 : job->autodp.r) > n
                      ? FL_JOB_AUTO
                      : job->pipe.m;
}

static fl_status view_samples(const fl_use_request *r, fl_use *use)
{
    int64_t *ids = NULL, n = use->whole.ops->count(use->whole.self, use->split);
    FL_TRY(fl_alloc_array((size_t)n + 1, sizeof *ids, (void **)&ids));
    fl_status status = list_samples(use, r->split, ids, &n);
    if (status == FL_OK) {
        status = fl_use_view_create(&use->whole, use->split, ids, n, &use->samples);
    }
    if (status == FL_OK) {
        fit_batch(&use->job, n);
    }
    fl_free(ids);
    return status;
}

/* ---- ⑤ ---- */

static void forget_training(fl_job *job)
{
    fl_job none;
    fl_job_defaults(&none);
    job->freeze = none.freeze;
    job->cache = none.cache;
    job->cache.policy = FL_CACHE_OFF;
    job->trace = none.trace;
    job->control = none.control;
    job->devices.max = FL_JOB_AUTO;
    job->elastic.enabled = false;
    job->elastic.n_script = 0;
    job->fault.on_loss = FL_ON_LOSS_STOP;
    job->pipe.tune = false;
    job->run.save_model = false;
    job->model.init[0] = job->model.init_allow[0] = '\0';
    job->data.augment = FL_AUGMENT_NONE;
    job->data.samples = 0;
    job->data.validation = (fl_span){0};
    job->train.epochs = 1;
    job->train.max_steps = 1;
    job->train.evaluate = true; /* the pass is one evaluation */
    job->train.evaluate_every = none.train.evaluate_every;
    job->train.evaluate_samples = 0;
    job->train.stop_after = none.train.stop_after;
    job->train.metric[0] = '\0';
    job->train.hash_weights = 0;
}

static fl_status open_use(const fl_use_request *r, fl_use *use)
{
    FL_TRY(load_job(r, use));
    fl_status status = fl__saved_build(r, use);
    if (status == FL_OK) {
        status = view_samples(r, use);
    }
    FL_TRY(fl_job_locate(&use->job, status));
    forget_training(&use->job);
    return FL_OK;
}

fl_status fl_use_open(const fl_use_request *request, fl_use *out)
{
    *out = (fl_use){.split = request->split == FL_USE_TEST ? FL_TEST : FL_TRAIN};
    FL_TRY(fl_saved_model_open(request->model, request->checkpoint, &out->saved, &out->weights));
    if (out->saved.config[0] != '\0') {
        FL_TRY(fl_model_config_read(out->saved.config, &out->config));
    }
    return open_use(request, out);
}

void fl_use_fini(fl_use *use)
{
    fl_dataset_destroy(&use->samples);
    fl_dataset_destroy(&use->whole);
    fl_model_destroy(&use->model);
    fl_model_config_fini(&use->config);
    fl_safetensors_close(&use->weights);
}
