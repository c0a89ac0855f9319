#include "support/runs/live_run.h"

#include "autodp/ledger.h"
#include "device/system/clock.h"
#include "launcher/run/runs/run_hold.h"
#include "support/data/toy.h"
#include "support/formats/json_schema.h"
#include "support/lines.h"
#include "support/nap.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

enum { MOST_STEPS = 20000 };

live_run live_start_again(const scenario *what)
{
    live_run run = {.scenario = *what};
    scenario_start(&run.scenario);
    run.controller = run.scenario.controller;
    snprintf(run.dir, sizeof run.dir, "%s", run.scenario.dir);
    int64_t deadline_us = fl_deadline_us(LIVE_WAIT_MS);
    while (!fl_run_is_live(run.dir)) {
        assert_true(fl_left_ms(deadline_us) > 0);
        assert_int_equal(waitpid(run.controller, NULL, WNOHANG), 0);
        nap(2000);
    }
    assert_int_equal(fl_ctl_client_open(run.dir, false, &run.ctl), FL_OK);
    return run;
}

static live_run start(const scenario *what)
{
    assert_int_equal(make_root(NULL), 0);
    return live_start_again(what);
}

live_run live_start_with(const char *const *sets, scenario_deed deed,
                         void (*at_point)(const char *point, fl_worker_state *w))
{
    return start(&(scenario){.name = "run",
                             .sets = sets,
                             .n_samples = LIVE_SAMPLES,
                             .dropout = 0.1f,
                             .at = {deed},
                             .at_point = at_point});
}

live_run live_start(const char *const *sets)
{
    return live_start_with(sets, (scenario_deed){.point = NULL}, NULL);
}

live_run live_start_ragged(const char *const *sets, ragged_length *of_sample)
{
    return start(&(scenario){.name = "run",
                             .sets = sets,
                             .n_samples = LIVE_SAMPLES,
                             .dropout = 0.1f,
                             .length = of_sample});
}

/* Every request and every reply of every test is compared with docs/control/schema.json. */
static void check_schema(const char *name, const json_t *value)
{
    static json_t *schema;
    char why[256];
    if (schema == NULL) {
        schema = json_load_file(FL_SOURCE_DIR "/docs/control/schema.json", 0, NULL);
        assert_non_null(schema);
    }
    if (!json_schema_holds(schema, name, value, why)) {
        char *text = json_dumps(value, 0);
        fail_msg("not a %s: %s: %s", name, why, text);
    }
}

json_t *live_send(live_run *run, const char *text)
{
    const char *reply = NULL;
    fl_status status = fl_ctl_client_ask(run->ctl, text, LIVE_WAIT_MS, &reply);
    if (status != FL_OK) {
        print_message("%s\n", fl_errmsg());
    }
    assert_int_equal(status, FL_OK);
    json_t *whole = json_loads(reply, 0, NULL);
    assert_non_null(whole);
    check_schema("reply", whole);
    return whole;
}

static json_t *send_command(live_run *run, const char *cmd, const char *args)
{
    char text[1024];
    snprintf(text, sizeof text, "{\"v\": 1, \"id\": \"%d\", \"cmd\": \"%s\", \"args\": %s}",
             ++run->n_asked, cmd, args);
    json_t *reply = live_send(run, text);
    if (json_is_true(json_object_get(reply, "ok"))) {
        char name[64];
        json_t *request = json_loads(text, 0, NULL);
        snprintf(name, sizeof name, "%s_request", cmd);
        check_schema(name, request);
        snprintf(name, sizeof name, "%s_result", cmd);
        check_schema(name, json_object_get(reply, "result"));
        json_decref(request);
    }
    return reply;
}

json_t *live_ask(live_run *run, const char *cmd, const char *args)
{
    json_t *reply = send_command(run, cmd, args);
    json_t *result = json_object_get(reply, "result");
    if (result == NULL) {
        char *text = json_dumps(reply, 0);
        print_message("%s %s: %s\n", cmd, args, text);
        free(text);
    }
    assert_true(json_is_true(json_object_get(reply, "ok")));
    json_incref(result);
    json_decref(reply);
    return result;
}

void live_refused(live_run *run, const char *cmd, const char *args, const char *code)
{
    json_t *reply = send_command(run, cmd, args);
    json_t *found = json_object_get(json_object_get(reply, "error"), "code");
    assert_true(json_is_false(json_object_get(reply, "ok")));
    assert_string_equal(json_string_value(found), code);
    json_decref(reply);
}

int64_t live_status(live_run *run, const char *key)
{
    json_t *status = live_ask(run, "status", "{}");
    json_t *value = json_object_get(status, key);
    assert_true(json_is_integer(value));
    int64_t number = (int64_t)json_integer_value(value);
    json_decref(status);
    return number;
}

void live_do(live_run *run, const char *cmd, const char *args)
{
    json_decref(live_ask(run, cmd, args));
}

json_t *live_step(const live_run *run, int64_t step)
{
    char path[256], line[4096];
    snprintf(path, sizeof path, "%s/steps.jsonl", run->dir);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (int64_t i = 0; i <= step; i++) {
        assert_non_null(fgets(line, sizeof line, file));
    }
    fclose(file);
    json_t *value = json_loads(line, 0, NULL);
    assert_non_null(value);
    return value;
}

void live_check_ledger(const live_run *run)
{
    char path[256];
    fl_ledger_proof proof;
    snprintf(path, sizeof path, "%s/ledger.bin", run->dir);
    assert_int_equal(fl_ledger_prove(path, &proof), FL_OK);
    assert_true(fl_ledger_is_exact(&proof));
    fl_ledger_proof_fini(&proof);
}

void live_await_step(live_run *run, int64_t step)
{
    int64_t deadline_us = fl_deadline_us(LIVE_WAIT_MS);
    while (live_status(run, "step") < step) {
        assert_true(fl_left_ms(deadline_us) > 0);
        nap(2000);
    }
}

void live_await_event(live_run *run, const char *event, int n)
{
    while (count_events(run->dir, event, "") < n) {
        live_await_step(run, live_status(run, "step") + 1);
    }
}

fl_status live_finish(live_run *run)
{
    fl_ctl_client_close(&run->ctl);
    scenario_wait(&run->scenario);
    assert_true(WIFEXITED(run->scenario.wait_status));
    assert_int_equal(WEXITSTATUS(run->scenario.wait_status), 0);
    return run->scenario.outcome->status;
}

void live_interrupt(live_run *run)
{
    assert_int_equal(kill(run->controller, SIGINT), 0);
    assert_int_equal(live_finish(run), FL_ESTOPPED);
    live_check_ledger(run);
}

double *live_take_losses(live_run *run, int n_steps)
{
    double *losses = calloc(MOST_STEPS, sizeof *losses);
    assert_non_null(losses);
    assert_in_range(fl_toy_losses(run->dir, losses, MOST_STEPS), n_steps, MOST_STEPS);
    live_clean(run);
    return losses;
}

void live_clean(live_run *run)
{
    assert_int_equal(remove_root(NULL), 0);
    run->dir[0] = '\0';
    scenario_forget(&run->scenario);
}

static json_t *worker_of(live_run *run, int rank, json_t **status)
{
    *status = live_ask(run, "status", "{}");
    return json_array_get(json_object_get(*status, "workers"), (size_t)rank);
}

pid_t live_process_of(live_run *run, int rank)
{
    json_t *status;
    pid_t pid = (pid_t)number(worker_of(run, rank, &status), "pid");
    json_decref(status);
    return pid;
}

void live_await_state(live_run *run, int rank, const char *wanted)
{
    int64_t deadline_us = fl_deadline_us(LIVE_WAIT_MS);
    bool is = false;
    while (!is) {
        json_t *status;
        const json_t *state = json_object_get(worker_of(run, rank, &status), "state");
        is = state != NULL && strcmp(json_string_value(state), wanted) == 0;
        json_decref(status);
        if (!is && fl_left_ms(deadline_us) == 0) {
            fail_msg("worker %d is not %s", rank, wanted);
        }
        nap(2000);
    }
}

int live_n_workers(live_run *run)
{
    json_t *status = live_ask(run, "status", "{}");
    int n = (int)json_array_size(json_object_get(status, "workers"));
    json_decref(status);
    return n;
}
