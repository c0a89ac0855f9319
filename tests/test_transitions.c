/* A run that changes plans follows, step by step, the run on one worker with the same frost line.
 * Transitions are drawn at random (F, K, R, M, up and down, in the middle of epochs), with dropout
 * and augmentation on. A moment tensor lost on the way, a sample used twice or a batch computed
 * under two plans would each show here. */
#include "autodp/ledger.h"
#include "device/alloc.h"
#include "launcher/run.h"
#include "support/toy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_SAMPLES = 403, BATCH = 10, EPOCHS = 6, STEPS = 246, BLOCKS = 4, TRANSITIONS = 12 };

static void must(fl_status status)
{
    if (status != FL_OK) {
        fprintf(stderr, "%s: %s\n", fl_status_text(status), fl_errmsg());
        _exit(9);
    }
}

static void set(fl_job *job, const char *path, int value)
{
    char text[32];
    snprintf(text, sizeof text, "%d", value);
    must(fl_job_set(job, path, text));
}

/* In a child: the head of one run. */
static void run(const char *dir, int workers, int k, int r, int m, const fl_script_entry *script,
                int n_script)
{
    fl_job job;
    fl_model *model = NULL;
    fl_dataset data;
    fl_job_defaults(&job);
    set(&job, "pipe.k", k);
    set(&job, "autodp.r", r);
    set(&job, "pipe.m", m);
    set(&job, "devices.count", workers);
    set(&job, "train.batch", BATCH);
    set(&job, "train.epochs", EPOCHS);
    must(fl_job_set(&job, "autodp.bucket", "16KiB"));
    must(fl_job_set(&job, "train.lr", "1e-4"));
    must(fl_job_set(&job, "train.evaluate", "false"));
    memcpy(job.elastic.script, script, (size_t)n_script * sizeof *script);
    job.elastic.n_script = n_script;
    must(fl_toy_dataset(N_SAMPLES, &data));
    must(fl_toy_model(BLOCKS, 0.1f, &model));
    must(fl_run_in(model, &data, &job, dir, NULL));
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
}

static void run_apart(const char *dir, int workers, int k, int r, int m,
                      const fl_script_entry *script, int n_script)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        run(dir, workers, k, r, m, script, n_script);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    fl_script_entry script[] = {{20, 0, 2, 1, 2},  {40, 0, 1, 3, 1}, {60, 1, 2, 2, 2},
                                {80, 2, 3, 1, 4},  {100, 1, 1, 4, 1}, {120, 0, 4, 1, 4},
                                {140, 2, 1, 2, 2}, {160, 3, 2, 2, 1}, {180, 0, 1, 1, 1},
                                {200, 0, 3, 1, 3}};
    fl_script_entry alone[sizeof script / sizeof *script];
    run_apart("/tmp/et/a", 4, 1, 1, 1, script, 10);
    memcpy(alone, script, sizeof script);
    for (int i = 0; i < 10; i++) {
        alone[i].k = alone[i].r = alone[i].m = 1;
    }
    run_apart("/tmp/et/b", 1, 1, 1, 1, alone, 10);
    return 0;
}
