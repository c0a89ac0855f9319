/* The commands that begin a run again of which nothing was kept, or continue one that was lost.
 * Would catch: one that lacks the hosts of the run, or that a shell reads as another one. */
#include "launcher/run/runs/run_again.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FIELDS "name: small\n# --hosts none\n"

/* A job with these comments. */
static char *note_hosts(const fl_run_again_hosts *hosts)
{
    char *text = NULL;
    size_t n = 0;
    FILE *stream = open_memstream(&text, &n);
    assert_non_null(stream);
    if (hosts == NULL) {
        fl_run_again_note_tasks(stream);
    } else {
        fl_run_again_note(stream, hosts);
    }
    fputs(FIELDS, stream);
    fclose(stream);
    return text;
}

static void expect(char *job, const char *dir, const char *expected)
{
    char text[FL_RUN_AGAIN_TEXT], whole[FL_RUN_AGAIN_TEXT];
    snprintf(whole, sizeof whole, "nothing of the run was kept; `frostline run %s", expected);
    assert_string_equal(fl_run_again_text(dir, job, false, text), whole);
    free(job);
}

static void test_run_again__has_the_hosts_of_the_run(void **state)
{
    (void)state;
    const fl_run_again_hosts by_hand = {"hosts.yaml", "", "tcp://10.0.0.1:5570", false};
    const fl_run_again_hosts by_ssh = {"hosts.yaml", "", "", true};
    const fl_run_again_hosts with_key = {"", "/keys/head.key", "tcp://a-0.a:5570", false};
    expect(note_hosts(&with_key), "/r/a",
           "/r/a/job.yaml --key /keys/head.key --listen tcp://a-0.a:5570 --run-dir /r/a "
           "--continue` begins it again");
    expect(note_hosts(&by_hand), "/r/a",
           "/r/a/job.yaml --hosts hosts.yaml --listen tcp://10.0.0.1:5570 --run-dir /r/a "
           "--continue` begins it again");
    expect(note_hosts(&by_ssh), "/r/a",
           "/r/a/job.yaml --hosts hosts.yaml --ssh --run-dir /r/a --continue` begins it again");
    const fl_run_again_hosts by_pipe = {"/dev/stdin", "/dev/fd/63", "tcp://10.0.0.1:5570", false};
    expect(note_hosts(&by_pipe), "/r/a",
           "/r/a/job.yaml --hosts FILE --key FILE --listen tcp://10.0.0.1:5570 --run-dir /r/a "
           "--continue` begins it again");
    char text[FL_RUN_AGAIN_TEXT];
    assert_string_equal(fl_run_again_options(&by_pipe, text, sizeof text),
                        " --hosts FILE --key FILE --listen tcp://10.0.0.1:5570");
    expect(note_hosts(NULL), "/r/a",
           "/r/a/job.yaml --run-dir /r/a-2`, as tasks on the same hosts, begins it again");
    expect(strdup(FIELDS), "/r/a", "/r/a/job.yaml --run-dir /r/a --continue` begins it again");
}

static void expect_resume(char *job, const char *expected)
{
    char text[FL_RUN_AGAIN_TEXT];
    assert_string_equal(fl_run_resume_text("/r/a b", job, false, text), expected);
    free(job);
}

/* Would catch: a run of several hosts that continues on one of them. */
static void test_run_again__a_lost_run_continues_on_its_hosts(void **state)
{
    (void)state;
    char text[FL_RUN_AGAIN_TEXT];
    const fl_run_again_hosts by_hand = {"hosts.yaml", "", "tcp://10.0.0.1:5570", false};
    expect_resume(note_hosts(&by_hand),
                  "`frostline run --resume '/r/a b' --hosts hosts.yaml --listen "
                  "tcp://10.0.0.1:5570` continues it");
    expect_resume(note_hosts(NULL),
                  "`frostline run --resume '/r/a b'`, as tasks on the same hosts, continues it");
    expect_resume(strdup(FIELDS), "`frostline run --resume '/r/a b'` continues it");
    assert_null(strchr(fl_run_resume_text("/r/a", FIELDS, true, text), '`'));
}

static void test_run_again__names_are_words_of_a_shell(void **state)
{
    (void)state;
    const fl_run_again_hosts strange = {"my hosts; reboot", "", "", true};
    const fl_run_again_hosts broken = {"x\n# --listen y", "", "", true};
    expect(note_hosts(&strange), "/r/a b",
           "'/r/a b/job.yaml' --hosts 'my hosts; reboot' --ssh --run-dir '/r/a b' --continue` "
           "begins it again");
    expect(note_hosts(&broken), "/r/a",
           "/r/a/job.yaml --ssh --run-dir /r/a --continue` begins it again");
}

static void test_run_again__a_program_has_no_command(void **state)
{
    (void)state;
    char text[FL_RUN_AGAIN_TEXT];
    assert_null(strchr(fl_run_again_text("/r/a", FIELDS, true, text), '`'));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_again__has_the_hosts_of_the_run),
        cmocka_unit_test(test_run_again__a_lost_run_continues_on_its_hosts),
        cmocka_unit_test(test_run_again__names_are_words_of_a_shell),
        cmocka_unit_test(test_run_again__a_program_has_no_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
