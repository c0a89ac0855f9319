/* The record of a wait for hosts. Would catch: a request to stop that outlasts its wait, and a
 * record that leads a client astray. */
#include "control/agent/join/wait_record.h"
#include "support/folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { LIMIT_MS = 600000 };

typedef struct place {
    char dir[FOLDER_SIZE];
    int fd;
    fl_hosts hosts;
    fl_wait_record record;
} place;

static int make_place(void **state)
{
    place *p = calloc(1, sizeof *p);
    assert_non_null(p);
    make_folder(p->dir);
    p->fd = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(p->fd >= 0);
    p->hosts.n = 3;
    for (int i = 0; i < 3; i++) {
        snprintf(p->hosts.host[i].name, sizeof p->hosts.host[i].name, "%c", 'a' + i);
        snprintf(p->hosts.host[i].address, sizeof p->hosts.host[i].address, "10.0.0.%d", i + 1);
    }
    *state = p;
    return 0;
}

static int remove_place(void **state)
{
    place *p = *state;
    close(p->fd);
    remove_folder(p->dir);
    free(p);
    return 0;
}

static void note(place *p, bool b, bool c)
{
    const bool awaited[FL_MAX_WORKERS] = {false, b, c};
    fl_wait_record_note(&p->record, p->fd, &p->hosts, awaited, LIMIT_MS);
}

static void expect(const place *p, const char *begins)
{
    char text[FL_WAIT_TEXT];
    fl_wait_record_text(p->dir, text);
    if (strncmp(text, begins, strlen(begins)) != 0 || (begins[0] == '\0' && text[0] != '\0')) {
        fail_msg("said: %s", text);
    }
}

static void test_wait_record__names_the_hosts_that_are_missing(void **state)
{
    place *p = *state;
    note(p, false, false);
    expect(p, "");
    note(p, true, true);
    expect(p, "waits for hosts b (10.0.0.2), c (10.0.0.3) to join, for ");
    note(p, false, true);
    expect(p, "waits for host c (10.0.0.3) to join, for ");
    note(p, false, false);
    expect(p, "");
    p->hosts.again = true;
    note(p, true, false);
    expect(p, "waits for host b (10.0.0.2) to join again, for ");
}

static void test_wait_record__a_request_ends_with_its_wait(void **state)
{
    place *p = *state;
    char text[FL_WAIT_TEXT];
    assert_false(fl_wait_record_ask_stop(p->dir));
    note(p, true, true);
    assert_false(fl_wait_record_is_stopped(p->fd));
    assert_true(fl_wait_record_ask_stop(p->dir));
    assert_true(fl_wait_record_is_stopped(p->fd));
    assert_true(fl_wait_record_ask_stop(p->dir));
    assert_non_null(strstr(fl_wait_record_text(p->dir, text), "asked to stop"));
    note(p, false, true);
    assert_true(fl_wait_record_is_stopped(p->fd));
    note(p, false, false);
    assert_false(fl_wait_record_is_stopped(p->fd));
    assert_false(fl_wait_record_ask_stop(p->dir));
    expect(p, "");
}

static void write_file(const place *p, const char *text)
{
    char path[FOLDER_SIZE + 16];
    snprintf(path, sizeof path, "%s/" FL_WAIT_FILE, p->dir);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void test_wait_record__another_file_says_nothing(void **state)
{
    static const char *const wrong[] = {"",
                                        "since\n",
                                        "since 7, 8 s at most, 0: b",
                                        "since 7, x s at most, 0: b\n",
                                        "\x01\x02\n",
                                        "since -99999999999999999999, 8 s at most, 0: b\n",
                                        "since 7, -8 s at most, 0: b\n"};
    const place *p = *state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_file(p, wrong[i]);
        expect(p, "");
    }
    write_file(p, "since 7, 8 s at most, 0: \x1b[2Jb\n");
    expect(p, "waits for host ?[2Jb to join, for 8 s, 0 s more at most");
    expect(&(place){.dir = "/nowhere"}, "");
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, make_place, remove_place)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_wait_record__names_the_hosts_that_are_missing),
        TEST(test_wait_record__a_request_ends_with_its_wait),
        TEST(test_wait_record__another_file_says_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
