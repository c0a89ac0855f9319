/* Checkpoints of hosts that share no files: rank 0 is on the head and writes, rank 1 is on another
 * host and sends. Would catch: training that stands still until the head has taken the files, files
 * that are mixed up or cut, and a message group that is closed while the writer's thread uses it.
 */
#include "device/system/clock.h"
#include "support/folder.h"
#include "support/ranks/far_ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

enum { STEP = 5 };

static char folder[FOLDER_SIZE];
static saved_run run; /* large */

/* The sender begins, and then meets the head, which has not begun: it would wait for ever if it
 * stood still until its files were taken. Both meet while the files are on their way, too. */
static void save_while_both_go_on(const rank_env *env)
{
    far_rank s;
    far_rank_open(env, folder, &run, &s);
    fl_checkpoint_writer *writer = run.worker[env->rank].writer;
    if (env->rank == 1) {
        RANK_OK(fl_checkpoint_writer_begin(writer, &s.state, STEP, 0));
        RANK_CHECK(fl_checkpoint_writer_is_busy(writer));
    }
    RANK_OK(far_rank_meet(&s));
    if (env->rank == 0) {
        RANK_OK(fl_checkpoint_writer_begin(writer, &s.state, STEP, 0));
    }
    for (int i = 0; i < 20; i++) {
        RANK_OK(far_rank_meet(&s));
    }
    RANK_OK(fl_checkpoint_writer_wait(writer, fl_deadline_us(FAR_PATIENCE_MS)));
    RANK_CHECK(run.n_parts == 1 && run.part[0].status == FL_OK);
    if (env->rank == 0) {
        saved_check(&run, STEP, &s.source);
    } else {
        RANK_CHECK(run.n_files == 0);
    }
    far_rank_close(&s);
}

/* The head never begins. */
static void give_up_what_is_on_its_way(const rank_env *env)
{
    far_rank s;
    far_rank_open(env, folder, &run, &s);
    fl_checkpoint_writer *writer = run.worker[env->rank].writer;
    if (env->rank == 0) {
        RANK_CHECK(far_rank_meet(&s) != FL_OK); /* the other one breaks the group */
    } else {
        RANK_OK(fl_checkpoint_writer_begin(writer, &s.state, STEP, 0));
        fl_checkpoint_writer_leave_messages(writer, true);
        RANK_CHECK(fl_message_state(s.messages) != FL_OK);
        RANK_OK(fl_checkpoint_writer_wait(writer, fl_deadline_us(FAR_PATIENCE_MS)));
        RANK_CHECK(run.n_parts == 1 && run.part[0].status != FL_OK);
        fl_checkpoint_writer_leave_messages(writer, true); /* nothing is on its way any more */
    }
    far_rank_close(&s);
}

/* A writer that is destroyed gives up what is on its way: nobody waits for it. */
static void destroy_with_files_on_their_way(const rank_env *env)
{
    far_rank s;
    far_rank_open(env, folder, &run, &s);
    fl_checkpoint_writer *writer = run.worker[env->rank].writer;
    if (env->rank == 0) {
        RANK_CHECK(far_rank_meet(&s) != FL_OK);
    } else {
        RANK_OK(fl_checkpoint_writer_begin(writer, &s.state, STEP, 0));
        fl_checkpoint_writer_destroy(&run.worker[1].writer);
        RANK_CHECK(run.n_parts == 0);
    }
    far_rank_close(&s);
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
    assert_int_equal(ranks_run(2, save_while_both_go_on, NULL, FAR_PATIENCE_MS), 0);
}

static void test_checkpoint_far__gives_up_before_the_group_closes(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(2, give_up_what_is_on_its_way, NULL, FAR_PATIENCE_MS), 0);
    assert_int_equal(ranks_run(2, destroy_with_files_on_their_way, NULL, FAR_PATIENCE_MS), 0);
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
