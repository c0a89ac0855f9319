#include "support/runs/runs.h"

#include "autodp/ledger.h"
#include "device/system/alloc.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

void must(fl_status status)
{
    if (status != FL_OK) {
        fprintf(stderr, "%s: %s\n", fl_status_text(status), fl_errmsg());
        _exit(9);
    }
}

void set(fl_job *job, const char *path, int value)
{
    char text[32];
    snprintf(text, sizeof text, "%d", value);
    must(fl_job_set(job, path, text));
}

void set_test_device(fl_job *job)
{
    const char *kind = getenv("FL_TEST_DEVICE");
    if (kind != NULL) {
        must(fl_job_set(job, "devices.kind", kind));
    }
    const char *transport = getenv("FL_TEST_TRANSPORT");
    if (transport != NULL) {
        must(fl_job_set(job, "autodp.transport", transport));
    }
}

void hush(void)
{
    int null = open("/dev/null", O_WRONLY);
    if (null < 0 || dup2(null, STDOUT_FILENO) < 0) {
        perror("/dev/null");
        _exit(9);
    }
    close(null);
}

char root[FOLDER_SIZE];

int make_root(void **state)
{
    (void)state;
    make_folder(root);
    return 0;
}

int remove_root(void **state)
{
    (void)state;
    return remove_folder(root);
}

void check_ended_well(pid_t child)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void check_exactly_once(const char *dir, int64_t n_epochs, int64_t n_samples)
{
    char path[300];
    fl_ledger_epoch *epochs = NULL;
    int64_t n = 0;
    snprintf(path, sizeof path, "%s/ledger.bin", dir);
    assert_int_equal(fl_ledger_read(path, &epochs, &n), FL_OK);
    assert_int_equal(n, n_epochs);
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(epochs[i].once, n_samples);
        assert_int_equal(epochs[i].never + epochs[i].more, 0);
    }
    fl_free(epochs);
}
