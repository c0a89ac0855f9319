/* Commands that a run on two hosts prints, pasted into a shell as they are: the files and the run
 * have names that a shell takes apart, or runs.
 * Would catch: a command that is printed without quotes, so that pasting it fails, or starts what a
 * file's name has. */
#include "support/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* For sh: as the text has it. */
#define QUOTED "\"my \\$(touch X) it's\""

/* "paste_agent LOG" starts the agent as the head says there; "paste LOG WORD" runs what follows
 * WORD in the summary; "paste_lines" also its next lines. */
#define WAYS                                                                                       \
    "PATH=" FL_BINARY_DIR ":$PATH\n"                                                               \
    "paste_agent() {\n"                                                                            \
    "    until grep -q '^frostline agent --join' \"$1\"; do kill -0 $pid || exit 1; sleep 0.02; "  \
    "done\n"                                                                                       \
    "    eval \"$(grep '^frostline agent --join ' \"$1\" | head -n 1)\" >agent 2>&1\n"             \
    "}\n"                                                                                          \
    "paste() { eval \"$(sed -n \"s/^  $2  *\\(frostline .*\\)/\\1/p\" \"$1\")\"; }\n"              \
    "paste_lines() { eval \"$(sed -n \"/^  $2 /,/--set/p\" \"$1\" | tail -n +2)\"; }\n"

/* Other tests have other addresses of this machine, so that no port is taken. */
static int make_files(void **state)
{
    cli_make_folder(state);
    cli_make_images("data", 200);
    cli_must_run("cat >job.yaml <<'END'\n"
                 "name: small\n"
                 "model: {blocks: 2, dim: 8, heads: 1, patch: 7}\n"
                 "data: {path: data}\n"
                 "train: {batch: 10, max_steps: 10, epochs: 1, evaluate: false, seed: 1}\n"
                 "pipe: {k: 2, m: 2, tune: false, profile: none}\n"
                 "autodp: {r: 1}\n"
                 "checkpoint: {every: 5 steps}\n"
                 "END\n"
                 "net=127.$(($$ / 250 % 250 + 1)).$(($$ % 250 + 1))\n"
                 "echo $net >net\n"
                 "cat >" QUOTED ".yaml <<END\n"
                 "hosts:\n"
                 "  - {name: a, devices: 1, address: $net.1}\n"
                 "  - {name: b, devices: 1, address: $net.2}\n"
                 "links:\n"
                 "  between_hosts: {latency_us: 50, bandwidth: 1GiB}\n"
                 "END\n");
    cli_must_run(WAYS "frostline run job.yaml --run-dir " QUOTED " --hosts " QUOTED ".yaml "
                      "--listen tcp://$(cat net).1:5570 >out 2>err & pid=$!\n"
                      "paste_agent err && wait $pid");
    return 0;
}

static void test_pasted__agent_and_summary(void **state)
{
    (void)state;
    cli_must_run(WAYS "paste out 'as a page' && [ -s " QUOTED "/report.html ] && "
                      "paste out 'the proof' && paste out 'the schedule'");
    cli_must_run("[ ! -e X ]");
    /* An agent that was measured joins by itself: a second one would be refused. */
    cli_must_run("[ $(grep -c '^frostline agent --join' err) = 1 ]");
}

/* The longer run has its hosts again. */
static void test_pasted__train_longer(void **state)
{
    (void)state;
    cli_must_run(WAYS "paste_lines out 'train longer' >out2 2>err2 & pid=$!\n"
                      "paste_agent err2 && wait $pid && grep -q 'done after 20 of 20 steps' out2");
    cli_must_run("[ ! -e X ]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pasted__agent_and_summary),
        cmocka_unit_test(test_pasted__train_longer),
    };
    return cmocka_run_group_tests(tests, make_files, cli_remove_folder);
}
