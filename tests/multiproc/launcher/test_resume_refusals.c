/* What `frostline run --resume` refuses: each with exit code 2, a message that says where, what was
 * found and what is allowed, and nothing changed on the disk. */
#include "control/checkpoint/manifest/manifest_members.h"
#include "support/cli.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

#define PROGRAM FL_BINARY_DIR "/frostline"
#define NEWEST "$(ls checkpoints/*/manifest.json | tail -n 1)"
#define KEEP_NEWEST "rm $(ls checkpoints/*/manifest.json | head -n -1)"
#define RUN "run --resume x"

enum { MANIFEST_MAX = 1 << 18 };

/* run: killed, with two checkpoints. finished: to its end. x is a copy that a case may damage. */
static int make_runs(void **state)
{
    cli_make_folder(state);
    cli_make_images("data", 200);
    cli_make_images("other", 200);
    cli_must_run("printf '\\377' | dd of=other/train-images-idx3-ubyte bs=1 seek=300 conv=notrunc");
    cli_must_run("cat >job.yaml <<'END'\n"
                 "name: small\n"
                 "model: {blocks: 2, dim: 8, heads: 1, patch: 7}\n"
                 "data: {path: data}\n"
                 "train: {batch: 10, epochs: 100000, evaluate: false, seed: 1}\n"
                 "devices: {count: 2}\n"
                 "pipe: {tune: false, profile: none}\n"
                 "checkpoint: {every: 5 steps}\n"
                 "END\n");
    cli_must_run(PROGRAM
                 " run job.yaml --run-dir run >log 2>&1 & pid=$!\n"
                 "while [ \"$(ls run/checkpoints/*/manifest.json 2>/dev/null | wc -l)\" -lt 2 ]; do"
                 " kill -0 $pid || exit 1; sleep 0.02; done\n"
                 "kill -9 $pid; wait $pid || true");
    cli_must_run(PROGRAM " run job.yaml --run-dir finished --set train.epochs=1 >log 2>&1");
    return 0;
}

typedef struct refusal {
    const char *damage;    /* done in x, a copy of run; NULL: nothing */
    const char *arguments; /* of frostline */
    const char *says;
    /* In the newest manifest, whose hash is then made right again. to NULL: another digit behind
     * `from`. */
    const char *from, *to;
} refusal;

static const refusal refusals[] = {
    /* the command line */
    {NULL, "run --resume", "option --resume needs a value RUN", NULL, NULL},
    {NULL, RUN " job.yaml", "job.yaml is given, too: the job is the run's", NULL, NULL},
    {NULL, RUN " --replay run", "--replay is given, too: a run is continued, or repeated", NULL,
     NULL},
    {NULL, RUN " --run-dir y", "--run-dir is given, too: the run continues in its own directory",
     NULL, NULL},
    {NULL, RUN " --checkpoint abc", "--checkpoint: found 'abc', allowed: a number of steps", NULL,
     NULL},
    {NULL, RUN " --checkpoint -1", "--checkpoint: found '-1', allowed: a number of steps", NULL,
     NULL},
    {NULL, RUN " --checkpoint 3", "has no checkpoint after that many steps; found: ", NULL, NULL},
    {NULL, "run job.yaml --checkpoint 3", "--checkpoint is an option of --resume", NULL, NULL},
    /* the run directory */
    {NULL, "run --resume nothing", "nothing: not a run directory, nor the name of one", NULL, NULL},
    {NULL, "run --resume job.yaml", "--resume: job.yaml: not a run directory", NULL, NULL},
    {NULL, "run --resume data", "holds no run: there is no events.jsonl", NULL, NULL},
    {NULL, "run --resume .", "a directory of 3 runs; name one of them", NULL, NULL},
    {"rm events.jsonl", RUN, "there is no events.jsonl", NULL, NULL},
    {"rm job.yaml", RUN, "x/job.yaml: No such file or directory", NULL, NULL},
    {"rm job.yaml; mkdir job.yaml", RUN, "x/job.yaml: Is a directory", NULL, NULL},
    {"rm job.yaml; mkfifo job.yaml", RUN, "job.yaml is not a regular file", NULL, NULL},
    {"echo 'model: {' >>job.yaml", RUN, "job.yaml:", NULL, NULL},
    {"sed -i 's/batch: 10/batch: ten/' job.yaml", RUN, "train.batch: found 'ten', allowed", NULL,
     NULL},
    /* the job */
    {NULL, RUN " --set model.dim=16", "model.dim: found 16, the run has 8", NULL, NULL},
    {NULL, RUN " --set train.seed=5 --set train.batch=20",
     "train.batch: found 20, the run has 10\n"
     "  train.seed: found 5, the run has 1",
     NULL, NULL},
    {NULL, RUN " --set data.samples=100", "data.samples: found 100, the run has all", NULL, NULL},
    {NULL, RUN " --set data.validation=5%", "data.validation: found 5%, the run has none", NULL,
     NULL},
    {NULL, RUN " --set train.optimizer=sgd", "train.optimizer: found sgd, the run has adamw", NULL,
     NULL},
    {NULL, RUN " --set train.lrr=1", "unknown field, nearest is train.lr", NULL, NULL},
    {NULL, RUN " --set train.lr=fast", "train.lr: found 'fast', allowed", NULL, NULL},
    {NULL, RUN " --set train.max_steps=2", "give 2 steps, allowed: at least the ", NULL, NULL},
    {NULL, RUN " --set pipe.k=3", "pipe.k: found K = 3, allowed: at most devices.count 2", NULL,
     NULL},
    {NULL, "run --resume finished",
     "the run has finished all of its 20 steps; --set train.epochs=N", NULL, NULL},
    {NULL, "run --resume finished --set train.epochs=1", "the run has finished all of its", NULL,
     NULL},
    {"sed -i 's/optimizer: adamw/optimizer: sgd/' job.yaml", RUN,
     "train.optimizer: found sgd, the run has adamw", NULL, NULL},
    {"sed -i 's/heads: 1/heads: 2/' job.yaml", RUN, "model.heads: found 2, the run has 1", NULL,
     NULL},
    /* the data */
    {NULL, RUN " --set data.path=other", "other data: their fingerprint is ", NULL, NULL},
    {NULL, RUN " --set data.path=nowhere", "nowhere", NULL, NULL},
    /* the checkpoints */
    {"rm -r checkpoints", RUN, "found no checkpoint in ", NULL, NULL},
    {"rm -r checkpoints/*", RUN, "x --continue` begins it again", NULL, NULL},
    {"rm checkpoints/*/manifest.json", RUN, "found no checkpoint in ", NULL, NULL},
    {"rm checkpoints/*/weights-001*", RUN, "weights-001.safetensors: No such file", NULL, NULL},
    {"truncate -s -1 checkpoints/*/moments-002*", RUN, "damaged: ", NULL, NULL},
    {"truncate -s 100 checkpoints/*/manifest.json", RUN, "manifest.json: damaged", NULL, NULL},
    {"for f in checkpoints/*/weights-003*; do printf x | dd of=$f bs=1 seek=600 conv=notrunc; done",
     RUN, "damaged: its hash is ", NULL, NULL},
    {KEEP_NEWEST, RUN, "version 7 of the format; this program (frostline", "\"version\": 4",
     "\"version\": 7"},
    {NULL, RUN, "another model: ", "\"fingerprint\": \"", NULL},
    {NULL, RUN, " samples to train on", "\"n_samples\": 200", "\"n_samples\": 201"},
    {KEEP_NEWEST, RUN, " expected after ", "\"position\": ", "\"position\": 1"},
    /* the record */
    {"rm steps.jsonl", RUN, "steps.jsonl: No such file or directory", NULL, NULL},
    {"truncate -s 100 steps.jsonl", RUN, "steps.jsonl: 100 bytes found, at least ", NULL, NULL},
    {"sed -i 1d steps.jsonl; cat steps.jsonl >>steps.jsonl.2; mv steps.jsonl.2 steps.jsonl; "
     "head -c 1000000 /dev/zero >>steps.jsonl",
     RUN, "steps.jsonl: byte ", NULL, NULL},
    {"truncate -s 10 events.jsonl; echo >>events.jsonl", RUN, "events.jsonl: 11 bytes found", NULL,
     NULL},
    {"rm ledger.bin", RUN, "ledger.bin: No such file or directory", NULL, NULL},
    {"truncate -s 400 ledger.bin", RUN, "are not all recorded", NULL, NULL},
    {"cp ../finished/job.yaml ledger.bin", RUN, "not a ledger", NULL, NULL},
    {"printf x | dd of=ledger.bin bs=1 seek=100 conv=notrunc", RUN, "is damaged", NULL, NULL},
};

static char *read_text(const char *path, size_t *n)
{
    char *text = calloc(1, MANIFEST_MAX);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    *n = fread(text, 1, MANIFEST_MAX - 64, file);
    fclose(file);
    return text;
}

static void edit_manifest(const char *from, const char *to)
{
    char path[600];
    cli_must_run("cd x; printf %s " NEWEST);
    snprintf(path, sizeof path, "%s/x/%s", cli_folder, cli_result.out);
    size_t n = 0;
    char *text = read_text(path, &n), *at = strstr(text, from);
    if (at == NULL) {
        fail_msg("the manifest has no %s", from);
        abort(); /* fail_msg does not return, which the analyzer does not know */
    }
    n -= FL__CHECKPOINT_TRAILER_BYTES;
    if (to == NULL) {
        char *digit = at + strlen(from);
        *digit = *digit == '1' ? '2' : '1';
        to = from;
    }
    size_t rest = n - (size_t)(at - text) - strlen(from);
    memmove(at + strlen(to), at + strlen(from), rest);
    memcpy(at, to, strlen(to));
    n = n - strlen(from) + strlen(to);
    snprintf(text + n, FL__CHECKPOINT_TRAILER_BYTES + 1, FL__CHECKPOINT_TRAILER,
             (unsigned long long)XXH64(text, n, 0));
    n += FL__CHECKPOINT_TRAILER_BYTES;
    FILE *file = fopen(path, "wb");
    assert_int_equal(fwrite(text, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
    free(text);
}

#define LIST "{ find x | sort; find x -type f | sort | xargs md5sum; }"

static void refuse(const refusal *r)
{
    char command[2048];
    snprintf(command, sizeof command, "rm -rf x; cp -a run x; cd x; { %s; } 2>/dev/null",
             r->damage == NULL ? "true" : r->damage);
    cli_must_run(command);
    if (r->from != NULL) {
        edit_manifest(r->from, r->to);
    }
    snprintf(command, sizeof command,
             LIST " >before; " PROGRAM " %s; code=$?; " LIST " >after; "
                  "cmp before after >&2; exit $code",
             r->arguments);
    run_command(cli_folder, command, &cli_result);
    if (cli_result.exit_code != 2 || strstr(cli_result.err, r->says) == NULL ||
        strstr(cli_result.err, "before after differ") != NULL) {
        fail_msg("%s; %s: exit code %d, no \"%s\" in: %s", r->damage == NULL ? "" : r->damage,
                 r->arguments, cli_result.exit_code, r->says, cli_result.err);
    }
}

static void test_resume__refuses_what_cannot_continue(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        refuse(&refusals[i]);
    }
}

/* Would catch: a message that ends in the middle of a path, for whoever reads it by lines. */
static void test_resume__shows_a_name_with_a_line_end(void **state)
{
    (void)state;
    cli_must_run("mkdir \"$(printf 'l\\nm')\"; cd l*; cp ../run/job.yaml .; touch events.jsonl");
    run_command(cli_folder, PROGRAM " run --resume \"$(printf 'l\\nm')\"", &cli_result);
    assert_int_equal(cli_result.exit_code, 2);
    assert_non_null(strstr(cli_result.err, "l\\012m: found no checkpoint in "));
    assert_string_equal(strchr(cli_result.err, '\n'), "\n");
}

/* A pipe would keep the command waiting, and what a link leads to is somebody else's. */
static void test_resume__replaces_pipes_and_links_in_the_place_of_its_files(void **state)
{
    (void)state;
    cli_must_run("rm -rf x; cp -a run x; cd x; rm -f summary.txt; echo mine >../other.txt;"
                 "mkfifo summary.txt; ln -s ../other.txt job.yaml.part; "
                 "rm -f model/config.json; mkdir -p model; mkfifo model/config.json");
    cli_must_run(
        "timeout 60 " PROGRAM " " RUN " --set train.epochs=20000 >log 2>&1 & echo $! >pid; "
        "until " PROGRAM " ctl x status; do kill -0 $! || exit 1; sleep 0.02; done; " PROGRAM
        " ctl x checkpoint && " PROGRAM " ctl x stop; wait $!; [ $? = 130 ]");
    cli_must_run("grep -q mine other.txt; cd x; [ -f summary.txt ] && [ ! -p summary.txt ] && "
                 "[ -f model/config.json ] && [ ! -L job.yaml ]");
}

/* One directory, one run. */
static void test_resume__refuses_a_run_that_another_process_has(void **state)
{
    (void)state;
    char path[600];
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    cli_must_run("rm -rf x; cp -a run x");
    snprintf(path, sizeof path, "%s/x/job.yaml", cli_folder);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(fcntl(fd, F_SETLK, &whole), 0);
    run_command(cli_folder, PROGRAM " " RUN, &cli_result);
    close(fd);
    assert_int_equal(cli_result.exit_code, 3);
    assert_non_null(
        strstr(cli_result.err, "--resume: x: the run is starting; `frostline ctl x stop`"));
    cli_must_run(PROGRAM " " RUN " >log 2>&1 & echo $! >pid; until " PROGRAM " ctl x status; do"
                         " kill -0 $! || exit 1; sleep 0.02; done");
    run_command(cli_folder, PROGRAM " " RUN, &cli_result);
    assert_int_equal(cli_result.exit_code, 3);
    assert_non_null(strstr(cli_result.err, "--resume: x: the run still trains"));
    cli_must_run("kill -9 $(cat pid)");
}

#define UNTIL_LIVE                                                                                 \
    "until " PROGRAM " ctl x status; do kill -0 $pid || exit 1; sleep 0.02; done >/dev/null "      \
    "2>&1; "

/* A worker that left trains again after a resume; a repetition has no process for it. */
static void test_resume__a_run_whose_workers_changed_is_not_repeated(void **state)
{
    (void)state;
    cli_must_run("rm -rf x y; " PROGRAM
                 " run job.yaml --run-dir x --set checkpoint.every=none >log "
                 "2>&1 & pid=$!; " UNTIL_LIVE "set -e; " PROGRAM " ctl x drain 1; " PROGRAM
                 " ctl x checkpoint; kill -9 $pid; wait $pid || true");
    cli_must_run(PROGRAM " " RUN " >log 2>&1 & pid=$!; " UNTIL_LIVE PROGRAM
                         " ctl x stop; wait $pid;"
                         " [ $? = 130 ]");
    run_command(cli_folder, PROGRAM " run --replay x --run-dir y", &cli_result);
    assert_int_equal(cli_result.exit_code, 2);
    assert_non_null(strstr(cli_result.err, " after worker 1 had left: only a run with the same"));
    cli_must_run("[ ! -e y ]");
}

/* Would catch: a run that was killed as it began to grow longer, or before its model had its name,
 * and can never be completed because it has finished all of its steps. */
static void test_resume__completes_a_finished_run_without_a_model(void **state)
{
    (void)state;
    cli_must_run("rm -rf x; cp -a finished x; rm x/model/model.safetensors x/summary.txt; " PROGRAM
                 " " RUN " >log 2>&1");
    cli_must_run("cmp x/model/model.safetensors finished/model/model.safetensors; cd x; "
                 "[ -f summary.txt ] && [ \"$(grep -c '\"run.finished\"' events.jsonl)\" = 1 ] && "
                 "tail -n 1 events.jsonl | grep -q '\"run.finished\"'");
    run_command(cli_folder, PROGRAM " " RUN, &cli_result);
    assert_int_equal(cli_result.exit_code, 2);
    assert_non_null(strstr(cli_result.err, "the run has finished all of its 20 steps"));
}

/* ssh does not reach the other host: before the plan is chosen, where links are measured, or after
 * it. Would catch: a trained model, or a checkpoint, that such a start costs. */
static void fail_to_start_on_hosts(const char *links)
{
    char command[600];
    cli_must_run(
        "rm -rf x bin; cp -a finished x; mkdir bin; printf '#!/bin/sh\nexit 255\n' >bin/ssh; "
        "chmod 755 bin/ssh");
    snprintf(command, sizeof command,
             "cat >hosts.yaml <<'END'\n"
             "hosts:\n"
             "  - {name: a, devices: 1, address: 127.0.0.1}\n"
             "  - {name: b, devices: 1, address: 127.0.0.2}\n"
             "%sEND\n",
             links);
    cli_must_run(command);
    run_command(cli_folder,
                "PATH=$PWD/bin:$PATH " PROGRAM " " RUN
                " --set train.epochs=3 --hosts hosts.yaml --ssh",
                &cli_result);
    if (cli_result.exit_code != 3 ||
        strstr(cli_result.err, "ssh, which was to start its agent") == NULL) {
        fail_msg("exit code %d: %s", cli_result.exit_code, cli_result.err);
    }
    cli_must_run(
        "for f in model/model.safetensors model/config.json $(cd finished; find checkpoints/"
        "step-* -type f); do cmp x/$f finished/$f || exit 1; done; [ ! -e x/hosts.key ]");
    cli_must_run(PROGRAM " " RUN " --set train.epochs=3 --set devices.count=2 >log 2>&1 && "
                         "tail -n 1 x/events.jsonl | grep -q '\"run.finished\"' && "
                         "! cmp -s x/model/model.safetensors finished/model/model.safetensors");
}

static void test_resume__a_start_that_fails_costs_no_model_and_no_checkpoint(void **state)
{
    (void)state;
    fail_to_start_on_hosts("");
    fail_to_start_on_hosts("links:\n  between_hosts: {latency_us: 50, bandwidth: 1GiB}\n");
}

/* Root may do everything, so it becomes nobody. */
static void test_resume__refuses_a_run_of_another_user(void **state)
{
    (void)state;
    const char *nobody =
        geteuid() == 0 ? "setpriv --reuid 65534 --regid 65534 --clear-groups " : "";
    char command[700];
    cli_must_run("rm -rf x; cp -a run x; chmod 755 .");
    snprintf(command, sizeof command, "%s" PROGRAM " --version", nobody);
    run_command(cli_folder, command, &cli_result);
    if (cli_result.exit_code != 0) {
        skip();
    }
    snprintf(command, sizeof command,
             "chmod 555 x; %s" PROGRAM " " RUN "; code=$?; chmod 755 x; exit $code", nobody);
    run_command(cli_folder, command, &cli_result);
    assert_int_equal(cli_result.exit_code, 2);
    if (strstr(cli_result.err, "ermission denied") == NULL) {
        fail_msg("%s", cli_result.err);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume__refuses_what_cannot_continue),
        cmocka_unit_test(test_resume__shows_a_name_with_a_line_end),
        cmocka_unit_test(test_resume__replaces_pipes_and_links_in_the_place_of_its_files),
        cmocka_unit_test(test_resume__refuses_a_run_that_another_process_has),
        cmocka_unit_test(test_resume__a_run_whose_workers_changed_is_not_repeated),
        cmocka_unit_test(test_resume__a_start_that_fails_costs_no_model_and_no_checkpoint),
        cmocka_unit_test(test_resume__completes_a_finished_run_without_a_model),
        cmocka_unit_test(test_resume__refuses_a_run_of_another_user),
    };
    return cmocka_run_group_tests(tests, make_runs, cli_remove_folder);
}
