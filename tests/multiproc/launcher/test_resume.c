/* Interrupted runs that continue: on the same plan they are the uninterrupted run to the last bit,
 * on another one they agree with it; nothing is used twice or left out. */
#include "control/checkpoint/manifest/manifest.h"
#include "launcher/run/plan/resume.h"
#include "support/data/toy.h"
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs/scenario.h"
#include "support/shell.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_SAMPLES = 203, PER_EPOCH = 21, EPOCHS = 4, STEPS = EPOCHS * PER_EPOCH, LINE_BYTES = 1024 };

/* It freezes by the norms of its gradients, at the end of each epoch from the second on. A step
 * accumulates two batches. */
#define JOB_FIELDS                                                                                 \
    "devices.count", "2", "pipe.k", "1", "autodp.r", "2", "pipe.m", "2", "train.batch", "5",       \
        "train.accumulate", "2", "train.epochs", "4", "train.lr", "1e-3", "train.evaluate",        \
        "true", "freeze.policy", "gradnorm", "freeze.start", "1", "freeze.every", "1",             \
        "freeze.keep", "1", "pipe.tune", "false", "freeze.must_pay", "false",                      \
        "train.hash_weights", "5", "checkpoint.every", "8 steps"

static const char *const fields[] = {JOB_FIELDS, NULL};
static const fl_script_entry script[] = {{.step = 30, .f = 2, .k = 2, .r = 1, .m = 2},
                                         {.step = 60, .f = 3, .k = 1, .r = 2, .m = 2},
                                         {.step = 75, .f = 0, .k = 2, .r = 1, .m = 3}};
static const char *const scripted_fields[] = {JOB_FIELDS, "freeze.policy", "none", NULL};

/* Steps that last long enough for some checkpoints to become durable while the run trains. */
static void take_time(const char *point, fl_worker_state *w)
{
    if (strcmp(point, "step") == 0 && w->rank == 0) {
        nap(3000);
    }
}

static scenario of(const char *name, bool scripted)
{
    return (scenario){.name = name,
                      .sets = scripted ? scripted_fields : fields,
                      .script = scripted ? script : NULL,
                      .n_script = scripted ? 3 : 0,
                      .n_samples = N_SAMPLES,
                      .dropout = 0.1f,
                      .at_point = take_time};
}

/* The worker holds until a checkpoint is durable: without one, there is nothing to resume. */
static void await_checkpoint(const fl_worker_state *w)
{
    bool any = false;
    while (!any) {
        int fd = openat(w->c->dir_fd, FL_CHECKPOINT_FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        if (dir == NULL) {
            abort(); /* in a worker: the run fails, and the test with it */
        }
        for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
            char manifest[300];
            snprintf(manifest, sizeof manifest, "%s/" FL_CHECKPOINT_MANIFEST, e->d_name);
            any = any || faccessat(fd, manifest, F_OK, 0) == 0;
        }
        closedir(dir);
        nap(1000);
    }
}

static void behead_saved(fl_worker_state *w)
{
    await_checkpoint(w);
    kill_the_controller(w);
}

static void kill_saved(fl_worker_state *w)
{
    await_checkpoint(w);
    kill_this_worker(w);
}

static void terminate_saved(fl_worker_state *w)
{
    await_checkpoint(w);
    stop_after_step(w, SIGTERM);
}

static void interrupt_saved(fl_worker_state *w)
{
    await_checkpoint(w);
    interrupt_after_step(w);
}

static scenario whole; /* the run without interruption */

static int run_whole(void **state)
{
    make_root(state);
    whole = of("whole", false);
    scenario_run(&whole);
    return 0;
}

/* ---- comparing ---- */

/* All that a step computed and under which plan. Its time and the number of the generation, which
 * counts plans that were only prepared, too, are cut away. */
static void read_line(FILE *file, char line[LINE_BYTES])
{
    assert_non_null(fgets(line, LINE_BYTES, file));
    char *ms = strstr(line, ", \"ms\""), *generation = strstr(line, "\"generation\"");
    assert_true(ms != NULL && generation != NULL);
    *ms = 0;
    char *rest = strchr(generation, ',');
    assert_non_null(rest);
    memmove(generation, rest + 2, strlen(rest + 2) + 1);
}

static FILE *open_in(const scenario *s, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", s->dir, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fail_msg("%s is missing", path);
    }
    return file;
}

static void check_same_steps(const scenario *a, const scenario *b)
{
    char x[LINE_BYTES], y[LINE_BYTES];
    FILE *first = open_in(a, "steps.jsonl"), *second = open_in(b, "steps.jsonl");
    for (int step = 0; step < STEPS; step++) {
        read_line(first, x);
        read_line(second, y);
        assert_string_equal(x, y);
    }
    assert_null(fgets(y, LINE_BYTES, second));
    fclose(first);
    fclose(second);
}

static void check_same_weights(const scenario *a, const scenario *b)
{
    enum { BYTES = 1 << 20 };
    char *x = malloc(BYTES), *y = malloc(BYTES);
    FILE *first = open_in(a, "model/model.safetensors");
    FILE *second = open_in(b, "model/model.safetensors");
    size_t n = fread(x, 1, BYTES, first);
    assert_true(n > 1000 && n < BYTES);
    assert_int_equal(fread(y, 1, BYTES, second), n);
    assert_memory_equal(x, y, n);
    fclose(first);
    fclose(second);
    free(x);
    free(y);
}

static void check_hashes(const scenario *uninterrupted, const scenario *s)
{
    json_t *a = lines_with(uninterrupted->dir, "weights.jsonl", ""), *b, *line;
    b = lines_with(s->dir, "weights.jsonl", "");
    assert_int_equal(length(b), length(a));
    FOR_EACH(line, b)
    {
        char *text = json_dumps(line, 0);
        json_t *other;
        bool found = false;
        FOR_EACH(other, a)
        {
            found = found || json_equal(line, other);
        }
        if (!found) {
            fail_msg("other weights: %s", text);
        }
        free(text);
    }
    json_decref(a);
    json_decref(b);
}

static void check_equal(const scenario *uninterrupted, const scenario *s)
{
    check_same_steps(uninterrupted, s);
    check_hashes(uninterrupted, s);
    check_same_weights(uninterrupted, s);
    check_exactly_once(s->dir, EPOCHS, N_SAMPLES);
}

/* The event of the last resume. */
static json_t *resumed(const scenario *s)
{
    json_t *all = lines_with(s->dir, "events.jsonl", "\"run.resumed\"");
    assert_true(length(all) > 0);
    json_t *event = json_incref(json_array_get(all, (size_t)length(all) - 1));
    json_decref(all);
    return event;
}

/* ---- on the same plan ---- */

static const struct {
    const char *name, *point;
    int who;
    int64_t step;
    void (*act)(fl_worker_state *w);
    fl_status status; /* FL_OK: the controller was killed */
    const char *ended;
} stops[] = {
    {"controller", "step", 0, 37, behead_saved, FL_OK, "lost"},
    {"soon", "step", 1, 33, behead_saved, FL_OK, "lost"}, /* the checkpoint is being written */
    {"decided", "prepare", 0, 0, behead_saved, FL_OK, "lost"},
    {"worker", "step", 1, 64, kill_saved, FL_EFAILED, "failed"},
    {"term", "step", EVERYBODY, 50, terminate_saved, FL_ESTOPPED, "stopped"},
    {"int", "step", EVERYBODY, 71, interrupt_saved, FL_ESTOPPED, "stopped"},
};

static void stop_and_resume(const scenario *uninterrupted, bool scripted, size_t i)
{
    char name[32];
    snprintf(name, sizeof name, "%s%s", stops[i].name, scripted ? "-script" : "");
    scenario s = of(name, scripted);
    s.at[0] = (scenario_deed){
        .point = stops[i].point, .who = stops[i].who, .step = stops[i].step, .act = stops[i].act};
    scenario_start(&s);
    if (stops[i].status == FL_OK) {
        expect_beheaded(&s);
    } else {
        expect_end(&s, stops[i].status);
    }
    scenario_forget(&s);
    s.at[0] = (scenario_deed){0};
    s.resumes = true;
    scenario_run(&s);
    check_equal(uninterrupted, &s);
    json_t *event = resumed(&s);
    assert_string_equal(json_string_value(json_object_get(event, "ended")), stops[i].ended);
    assert_true(number(event, "step") > 0 && number(event, "step") < STEPS);
    assert_int_equal(length(json_object_get(event, "refused")), 0);
    json_decref(event);
}

static void test_resume__is_the_whole_run_to_the_last_bit(void **state)
{
    (void)state;
    assert_true(count_events(whole.dir, "transition.done", "") > 1);
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        stop_and_resume(&whole, false, i);
    }
}

static void test_resume__repeats_what_a_script_decides(void **state)
{
    (void)state;
    scenario whole_script = of("whole-script", true);
    scenario_run(&whole_script);
    assert_int_equal(count_events(whole_script.dir, "transition.done", ""), 3);
    stop_and_resume(&whole_script, true, 0);
    stop_and_resume(&whole_script, true, 3);
}

/* Stopped and resumed again and again: each time only some steps are gained. */
static void test_resume__can_be_interrupted_again(void **state)
{
    (void)state;
    scenario s = of("often", false);
    for (int64_t step = 25; step < STEPS; step += 27, s.resumes = true) {
        s.at[0] = (scenario_deed){.point = "step", .step = step, .act = behead_saved};
        scenario_start(&s);
        expect_beheaded(&s);
        scenario_forget(&s);
    }
    s.at[0] = (scenario_deed){0};
    scenario_run(&s);
    check_equal(&whole, &s);
}

/* ---- on another plan ---- */

/* --replay: the plan changes where the run was resumed. */
static void check_repeats(const scenario *s)
{
    scenario again = of("again", false);
    again.more = s->more;
    again.repeats = s->dir;
    scenario_run(&again);
    check_same_steps(s, &again);
}

static void test_resume__agrees_on_another_plan(void **state)
{
    (void)state;
    static const char *const others[][7] = {
        {"devices.count", "3", "autodp.r", "3", NULL},
        {"pipe.k", "2", "autodp.r", "1", NULL},
    };
    static const char *const reasons[] = {
        " is not kept, because devices.count changed; a new plan is chosen",
        " is not kept, because pipe.k changed; a new plan is chosen",
    };
    double *expected = losses_of(&whole, STEPS);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char name[16];
        snprintf(name, sizeof name, "other%zu", i);
        scenario s = of(name, false);
        s.at[0] = (scenario_deed){.point = "step", .step = 55, .act = behead_saved};
        scenario_start(&s);
        expect_beheaded(&s);
        scenario_forget(&s);
        s.at[0] = (scenario_deed){0};
        s.resumes = true;
        s.more = others[i];
        scenario_run(&s);
        json_t *event = resumed(&s);
        int from = number(event, "step");
        double *losses = losses_of(&s, STEPS);
        assert_true(worst_difference(losses, expected, 0, from) == 0.0);
        assert_true(worst_difference(losses, expected, from, from + 20) < 1e-5);
        check_exactly_once(s.dir, EPOCHS, N_SAMPLES);
        assert_int_equal(count_events(s.dir, "plan.chosen", reasons[i]), 1);
        if (i == 1) {
            check_repeats(&s);
        }
        free(losses);
        json_decref(event);
    }
    free(expected);
}

/* ---- another model ---- */

/* A program may give any model. */
static void test_resume__refuses_another_model(void **state)
{
    (void)state;
    scenario s = of("model", false);
    s.at[0] = (scenario_deed){.point = "step", .step = 40, .act = behead_saved};
    scenario_start(&s);
    expect_beheaded(&s);
    scenario_forget(&s);
    s.at[0] = (scenario_deed){0};
    s.resumes = true;
    s.blocks = 3;
    scenario_start(&s);
    expect_end(&s, FL_EINVAL);
    if (strstr(s.outcome->message, "another model: layer 7 is head of block 1000000") == NULL) {
        fail_msg("%s", s.outcome->message);
    }
    scenario_forget(&s);
    s.blocks = 4;
    scenario_run(&s); /* nothing has changed */
    check_exactly_once(s.dir, EPOCHS, N_SAMPLES);
}

/* ---- a longer run ---- */

static void test_resume__makes_a_finished_run_longer(void **state)
{
    (void)state;
    scenario s = of("longer", false);
    scenario_run(&s);
    s.resumes = true;
    scenario_start(&s);
    expect_end(&s, FL_EINVAL);
    assert_non_null(strstr(s.outcome->message, "the run has finished all of its 84 steps"));
    scenario_forget(&s);
    s.more = JOB_SETS("train.epochs", "6");
    s.at[0] = (scenario_deed){.point = "step", .who = 1, .step = 120, .act = kill_this_worker};
    scenario_start(&s);
    expect_end(&s, FL_EFAILED);
    scenario_forget(&s);
    char left[256];
    snprintf(left, sizeof left, "%s/model/model.safetensors", s.dir);
    assert_int_equal(access(left, F_OK), -1); /* the weights from before are not its newest */
    s.at[0] = (scenario_deed){0};
    s.more = JOB_SETS("train.epochs", "3");
    scenario_start(&s);
    expect_end(&s, FL_EINVAL);
    assert_non_null(strstr(s.outcome->message, "give 63 steps, allowed: at least the "));
    scenario_forget(&s);
    s.more = JOB_SETS("train.epochs", "6");
    scenario_run(&s);
    check_exactly_once(s.dir, 6, N_SAMPLES);
    json_t *event = resumed(&s);
    assert_true(number(event, "step") >= STEPS);
    assert_int_equal(length(json_object_get(event, "changed")), 0);
    json_decref(event);
    fl_run_entry *entry = calloc(1, sizeof *entry);
    assert_int_equal(fl_run_look(s.dir, entry), FL_OK);
    assert_int_equal(entry->n_steps, 6 * PER_EPOCH);
    assert_int_equal(entry->steps, 6 * PER_EPOCH);
    free(entry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume__is_the_whole_run_to_the_last_bit),
        cmocka_unit_test(test_resume__repeats_what_a_script_decides),
        cmocka_unit_test(test_resume__can_be_interrupted_again),
        cmocka_unit_test(test_resume__agrees_on_another_plan),
        cmocka_unit_test(test_resume__refuses_another_model),
        cmocka_unit_test(test_resume__makes_a_finished_run_longer),
    };
    return cmocka_run_group_tests(tests, run_whole, remove_root);
}
