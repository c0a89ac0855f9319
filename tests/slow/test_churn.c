/* More than two hundred generations in one run: nothing may pile up. Every worker looks at itself
 * when a generation is about to be opened, at which moment the one before the last is closed and
 * nothing else is under way; worker 0 looks at the controller as well. Plans come in a fixed cycle,
 * so that each look is compared with looks in the same place of the cycle. */
#include "support/lines.h"
#include "support/runs/scenario.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    N_SAMPLES = 203,
    INTERVAL = 2,
    GENERATIONS = 240,
    WORKERS = 3,
    AT_CONTROLLER = WORKERS, /* where the looks at the controller are kept */
    CYCLE = 6,
    HALF = GENERATIONS / 2,
};

static const double TOLERANCE = 0.01;

/* A sanitizer keeps what was freed for a while: its memory says nothing. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool keeps_freed = true;
#else
static const bool keeps_freed = false;
#endif

/* Up and down, freezing and thawing, with workers that come and go. */
static const fl_script_entry cycle[CYCLE] = {
    {.f = 0, .k = 3, .r = 1, .m = 3}, {.f = 1, .k = 1, .r = 3, .m = 2},
    {.f = 2, .k = 2, .r = 1, .m = 4}, {.f = 2, .k = 1, .r = 1, .m = 2},
    {.f = 1, .k = 1, .r = 2, .m = 1}, {.f = 0, .k = 2, .r = 1, .m = 2},
};

/* What a process holds. */
typedef struct look {
    long rss_kib; /* resident, without what is shared: the flight recorder's rings fill with time */
    long anon_kib; /* of it, what is no page of a file */
    int descriptors, listening, threads, named_maps, shared_maps;
} look;

static look (*looks)[GENERATIONS]; /* [WORKERS + 1], in shared memory */

/* ---- in the workers ---- */

static long status_field(pid_t pid, const char *name)
{
    char path[64], line[256];
    long value = -1;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    while (file != NULL && value < 0 && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0) {
            value = strtol(line + strlen(name), NULL, 10);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return value;
}

/* Descriptors of a process; of this one also those that listen. The one that lists them is left
 * out. */
static void count_descriptors(pid_t pid, look *l)
{
    char path[64];
    bool own = pid == getpid();
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);
    struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        int fd = atoi(entry->d_name), listens = 0;
        socklen_t size = sizeof listens;
        if (entry->d_name[0] == '.' || (own && fd == dirfd(folder))) {
            continue;
        }
        l->descriptors++;
        if (own && getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0) {
            l->listening += listens;
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

/* What is mapped by name: files, and the memory that workers look into. */
static void count_maps(pid_t pid, look *l)
{
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        l->named_maps += strchr(line, '/') != NULL;
        l->shared_maps += strstr(line, "/dev/shm/") != NULL;
    }
    if (file != NULL) {
        fclose(file);
    }
}

static void look_at(pid_t pid, look *l)
{
    *l = (look){0};
    count_descriptors(pid, l);
    count_maps(pid, l);
    l->threads = (int)status_field(pid, "Threads:");
    l->anon_kib = status_field(pid, "RssAnon:");
    l->rss_kib = l->anon_kib + status_field(pid, "RssFile:");
}

static void look_around(const char *point, fl_worker_state *w)
{
    if (strcmp(point, "prepare") == 0) {
        int i = (int)w->next->plan.generation - 2;
        look_at(getpid(), &looks[w->rank][i]);
        if (w->rank == 0) {
            look_at(controller_here(), &looks[AT_CONTROLLER][i]);
        }
    }
}

/* ---- the run ---- */

static double mean(int who, int from, int n, bool anon)
{
    double sum = 0.0;
    for (int i = from; i < from + n; i++) {
        const look *l = &looks[who][i];
        sum += (double)(anon ? l->anon_kib : l->rss_kib);
    }
    return sum / n;
}

static const char *name_of(int who)
{
    static const char *const names[] = {"worker 0", "worker 1", "worker 2", "controller"};
    return names[who];
}

static void check_flat(int who)
{
    /* Pages of the program come in when a rarely taken way through it is taken for the first time,
     * however late: what counts is how all else grows. Files that stay mapped are counted below. */
    double rss = mean(who, HALF, HALF / 2, false);
    double before = mean(who, HALF, HALF / 2, true);
    double after = mean(who, HALF + HALF / 2, HALF / 2, true);
    const look *last = &looks[who][GENERATIONS - 1];
    print_message("%s: %.0f, then %.0f of %.0f KiB; %d descriptors, %d threads\n", name_of(who),
                  before, after, rss, last->descriptors, last->threads);
    for (int i = HALF + CYCLE; i < GENERATIONS; i++) {
        const look *now = &looks[who][i], *then = &looks[who][HALF + i % CYCLE];
        if (now->rss_kib <= 0 || now->descriptors != then->descriptors ||
            now->listening != then->listening || now->threads != then->threads ||
            now->named_maps != then->named_maps || now->shared_maps != 0) {
            fail_msg("%s: generation %d: %d descriptors (were %d), %d listen (%d), %d threads "
                     "(%d), %d maps with a name (%d), %d with one others could open",
                     name_of(who), i + 2, now->descriptors, then->descriptors, now->listening,
                     then->listening, now->threads, then->threads, now->named_maps,
                     then->named_maps, now->shared_maps);
        }
    }
    if (!keeps_freed && after - before > TOLERANCE * rss) {
        fail_msg("%s grows by %.0f KiB of %.0f", name_of(who), after - before, rss);
    }
}

static void test_churn__leaves_nothing_behind(void **state)
{
    (void)state;
    static fl_script_entry script[GENERATIONS];
    looks = shared_memory((WORKERS + 1) * sizeof *looks);
    for (int i = 0; i < GENERATIONS; i++) {
        script[i] = cycle[i % CYCLE];
        script[i].step = INTERVAL * (i + 1);
    }
    scenario s = {.name = "run",
                  .sets = JOB_SETS("pipe.k", "1", "autodp.r", "1", "pipe.m", "1", "devices.count",
                                   "3", "train.batch", "10", "train.epochs", "24",
                                   "train.max_steps", "484", "train.evaluate", "false"),
                  .script = script,
                  .n_script = GENERATIONS,
                  .n_samples = N_SAMPLES,
                  .dropout = 0.1f,
                  .at_point = look_around};
    scenario_run(&s);
    assert_int_equal(count_events(s.dir, "\"transition.done\"", ""), GENERATIONS);
    if (getenv("FL_TEST_SHOW") != NULL) {
        for (int i = 0; i < GENERATIONS; i++) {
            for (int who = 0; who <= WORKERS; who++) {
                const look *l = &looks[who][i];
                printf("%ld %d %d %d %d   ", l->rss_kib, l->descriptors, l->listening, l->threads,
                       l->named_maps);
            }
            printf("\n");
        }
    }
    for (int who = 0; who <= WORKERS; who++) {
        check_flat(who);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_churn__leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
