/* The keys of a run that come over standard input, and the path of those in a file. */
#include "launcher/run/hosts/key_read.h"
#include "support/folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <cmocka.h>

enum { SHORT_MS = 50, LONG_MS = 600000 };

typedef struct key_pipe {
    int out, in; /* to read, to write */
    char text[256], server[FL_CURVE_KEY];
} key_pipe;

static void open_pipe(key_pipe *p)
{
    int ends[2];
    char server_secret[FL_CURVE_KEY], agent[FL_CURVE_KEY], secret[FL_CURVE_KEY];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(zmq_curve_keypair(p->server, server_secret), 0);
    assert_int_equal(zmq_curve_keypair(agent, secret), 0);
    snprintf(p->text, sizeof p->text, "# head\n%s\n# agents\n%s\n", p->server, secret);
    p->out = ends[0];
    p->in = ends[1];
}

static void put(const key_pipe *p, const char *text, size_t n)
{
    assert_int_equal(write(p->in, text, n), (ssize_t)n);
}

/* ssh keeps its end open behind the keys. */
static void test_key_read__keys_are_read_without_the_end_of_the_input(void **state)
{
    (void)state;
    key_pipe p;
    fl_curve_keys keys;
    open_pipe(&p);
    put(&p, p.text, strlen(p.text));
    assert_int_equal(fl_hosts_read_key_input(p.out, LONG_MS, &keys), FL_OK);
    assert_string_equal(keys.server, p.server);
    close(p.in);
    close(p.out);
}

/* The agent waited for ever, whatever --wait said. */
static void test_key_read__the_wait_for_an_input_ends(void **state)
{
    (void)state;
    key_pipe p;
    fl_curve_keys keys;
    open_pipe(&p);
    assert_int_equal(fl_hosts_read_key_input(p.out, SHORT_MS, &keys), FL_EDEADLINE);
    assert_string_equal(fl_errmsg(), "no keys on standard input in time; --wait says how long");
    put(&p, p.text, 60); /* the second key is missing */
    assert_int_equal(fl_hosts_read_key_input(p.out, SHORT_MS, &keys), FL_EDEADLINE);
    put(&p, p.text, 60);
    close(p.in);
    assert_int_equal(fl_hosts_read_key_input(p.out, LONG_MS, &keys), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "no keys found on standard input");
    close(p.out);
}

/* Would catch: a command that names the folder into which the links of a Secret lead. */
static void test_key_read__the_path_of_a_key_keeps_its_name(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE], data[FOLDER_SIZE + 16], path[FOLDER_SIZE + 16], whole[PATH_MAX];
    char cwd[PATH_MAX], expected[PATH_MAX + 16];
    make_folder(dir);
    snprintf(data, sizeof data, "%s/..data", dir);
    assert_int_equal(mkdir(data, 0700), 0);
    snprintf(path, sizeof path, "%s/..data/head.key", dir);
    assert_int_equal(close(creat(path, 0600)), 0);
    snprintf(path, sizeof path, "%s/head.key", dir);
    assert_int_equal(symlink("..data/head.key", path), 0);
    fl_hosts_key_path(path, whole);
    assert_non_null(realpath(dir, cwd));
    snprintf(expected, sizeof expected, "%s/head.key", cwd);
    assert_string_equal(whole, expected);
    assert_non_null(getcwd(cwd, sizeof cwd));
    fl_hosts_key_path("head.key", whole);
    snprintf(expected, sizeof expected, "%s/head.key", cwd);
    assert_string_equal(whole, expected);
    fl_hosts_key_path("/no/such/folder/head.key", whole);
    assert_string_equal(whole, "/no/such/folder/head.key");
    assert_int_equal(remove_folder(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_key_read__keys_are_read_without_the_end_of_the_input),
        cmocka_unit_test(test_key_read__the_wait_for_an_input_ends),
        cmocka_unit_test(test_key_read__the_path_of_a_key_keeps_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
