#include "support/data/saved_state.h"

#include "device/random/random.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "nn/model.h"
#include "pipe/cost/plan.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

enum { WAIT_MS = 60000 };

static fl_status read_truth(void *self, int layer, int index, int part, float *host)
{
    const saved_truth *truth = self;
    const fl_param_spec *spec = &fl_model_params(truth->model, layer)->spec[index];
    uint64_t key = fl_mix64(fl_mix64((uint64_t)truth->version, (uint64_t)layer),
                            (uint64_t)(index * (1 + SAVED_MOMENTS) + part));
    for (int64_t i = 0; i < spec->rows * spec->cols; i++) {
        host[i] = fl_unit((uint32_t)fl_mix64(key, (uint64_t)i)) - 0.5f;
    }
    return FL_OK;
}

fl_state_source saved_truth_source(saved_truth *truth)
{
    return (fl_state_source){.self = truth, .read = read_truth, .has_moments = true};
}

fl_plan saved_plan(const fl_model *model, int F, int K, int R, int n_workers)
{
    fl_plan plan = {.generation = 3,
                    .F = F,
                    .K = K,
                    .R = R,
                    .M = 1,
                    .n_layers = fl_model_n_layers(model),
                    .n_workers = n_workers};
    for (int i = 0; i <= K; i++) {
        plan.first[i] = i * plan.n_layers / K;
    }
    for (int i = 0; i < K * R; i++) {
        plan.rank_of[i] = n_workers - 1 - i;
    }
    return plan;
}

/* ---- reports ---- */

static void note_file(void *context, const fl_checkpoint_file_report *report)
{
    saved_run *run = context;
    pthread_mutex_lock(&run->lock);
    run->file[run->n_files++] = *report;
    pthread_mutex_unlock(&run->lock);
}

static void note_part(void *context, const fl_checkpoint_part_report *report)
{
    saved_run *run = context;
    pthread_mutex_lock(&run->lock);
    run->part[run->n_parts++] = *report;
    pthread_mutex_unlock(&run->lock);
}

const fl_checkpoint_file_report *saved_run_file(const saved_run *run, fl_checkpoint_part part,
                                                int layer)
{
    for (int i = 0; i < run->n_files; i++) {
        if (run->file[i].part == part && run->file[i].layer == layer) {
            return &run->file[i];
        }
    }
    return NULL;
}

/* ---- workers ---- */

static void open_worker(saved_run *run, int rank, int64_t step, const fl_state_source *source)
{
    saved_worker *w = &run->worker[rank];
    fl_place place = fl_plan_place(&run->plan, rank);
    int n_frozen = fl_frozen_layers(run->model, run->plan.F);
    w->active = place.active;
    assert_int_equal(fl_parked_init(&w->parked, run->device, run->plan.n_layers), FL_OK);
    assert_int_equal(
        fl_parked_load(&w->parked, run->model, SAVED_MOMENTS, run->parked, rank, source), FL_OK);
    if (place.active) {
        int first = run->plan.first[place.stage], last = run->plan.first[place.stage + 1];
        const fl_params_options o = {.device = run->device,
                                     .model = run->model,
                                     .first = first,
                                     .last = last,
                                     .first_trainable = n_frozen < first  ? first
                                                        : n_frozen > last ? last
                                                                          : n_frozen,
                                     .n_frozen = n_frozen,
                                     .n_moments = SAVED_MOMENTS,
                                     .source = source};
        assert_int_equal(fl_params_init(&w->params, &o), FL_OK);
    }
    const fl_checkpoint_writer_options options = {.model = run->model,
                                                  .device = run->device,
                                                  .store = run->store,
                                                  .rank = rank,
                                                  .n_moments = SAVED_MOMENTS,
                                                  .on_file = note_file,
                                                  .on_part = note_part,
                                                  .context = run};
    assert_int_equal(fl_checkpoint_writer_create(&options, &w->writer), FL_OK);
    fl_checkpoint_writer_follow(w->writer, &run->plan, step);
}

void saved_run_open(saved_run *run, const fl_model *model, fl_device *device,
                    fl_checkpoint_store *store, const fl_plan *plan, int keeper, int64_t step,
                    const fl_state_source *source)
{
    memset(run, 0, sizeof *run);
    run->model = model;
    run->device = device;
    run->store = store;
    run->plan = *plan;
    pthread_mutex_init(&run->lock, NULL);
    for (int layer = 0; layer < plan->n_layers; layer++) {
        run->parked[layer] = layer < fl_frozen_layers(model, plan->F) ? keeper : -1;
    }
    for (int rank = 0; rank < plan->n_workers; rank++) {
        open_worker(run, rank, step, source);
    }
}

void saved_run_close(saved_run *run)
{
    for (int rank = 0; rank < run->plan.n_workers; rank++) {
        saved_worker *w = &run->worker[rank];
        fl_checkpoint_writer_destroy(&w->writer);
        fl_parked_fini(&w->parked);
        if (w->active) {
            fl_params_fini(&w->params);
        }
    }
    pthread_mutex_destroy(&run->lock);
}

void saved_run_save(saved_run *run, int64_t step)
{
    run->n_files = run->n_parts = 0;
    for (int rank = 0; rank < run->plan.n_workers; rank++) {
        saved_worker *w = &run->worker[rank];
        const fl_checkpoint_state state = {
            .plan = &run->plan, .params = w->active ? &w->params : NULL, .parked = &w->parked};
        assert_int_equal(fl_checkpoint_writer_begin(w->writer, &state, step, 0), FL_OK);
    }
    for (int rank = 0; rank < run->plan.n_workers; rank++) {
        assert_int_equal(
            fl_checkpoint_writer_wait(run->worker[rank].writer, fl_deadline_us(WAIT_MS)), FL_OK);
    }
    assert_int_equal(run->n_parts, run->plan.n_workers);
}

void saved_run_keep(const saved_run *run, int64_t step)
{
    for (int i = 0; i < run->n_files; i++) {
        const fl_checkpoint_file_report *file = &run->file[i];
        fl_checkpoint_kept_file *kept = fl_checkpoint_kept(run->store, file->part, file->layer);
        if (!file->linked) {
            atomic_store(&kept->bytes, file->bytes);
            atomic_store(&kept->xxh64, file->xxh64);
        }
    }
    atomic_store(run->store->kept_step, step);
}

/* ---- what is on the disk ---- */

static void check_bytes(int folder_fd, const char *name, const fl_checkpoint_file_report *report)
{
    struct stat st;
    int fd = openat(folder_fd, name, O_RDONLY);
    assert_int_equal(fstat(fd, &st), 0);
    char *bytes = malloc((size_t)st.st_size);
    assert_int_equal(read(fd, bytes, (size_t)st.st_size), st.st_size);
    if (!report->linked) {
        assert_int_equal(report->bytes, st.st_size);
        assert_true(report->xxh64 == XXH64(bytes, (size_t)st.st_size, 0));
    }
    free(bytes);
    close(fd);
}

static void check_param(const fl_state_source *saved, const fl_state_source *truth, int layer,
                        int index, int part, int64_t n)
{
    float *found = malloc((size_t)n * sizeof *found), *want = malloc((size_t)n * sizeof *want);
    if (saved->read(saved->self, layer, index, part, found) != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    assert_int_equal(truth->read(truth->self, layer, index, part, want), FL_OK);
    assert_memory_equal(found, want, (size_t)n * sizeof *want);
    free(found);
    free(want);
}

static void check_file(const saved_run *run, int folder_fd, fl_checkpoint_part part, int layer,
                       const fl_state_source *saved, const fl_state_source *truth)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    const fl_param_list *list = fl_model_params(run->model, layer);
    const fl_checkpoint_file_report *report = saved_run_file(run, part, layer);
    fl_checkpoint_file_name(part, layer, name);
    if (fl_checkpoint_writer_rank(run->model, &run->plan, run->parked, SAVED_MOMENTS, part, layer) <
        0) {
        assert_null(report);
        assert_int_equal(faccessat(folder_fd, name, F_OK, 0), -1);
        return;
    }
    assert_non_null(report);
    check_bytes(folder_fd, name, report);
    int first = part == FL_CHECKPOINT_WEIGHTS ? FL_STATE_WEIGHT : FL_STATE_MOMENT;
    int n = part == FL_CHECKPOINT_WEIGHTS ? 1 : SAVED_MOMENTS;
    for (int i = 0; i < list->n; i++) {
        for (int k = 0; k < n; k++) {
            check_param(saved, truth, layer, i, first + k, list->spec[i].rows * list->spec[i].cols);
        }
    }
}

void saved_check(const saved_run *run, int64_t step, const fl_state_source *truth)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    fl_checkpoint_source source;
    int fd = openat(run->store->dir_fd, fl_checkpoint_folder_name(step, name), O_RDONLY);
    assert_true(fd >= 0);
    fl_state_source saved = fl_checkpoint_source_open(run->model, fd, SAVED_MOMENTS, &source);
    for (int i = 0; i < run->n_parts; i++) {
        assert_string_equal(run->part[i].text, "");
        assert_int_equal(run->part[i].status, FL_OK);
        assert_int_equal(run->part[i].step, step);
        assert_int_equal(run->part[i].generation, run->plan.generation);
    }
    for (int layer = 0; layer < run->plan.n_layers; layer++) {
        for (int part = 0; part < FL_CHECKPOINT_PARTS; part++) {
            check_file(run, fd, (fl_checkpoint_part)part, layer, &saved, truth);
        }
    }
    fl_checkpoint_source_close(&source);
    close(fd);
}
