/* The cache between processes: writers that are killed in the middle, readers meanwhile, and what
 * is left when all are gone. */
#include "cache/cache.h"
#include "device/random/random.h"
#include "device/system/clock.h"
#include "support/folder.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_KEYS = 200, UNIT = 700, MAX_VALUE = 2000, N_KILLS = 500 };

static const uint64_t prints[] = {0, 11, 22};
static const fl_cache_prints all = {.n_levels = 3, .print = prints};

static int64_t next_use(const void *context, int64_t key, int64_t now)
{
    (void)context;
    return now + (int64_t)(fl_mix64((uint64_t)key, (uint64_t)now / N_KEYS) % N_KEYS);
}

static int64_t key_at(const void *context, int64_t time)
{
    (void)context;
    return (int64_t)(fl_mix64(7, (uint64_t)time) % N_KEYS);
}

static fl_cache *create(int64_t memory_bytes, int64_t disk_bytes)
{
    fl_cache *c = NULL;
    fl_cache_options o = {.n_keys = N_KEYS,
                          .unit_elements = UNIT,
                          .value_elements = MAX_VALUE,
                          .dtype = FL_F32,
                          .memory_bytes = memory_bytes,
                          .disk_bytes = disk_bytes,
                          .path = temporary(),
                          .future = {.next_use = next_use, .key_at = key_at}};
    assert_int_equal(fl_cache_create(&o, &c), FL_OK);
    return c;
}

/* The first element says which of many values of its key this is; all others follow from it. */
static void fill(float *values, int64_t key, int level, uint64_t which)
{
    values[0] = (float)(which % 1000);
    for (int64_t i = 1; i < MAX_VALUE; i++) {
        values[i] = (float)((key * 31 + level * 7 + (int64_t)(which % 1000) + i) % 1009);
    }
}

static void check_value(const float *values, int64_t key, int level, int64_t n)
{
    static float wanted[MAX_VALUE];
    fill(wanted, key, level, (uint64_t)values[0]);
    assert_int_equal(n, MAX_VALUE - key % 3 * UNIT);
    assert_memory_equal(values, wanted, (size_t)n * sizeof *values);
}

static _Noreturn void write_for_ever(fl_cache *c, uint64_t seed)
{
    static float values[MAX_VALUE];
    for (uint64_t i = 0;; i++) {
        uint64_t draw = fl_mix64(seed, i);
        int64_t key = (int64_t)(draw % N_KEYS);
        int level = 1 + (int)(draw >> 20 & 1);
        fill(values, key, level, draw >> 32);
        (void)fl_cache_put(c, key, level, prints[level], values, MAX_VALUE - key % 3 * UNIT,
                           (int64_t)i);
    }
}

static int read_some(fl_cache *c, uint64_t seed)
{
    static float out[MAX_VALUE];
    int hits = 0;
    for (uint64_t i = 0; i < 20; i++) {
        int64_t key = (int64_t)(fl_mix64(seed, i) % N_KEYS), n = 0;
        int level = 0;
        if (fl_cache_get(c, &all, key, out, MAX_VALUE, &level, &n) != FL_CACHE_MISS) {
            check_value(out, key, level, n);
            hits++;
        }
    }
    return hits;
}

static fl_cache_stats stats_of(const fl_cache *c)
{
    fl_cache_stats s;
    fl_cache_get_stats(c, &s);
    return s;
}

static pid_t start_writer(fl_cache *c, uint64_t seed)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        write_for_ever(c, seed);
    }
    return pid;
}

static void end(pid_t pid)
{
    int status;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

/* Read until the writers have put that many more, and a moment of no particular length. */
static int64_t read_until(fl_cache *c, int64_t n_put, uint64_t seed)
{
    int64_t hits = 0, begun = fl_now_us();
    uint64_t i = 0;
    while (stats_of(c).n_put < n_put && fl_now_us() - begun < 10000000) {
        hits += read_some(c, fl_mix64(seed, i++));
    }
    assert_true(stats_of(c).n_put >= n_put);
    for (volatile uint64_t spin = seed % 20000; spin > 0; spin--) {
    }
    return hits;
}

static void kill_writers(fl_cache *c, int n_kills)
{
    uint64_t seed = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    int64_t hits = 0;
    for (int i = 0; i < n_kills; i++) {
        uint64_t draw = fl_mix64(seed, (uint64_t)i);
        pid_t pid = start_writer(c, draw);
        hits += read_until(c, stats_of(c).n_put + (int64_t)(draw % 7), draw);
        end(pid);
        /* Whatever it left, the next one writes and reads. */
        static float values[MAX_VALUE];
        int64_t key = (int64_t)(draw % N_KEYS);
        fill(values, key, 1, draw);
        (void)fl_cache_put(c, key, 1, prints[1], values, MAX_VALUE - key % 3 * UNIT, 0);
        hits += read_some(c, draw);
    }
    fl_cache_stats s = stats_of(c);
    print_message("%d kills, %lld in the middle of a value; %lld hits, all right\n", n_kills,
                  (long long)s.n_recovered, (long long)hits);
    assert_true(s.n_recovered > 0);
    assert_int_equal(s.n_damaged, 0);
    assert_true(hits > n_kills);
}

static void test_cache__a_killed_writer_costs_its_entry_only(void **state)
{
    (void)state;
    fl_cache *c = create(1 << 20, 0); /* not all fit: evictions are under way, too */
    kill_writers(c, N_KILLS);
    fl_cache_destroy(&c);
}

static void test_cache__a_killed_writer_costs_its_entry_on_disk(void **state)
{
    (void)state;
    fl_cache *c = create(100 << 10, 1 << 20);
    kill_writers(c, N_KILLS / 5);
    fl_cache_destroy(&c);
}

/* A value is there whole or not at all, also while others write the same key over and over. */
static void test_cache__readers_never_see_half_a_value(void **state)
{
    (void)state;
    fl_cache *c = create(1 << 20, 0);
    pid_t writer[2] = {start_writer(c, 1), start_writer(c, 2)};
    int64_t hits = read_until(c, 20000, 5);
    end(writer[0]);
    end(writer[1]);
    assert_true(hits > 0);
    assert_int_equal(stats_of(c).n_damaged, 0);
    fl_cache_destroy(&c);
}

/* No process waits for a stopped process that holds the lock. */
static void test_cache__a_stopped_writer_stops_nobody(void **state)
{
    (void)state;
    fl_cache *c = create(1 << 20, 0);
    static float values[MAX_VALUE];
    pid_t pid = start_writer(c, 3);
    for (int i = 0; i < 5; i++) {
        int status;
        (void)read_until(c, stats_of(c).n_put + 3, (uint64_t)i);
        assert_int_equal(kill(pid, SIGSTOP), 0);
        assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
        fill(values, 9, 1, 5);
        (void)fl_cache_put(c, 9, 1, prints[1], values, MAX_VALUE, 0); /* kept or not: it returns */
        (void)read_some(c, 11);
        assert_int_equal(kill(pid, SIGCONT), 0);
    }
    end(pid);
    fl_cache_destroy(&c);
}

static int n_files(const char *folder)
{
    char command[200];
    snprintf(command, sizeof command, "ls -A %s | wc -l", folder);
    FILE *p = popen(command, "r");
    int n = -1;
    assert_non_null(p);
    assert_int_equal(fscanf(p, "%d", &n), 1);
    pclose(p);
    return n;
}

/* Two runs on one path, and one that was killed: they never meet, and nothing stays. */
static void test_cache__leaves_nothing_behind(void **state)
{
    (void)state;
    char folder[FOLDER_SIZE];
    make_folder(folder);
    int shm_before = n_files("/dev/shm");
    fl_cache_options o = {.n_keys = N_KEYS,
                          .unit_elements = UNIT,
                          .value_elements = MAX_VALUE,
                          .dtype = FL_F32,
                          .memory_bytes = 100 << 10,
                          .disk_bytes = 1 << 20,
                          .path = folder,
                          .future = {.next_use = next_use, .key_at = key_at}};
    fl_cache *mine = NULL;
    assert_int_equal(fl_cache_create(&o, &mine), FL_OK);
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        fl_cache *other = NULL;
        if (fl_cache_create(&o, &other) == FL_OK && write(ready[1], "x", 1) == 1) {
            write_for_ever(other, 4);
        }
        _exit(1);
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    static float values[MAX_VALUE];
    for (int64_t key = 0; key < N_KEYS; key++) {
        fill(values, key, 2, 77);
        (void)fl_cache_put(mine, key, 2, prints[2], values, MAX_VALUE - key % 3 * UNIT, 0);
    }
    assert_true(read_some(mine, 1) > 0);
    end(pid);
    assert_true(read_some(mine, 2) > 0);
    assert_int_equal(stats_of(mine).n_damaged, 0);
    assert_int_equal(n_files(folder), 0);
    assert_int_equal(n_files("/dev/shm"), shm_before);
    fl_cache_destroy(&mine);
    assert_int_equal(rmdir(folder), 0);
    close(ready[0]);
    close(ready[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache__a_killed_writer_costs_its_entry_only),
        cmocka_unit_test(test_cache__a_killed_writer_costs_its_entry_on_disk),
        cmocka_unit_test(test_cache__readers_never_see_half_a_value),
        cmocka_unit_test(test_cache__a_stopped_writer_stops_nobody),
        cmocka_unit_test(test_cache__leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
