/* Which weights of a run a command takes, and what it makes of weights that are not what they
 * should be. Would catch: the weights that a run had left before it was continued; a checkpoint
 * that is damaged; a model that is used on other classes than its own; a command that waits for a
 * pipe; two exports into one folder that spoil each other. */
#include "support/data/idx_files.h"
#include "support/folder.h"
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

    /* It is live before its record is cut: until then, its end is the one before. */
    shell(0, "rm -r again; cp -r run again; "
             "$F run --resume again --set train.epochs=1000000 >/dev/null 2>&1 & p=$!; "
             "for i in $(seq 600); do $F list . 2>/dev/null | grep -q '^live.* again$' && "
             "grep -q '\"run.resumed\"' again/events.jsonl && "
             "test ! -e again/model/model.safetensors && break; "
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

/* Where checkpoints lie elsewhere, the folder is found by the link, and is a model by its own path,
 * too; a run without a model is a start for another one. */
static void test_saved__checkpoints_elsewhere_are_models(void **state)
{
    (void)state;
    shell(0, "$F run job.yaml --run-dir far --set checkpoint.dir=big --set run.save_model=false");
    shell(0, "$F evaluate far/checkpoints/step-000000004 && $F evaluate far");
    shell(0, "cd far/checkpoints && $F evaluate step-000000004 --data ../../data");
    shell(0, "$F evaluate big/far/step-000000004 --data data");
    shell(2, "$F evaluate big/far/step-000000004");
    says("the data to use it on is missing", result.err);
    shell(0, "$F validate job.yaml --set model.init=far && $F export far --to e");
    says("using far/checkpoints/step-000000004", result.err);
    shell(0, "rm -r far big e");
}

static void test_saved__model_init_takes_the_name_of_a_run(void **state)
{
    (void)state;
    shell(0, "mkdir runs; cp -r run runs/first; $F validate job.yaml --set model.init=first");
    shell(2, "$F validate job.yaml --set model.init=second");
    says("model.init: second: not found; allowed: ", result.err);
    shell(0, "rm -r runs");
}

/* ---- damage ---- */

static void test_saved__a_damaged_checkpoint_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *damage, *message;
    } cases[] = {
        {"printf x | dd of=$S/weights-001.safetensors bs=1 seek=900 conv=notrunc 2>/dev/null",
         "weights-001.safetensors: damaged: its hash is "},
        {"truncate -s 100 $S/manifest.json", "manifest.json: "},
        {"echo x >$S/manifest.json", "manifest.json: "},
        {"rm $S/manifest.json; mkfifo $S/manifest.json", "allowed: a regular file"},
        {"rm $S/manifest.json", "found no manifest.json"},
    };
    static const char *const commands[] = {
        "evaluate $S --data data",
        "predict $S --data data",
        "export $S --to e",
        "validate job.yaml --set model.init=$S",
        "evaluate $S/model.safetensors.index.json job.yaml",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t k = 0; k < sizeof commands / sizeof *commands; k++) {
            shell(2, "rm -rf c; cp -r run/checkpoints c; S=c/step-000000004; %s; timeout 20 $F %s",
                  cases[i].damage, commands[k]);
            says(cases[i].message, result.err);
        }
    }
    shell(0, "rm -r c; test ! -e e");
}

/* A folder that only looks like a checkpoint does not matter beside good ones. */
static void test_saved__a_stray_folder_is_no_checkpoint(void **state)
{
    (void)state;
    shell(0, "cp -r run again; rm -r again/model; mkdir again/checkpoints/step-zzzz "
             "again/checkpoints/step-000000009; echo x >again/checkpoints/step-zzzz/manifest.json; "
             "$F evaluate again; rm -r again");
    says("again/checkpoints/step-000000004 after 4 steps", result.out);
}

/* A model that is there, but cannot be reached, is not passed over. */
static void test_saved__a_model_that_cannot_be_read_is_named(void **state)
{
    (void)state;
    shell(2, "cp -r run again; rm -r again/model; ln -s model again/model; $F evaluate again");
    says("again/model/model.safetensors: Too many levels of symbolic links", result.err);
    shell(0, "rm -r again");
}

/* No command waits for the other end of a pipe. */
static void test_saved__a_pipe_is_no_file(void **state)
{
    (void)state;
    static const char *const names[] = {"config.json", "model.safetensors"};
    for (int i = 0; i < 2; i++) {
        shell(2, "cp -r run/model m; rm m/%s; mkfifo m/%s; timeout 20 $F evaluate m --data data",
              names[i], names[i]);
        says("regular file", result.err);
        shell(2, "timeout 20 $F export m --to e; c=$?; rm -r m; test ! -e e && exit $c");
        says("regular file", result.err);
    }
    shell(2, "cp -r run m; rm m/job.yaml; mkfifo m/job.yaml; timeout 20 $F evaluate m; c=$?; "
             "rm -r m; exit $c");
    says("m/job.yaml: cannot be opened: not a regular file", result.err);
}

/* ---- classes ---- */

static void test_saved__labels_are_those_of_the_training(void **state)
{
    (void)state;
    static const char *const others[] = {"[3,1]", "[1]", "[0,2]", "[0,1,3]"};
    shell(0, "$F run job.yaml --run-dir two --set data.classes=[1,3]; sed 's/path: data/&, "
             "classes: [3, 1]/' job.yaml >other.yaml");
    shell(0, "$F evaluate two --set data.classes=[1,3] && $F predict two >p.jsonl; rm p.jsonl");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        shell(2, "$F evaluate two --set data.classes=%s", others[i]);
        says("data.classes: found [", result.err);
        says(", allowed: [1, 3], the labels that the model was trained on", result.err);
    }
    shell(2, "$F predict two other.yaml");
    says("data.classes: found [3, 1], allowed: [1, 3], ", result.err);
    shell(2, "$F evaluate run --set data.classes=[1,2]");
    says("data.classes: found [1, 2], allowed: all, since the model was trained on all labels",
         result.err);
    shell(0, "rm -r two other.yaml");
}

/* ---- outputs that are not finite ---- */

static void test_saved__outputs_that_are_not_finite_are_reported(void **state)
{
    (void)state;
    shell(0, "cp -r run/model m; n=$(stat -c %%s m/model.safetensors); head -c 40 /dev/zero | "
             "tr '\\0' '\\377' | dd of=m/model.safetensors bs=1 seek=$((n - 40)) conv=notrunc "
             "2>/dev/null; $F evaluate m --data data");
    says("warning: the loss is not finite", result.err);
    shell(0, "$F predict m --data data | head -n 1; rm -r m");
    says("\"prediction\": null, \"scores\": [null, ", result.out);
}

static void test_saved__a_job_file_is_no_model(void **state)
{
    (void)state;
    shell(2, "$F evaluate job.yaml");
    says("job.yaml: a job file; allowed: a folder or file of weights", result.err);
}

/* ---- exports at once ---- */

static void test_saved__of_exports_at_once_one_succeeds(void **state)
{
    (void)state;
    for (int round = 0; round < 6; round++) {
        shell(0, "for i in 1 2 3 4; do { $F export run --to e >/dev/null 2>err.$i; echo $? "
                 ">code.$i; } & done; wait; cat code.* | sort | tr -d '\\n'; ls e | tr '\\n' ' '; "
                 "cat err.* >&2");
        assert_string_equal(result.out, "0222config.json model.safetensors ");
        shell(0, "grep -L -e 'another export writes into e' -e 'already holds' err.* | wc -l; "
                 "$F evaluate e --data data >/dev/null; rm -r e err.* code.*");
        assert_string_equal(result.out, "1\n");
    }
}

static void test_saved__an_export_that_was_killed_does_not_block_the_next(void **state)
{
    (void)state;
    shell(0, "mkdir e && head -c 9999999 /dev/zero >e/model.safetensors.part && echo x "
             ">e/config.json.part && $F export run --to e && cmp e/config.json "
             "run/model/config.json && ls e && $F evaluate e --data data && rm -r e");
    says("after 4 steps\nconfig.json\nmodel.safetensors\ne: 40 test samples", result.out);
}

/* Would catch: a scheduler's next start that is refused for good by what the last one has left. */
static void test_saved__a_start_that_was_killed_does_not_block_the_next(void **state)
{
    (void)state;
    shell(0,
          "mkdir -p new/model new/checkpoints; touch new/model/model.safetensors.part; "
          "$F run job.yaml --run-dir new --continue && $F evaluate new --data data && rm -r new");
}

/* The directory's lock is that of a start, and job.yaml's lock that of a run: 3, as they end. */
static void test_saved__of_starts_in_one_directory_one_goes_on(void **state)
{
    (void)state;
    shell(3, "mkdir new; flock new $F run job.yaml --run-dir new --continue");
    says("another process begins a run in ", result.err);
    shell(0, "ls new; for i in 1 2 3; do { $F run job.yaml --run-dir new >/dev/null 2>err.$i; "
             "echo $? >code.$i; } & done; wait; sort -n code.* | head -n 1; "
             "$F evaluate new --data data >/dev/null");
    assert_string_equal(result.out, "0\n");
    shell(0, "grep -c -e 'another process' -e 'already holds' err.* | grep -c :1; rm -r new err.* "
             "code.*");
    assert_string_equal(result.out, "2\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_saved__output_names_the_weights),
        cmocka_unit_test(test_saved__a_start_that_was_killed_does_not_block_the_next),
        cmocka_unit_test(test_saved__of_starts_in_one_directory_one_goes_on),
        cmocka_unit_test(test_saved__a_resume_retires_the_model),
        cmocka_unit_test(test_saved__a_refused_resume_keeps_the_model),
        cmocka_unit_test(test_saved__checkpoints_elsewhere_are_models),
        cmocka_unit_test(test_saved__model_init_takes_the_name_of_a_run),
        cmocka_unit_test(test_saved__a_damaged_checkpoint_is_refused),
        cmocka_unit_test(test_saved__a_stray_folder_is_no_checkpoint),
        cmocka_unit_test(test_saved__a_model_that_cannot_be_read_is_named),
        cmocka_unit_test(test_saved__a_pipe_is_no_file),
        cmocka_unit_test(test_saved__labels_are_those_of_the_training),
        cmocka_unit_test(test_saved__outputs_that_are_not_finite_are_reported),
        cmocka_unit_test(test_saved__a_job_file_is_no_model),
        cmocka_unit_test(test_saved__of_exports_at_once_one_succeeds),
        cmocka_unit_test(test_saved__an_export_that_was_killed_does_not_block_the_next),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
