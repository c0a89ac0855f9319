/* What the head says of hosts for which it waits. Would catch: a wait of ten minutes in silence,
 * a line for every turn of it, and a message that does not name the hosts. */
#include "control/agent/join/awaited.h"
#include "control/agent/join/host_dismiss.h"
#include "control/agent/join/host_start.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SECOND = 1000000 };

static fl_hosts *make_hosts(int n)
{
    fl_hosts *hosts = calloc(1, sizeof *hosts);
    assert_non_null(hosts);
    hosts->n = n;
    snprintf(hosts->agents, sizeof hosts->agents, "tcp://10.0.0.1:5570");
    for (int i = 0; i < n; i++) {
        fl_host *host = &hosts->host[i];
        snprintf(host->name, sizeof host->name, "h%d", i);
        snprintf(host->address, sizeof host->address, "10.0.0.%d", i + 1);
    }
    return hosts;
}

static void test_awaited__names_the_hosts(void **state)
{
    (void)state;
    fl_hosts *hosts = make_hosts(8);
    char text[FL_AWAITED_TEXT];
    bool awaited[8] = {[2] = true};
    assert_string_equal(fl_awaited_names(hosts, awaited, text), "h2 (10.0.0.3)");
    for (int i = 1; i < 8; i++) {
        awaited[i] = true;
    }
    assert_string_equal(fl_awaited_names(hosts, awaited, text),
                        "h1 (10.0.0.2), h2 (10.0.0.3), h3 (10.0.0.4), h4 (10.0.0.5) and 3 more");
    for (int i = 0; i < 8; i++) { /* the longest that names and addresses get */
        memset(hosts->host[i].name, 'n', FL_HOST_TEXT - 1);
        memset(hosts->host[i].address, '1', FL_HOST_TEXT - 1);
    }
    assert_true(strlen(fl_awaited_names(hosts, awaited, text)) < FL_AWAITED_TEXT - 1);
    free(hosts);
}

static void test_awaited__is_told_now_and_then(void **state)
{
    (void)state;
    fl_awaited_clock clock = {.begun_us = 0};
    int n = 0;
    assert_false(fl_awaited_is_due(&clock, SECOND)); /* it has not begun */
    fl_awaited_begin(&clock, SECOND);
    assert_false(fl_awaited_is_due(&clock, 10 * SECOND));
    for (int64_t now_us = SECOND; now_us <= 601 * (int64_t)SECOND; now_us += 50000) {
        n += fl_awaited_is_due(&clock, now_us);
    }
    assert_int_equal(n, 11); /* after 10, 30, 70, 130 ... 550 s */
}

static void test_awaited__has_the_command_and_the_time(void **state)
{
    (void)state;
    fl_hosts *hosts = make_hosts(3);
    char text[FL_HOST_AWAITED_TEXT];
    assert_string_equal(fl_host_start_awaited(hosts, "frostline", "/r", FL_AWAITED_JOIN_MS, text),
                        "waits for 2 other hosts, 600 s at most: h1 (10.0.0.2), h2 (10.0.0.3); on "
                        "each of them, its "
                        "command starts the agent:\n"
                        "frostline agent --join tcp://10.0.0.1:5570 --key /r/hosts.key --name h1\n"
                        "frostline agent --join tcp://10.0.0.1:5570 --key /r/hosts.key --name h2");
    hosts->host[1].absent = true;
    assert_string_equal(
        fl_host_start_awaited(hosts, "frostline", "it's $(my) run", FL_AWAITED_JOIN_MS, text),
        "waits for 1 other host, 600 s at most: h2 (10.0.0.3); there, this command starts "
        "the agent:\nfrostline agent --join tcp://10.0.0.1:5570 --key 'it'\\''s $(my) "
        "run'/hosts.key --name h2");
    assert_non_null(strstr(
        fl_host_start_awaited(hosts, "'/my tools/frostline'", "/r", FL_AWAITED_JOIN_MS, text),
        "\n'/my tools/frostline' agent --join tcp://10.0.0.1:5570 --key /r/hosts.key --name h2"));
    /* A second agent by the same command would be refused. */
    assert_string_equal(
        fl_host_start_awaited(hosts, NULL, "/r", FL_AWAITED_JOIN_MS, text),
        "waits for 1 other host, whose agents have been measured, 600 s at most: h2 (10.0.0.3)");
    hosts->again = true;
    assert_string_equal(fl_host_start_awaited(hosts, "frostline", "/r", FL_AWAITED_AGAIN_MS, text),
                        "waits for 1 other host to join again, 20 s at most: h2 (10.0.0.3)");
    free(hosts);
}

/* The head of a pod has its keys from a Secret, which is mounted in every pod. Would catch: the run
 * directory of the head, which no other pod has. */
static void test_awaited__names_a_key_that_the_host_has(void **state)
{
    (void)state;
    fl_hosts *hosts = make_hosts(2);
    char text[FL_HOST_AWAITED_TEXT];
    snprintf(hosts->key_path, sizeof hosts->key_path, "/etc/frostline/keys/head.key");
    fl_host_start_awaited(hosts, "frostline", "/r", FL_AWAITED_JOIN_MS, text);
    assert_non_null(strstr(text, " --key /r/hosts.key --name h1"));
    hosts->apart = true;
    fl_host_start_awaited(hosts, "frostline", "/r", FL_AWAITED_JOIN_MS, text);
    assert_non_null(strstr(text, " --key /etc/frostline/keys/hosts.key --name h1"));
    hosts->key_path[0] = '\0';
    fl_host_start_awaited(hosts, "frostline", "/r", FL_AWAITED_JOIN_MS, text);
    assert_non_null(strstr(text, " --key /r/hosts.key --name h1"));
    free(hosts);
}

/* Would catch: a command that is cut, because there are many hosts. */
static void test_awaited__of_many_hosts_one_command_serves_all(void **state)
{
    (void)state;
    fl_hosts *hosts = make_hosts(FL_MAX_WORKERS);
    char text[FL_HOST_AWAITED_TEXT];
    fl_host_start_awaited(hosts, "frostline", "/r", FL_AWAITED_JOIN_MS, text);
    const char *line = strchr(text, '\n');
    assert_non_null(line);
    assert_string_equal(line, "\nfrostline agent --join tcp://10.0.0.1:5570 --key /r/hosts.key");
    assert_non_null(strstr(text, "with --name NAME where the hostname is another one:\n"));
    free(hosts);
}

/* Would catch: a stop that waits once more for hosts that the run has waited for in vain. */
static void test_awaited__a_dead_host_is_not_awaited_twice(void **state)
{
    (void)state;
    assert_int_equal(fl_hosts_dismiss_ms(0), 2000);
    assert_int_equal(fl_hosts_dismiss_ms(2000), 2000);
    assert_int_equal(fl_hosts_dismiss_ms(3500), 500);
    assert_int_equal(fl_hosts_dismiss_ms(4000), 0);
    assert_int_equal(fl_hosts_dismiss_ms(20000), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_awaited__names_the_hosts),
        cmocka_unit_test(test_awaited__is_told_now_and_then),
        cmocka_unit_test(test_awaited__has_the_command_and_the_time),
        cmocka_unit_test(test_awaited__names_a_key_that_the_host_has),
        cmocka_unit_test(test_awaited__of_many_hosts_one_command_serves_all),
        cmocka_unit_test(test_awaited__a_dead_host_is_not_awaited_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
