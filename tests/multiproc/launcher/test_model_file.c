/* A run leaves the weights that it trained, and another one begins with them. Would catch: a layer
 * that is missing or was written by nobody, also of a frozen block or after the plan changed; a
 * file that appears although the run failed; weights that are drawn although a file gives them. */
#include "nn/model.h"
#include "nn/safetensors/safetensors.h"
#include "support/data/toy.h"
#include "support/lines.h"
#include "support/runs/scenario.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define PLAN(k, r, m) "pipe.k", k, "autodp.r", r, "pipe.m", m
#define BASE "train.batch", "10", "train.lr", "3e-3", "devices.count", "2", "train.epochs", "8"

enum { N_SAMPLES = 120 };

static bool is_there(const char *dir, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

/* Test loss and accuracy after the last step. */
static void last_evaluation(const scenario *s, double *loss, double *accuracy)
{
    json_t *all = lines_with(s->dir, "events.jsonl", "\"evaluation\"");
    const json_t *last = json_array_get(all, json_array_size(all) - 1);
    *loss = json_number_value(json_object_get(last, "test_loss"));
    *accuracy = json_number_value(json_object_get(last, "test_accuracy"));
    json_decref(all);
}

/* Every parameter is there, in its shape, and none is what it began with: all are trained. */
static void check_file(const scenario *s)
{
    char path[192], name[160];
    fl_model *model = NULL;
    fl_safetensors *file = NULL;
    int n = 0;
    snprintf(path, sizeof path, "%s/model", s->dir);
    assert_int_equal(fl_toy_model(4, 0.0f, &model), FL_OK);
    assert_int_equal(fl_safetensors_open(path, &file), FL_OK);
    for (int layer = 0; layer < fl_model_n_layers(model); layer++) {
        const fl_param_list *list = fl_model_params(model, layer);
        for (int i = 0; i < list->n; i++, n++) {
            const fl_param_spec *spec = &list->spec[i];
            float *start = calloc((size_t)(spec->rows * spec->cols), sizeof *start);
            float *end = calloc((size_t)(spec->rows * spec->cols), sizeof *end);
            snprintf(name, sizeof name, "%s.%s", fl_model_layer_name(model, layer), spec->name);
            const fl_st_tensor *t = fl_safetensors_find(file, name);
            assert_non_null(t);
            assert_int_equal(t->n_elements, spec->rows * spec->cols);
            assert_int_equal(fl_safetensors_read(file, t, 0, t->n_elements, end), FL_OK);
            fl_param_init(spec, 1, layer, i, start);
            for (int64_t e = 0; e < t->n_elements; e++) {
                assert_true(isfinite(end[e]));
            }
            assert_true(memcmp(start, end, (size_t)t->n_elements * sizeof *end) != 0);
            free(start);
            free(end);
        }
    }
    assert_int_equal(fl_safetensors_n(file), n);
    assert_int_equal(count_events(s->dir, "model.saved", ""), 1);
    assert_false(is_there(s->dir, "model/model.safetensors.part"));
    fl_safetensors_close(&file);
    fl_model_destroy(&model);
}

/* Begin with the weights of `from` under another plan, train next to nothing, and evaluate. */
static void check_continues(const scenario *from, const char *name, const char *const *plan)
{
    double loss, accuracy, again, accuracy_again;
    scenario s = {
        .name = name,
        .sets = plan,
        .more = JOB_SETS("model.init", from->dir, "train.lr", "1e-12", "train.max_steps", "1"),
        .n_samples = N_SAMPLES};
    scenario_run(&s);
    last_evaluation(from, &loss, &accuracy);
    last_evaluation(&s, &again, &accuracy_again);
    assert_true(fabs(loss - again) < 1e-5 * loss);
    assert_true(accuracy == accuracy_again);
    assert_true(loss < 1.2); /* drawn weights give ln 4 = 1.39 */
    scenario_forget(&s);
}

static void test_model_file__holds_what_was_trained(void **state)
{
    (void)state;
    scenario s = {
        .name = "stages", .sets = JOB_SETS(BASE, PLAN("2", "1", "2")), .n_samples = N_SAMPLES};
    scenario_start(&s);
    scenario_wait(&s);
    check_file(&s);
    check_continues(&s, "stages-again", JOB_SETS(BASE, PLAN("1", "2", "1")));
    scenario_forget(&s);
}

/* Two blocks frozen and a change of plan on the way; the layers then belong to other workers. */
static void test_model_file__holds_frozen_layers_after_a_transition(void **state)
{
    (void)state;
    const fl_script_entry script[] = {{.step = 8, .f = 2, .k = 1, .r = 2, .m = 1}};
    scenario s = {.name = "frozen",
                  .sets = JOB_SETS(BASE, PLAN("2", "1", "2")),
                  .script = script,
                  .n_script = 1,
                  .n_samples = N_SAMPLES};
    scenario_start(&s);
    scenario_wait(&s);
    check_file(&s);
    check_continues(&s, "frozen-again", JOB_SETS(BASE, PLAN("2", "1", "4")));
    scenario_forget(&s);
}

static void test_model_file__is_left_by_a_run_that_is_stopped(void **state)
{
    (void)state;
    scenario s = {.name = "stopped",
                  .sets = JOB_SETS(BASE, PLAN("1", "2", "1")),
                  .more = JOB_SETS("train.epochs", "9000"),
                  .n_samples = N_SAMPLES,
                  .at = {{.point = "step", .who = 0, .step = 20, .act = interrupt_the_run}}};
    scenario_start(&s);
    expect_end(&s, FL_ESTOPPED);
    check_file(&s);
    scenario_forget(&s);
}

static void test_model_file__is_not_left_by_a_run_that_fails(void **state)
{
    (void)state;
    scenario s = {.name = "killed",
                  .sets = JOB_SETS(BASE, PLAN("2", "1", "1")),
                  .n_samples = N_SAMPLES,
                  .at = {{.point = "step", .who = 1, .step = 5, .act = kill_this_worker}}};
    scenario_start(&s);
    expect_lost(&s, 1, "was killed by signal 9");
    assert_false(is_there(s.dir, "model/model.safetensors"));
    assert_false(is_there(s.dir, "model/model.safetensors.part"));
    assert_int_equal(count_events(s.dir, "model.saved", ""), 0);
    scenario_forget(&s);
}

static void test_model_file__is_not_made_unless_wanted(void **state)
{
    (void)state;
    scenario s = {.name = "none",
                  .sets = JOB_SETS(BASE, PLAN("1", "1", "1")),
                  .more = JOB_SETS("run.save_model", "false"),
                  .n_samples = N_SAMPLES};
    scenario_run(&s);
    assert_false(is_there(s.dir, "model"));
    scenario_forget(&s);
}

/* A disk without room for the model is noticed before the first step. */
static fl_status limit_files(fl_job *job, fl_model **model, fl_dataset *data)
{
    (void)job;
    (void)model;
    (void)data;
    signal(SIGXFSZ, SIG_IGN);
    return setrlimit(RLIMIT_FSIZE, &(struct rlimit){16 * 1024, 16 * 1024}) == 0 ? FL_OK
                                                                                : FL_EINTERNAL;
}

static void test_model_file__needs_its_room_from_the_start(void **state)
{
    (void)state;
    scenario s = {.name = "full",
                  .sets = JOB_SETS(BASE, PLAN("1", "1", "1")),
                  .n_samples = N_SAMPLES,
                  .adjust = limit_files};
    scenario_start(&s);
    expect_end(&s, FL_EIO);
    assert_non_null(strstr(s.outcome->message, "model/model.safetensors.part: no room for"));
    assert_false(is_there(s.dir, "job.yaml"));
    assert_false(is_there(s.dir, "model"));
    scenario_forget(&s);
}

/* A file of the user's own is not replaced, and a name that is taken is not noticed at the end. */
static void test_model_file__refuses_a_name_that_is_taken(void **state)
{
    (void)state;
    char path[256];
    scenario s = {
        .name = "taken", .sets = JOB_SETS(BASE, PLAN("1", "1", "1")), .n_samples = N_SAMPLES};
    snprintf(path, sizeof path, "%s/%s", root, s.name);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/%s/model", root, s.name);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/%s/model/model.safetensors", root, s.name);
    assert_int_equal(mkdir(path, 0700), 0);
    scenario_start(&s);
    expect_end(&s, FL_EIO);
    assert_non_null(strstr(s.outcome->message, "model/model.safetensors is there already"));
    assert_false(is_there(s.dir, "job.yaml"));
    scenario_forget(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model_file__holds_what_was_trained),
        cmocka_unit_test(test_model_file__holds_frozen_layers_after_a_transition),
        cmocka_unit_test(test_model_file__is_left_by_a_run_that_is_stopped),
        cmocka_unit_test(test_model_file__is_not_left_by_a_run_that_fails),
        cmocka_unit_test(test_model_file__is_not_made_unless_wanted),
        cmocka_unit_test(test_model_file__needs_its_room_from_the_start),
        cmocka_unit_test(test_model_file__refuses_a_name_that_is_taken),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
