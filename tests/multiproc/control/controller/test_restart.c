/* A run whose lost worker had layers that no other one has goes back to its newest snapshot or
 * checkpoint by itself. Would catch: a sample that is lost or used twice on the way back, a run
 * that ends although it has a checkpoint, one that restarts for ever, and a message that hides the
 * first loss. */
#include "control/link/link_thread.h"
#include "control/socket/ctl_names.h"
#include "device/clock.h"
#include "launcher/run/runs/runs.h"
#include "nn/model.h"
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs/live_run.h"
#include "support/runs/scenario.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <zmq.h>

enum { N_SAMPLES = 100, STEPS = 30, FATAL_STEP = 13 };

static const double TOLERANCE = 1e-5;
static double *one; /* [STEPS] losses of one worker */

static const char *const *const training =
    JOB_SETS("train.batch", "10", "train.epochs", "3", "train.lr", "1e-4", "train.evaluate",
             "false", "fault.detect", "2s");

/* Once a checkpoint is durable. */
static void kill_later(fl_worker_state *w)
{
    while (atomic_load(w->c->store->kept_step) < 4) {
        nap(500);
    }
    kill_this_worker(w);
}

static void kill_once(fl_worker_state *w)
{
    if (atomic_load(&scenario_here()->outcome->n_deeds) == 1) {
        kill_later(w);
    }
}

#define STAGES                                                                                     \
    "pipe.k", "2", "autodp.r", "1", "pipe.m", "2", "devices.count", "2", "fault.on_loss", "continue"

static void start(scenario *s, const char *name, const char *const *more,
                  void (*act)(fl_worker_state *w))
{
    *s = (scenario){.name = name,
                    .sets = training,
                    .more = more,
                    .n_samples = N_SAMPLES,
                    .dropout = 0.1f,
                    .at = {{.point = "step", .who = 1, .step = FATAL_STEP, .act = act}}};
    scenario_start(s);
}

static void test_restart__goes_back_to_the_newest_checkpoint(void **state)
{
    (void)state;
    scenario s;
    start(&s, "back", JOB_SETS(STAGES, "checkpoint.every", "4 steps", "fault.snapshot", "none"),
          kill_once);
    expect_end(&s, FL_OK);
    double *losses = losses_of(&s, STEPS);
    assert_true(worst_difference(losses, one, 0, STEPS) <= TOLERANCE);
    assert_int_equal(count_events(s.dir, "\"run.resumed\"", ""), 1);
    assert_int_equal(count_events(s.dir, "\"run.finished\"", ""), 1);
    free(losses);
    scenario_forget(&s);
}

/* Once a snapshot is complete. */
static void kill_once_snapped(fl_worker_state *w)
{
    if (atomic_load(&scenario_here()->outcome->n_deeds) == 1) {
        while (count_events(scenario_here()->dir, "\"snapshot.taken\"", "") == 0) {
            nap(500);
        }
        kill_this_worker(w);
    }
}

/* place: of worker 1 when it died, as far as the plan leaves no choice. */
static void expect_return(scenario *s, const double *expected, const char *place)
{
    char lost[64];
    snprintf(lost, sizeof lost, "worker 1 (%s", place);
    expect_end(s, FL_OK);
    double *losses = losses_of(s, STEPS);
    assert_true(worst_difference(losses, expected, 0, STEPS) <= TOLERANCE);
    assert_int_equal(count_events(s->dir, "\"run.resumed\"", "the snapshot in memory"), 1);
    assert_int_equal(count_events(s->dir, "\"run.resumed\"", lost), 1);
    assert_int_equal(count_events(s->dir, "\"run.finished\"", ""), 1);
    free(losses);
    scenario_forget(s);
}

static void test_restart__goes_back_to_a_snapshot(void **state)
{
    (void)state;
    scenario s;
    start(&s, "snapshot", JOB_SETS(STAGES, "checkpoint.every", "none", "fault.snapshot", "4 steps"),
          kill_once_snapped);
    expect_return(&s, one, "stage 1");
}

/* The moments of frozen blocks, which no stage has, come from the snapshot; the blocks thaw after
 * the return. */
static void test_restart__brings_parked_moments_back(void **state)
{
    (void)state;
    const char *script = "[{step: 3, f: 2}, {step: 20, f: 0}]";
    const char *const *frozen =
        JOB_SETS("train.batch", "10", "train.epochs", "3", "train.lr", "1e-4", "train.evaluate",
                 "false", "elastic.script", script);
    double *expected = losses_of_one(frozen, N_SAMPLES, STEPS);
    scenario s;
    start(&s, "parked",
          JOB_SETS(STAGES, "checkpoint.every", "none", "fault.snapshot", "4 steps",
                   "elastic.script", script),
          kill_once_snapped);
    expect_return(&s, expected, "stage ");
    free(expected);
}

/* Until the leader has an order, which can be carried out after the next step. */
static void hold_until_asked(fl_worker_state *w)
{
    while (atomic_load(&w->link->n_commands) == 0 &&
           count_events(scenario_here()->dir, "\"snapshot.taken\"", "") == 0) {
        nap(500);
    }
}

/* The loss of a replica leaves one. Would catch: a run that waits for the usual 5 s of `auto`, or
 * for tens of steps because the new plan has done none that could be measured; meanwhile another
 * loss takes it back to its start. */
static void test_restart__takes_a_snapshot_when_one_replica_is_left(void **state)
{
    (void)state;
    scenario s = {.name = "alone",
                  .sets = training,
                  .more = JOB_SETS("pipe.k", "1", "autodp.r", "2", "pipe.m", "2", "devices.count",
                                   "2", "fault.on_loss", "continue", "fault.restarts", "0",
                                   "checkpoint.every", "none", "train.epochs", "200"),
                  .n_samples = N_SAMPLES,
                  .dropout = 0.1f,
                  .at = {{.point = "step", .who = 1, .step = 9, .act = kill_this_worker},
                         {.point = "step", .who = 0, .step = 10, .act = hold_until_asked}}};
    scenario_start(&s);
    expect_end(&s, FL_OK);
    json_t *taken = lines_with(s.dir, "events.jsonl", "\"snapshot.taken\"");
    assert_true(json_array_size(taken) > 0);
    int64_t at = json_integer_value(json_object_get(json_array_get(taken, 0), "step"));
    assert_in_range(at, 9, 13);
    json_decref(taken);
    scenario_forget(&s);
}

/* Both slots: at any time one may be about to be filled. */
static void kill_once_damaged(fl_worker_state *w)
{
    const fl_snapshot *s = w->c->snapshot;
    if (atomic_load(&scenario_here()->outcome->n_deeds) == 1) {
        while (count_events(scenario_here()->dir, "\"snapshot.taken\"", "") == 0) {
            nap(500);
        }
        s->slots[1] += 1.0f;
        s->slots[s->layer_at[fl_model_n_layers(s->model)] + 1] += 1.0f;
        kill_later(w);
    }
}

/* A damaged snapshot is no state of the run: it goes back to the checkpoint, although that is not
 * newer. */
static void test_restart__a_damaged_snapshot_is_not_used(void **state)
{
    (void)state;
    scenario s;
    start(&s, "damaged",
          JOB_SETS(STAGES, "checkpoint.every", "4 steps", "fault.snapshot", "1 steps"),
          kill_once_damaged);
    expect_end(&s, FL_OK);
    double *losses = losses_of(&s, STEPS);
    assert_true(worst_difference(losses, one, 0, STEPS) <= TOLERANCE);
    assert_int_equal(count_events(s.dir, "\"run.resumed\"", ""), 1);
    assert_int_equal(count_events(s.dir, "\"run.resumed\"", "the snapshot in memory"), 0);
    free(losses);
    scenario_forget(&s);
}

/* As on a disk that becomes full: from here on no file of the controller grows. */
static void fill_disk_once(fl_worker_state *w)
{
    const struct rlimit full = {.rlim_cur = 1, .rlim_max = RLIM_INFINITY};
    if (atomic_load(&scenario_here()->outcome->n_deeds) == 1) {
        while (atomic_load(w->c->store->kept_step) < 10) {
            nap(500);
        }
        assert_int_equal(prlimit(controller_here(), RLIMIT_FSIZE, &full, NULL), 0);
    }
}

static void free_disk_and_die(fl_worker_state *w)
{
    const struct rlimit wide = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    if (atomic_load(&scenario_here()->outcome->n_deeds) == 2) {
        assert_int_equal(prlimit(controller_here(), RLIMIT_FSIZE, &wide, NULL), 0);
        kill_this_worker(w);
    }
}

static void expect_summary(const char *dir, const char *text);

/* The files lack the steps from 15 or so on, so the snapshots after it are of no use. Would catch:
 * a return that is counted from a snapshot or from the lines that were cut, and then begins
 * further back. */
static void test_restart__a_full_disk_counts_what_is_repeated(void **state)
{
    (void)state;
    char text[128];
    scenario s = {.name = "full",
                  .sets = training,
                  .more =
                      JOB_SETS(STAGES, "checkpoint.every", "10 steps", "fault.snapshot", "1 steps"),
                  .n_samples = N_SAMPLES,
                  .dropout = 0.1f,
                  .at = {{.point = "step", .who = 1, .step = 15, .act = fill_disk_once},
                         {.point = "step", .who = 1, .step = 25, .act = free_disk_and_die}}};
    scenario_start(&s);
    expect_end(&s, FL_OK);
    double *losses = losses_of(&s, STEPS);
    assert_true(worst_difference(losses, one, 0, STEPS) <= TOLERANCE);
    free(losses);
    json_t *all = lines_with(s.dir, "events.jsonl", "\"run.resumed\"");
    const json_t *resumed = json_array_get(all, 0);
    int64_t step = json_integer_value(json_object_get(resumed, "step"));
    int64_t repeated = json_integer_value(json_object_get(resumed, "repeated_steps"));
    assert_int_equal(json_array_size(all), 1);
    assert_true(step >= 10 && step <= 16);
    assert_true(repeated >= 23 - step && repeated <= 26 - step); /* the last report may be lost */
    assert_true(repeated > json_integer_value(json_object_get(resumed, "cut_steps")));
    snprintf(text, sizeof text, "the run went back 1 time and repeated %d steps", (int)repeated);
    expect_summary(s.dir, text);
    json_decref(all);
    scenario_forget(&s);
}

/* ---- what is no checkpoint ---- */

static void put_junk_and_die(fl_worker_state *w)
{
    char command[256];
    if (count_events(scenario_here()->dir, "\"run.resumed\"", "") == 0) {
        while (atomic_load(w->c->store->kept_step) < 10) {
            nap(500);
        }
        snprintf(command, sizeof command, "mkdir %s/checkpoints/step-000000888 && touch %s%s",
                 scenario_here()->dir, scenario_here()->dir, "/checkpoints/step-000000888/mine");
        assert_int_equal(system(command), 0);
        kill_this_worker(w);
    }
}

/* From a newer checkpoint: going back cuts the events behind it. */
static void die_again(fl_worker_state *w)
{
    if (count_events(scenario_here()->dir, "\"run.resumed\"", "") == 1) {
        while (atomic_load(w->c->store->kept_step) < 20) {
            nap(500);
        }
        kill_this_worker(w);
    }
}

static fl_status catch_messages(fl_job *job, fl_model **model, fl_dataset *data)
{
    (void)job, (void)model, (void)data;
    char path[128];
    snprintf(path, sizeof path, "%s/messages", root);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    close(fd);
    return FL_OK;
}

static void expect_one_line(const char *text)
{
    char command[256];
    snprintf(command, sizeof command, "test $(grep -c '%s' %s/messages) = 1", text, root);
    if (system(command) != 0) {
        fail_msg("not once: %s", text);
    }
}

/* Would catch: the same line at each return. */
static void test_restart__tells_everything_once(void **state)
{
    (void)state;
    scenario s = {.name = "junk",
                  .sets = training,
                  .more = JOB_SETS(STAGES, "checkpoint.every", "10 steps", "fault.snapshot", "none",
                                   "trace.start", "1000", "trace.steps", "5", "devices.memory",
                                   "1000GiB"),
                  .n_samples = N_SAMPLES,
                  .dropout = 0.1f,
                  .adjust = catch_messages,
                  .at = {{.point = "step", .who = 1, .step = 12, .act = put_junk_and_die},
                         {.point = "step", .who = 1, .step = 25, .act = die_again}}};
    scenario_start(&s);
    expect_end(&s, FL_OK);
    assert_int_equal(count_events(s.dir, "\"run.resumed\"", ""), 2);
    expect_one_line("mine is no file of a checkpoint: it stays");
    expect_one_line("trace.start: step 1000 is not one of the run");
    expect_one_line("no trace: ");
    expect_one_line("devices.memory: 2 x 1e+03 GiB, ");
    scenario_forget(&s);
}

static void kill_first_time(fl_worker_state *w)
{
    if (atomic_load(&scenario_here()->outcome->n_deeds) == 1) {
        kill_this_worker(w);
    }
}

static void expect_new_start(scenario *s, const char *why)
{
    expect_end(s, FL_OK);
    double *losses = losses_of(s, STEPS);
    assert_true(worst_difference(losses, one, 0, STEPS) <= TOLERANCE);
    assert_int_equal(count_events(s->dir, "\"run.started\"", ""), 1);
    assert_int_equal(count_events(s->dir, "\"run.resumed\"", "the start of the run"), 1);
    assert_int_equal(count_events(s->dir, "\"run.resumed\"", why), 1);
    assert_int_equal(count_events(s->dir, "\"run.finished\"", ""), 1);
    check_exactly_once(s->dir, 3, N_SAMPLES);
    free(losses);
    scenario_forget(s);
}

/* Before there is any state to go back to, the run begins again: nothing of the first try stays in
 * its files. Would catch: a run that ends because it lost a worker in its first seconds. */
static void test_restart__begins_again_without_a_state(void **state)
{
    (void)state;
    scenario s;
    start(&s, "nowhere", JOB_SETS(STAGES, "checkpoint.every", "none", "fault.snapshot", "none"),
          kill_first_time);
    expect_new_start(&s, "worker 1 (stage 1 of replica 0) was killed");
}

/* The same for a worker that dies before all have started, in a plan whose workers could regroup
 * later. */
static void test_restart__begins_again_after_a_loss_at_the_start(void **state)
{
    (void)state;
    scenario s = {.name = "early",
                  .sets = training,
                  .more = JOB_SETS("pipe.k", "1", "autodp.r", "2", "pipe.m", "2", "devices.count",
                                   "2", "fault.on_loss", "continue"),
                  .n_samples = N_SAMPLES,
                  .dropout = 0.1f,
                  .at = {{.point = "begin", .who = 1, .act = kill_first_time}}};
    scenario_start(&s);
    expect_new_start(&s, "while it started");
}

/* A worker that always dies in the same step: the run begins again as often as it may. */
static void test_restart__begins_again_at_most_fault_restarts_times(void **state)
{
    (void)state;
    scenario s;
    start(&s, "always",
          JOB_SETS(STAGES, "checkpoint.every", "none", "fault.snapshot", "none", "fault.restarts",
                   "2"),
          kill_this_worker);
    expect_end(&s, FL_EFAILED);
    assert_int_equal(atomic_load(&s.outcome->n_deeds), 3);
    assert_non_null(strstr(s.outcome->message, "worker 1 (stage 1 of replica 0) was killed"));
    assert_non_null(strstr(s.outcome->message, "no other worker has the weights of"));
    scenario_forget(&s);
}

static void test_restart__gives_up_after_fault_restarts(void **state)
{
    (void)state;
    scenario s;
    start(&s, "often", JOB_SETS(STAGES, "checkpoint.every", "4 steps", "fault.restarts", "2"),
          kill_later);
    expect_end(&s, FL_EFAILED);
    assert_int_equal(atomic_load(&s.outcome->n_deeds), 3);
    assert_non_null(strstr(s.outcome->message, "worker 1 (stage 1 of replica 0) was killed"));
    assert_non_null(strstr(s.outcome->message, "it went back 2 times without reaching"));
    assert_non_null(strstr(s.outcome->message, "`frostline run --resume "));
    assert_int_equal(count_events(s.dir, "\"run.failed\"", ""), 1);
    scenario_forget(&s);
}

/* Would catch: a loss that is logged by the recovery that begins, and again by the one that fails,
 * when it turns out during a switch that nobody else has the lost layers. */
static void test_restart__a_loss_in_a_switch_is_logged_once(void **state)
{
    (void)state;
    scenario s = {.name = "switch",
                  .sets = training,
                  .more = JOB_SETS(STAGES, "checkpoint.every", "none", "fault.snapshot", "none",
                                   "fault.restarts", "0", "elastic.script", "[{step: 5, f: 2}]"),
                  .n_samples = N_SAMPLES,
                  .dropout = 0.1f,
                  .at = {{.point = "switch", .who = 1, .act = kill_this_worker}}};
    scenario_start(&s);
    expect_end(&s, FL_EFAILED);
    assert_int_equal(count_events(s.dir, "\"run.failed\"", "no other worker has the weights of"),
                     1);
    assert_non_null(strstr(s.outcome->message, "it does not go back: fault.restarts is 0"));
    assert_int_equal(count_events(s.dir, "\"worker.lost\"", ""), 1);
    scenario_forget(&s);
}

static void kill_once_spoiled(fl_worker_state *w)
{
    char path[256];
    snprintf(path, sizeof path, "%s/job.yaml", scenario_here()->dir);
    while (count_events(scenario_here()->dir, "\"snapshot.taken\"", "") == 0) {
        nap(500);
    }
    assert_int_equal(truncate(path, 0), 0);
    kill_this_worker(w);
}

/* The return is announced, and then fails because the job cannot be read. Would catch: a run that
 * its files and its subscribers take for one that still goes back. */
static void test_restart__a_return_that_fails_ends_the_run(void **state)
{
    (void)state;
    scenario s;
    start(&s, "spoiled", JOB_SETS(STAGES, "checkpoint.every", "none", "fault.snapshot", "4 steps"),
          kill_once_spoiled);
    expect_end(&s, FL_EFAILED);
    assert_non_null(strstr(s.outcome->message, "worker 1 (stage 1 of replica 0) was killed"));
    assert_int_equal(atomic_load(&s.outcome->n_deeds), 1);
    assert_int_equal(count_events(s.dir, "\"run.failed\"", "worker 1 ("), 1);
    assert_int_equal(count_events(s.dir, "\"run.resumed\"", ""), 0);
    scenario_forget(&s);
}

static void die_during_recovery(fl_worker_state *w)
{
    while (count_events(scenario_here()->dir, "\"worker.lost\"", "\"rank\": 1") == 0) {
        nap(500);
    }
    kill_this_worker(w);
}

/* Would catch: a message that names only the worker that was lost last. */
static void test_restart__the_message_begins_with_the_first_loss(void **state)
{
    (void)state;
    scenario s = {.name = "first",
                  .sets = training,
                  .more = JOB_SETS("pipe.k", "1", "autodp.r", "2", "pipe.m", "2", "devices.count",
                                   "2", "fault.on_loss", "continue", "fault.restarts", "0"),
                  .n_samples = N_SAMPLES,
                  .dropout = 0.1f,
                  .at = {{.point = "step", .who = 1, .step = 9, .act = kill_this_worker},
                         {.point = "step", .who = 0, .step = 9, .act = die_during_recovery}}};
    scenario_start(&s);
    expect_end(&s, FL_EFAILED);
    static const char begin[] = "worker 1 (stage 0 of replica 1) was killed by signal 9";
    if (strncmp(s.outcome->message, begin, strlen(begin)) != 0 ||
        strstr(s.outcome->message, "; then worker 0 (") == NULL) {
        fail_msg("the message is: %s", s.outcome->message);
    }
    assert_int_equal(count_events(s.dir, "\"run.failed\"", begin), 1);
    scenario_forget(&s);
}

/* ---- what clients see of it ---- */

/* A controller that goes back for as long as two requests. */
static void *refuse_twice(void *socket)
{
    char peer[256], request[512];
    for (int i = 0; i < 3; i++) {
        const char *reply =
            i < 2 ? "{\"ok\": false, \"error\": {\"code\": \"recovering\"}}" : "{\"ok\": true}";
        int n = zmq_recv(socket, peer, sizeof peer, 0);
        assert_true(n > 0 && zmq_recv(socket, request, sizeof request, 0) > 0);
        assert_true(zmq_send(socket, peer, (size_t)n, ZMQ_SNDMORE) == n);
        assert_true(zmq_send(socket, reply, strlen(reply), 0) > 0);
    }
    return NULL;
}

/* Would catch: a command that fails because it came while the run goes back. */
static void test_restart__a_request_refused_meanwhile_is_repeated(void **state)
{
    (void)state;
    char dir[128], endpoint[160];
    const char *reply = "";
    fl_ctl_client_link *link = NULL;
    pthread_t thread;
    snprintf(dir, sizeof dir, "%s/refuses", root);
    snprintf(endpoint, sizeof endpoint, "ipc://%s/" FL_CTL_SOCKET, dir);
    assert_int_equal(mkdir(dir, 0700), 0);
    void *zmq = zmq_ctx_new(), *socket = zmq_socket(zmq, ZMQ_ROUTER);
    assert_int_equal(zmq_bind(socket, endpoint), 0);
    assert_int_equal(pthread_create(&thread, NULL, refuse_twice, socket), 0);
    assert_int_equal(fl_ctl_client_open(dir, false, &link), FL_OK);
    assert_int_equal(fl_ctl_client_insist(link, "{}", LIVE_WAIT_MS, &reply), FL_OK);
    assert_string_equal(reply, "{\"ok\": true}");
    assert_int_equal(pthread_join(thread, NULL), 0);
    fl_ctl_client_close(&link);
    zmq_close(socket);
    zmq_ctx_term(zmq);
}

/* Shared with the workers. The run that has gone back waits until the client has heard of it. */
typedef struct meeting {
    atomic_bool listens, killed, has_heard;
} meeting;
static meeting *shared;

/* Worker 1 dies in a step behind that of a snapshot, once the client has heard something. Nothing
 * waits for the client before: what it asks for is carried out between two steps. */
static void kill_for_client(const char *point, fl_worker_state *w)
{
    static const char taken[] = "\"snapshot.taken\"";
    bool at_step = strcmp(point, "step") == 0;
    if (at_step && w->rank == 1 && w->step % 4 == 1 && atomic_load(&shared->listens) &&
        count_events(scenario_here()->dir, taken, "") > 0 &&
        !atomic_exchange(&shared->killed, true)) {
        kill_this_worker(w);
    }
    bool again = atomic_load(&shared->killed) && w->birth->step > 0;
    while (at_step && again && !atomic_load(&shared->has_heard)) {
        nap(500);
    }
}

/* The state, which must be one of a run that lives. */
static bool look_recovering(live_run *run)
{
    static const char *const good[] = {"starting", "running", "recovering", "finishing"};
    json_t *status = live_ask(run, "status", "{}");
    const char *state = json_string_value(json_object_get(status, "state"));
    bool known = false, found = strcmp(state, "recovering") == 0;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        known = known || strcmp(state, good[i]) == 0;
    }
    if (!known) {
        fail_msg("the state is %s", state);
    }
    json_decref(status);
    return found;
}

typedef struct heard {
    int n_failed, n_lost, n_returning, n_resumed, n_stopped, n_gaps;
    int64_t sequence, lost_at, repeated, again_from;
} heard;

static bool is_event(const json_t *event, const char *name)
{
    return strcmp(json_string_value(json_object_get(event, "event")), name) == 0;
}

static void note_event(heard *h, const json_t *event, int64_t sequence)
{
    h->n_gaps += h->sequence > 0 && sequence != h->sequence + 1;
    h->sequence = sequence;
    h->n_failed += is_event(event, "run.failed");
    if (is_event(event, "worker.lost") && json_is_true(json_object_get(event, "goes_on"))) {
        h->n_lost++;
        h->lost_at = json_integer_value(json_object_get(event, "steps"));
    }
    h->n_resumed += is_event(event, "run.resumed");
    h->n_stopped += is_event(event, "run.stopped");
    if (is_event(event, "run.returning")) {
        h->n_returning++;
        h->repeated = json_integer_value(json_object_get(event, "repeated_steps"));
        h->again_from = json_integer_value(json_object_get(event, "step"));
        assert_string_equal(json_string_value(json_object_get(event, "to")), "snapshot");
        assert_non_null(strstr(json_string_value(json_object_get(event, "why")), "worker 1 ("));
    }
}

static bool take_event(fl_ctl_client_link *events, heard *h)
{
    const char *line;
    int64_t sequence;
    fl_status status = fl_ctl_client_event(events, 1, &line, &sequence);
    if (status == FL_EDEADLINE) {
        return false;
    }
    assert_int_equal(status, FL_OK);
    json_t *event = json_loads(line, 0, NULL);
    note_event(h, event, sequence);
    json_decref(event);
    return true;
}

/* Requests that are events. */
#define HIGH_LR "{\"field\": \"train.lr\", \"value\": 2e-4}"
#define LOW_LR "{\"field\": \"train.lr\", \"value\": 1e-4}"

/* Would catch: clients that hear that the run failed or is over while it goes back, requests that
 * get no answer, and events that subscribers miss on the way. */
static void test_restart__clients_see_it_recover(void **state)
{
    (void)state;
    fl_ctl_client_link *events = NULL;
    heard h = {0};
    int n_recovering = 0;
    shared = shared_memory(sizeof *shared);
    live_run run = live_start_again(
        &(scenario){.name = "clients",
                    .sets = training,
                    .more = JOB_SETS(STAGES, "fault.snapshot", "4 steps", "elastic.enabled",
                                     "false", "train.epochs", "100000"),
                    .n_samples = N_SAMPLES,
                    .dropout = 0.1f,
                    .at_point = kill_for_client});
    assert_int_equal(fl_ctl_client_open(run.dir, true, &events), FL_OK);
    int64_t deadline_us = fl_deadline_us(LIVE_WAIT_MS);
    for (int i = 0; !take_event(events, &h); i++) { /* it has subscribed when it hears something */
        live_do(&run, "set", i % 2 == 0 ? HIGH_LR : LOW_LR);
        assert_true(fl_left_ms(deadline_us) > 0);
    }
    atomic_store(&shared->listens, true);
    while (h.n_resumed == 0) {
        while (take_event(events, &h)) {
        }
        n_recovering += look_recovering(&run);
        assert_true(fl_left_ms(deadline_us) > 0);
    }
    atomic_store(&shared->has_heard, true);
    assert_int_equal(kill(run.controller, SIGINT), 0);
    while (h.n_stopped == 0) {
        (void)take_event(events, &h);
        assert_true(fl_left_ms(deadline_us) > 0);
    }
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    assert_true(n_recovering > 0);
    assert_int_equal(h.n_failed, 0);
    assert_true(h.n_lost > 0);
    assert_int_equal(h.n_returning, 1);
    assert_int_equal(h.n_resumed, 1);
    assert_int_equal(h.n_gaps, 0);
    assert_true(h.repeated > 0 && h.again_from > 0 && h.again_from + h.repeated <= h.lost_at + 1);
    fl_ctl_client_close(&events);
    scenario_forget(&run.scenario);
}

static int64_t recovery_number(live_run *run, const char *key)
{
    json_t *status = live_ask(run, "status", "{}");
    int64_t n = json_integer_value(json_object_get(json_object_get(status, "recovery"), key));
    json_decref(status);
    return n;
}

static void await_recovery_number(live_run *run, const char *key, int64_t least)
{
    int64_t deadline_us = fl_deadline_us(LIVE_WAIT_MS);
    while (recovery_number(run, key) < least) {
        assert_true(fl_left_ms(deadline_us) > 0);
        nap(2000);
    }
}

static void await_state(live_run *run, const char *wanted)
{
    int64_t deadline_us = fl_deadline_us(LIVE_WAIT_MS);
    for (bool there = false; !there;) {
        json_t *status = live_ask(run, "status", "{}");
        there = strcmp(json_string_value(json_object_get(status, "state")), wanted) == 0;
        json_decref(status);
        assert_true(fl_left_ms(deadline_us) > 0);
        nap(2000);
    }
}

static double lr_at(const live_run *run, int64_t step)
{
    json_t *line = live_step(run, step);
    double lr = json_number_value(json_object_get(line, "lr"));
    json_decref(line);
    return lr;
}

static void expect_summary(const char *dir, const char *text)
{
    char path[256], summary[4096];
    snprintf(path, sizeof path, "%s/summary.txt", dir);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    summary[fread(summary, 1, sizeof summary - 1, file)] = 0;
    fclose(file);
    if (strstr(summary, text) == NULL) {
        fail_msg("\"%s\" is not in: %s", text, summary);
    }
}

/* Kill this worker of a paused run, which goes back for it for the n-th time. */
static void kill_and_await(live_run *run, int rank, int64_t n)
{
    assert_int_equal(kill(live_process_of(run, rank), SIGKILL), 0);
    await_recovery_number(run, "returns", n);
    await_state(run, "paused");
}

/* Would catch: a pause, a drained worker or a learning rate that a return forgets; counters that
 * begin again; a summary without the loss; a loss before the first step after a return that is told
 * as one of step 0. */
static void test_restart__keeps_what_operators_want(void **state)
{
    (void)state;
    live_run run = live_start_again(
        &(scenario){.name = "wishes",
                    .sets = training,
                    .more = JOB_SETS(STAGES, "devices.count", "3", "train.epochs", "10000",
                                     "fault.snapshot", "100 steps", "elastic.enabled", "false"),
                    .n_samples = N_SAMPLES,
                    .dropout = 0.1f});
    await_recovery_number(&run, "snapshots", 1);
    live_do(&run, "set", "{\"field\": \"train.lr\", \"value\": 0.00025}");
    live_do(&run, "drain", "{\"worker\": 2}");
    live_await_state(&run, 2, "left");
    live_do(&run, "pause", "{}");
    int64_t n_snapshots = recovery_number(&run, "snapshots");
    kill_and_await(&run, 1, 1);
    live_await_state(&run, 2, "left");
    int64_t step = recovery_number(&run, "snapshot_step");
    assert_int_equal(live_status(&run, "step"), step);
    assert_true(recovery_number(&run, "snapshots") >= n_snapshots);
    assert_int_equal(recovery_number(&run, "losses"), 1);
    char at[64];
    snprintf(at, sizeof at, "(Killed) at step %lld", (long long)step);
    kill_and_await(&run, 1, 2);
    assert_int_equal(count_events(run.dir, "\"run.resumed\"", at), 1);
    assert_int_equal(recovery_number(&run, "losses"), 2);
    live_do(&run, "resume", "{}");
    live_await_step(&run, step + 10);
    live_do(&run, "stop", "{}");
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    assert_true(lr_at(&run, step) / (double)(step + 1) >
                2.0 * lr_at(&run, 10) / 11.0); /* warm-up */
    expect_summary(run.dir,
                   "  losses         2 workers lost; the run went back 2 times and repeated");
    scenario_forget(&run.scenario);
}

/* Workers of a run that has gone back, before they are ready. */
static void hold_at_begin(const char *point, fl_worker_state *w)
{
    (void)w;
    bool again = atomic_load(&scenario_here()->outcome->n_deeds) > 0;
    while (again && strcmp(point, "begin") == 0 && !atomic_load(&shared->has_heard)) {
        nap(500);
    }
}

/* Would catch: a trace of the steps from 0 on, asked for while a run that goes back to a later one
 * starts its workers. */
static void test_restart__traces_what_follows(void **state)
{
    (void)state;
    shared = shared_memory(sizeof *shared);
    live_run run = live_start_again(&(scenario){
        .name = "traced",
        .sets = training,
        .more = JOB_SETS(STAGES, "train.epochs", "10000", "fault.snapshot", "4 steps",
                         "elastic.enabled", "false"),
        .n_samples = N_SAMPLES,
        .dropout = 0.1f,
        .at_point = hold_at_begin,
        .at = {{.point = "step", .who = 1, .step = FATAL_STEP, .act = kill_once_snapped}}});
    await_recovery_number(&run, "returns", 1);
    live_refused(&run, "trace", "{}", "recovering");
    live_refused(&run, "trace", "{\"at\": 9000}", "recovering");
    int64_t begin = live_status(&run, "step");
    atomic_store(&shared->has_heard, true);
    live_await_step(&run, begin + 1);
    json_t *trace = live_ask(&run, "trace", "{\"steps\": 2}");
    assert_true(json_integer_value(json_object_get(trace, "step")) > begin);
    json_decref(trace);
    live_do(&run, "stop", "{}");
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    scenario_forget(&run.scenario);
}

/* Would catch: a request to stop that is forgotten on the way back, or that makes a run fail which
 * has a snapshot. */
static void stop_beside_a_loss(const char *name, bool while_it_returns)
{
    live_run run = live_start_again(
        &(scenario){.name = name,
                    .sets = training,
                    .more = JOB_SETS(STAGES, "train.epochs", "10000", "fault.snapshot", "4 steps",
                                     "elastic.enabled", "false"),
                    .n_samples = N_SAMPLES,
                    .dropout = 0.1f});
    await_recovery_number(&run, "snapshots", 1);
    assert_int_equal(kill(live_process_of(&run, 1), SIGKILL), 0);
    int64_t deadline_us = fl_deadline_us(LIVE_WAIT_MS);
    while (while_it_returns && count_events(run.dir, "\"worker.lost\"", "") == 0 &&
           count_events(run.dir, "\"run.resumed\"", "") == 0) { /* which cuts the former off */
        assert_true(fl_left_ms(deadline_us) > 0);
        nap(500);
    }
    assert_int_equal(kill(run.controller, SIGTERM), 0);
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    assert_int_equal(count_events(run.dir, "\"run.stopped\"", ""), 1);
    scenario_forget(&run.scenario);
}

static void test_restart__stops_where_it_goes_back_to(void **state)
{
    (void)state;
    stop_beside_a_loss("stopped", false);
    stop_beside_a_loss("returning", true);
}

static void kill_one_then_stop(fl_worker_state *w)
{
    int n = atomic_load(&scenario_here()->outcome->n_deeds);
    if (n == 2) {
        interrupt_the_run(w);
    }
    if (n <= 2) {
        kill_this_worker(w);
    }
}

static void die_the_first_time(fl_worker_state *w)
{
    bool again = atomic_exchange(&shared->listens, true);
    while (!again && !atomic_load(&shared->has_heard)) {
        nap(500);
    }
    if (!again) {
        kill_this_worker(w);
    }
}

/* Until it is killed, for the signal or because it does not leave. */
static void stop_the_return(fl_worker_state *w)
{
    (void)w;
    if (atomic_exchange(&shared->has_heard, true)) {
        return;
    }
    while (count_events(scenario_here()->dir, "\"worker.lost\"", "") == 0) {
        nap(500);
    }
    if (kill(controller_here(), SIGINT) != 0) {
        abort();
    }
    for (;;) {
        nap(500);
    }
}

static void stop_during_recovery(fl_worker_state *w)
{
    while (count_events(scenario_here()->dir, "\"worker.lost\"", "\"rank\": 1") == 0) {
        nap(500);
    }
    interrupt_the_run(w);
    kill_this_worker(w);
}

static void expect_stop_at_start(scenario *s)
{
    expect_end(s, FL_ESTOPPED);
    json_t *steps = lines_with(s->dir, "steps.jsonl", "\"loss\"");
    assert_in_range(json_array_size(steps), 1, FATAL_STEP - 1);
    assert_int_equal(count_events(s->dir, "\"run.stopped\"", ""), 1);
    json_decref(steps);
    scenario_forget(s);
}

/* Would catch: a run that fails because it was to stop after a loss that takes it back to step 0:
 * when the request comes before the others have left, when another one is lost before the run has
 * stopped, and when the others were about to go on without the lost one. */
static void test_restart__stops_on_the_way_to_its_start(void **state)
{
    (void)state;
    shared = shared_memory(sizeof *shared);
    scenario s = {.name = "leaving",
                  .sets = training,
                  .more = JOB_SETS(STAGES, "checkpoint.every", "none", "fault.snapshot", "none",
                                   "fault.detect", "20s"),
                  .n_samples = N_SAMPLES,
                  .dropout = 0.1f,
                  .at = {{.point = "step", .who = 1, .step = FATAL_STEP, .act = die_the_first_time},
                         {.point = "step", .who = 0, .step = FATAL_STEP, .act = stop_the_return}}};
    scenario_start(&s);
    expect_stop_at_start(&s);
    s = (scenario){.name = "again",
                   .sets = training,
                   .more = JOB_SETS(STAGES, "checkpoint.every", "none", "fault.snapshot", "none"),
                   .n_samples = N_SAMPLES,
                   .dropout = 0.1f,
                   .at = {{.point = "begin", .who = 1, .act = kill_one_then_stop}}};
    scenario_start(&s);
    expect_stop_at_start(&s);
    s = (scenario){.name = "both-stop",
                   .sets = training,
                   .more = JOB_SETS("pipe.k", "1", "autodp.r", "2", "pipe.m", "2", "devices.count",
                                    "2", "fault.on_loss", "continue", "checkpoint.every", "none",
                                    "fault.snapshot", "none"),
                   .n_samples = N_SAMPLES,
                   .dropout = 0.1f,
                   .at = {{.point = "step", .who = 1, .step = 9, .act = kill_this_worker},
                          {.point = "step", .who = 0, .step = 9, .act = stop_during_recovery}}};
    scenario_start(&s);
    expect_stop_at_start(&s);
}

static void kill_all_once(fl_worker_state *w)
{
    if (atomic_load(&scenario_here()->outcome->n_deeds) == 1) {
        kill(atomic_load(&scenario_here()->outcome->pid[0]), SIGKILL);
        kill_this_worker(w);
    }
}

/* Would catch: a summary that names one lost worker where all were lost. */
static void test_restart__counts_all_that_are_lost_at_once(void **state)
{
    (void)state;
    scenario s;
    start(&s, "both", JOB_SETS(STAGES, "checkpoint.every", "none", "fault.snapshot", "none"),
          kill_all_once);
    expect_end(&s, FL_OK);
    expect_summary(s.dir, "  losses         2 workers lost; the run went back 1 time");
    scenario_forget(&s);
}

static int set_up(void **state)
{
    if (make_root(state) != 0) {
        return -1;
    }
    one = losses_of_one(training, N_SAMPLES, STEPS);
    return 0;
}

static int tear_down(void **state)
{
    free(one);
    return remove_root(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restart__goes_back_to_the_newest_checkpoint),
        cmocka_unit_test(test_restart__goes_back_to_a_snapshot),
        cmocka_unit_test(test_restart__takes_a_snapshot_when_one_replica_is_left),
        cmocka_unit_test(test_restart__brings_parked_moments_back),
        cmocka_unit_test(test_restart__a_damaged_snapshot_is_not_used),
        cmocka_unit_test(test_restart__tells_everything_once),
        cmocka_unit_test(test_restart__a_full_disk_counts_what_is_repeated),
        cmocka_unit_test(test_restart__begins_again_without_a_state),
        cmocka_unit_test(test_restart__begins_again_after_a_loss_at_the_start),
        cmocka_unit_test(test_restart__begins_again_at_most_fault_restarts_times),
        cmocka_unit_test(test_restart__a_loss_in_a_switch_is_logged_once),
        cmocka_unit_test(test_restart__the_message_begins_with_the_first_loss),
        cmocka_unit_test(test_restart__a_return_that_fails_ends_the_run),
        cmocka_unit_test(test_restart__a_request_refused_meanwhile_is_repeated),
        cmocka_unit_test(test_restart__clients_see_it_recover),
        cmocka_unit_test(test_restart__keeps_what_operators_want),
        cmocka_unit_test(test_restart__traces_what_follows),
        cmocka_unit_test(test_restart__stops_where_it_goes_back_to),
        cmocka_unit_test(test_restart__stops_on_the_way_to_its_start),
        cmocka_unit_test(test_restart__gives_up_after_fault_restarts),
        cmocka_unit_test(test_restart__counts_all_that_are_lost_at_once),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
