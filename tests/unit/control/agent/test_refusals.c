/* What the log says of agents that are refused. Would catch: a line that does not say which agent
 * asked for which host, a line for each time that an agent asks, and agents without number that
 * fill the log. */
#include "control/agent/join/refusals.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { TEXT_BYTES = 1 << 14, MINUTE_US = 60000000, BEGIN_US = 1 };

typedef struct refused {
    const char *host, *address;
    int64_t at_us;
} refused;

/* What is said of them, with their number of lines. */
static int tell(fl_refusals *r, const refused *all, int n, char text[TEXT_BYTES])
{
    FILE *file = tmpfile();
    int own = dup(STDERR_FILENO), n_lines = 0;
    assert_true(file != NULL && own >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    for (int i = 0; i < n; i++) {
        fl_refusals_tell(r, all[i].host, all[i].address, "it is late", all[i].at_us);
    }
    assert_true(dup2(own, STDERR_FILENO) >= 0);
    close(own);
    rewind(file);
    text[fread(text, 1, TEXT_BYTES - 1, file)] = '\0';
    fclose(file);
    for (const char *c = text; *c != '\0'; c++) {
        n_lines += *c == '\n';
    }
    return n_lines;
}

static void test_refusals__name_host_address_and_reason(void **state)
{
    char text[TEXT_BYTES];
    const refused one = {"b", "10.0.0.7", BEGIN_US}, nameless = {"", "10.0.0.8", BEGIN_US};
    assert_int_equal(tell(*state, &one, 1, text), 1);
    assert_non_null(strstr(text, "refused an agent for host b from 10.0.0.7: it is late\n"));
    assert_int_equal(tell(*state, &nameless, 1, text), 1);
    assert_non_null(strstr(text, "refused an agent from 10.0.0.8: it is late\n"));
}

static void test_refusals__one_line_for_an_address_in_a_minute(void **state)
{
    char text[TEXT_BYTES];
    const refused all[] = {{"b", "10.0.0.7", BEGIN_US},
                           {"c", "10.0.0.7", BEGIN_US + 1},
                           {"b", "10.0.0.8", BEGIN_US + 2},
                           {"b", "10.0.0.7", BEGIN_US + MINUTE_US - 1},
                           {"b", "10.0.0.7", BEGIN_US + MINUTE_US}};
    assert_int_equal(tell(*state, all, 5, text), 3);
    assert_non_null(strstr(text, "from 10.0.0.7 (and 2 from there before): it is late\n"));
}

static void test_refusals__of_many_addresses_some_are_told(void **state)
{
    enum { MANY = 3 * FL_REFUSALS_MAX };
    static refused all[MANY];
    static char address[MANY][FL_HOST_TEXT];
    char text[TEXT_BYTES];
    for (int i = 0; i < MANY; i++) {
        snprintf(address[i], sizeof address[i], "10.0.1.%d", i);
        all[i] = (refused){"b", address[i], BEGIN_US + i};
    }
    assert_int_equal(tell(*state, all, MANY, text), FL_REFUSALS_MAX);
    all[0].at_us = BEGIN_US + 2 * (int64_t)MINUTE_US; /* their places are free again */
    all[0].address = "10.0.2.1";
    assert_int_equal(tell(*state, all, 1, text), 1);
}

static int make_refusals(void **state)
{
    *state = calloc(1, sizeof(fl_refusals));
    return *state == NULL;
}

static int free_refusals(void **state)
{
    free(*state);
    return 0;
}

#define WITH_REFUSALS(test) cmocka_unit_test_setup_teardown(test, make_refusals, free_refusals)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_REFUSALS(test_refusals__name_host_address_and_reason),
        WITH_REFUSALS(test_refusals__one_line_for_an_address_in_a_minute),
        WITH_REFUSALS(test_refusals__of_many_addresses_some_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
