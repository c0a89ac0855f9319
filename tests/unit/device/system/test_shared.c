/* Memory that another process looks into. */
#include "device/system/alloc.h"
#include "device/system/shared.h"
#include "support/ranks/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 5000, FROM = 1234 };

static int *make(fl_shared **shared)
{
    assert_int_equal(fl_shared_create(N * sizeof(int), shared), FL_OK);
    int *data = fl_shared_data(*shared);
    for (int i = 0; i < N; i++) {
        assert_int_equal(data[i], 0);
        data[i] = i;
    }
    return data;
}

/* In a child: what it sees of the parent's memory. Its exit code tells what was wrong. */
static int look(const fl_shared_key *key, int *tell, const int *hear)
{
    fl_shared_view view;
    char gone;
    if (fl_shared_view_open(getppid(), key, FROM * sizeof(int), (N - FROM) * sizeof(int), &view) !=
        FL_OK) {
        return 1;
    }
    const int *seen = view.data;
    for (int i = 0; i < N - FROM; i++) {
        if (seen[i] != FROM + i) {
            return 2;
        }
    }
    if (write(*tell, "s", 1) != 1 || read(*hear, &gone, 1) != 1) {
        return 3;
    }
    for (int i = 0; i < N - FROM; i++) {
        if (seen[i] != 0) {
            return 4;
        }
    }
    fl_shared_view_close(&view);
    return view.data == NULL ? 0 : 5;
}

/* Catches a view of the wrong place, and one whose reader is killed when the owner has gone on. */
static void test_shared__is_seen_by_another_process_until_it_is_given_back(void **state)
{
    (void)state;
    fl_shared *shared = NULL;
    int up[2], down[2], status = 0;
    char said;
    make(&shared);
    fl_shared_key key = fl_shared_key_of(shared);
    assert_int_equal(pipe(up), 0);
    assert_int_equal(pipe(down), 0);
    pid_t child = fork();
    if (child == 0) {
        _exit(look(&key, &up[1], &down[0]));
    }
    close(up[1]);
    assert_int_equal(read(up[0], &said, 1), 1);
    fl_shared_destroy(&shared);
    assert_null(shared);
    assert_int_equal(write(down[1], "g", 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    close(up[0]);
    close(down[0]);
    close(down[1]);
}

/* Descriptor numbers are reused: the file behind the number must be the announced one. */
static void test_shared__refuses_another_file_and_more_than_there_is(void **state)
{
    (void)state;
    fl_shared *shared = NULL;
    fl_shared_view view = {0};
    make(&shared);
    fl_shared_key key = fl_shared_key_of(shared), other = {key.fd, key.id + 1}, none = {-1, 1};
    size_t size = N * sizeof(int);
    assert_int_equal(fl_shared_view_open(getpid(), &other, 0, size, &view), FL_EIO);
    assert_int_equal(fl_shared_view_open(getpid(), &none, 0, size, &view), FL_EIO);
    assert_int_equal(fl_shared_view_open(getpid(), &key, size, size, &view), FL_EIO);
    assert_null(view.data);
    assert_int_equal(fl_shared_view_open(getpid(), &key, 0, size, &view), FL_OK);
    assert_int_equal(((const int *)view.data)[N - 1], N - 1);
    fl_shared_view_close(&view);
    fl_shared_destroy(&shared);
}

static void test_shared__leaves_no_descriptor_behind(void **state)
{
    (void)state;
    fl_shared *shared = NULL;
    int before = count_descriptors();
    for (int i = 0; i < 10; i++) {
        make(&shared);
        fl_shared_destroy(&shared);
        fl_alloc_fail_at(1);
        assert_int_equal(fl_shared_create(1, &shared), FL_ENOMEM);
        assert_null(shared);
    }
    assert_int_equal(count_descriptors(), before);
    fl_shared_destroy(&shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared__is_seen_by_another_process_until_it_is_given_back),
        cmocka_unit_test(test_shared__refuses_another_file_and_more_than_there_is),
        cmocka_unit_test(test_shared__leaves_no_descriptor_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
