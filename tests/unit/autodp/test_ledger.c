#include "autodp/ledger.h"

#include "autodp/sampler.h"
#include "autodp/split_work.h"
#include "device/alloc.h"
#include "support/folder.h"

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

enum { HEADER_BYTES = 40, RECORD_BYTES = 32 + 8, FILE_MAX = 1 << 16 };

static char folder[FOLDER_SIZE], path[96];
static int dir_fd;

static int set_up(void **state)
{
    (void)state;
    make_folder(folder);
    snprintf(path, sizeof path, "%s/ledger.bin", folder);
    dir_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir_fd < 0 ? -1 : 0;
}

static int clean(void **state)
{
    (void)state;
    close(dir_fd);
    unlink(path);
    return rmdir(folder);
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

static fl_ledger *make(int64_t n_samples, uint64_t seed)
{
    fl_ledger *ledger = NULL;
    assert_int_equal(fl_ledger_create(dir_fd, n_samples, seed, &ledger), FL_OK);
    return ledger;
}

static void add(fl_ledger *ledger, int64_t epoch, int64_t step, int replica, const int64_t *ids,
                int64_t n)
{
    assert_int_equal(fl_ledger_add(ledger, epoch, step, 1, replica, ids, n), FL_OK);
}

static void finish(fl_ledger *ledger)
{
    assert_int_equal(fl_ledger_close(&ledger), FL_OK);
    assert_null(ledger);
}

/* Two steps of two replicas over 6 samples in epoch 0, one record of epoch 1. */
static void write_small(void)
{
    const int64_t a[] = {0, 1}, b[] = {2}, c[] = {3, 4}, d[] = {5};
    fl_ledger *ledger = make(6, 9);
    add(ledger, 0, 0, 0, a, 2);
    add(ledger, 0, 0, 1, b, 1);
    add(ledger, 0, 1, 0, c, 2);
    add(ledger, 0, 1, 1, d, 1);
    add(ledger, 1, 2, 0, a, 2);
    finish(ledger);
}

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

static bool is_exact(void)
{
    fl_ledger_proof proof;
    assert_int_equal(fl_ledger_prove(path, &proof), FL_OK);
    bool exact = fl_ledger_is_exact(&proof);
    fl_ledger_proof_fini(&proof);
    return exact;
}

/* A run may stop within an epoch, but only within the last; and nothing proves nothing. */
static void test_is_exact__judges_by_the_epochs(void **state)
{
    (void)state;
    const int64_t both[] = {0, 1}, one[] = {1}, twice[] = {1, 1};
    static const struct {
        int64_t n[3]; /* samples used in epochs 0, 1, 2; -2: one of them twice; 0: no record */
        bool exact;
    } cases[] = {{{2, 2, 2}, true}, {{2, 2, 1}, true},   {{2, 1, 2}, false}, {{1, 2, 2}, false},
                 {{1, 0, 0}, true}, {{2, 2, -2}, false}, {{2, 0, 2}, false}, {{0, 0, 0}, false}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        fl_ledger *ledger = make(2, 0);
        for (int64_t e = 0; e < 3; e++) {
            int64_t n = cases[c].n[e];
            if (n != 0) {
                add(ledger, e, e, 0, n == 2 ? both : n == 1 ? one : twice, n == 1 ? 1 : 2);
            }
        }
        finish(ledger);
        assert_int_equal(is_exact(), cases[c].exact);
    }
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

static void expect_broken(fl_status status, const char *message)
{
    char text[256];
    fl_ledger_proof proof;
    snprintf(text, sizeof text, "%s: %s", path, message);
    assert_int_equal(fl_ledger_prove(path, &proof), status);
    assert_string_equal(fl_errmsg(), text);
}

static void test_prove__says_what_is_wrong(void **state)
{
    (void)state;
    static uint8_t data[FILE_MAX];
    expect_broken(FL_EIO, "No such file or directory");
    store(data, 0);
    expect_broken(FL_EFORMAT, "byte 0: the end of the file found, a header of 40 bytes expected");
    store(data, 100);
    expect_broken(FL_EFORMAT, "byte 0: something else found, \"FLLEDGER\" expected: not a ledger");
    write_small();
    size_t n = load(data);
    data[8] = 3;
    store(data, n);
    expect_broken(FL_EFORMAT, "byte 8: version 3 found, 1 to 2 expected");
    data[8] = 2;
    store(data, HEADER_BYTES + 47);
    fl_ledger_epoch *epochs = NULL;
    int64_t n_epochs = 0;
    assert_int_equal(fl_ledger_read(path, &epochs, &n_epochs), FL_EFORMAT);
    assert_non_null(strstr(fl_errmsg(), "byte 87: the end of the file found within record 0"));
    data[HEADER_BYTES + 48 + 24]++;
    store(data, n);
    fl_ledger_proof proof;
    assert_int_equal(fl_ledger_prove(path, &proof), FL_EFORMAT);
    assert_non_null(strstr(fl_errmsg(), "ledger.bin: byte 116: check "));
    assert_non_null(strstr(fl_errmsg(), " expected: record 1 is damaged or not in its place"));
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    expect_broken(FL_EIO, "something that is not a file found");
    assert_int_equal(rmdir(path), 0);
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

static void test_prove__survives_failing_allocations(void **state)
{
    (void)state;
    write_small();
    fl_status status = FL_ENOMEM;
    int n_failed = 0;
    for (uint64_t n = 1; status != FL_OK; n++) {
        fl_ledger_proof proof = {0};
        fl_alloc_fail_at(n);
        status = fl_ledger_prove(path, &proof);
        fl_alloc_fail_at(0);
        assert_true(status == FL_OK || status == FL_ENOMEM);
        n_failed += status != FL_OK;
        fl_ledger_proof_fini(&proof);
    }
    assert_true(n_failed >= 5);
    for (uint64_t n = 1; n <= 2; n++) {
        fl_ledger *ledger = NULL;
        fl_alloc_fail_at(n);
        assert_int_equal(fl_ledger_create(dir_fd, 6, 0, &ledger), FL_ENOMEM);
        fl_alloc_fail_at(0);
        assert_null(ledger);
    }
}

static void test_print__is_for_people(void **state)
{
    (void)state;
    static uint8_t data[FILE_MAX];
    write_small();
    store(data, load(data) - 1);
    fl_ledger_proof proof;
    assert_int_equal(fl_ledger_prove(path, &proof), FL_OK);
    char text[1024] = {0};
    FILE *out = fmemopen(text, sizeof text, "w");
    assert_non_null(out);
    fl_ledger_print(&proof, false, out);
    fclose(out);
    assert_string_equal(
        text, "6 samples, seed 9, 4 records, every checksum right\n"
              "the last record was never finished: 47 bytes from byte 224 on are left out\n"
              "   epoch         once        never         more\n"
              "       1            6            0            0\n"
              "incomplete record: the ledger has no end, since its run failed, was killed or could "
              "not write;\n"
              "what it records was used exactly once, what the run used afterwards is not known\n");
    fl_ledger_proof_fini(&proof);
}

/* Two whole epochs of two samples, and perhaps the end. */
static void write_epochs(bool end)
{
    const int64_t both[] = {0, 1};
    fl_ledger *ledger = make(2, 0);
    add(ledger, 0, 0, 0, both, 2);
    add(ledger, 1, 1, 0, both, 2);
    assert_int_equal(end ? fl_ledger_end(ledger) : FL_OK, FL_OK);
    finish(ledger);
}

static fl_ledger_result result_of(void)
{
    fl_ledger_proof proof;
    assert_int_equal(fl_ledger_prove(path, &proof), FL_OK);
    fl_ledger_result result = fl_ledger_judge(&proof);
    fl_ledger_proof_fini(&proof);
    return result;
}

/* Would catch: a ledger that ends in epoch 2 of 30 because the disk was full, and counts as the
 * proof of the whole run. */
static void test_judge__wants_an_end(void **state)
{
    (void)state;
    static uint8_t data[FILE_MAX];
    const int64_t twice[] = {1, 1};
    write_epochs(false);
    assert_int_equal(result_of(), FL_LEDGER_INCOMPLETE);
    write_epochs(true);
    assert_int_equal(result_of(), FL_LEDGER_COMPLETE);
    for (size_t n = load(data) - 1; n >= HEADER_BYTES; n--) { /* cut anywhere */
        assert_int_equal(truncate(path, (off_t)n), 0);
        assert_int_equal(result_of(), FL_LEDGER_INCOMPLETE);
    }
    fl_ledger *ledger = make(2, 0);
    assert_int_equal(fl_ledger_end(ledger), FL_OK);
    finish(ledger);
    assert_int_equal(result_of(), FL_LEDGER_INCOMPLETE); /* nothing is proven */
    ledger = make(2, 0);
    add(ledger, 0, 0, 0, twice, 2);
    assert_int_equal(fl_ledger_end(ledger), FL_OK);
    finish(ledger);
    assert_int_equal(result_of(), FL_LEDGER_BROKEN);
}

/* Would catch: a broken ledger seen in the last records that a killed worker took with it, and a
 * sample left out that passes for one of them. */
static void test_judge__forgives_missing_records_only_at_a_lost_end(void **state)
{
    (void)state;
    const int64_t both[] = {0, 1}, one[] = {1}, twice[] = {1, 1};
    static const struct {
        int64_t n[3]; /* as in test_is_exact */
        bool end;
        fl_ledger_result result;
    } cases[] = {{{2, 1, 1}, false, FL_LEDGER_INCOMPLETE}, {{1, 1, 0}, false, FL_LEDGER_INCOMPLETE},
                 {{2, 0, 1}, false, FL_LEDGER_INCOMPLETE}, {{1, 2, 1}, false, FL_LEDGER_BROKEN},
                 {{2, 0, 2}, false, FL_LEDGER_BROKEN},     {{2, 1, -2}, false, FL_LEDGER_BROKEN},
                 {{2, 1, 1}, true, FL_LEDGER_BROKEN},      {{2, 2, 1}, true, FL_LEDGER_COMPLETE}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        fl_ledger *ledger = make(2, 0);
        for (int64_t e = 0; e < 3; e++) {
            int64_t n = cases[c].n[e];
            if (n != 0) {
                add(ledger, e, e, 0, n == 2 ? both : n == 1 ? one : twice, n == 1 ? 1 : 2);
            }
        }
        assert_int_equal(cases[c].end ? fl_ledger_end(ledger) : FL_OK, FL_OK);
        finish(ledger);
        assert_int_equal(result_of(), cases[c].result);
    }
}

/* The end covers all before it by the chain of hashes, and nothing may follow. */
static void test_end__is_the_last_record(void **state)
{
    (void)state;
    const int64_t one[] = {0};
    fl_ledger *ledger = make(1, 0);
    add(ledger, 0, 0, 0, one, 1);
    assert_int_equal(fl_ledger_end(ledger), FL_OK);
    add(ledger, 1, 1, 0, one, 1);
    finish(ledger);
    fl_ledger_proof proof;
    assert_int_equal(fl_ledger_prove(path, &proof), FL_EFORMAT);
    assert_non_null(strstr(fl_errmsg(), "byte 124: 44 bytes found behind the end"));
}

/* A record that is lost in memory ends the ledger: one behind the hole would look like a defect of
 * the run. */
static void test_give_up__ends_the_ledger_before_the_hole(void **state)
{
    (void)state;
    const int64_t ids[] = {0, 1, 2};
    int error = 0;
    fl_ledger *ledger = make(3, 0);
    add(ledger, 0, 4, 0, ids, 1);
    assert_int_equal(fl_ledger_failed_step(ledger, &error), -1);
    fl_ledger_give_up(ledger, 5, ENOMEM);
    assert_int_equal(fl_ledger_add(ledger, 0, 6, 1, 0, ids + 2, 1), FL_EIO);
    assert_int_equal(fl_ledger_failed_step(ledger, &error), 5);
    assert_int_equal(error, ENOMEM);
    assert_int_equal(fl_ledger_end(ledger), FL_EIO);
    assert_int_equal(fl_ledger_close(&ledger), FL_EIO);
    assert_int_equal(result_of(), FL_LEDGER_INCOMPLETE);
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up, clean)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_ledger__proves_a_whole_run),
        IN_FOLDER(test_ledger__counts_missing_and_repeated_samples),
        IN_FOLDER(test_is_exact__judges_by_the_epochs),
        IN_FOLDER(test_ledger__takes_records_of_neighbouring_epochs_in_any_order),
        IN_FOLDER(test_ledger__grows),
        IN_FOLDER(test_ledger__notices_every_flipped_bit),
        IN_FOLDER(test_ledger__reads_up_to_a_cut),
        IN_FOLDER(test_ledger__notices_records_out_of_place),
        IN_FOLDER(test_prove__says_what_is_wrong),
        IN_FOLDER(test_add__refuses_impossible_records),
        IN_FOLDER(test_ledger__survives_a_kill),
        IN_FOLDER(test_flush__gives_everything_away),
        IN_FOLDER(test_ledger__tells_of_a_full_disk),
        IN_FOLDER(test_prove__survives_failing_allocations),
        IN_FOLDER(test_print__is_for_people),
        IN_FOLDER(test_judge__wants_an_end),
        IN_FOLDER(test_judge__forgives_missing_records_only_at_a_lost_end),
        IN_FOLDER(test_end__is_the_last_record),
        IN_FOLDER(test_give_up__ends_the_ledger_before_the_hole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
