/* The disk tier on a file system of its own, so small that it really fills: a mount that only this
 * process sees. Where no such mount can be made, the tests are skipped. */
#include "cache/cache.h"
#include "cache/pool.h"
#include "support/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_KEYS = 400, VALUE = 2048, MIB = 1 << 20 };

static const uint64_t prints[] = {0, 11};
static const fl_cache_prints all = {.n_levels = 2, .print = prints};
static char folder[FOLDER_SIZE];
static bool mounted;

/* ---- a file system of 4 MiB ---- */

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) {
        close(fd);
    }
    return written;
}

static bool mount_small(void)
{
    char user[64], group[64];
    snprintf(user, sizeof user, "0 %u 1", (unsigned)geteuid());
    snprintf(group, sizeof group, "0 %u 1", (unsigned)getegid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 || !write_text("/proc/self/setgroups", "deny") ||
        !write_text("/proc/self/uid_map", user) || !write_text("/proc/self/gid_map", group)) {
        return false;
    }
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("frostline-test", folder, "tmpfs", 0, "size=4m") == 0;
}

static int64_t free_bytes(void)
{
    struct statvfs s;
    assert_int_equal(statvfs(folder, &s), 0);
    return (int64_t)s.f_bavail * (int64_t)s.f_frsize;
}

/* ---- a store there ---- */

static int64_t next_use(const void *context, int64_t key, int64_t now)
{
    (void)context;
    return now + key;
}

static int64_t key_at(const void *context, int64_t time)
{
    (void)context;
    return time % N_KEYS;
}

static fl_status create(int64_t disk_bytes, fl_cache **out)
{
    fl_cache_options o = {.n_keys = N_KEYS,
                          .unit_elements = VALUE,
                          .value_elements = VALUE,
                          .dtype = FL_F32,
                          .memory_bytes = 256 << 10,
                          .disk_bytes = disk_bytes,
                          .path = folder,
                          .future = {.next_use = next_use, .key_at = key_at}};
    return fl_cache_create(&o, out);
}

/* Values of one run are not those of another: `run` is in every element. */
static bool put(fl_cache *c, int run, int64_t key)
{
    static float values[VALUE];
    for (int64_t i = 0; i < VALUE; i++) {
        values[i] = (float)(run * 100000 + key * 7 + i);
    }
    return fl_cache_put(c, key, 1, prints[1], values, VALUE, 0);
}

/* How many of the keys are there; each must be right. */
static int count(fl_cache *c, int run)
{
    static float out[N_KEYS][VALUE];
    fl_cache_want wants[N_KEYS];
    int n = 0;
    for (int64_t key = 0; key < N_KEYS; key++) {
        wants[key] = (fl_cache_want){.key = key, .out = out[key], .max_elements = VALUE};
    }
    fl_cache_get_all(c, &all, wants, N_KEYS);
    for (int64_t key = 0; key < N_KEYS; key++) {
        for (int64_t i = 0; wants[key].found != FL_CACHE_MISS && i < VALUE; i++) {
            assert_true(out[key][i] == (float)(run * 100000 + key * 7 + i));
        }
        n += wants[key].found != FL_CACHE_MISS;
    }
    return n;
}

static int put_all(fl_cache *c, int run)
{
    int n = 0;
    for (int64_t key = 0; key < N_KEYS; key++) {
        n += put(c, run, key);
    }
    return n;
}

static fl_cache_stats stats_of(const fl_cache *c)
{
    fl_cache_stats s;
    fl_cache_get_stats(c, &s);
    return s;
}

/* ---- the tests ---- */

static void need_mount(void)
{
    if (!mounted) {
        print_message("skipped: this process may not mount a file system (%s)\n", strerror(errno));
        skip();
    }
}

/* What the disk cannot hold is refused at the start, with the numbers, and nothing is left of it.
 */
static void test_cache_disk__too_large_is_refused_with_the_numbers(void **state)
{
    (void)state;
    need_mount();
    fl_cache *c = NULL;
    int64_t before = free_bytes();
    assert_int_equal(create(8 * MIB, &c), FL_OK); /* more than all values need: what they need */
    fl_cache_destroy(&c);
    int filler = open(folder, O_TMPFILE | O_RDWR, 0600);
    assert_true(filler >= 0);
    assert_int_equal(posix_fallocate(filler, 0, 2 * MIB), 0);
    assert_int_equal(create(8 * MIB, &c), FL_EIO);
    assert_null(c);
    assert_non_null(strstr(fl_errmsg(), "cache.disk"));
    assert_non_null(strstr(fl_errmsg(), folder));
    close(filler);
    assert_int_equal(free_bytes(), before);
}

/* A file system that gives away what it promised (as one that copies on write may): others fill it
 * to the last byte, and writes fail in the middle. */
static void test_cache_disk__one_that_fills_later_keeps_less(void **state)
{
    (void)state;
    need_mount();
    fl_cache *c = NULL;
    assert_int_equal(create(3 * MIB, &c), FL_OK);
    assert_int_equal(ftruncate(c->fd, 0), 0);
    int filler = open(folder, O_TMPFILE | O_RDWR, 0600);
    assert_true(filler >= 0);
    assert_int_equal(posix_fallocate(filler, 0, free_bytes() - 300 * 1024), 0);
    int kept = put_all(c, 1), found = count(c, 1);
    print_message("%d of %d kept, %lld disk errors\n", kept, N_KEYS,
                  (long long)stats_of(c).n_disk_errors);
    assert_true(kept > 0 && kept < N_KEYS);
    assert_true(found > 0 && found <= kept);
    assert_true(stats_of(c).n_disk_errors > 0);
    assert_int_equal(stats_of(c).n_damaged, 0);
    (void)put_all(c, 1); /* nothing more is tried there, and what lies there stays right */
    assert_int_equal(stats_of(c).n_disk_errors, 1);
    assert_true(count(c, 1) > 0);
    close(filler);
    fl_cache_destroy(&c);
}

/* Another run on the same path: a child that fills its store, reports that, and stays. */
static pid_t start_run(int run, int64_t disk_bytes, int *n_kept)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        fl_cache *c = NULL;
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* should the test end before it */
        int n = create(disk_bytes, &c) == FL_OK ? put_all(c, run) : -1;
        n = n > 0 && count(c, run) == n ? n : -1;
        _exit(write(ready[1], &n, sizeof n) == sizeof n ? pause() : 1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], n_kept, sizeof *n_kept), sizeof *n_kept);
    close(ready[0]);
    return pid;
}

static void end(pid_t pid)
{
    int status;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

/* Both have the same keys and fingerprints, and other values: neither sees the other's. */
static void test_cache_disk__two_runs_share_a_path_and_nothing_else(void **state)
{
    (void)state;
    need_mount();
    int n_other = 0;
    fl_cache *c = NULL;
    pid_t other = start_run(2, MIB, &n_other);
    assert_true(n_other > 100);
    assert_int_equal(create(MIB, &c), FL_OK);
    assert_int_equal(count(c, 1), 0);
    int n_mine = put_all(c, 1);
    assert_true(n_mine > 100);
    assert_int_equal(count(c, 1), n_mine);
    end(other);
    assert_int_equal(count(c, 1), n_mine);
    fl_cache_destroy(&c);
}

/* The second of two runs that do not fit is refused; when the first was killed, nothing of it
 * stands in the way of the next. */
static void test_cache_disk__a_killed_run_leaves_its_room(void **state)
{
    (void)state;
    need_mount();
    int64_t before = free_bytes();
    int n = 0;
    fl_cache *c = NULL;
    pid_t first = start_run(3, 3 * MIB, &n);
    assert_true(n > 300);
    assert_int_equal(create(3 * MIB, &c), FL_EIO);
    assert_non_null(strstr(fl_errmsg(), "cache.disk"));
    end(first);
    assert_int_equal(free_bytes(), before);
    assert_int_equal(create(3 * MIB, &c), FL_OK);
    assert_int_equal(count(c, 4), 0);
    assert_int_equal(put_all(c, 4), N_KEYS);
    assert_int_equal(count(c, 4), N_KEYS);
    fl_cache_destroy(&c);
    assert_int_equal(free_bytes(), before);
}

static int set_up(void **state)
{
    (void)state;
    make_folder(folder);
    mounted = mount_small();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (mounted && umount2(folder, MNT_DETACH) != 0) {
        return -1;
    }
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_disk__too_large_is_refused_with_the_numbers),
        cmocka_unit_test(test_cache_disk__one_that_fills_later_keeps_less),
        cmocka_unit_test(test_cache_disk__two_runs_share_a_path_and_nothing_else),
        cmocka_unit_test(test_cache_disk__a_killed_run_leaves_its_room),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
