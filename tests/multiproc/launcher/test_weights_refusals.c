/* Weights that `model.init`, `frostline evaluate`, `predict` and `export` refuse: each with exit
 * code 2, a message that says where, what was found and what is allowed, and nothing changed on the
 * disk. What a damaged or unreadable folder of weights holds would otherwise be trained on. */
#include "support/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PROGRAM FL_BINARY_DIR "/frostline "
#define INIT "run job.yaml --run-dir new --set model.init="
#define SAVED "x/checkpoints/step-000000020"

/* run: 20 steps, a model and a checkpoint; wide: of another model. x is a copy of run. */
static int make_runs(void **state)
{
    cli_make_folder(state);
    cli_make_images("data", 200);
    cli_must_run("cat >job.yaml <<'END'\n"
                 "name: small\n"
                 "model: {blocks: 2, dim: 8, heads: 1, patch: 7}\n"
                 "data: {path: data}\n"
                 "train: {batch: 10, epochs: 1, evaluate: false, seed: 1}\n"
                 "devices: {count: 2, memory: 64MiB}\n"
                 "pipe: {tune: false, profile: none}\n"
                 "END\n");
    cli_must_run(PROGRAM "run job.yaml --run-dir run >log 2>&1");
    cli_must_run(PROGRAM "run job.yaml --run-dir wide --set model.dim=16 >log 2>&1");
    cli_must_run("cp -a run x; chmod -R a+rX .");
    return 0;
}

typedef struct refusal {
    const char *damage; /* done in x */
    const char *arguments, *says;
} refusal;

#define FLIP "; do printf x | dd of=$f bs=1 seek=600 conv=notrunc; done"

static const refusal refusals[] = {
    {"true", INIT "nowhere", "model.init: nowhere: not found; allowed: "},
    {"true", INIT "data", "model.init: data: found neither model.safetensors nor"},
    {"true", INIT "job.yaml", "model.init: job.yaml: a job file; allowed: "},
    {"true", INIT "wide",
     "31 tensors of another shape or type:\n    embed.patch.weight [16, 49], the model has"},
    {"true", INIT "wide/checkpoints/step-000000020",
     "does not fit the model vit:\n  31 tensors of"},
    {"true", INIT "x --set model.blocks=3", "blocks.3.attn.qkv.weight"},
    {"true", INIT "x --set model.blocks=1", "blocks.2.attn.qkv.weight"},
    {"true", INIT "x --set model.init_allow=tail",
     "model.init_allow=tail: "
     "model.init_allow: found tail, allowed: a layer of the model or of the file"},
    {"rm -r model checkpoints", INIT "x", "x: this run has left no model and no checkpoint"},
    {"truncate -s -5 model/model.safetensors", INIT "x", "do not lie within the "},
    {"truncate -s 4 model/model.safetensors", INIT "x", "x/model/model.safetensors: "},
    /* a checkpoint, by its manifest */
    {"rm checkpoints/*/weights-003*", INIT SAVED, "weights-003.safetensors: No such file"},
    {"truncate -s -4 checkpoints/*/weights-003*", INIT SAVED, "weights-003.safetensors: damaged: "},
    {"for f in checkpoints/*/weights-003*" FLIP, INIT SAVED, "damaged: its hash is "},
    {"for f in checkpoints/*/manifest.json" FLIP, INIT SAVED, "manifest.json: damaged"},
    {"truncate -s 100 checkpoints/*/manifest.json", INIT SAVED, "manifest.json: damaged"},
    {"rm checkpoints/*/*.index.json", INIT SAVED, "index.json: No such file or directory"},
    {"echo '{' | tee checkpoints/*/*.index.json", INIT SAVED, "index.json: damaged: "},
    {"rm checkpoints/*/manifest.json", INIT SAVED, "found no manifest.json"},
    /* under another name, one without a manifest is a folder of weights */
    {"rm checkpoints/*/manifest.json; mv checkpoints/step-* w; echo '{' "
     ">w/model.safetensors.index.json",
     INIT "x/w", "index.json: the header is no valid JSON"},
    {"rm checkpoints/*/manifest.json checkpoints/*/weights-002*; mv checkpoints/step-* w",
     INIT "x/w", "cannot open x/w/weights-002.safetensors"},
    /* the other commands */
    {"for f in checkpoints/*/weights-003*" FLIP, "evaluate " SAVED " --data data",
     "damaged: its hash is "},
    {"for f in checkpoints/*/weights-003*" FLIP, "predict " SAVED " --data data",
     "damaged: its hash is "},
    {"for f in checkpoints/*/weights-003*" FLIP, "export " SAVED " --to new",
     "damaged: its hash is "},
    {"rm -r model; rm checkpoints/*/weights-003*", "export x --to new",
     "the checkpoint after 20 steps is not used: "},
};

/* Runs the program as a user that owns nothing; "": as the tests' user. */
static const char *other_user = "";

#define LIST "{ find . ! -name before ! -name after | sort; find x -type f | sort | xargs md5sum; }"

static void refuse(const refusal *r)
{
    char command[2048];
    snprintf(command, sizeof command,
             "chmod -R u+rwX x; rm -rf x; cp -a run x; cd x; { %s; } >/dev/null 2>&1", r->damage);
    cli_must_run(command);
    snprintf(command, sizeof command,
             LIST " >before; %s" PROGRAM "%s; code=$?; " LIST " >after; cmp before after >&2; "
                  "exit $code",
             other_user, r->arguments);
    run_command(cli_folder, command, &cli_result);
    if (cli_result.exit_code != 2 || strstr(cli_result.err, r->says) == NULL ||
        strstr(cli_result.err, "before after differ") != NULL) {
        fail_msg("%s; %s: exit code %d, no \"%s\" in: %s", r->damage, r->arguments,
                 cli_result.exit_code, r->says, cli_result.err);
    }
}

static void test_weights__refuses_what_does_not_fit_or_is_damaged(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        refuse(&refusals[i]);
    }
}

/* Root may do everything, so it becomes nobody. */
static void test_weights__refuses_what_it_may_not_read_or_write(void **state)
{
    (void)state;
    static const refusal closed[] = {
        {"chmod 0 model/model.safetensors", INIT "x",
         "x/model/model.safetensors: Permission denied"},
        {"chmod 0 checkpoints/*", INIT SAVED, SAVED ": Permission denied"},
        {"chmod 0 model/model.safetensors", "evaluate x --data data", "Permission denied"},
        {"chmod 0 .", "evaluate x", "x: Permission denied"},
        {"chmod 0 checkpoints/*", "evaluate " SAVED " --data data", SAVED ": Permission denied"},
        {"chmod 0 checkpoints/*", "predict " SAVED " --data data", SAVED ": Permission denied"},
        {"chmod 0 .", "export x --to new", "x: Permission denied"},
        {"true", "export x --to new", "--to: new: Permission denied"},
        {"true", "predict x --out new", "--out: new: Permission denied"},
        {"true", "run job.yaml --run-dir new", "--run-dir: cannot make new: Permission denied"},
    };
    if (geteuid() != 0) {
        skip();
    }
    char command[300];
    other_user = "setpriv --reuid 65534 --regid 65534 --clear-groups ";
    snprintf(command, sizeof command, "chmod 755 .; %s" PROGRAM "--version", other_user);
    run_command(cli_folder, command, &cli_result);
    if (cli_result.exit_code != 0) {
        skip();
    }
    for (size_t i = 0; i < sizeof closed / sizeof *closed; i++) {
        refuse(&closed[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights__refuses_what_does_not_fit_or_is_damaged),
        cmocka_unit_test(test_weights__refuses_what_it_may_not_read_or_write),
    };
    return cmocka_run_group_tests(tests, make_runs, cli_remove_folder);
}
