/* What a ledger proves, and what is said of it. Would catch: a ledger that counts as the proof of a
 * run although its end is missing, and one that counts as broken where only its end was lost. */
#include "autodp/ledger.h"

#include "device/system/alloc.h"
#include "support/data/ledger_files.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

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
#define IN_FOLDER(test)                                                                            \
    cmocka_unit_test_setup_teardown(test, make_ledger_folder, clean_ledger_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_is_exact__judges_by_the_epochs),
        IN_FOLDER(test_prove__says_what_is_wrong),
        IN_FOLDER(test_prove__survives_failing_allocations),
        IN_FOLDER(test_print__is_for_people),
        IN_FOLDER(test_judge__wants_an_end),
        IN_FOLDER(test_judge__forgives_missing_records_only_at_a_lost_end),
        IN_FOLDER(test_end__is_the_last_record),
        IN_FOLDER(test_give_up__ends_the_ledger_before_the_hole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
