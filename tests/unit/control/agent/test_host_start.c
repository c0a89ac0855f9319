/* The command that starts an agent by ssh. Would catch: a name or a path with which a shell does
 * something else than what the file of hosts says, and a command that is cut. */
#include "control/agent/join/host_start.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static fl_hosts hosts_with_name(const char *name)
{
    fl_hosts hosts = {.n = 2, .agents = "tcp://10.0.0.1:5570"};
    snprintf(hosts.host[1].name, sizeof hosts.host[1].name, "%s", name);
    return hosts;
}

static void test_host_start__quotes_every_word(void **state)
{
    (void)state;
    static char text[FL_HOST_COMMAND_MAX];
    fl_hosts hosts = hosts_with_name("b");
    assert_true(
        fl_host_start_command(&hosts, 1, "/opt/my tools/frostline", "/runs/$(one)", "/home", text));
    assert_string_equal(text, "exec '/opt/my tools/frostline' agent --join 'tcp://10.0.0.1:5570' "
                              "--key '/runs/$(one)/hosts.key' --name 'b' --until-eof");
    hosts = hosts_with_name("b'; rm -rf '");
    assert_true(fl_host_start_command(&hosts, 1, "f", "/r", NULL, text));
    assert_string_equal(text, "exec 'f' agent --join 'tcp://10.0.0.1:5570' --key '/r/hosts.key' "
                              "--name 'b'\\''; rm -rf '\\''' --until-eof");
    hosts = hosts_with_name("b");
    hosts.apart = true;
    assert_true(fl_host_start_command(&hosts, 1, "f", "/r", "/my home", text));
    assert_string_equal(text, "cd '/my home' 2>/dev/null; exec 'f' agent --join "
                              "'tcp://10.0.0.1:5570' --key '-' --name 'b' --until-eof");
}

static void test_host_start__refuses_what_does_not_fit(void **state)
{
    (void)state;
    static char text[FL_HOST_COMMAND_MAX], program[FL_HOST_COMMAND_MAX];
    fl_hosts hosts = hosts_with_name("b");
    memset(program, 'x', sizeof program - 1);
    assert_false(fl_host_start_command(&hosts, 1, program, "/r", NULL, text));
    assert_true(memchr(text, '\0', sizeof text) != NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_start__quotes_every_word),
        cmocka_unit_test(test_host_start__refuses_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
