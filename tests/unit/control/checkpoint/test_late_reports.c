/* What workers report of a checkpoint or a snapshot after it was given up. Would catch: a late part
 * that is counted to the next checkpoint, that begins one of which nothing else comes, or that
 * holds up or fails the next one. */
#include "control/checkpoint/snapshots.h"
#include "device/system/clock.h"
#include "nn/model.h"
#include "nn/optimizer.h"
#include "support/runs/elastic_rig.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { SLOW = 1, FILE_BYTES = 3 };

/* A worker's reports of one checkpoint. */
typedef struct reports {
    int64_t step, serial;
    uint32_t generation;
} reports;

static rig *r;
static fl_checkpoint_store store;
static fl_checkpoints *c;
static fl_snapshots *snapshots;
static fl_kept_snapshot kept;
static const fl_recovery_sums no_losses;

static void ignore_written(void *context, const fl_checkpoint_outcome *outcome)
{
    (void)context;
    (void)outcome;
}

static bool is_never_hurried(void *context)
{
    (void)context;
    return false;
}

static void use_toy_model(void)
{
    rig_know_the_model(r);
    fl_plan *plan = &r->elastic.plan;
    plan->n_layers = r->profile.n_layers;
    plan->first[1] = plan->n_layers / 2;
    plan->first[2] = plan->n_layers;
    r->options.model = r->model;
    r->facts.losses = &no_losses;
}

static int set_up(void **state)
{
    rig_set_up(state);
    r = *state;
    use_toy_model();
    assert_int_equal(fl_checkpoint_store_open(r->dir_fd, "checkpoints", &store), FL_OK);
    r->options.checkpoints = &store;
    r->options.run_dir = r->dir;
    r->options.snapshot = &kept;
    assert_int_equal(
        fl_snapshot_open(r->model, fl_optimizer_n_moments(r->job.train.optimizer), &kept.memory),
        FL_OK);
    c = calloc(1, sizeof *c);
    snapshots = calloc(1, sizeof *snapshots);
    assert_true(c != NULL && snapshots != NULL);
    *c = (fl_checkpoints){.run = &r->facts,
                          .elastic = &r->elastic,
                          .router = &r->router,
                          .log = &r->log,
                          .written = ignore_written,
                          .hurried = is_never_hurried};
    r->job.checkpoint.every = (fl_interval){0};
    assert_int_equal(fl_checkpoints_open(c), FL_OK);
    *snapshots = (fl_snapshots){.run = &r->facts,
                                .elastic = &r->elastic,
                                .router = &r->router,
                                .log = &r->log,
                                .checkpoints = c};
    r->job.fault.snapshot = (fl_interval){.steps = 20};
    fl_snapshots_open(snapshots);
    return 0;
}

static int tear_down(void **state)
{
    fl_snapshots_close(snapshots);
    fl_checkpoints_close(c);
    fl_kept_snapshot_fini(&kept);
    fl_checkpoint_store_close(&store);
    free(snapshots);
    free(c);
    return rig_tear_down(state);
}

/* ---- what workers report ---- */

/* As a worker does: into the folder that is there, or that it makes. */
static void write_file(int64_t step, const char *name)
{
    char folder[FL_CHECKPOINT_NAME_MAX], path[3 * FL_CHECKPOINT_NAME_MAX];
    fl_checkpoint_folder_name(step, folder);
    (void)mkdirat(store.dir_fd, folder, 0700);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = openat(store.dir_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "abc", FILE_BYTES), FILE_BYTES);
    close(fd);
}

static void report_file(int rank, const reports *of, fl_checkpoint_part part, int layer)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    fl_checkpoint_file_report report = {.step = of->step,
                                        .serial = of->serial,
                                        .generation = of->generation,
                                        .layer = layer,
                                        .part = part,
                                        .bytes = FILE_BYTES,
                                        .xxh64 = 77};
    write_file(of->step, fl_checkpoint_file_name(part, layer, name));
    fl_checkpoints_file(c, rank, &report);
}

static void report_files(int rank, const reports *of)
{
    const int parked[FL_MAX_LAYERS] = {0};
    int n_moments = fl_optimizer_n_moments(r->job.train.optimizer);
    for (int layer = 0; layer < fl_model_n_layers(r->model); layer++) {
        for (int part = 0; part < FL_CHECKPOINT_PARTS; part++) {
            if (fl_checkpoint_writer_rank(r->model, &r->elastic.plan, parked, n_moments,
                                          (fl_checkpoint_part)part, layer) == rank) {
                report_file(rank, of, (fl_checkpoint_part)part, layer);
            }
        }
    }
}

static void report_part(int rank, const reports *of, fl_status status)
{
    fl_checkpoint_part_report report = {

        .step = of->step, .serial = of->serial, .generation = of->generation, .status = status};
    fl_checkpoints_part(c, rank, &report);
}

static void report_all(int rank, const reports *of)
{
    report_files(rank, of);
    report_part(rank, of, FL_OK);
}

/* ---- the run ---- */

static void turn(bool paused, int64_t now_us)
{
    fl_checkpoints_watch(c, paused, now_us);
    while (c->committing) {
        fl_commit_end(c->commit);
        fl_checkpoints_watch(c, paused, now_us);
    }
}

/* What the workers answer to the last request. */
static reports asked_for(bool paused)
{
    assert_true(c->asked);
    return (reports){.step = paused ? r->stats.steps : c->target,
                     .serial = c->serial,
                     .generation = r->elastic.plan.generation};
}

static reports ask(bool paused)
{
    int64_t ticket = 0;
    assert_int_equal(fl_checkpoints_request(c, &ticket), FL_OK);
    turn(paused, fl_now_us());
    return asked_for(paused);
}

static void count_to(int64_t step)
{
    r->stats.steps = step;
    fl_checkpoints_counted(c);
}

static void pass_deadline(bool paused)
{
    turn(paused, fl_now_us() + (r->job.fault.deadline_ms + 1) * 1000);
}

static bool has_folder(int64_t step)
{
    char folder[FL_CHECKPOINT_NAME_MAX];
    return faccessat(store.dir_fd, fl_checkpoint_folder_name(step, folder), F_OK, 0) == 0;
}

/* A checkpoint that fails because one worker is slow. */
static reports fail_one(bool paused)
{
    reports of = ask(paused);
    count_to(of.step);
    report_all(0, &of);
    report_part(2, &of, FL_OK);
    pass_deadline(paused);
    assert_int_equal(c->sums.n_failed, 1);
    assert_int_equal(c->n_open, 0);
    assert_false(has_folder(of.step));
    return of;
}

static void report_others(const reports *of)
{
    report_all(0, of);
    report_part(2, of, FL_OK);
}

static void expect_written(const reports *of)
{
    turn(false, fl_now_us());
    assert_int_equal(c->n_open, 0);
    assert_int_equal(c->sums.n_failed, 1);
    assert_int_equal(c->sums.n_written, 1);
    assert_int_equal(c->sums.last_step, of->step);
    assert_true(has_folder(of->step));
}

/* ---- checkpoints ---- */

static void test_late_reports__of_another_step_are_dropped(void **state)
{
    (void)state;
    reports late = fail_one(false);
    reports next = ask(false);
    assert_true(next.step > late.step);
    report_files(SLOW, &late); /* before the step of the next one */
    count_to(next.step);
    report_others(&next);
    report_part(SLOW, &late, FL_OK); /* while that is being written */
    report_all(SLOW, &next);
    expect_written(&next);
    assert_false(has_folder(late.step)); /* the next commit removes what the late files made */
}

static void test_late_reports__may_come_when_nothing_is_asked_for(void **state)
{
    (void)state;
    reports late = fail_one(false);
    report_all(SLOW, &late);
    assert_int_equal(c->n_open, 0);
    reports next = ask(false);
    count_to(next.step);
    report_others(&next);
    report_all(SLOW, &next);
    expect_written(&next);
}

static void test_late_reports__of_the_same_step_are_dropped(void **state)
{
    (void)state;
    reports late = fail_one(true);
    reports next = ask(true);
    assert_int_equal(next.step, late.step);
    report_all(SLOW, &late);
    report_others(&next);
    assert_int_equal(c->n_open, 1);
    assert_false(c->open[0]->reported[SLOW]);
    report_all(SLOW, &next);
    expect_written(&next);
}

/* A slow worker answers the next request at once, that it is still writing. */
static void test_late_reports__come_after_a_refusal_of_the_next(void **state)
{
    (void)state;
    reports late = fail_one(true);
    reports next = ask(true);
    report_part(SLOW, &next, FL_EBUSY);
    report_all(SLOW, &late);
    report_others(&next);
    turn(true, fl_now_us());
    reports third = asked_for(true);
    assert_true(third.serial > next.serial);
    assert_int_equal(c->n_open, 0);
    report_others(&third);
    report_all(SLOW, &third);
    expect_written(&third);
}

static void test_late_reports__of_another_generation_are_dropped(void **state)
{
    (void)state;
    reports late = fail_one(false);
    r->elastic.plan.generation++;
    reports next = ask(false);
    report_files(SLOW, &late);
    count_to(next.step);
    report_part(SLOW, &late, FL_OK);
    report_others(&next);
    report_all(SLOW, &next);
    expect_written(&next);
}

/* Would catch: a worker that is always late, whose files keep a checkpoint without progress open.
 */
static void test_late_reports__do_not_move_the_deadline_of_the_next(void **state)
{
    (void)state;
    reports late = fail_one(false);
    reports next = ask(false);
    count_to(next.step);
    report_others(&next);
    int64_t moved_us = c->moved_us = c->moved_us - 1000;
    report_all(SLOW, &late);
    assert_int_equal(c->moved_us, moved_us);
}

/* A worker that leaves is not awaited: the checkpoint is written without its part. */
static void test_late_reports__of_one_that_is_written_are_dropped(void **state)
{
    (void)state;
    r->elastic.plan.departed[2] = true;
    reports of = ask(false);
    count_to(of.step);
    report_all(0, &of);
    report_all(SLOW, &of);
    turn(false, fl_now_us());
    assert_int_equal(c->sums.n_written, 1);
    report_part(2, &of, FL_OK);
    assert_int_equal(c->n_open, 0);
}

/* The last checkpoint, which workers begin unasked. */
static void test_late_reports__of_the_last_one_are_dropped(void **state)
{
    (void)state;
    reports of = {.step = RIG_STEPS, .generation = r->elastic.plan.generation};
    count_to(RIG_STEPS);
    report_others(&of);
    pass_deadline(false);
    assert_int_equal(c->sums.n_failed, 1);
    report_all(SLOW, &of);
    assert_int_equal(c->n_open, 0);
}

/* ---- snapshots ---- */

static void copy_snapshot(int rank, int64_t step, int64_t serial)
{
    fl_snapshot_report report = {
        .step = step, .generation = r->elastic.plan.generation, .serial = serial, .bytes = 8};
    fl_snapshots_reported(snapshots, rank, &report);
}

static int64_t ask_snapshot(void)
{
    r->stats.steps += 20 - r->stats.steps % 20 - 2;
    fl_snapshots_watch(snapshots, false, fl_now_us());
    assert_true(snapshots->asked);
    r->stats.steps = snapshots->target;
    fl_snapshots_counted(snapshots);
    return snapshots->target;
}

static void test_late_reports__of_a_snapshot_are_dropped(void **state)
{
    (void)state;
    int64_t late = ask_snapshot(), late_serial = snapshots->serial;
    copy_snapshot(0, late, late_serial);
    copy_snapshot(2, late, late_serial);
    fl_snapshots_watch(snapshots, false, fl_now_us() + (r->job.fault.deadline_ms + 1) * 1000);
    assert_false(snapshots->asked);
    copy_snapshot(SLOW, late, late_serial);
    int64_t next = ask_snapshot(), serial = snapshots->serial;
    assert_true(next > late);
    copy_snapshot(SLOW, late, late_serial);
    copy_snapshot(0, next, serial);
    copy_snapshot(2, next, serial);
    fl_snapshots_watch(snapshots, false, fl_now_us());
    assert_int_equal(snapshots->n_taken, 0);
    copy_snapshot(SLOW, next, serial);
    fl_snapshots_watch(snapshots, false, fl_now_us());
    assert_int_equal(snapshots->n_taken, 1);
    assert_int_equal(fl_snapshots_step(snapshots), next);
}

#define IN_A_RIG(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_RIG(test_late_reports__of_another_step_are_dropped),
        IN_A_RIG(test_late_reports__may_come_when_nothing_is_asked_for),
        IN_A_RIG(test_late_reports__of_the_same_step_are_dropped),
        IN_A_RIG(test_late_reports__come_after_a_refusal_of_the_next),
        IN_A_RIG(test_late_reports__of_another_generation_are_dropped),
        IN_A_RIG(test_late_reports__do_not_move_the_deadline_of_the_next),
        IN_A_RIG(test_late_reports__of_one_that_is_written_are_dropped),
        IN_A_RIG(test_late_reports__of_the_last_one_are_dropped),
        IN_A_RIG(test_late_reports__of_a_snapshot_are_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
