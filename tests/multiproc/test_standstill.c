/* A worker that stops, or hangs, in a known operation: the run's message and its events name the
 * worker and the operation, and who waited for it where. */
#include "device/clock.h"
#include "device/flight.h"
#include "launcher/run/run.h"
#include "support/lines.h"
#include "support/runs.h"
#include "support/toy.h"

#include <cjson/cJSON.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATIENCE_MS = 60000, AT_STEP = 5 };

typedef struct scenario {
    int K, R;
    int who;
    fl_flight_kind kind; /* of the operation */
    bool hang;           /* its link goes on; else the process is stopped */
    fl_script_entry script;
    const char *deadline;
} scenario;

typedef struct outcome {
    fl_status status;
    char message[4096];
} outcome;

static const scenario *now; /* in a head and its workers */

void fl__flight_point(fl_flight_kind kind, int rank, int64_t step)
{
    if (now == NULL || rank != now->who || kind != now->kind || step < AT_STEP) {
        return;
    }
    if (!now->hang) {
        raise(SIGSTOP);
    }
    for (;;) {
        pause();
    }
}

static _Noreturn void be_head(const scenario *s, const char *dir, outcome *out)
{
    fl_job job;
    fl_model *model = NULL;
    fl_dataset data;
    now = s;
    hush();
    fl_job_defaults(&job);
    set(&job, "pipe.k", s->K);
    set(&job, "autodp.r", s->R);
    set(&job, "pipe.m", 2);
    set(&job, "devices.count", 3);
    set(&job, "train.batch", 12);
    set(&job, "train.epochs", 2);
    must(fl_job_set(&job, "train.evaluate", "false"));
    must(fl_job_set(&job, "fault.detect", "2s"));
    must(fl_job_set(&job, "fault.deadline", s->deadline));
    job.elastic.script[0] = s->script;
    job.elastic.n_script = s->script.step > 0;
    must(fl_toy_dataset(204, &data));
    must(fl_toy_model(4, 0.0f, &model));
    out->status = fl_run_in(model, &data, &job, dir, NULL);
    snprintf(out->message, sizeof out->message, "%s", fl_errmsg());
    _exit(0);
}

/* Run it to its end; the first line of the message into *out. */
static void run(const scenario *s, const char *dir, outcome *out)
{
    void *page = mmap(NULL, sizeof *out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int ends[2], status = 0;
    assert_true(page != MAP_FAILED);
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t head = fork();
    assert_true(head >= 0);
    if (head == 0) {
        close(ends[0]);
        be_head(s, dir, page);
    }
    close(ends[1]);
    struct pollfd end = {.fd = ends[0], .events = POLLIN};
    if (poll(&end, 1, PATIENCE_MS) != 1) {
        kill(head, SIGKILL); /* its workers die with it */
        fail_msg("the run hangs");
    }
    assert_int_equal(waitpid(head, &status, 0), head);
    close(ends[0]);
    assert_int_equal(status, 0);
    memcpy(out, page, sizeof *out);
    munmap(page, sizeof *out);
}

static cJSON *lost_event(const char *dir)
{
    cJSON *lines = lines_with(dir, "events.jsonl", "\"worker.lost\"");
    cJSON *found = cJSON_DetachItemFromArray(lines, 0);
    cJSON_Delete(lines);
    assert_non_null(found);
    return found;
}

/* flight.json shows the worker in that very operation. */
static void check_file(const char *dir, const scenario *s)
{
    char path[200];
    static char text[1 << 20];
    snprintf(path, sizeof path, "%s/flight.json", dir);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    cJSON *all = cJSON_Parse(text);
    assert_non_null(all);
    const cJSON *worker = cJSON_GetArrayItem(cJSON_GetObjectItem(all, "workers"), s->who);
    const cJSON *main = cJSON_GetArrayItem(cJSON_GetObjectItem(worker, "threads"), 0);
    const cJSON *inside = cJSON_GetObjectItem(main, "inside");
    const cJSON *at = cJSON_GetArrayItem(inside, cJSON_GetArraySize(inside) - 1);
    assert_string_equal(cJSON_GetObjectItem(at, "operation")->valuestring, fl_flight_text(s->kind));
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(main, "recent")), 16);
    cJSON_Delete(all);
}

/* The line names the worker and what it is in, and those who wait for it. */
static void check(const scenario *s, const char *name, const char *is_in, const char *waits)
{
    char dir[128];
    outcome out;
    snprintf(dir, sizeof dir, "%s/%s", root, name);
    run(s, dir, &out);
    char *end = strchr(out.message, '\n');
    if (end != NULL) {
        *end = 0;
    }
    print_message("%s\n", out.message);
    assert_int_equal(out.status, FL_EFAILED);
    assert_non_null(strstr(out.message, is_in));
    assert_non_null(strstr(out.message, waits));
    cJSON *event = lost_event(dir);
    assert_int_equal(cJSON_GetObjectItem(event, "rank")->valueint, s->who);
    const char *line = cJSON_GetObjectItem(event, "waits")->valuestring;
    assert_non_null(strstr(line, is_in));
    assert_non_null(strstr(line, waits));
    assert_null(strchr(line, '\n'));
    cJSON_Delete(event);
    check_file(dir, s);
}

/* Would catch: a worker that stops in a receive and is only called silent. */
static void test_standstill__stopped_in_a_receive(void **state)
{
    (void)state;
    scenario s = {.K = 2, .R = 1, .who = 1, .kind = FL_FLIGHT_RECEIVE, .deadline = "600s"};
    check(&s, "receive", "worker 1 is in receive of activations from worker 0 (step 5",
          "worker 0 waits for worker 1 in receive of gradients (step 5");
}

static void test_standstill__stopped_in_an_all_reduce(void **state)
{
    (void)state;
    scenario s = {.K = 1, .R = 2, .who = 1, .kind = FL_FLIGHT_REDUCE_WAIT, .deadline = "600s"};
    /* Worker 1's other threads go on until all are stopped: worker 0 may have got all that it needs
     * of the all-reduce, and then waits in the sum behind it. */
    check(&s, "reduce", "worker 1 is in all-reduce (step 5", "worker 0 waits for worker 1, which ");
}

/* The vote, and state on its way, of a transition from two stages to three. */
static void test_standstill__stopped_in_a_transition(void **state)
{
    (void)state;
    scenario s = {.K = 2,
                  .R = 1,
                  .who = 1,
                  .kind = FL_FLIGHT_VOTE,
                  .deadline = "600s",
                  .script = {.step = 8, .f = -1, .k = 3, .r = 1, .m = 2}};
    check(&s, "vote", "worker 1 is in transition: vote (before step",
          "workers 0 and 2 wait for worker 1, which never arrived, in gathering (transition: "
          "vote");
    s.kind = FL_FLIGHT_STATE_OUT;
    s.who = 0;
    check(&s, "state", "worker 0 is in send of state to worker", "worker");
}

/* Its heart beats and it does not go on: a deadline between workers ends the run, and the line
 * tells what nobody came back from. */
static void test_standstill__a_deadline_passes(void **state)
{
    (void)state;
    scenario s = {
        .K = 2, .R = 1, .who = 0, .kind = FL_FLIGHT_BACKWARD, .hang = true, .deadline = "2s"};
    check(&s, "deadline", "worker 0 is in backward of layer", "worker 1 waits for worker 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_standstill__stopped_in_a_receive),
        cmocka_unit_test(test_standstill__stopped_in_an_all_reduce),
        cmocka_unit_test(test_standstill__stopped_in_a_transition),
        cmocka_unit_test(test_standstill__a_deadline_passes),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
