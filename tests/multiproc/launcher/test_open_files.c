/* Runs under a limit on open files. Would catch: a limit at which ZeroMQ ends the process in the
 * middle of a run, a low one that the run could have raised, and streams that the caller has
 * closed. */
#include "support/data/idx_files.h"
#include "support/folder.h"
#include "support/lines.h"
#include "support/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char root[FOLDER_SIZE];
static output result;

static const char job_text[] = "name: small\n"
                               "model: {kind: vit, blocks: 2, dim: 16, heads: 2, patch: 4}\n"
                               "data: {kind: idx, path: data}\n"
                               "train: {epochs: 1, batch: 20, evaluate: false}\n"
                               "devices: {count: 2, cores: 1, memory: 64MiB}\n"
                               "pipe: {k: 2, m: 2}\n";

static int set_up(void **state)
{
    (void)state;
    char path[FOLDER_SIZE + 16];
    make_folder(root);
    snprintf(path, sizeof path, "mkdir %s/data", root);
    assert_int_equal(system(path), 0);
    snprintf(path, sizeof path, "%s/data", root);
    write_split(path, "train", 120, 8, 8, 4);
    write_split(path, "t10k", 20, 8, 8, 4);
    snprintf(path, sizeof path, "%s/job.yaml", root);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(job_text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return remove_folder(root);
}

static void test_open_files__a_limit_that_is_too_low_is_refused(void **state)
{
    (void)state;
    run_command(root,
                "ulimit -n 28; exec " FL_BINARY_DIR "/frostline run job.yaml --run-dir refused",
                &result);
    assert_int_equal(result.exit_code, 2);
    assert_non_null(strstr(result.err, "open files: found a limit of 28 (ulimit -n); a run of 2 "
                                       "workers needs at least 80: ulimit -n 80, after "
                                       "the hard limit was raised in"));
    assert_ptr_equal(strchr(result.err, '\n'), result.err + strlen(result.err) - 1);
    run_command(root,
                "ulimit -n 99; exec " FL_BINARY_DIR "/frostline run job.yaml --run-dir refused "
                "--set control.metrics=127.0.0.1:1",
                &result);
    assert_int_equal(result.exit_code, 2);
    assert_non_null(strstr(result.err, "a run of 2 workers needs at least 100: ulimit -n 100"));
    run_command(root, "test -e refused", &result);
    assert_int_equal(result.exit_code, 1);
}

static void test_open_files__a_soft_limit_is_raised(void **state)
{
    (void)state;
    run_command(root,
                "ulimit -S -n 28; exec " FL_BINARY_DIR "/frostline run job.yaml --run-dir raised",
                &result);
    assert_int_equal(result.exit_code, 0);
}

/* Would catch: a data set or a run directory that gets the number of a closed stream, in whose
 * place a worker puts its log; and a run whose model is written, but whose exit code has a
 * scheduler train it again, because nobody could read the last lines. */
static void test_open_files__closed_streams_stay_free(void **state)
{
    static const char *const closed[] = {"<&-", ">&-", "<&- >&- 2>&-"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        char command[512];
        snprintf(command, sizeof command,
                 "exec " FL_BINARY_DIR "/frostline run job.yaml --run-dir closed%d %s", i,
                 closed[i]);
        run_command(root, command, &result);
        assert_int_equal(result.exit_code, 0);
        assert_true((i == 1) == (strstr(result.err, "standard output could not be written; the "
                                                    "exit code stays 0") != NULL));
        snprintf(command, sizeof command,
                 "test -s closed%d/model/model.safetensors && grep -q run.finished "
                 "closed%d/events.jsonl",
                 i, i);
        run_command(root, command, &result);
        assert_int_equal(result.exit_code, 0);
    }
    run_command(root, "exec " FL_BINARY_DIR "/frostline list --json . >&-", &result);
    assert_int_equal(result.exit_code, 3); /* what it prints is its result */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_files__a_limit_that_is_too_low_is_refused),
        cmocka_unit_test(test_open_files__a_soft_limit_is_raised),
        cmocka_unit_test(test_open_files__closed_streams_stay_free),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
