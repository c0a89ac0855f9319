/* Small ledgers in a folder of their own, for tests. */
#ifndef FL_TESTS_SUPPORT_DATA_LEDGER_FILES_H
#define FL_TESTS_SUPPORT_DATA_LEDGER_FILES_H

#include "autodp/ledger.h"
#include "support/folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

enum { HEADER_BYTES = 40, RECORD_BYTES = 32 + 8, FILE_MAX = 1 << 16 };

static char folder[FOLDER_SIZE], path[96];
static int dir_fd;

static inline int make_ledger_folder(void **state)
{
    (void)state;
    make_folder(folder);
    snprintf(path, sizeof path, "%s/ledger.bin", folder);
    dir_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir_fd < 0 ? -1 : 0;
}

static inline int clean_ledger_folder(void **state)
{
    (void)state;
    close(dir_fd);
    unlink(path);
    return rmdir(folder);
}

static inline size_t load(uint8_t *data)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(data, 1, FILE_MAX, file);
    fclose(file);
    return n;
}

static inline void store(const uint8_t *data, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static inline fl_ledger *make(int64_t n_samples, uint64_t seed)
{
    fl_ledger *ledger = NULL;
    assert_int_equal(fl_ledger_create(dir_fd, n_samples, seed, &ledger), FL_OK);
    return ledger;
}

static inline void add(fl_ledger *ledger, int64_t epoch, int64_t step, int replica,
                       const int64_t *ids, int64_t n)
{
    assert_int_equal(fl_ledger_add(ledger, epoch, step, 1, replica, ids, n), FL_OK);
}

static inline void finish(fl_ledger *ledger)
{
    assert_int_equal(fl_ledger_close(&ledger), FL_OK);
    assert_null(ledger);
}

/* Two steps of two replicas over 6 samples in epoch 0, one record of epoch 1. */
static inline void write_small(void)
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

static inline bool is_exact(void)
{
    fl_ledger_proof proof;
    assert_int_equal(fl_ledger_prove(path, &proof), FL_OK);
    bool exact = fl_ledger_is_exact(&proof);
    fl_ledger_proof_fini(&proof);
    return exact;
}

#endif
