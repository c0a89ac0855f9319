/* The ledger of an interrupted run: cut after a step, proved, and continued. */
#include "autodp/ledger.h"

#include "autodp/sampler.h"
#include "autodp/split_work.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "support/folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* 4 steps an epoch: 8, 8, 8 and 5 samples. */
enum { SAMPLES = 29, BATCH = 8, PER_EPOCH = 4, STEPS = 10, R = 2, SEED = 7, FILE_MAX = 1 << 16 };
enum { STEP_BYTES = R * (32 + 8) + BATCH * 4 }; /* of a whole batch in the file */

static char folder[FOLDER_SIZE], path[96], part[112];
static int dir_fd;

static int set_up(void **state)
{
    (void)state;
    make_folder(folder);
    snprintf(path, sizeof path, "%s/ledger.bin", folder);
    snprintf(part, sizeof part, "%s.part", path);
    dir_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fl_log_level_set(FL_LOG_ERROR);
    return dir_fd < 0 ? -1 : 0;
}

static int clean(void **state)
{
    (void)state;
    fl_log_level_set(FL_LOG_INFO);
    close(dir_fd);
    return remove_folder(folder);
}

static size_t load(uint8_t *data)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(data, 1, FILE_MAX, file);
    fclose(file);
    return n;
}

static void store(const uint8_t *data, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static fl_ledger_place place_at(int64_t step)
{
    return (fl_ledger_place){.n_samples = SAMPLES, .seed = SEED, .batch = BATCH, .step = step};
}

/* What the workers of `replica` report of a step; replica -1: of all. */
static void add_step(fl_ledger *ledger, int64_t step, int replica)
{
    fl_cursor cursor = {.epoch = step / PER_EPOCH, .position = step % PER_EPOCH * BATCH};
    int64_t ids[BATCH], n, first[R + 1], epoch = cursor.epoch;
    fl_sampler_next(SEED, SAMPLES, BATCH, &cursor, ids, &n);
    fl_split_work(n, NULL, R, first);
    for (int r = 0; r < R; r++) {
        if (replica < 0 || r == replica) {
            assert_int_equal(
                fl_ledger_add(ledger, epoch, step, 1, r, ids + first[r], first[r + 1] - first[r]),
                FL_OK);
        }
    }
}

static fl_ledger *create(void)
{
    fl_ledger *ledger = NULL;
    assert_int_equal(fl_ledger_create(dir_fd, SAMPLES, SEED, &ledger), FL_OK);
    return ledger;
}

static void close_ledger(fl_ledger *ledger)
{
    assert_int_equal(fl_ledger_close(&ledger), FL_OK);
}

/* A whole run, or the first n steps of one that was killed. */
static void write_run(int64_t n_steps, bool ends)
{
    fl_ledger *ledger = create();
    for (int64_t step = 0; step < n_steps; step++) {
        add_step(ledger, step, -1);
    }
    assert_int_equal(ends ? fl_ledger_end(ledger) : FL_OK, FL_OK);
    close_ledger(ledger);
}

static void finish_run(fl_ledger *ledger, int64_t from)
{
    for (int64_t step = from; step < STEPS; step++) {
        add_step(ledger, step, -1);
    }
    assert_int_equal(fl_ledger_end(ledger), FL_OK);
    close_ledger(ledger);
}

/* The continued ledger is that of an uninterrupted run, byte for byte. */
static void expect_whole(void)
{
    uint8_t here[FILE_MAX], whole[FILE_MAX];
    fl_ledger_proof proof;
    size_t n = load(here);
    assert_int_equal(fl_ledger_prove(path, &proof), FL_OK);
    assert_int_equal(fl_ledger_judge(&proof), FL_LEDGER_COMPLETE);
    fl_ledger_proof_fini(&proof);
    write_run(STEPS, true);
    assert_int_equal(load(whole), n);
    assert_memory_equal(here, whole, n);
}

static void refuse(int64_t step, fl_status status, const char *why)
{
    uint8_t before[FILE_MAX], after[FILE_MAX];
    fl_ledger *ledger = NULL;
    fl_ledger_place place = place_at(step);
    size_t n = load(before);
    assert_int_equal(fl_ledger_check_place(path, &place), status);
    if (strstr(fl_errmsg(), why) == NULL) {
        fail_msg("\"%s\" has no \"%s\"", fl_errmsg(), why);
    }
    assert_int_equal(fl_ledger_resume(dir_fd, &place, &ledger), status);
    assert_non_null(strstr(fl_errmsg(), why));
    assert_null(ledger);
    assert_int_not_equal(access(part, F_OK), 0);
    assert_int_equal(load(after), n);
    assert_memory_equal(before, after, n);
}

static void test_ledger_resume__continues_after_any_step(void **state)
{
    (void)state;
    for (int64_t step = 0; step <= STEPS; step++) {
        fl_ledger *ledger = NULL;
        fl_ledger_place place = place_at(step);
        write_run(STEPS, step % 2 == 0);
        assert_int_equal(fl_ledger_check_place(path, &place), FL_OK);
        assert_int_equal(fl_ledger_resume(dir_fd, &place, &ledger), FL_OK);
        assert_int_not_equal(access(part, F_OK), 0);
        finish_run(ledger, step);
        expect_whole();
    }
}

/* The records of two replicas arrive by separate links: replica 0 may be two steps ahead. Would
 * catch: cutting the file at a byte. */
static void test_ledger_resume__finds_records_wherever_they_stand(void **state)
{
    (void)state;
    fl_ledger *ledger = create();
    for (int64_t step = 0; step < 6; step++) {
        add_step(ledger, step, 0);
        if (step >= 2) {
            add_step(ledger, step - 2, 1);
        }
    }
    close_ledger(ledger);
    fl_ledger_place place = place_at(4);
    assert_int_equal(fl_ledger_resume(dir_fd, &place, &ledger), FL_OK);
    finish_run(ledger, 4);
    fl_ledger_proof proof;
    assert_int_equal(fl_ledger_prove(path, &proof), FL_OK);
    assert_int_equal(fl_ledger_judge(&proof), FL_LEDGER_COMPLETE);
    assert_int_equal(proof.n_records, STEPS * R);
    fl_ledger_proof_fini(&proof);
    write_run(STEPS, false);
}

static void test_ledger_resume__refuses_a_step_that_lacks_samples(void **state)
{
    (void)state;
    write_run(5, false);
    refuse(7, FL_EFORMAT, "step 5 has 0 samples, 8 expected: the 7 steps before the checkpoint");
    fl_ledger *ledger = create();
    add_step(ledger, 0, -1);
    add_step(ledger, 1, 1);
    add_step(ledger, 2, -1);
    add_step(ledger, 3, -1);
    close_ledger(ledger);
    refuse(4, FL_EFORMAT, "step 1 has 4 samples, 8 expected");
}

static void test_ledger_resume__refuses_samples_that_are_not_the_steps(void **state)
{
    (void)state;
    fl_permutation order;
    fl_permutation_init(&order, SAMPLES, SEED, 0);
    int64_t again[] = {fl_permutation_at(&order, 0)}, later[] = {fl_permutation_at(&order, 20)};
    fl_ledger *ledger = create();
    add_step(ledger, 0, -1);
    assert_int_equal(fl_ledger_add(ledger, 0, 1, 1, 0, again, 1), FL_OK);
    close_ledger(ledger);
    refuse(2, FL_EFORMAT, "comes twice in epoch 1");
    ledger = create();
    add_step(ledger, 0, -1);
    assert_int_equal(fl_ledger_add(ledger, 0, 1, 1, 0, later, 1), FL_OK);
    close_ledger(ledger);
    refuse(2, FL_EFORMAT, "found in step 1, whose order has it later");
    ledger = create();
    assert_int_equal(fl_ledger_add(ledger, 3, 1, 1, 0, later, 1), FL_OK);
    close_ledger(ledger);
    refuse(2, FL_EFORMAT, "step 1 in epoch 3 found, epoch 0 expected");
}

static void test_ledger_resume__refuses_the_ledger_of_another_run(void **state)
{
    (void)state;
    fl_ledger *ledger = NULL;
    assert_int_equal(fl_ledger_create(dir_fd, SAMPLES + 1, SEED, &ledger), FL_OK);
    close_ledger(ledger);
    refuse(0, FL_EINVAL, "30 samples and seed 7 found, 29 and 7 expected: the ledger of another");
    assert_int_equal(fl_ledger_create(dir_fd, SAMPLES, SEED + 1, &ledger), FL_OK);
    close_ledger(ledger);
    refuse(0, FL_EINVAL, "29 samples and seed 8 found, 29 and 7 expected");
}

/* A controller that was killed, or a disk that lost the last writes: whatever the length, the
 * ledger either continues to the whole run or is left alone. */
static void test_ledger_resume__copes_with_a_cut_at_any_byte(void **state)
{
    (void)state;
    uint8_t data[FILE_MAX];
    int n_resumed = 0;
    write_run(6, false);
    size_t n = load(data);
    for (size_t length = 0; length <= n; length++) {
        fl_ledger *ledger = NULL;
        fl_ledger_place place = place_at(5);
        store(data, length);
        if (fl_ledger_resume(dir_fd, &place, &ledger) == FL_OK) {
            n_resumed++;
            finish_run(ledger, 5);
            expect_whole();
        }
    }
    /* From the end of step 4 on: the bytes of step 5, and the cut before its first one. */
    assert_int_equal(n_resumed, STEP_BYTES + 1);
}

static void test_ledger_resume__forgives_damage_behind_the_checkpoint_alone(void **state)
{
    (void)state;
    uint8_t data[FILE_MAX];
    write_run(6, false);
    size_t n = load(data);
    data[n - 1] ^= 1;
    store(data, n);
    refuse(6, FL_EFORMAT, "is damaged");
    fl_ledger *ledger = NULL;
    fl_ledger_place place = place_at(5);
    assert_int_equal(fl_ledger_resume(dir_fd, &place, &ledger), FL_OK);
    finish_run(ledger, 5);
    expect_whole();
    data[n - 1] ^= 1;
    data[n - STEP_BYTES - 1] ^= 1;
    store(data, n);
    refuse(5, FL_EFORMAT, "is damaged");
}

/* Would catch: memory or a file that a failure leaves. */
static void test_ledger_resume__survives_any_failed_allocation(void **state)
{
    (void)state;
    uint8_t before[FILE_MAX], after[FILE_MAX];
    fl_ledger_place place = place_at(5);
    write_run(6, true);
    size_t n = load(before);
    for (uint64_t nth = 1;; nth++) {
        fl_ledger *ledger = NULL;
        assert_true(nth < 1000);
        fl_alloc_fail_at(nth);
        fl_status status = fl_ledger_resume(dir_fd, &place, &ledger);
        fl_alloc_fail_at(0);
        if (status == FL_OK) {
            assert_true(nth > 5);
            close_ledger(ledger);
            return;
        }
        assert_int_equal(status, FL_ENOMEM);
        assert_int_not_equal(access(part, F_OK), 0);
        assert_int_equal(load(after), n);
        assert_memory_equal(before, after, n);
    }
}

/* A full disk, here a limit on the size of files: nothing can be written. */
static fl_status resume_on_full_disk(int64_t step, fl_ledger **ledger)
{
    struct rlimit before, limit;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    fl_ledger_place place = place_at(step);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 8;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    fl_status status = fl_ledger_resume(dir_fd, &place, ledger);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    return status;
}

/* Would catch: a run that cannot go back after a loss, because its ledger is written anew. */
static void test_ledger_resume__needs_no_space_to_go_back(void **state)
{
    (void)state;
    fl_ledger *ledger = NULL;
    write_run(6, false);
    assert_int_equal(resume_on_full_disk(4, &ledger), FL_OK);
    finish_run(ledger, 4);
    expect_whole();
}

/* Where it must be written anew: would catch a ledger.bin.part that stays. */
static void test_ledger_resume__leaves_nothing_on_a_full_disk(void **state)
{
    (void)state;
    uint8_t before[FILE_MAX], after[FILE_MAX];
    fl_ledger *ledger = create();
    add_step(ledger, 0, 0);
    add_step(ledger, 1, -1);
    add_step(ledger, 0, 1);
    close_ledger(ledger);
    ledger = NULL;
    size_t n = load(before);
    assert_int_equal(resume_on_full_disk(1, &ledger), FL_EIO);
    assert_string_equal(fl_errmsg(), "ledger.bin: File too large");
    assert_null(ledger);
    assert_int_not_equal(access(part, F_OK), 0);
    assert_int_equal(load(after), n);
    assert_memory_equal(before, after, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ledger_resume__continues_after_any_step, set_up,
                                        clean),
        cmocka_unit_test_setup_teardown(test_ledger_resume__finds_records_wherever_they_stand,
                                        set_up, clean),
        cmocka_unit_test_setup_teardown(test_ledger_resume__refuses_a_step_that_lacks_samples,
                                        set_up, clean),
        cmocka_unit_test_setup_teardown(test_ledger_resume__refuses_samples_that_are_not_the_steps,
                                        set_up, clean),
        cmocka_unit_test_setup_teardown(test_ledger_resume__refuses_the_ledger_of_another_run,
                                        set_up, clean),
        cmocka_unit_test_setup_teardown(test_ledger_resume__copes_with_a_cut_at_any_byte, set_up,
                                        clean),
        cmocka_unit_test_setup_teardown(
            test_ledger_resume__forgives_damage_behind_the_checkpoint_alone, set_up, clean),
        cmocka_unit_test_setup_teardown(test_ledger_resume__needs_no_space_to_go_back, set_up,
                                        clean),
        cmocka_unit_test_setup_teardown(test_ledger_resume__leaves_nothing_on_a_full_disk, set_up,
                                        clean),
        cmocka_unit_test_setup_teardown(test_ledger_resume__survives_any_failed_allocation, set_up,
                                        clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
