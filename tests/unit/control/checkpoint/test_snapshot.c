/* What workers copy into the snapshot, and what is read back: to the last bit, of every plan. Would
 * catch: a layer that nobody copies, moments of the wrong parameter, a slot that is written after
 * it was given up, one that was damaged and is taken for a state of the run. */
#include "control/checkpoint/snapshots.h"

#include "device/async/async.h"
#include "device/system/alloc.h"
#include "nn/model.h"
#include "pipe/state/checkpoint/checkpoint_source.h"
#include "pipe/state/snapshot/snapshot_save.h"
#include "support/data/saved_state.h"
#include "support/data/toy.h"
#include "support/shell.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { BLOCKS = 4 };

static fl_model *model;
static fl_device *cpu;
static saved_run run; /* large */
static fl_snapshot snapshot;

static void open_run(fl_device *device, saved_truth *truth, int F, int K, int R, int n_workers)
{
    fl_plan plan = saved_plan(model, F, K, R, n_workers);
    fl_state_source source = saved_truth_source(truth);
    saved_run_open(&run, model, device, NULL, &plan, n_workers - 1, 0, &source);
}

static fl_checkpoint_state state_of(int rank)
{
    const saved_worker *w = &run.worker[rank];
    return (fl_checkpoint_state){
        .plan = &run.plan, .params = w->active ? &w->params : NULL, .parked = &w->parked};
}

/* All workers; the sum of what each says that it copied. */
static int64_t put_all(int64_t serial)
{
    int64_t sum = 0;
    for (int rank = 0; rank < run.plan.n_workers; rank++) {
        fl_checkpoint_state state = state_of(rank);
        int64_t bytes = 0;
        assert_int_equal(fl_snapshot_put(&snapshot, serial, &state, rank, &bytes), FL_OK);
        sum += bytes;
    }
    return sum;
}

static void expect_tensor(const fl_state_source *found, const fl_state_source *truth, int layer,
                          int index, int part)
{
    const fl_param_spec *spec = &fl_model_params(model, layer)->spec[index];
    size_t n = (size_t)(spec->rows * spec->cols);
    float *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b);
    assert_int_equal(found->read(found->self, layer, index, part, a), FL_OK);
    assert_int_equal(truth->read(truth->self, layer, index, part, b), FL_OK);
    assert_memory_equal(a, b, n * sizeof *a);
    free(a);
    free(b);
}

static void expect_slot(int slot, saved_truth *truth)
{
    fl_snapshot_view view = {.snapshot = &snapshot, .slot = slot};
    fl_state_source found = fl_snapshot_source(&view), source = saved_truth_source(truth);
    for (int layer = 0; layer < fl_model_n_layers(model); layer++) {
        for (int i = 0; i < fl_model_params(model, layer)->n; i++) {
            for (int part = 0; part <= SAVED_MOMENTS; part++) {
                expect_tensor(&found, &source, layer, i, part);
            }
        }
    }
}

static void round_trip(fl_device *device, int F, int K, int R, int n_workers)
{
    saved_truth truth = {.model = model, .version = 10 * K + R};
    assert_int_equal(fl_snapshot_open(model, SAVED_MOMENTS, &snapshot), FL_OK);
    open_run(device, &truth, F, K, R, n_workers);
    fl_snapshot_want(&snapshot, 1, 1);
    assert_int_equal(put_all(1) * FL_SNAPSHOT_SLOTS, fl_snapshot_bytes(model, SAVED_MOMENTS));
    expect_slot(1, &truth);
    assert_int_equal(fl_snapshot_check(&snapshot, 1), FL_OK);
    saved_run_close(&run);
    fl_snapshot_close(&snapshot);
}

static void test_snapshot__has_what_the_workers_had(void **state)
{
    (void)state;
    round_trip(cpu, 0, 1, 1, 1);
    round_trip(cpu, 0, 2, 1, 2);
    round_trip(cpu, 0, 2, 2, 4);
    round_trip(cpu, 2, 2, 1, 3); /* the last worker, without a stage, keeps moments */
}

static void test_snapshot__comes_from_an_asynchronous_device(void **state)
{
    (void)state;
    const fl_async_options options = {
        .n_threads = 1, .budget_bytes = (size_t)1 << 30, .seed = 3, .max_delay_us = 200};
    fl_device *device = NULL;
    assert_int_equal(fl_device_async_create(&options, &device), FL_OK);
    round_trip(device, 2, 2, 1, 3);
    fl_device_destroy(&device);
}

static void test_snapshot__an_old_request_writes_nothing(void **state)
{
    (void)state;
    saved_truth truth = {.model = model, .version = 1}, later = {.model = model, .version = 2};
    int64_t bytes = -1;
    assert_int_equal(fl_snapshot_open(model, SAVED_MOMENTS, &snapshot), FL_OK);
    open_run(cpu, &truth, 0, 1, 1, 1);
    fl_snapshot_want(&snapshot, 7, 0);
    (void)put_all(7);
    saved_run_close(&run);
    open_run(cpu, &later, 0, 1, 1, 1);
    fl_checkpoint_state now = state_of(0);
    fl_snapshot_want(&snapshot, 0, 0);
    assert_int_equal(fl_snapshot_put(&snapshot, 7, &now, 0, &bytes), FL_ESTALE);
    fl_snapshot_want(&snapshot, 8, 1);
    assert_int_equal(fl_snapshot_put(&snapshot, 7, &now, 0, &bytes), FL_ESTALE);
    assert_int_equal(bytes, 0);
    expect_slot(0, &truth);
    saved_run_close(&run);
    fl_snapshot_close(&snapshot);
}

static void count_file(void *context, const fl_checkpoint_file_report *report)
{
    int *n_files = context;
    assert_true(report->bytes > 0 && report->xxh64 != 0 && !report->linked);
    (*n_files)++;
}

static void expect_files(int folder_fd, saved_truth *truth)
{
    fl_checkpoint_source files;
    fl_state_source found = fl_checkpoint_source_open(model, folder_fd, SAVED_MOMENTS, &files);
    fl_state_source source = saved_truth_source(truth);
    for (int layer = 0; layer < fl_model_n_layers(model); layer++) {
        for (int i = 0; i < fl_model_params(model, layer)->n; i++) {
            for (int part = 0; part <= SAVED_MOMENTS; part++) {
                expect_tensor(&found, &source, layer, i, part);
            }
        }
    }
    fl_checkpoint_source_close(&files);
}

/* Of a run with frozen blocks, whose moments the last worker keeps. No worker is there any more. */
static void test_snapshot__is_saved_as_the_files_of_a_checkpoint(void **state)
{
    (void)state;
    saved_truth truth = {.model = model, .version = 5};
    char *folder = fresh_folder(FL_BINARY_DIR), command[300];
    int parked[FL_MAX_LAYERS], n_files = 0;
    output result;
    assert_int_equal(fl_snapshot_open(model, SAVED_MOMENTS, &snapshot), FL_OK);
    open_run(cpu, &truth, 2, 2, 1, 3);
    fl_snapshot_want(&snapshot, 1, 0);
    (void)put_all(1);
    fl_plan plan = run.plan;
    memcpy(parked, run.worker[0].parked.rank, (size_t)fl_model_n_layers(model) * sizeof *parked);
    saved_run_close(&run);
    const fl_snapshot_view view = {.snapshot = &snapshot, .slot = 0};
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(fl_snapshot_save(&view, &plan, parked, fd, count_file, &n_files), FL_OK);
    assert_int_equal(n_files, FL_CHECKPOINT_PARTS * fl_model_n_layers(model));
    expect_files(fd, &truth);
    assert_int_equal(fl_snapshot_save(&view, &plan, parked, fd, count_file, &n_files), FL_EBUSY);
    close(fd);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    run_command(NULL, command, &result);
    free(folder);
    fl_snapshot_close(&snapshot);
}

/* The worker that wrote it is gone. */
static void test_snapshot__outlives_its_worker(void **state)
{
    (void)state;
    saved_truth truth = {.model = model, .version = 5};
    int how = -1;
    assert_int_equal(fl_snapshot_open(model, SAVED_MOMENTS, &snapshot), FL_OK);
    fl_snapshot_want(&snapshot, 1, 0);
    pid_t worker = fork();
    if (worker == 0) {
        open_run(cpu, &truth, 0, 1, 1, 1);
        (void)put_all(1);
        _exit(0);
    }
    assert_int_equal(waitpid(worker, &how, 0), worker);
    assert_int_equal(how, 0);
    expect_slot(0, &truth);
    fl_snapshot_close(&snapshot);
}

static int64_t slot_floats(void)
{
    return snapshot.layer_at[fl_model_n_layers(model)];
}

/* One bit of any byte of a slot, wherever it is; padding that nobody copied is part of the hash. */
static void test_snapshot__damage_is_found(void **state)
{
    (void)state;
    saved_truth truth = {.model = model, .version = 3};
    assert_int_equal(fl_snapshot_open(model, SAVED_MOMENTS, &snapshot), FL_OK);
    open_run(cpu, &truth, 2, 2, 1, 3);
    fl_snapshot_want(&snapshot, 1, 1);
    (void)put_all(1);
    unsigned char *bytes = (unsigned char *)(snapshot.slots + slot_floats());
    int64_t n = slot_floats() * (int64_t)sizeof(float);
    for (int64_t at = 0; at < n; at += n / 97) {
        bytes[at] ^= 0x10;
        assert_int_equal(fl_snapshot_check(&snapshot, 1), FL_EFORMAT);
        bytes[at] ^= 0x10;
    }
    bytes[0] ^= 1;
    assert_int_equal(fl_snapshot_check(&snapshot, 1), FL_EFORMAT);
    assert_non_null(strstr(fl_errmsg(), fl_model_layer_name(model, 0)));
    assert_int_equal(fl_snapshot_check(&snapshot, 0), FL_OK); /* nobody filled it */
    bytes[0] ^= 1;
    assert_int_equal(fl_snapshot_check(&snapshot, 1), FL_OK);
    saved_run_close(&run);
    fl_snapshot_close(&snapshot);
}

static fl_checkpoint *checkpoint_of(int64_t step)
{
    fl_checkpoint *c = NULL;
    assert_int_equal(fl_alloc(sizeof *c, (void **)&c), FL_OK);
    c->step = step;
    return c;
}

static void fill_slot(int64_t serial, int slot, saved_truth *truth)
{
    open_run(cpu, truth, 0, 2, 1, 2);
    fl_snapshot_want(&snapshot, serial, slot);
    (void)put_all(serial);
    fl_snapshot_want(&snapshot, 0, 0);
    saved_run_close(&run);
}

/* The newest one is not damaged; it is, and then the one before it, too. */
static void test_snapshot__the_older_one_takes_the_place(void **state)
{
    (void)state;
    saved_truth first = {.model = model, .version = 1}, second = {.model = model, .version = 2};
    assert_int_equal(fl_snapshot_open(model, SAVED_MOMENTS, &snapshot), FL_OK);
    fill_slot(1, 0, &first);
    fill_slot(2, 1, &second);
    fl_kept_snapshot kept = {
        .memory = snapshot, .checkpoint = checkpoint_of(20), .slot = 1, .older = checkpoint_of(10)};
    fl_kept_snapshot_check(&kept, INT64_MAX);
    assert_int_equal(kept.checkpoint->step, 20);
    snapshot.slots[slot_floats() + 3] += 1.0f;
    fl_kept_snapshot_check(&kept, INT64_MAX);
    assert_int_equal(kept.checkpoint->step, 10);
    assert_int_equal(kept.slot, 0);
    assert_null(kept.older);
    expect_slot(0, &first);
    snapshot.slots[3] += 1.0f;
    fl_kept_snapshot_check(&kept, INT64_MAX);
    assert_null(kept.checkpoint);
    fl_kept_snapshot_fini(&kept);
}

/* The files of the run end between the two, as after a full disk. */
static void test_snapshot__one_after_the_end_of_the_files_is_not_used(void **state)
{
    (void)state;
    saved_truth first = {.model = model, .version = 1}, second = {.model = model, .version = 2};
    assert_int_equal(fl_snapshot_open(model, SAVED_MOMENTS, &snapshot), FL_OK);
    fill_slot(1, 0, &first);
    fill_slot(2, 1, &second);
    fl_kept_snapshot kept = {
        .memory = snapshot, .checkpoint = checkpoint_of(20), .slot = 1, .older = checkpoint_of(10)};
    fl_kept_snapshot_check(&kept, 20);
    assert_int_equal(kept.checkpoint->step, 20);
    fl_kept_snapshot_check(&kept, 19);
    assert_int_equal(kept.checkpoint->step, 10);
    assert_int_equal(kept.slot, 0);
    fl_kept_snapshot_check(&kept, 9);
    assert_null(kept.checkpoint);
    fl_kept_snapshot_fini(&kept);
}

static int set_up(void **state)
{
    (void)state;
    bool good = fl_toy_model(BLOCKS, 0.0f, &model) == FL_OK &&
                fl_device_cpu_create(1, NULL, (size_t)1 << 30, &cpu) == FL_OK;
    return good ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    fl_device_destroy(&cpu);
    fl_model_destroy(&model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_snapshot__has_what_the_workers_had),
        cmocka_unit_test(test_snapshot__comes_from_an_asynchronous_device),
        cmocka_unit_test(test_snapshot__an_old_request_writes_nothing),
        cmocka_unit_test(test_snapshot__is_saved_as_the_files_of_a_checkpoint),
        cmocka_unit_test(test_snapshot__outlives_its_worker),
        cmocka_unit_test(test_snapshot__damage_is_found),
        cmocka_unit_test(test_snapshot__the_older_one_takes_the_place),
        cmocka_unit_test(test_snapshot__one_after_the_end_of_the_files_is_not_used),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
