/* Which weights of a run a command takes, and what it makes of weights that are not what they
 * should be. Would catch: the weights that a run had left before it was continued; a checkpoint
 * that is damaged; a model that is used on other classes than its own; a command that waits for a
 * pipe; two exports into one folder that spoil each other. */
#include "support/folder.h"
#include "support/idx_files.h"
#include "support/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PROGRAM FL_BINARY_DIR "/frostline "

enum { COMMAND = 2048 };

static char root[FOLDER_SIZE];
static output result;

static const char job_text[] = "name: small\n"
                               "model: {kind: vit, blocks: 1, dim: 16, heads: 2, patch: 4}\n"
                               "data: {kind: idx, path: data}\n"
                               "train: {epochs: 1, batch: 20, lr: 3e-3}\n"
                               "devices: {count: 1, cores: 1, memory: 64MiB}\n";

/* Run a shell command in the folder, in which $F is the program; it must end with this code. */
static void shell(int code, const char *format, ...)
{
    char command[COMMAND] = "F=" PROGRAM "; ";
    size_t n = strlen(command);
    va_list args;
    va_start(args, format);
    vsnprintf(command + n, sizeof command - n, format, args);
    va_end(args);
    run_command(root, command, &result);
    if (result.exit_code != code) {
        fail_msg("%s: exit code %d: %s%s", command, result.exit_code, result.out, result.err);
    }
}

static void says(const char *text, const char *where)
{
    if (strstr(where, text) == NULL) {
        fail_msg("'%s' is not in: %s", text, where);
    }
}

static int set_up(void **state)
{
    (void)state;
    char folder[128];
    make_folder(root);
    snprintf(folder, sizeof folder, "%s/data", root);
    shell(0, "mkdir data; cat >job.yaml <<'END'\n%sEND", job_text);
    write_split(folder, "train", 80, 8, 8, 4);
    write_split(folder, "t10k", 40, 8, 8, 4);
    shell(0, "$F run job.yaml --run-dir run");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return remove_folder(root);
}

/* ---- which weights ---- */

static void test_saved__output_names_the_weights(void **state)
{
    (void)state;
    shell(0, "$F evaluate run");
    says("\n  weights        run/model after 4 steps\n", result.out);
    shell(0, "$F evaluate run/model --json");
    says("\"step\": 4", result.out);
    shell(0, "$F evaluate run/checkpoints/step-000000004");
    says("  weights        run/checkpoints/step-000000004 after 4 steps\n", result.out);
    shell(0, "$F predict run --out p.jsonl");
    says("p.jsonl: 40 lines\nweights: run/model after 4 steps\n", result.out);
    shell(0, "$F export run --to e");
    says("bytes\nweights: run/model after 4 steps\n", result.out);
    shell(0, "$F evaluate e --data data; rm -r e p.jsonl");
    says("\n  weights        e\n", result.out);
}

/* A run that continues is no longer what its model.safetensors has. */
static void test_saved__a_resume_retires_the_model(void **state)
{
    (void)state;
    shell(0, "cp -r run again; $F run --resume again --set train.epochs=2 --set "
             "run.save_model=false; test ! -e again/model/model.safetensors && $F evaluate again");
    says("the run left no model; using again/checkpoints/step-000000008", result.err);
    says("again/checkpoints/step-000000008 after 8 steps\n", result.out);

    shell(0, "rm -r again; cp -r run again; "
             "$F run --resume again --set train.epochs=1000000 >/dev/null 2>&1 & p=$!; "
             "for i in $(seq 600); do $F list . 2>/dev/null | grep -q '^live.* again$' && break; "
             "sleep 0.02; done; kill -9 $p; wait $p 2>/dev/null; "
             "for i in $(seq 600); do $F list . 2>/dev/null | grep -q '^lost.* again$' && break; "
             "sleep 0.02; done; test ! -e again/model/model.safetensors && "
             "$F evaluate again && $F predict again --out p.jsonl && $F export again --to e");
    says("the run was lost; using again/checkpoints/step-0000", result.err);
    says("  weights        again/checkpoints/step-0000", result.out);
    says("lines\nweights: again/checkpoints/step-0000", result.out);
    says("bytes\nweights: again/checkpoints/step-0000", result.out);
    shell(0, "rm -r again e p.jsonl");
}

/* A resume that is refused leaves the model where it is. */
static void test_saved__a_refused_resume_keeps_the_model(void **state)
{
    (void)state;
    shell(2, "$F run --resume run --set train.batch=64");
    shell(0, "test -e run/model/model.safetensors");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_saved__output_names_the_weights),
        cmocka_unit_test(test_saved__a_resume_retires_the_model),
        cmocka_unit_test(test_saved__a_refused_resume_keeps_the_model),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
