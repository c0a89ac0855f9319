/* Checkpoints of hosts that share no files: rank 0 is on the head and writes, rank 1 is on another
 * host and sends. Would catch: training that stands still until the head has taken the files, files
 * that are mixed up or cut, and a message group that is closed while the writer's thread uses it.
 */
#include "device/clock.h"
#include "pipe/cost/plan.h"
#include "support/folder.h"
#include "support/messages.h"
#include "support/ranks.h"
#include "support/saved_state.h"
#include "support/toy.h"
#include "support/transport.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

enum { BLOCKS = 4, PATIENCE_MS = 60000, STEP = 5, GENERATION = 3 };

static char folder[FOLDER_SIZE];
static saved_run run; /* large */

static fl_status meet(const rank_env *env, fl_message_group *group)
{
    unsigned char mine = (unsigned char)env->rank, all[2];
    return fl_message_all_gather(group, GENERATION, &mine, 1, all, fl_deadline_us(PATIENCE_MS));
}

/* What each rank has: all workers' state, of which it uses its own. */
typedef struct rank_state {
    fl_model *model;
    fl_device *cpu;
    int folder_fd;
    fl_checkpoint_store store;
    saved_truth truth;
    fl_state_source source;
    fl_message_group *messages;
    fl_checkpoint_writer *writer; /* this rank's; borrowed */
    fl_checkpoint_far far;
    fl_checkpoint_state state;
} rank_state;

static void open_state(const rank_env *env, rank_state *s)
{
    *s = (rank_state){.folder_fd = open(folder, O_RDONLY | O_DIRECTORY)};
    RANK_OK(fl_toy_model(BLOCKS, 0.0f, &s->model));
    RANK_OK(fl_device_cpu_create(1, NULL, (size_t)1 << 30, &s->cpu));
    RANK_OK(fl_checkpoint_store_open(s->folder_fd, "checkpoints", &s->store));
    s->truth = (saved_truth){.model = s->model, .version = 1};
    s->source = saved_truth_source(&s->truth);
    fl_plan plan = saved_plan(s->model, 0, 2, 1, 2);
    saved_run_open(&run, s->model, s->cpu, &s->store, &plan, -1, 0, &s->source);
    s->messages = rank_messages(env, PATIENCE_MS, PATIENCE_MS);
    s->writer = run.worker[env->rank].writer;
    s->far = (fl_checkpoint_far){.n_head = 1, .messages = s->messages, .deadline_ms = PATIENCE_MS};
    s->state = (fl_checkpoint_state){.plan = &run.plan,
                                     .params = &run.worker[env->rank].params,
                                     .parked = &run.worker[env->rank].parked,
                                     .far = &s->far};
}

static void close_state(rank_state *s)
{
    saved_run_close(&run);
    fl_message_close(&s->messages);
    fl_checkpoint_store_close(&s->store);
    fl_device_destroy(&s->cpu);
    fl_model_destroy(&s->model);
    close(s->folder_fd);
}

/* The sender begins, and then meets the head, which has not begun: it would wait for ever if it
 * stood still until its files were taken. Both meet while the files are on their way, too. */
static void save_while_both_go_on(const rank_env *env)
{
    rank_state s;
    open_state(env, &s);
    if (env->rank == 1) {
        RANK_OK(fl_checkpoint_writer_begin(s.writer, &s.state, STEP));
        RANK_CHECK(fl_checkpoint_writer_is_busy(s.writer));
    }
    RANK_OK(meet(env, s.messages));
    if (env->rank == 0) {
        RANK_OK(fl_checkpoint_writer_begin(s.writer, &s.state, STEP));
    }
    for (int i = 0; i < 20; i++) {
        RANK_OK(meet(env, s.messages));
    }
    RANK_OK(fl_checkpoint_writer_wait(s.writer, fl_deadline_us(PATIENCE_MS)));
    RANK_CHECK(run.n_parts == 1 && run.part[0].status == FL_OK);
    if (env->rank == 0) {
        saved_check(&run, STEP, &s.source);
    } else {
        RANK_CHECK(run.n_files == 0);
    }
    close_state(&s);
}

/* The head never begins. */
static void give_up_what_is_on_its_way(const rank_env *env)
{
    rank_state s;
    open_state(env, &s);
    if (env->rank == 0) {
        RANK_CHECK(meet(env, s.messages) != FL_OK); /* the other one breaks the group */
    } else {
        RANK_OK(fl_checkpoint_writer_begin(s.writer, &s.state, STEP));
        fl_checkpoint_writer_leave_messages(s.writer, true);
        RANK_CHECK(fl_message_state(s.messages) != FL_OK);
        RANK_OK(fl_checkpoint_writer_wait(s.writer, fl_deadline_us(PATIENCE_MS)));
        RANK_CHECK(run.n_parts == 1 && run.part[0].status != FL_OK);
        fl_checkpoint_writer_leave_messages(s.writer, true); /* nothing is on its way any more */
    }
    close_state(&s);
}

/* A writer that is destroyed gives up what is on its way: nobody waits for it. */
static void destroy_with_files_on_their_way(const rank_env *env)
{
    rank_state s;
    open_state(env, &s);
    if (env->rank == 0) {
        RANK_CHECK(meet(env, s.messages) != FL_OK);
    } else {
        RANK_OK(fl_checkpoint_writer_begin(s.writer, &s.state, STEP));
        fl_checkpoint_writer_destroy(&run.worker[1].writer);
        RANK_CHECK(run.n_parts == 0);
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

static void test_checkpoint_far__goes_on_while_files_are_on_their_way(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(2, save_while_both_go_on, NULL, PATIENCE_MS), 0);
}

static void test_checkpoint_far__gives_up_before_the_group_closes(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(2, give_up_what_is_on_its_way, NULL, PATIENCE_MS), 0);
    assert_int_equal(ranks_run(2, destroy_with_files_on_their_way, NULL, PATIENCE_MS), 0);
}

#define PLACE(test) cmocka_unit_test_setup_teardown(test, make_place, remove_place)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE(test_checkpoint_far__goes_on_while_files_are_on_their_way),
        PLACE(test_checkpoint_far__gives_up_before_the_group_closes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
