/* Snapshots in memory of a run on two hosts: rank 0 is on the head and has the slots, rank 1 is on
 * another host and sends. Would catch: training that stands still until the head has the layers,
 * layers that are mixed up with those of a checkpoint on its way, a request that was given up and
 * is sent to its end, a message group that is closed while the writer's thread uses it, and a slot
 * that is harmed by the loss of the sender. */
#include "device/clock.h"
#include "nn/model.h"
#include "pipe/cost/plan.h"
#include "pipe/state/snapshot_writer.h"
#include "support/folder.h"
#include "support/messages.h"
#include "support/ranks.h"
#include "support/saved_state.h"
#include "support/toy.h"
#include "support/transport.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { BLOCKS = 4, PATIENCE_MS = 60000, STEP = 5, GENERATION = 3, LARGEST = 1 << 16 };

static char folder[FOLDER_SIZE];
static saved_run run; /* large */

typedef struct rank_state {
    const rank_env *env;
    fl_model *model;
    fl_device *cpu;
    int folder_fd;
    fl_checkpoint_store store;
    saved_truth truth;
    fl_state_source source;
    fl_message_group *messages;
    fl_checkpoint_far far;
    fl_checkpoint_state state;
    fl_snapshot snapshot; /* the run's: of rank 0 */
    fl_snapshot_writer *writer;
    fl_snapshot_report report; /* the last one */
    int n_reports;
} rank_state;

static void note_report(void *context, const fl_snapshot_report *report)
{
    rank_state *s = context;
    if (!report->moves) {
        s->report = *report;
        s->n_reports++;
    }
}

static void open_state(const rank_env *env, rank_state *s)
{
    *s = (rank_state){.env = env, .folder_fd = open(folder, O_RDONLY | O_DIRECTORY)};
    RANK_OK(fl_toy_model(BLOCKS, 0.0f, &s->model));
    RANK_OK(fl_device_cpu_create(1, NULL, (size_t)1 << 30, &s->cpu));
    RANK_OK(fl_checkpoint_store_open(s->folder_fd, "checkpoints", &s->store));
    s->truth = (saved_truth){.model = s->model, .version = 1};
    s->source = saved_truth_source(&s->truth);
    fl_plan plan = saved_plan(s->model, 0, 2, 1, 2);
    saved_run_open(&run, s->model, s->cpu, &s->store, &plan, -1, 0, &s->source);
    s->messages = rank_messages(env, PATIENCE_MS, PATIENCE_MS);
    s->far = (fl_checkpoint_far){.n_head = 1, .messages = s->messages, .deadline_ms = PATIENCE_MS};
    s->state = (fl_checkpoint_state){.plan = &run.plan,
                                     .params = &run.worker[env->rank].params,
                                     .parked = &run.worker[env->rank].parked,
                                     .far = &s->far};
    RANK_OK(fl_snapshot_open(s->model, SAVED_MOMENTS, &s->snapshot));
    const fl_snapshot_writer_options options = {.snapshot = env->rank == 0 ? &s->snapshot : NULL,
                                                .model = s->model,
                                                .n_moments = SAVED_MOMENTS,
                                                .rank = env->rank,
                                                .n_head = 1,
                                                .on_report = note_report,
                                                .context = s};
    RANK_OK(fl_snapshot_writer_create(&options, &s->writer));
}

static void close_state(rank_state *s)
{
    fl_snapshot_writer_destroy(&s->writer);
    saved_run_close(&run);
    fl_message_close(&s->messages);
    fl_snapshot_close(&s->snapshot);
    fl_checkpoint_store_close(&s->store);
    fl_device_destroy(&s->cpu);
    fl_model_destroy(&s->model);
    close(s->folder_fd);
}

static fl_status meet(const rank_state *s)
{
    unsigned char mine = (unsigned char)s->env->rank, all[2];
    return fl_message_all_gather(s->messages, GENERATION, &mine, 1, all,
                                 fl_deadline_us(PATIENCE_MS));
}

static void begin(rank_state *s, int64_t serial)
{
    const fl_snapshot_request request = {.step = STEP,
                                         .serial = serial,
                                         .begun_us = fl_now_us(),
                                         .state = &s->state,
                                         .messages = s->messages,
                                         .deadline_ms = PATIENCE_MS};
    RANK_CHECK(fl_snapshot_writer_is_ready(s->writer, &run.plan, serial));
    RANK_OK(fl_snapshot_writer_begin(s->writer, &request));
}

static void await_end(rank_state *s)
{
    RANK_OK(fl_snapshot_writer_wait(s->writer, fl_deadline_us(PATIENCE_MS)));
}

/* Every tensor in the slot is the truth, to the last bit. */
static void check_slot(rank_state *s, int slot)
{
    static float got[LARGEST], expected[LARGEST];
    fl_snapshot_view view = {.snapshot = &s->snapshot, .slot = slot};
    fl_state_source found = fl_snapshot_source(&view);
    RANK_OK(fl_snapshot_check(&s->snapshot, slot));
    for (int layer = 0; layer < fl_model_n_layers(s->model); layer++) {
        const fl_param_list *list = fl_model_params(s->model, layer);
        for (int i = 0; i < list->n; i++) {
            size_t n = (size_t)(list->spec[i].rows * list->spec[i].cols);
            RANK_CHECK(n <= LARGEST);
            for (int part = 0; part <= SAVED_MOMENTS; part++) {
                RANK_OK(found.read(found.self, layer, i, part, got));
                RANK_OK(s->source.read(s->source.self, layer, i, part, expected));
                RANK_CHECK(memcmp(got, expected, n * sizeof *got) == 0);
            }
        }
    }
}

/* The sender begins, and then meets the head, which has not begun: it would wait for ever if it
 * stood still until its layers were taken. A checkpoint is on its way at the same time. */
static void take_while_both_go_on(const rank_env *env)
{
    rank_state s;
    open_state(env, &s);
    fl_checkpoint_writer *checkpoint = run.worker[env->rank].writer;
    fl_snapshot_want(&s.snapshot, 1, 1);
    if (env->rank == 1) {
        begin(&s, 1);
        RANK_OK(fl_checkpoint_writer_begin(checkpoint, &s.state, STEP));
        RANK_CHECK(!fl_snapshot_writer_is_ready(s.writer, &run.plan, 1));
    }
    RANK_OK(meet(&s));
    if (env->rank == 0) {
        RANK_OK(fl_checkpoint_writer_begin(checkpoint, &s.state, STEP));
        begin(&s, 1);
    }
    for (int i = 0; i < 20; i++) {
        RANK_OK(meet(&s));
    }
    await_end(&s);
    RANK_OK(fl_checkpoint_writer_wait(checkpoint, fl_deadline_us(PATIENCE_MS)));
    RANK_CHECK(s.n_reports == 1 && s.report.status == FL_OK && s.report.serial == 1);
    if (env->rank == 0) {
        RANK_CHECK(s.report.bytes * FL_SNAPSHOT_SLOTS == fl_snapshot_bytes(s.model, SAVED_MOMENTS));
        check_slot(&s, 1);
        saved_check(&run, STEP, &s.source);
    }
    close_state(&s);
}

/* The controller gives the request up while the sender waits. What follows uses the same group. */
static void give_up_a_request(const rank_env *env)
{
    rank_state s;
    open_state(env, &s);
    fl_snapshot_want(&s.snapshot, 1, 1);
    if (env->rank == 1) {
        begin(&s, 1);
    }
    RANK_OK(meet(&s));
    if (env->rank == 0) {
        const fl_snapshot_request old = {.serial = 1,
                                         .begun_us = fl_now_us(),
                                         .state = &s.state,
                                         .messages = s.messages,
                                         .deadline_ms = PATIENCE_MS};
        fl_snapshot_want(&s.snapshot, 2, 1);
        RANK_CHECK(!fl_snapshot_writer_is_ready(s.writer, &run.plan, 1));
        RANK_OK(fl_snapshot_writer_begin(s.writer, &old));
    }
    await_end(&s);
    RANK_CHECK(s.n_reports == 1 && s.report.status == FL_ESTALE);
    RANK_OK(meet(&s));
    begin(&s, 2);
    await_end(&s);
    RANK_CHECK(s.n_reports == 2 && s.report.status == FL_OK);
    if (env->rank == 0) {
        check_slot(&s, 1);
    }
    close_state(&s);
}

/* Both drop what is on its way, at some moment, and the group stays whole. */
static void leave_the_messages(const rank_env *env)
{
    rank_state s;
    open_state(env, &s);
    for (int64_t serial = 1; serial <= 20; serial++) {
        fl_snapshot_want(&s.snapshot, serial, 0);
        RANK_OK(meet(&s));
        begin(&s, serial);
        fl_snapshot_writer_leave_messages(s.writer, false);
        await_end(&s);
        RANK_CHECK(s.n_reports == serial);
        RANK_CHECK(s.report.status == FL_OK || s.report.status == FL_ESTALE);
        if (env->rank == 0 && s.report.status == FL_OK) {
            check_slot(&s, 0);
        }
    }
    RANK_OK(meet(&s));
    close_state(&s);
}

/* The sender dies with its second snapshot on its way; the first one stays. */
static void lose_the_sender(const rank_env *env)
{
    rank_state s;
    open_state(env, &s);
    fl_snapshot_want(&s.snapshot, 1, 0);
    begin(&s, 1);
    await_end(&s);
    RANK_OK(meet(&s));
    fl_snapshot_want(&s.snapshot, 2, 1);
    if (env->rank == 1) {
        begin(&s, 2);
        kill(getpid(), SIGKILL);
    }
    RANK_CHECK(meet(&s) != FL_OK);
    begin(&s, 2);
    await_end(&s);
    RANK_CHECK(s.n_reports == 2 && s.report.status != FL_OK);
    check_slot(&s, 0);
    close_state(&s);
}

/* Nobody takes what the sender has; it closes all the same, and does not report. */
static void destroy_on_the_way(const rank_env *env)
{
    rank_state s;
    open_state(env, &s);
    if (env->rank == 1) {
        begin(&s, 1);
        fl_snapshot_writer_leave_messages(s.writer, true);
        RANK_CHECK(fl_message_state(s.messages) != FL_OK);
        await_end(&s);
        RANK_CHECK(s.n_reports == 1 && s.report.status != FL_OK);
    } else {
        RANK_CHECK(meet(&s) != FL_OK);
    }
    close_state(&s);
}

static int make_place(void **state)
{
    (void)state;
    make_folder(folder);
    return 0;
}

static int remove_place(void **state)
{
    (void)state;
    return remove_folder(folder);
}

static void test_snapshot_far__goes_on_while_layers_are_on_their_way(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(2, take_while_both_go_on, NULL, PATIENCE_MS), 0);
}

static void test_snapshot_far__ends_with_its_request(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(2, give_up_a_request, NULL, PATIENCE_MS), 0);
}

static void test_snapshot_far__leaves_before_the_group_closes(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(2, leave_the_messages, NULL, PATIENCE_MS), 0);
    assert_int_equal(ranks_run(2, destroy_on_the_way, NULL, PATIENCE_MS), 0);
}

static void test_snapshot_far__keeps_the_one_before_a_loss(void **state)
{
    (void)state;
    const rank_end ends[] = {RANK_ENDS, RANK_KILLED};
    assert_int_equal(ranks_run_ending(2, lose_the_sender, NULL, ends, PATIENCE_MS), 0);
}

#define PLACE(test) cmocka_unit_test_setup_teardown(test, make_place, remove_place)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE(test_snapshot_far__goes_on_while_layers_are_on_their_way),
        PLACE(test_snapshot_far__ends_with_its_request),
        PLACE(test_snapshot_far__leaves_before_the_group_closes),
        PLACE(test_snapshot_far__keeps_the_one_before_a_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
