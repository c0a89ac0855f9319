/* The layers run in a child process, which writes its results to memory that both share. */
#include "pipe/measure/dry_run.h"

#include "device/errors/failure.h"
#include "device/system/child.h"
#include "nn/model.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

typedef struct dry_run_results {
    volatile int layer; /* whose code runs; the number of layers: the loss */
    bool done;
    fl_failure failure; /* status FL_OK: memory is valid */
    fl_layer_memory memory[FL_MAX_LAYERS];
} dry_run_results;

typedef struct dry_runner {
    const fl_model *model;
    const fl_sample_shape *sample;
    int64_t timeout_ms;
    dry_run_results *results;
} dry_runner;

static fl_status run_layers(const dry_runner *r)
{
    dry_run_results *results = r->results;
    FL_TRY(fl_model_check_watched(r->model, &r->sample->input, &results->layer));
    return fl_memory_measure_watched(r->model, r->sample, 1, results->memory, &results->layer);
}

static void run_child(void *runner)
{
    const dry_runner *r = runner;
    fl_failure_keep(&r->results->failure, run_layers(r));
    __atomic_store_n(&r->results->done, true, __ATOMIC_RELEASE);
}

static void name_layer(const dry_runner *r, char text[FL_LAYER_TEXT_MAX])
{
    int layer = r->results->layer;
    if (layer < fl_model_n_layers(r->model)) {
        fl_model_layer_text(r->model, layer, text);
    } else {
        snprintf(text, FL_LAYER_TEXT_MAX, "loss (%s)", fl_model_loss(r->model)->ops->kind);
    }
}

static fl_status judge_exit(const dry_runner *r, const fl_child_end *end)
{
    static const char when[] = "when its shape was checked and its memory counted";
    char layer[FL_LAYER_TEXT_MAX];
    if (__atomic_load_n(&r->results->done, __ATOMIC_ACQUIRE)) {
        return fl_failure_raise(&r->results->failure);
    }
    name_layer(r, layer);
    if (end->late) {
        return fl_fail(FL_EDEADLINE, "%s: it did not return within %.3g s (fault.deadline) %s",
                       layer, (double)r->timeout_ms * 1e-3, when);
    }
    if (WIFSIGNALED(end->wait_status)) {
        int number = WTERMSIG(end->wait_status);
        return fl_fail(FL_EFAILED, "%s: it was killed by signal %d (%s) %s", layer, number,
                       strsignal(number), when);
    }
    return fl_fail(FL_EFAILED, "%s: it ended the process with exit code %d %s", layer,
                   WEXITSTATUS(end->wait_status), when);
}

static fl_status run_in_child(dry_runner *r)
{
    fl_child_end end;
    FL_TRY(fl_child_run("dry run", run_child, r, r->timeout_ms, &end));
    return judge_exit(r, &end);
}

fl_status fl_dry_run_check(const fl_model *model, const fl_sample_shape *sample, int64_t timeout_ms,
                           fl_layer_memory *memory)
{
    dry_runner r = {.model = model, .sample = sample, .timeout_ms = timeout_ms};
    FL_TRY(fl_child_memory_take("dry run", sizeof *r.results, (void **)&r.results));
    fl_status status = run_in_child(&r);
    if (status == FL_OK) {
        memcpy(memory, r.results->memory, (size_t)fl_model_n_layers(model) * sizeof *memory);
    }
    fl_child_memory_give(r.results, sizeof *r.results);
    return status;
}
