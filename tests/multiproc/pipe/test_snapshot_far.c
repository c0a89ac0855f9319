/* Snapshots in memory of a run on two hosts: rank 0 is on the head and has the slots, rank 1 is on
 * another host and sends. Would catch: training that stands still until the head has the layers,
 * layers that are mixed up with those of a checkpoint on its way, a request that was given up and
 * is sent to its end, a message group that is closed while the writer's thread uses it, and a slot
 * that is harmed by the loss of the sender. */
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "nn/model.h"
#include "pipe/state/snapshot/snapshot_writer.h"
#include "support/folder.h"
#include "support/ranks/far_ranks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEP = 5, LARGEST = 1 << 16 };

static char folder[FOLDER_SIZE];
static saved_run run; /* large */

typedef struct rank_state {
    far_rank rank;
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
    *s = (rank_state){.n_reports = 0};
    far_rank_open(env, folder, &run, &s->rank);
    RANK_OK(fl_snapshot_open(s->rank.model, SAVED_MOMENTS, &s->snapshot));
    const fl_snapshot_writer_options options = {.snapshot = env->rank == 0 ? &s->snapshot : NULL,
                                                .model = s->rank.model,
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
    fl_snapshot_close(&s->snapshot);
    far_rank_close(&s->rank);
}

static void begin(rank_state *s, int64_t serial)
{
    const fl_snapshot_request request = {.step = STEP,
                                         .serial = serial,
                                         .begun_us = fl_now_us(),
                                         .state = &s->rank.state,
                                         .messages = s->rank.messages,
                                         .deadline_ms = FAR_PATIENCE_MS};
    RANK_CHECK(fl_snapshot_writer_is_ready(s->writer, &run.plan, serial));
    RANK_OK(fl_snapshot_writer_begin(s->writer, &request));
}

static void await_end(rank_state *s)
{
    RANK_OK(fl_snapshot_writer_wait(s->writer, fl_deadline_us(FAR_PATIENCE_MS)));
}

/* Every tensor in the slot is the truth, to the last bit. */
static void check_slot(rank_state *s, int slot)
{
    static float got[LARGEST], expected[LARGEST];
    fl_snapshot_view view = {.snapshot = &s->snapshot, .slot = slot};
    fl_state_source found = fl_snapshot_source(&view);
    RANK_OK(fl_snapshot_check(&s->snapshot, slot));
    for (int layer = 0; layer < fl_model_n_layers(s->rank.model); layer++) {
        const fl_param_list *list = fl_model_params(s->rank.model, layer);
        for (int i = 0; i < list->n; i++) {
            size_t n = (size_t)(list->spec[i].rows * list->spec[i].cols);
            RANK_CHECK(n <= LARGEST);
            for (int part = 0; part <= SAVED_MOMENTS; part++) {
                RANK_OK(found.read(found.self, layer, i, part, got));
                RANK_OK(s->rank.source.read(s->rank.source.self, layer, i, part, expected));
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
        RANK_OK(fl_checkpoint_writer_begin(checkpoint, &s.rank.state, STEP, 0));
        RANK_CHECK(!fl_snapshot_writer_is_ready(s.writer, &run.plan, 1));
    }
    RANK_OK(far_rank_meet(&s.rank));
    if (env->rank == 0) {
        RANK_OK(fl_checkpoint_writer_begin(checkpoint, &s.rank.state, STEP, 0));
        begin(&s, 1);
    }
    for (int i = 0; i < 20; i++) {
        RANK_OK(far_rank_meet(&s.rank));
    }
    await_end(&s);
    RANK_OK(fl_checkpoint_writer_wait(checkpoint, fl_deadline_us(FAR_PATIENCE_MS)));
    RANK_CHECK(s.n_reports == 1 && s.report.status == FL_OK && s.report.serial == 1);
    if (env->rank == 0) {
        RANK_CHECK(s.report.bytes * FL_SNAPSHOT_SLOTS ==
                   fl_snapshot_bytes(s.rank.model, SAVED_MOMENTS));
        check_slot(&s, 1);
        saved_check(&run, STEP, &s.rank.source);
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
    RANK_OK(far_rank_meet(&s.rank));
    if (env->rank == 0) {
        const fl_snapshot_request old = {.serial = 1,
                                         .begun_us = fl_now_us(),
                                         .state = &s.rank.state,
                                         .messages = s.rank.messages,
                                         .deadline_ms = FAR_PATIENCE_MS};
        fl_snapshot_want(&s.snapshot, 2, 1);
        RANK_CHECK(!fl_snapshot_writer_is_ready(s.writer, &run.plan, 1));
        RANK_OK(fl_snapshot_writer_begin(s.writer, &old));
    }
    await_end(&s);
    RANK_CHECK(s.n_reports == 1 && s.report.status == FL_ESTALE);
    RANK_OK(far_rank_meet(&s.rank));
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
        RANK_OK(far_rank_meet(&s.rank));
        begin(&s, serial);
        fl_snapshot_writer_leave_messages(s.writer, false);
        await_end(&s);
        RANK_CHECK(s.n_reports == serial);
        RANK_CHECK(s.report.status == FL_OK || s.report.status == FL_ESTALE);
        if (env->rank == 0 && s.report.status == FL_OK) {
            check_slot(&s, 0);
        }
    }
    RANK_OK(far_rank_meet(&s.rank));
    close_state(&s);
}

/* The sender waits until the head has heard all that came before: its death may take that along. */
static void wait_for_head(const rank_env *env)
{
    const fl_kv *kv = env->kv;
    void *data = NULL;
    size_t size_bytes = 0;
    if (env->rank == 0) {
        RANK_OK(kv->set(kv->self, "the head has met", fl_deadline_us(FAR_PATIENCE_MS), "", 1));
    } else {
        RANK_OK(kv->get(kv->self, "the head has met", fl_deadline_us(FAR_PATIENCE_MS), &data,
                        &size_bytes));
        fl_free(data);
    }
}

/* The sender dies with its second snapshot on its way; the first one stays. */
static void lose_the_sender(const rank_env *env)
{
    rank_state s;
    open_state(env, &s);
    fl_snapshot_want(&s.snapshot, 1, 0);
    begin(&s, 1);
    await_end(&s);
    RANK_OK(far_rank_meet(&s.rank));
    wait_for_head(env);
    fl_snapshot_want(&s.snapshot, 2, 1);
    if (env->rank == 1) {
        begin(&s, 2);
        kill(getpid(), SIGKILL);
    }
    RANK_CHECK(far_rank_meet(&s.rank) != FL_OK);
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
        RANK_CHECK(fl_message_state(s.rank.messages) != FL_OK);
        await_end(&s);
        RANK_CHECK(s.n_reports == 1 && s.report.status != FL_OK);
    } else {
        RANK_CHECK(far_rank_meet(&s.rank) != FL_OK);
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
    assert_int_equal(ranks_run(2, take_while_both_go_on, NULL, FAR_PATIENCE_MS), 0);
}

static void test_snapshot_far__ends_with_its_request(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(2, give_up_a_request, NULL, FAR_PATIENCE_MS), 0);
}

static void test_snapshot_far__leaves_before_the_group_closes(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(2, leave_the_messages, NULL, FAR_PATIENCE_MS), 0);
    assert_int_equal(ranks_run(2, destroy_on_the_way, NULL, FAR_PATIENCE_MS), 0);
}

static void test_snapshot_far__keeps_the_one_before_a_loss(void **state)
{
    (void)state;
    const rank_end ends[] = {RANK_ENDS, RANK_KILLED};
    assert_int_equal(ranks_run_ending(2, lose_the_sender, NULL, ends, FAR_PATIENCE_MS), 0);
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
