/* Starts on file systems that have no room for a certain one of the first files. Would catch: a
 * part of a run that stays, which may refuse the same command later; an exit code by which no
 * scheduler starts the job again once there is room. */
#include "support/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static int make_job(void **state)
{
    cli_make_folder(state);
    cli_make_images("data", 200);
    cli_save("job.yaml", "name: small\n"
                         "model: {blocks: 2, dim: 8, heads: 1, patch: 7}\n"
                         "data: {path: data}\n"
                         "train: {batch: 10, epochs: 1, evaluate: false}\n"
                         "devices: {count: 2}\n"
                         "pipe: {tune: false, profile: none}\n"
                         "checkpoint: {every: 5 steps}\n");
    return 0;
}

/* The folder x is empty but for what the start leaves. */
static void start_on(const char *options)
{
    char command[512];
    snprintf(command, sizeof command,
             "mkdir -p x; unshare -m sh -c 'mount -t tmpfs -o %s none x && "
             "{ " FL_BINARY_DIR "/frostline run job.yaml --run-dir x/r; code=$?; "
             "ls -A x; exit $code; }'",
             options);
    run_command(cli_folder, command, &cli_result);
    if (cli_result.exit_code != 3 || cli_result.out[0] != '\0' ||
        strstr(cli_result.err, "No space left on device") == NULL) {
        fail_msg("%s: exit code %d, left: '%s'; %s", options, cli_result.exit_code, cli_result.out,
                 cli_result.err);
    }
}

static void test_start_room__a_full_file_system_leaves_nothing(void **state)
{
    (void)state;
    static const char *const options[] = {
        "nr_inodes=2", "nr_inodes=3", "nr_inodes=4", "nr_inodes=5",
        "nr_inodes=6", "nr_inodes=7", "size=4k",     "size=12k",
    };
    run_command(cli_folder, "mkdir m; unshare -m mount -t tmpfs none m", &cli_result);
    if (cli_result.exit_code != 0) {
        print_message("skipped: no right to mount a small file system\n");
        skip();
    }
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        start_on(options[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start_room__a_full_file_system_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, make_job, cli_remove_folder);
}
