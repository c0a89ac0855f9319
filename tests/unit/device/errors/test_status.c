/* Status codes and their messages. Would catch: a code without a text, a message that is built from
 * itself, and one that overruns its buffer. */
#include "device/errors/io_status.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <frostline/status.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void test_status__every_code_has_a_text(void **state)
{
    (void)state;
#define CHECK(name, value, text) assert_string_equal(fl_status_text(name), text);
    FL_STATUS_MAP(CHECK)
#undef CHECK
    assert_string_equal(fl_status_text((fl_status)-99), "unknown status");
}

/* Would catch: a code of the public interface that gets another number, so that a program which was
 * built before takes one failure for another. New codes are added at the end. */
static void test_status__numbers_never_change(void **state)
{
    (void)state;
    static const int numbers[] = {FL_OK,       FL_EINVAL,  FL_ENOMEM,    FL_EBUDGET,   FL_EIO,
                                  FL_EFORMAT,  FL_ENOTSUP, FL_EPEER,     FL_EDEADLINE, FL_ESTALE,
                                  FL_ESTOPPED, FL_EFAILED, FL_EINTERNAL, FL_EBUSY};
    int n = 0;
#define COUNT(name, value, text) n++;
    FL_STATUS_MAP(COUNT)
#undef COUNT
    assert_int_equal(n, sizeof numbers / sizeof *numbers);
    for (int i = 0; i < n; i++) {
        assert_int_equal(numbers[i], -i);
    }
}

/* Would catch: a run without a free descriptor that a scheduler takes for one with a wrong job. */
static void test_status__a_limit_that_is_reached_is_no_bad_input(void **state)
{
    (void)state;
    static const int passing[] = {ENOSPC, ENOMEM, EMFILE, ENFILE};
    static const int lasting[] = {EACCES, ENOENT, EROFS, ENAMETOOLONG};
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++) {
        assert_false(fl_status_is_bad_input(fl_io_status(passing[i])));
    }
    for (size_t i = 0; i < sizeof lasting / sizeof *lasting; i++) {
        assert_true(fl_status_is_bad_input(fl_io_status(lasting[i])));
    }
}

static void test_status__three_codes_mean_regroup(void **state)
{
    (void)state;
    int n = 0;
#define COUNT(name, value, text) n += fl_status_is_regroup(name) ? 1 : 0;
    FL_STATUS_MAP(COUNT)
#undef COUNT
    assert_int_equal(n, 3);
    assert_true(fl_status_is_regroup(FL_EPEER));
    assert_true(fl_status_is_regroup(FL_EDEADLINE));
    assert_true(fl_status_is_regroup(FL_ESTALE));
}

static void test_fail__gives_the_code_and_keeps_the_message(void **state)
{
    (void)state;
    assert_int_equal(fl_fail(FL_EIO, "cannot read %s: %d", "x", 7), FL_EIO);
    assert_string_equal(fl_errmsg(), "cannot read x: 7");
    assert_int_equal(fl_within(FL_EFORMAT, "epoch %d", 3), FL_EFORMAT);
    assert_string_equal(fl_errmsg(), "epoch 3: cannot read x: 7");
}

static void test_fail__may_quote_the_present_message(void **state)
{
    (void)state;
    assert_int_equal(fl_fail(FL_EIO, "inner"), FL_EIO);
    assert_int_equal(fl_fail(FL_EFAILED, "outer (%s)", fl_errmsg()), FL_EFAILED);
    assert_string_equal(fl_errmsg(), "outer (inner)");
}

static void test_fail__cuts_what_is_too_long(void **state)
{
    (void)state;
    enum { LONG = 40000 };
    char *text = malloc(LONG + 1);
    assert_non_null(text);
    memset(text, 'a', LONG);
    text[LONG] = '\0';
    assert_int_equal(fl_fail(FL_EINVAL, "%s", text), FL_EINVAL);
    size_t length = strlen(fl_errmsg());
    assert_true(length > 1000 && length < LONG);
    assert_int_equal(fl_within(FL_EINVAL, "%s", text), FL_EINVAL);
    assert_int_equal(fl_within(FL_EINVAL, "here"), FL_EINVAL);
    assert_int_equal(strncmp(fl_errmsg(), "here: aaa", 9), 0);
    assert_true(strlen(fl_errmsg()) < LONG);
    free(text);
}

static fl_status step(fl_status status, int *reached)
{
    FL_TRY(status);
    (*reached)++;
    return FL_OK;
}

static void test_try__returns_the_first_failure(void **state)
{
    (void)state;
    int reached = 0;
    assert_int_equal(step(FL_EPEER, &reached), FL_EPEER);
    assert_int_equal(reached, 0);
    assert_int_equal(step(FL_OK, &reached), FL_OK);
    assert_int_equal(reached, 1);
}

static void *fail_elsewhere(void *unused)
{
    (void)unused;
    fl_status status = fl_fail(FL_EIO, "of another thread");
    (void)status;
    return NULL;
}

static void test_fail__is_of_one_thread(void **state)
{
    (void)state;
    pthread_t thread;
    assert_int_equal(fl_fail(FL_EIO, "of this thread"), FL_EIO);
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(fl_errmsg(), "of this thread");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status__every_code_has_a_text),
        cmocka_unit_test(test_status__numbers_never_change),
        cmocka_unit_test(test_status__a_limit_that_is_reached_is_no_bad_input),
        cmocka_unit_test(test_status__three_codes_mean_regroup),
        cmocka_unit_test(test_fail__gives_the_code_and_keeps_the_message),
        cmocka_unit_test(test_fail__may_quote_the_present_message),
        cmocka_unit_test(test_fail__cuts_what_is_too_long),
        cmocka_unit_test(test_try__returns_the_first_failure),
        cmocka_unit_test(test_fail__is_of_one_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
