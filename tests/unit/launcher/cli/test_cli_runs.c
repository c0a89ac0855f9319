/* What the program says of runs that are over, and of one that is not there. */
#include "launcher/cli/ctl/ctl_show.h"
#include "support/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Would catch: the message "no run directory" for the directory of a run that has ended. */
static void test_cli_runs__ctl_tells_an_ended_run_from_none(void **state)
{
    (void)state;
    static const char event[] = "{\"time\": 0, \"wall\": \"2026-01-31T09:30:00.000Z\", "
                                "\"event\": \"run.finished\", \"generation\": 1, \"steps\": 3}\n";
    run_command(cli_folder, "mkdir -p runs/done runs/theirs", &cli_result);
    cli_save("runs/done/events.jsonl", event);
    cli_run("ctl done status");
    assert_int_equal(cli_result.exit_code, 2);
    assert_string_equal(cli_result.err, "done: the run is over (finished)\n");
    cli_run("ctl nothing status");
    assert_string_equal(cli_result.err,
                        "nothing: not a run directory, nor the name of one of the 0 "
                        "live runs in runs\n");
    run_command(cli_folder, "chmod 0 runs/theirs", &cli_result);
    if (geteuid() != 0) { /* root may read everything */
        cli_run("ctl theirs status");
        assert_string_equal(cli_result.err,
                            "runs/theirs: permission denied: the run belongs to another user\n");
    }
    run_command(cli_folder, "chmod 700 runs/theirs && rm runs/done/events.jsonl", &cli_result);
    cli_save("runs/done/job.yaml", "name: done\n");
    cli_run("ctl runs/done status");
    assert_string_equal(cli_result.err, "runs/done: the run's events.jsonl is missing\n");
    cli_run("report runs/done");
    assert_string_equal(cli_result.err, "runs/done: the run's events.jsonl is missing\n");
    run_command(cli_folder, "rm -r runs", &cli_result);
}

/* Every command accepts the name of a run, and its message names this when it is given the parent
 * directory of runs. */
static void test_cli_runs__a_run_goes_by_its_name_everywhere(void **state)
{
    (void)state;
    run_command(cli_folder,
                "mkdir -p runs/p1 runs/p2 && for run in p1 p2; do "
                "echo '{\"event\":\"run.started\",\"job\":\"j\"}' >runs/$run/events.jsonl && "
                "echo '{\"step\":0,\"loss\":2,\"f\":0,\"k\":1,\"r\":1,\"m\":1}' "
                ">runs/$run/steps.jsonl; done; cp -r runs/p1 near",
                &cli_result);
    assert_int_equal(cli_result.exit_code, 0);
    cli_run("diff p1 p2");
    assert_string_equal(cli_result.err, "");
    assert_string_equal(cli_result.out, "equal to the last bit: 1 step\n");
    cli_run("diff near p2");
    assert_string_equal(cli_result.out, "equal to the last bit: 1 step\n");
    cli_run("ledger p1");
    assert_non_null(strstr(cli_result.err, "/runs/p1/ledger.bin: No such file or directory\n"));
    cli_run("run --replay p1");
    assert_non_null(strstr(cli_result.err, "/runs/p1/job.yaml: cannot be opened: No such file"));
    cli_run("ctl p1");
    assert_string_equal(cli_result.err,
                        "frostline ctl: a command is missing; see frostline ctl --help\n");
    static const char *const commands[] = {"ledger runs", "report runs", "diff runs p1",
                                           "run --replay runs", "ctl runs status"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        cli_run(commands[i]);
        assert_non_null(
            strstr(cli_result.err, "runs: a directory of 2 runs; name one of them, as in runs/p"));
        assert_int_equal(cli_result.exit_code, 2);
    }
    cli_run("list runs/p1"); /* was an empty table */
    assert_string_equal(cli_result.err,
                        "runs/p1: a run directory; list its parent directory for all "
                        "of its runs\n");
    assert_non_null(strstr(cli_result.out, "  p1\n"));
    run_command(cli_folder, "rm -r runs near", &cli_result);
}

/* Every worker's threads were a dash. */
static void test_cli_runs__ctl_flight_shows_operations(void **state)
{
    (void)state;
    json_t *reply = json_loads(
        "{\"waits\": \"nobody waits\", \"workers\": [{\"rank\": 1, \"threads\": [{\"thread\": "
        "\"main\", \"inside\": [{\"operation\": \"forward\", \"generation\": 1, \"step\": 12, "
        "\"micro_batch\": 3}], \"recent\": [{\"operation\": \"recv\", \"generation\": 1, \"step\": "
        "12, \"peer\": 0, \"left_s_ago\": 0.5}]}]}]}",
        0, NULL);
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    assert_non_null(reply);
    fl_ctl_show(reply, out);
    fclose(out);
    assert_string_equal(text, "waits              nobody waits\n"
                              "workers\n"
                              "  worker 1, thread main\n"
                              "    inside  forward           step 12  micro_batch 3\n"
                              "    done    recv              step 12  peer 0  left_s_ago 0.5\n");
    free(text);
    json_decref(reply);
}

/* A run that skipped steps looked like any other. */
static void test_cli_runs__list_and_report_show_skipped_steps(void **state)
{
    (void)state;
    run_command(cli_folder,
                "mkdir -p runs/p1 && echo '{\"event\":\"run.started\",\"job\":\"j\",\"steps\":2}' "
                ">runs/p1/events.jsonl && echo '{\"event\":\"run.finished\",\"steps\":2,"
                "\"skipped_steps\":1}' >>runs/p1/events.jsonl && "
                "echo '{\"step\":0,\"epoch\":0,\"ms\":1,\"loss\":null,\"skipped\":true}' "
                ">runs/p1/steps.jsonl && echo '{\"step\":1,\"epoch\":0,\"ms\":1,\"loss\":2}' "
                ">>runs/p1/steps.jsonl",
                &cli_result);
    cli_run("list");
    assert_non_null(strstr(cli_result.out, "  p1 (1 step skipped)\n"));
    cli_run("report p1");
    run_command(cli_folder, "grep -c '<dt>Skipped steps</dt><dd>1<small>' runs/p1/report.html",
                &cli_result);
    assert_string_equal(cli_result.out, "1\n");
    run_command(cli_folder, "rm -r runs", &cli_result);
}

static void test_cli_runs__list_shows_the_last_epoch_of_an_interrupted_run(void **state)
{
    (void)state;
    run_command(cli_folder,
                "mkdir -p runs/lost runs/failed runs/short && for run in lost failed short; do "
                "echo '{\"event\": \"run.started\", \"job\": \"j\", \"steps\": 9, \"model\": "
                "{\"metrics\": [{\"name\": \"mae\"}]}}' >runs/$run/events.jsonl && "
                "[ $run = short ] || echo '{\"event\": \"epoch.finished\", \"train_loss\": 1.9353, "
                "\"test_accuracy\": 0.605, \"test_mae\": 0.25}' >>runs/$run/events.jsonl && "
                "echo '{\"step\":4,\"loss\":1.0478}' >runs/$run/steps.jsonl; done && "
                "for run in failed short; do echo '{\"event\": \"run.failed\", \"steps\": 6}' "
                ">>runs/$run/events.jsonl; done",
                &cli_result);
    cli_run("list");
    assert_non_null(strstr(cli_result.out, "\nlost                  5/9   1.9353   0.6050 "));
    assert_non_null(strstr(cli_result.out, "  lost (mae 0.25)\n"));
    assert_non_null(strstr(cli_result.out, "\nfailed                6/9   1.9353   0.6050 "));
    assert_non_null(strstr(cli_result.out, "\nfailed                6/9   1.0478        - "));
    run_command(cli_folder, "rm -r runs", &cli_result);
}

/* A folder may have any name. Would catch: a name that begins a line of its own, or colours the
 * terminal. */
static void test_cli_runs__names_do_not_control_a_terminal(void **state)
{
    (void)state;
#define NAME "\"$(printf 'a\\n\\033[31mb')\""
    run_command(cli_folder,
                "mkdir -p runs/" NAME " && echo '{\"event\":\"run.started\",\"job\":\"j\","
                "\"wall\":\"\\u001b[32m\",\"steps\":2}' >runs/" NAME "/events.jsonl && "
                "echo '{\"event\":\"run.finished\",\"steps\":2}' >>runs/" NAME "/events.jsonl && "
                "echo '{\"step\":0,\"epoch\":0,\"ms\":1,\"loss\":2}' >runs/" NAME "/steps.jsonl",
                &cli_result);
    cli_run("list");
    assert_non_null(strstr(cli_result.out, "  $'a\\012\\033[31mb'\n"));
    assert_non_null(strstr(cli_result.out, "  \\033[32m "));
    cli_run("ctl " NAME " status");
    assert_string_equal(cli_result.err, "a\\012\\033[31mb: the run is over (finished)\n");
    cli_run("ctl " NAME "x status");
    assert_string_equal(cli_result.err,
                        "a\\012\\033[31mbx: not a run directory, nor the name of one "
                        "of the 0 live runs in runs\n");
    cli_run("report runs");
    assert_string_equal(cli_result.err, "runs: a directory of 1 run; name one of them, as in "
                                        "$'runs/a\\012\\033[31mb'\n");
    cli_run("report " NAME " --out " NAME);
    assert_string_equal(cli_result.out, "$'a\\012\\033[31mb': 1 step, 2 events\n");
    cli_run("report " NAME " --out nowhere/$(printf '\\033')");
    assert_null(strchr(cli_result.err, '\033'));
    assert_non_null(strstr(cli_result.err, "nowhere/\\033"));
    run_command(cli_folder, "rm -r runs", &cli_result);
#undef NAME
}

/* A run of another machine, in a folder that both share. Would catch: "lost", or "starting", of a
 * run that trains there; and a run of this machine before its last start that is not called lost.
 */
static void test_cli_runs__a_run_of_another_machine_is_elsewhere(void **state)
{
    (void)state;
    run_command(cli_folder,
                "mkdir -p runs/far runs/before && for run in far before; do host=node7; "
                "[ $run = far ] || host=$(hostname); echo "
                "'{\"event\":\"run.started\",\"job\":\"j\",\"steps\":9,"
                "\"controller_pid\":1,\"hostname\":\"'$host'\",\"boot_id\":\"another\"}' "
                ">runs/$run/events.jsonl && "
                "echo '{\"event\":\"run.running\"}' >>runs/$run/events.jsonl && "
                "echo '{\"step\":4,\"loss\":2}' >runs/$run/steps.jsonl && printf "
                "'# --hosts h.yaml\\n# --listen tcp://10.0.0.1:5570\\nname: j\\n' "
                ">runs/$run/job.yaml; done",
                &cli_result);
    cli_run("list");
    assert_non_null(strstr(cli_result.out, "\nlost "));
    assert_non_null(strstr(cli_result.out, "\nelsewhere             5/9 "));
    assert_non_null(strstr(cli_result.out, "  far (started on host node7)\n"));
    cli_run("list --json");
    assert_non_null(strstr(cli_result.out, "\"state\": \"elsewhere\""));
    assert_non_null(strstr(cli_result.out, "\"hostname\": \"node7\""));
    cli_run("ctl far status");
    assert_int_equal(cli_result.exit_code, 2);
    assert_string_equal(
        cli_result.err,
        "far: the run was started on host node7, and takes requests only there: try "
        "the same command on that host; or give the job control.listen, to reach it "
        "over the network\n");
    cli_run("ctl before status");
    assert_non_null(strstr(cli_result.err,
                           "before: the run is lost: its process ended before the run did; "
                           "`frostline run --resume /"));
    assert_non_null(strstr(cli_result.err, "/runs/before --hosts h.yaml --listen "
                                           "tcp://10.0.0.1:5570` continues it from its newest "
                                           "checkpoint"));
    run_command(cli_folder, "rm -r runs", &cli_result);
}

/* Names of folders are not all that a terminal might obey: the same of what a run answers. */
static void test_cli_runs__replies_do_not_control_a_terminal(void **state)
{
    (void)state;
    json_t *reply = json_pack("{s:s}", "run_dir", "/r/a\n\033[31mb\xc2\x9bz");
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    assert_non_null(reply);
    fl_ctl_show(reply, out);
    fclose(out);
    assert_string_equal(text, "run_dir            /r/a\\012\\033[31mb\\302\\233z\n");
    free(text);
    json_decref(reply);
}

/* Would catch: a reason that a table cuts off in the middle. */
static void test_cli_runs__a_long_reason_has_a_line_of_its_own(void **state)
{
    (void)state;
    static const char why[] = "it and host b: agents reach each other, workers do not: port 46455 "
                              "of host c (b tries: no answer in 2.0 s)";
    json_t *reply = json_pack("{s:[{s:s,s:s},{s:s,s:s}]}", "hosts", "name", "b", "why", "", "name",
                              "c", "why", why);
    char *text = NULL, shown[256];
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    assert_non_null(reply);
    fl_ctl_show(reply, out);
    fclose(out);
    snprintf(shown, sizeof shown,
             "hosts\n  name      why\n     b         \n     c  (below)\n    why: %s\n", why);
    assert_string_equal(text, shown);
    free(text);
    json_decref(reply);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cli_runs__ctl_tells_an_ended_run_from_none),
        cmocka_unit_test(test_cli_runs__a_run_goes_by_its_name_everywhere),
        cmocka_unit_test(test_cli_runs__ctl_flight_shows_operations),
        cmocka_unit_test(test_cli_runs__names_do_not_control_a_terminal),
        cmocka_unit_test(test_cli_runs__a_run_of_another_machine_is_elsewhere),
        cmocka_unit_test(test_cli_runs__replies_do_not_control_a_terminal),
        cmocka_unit_test(test_cli_runs__list_and_report_show_skipped_steps),
        cmocka_unit_test(test_cli_runs__list_shows_the_last_epoch_of_an_interrupted_run),
        cmocka_unit_test(test_cli_runs__a_long_reason_has_a_line_of_its_own),
    };
    return cmocka_run_group_tests(tests, cli_make_folder, cli_remove_folder);
}
