/* What the user reads. */
#include "control/events/progress.h"

#include "control/state/sums/checkpoint_sums.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static fl_run_stats stats_at(int64_t n_steps)
{
    fl_run_stats stats;
    fl_run_stats_init(&stats, 1000, 100, 40, 4, true);
    for (int64_t step = 0; step < n_steps; step++) {
        fl_step_report report = {
            .step = step, .epoch = step / 10, .loss = 2.5, .ms = 1000, .samples = 100};
        fl_run_stats_step(&stats, &report, step * 1000000);
    }
    return stats;
}

static const fl_plan plan = {.K = 2, .R = 1, .M = 8, .schedule = FL_1F1B, .n_workers = 2};

/* Would catch: a line wider than the terminal, which would scroll it at every redraw. */
static void test_progress__cuts_the_live_line_to_the_columns(void **state)
{
    (void)state;
    char text[512], whole[512];
    fl_progress progress;
    fl_run_stats stats = stats_at(13);
    fl_progress_init(&progress, stdout, &plan);
    fl_progress_text(&progress, &stats, -1, whole, sizeof whole);
    assert_string_equal(whole, "epoch 2/4  step 13/40  loss 2.5000  100 samples/s  0:27 left  "
                               "K=2 R=1 M=8");
    for (int columns = 0; columns < 120; columns++) {
        fl_progress_text(&progress, &stats, columns, text, sizeof text);
        assert_true(strlen(text) <= (size_t)columns);
        assert_memory_equal(text, whole, strlen(text));
        char next = whole[strlen(text)]; /* no part of a number is taken for one */
        assert_true(next == ' ' || next == 0 || text[0] == 0);
    }
    stats = stats_at(0);
    fl_progress_text(&progress, &stats, -1, text, sizeof text);
    assert_string_equal(text, "starting  K=2 R=1 M=8");
}

static fl_model_kind model_kind = FL_MODEL_VIT;
static int64_t hash_weights;
static int64_t newest_step = -1; /* of the runs' checkpoints in this test: -1: none */
static int64_t n_failed;         /* of them */
static const fl_recovery_sums *recovery;
static int64_t evaluated; /* steps before the last evaluation */
enum { EPOCHS = 4 };

static const fl_metric two[] = {{.name = "accuracy", .is_share = true}, {.name = "mae"}};

static const char *hosts;     /* the options that name them */
static const fl_hosts *table; /* of hosts */
static const char *run_dir = "/runs/x";

static void summary_of(const fl_run_result *result, int64_t max_steps, fl_status status, char *text,
                       size_t size)
{
    fl_job job;
    fl_job_defaults(&job);
    job.model.kind = model_kind;
    job.train.max_steps = max_steps;
    job.train.epochs = EPOCHS;
    job.train.hash_weights = hash_weights;
    job.checkpoint.every = (fl_interval){.steps = 100};
    fl_controller_options options = {.job = &job,
                                     .plan = &plan,
                                     .run_dir = run_dir,
                                     .hosts = table,
                                     .host_options = hosts,
                                     .n_steps = 40,
                                     .n_epochs = 4,
                                     .n_samples = 1000};
    FILE *file = fmemopen(text, size, "w");
    const fl_checkpoint_sums sums = {
        .any = newest_step >= 0, .last_step = newest_step, .n_failed = n_failed};
    fl_progress_end end = {.status = status,
                           .checkpoints = &sums,
                           .message = status == FL_EFAILED ? "worker 1 died" : "",
                           .ledger = "every sample of 4 epochs used once",
                           .missing = status == FL_EFAILED ? "steps.jsonl lacks 2 steps" : "",
                           .recovery = recovery,
                           .evaluated = evaluated,
                           .tuning = "M compared in 9 steps"};
    fl_progress_summary(file, &options, result, &end);
    fclose(file);
}

static void test_progress__sums_up(void **state)
{
    (void)state;
    char text[4096];
    fl_run_result result = {
        .steps = 40,
        .epochs = 4,
        .train_loss = 0.25,
        .test_loss = 0.5,
        .test_accuracy = 0.9012,
        .validation_loss = 0.75,
        .best = 0.9012,
        .best_epoch = 3,
        .n_metrics = 2,
        .metrics = {{"accuracy", true, 0.95, 0.8765, 0.9012}, {"mae", false, 0.1, 0.25, 1234.5}},
        .seconds = 4000,
        .wall_seconds = 5000,
        .samples_per_s = 812.4};
    summary_of(&result, 0, FL_OK, text, sizeof text);
    static const char *const parts[] = {"done after 40 of 40 steps",
                                        "  test accuracy  90.12 %\n",
                                        "  test mae       1234\n",
                                        "  validation     87.65 %, mae 0.25, loss 0.7500\n",
                                        "0.5000",
                                        "1:06:40 in training, 1:23:20 in total",
                                        "812 samples/s",
                                        "  best           test loss 0.9012 after epoch 3\n",
                                        "every sample of 4 epochs used once",
                                        "  tuning         M compared in 9 steps\n",
                                        "/runs/x",
                                        "  plan           K=2 stages x R=1 replica x M=8",
                                        "frostline report /runs/x\n",
                                        "frostline ledger /runs/x\n",
                                        "frostline schedule --schedule 1f1b -k 2 -m 8\n",
                                        "frostline run /runs/x/job.yaml \\\n",
                                        "    --set train.epochs=8\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strstr(text, parts[i]) == NULL) {
            fail_msg("\"%s\" is not in:\n%s", parts[i], text);
        }
    }
    for (const char *line = text; *line != 0; line += strcspn(line, "\n") + 1) {
        assert_true(strcspn(line, "\n") < 80); /* on a terminal */
    }
    assert_non_null(strstr(text, "summary.txt, worker-N.log\n"));
    hash_weights = 5;
    result = (fl_run_result){.steps = 40,
                             .test_loss = (double)NAN,
                             .test_accuracy = (double)NAN,
                             .model = "model/model.safetensors"};
    summary_of(&result, 0, FL_OK, text, sizeof text);
    assert_non_null(strstr(text, "summary.txt, worker-N.log, weights.jsonl, model/\n"));
    hash_weights = 0;
    result = (fl_run_result){.test_loss = (double)NAN, .test_accuracy = (double)NAN};
    summary_of(&result, 40, FL_ESTOPPED, text, sizeof text);
    assert_non_null(strstr(text, "stopped after 0 of 40 steps"));
    assert_null(strstr(text, "nan"));
    assert_non_null(strstr(text, "  train again    frostline run /runs/x/job.yaml\n"));
    assert_null(strstr(text, "  why"));
    assert_null(strstr(text, "  record"));
    summary_of(&result, 0, FL_EFAILED, text, sizeof text);
    assert_non_null(strstr(text, "failed after 0 of 40 steps"));
    assert_non_null(strstr(text, "  why            worker 1 died\n"));
    assert_non_null(strstr(text, "  record         INCOMPLETE: steps.jsonl lacks 2 steps\n"));
}

/* Would catch: advice to continue, although no weights are kept; a time estimate from a stopped
 * run; the advice to run the job file of a program's own model, which would train a ViT instead. */
static void test_progress__suggests_what_can_be_run(void **state)
{
    (void)state;
    char text[4096];
    const fl_run_result result = {.steps = 40, .test_accuracy = (double)NAN};
    summary_of(&result, 0, FL_OK, text, sizeof text);
    assert_non_null(strstr(text, "  train longer   from the first step, with twice the epochs:\n"));
    summary_of(&result, 40, FL_OK, text, sizeof text);
    assert_non_null(strstr(text, "  train longer   from the first step, to the end of the last "));
    assert_non_null(strstr(text, "--set train.max_steps=none\n"));
    summary_of(&result, 40, FL_ESTOPPED, text, sizeof text);
    assert_null(strstr(text, "train longer"));
    assert_null(strstr(text, "--set"));
    n_failed = 2; /* of a disk that is full: there is nothing to continue from */
    summary_of(&result, 40, FL_ESTOPPED, text, sizeof text);
    assert_non_null(strstr(text, "2 checkpoints could not be written"));
    assert_null(strstr(text, "--resume"));
    n_failed = 0;
    newest_step = 40;
    summary_of(&result, 0, FL_OK, text, sizeof text);
    assert_non_null(strstr(text, "  train longer   with twice the epochs:\n"
                                 "                 frostline run --resume /runs/x \\\n"
                                 "                     --set train.epochs=8\n"));
    summary_of(&result, 40, FL_ESTOPPED, text, sizeof text);
    assert_non_null(strstr(text, "  continue       frostline run --resume /runs/x\n"));
    hosts = " --hosts h.yaml --listen tcp://10.0.0.1:5570"; /* without them it trains alone */
    summary_of(&result, 40, FL_ESTOPPED, text, sizeof text);
    assert_non_null(strstr(text, "run --resume /runs/x --hosts h.yaml --listen "
                                 "tcp://10.0.0.1:5570\n"));
    summary_of(&result, 0, FL_OK, text, sizeof text);
    assert_non_null(strstr(text, "run --resume /runs/x --hosts h.yaml --listen "
                                 "tcp://10.0.0.1:5570 \\\n"));
    hosts = NULL;
    static const fl_hosts tasks = {.meeting = "/shared/met"}; /* srun has started them */
    table = &tasks;
    summary_of(&result, 40, FL_ESTOPPED, text, sizeof text);
    assert_non_null(strstr(text, "run --resume /runs/x\n"
                                 "                 as tasks on the same hosts (srun, mpirun)\n"));
    summary_of(&result, 0, FL_OK, text, sizeof text);
    assert_non_null(strstr(text, "--set train.epochs=8\n"
                                 "                 as tasks on the same hosts (srun, mpirun)\n"));
    table = NULL;
    newest_step = -1;
    model_kind = FL_MODEL_PROGRAM;
    summary_of(&result, 0, FL_OK, text, sizeof text);
    model_kind = FL_MODEL_VIT;
    assert_null(strstr(text, "frostline run"));
    assert_non_null(strstr(text, "  train again    start the program again\n"));
}

/* Would catch: a line that wraps on a terminal of 80 columns. */
static void test_progress__tells_an_epoch_in_one_line(void **state)
{
    (void)state;
    char text[256] = "";
    fl_progress progress;
    fl_run_stats stats = {.metrics = {two, 1}, /* as of cross-entropy */
                          .n_epochs = 14,
                          .past = {.epoch = 12,
                                   .steps = 469,
                                   .samples = 60000,
                                   .loss_sum = 469 * 0.2352,
                                   .ms = 23000,
                                   .evaluated = true,
                                   .eval = {.loss = 0.2623, .metrics = {2, {0.9068, 12.5}}}}};
    FILE *file = fmemopen(text, sizeof text, "w");
    fl_progress_init(&progress, file, &plan);
    fl_progress_epoch(&progress, &stats);
    fclose(file);
    assert_string_equal(text, "epoch 13/14  loss 0.2352, test 0.2623  accuracy 90.68 %  "
                              "2609 samples/s  23.0 s\n");
    stats.metrics.n = 2;
    stats.past.eval.step = 6097;
    file = fmemopen(text, sizeof text, "w");
    fl_progress_init(&progress, file, &plan);
    fl_progress_evaluation(&progress, &stats, &stats.past.eval);
    fclose(file);
    assert_string_equal(text, "after 6098 steps: test 0.2623  accuracy 90.68 %  mae 12.5\n");
    assert_true(strlen(text) <= 80);
}

/* The mean of an epoch of which every step was skipped was printed as "nan", and the number of
 * skipped steps nowhere. */
static void test_progress__an_epoch_shows_its_skipped_steps(void **state)
{
    (void)state;
    static const struct {
        int64_t n_skipped;
        const char *line;
    } cases[] = {
        {1, "epoch 1/2  loss 0.5000 (1 step skipped)  10 samples/s  1.0 s\n"},
        {4, "epoch 1/2  loss - (4 steps skipped)  10 samples/s  1.0 s\n"},
    };
    for (int i = 0; i < 2; i++) {
        char text[256] = "";
        fl_progress progress;
        fl_run_stats stats = {.n_epochs = 2,
                              .past = {.steps = 4,
                                       .n_skipped = cases[i].n_skipped,
                                       .samples = 10,
                                       .loss_sum = 0.5 * (double)(4 - cases[i].n_skipped),
                                       .ms = 1000}};
        FILE *file = fmemopen(text, sizeof text, "w");
        fl_progress_init(&progress, file, &plan);
        fl_progress_epoch(&progress, &stats);
        fclose(file);
        assert_string_equal(text, cases[i].line);
    }
}

/* Would catch: a part of an epoch that is shown as the whole, where train.max_steps has cut it. */
static void test_progress__an_epoch_that_was_cut_says_so(void **state)
{
    (void)state;
    char text[256] = "";
    fl_progress progress;
    fl_run_stats stats = {.n_epochs = 1,
                          .steps_per_epoch = 40,
                          .past = {.steps = 12, .samples = 120, .loss_sum = 6.0, .ms = 1000}};
    FILE *file = fmemopen(text, sizeof text, "w");
    fl_progress_init(&progress, file, &plan);
    fl_progress_epoch(&progress, &stats);
    fclose(file);
    assert_string_equal(text, "epoch 1/1 (12 of 40 steps)  loss 0.5000  120 samples/s  1.0 s\n");
}

/* Would catch: two workers that are lost, where the same one was lost twice; the accuracy of an
 * earlier step, as if it were that of the last one. */
static void test_progress__sums_up_a_run_that_was_stopped_after_losses(void **state)
{
    (void)state;
    char text[4096];
    const fl_recovery_sums losses = {
        .n_losses = 2, .n_returns = 2, .n_repeated = 30, .lost_us = 4450000};
    const fl_run_result result = {.steps = 45,
                                  .test_loss = 0.5,
                                  .test_accuracy = 0.9,
                                  .validation_loss = 0.75,
                                  .n_metrics = 1,
                                  .metrics = {{"accuracy", true, 0.9, 0.8, 0.9}}};
    recovery = &losses;
    evaluated = 40;
    summary_of(&result, 0, FL_ESTOPPED, text, sizeof text);
    assert_non_null(strstr(text, "  losses         workers lost 2 times; the run went back 2 times "
                                 "and repeated 30 steps; 4.5 s without training\n"));
    assert_non_null(strstr(text, "  test accuracy  90.00 % (after 40 steps)\n"));
    assert_non_null(strstr(text, "  test loss      0.5000 (after 40 steps)\n"));
    assert_non_null(strstr(text, "  validation     80.00 %, loss 0.7500 (after 40 steps)\n"));
    evaluated = 45;
    summary_of(&result, 0, FL_ESTOPPED, text, sizeof text);
    assert_null(strstr(text, "(after"));
    recovery = NULL;
    evaluated = 0;
}

/* Would catch: control characters, or a line for each step, in a file or pipe. */
static void test_progress__writes_plain_lines_to_a_file(void **state)
{
    (void)state;
    char text[4096] = "";
    fl_progress progress;
    fl_run_stats stats = stats_at(13);
    FILE *file = tmpfile();
    fl_progress_init(&progress, file, &plan);
    for (int i = 0; i < 1000; i++) {
        fl_progress_update(&progress, &stats);
    }
    fl_progress_note(&progress, "a %s", "note");
    fl_progress_hide(&progress);
    rewind(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    assert_string_equal(text, "a note\n");
    progress.line_us = 0; /* ten seconds have gone by since the last line */
    for (int i = 0; i < 1000; i++) {
        fl_progress_update(&progress, &stats);
    }
    rewind(file);
    memset(text, 0, sizeof text);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    assert_memory_equal(text, "a note\nepoch 2/4", 16);
    assert_ptr_equal(strchr(text + 7, '\n'), text + strlen(text) - 1);
    fclose(file);
}

/* Would catch: one line per worker at every change of plan, without new information. */
static void test_progress__tells_of_the_cache_when_it_goes_on_or_off(void **state)
{
    (void)state;
    static const struct {
        bool on, decided;
        int64_t step;
    } reports[] = {{true, false, 1}, {true, true, 2},  {true, true, 3},  {false, false, 4},
                   {true, true, 5},  {false, true, 6}, {false, true, 7}, {true, true, 8}};
    char text[4096] = "";
    fl_progress progress;
    FILE *file = tmpfile();
    fl_progress_init(&progress, file, &plan);
    for (size_t i = 0; i < sizeof reports / sizeof *reports; i++) {
        fl_cache_report report = {.step = reports[i].step,
                                  .on = reports[i].on,
                                  .decided = reports[i].decided,
                                  .read_us = 0.25,
                                  .compute_us = 112};
        fl_progress_cache(&progress, &report);
    }
    rewind(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    assert_string_equal(
        text, "after 3 steps: cache on: reading a sample takes 0.25 us, computing it 112 us\n"
              "after 7 steps: cache off: reading a sample takes 0.25 us, computing it 112 us\n"
              "after 9 steps: cache on: reading a sample takes 0.25 us, computing it 112 us\n");
    fclose(file);
}

/* Would catch: a line that is printed ten times a second, or again and again into a pipe, while the
 * run stands still. */
static void test_progress__repeats_no_line(void **state)
{
    (void)state;
    char text[1024] = "";
    fl_run_stats stats = stats_at(13);
    for (int terminal = 0; terminal < 2; terminal++) {
        fl_progress progress;
        FILE *file = fmemopen(text, sizeof text, "w");
        fl_progress_init(&progress, file, &plan);
        progress.terminal = terminal;
        for (int i = 0; i < 3; i++) {
            progress.drawn_us = progress.line_us = 0; /* it is due */
            fl_progress_update(&progress, &stats);
        }
        fclose(file);
        const char *first = strstr(text, "step 13/40");
        assert_non_null(first);
        assert_null(strstr(first + 1, "step 13/40"));
    }
}

/* A note, or a step, brings it back. */
static void test_progress__draws_the_line_again_below_a_note(void **state)
{
    (void)state;
    char text[1024] = "";
    fl_run_stats stats = stats_at(13);
    fl_progress progress;
    FILE *file = fmemopen(text, sizeof text, "w");
    fl_progress_init(&progress, file, &plan);
    progress.terminal = true;
    progress.drawn_us = 0;
    fl_progress_update(&progress, &stats);
    fl_progress_note(&progress, "a note");
    fl_progress_update(&progress, &stats);
    stats = stats_at(14);
    progress.drawn_us = 0;
    fl_progress_update(&progress, &stats);
    fclose(file);
    const char *first = strstr(text, "step 13/40"), *note = strstr(text, "a note\n");
    assert_true(first != NULL && note != NULL && first < note);
    assert_non_null(strstr(note, "step 13/40"));
    assert_non_null(strstr(note, "step 14/40"));
}

/* Would catch: a run directory whose name begins a line, or colours the terminal. */
static void test_progress__names_a_run_directory_of_any_name(void **state)
{
    (void)state;
    char text[4096];
    const fl_run_result result = {.steps = 40, .model = "model/model.safetensors"};
    run_dir = "/runs/a\n\033[31mb";
    newest_step = 40;
    summary_of(&result, 0, FL_OK, text, sizeof text);
    run_dir = "/runs/x";
    newest_step = -1;
    assert_null(strchr(text, '\033'));
    assert_non_null(strstr(text, "  run directory  $'/runs/a\\012\\033[31mb'\n"));
    assert_non_null(strstr(text, "$'/runs/a\\012\\033[31mb'/model/model.safetensors\n"));
    assert_non_null(strstr(text, "$'/runs/a\\012\\033[31mb'/checkpoints/step-000000040\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_progress__cuts_the_live_line_to_the_columns),
        cmocka_unit_test(test_progress__sums_up),
        cmocka_unit_test(test_progress__suggests_what_can_be_run),
        cmocka_unit_test(test_progress__tells_an_epoch_in_one_line),
        cmocka_unit_test(test_progress__an_epoch_shows_its_skipped_steps),
        cmocka_unit_test(test_progress__an_epoch_that_was_cut_says_so),
        cmocka_unit_test(test_progress__sums_up_a_run_that_was_stopped_after_losses),
        cmocka_unit_test(test_progress__writes_plain_lines_to_a_file),
        cmocka_unit_test(test_progress__tells_of_the_cache_when_it_goes_on_or_off),
        cmocka_unit_test(test_progress__repeats_no_line),
        cmocka_unit_test(test_progress__draws_the_line_again_below_a_note),
        cmocka_unit_test(test_progress__names_a_run_directory_of_any_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
