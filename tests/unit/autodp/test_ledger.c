#include "autodp/ledger.h"

#include "autodp/sampler.h"
#include "autodp/split_work.h"
#include "device/system/alloc.h"
#include "support/data/ledger_files.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void assert_epoch(const fl_ledger_epoch *e, int64_t epoch, int64_t once, int64_t never,
                         int64_t more)
{
    assert_int_equal(e->epoch, epoch);
    assert_int_equal(e->once, once);
    assert_int_equal(e->never, never);
    assert_int_equal(e->more, more);
    assert_int_equal(e->n_samples, once + never + more);
}

/* What the sampler deals out to three replicas over four epochs, read back: exactly once. */
static void test_ledger__proves_a_whole_run(void **state)
{
    (void)state;
    enum { SAMPLES = 1001, BATCH = 64, R = 3, EPOCHS = 4 };
    fl_ledger *ledger = make(SAMPLES, 5);
    fl_cursor cursor = {0};
    int64_t n_records = 0;
    for (int64_t step = 0; cursor.epoch < EPOCHS; step++) {
        int64_t ids[BATCH], n, first[R + 1], epoch = cursor.epoch;
        fl_sampler_next(5, SAMPLES, BATCH, &cursor, ids, &n);
        fl_split_work(n, NULL, R, first);
        for (int r = 0; r < R; r++, n_records++) {
            add(ledger, epoch, step, r, ids + first[r], first[r + 1] - first[r]);
        }
    }
    finish(ledger);
    fl_ledger_epoch *epochs = NULL;
    int64_t n = 0;
    assert_int_equal(fl_ledger_read(path, &epochs, &n), FL_OK);
    assert_int_equal(n, EPOCHS);
    for (int64_t i = 0; i < n; i++) {
        assert_epoch(&epochs[i], i, SAMPLES, 0, 0);
    }
    fl_free(epochs);
    fl_ledger_proof proof;
    assert_int_equal(fl_ledger_prove(path, &proof), FL_OK);
    assert_int_equal(proof.n_samples, SAMPLES);
    assert_int_equal(proof.seed, 5);
    assert_int_equal(proof.n_records, n_records);
    assert_int_equal(proof.cut_bytes, 0);
    assert_true(fl_ledger_is_exact(&proof));
    fl_ledger_proof_fini(&proof);
    assert_null(proof.epochs);
}

/* Would catch a count that overflows: a sample used five times must not look like one used once. */
static void test_ledger__counts_missing_and_repeated_samples(void **state)
{
    (void)state;
    const int64_t all[] = {0, 1, 2, 3, 4, 5, 6, 7, 8}, some[] = {3, 3, 3, 3, 3, 8, 7, 7};
    fl_ledger *ledger = make(9, 0);
    add(ledger, 0, 0, 0, some, 8);
    add(ledger, 1, 1, 0, all, 9);
    finish(ledger);
    fl_ledger_proof proof;
    assert_int_equal(fl_ledger_prove(path, &proof), FL_OK);
    assert_int_equal(proof.n_epochs, 2);
    assert_epoch(&proof.epochs[0], 0, 1, 6, 2);
    assert_epoch(&proof.epochs[1], 1, 9, 0, 0);
    assert_false(fl_ledger_is_exact(&proof));
    fl_ledger_proof_fini(&proof);
}

/* Where an epoch goes over into the next, one replica's report may overtake another's. */
static void test_ledger__takes_records_of_neighbouring_epochs_in_any_order(void **state)
{
    (void)state;
    const int64_t a[] = {0, 1}, b[] = {2, 3};
    fl_ledger *ledger = make(4, 0);
    add(ledger, 1, 1, 0, a, 2);
    add(ledger, 0, 0, 0, b, 2);
    add(ledger, 1, 1, 1, b, 2);
    add(ledger, 0, 0, 1, a, 2);
    finish(ledger);
    fl_ledger_proof proof;
    assert_int_equal(fl_ledger_prove(path, &proof), FL_OK);
    assert_int_equal(proof.n_epochs, 2);
    assert_epoch(&proof.epochs[0], 0, 4, 0, 0);
    assert_epoch(&proof.epochs[1], 1, 4, 0, 0);
    assert_true(fl_ledger_is_exact(&proof));
    fl_ledger_proof_fini(&proof);
}

/* More epochs than the first guess, and a record larger than the buffer. */
static void test_ledger__grows(void **state)
{
    (void)state;
    enum { SAMPLES = 50000, EPOCHS = 40 };
    int64_t *ids = malloc(SAMPLES * sizeof *ids);
    assert_non_null(ids);
    for (int64_t i = 0; i < SAMPLES; i++) {
        ids[i] = SAMPLES - 1 - i;
    }
    fl_ledger *ledger = make(SAMPLES, 0);
    for (int64_t e = 0; e < EPOCHS; e++) {
        add(ledger, e, e, 0, ids, SAMPLES);
    }
    finish(ledger);
    free(ids);
    fl_ledger_proof proof;
    assert_int_equal(fl_ledger_prove(path, &proof), FL_OK);
    assert_int_equal(proof.n_epochs, EPOCHS);
    assert_true(fl_ledger_is_exact(&proof));
    fl_ledger_proof_fini(&proof);
}

static bool is_sound(void)
{
    fl_ledger_proof proof = {0};
    fl_status status = fl_ledger_prove(path, &proof);
    fl_ledger_proof_fini(&proof);
    return status == FL_OK;
}

/* Every bit of a small ledger turned over: none goes unnoticed, the length of the last record
 * included, which must not pass for a record that was cut. */
static void test_ledger__notices_every_flipped_bit(void **state)
{
    (void)state;
    static uint8_t data[FILE_MAX];
    write_small();
    size_t n = load(data);
    assert_int_equal(n, HEADER_BYTES + 5 * RECORD_BYTES + 8 * 4);
    /* Rewriting the whole file each time would wait for the disk on some file systems. */
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        fl_ledger_proof proof;
        uint8_t flipped = (uint8_t)(data[bit / 8] ^ 1 << (bit % 8));
        assert_int_equal(pwrite(fd, &flipped, 1, (off_t)(bit / 8)), 1);
        assert_int_equal(fl_ledger_prove(path, &proof), FL_EFORMAT);
        assert_int_equal(pwrite(fd, &data[bit / 8], 1, (off_t)(bit / 8)), 1);
    }
    close(fd);
    assert_true(is_sound());
}

/* A killed controller leaves the beginning of its last record: all earlier records can be read, and
 * the reader reports the cut; the strict reader refuses. A cut between two records is not detected.
 */
static void test_ledger__reads_up_to_a_cut(void **state)
{
    (void)state;
    static uint8_t data[FILE_MAX];
    static const size_t sizes[] = {48, 44, 48, 44, 48}; /* of the records */
    write_small();
    for (size_t length = load(data) - 1; length > 0; length--) {
        assert_int_equal(truncate(path, (off_t)length), 0);
        fl_ledger_proof proof;
        fl_ledger_epoch *epochs = NULL;
        int64_t n_epochs = 0;
        if (length < HEADER_BYTES) {
            assert_int_equal(fl_ledger_prove(path, &proof), FL_EFORMAT);
            continue;
        }
        int64_t n_whole = 0;
        size_t whole = HEADER_BYTES;
        while (whole + sizes[n_whole] <= length) {
            whole += sizes[n_whole++];
        }
        assert_int_equal(fl_ledger_prove(path, &proof), FL_OK);
        assert_int_equal(proof.n_records, n_whole);
        assert_int_equal(proof.whole_bytes, whole);
        assert_int_equal(proof.cut_bytes, length - whole);
        fl_ledger_proof_fini(&proof);
        fl_status strict = fl_ledger_read(path, &epochs, &n_epochs);
        assert_int_equal(strict, length == whole ? FL_OK : FL_EFORMAT);
        fl_free(epochs);
    }
}

/* Whole records left out, repeated or exchanged: each is sound by itself, so only the chain of
 * hashes shows it. */
static void test_ledger__notices_records_out_of_place(void **state)
{
    (void)state;
    static uint8_t data[FILE_MAX], other[FILE_MAX];
    write_small();
    size_t n = load(data);
    fl_ledger_proof proof;
    memcpy(other, data, HEADER_BYTES + 48);
    memcpy(other + HEADER_BYTES + 48, data + HEADER_BYTES + 48 + 44, n - HEADER_BYTES - 48 - 44);
    store(other, n - 44);
    assert_int_equal(fl_ledger_prove(path, &proof), FL_EFORMAT);
    memcpy(other + HEADER_BYTES + 48, data + HEADER_BYTES, n - HEADER_BYTES);
    store(other, n + 48);
    assert_int_equal(fl_ledger_prove(path, &proof), FL_EFORMAT);
}

static void test_add__refuses_impossible_records(void **state)
{
    (void)state;
    const int64_t high[] = {0, 6}, low[] = {-1}, fine[] = {0};
    fl_ledger *ledger = NULL;
    assert_int_equal(fl_ledger_create(dir_fd, 0, 0, &ledger), FL_EINVAL);
    assert_int_equal(fl_ledger_create(dir_fd, (INT64_C(1) << 32) + 1, 0, &ledger), FL_EINVAL);
    assert_null(ledger);
    ledger = make(6, 0);
    assert_int_equal(fl_ledger_add(ledger, 0, 3, 1, 0, high, 2), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "sample 6 in step 3 of the ledger: 0 to 5 allowed");
    assert_int_equal(fl_ledger_add(ledger, 0, 3, 1, 0, low, 1), FL_EINVAL);
    assert_int_equal(fl_ledger_add(ledger, -1, 3, 1, 0, fine, 1), FL_EINVAL);
    assert_int_equal(fl_ledger_add(ledger, 0, -3, 1, 0, fine, 1), FL_EINVAL);
    assert_int_equal(fl_ledger_add(ledger, 0, 3, 1, -1, fine, 1), FL_EINVAL);
    assert_int_equal(fl_ledger_add(ledger, 0, 3, 1, 0, fine, -1), FL_EINVAL);
    add(ledger, 0, 3, 0, fine, 1);
    finish(ledger);
    fl_ledger_proof proof;
    assert_int_equal(fl_ledger_prove(path, &proof), FL_OK);
    assert_int_equal(proof.n_records, 1);
    fl_ledger_proof_fini(&proof);
    ledger = NULL;
    assert_int_equal(fl_ledger_close(&ledger), FL_OK);
}

/* When a controller is killed, all steps but the current one have reached the operating system. */
static void test_ledger__survives_a_kill(void **state)
{
    (void)state;
    enum { STEPS = 20 };
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fl_ledger *ledger = NULL;
        fl_status status = fl_ledger_create(dir_fd, STEPS, 0, &ledger);
        for (int64_t step = 0; status == FL_OK && step < STEPS; step++) {
            status = fl_ledger_add(ledger, 0, step, 1, 0, &step, 1);
        }
        if (status == FL_OK) {
            kill(getpid(), SIGKILL);
        }
        _exit(1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    fl_ledger_proof proof;
    assert_int_equal(fl_ledger_prove(path, &proof), FL_OK);
    assert_int_equal(proof.n_records, STEPS - 1);
    assert_epoch(&proof.epochs[0], 0, STEPS - 1, 1, 0);
    fl_ledger_proof_fini(&proof);
}

static void test_flush__gives_everything_away(void **state)
{
    (void)state;
    const int64_t ids[] = {0, 1};
    fl_ledger *ledger = make(2, 0);
    add(ledger, 0, 0, 0, ids, 2);
    assert_int_equal(fl_ledger_flush(ledger), FL_OK);
    assert_true(is_exact());
    finish(ledger);
}

/* A full disk (here: a limit on the file's size) is an error that persists, even when there is
 * space again: a ledger with a gap would be worse than an incomplete one. */
static void test_ledger__tells_of_a_full_disk(void **state)
{
    (void)state;
    struct rlimit before, limit;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = HEADER_BYTES + 100;
    fl_ledger *ledger = make(10, 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    fl_status status = FL_OK;
    int64_t step = 0;
    for (; status == FL_OK && step < 10; step++) {
        status = fl_ledger_add(ledger, 0, step, 1, 0, &step, 1);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, FL_EIO);
    assert_string_equal(fl_errmsg(), "ledger.bin: File too large");
    assert_int_equal(fl_ledger_add(ledger, 0, step, 1, 0, &step, 1), FL_EIO);
    assert_int_equal(fl_ledger_flush(ledger), FL_EIO);
    assert_int_equal(fl_ledger_close(&ledger), FL_EIO);
    assert_null(ledger);
    fl_ledger_proof proof;
    assert_int_equal(fl_ledger_prove(path, &proof), FL_OK);
    assert_int_equal(proof.n_records, 2);
    assert_int_equal(proof.cut_bytes, 100 - 2 * 44);
    fl_ledger_proof_fini(&proof);
}

int main(void)
{
#define IN_FOLDER(test)                                                                            \
    cmocka_unit_test_setup_teardown(test, make_ledger_folder, clean_ledger_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_ledger__proves_a_whole_run),
        IN_FOLDER(test_ledger__counts_missing_and_repeated_samples),
        IN_FOLDER(test_ledger__takes_records_of_neighbouring_epochs_in_any_order),
        IN_FOLDER(test_ledger__grows),
        IN_FOLDER(test_ledger__notices_every_flipped_bit),
        IN_FOLDER(test_ledger__reads_up_to_a_cut),
        IN_FOLDER(test_ledger__notices_records_out_of_place),
        IN_FOLDER(test_add__refuses_impossible_records),
        IN_FOLDER(test_ledger__survives_a_kill),
        IN_FOLDER(test_flush__gives_everything_away),
        IN_FOLDER(test_ledger__tells_of_a_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
