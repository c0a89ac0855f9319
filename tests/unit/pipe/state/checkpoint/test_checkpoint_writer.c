/* What workers write of a checkpoint and what is read back: to the last bit, from any plan into any
 * other; the thread that writes, and memory or a device that fails. */
#include "pipe/state/checkpoint/checkpoint_writer.h"

#include "device/async/async.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "nn/model.h"
#include "pipe/cost/plan.h"
#include "pipe/state/checkpoint/checkpoint_file.h"
#include "support/data/saved_rig.h"
#include "support/data/saved_state.h"

#include <fcntl.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- what is written ---- */

/* Would catch: padding or another tensor in a file, and memory that each checkpoint takes anew. */
static void test_writer__saves_every_tensor(void **state)
{
    (void)state;
    int before = saved_rig_n_files();
    saved_rig_open(0, 2, 2, 5, 0,
                   &saved_rig.first); /* worker 0 is a standby worker without a file */
    saved_run_save(&saved_rig.run, 10);
    saved_check(&saved_rig.run, 10, &saved_rig.first);
    uint64_t allocations = fl_alloc_count();
    saved_run_save(&saved_rig.run, 20);
    assert_int_equal(fl_alloc_count(), allocations);
    saved_check(&saved_rig.run, 20, &saved_rig.first);
    int64_t bytes = 0, held = 0, n_params = 0;
    for (int i = 0; i < 5; i++) {
        bytes += saved_rig.run.part[i].bytes;
        held += fl_checkpoint_writer_bytes(saved_rig.run.worker[i].writer);
    }
    for (int layer = 0; layer < fl_model_n_layers(saved_rig.model); layer++) {
        n_params += fl_model_layer_n_params(saved_rig.model, layer);
    }
    assert_in_range(bytes, 12 * n_params, 12 * n_params + saved_rig.run.n_files * 4096);
    assert_in_range(held, bytes, bytes + (saved_rig.run.n_files + 4) * 4096); /* each on a page */
    saved_run_close(&saved_rig.run);
    assert_int_equal(saved_rig_n_files(), before);
}

/* Would catch: a copy that is not waited for, and moments that lie apart from the device. */
static void test_writer__copies_from_an_asynchronous_device(void **state)
{
    (void)state;
    const fl_async_options options = {
        .n_threads = 1, .budget_bytes = (size_t)1 << 30, .seed = 5, .max_delay_us = 50};
    fl_device *device = NULL;
    fl_plan plan = saved_plan(saved_rig.model, 2, 2, 1, 3);
    assert_int_equal(fl_device_async_create(&options, &device), FL_OK);
    saved_run_open(&saved_rig.run, saved_rig.model, device, &saved_rig.store, &plan, 0, 0,
                   &saved_rig.first);
    saved_run_save(&saved_rig.run, 10);
    saved_check(&saved_rig.run, 10, &saved_rig.first);
    saved_run_close(&saved_rig.run);
    fl_device_destroy(&device);
}

/* Saved under one plan, loaded under the next, saved again: nothing changes, whoever owns what. */
static void test_writer__reshards(void **state)
{
    (void)state;
    static const struct {
        int F, K, R, n_workers;
    } plans[] = {{0, 4, 1, 4}, {0, 1, 3, 3}, {0, 4, 1, 4}, {3, 2, 2, 5},
                 {3, 4, 1, 4}, {3, 1, 3, 4}, {3, 2, 2, 6}};
    fl_state_source source = saved_rig.first;
    fl_checkpoint_source saved = {0};
    int fd = -1;
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        char name[FL_CHECKPOINT_NAME_MAX];
        int64_t step = (int64_t)i;
        saved_rig_open(plans[i].F, plans[i].K, plans[i].R, plans[i].n_workers, step, &source);
        saved_run_save(&saved_rig.run, step);
        saved_check(&saved_rig.run, step, &saved_rig.first);
        saved_run_close(&saved_rig.run);
        fl_checkpoint_source_close(&saved);
        close(fd);
        fd = openat(saved_rig.store.dir_fd, fl_checkpoint_folder_name(step, name), O_RDONLY);
        source = fl_checkpoint_source_open(saved_rig.model, fd, SAVED_MOMENTS, &saved);
    }
    fl_checkpoint_source_close(&saved);
    close(fd);
}

/* ---- the thread ---- */

static sem_t reached, go_on;

static void hold_file(void *context, const fl_checkpoint_file_report *report)
{
    (void)context;
    (void)report;
    sem_post(&reached);
    sem_wait(&go_on);
}

static fl_checkpoint_part_report parts[4];
static atomic_int n_parts;

static void keep_part(void *context, const fl_checkpoint_part_report *report)
{
    (void)context;
    parts[atomic_fetch_add(&n_parts, 1)] = *report;
}

/* Would catch: a checkpoint whose buffer is filled again before it is on the disk, and one that is
 * lost without a report. */
static void test_writer__takes_one_checkpoint_at_a_time(void **state)
{
    (void)state;
    fl_checkpoint_writer *writer = NULL;
    saved_rig_open(0, 1, 1, 1, 0, &saved_rig.first);
    const fl_checkpoint_writer_options options = {.model = saved_rig.model,
                                                  .device = saved_rig.cpu,
                                                  .store = &saved_rig.store,
                                                  .n_moments = SAVED_MOMENTS,
                                                  .on_file = hold_file,
                                                  .on_part = keep_part};
    const fl_checkpoint_state now = {.plan = &saved_rig.run.plan,
                                     .params = &saved_rig.run.worker[0].params,
                                     .parked = &saved_rig.run.worker[0].parked};
    sem_init(&reached, 0, 0);
    sem_init(&go_on, 0, 0);
    assert_int_equal(fl_checkpoint_writer_create(&options, &writer), FL_OK);
    fl_checkpoint_writer_prepare(writer, &now);
    assert_int_equal(fl_checkpoint_writer_begin(writer, &now, 10, 0), FL_OK);
    sem_wait(&reached);
    assert_int_equal(fl_checkpoint_writer_wait(writer, fl_deadline_us(1)), FL_EDEADLINE);
    fl_checkpoint_writer_prepare(writer, &now); /* nothing, while a checkpoint is written */
    assert_int_equal(fl_checkpoint_writer_begin(writer, &now, 20, 0), FL_OK);
    assert_int_equal(parts[0].step, 20);
    assert_int_equal(parts[0].status, FL_EBUSY);
    for (int i = 0; i < 1000; i++) {
        sem_post(&go_on);
    }
    assert_int_equal(fl_checkpoint_writer_wait(writer, fl_deadline_us(60000)), FL_OK);
    assert_int_equal(atomic_load(&n_parts), 2);
    assert_int_equal(parts[1].step, 10);
    assert_int_equal(parts[1].status, FL_OK);
    assert_true(parts[1].copy_us >= 0 && parts[1].write_us > 0);
    assert_true(parts[1].buffer_bytes >= parts[1].bytes);
    fl_checkpoint_writer_destroy(&writer);
    saved_run_close(&saved_rig.run);
}

static _Atomic fl_status last_status;

static void ignore_file(void *context, const fl_checkpoint_file_report *report)
{
    (void)context;
    (void)report;
}

static void announce_part(void *context, const fl_checkpoint_part_report *report)
{
    (void)context;
    atomic_store(&last_status, report->status);
    sem_post(&reached);
}

/* The controller asks for the next one while the thread is still in its report of the last one.
 * Would catch: a best checkpoint that is refused for it, and comes after another step. */
static void test_writer__takes_the_next_once_the_last_is_reported(void **state)
{
    (void)state;
    fl_checkpoint_writer *writer = NULL;
    saved_rig_open(0, 1, 1, 1, 0, &saved_rig.first);
    const fl_checkpoint_writer_options options = {.model = saved_rig.model,
                                                  .device = saved_rig.cpu,
                                                  .store = &saved_rig.store,
                                                  .n_moments = SAVED_MOMENTS,
                                                  .on_file = ignore_file,
                                                  .on_part = announce_part};
    const fl_checkpoint_state now = {.plan = &saved_rig.run.plan,
                                     .params = &saved_rig.run.worker[0].params,
                                     .parked = &saved_rig.run.worker[0].parked};
    sem_init(&reached, 0, 0);
    assert_int_equal(fl_checkpoint_writer_create(&options, &writer), FL_OK);
    for (int step = 1; step <= 50; step++) {
        assert_int_equal(fl_checkpoint_writer_begin(writer, &now, step, 0), FL_OK);
        sem_wait(&reached);
        assert_int_equal(atomic_load(&last_status), FL_OK);
    }
    assert_int_equal(fl_checkpoint_writer_wait(writer, fl_deadline_us(60000)), FL_OK);
    fl_checkpoint_writer_destroy(&writer);
    sem_destroy(&reached);
    saved_run_close(&saved_rig.run);
}

/* Would catch: a failure of the device that is taken for one of the disk. */
static void test_writer__returns_a_failure_of_the_device(void **state)
{
    (void)state;
    const fl_async_options options = {.n_threads = 1, .budget_bytes = (size_t)1 << 30, .seed = 5};
    fl_device *device = NULL;
    fl_plan plan = saved_plan(saved_rig.model, 0, 1, 1, 1);
    assert_int_equal(fl_device_async_create(&options, &device), FL_OK);
    saved_run_open(&saved_rig.run, saved_rig.model, device, &saved_rig.store, &plan, 0, 0,
                   &saved_rig.first);
    const fl_checkpoint_state now = {.plan = &saved_rig.run.plan,
                                     .params = &saved_rig.run.worker[0].params,
                                     .parked = &saved_rig.run.worker[0].parked};
    const fl_async_fault fault = {.entry = "copy_out", .n = 3};
    assert_int_equal(fl_device_async_fail(device, &fault), FL_OK);
    assert_int_not_equal(fl_checkpoint_writer_begin(saved_rig.run.worker[0].writer, &now, 10, 0),
                         FL_OK);
    assert_int_equal(saved_rig.run.n_parts, 0);
    saved_run_close(&saved_rig.run);
    fl_device_destroy(&device);
}

/* Without memory for the copy there is no checkpoint, and training goes on. */
static void test_writer__reports_missing_memory(void **state)
{
    (void)state;
    saved_rig_open(0, 1, 1, 1, 0, &saved_rig.first);
    for (uint64_t n = 1;; n++) {
        saved_rig.run.n_files = saved_rig.run.n_parts = 0;
        fl_alloc_fail_at(n);
        saved_run_save(&saved_rig.run, (int64_t)n);
        fl_alloc_fail_at(0);
        if (saved_rig.run.part[0].status == FL_OK) {
            assert_true(n > 10);
            saved_check(&saved_rig.run, (int64_t)n, &saved_rig.first);
            break;
        }
        assert_int_equal(saved_rig.run.part[0].status, FL_ENOMEM);
        assert_int_equal(saved_rig.run.n_files, 0);
    }
    saved_run_close(&saved_rig.run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_writer__saves_every_tensor, saved_rig_set_up,
                                        saved_rig_tear_down),
        cmocka_unit_test_setup_teardown(test_writer__copies_from_an_asynchronous_device,
                                        saved_rig_set_up, saved_rig_tear_down),
        cmocka_unit_test_setup_teardown(test_writer__reshards, saved_rig_set_up,
                                        saved_rig_tear_down),
        cmocka_unit_test_setup_teardown(test_writer__takes_one_checkpoint_at_a_time,
                                        saved_rig_set_up, saved_rig_tear_down),
        cmocka_unit_test_setup_teardown(test_writer__takes_the_next_once_the_last_is_reported,
                                        saved_rig_set_up, saved_rig_tear_down),
        cmocka_unit_test_setup_teardown(test_writer__returns_a_failure_of_the_device,
                                        saved_rig_set_up, saved_rig_tear_down),
        cmocka_unit_test_setup_teardown(test_writer__reports_missing_memory, saved_rig_set_up,
                                        saved_rig_tear_down),
    };
    return cmocka_run_group_tests(tests, saved_rig_set_up_all, saved_rig_tear_down_all);
}
