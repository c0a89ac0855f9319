#include "support/cli.h"

#include "support/data/idx_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

char *cli_folder;
output cli_result;

int cli_make_folder(void **state)
{
    (void)state;
    cli_folder = fresh_folder(FL_BINARY_DIR);
    return 0;
}

int cli_remove_folder(void **state)
{
    (void)state;
    char command[4096];
    snprintf(command, sizeof command, "rm -rf '%s'", cli_folder);
    run_command(NULL, command, &cli_result);
    free(cli_folder);
    return 0;
}

void cli_run(const char *arguments)
{
    char command[4096];
    snprintf(command, sizeof command, FL_BINARY_DIR "/frostline %s", arguments);
    run_command(cli_folder, command, &cli_result);
}

void cli_must_run(const char *command)
{
    run_command(cli_folder, command, &cli_result);
    if (cli_result.exit_code != 0) {
        fail_msg("%s: exit code %d: %s", command, cli_result.exit_code, cli_result.err);
    }
}

void cli_make_images(const char *name, int n_train)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", cli_folder, name);
    assert_int_equal(mkdir(path, 0700), 0);
    write_split(path, "train", (uint32_t)n_train, 14, 14, 4);
    write_split(path, "t10k", 20, 14, 14, 4);
}

void cli_save(const char *name, const char *text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", cli_folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

void cli_need_data(void)
{
    if (access(FL_TEST_FASHION "/train-images-idx3-ubyte", R_OK) != 0) {
        skip();
    }
}

void cli_validate(const char *job, int exit_code, const char *out, const char *err)
{
    cli_save("job.yaml", job);
    bool names_data = strstr(job, "path:") != NULL;
    cli_run(names_data ? "validate job.yaml"
                       : "validate job.yaml --set data.path='" FL_TEST_FASHION "'");
    if (cli_result.exit_code != exit_code || strcmp(cli_result.out, out) != 0 ||
        strcmp(cli_result.err, err) != 0) {
        fail_msg("for\n%sexpected %d, '%s', '%s'\ngot %d, '%s', '%s'", job, exit_code, out, err,
                 cli_result.exit_code, cli_result.out, cli_result.err);
    }
}
