/* Damaged checkpoints: whatever is cut, changed or missing in the newest one, the older one is
 * used, and the reason names the file. */
#include "launcher/run/plan/resume.h"
#include "support/data/toy.h"
#include "support/nap.h"
#include "support/runs/scenario.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_SAMPLES = 203, FLIPS = 100, CUTS = 100, FILES_MAX = 64 };

static const char *const fields[] = {
    "devices.count",    "2",       "pipe.k", "2", "autodp.r",  "1",     "train.batch",    "10",
    "train.epochs",     "400",     "pipe.m", "2", "pipe.tune", "false", "train.evaluate", "false",
    "checkpoint.every", "8 steps", NULL};

static int count_checkpoints(const fl_worker_state *w)
{
    int n = 0, fd = openat(w->c->dir_fd, FL_CHECKPOINT_FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fdopendir(fd);
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        char manifest[300];
        snprintf(manifest, sizeof manifest, "%s/" FL_CHECKPOINT_MANIFEST, e->d_name);
        n += faccessat(fd, manifest, F_OK, 0) == 0;
    }
    closedir(dir);
    return n;
}

/* Ends the run once it has two checkpoints. */
static void behead_saved(fl_worker_state *w)
{
    if (count_checkpoints(w) == 2) {
        kill_the_controller(w);
    }
}

static void take_time(const char *point, fl_worker_state *w)
{
    if (strcmp(point, "step") == 0 && w->rank == 0) {
        nap(4000);
    }
}

/* A run with two whole checkpoints, and what it takes to choose one of them again and again. */
typedef struct rig {
    scenario s;
    fl_model *model;
    fl_dataset data;
    fl_preparation p;
    fl_job job;
    int64_t newest, older;
    char folder[300];         /* of the newest */
    char file[FILES_MAX][64]; /* [n] its files */
    int n;
} rig;

static fl_resume *open_resume(const rig *r)
{
    fl_resume *resume = calloc(1, sizeof *resume);
    if (fl_resume_open(r->s.dir, resume) != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    return resume;
}

static void close_resume(fl_resume *resume)
{
    fl_resume_close(resume);
    free(resume);
}

static void find_folders(rig *r)
{
    char dir[200];
    fl_checkpoint_folder *all = NULL;
    int n = 0, n_whole = 0;
    snprintf(dir, sizeof dir, "%s/" FL_CHECKPOINT_FOLDER, r->s.dir);
    assert_int_equal(fl_checkpoint_list(dir, &all, &n), FL_OK);
    for (int i = 0; i < n; i++) {
        n_whole += all[i].whole;
        if (all[i].whole && n_whole == 1) {
            r->newest = all[i].step;
            snprintf(r->folder, sizeof r->folder, "%s/%s", dir, all[i].name);
        } else if (all[i].whole && n_whole == 2) {
            r->older = all[i].step;
        }
    }
    free(all);
    assert_true(n_whole >= 2); /* a third one may not be removed yet */
}

static void list_files(rig *r)
{
    DIR *dir = opendir(r->folder);
    assert_non_null(dir);
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (e->d_name[0] != '.') {
            assert_true(r->n < FILES_MAX);
            snprintf(r->file[r->n++], sizeof r->file[0], "%.60s", e->d_name);
        }
    }
    closedir(dir);
    assert_true(r->n > 8);
}

static void open_rig(rig *r)
{
    r->s = (scenario){.name = "damaged",
                      .sets = fields,
                      .n_samples = N_SAMPLES,
                      .at_point = take_time,
                      .at = {{.point = "step", .who = 0, .act = behead_saved}}};
    scenario_start(&r->s);
    expect_beheaded(&r->s);
    scenario_forget(&r->s);
    find_folders(r);
    list_files(r);
    must(fl_toy_dataset(N_SAMPLES, &r->data));
    must(fl_toy_model(4, 0.0f, &r->model));
    fl_resume *resume = open_resume(r);
    r->job = resume->before;
    close_resume(resume);
    r->p = (fl_preparation){.model = r->model, .dataset = &r->data, .job = &r->job};
    must(fl_preparation_check(&r->p));
}

static void close_rig(rig *r)
{
    fl_preparation_fini(&r->p);
    fl_model_destroy(&r->model);
    fl_dataset_destroy(&r->data);
}

/* Which checkpoint is used, and that the reason for it names the file; NULL: it is not damaged. */
static void expect_choice(const rig *r, int64_t step, const char *file)
{
    fl_resume *resume = open_resume(r);
    assert_int_equal(fl_resume_check_job(resume, &r->job), FL_OK);
    if (fl_resume_choose(resume, &r->p) != FL_OK) {
        fail_msg("%s: %s", file, fl_errmsg());
    }
    assert_int_equal(resume->checkpoint->step, step);
    assert_int_equal(resume->n_refused, file != NULL);
    if (file != NULL && strstr(resume->refused[0].why, file) == NULL) {
        fail_msg("%s is not named: %s", file, resume->refused[0].why);
    }
    close_resume(resume);
}

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

typedef struct content {
    char path[400];
    char *bytes;
    size_t n;
} content;

static content load(const rig *r, const char *file)
{
    content c = {.bytes = malloc(1 << 20)};
    snprintf(c.path, sizeof c.path, "%s/%s", r->folder, file);
    FILE *stream = fopen(c.path, "rb");
    assert_non_null(stream);
    c.n = fread(c.bytes, 1, 1 << 20, stream);
    fclose(stream);
    assert_true(c.n > 0 && c.n < 1 << 20);
    return c;
}

static void store(const content *c, size_t n)
{
    FILE *stream = fopen(c->path, "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(c->bytes, 1, n, stream), n);
    assert_int_equal(fclose(stream), 0);
}

static void flip_and_cut(const rig *r, uint64_t *state, bool cuts)
{
    const char *file = r->file[draw(state) % (uint64_t)r->n];
    content c = load(r, file);
    size_t at = draw(state) % c.n;
    int bit = (int)(draw(state) % 8);
    c.bytes[at] ^= (char)(cuts ? 0 : 1 << bit);
    store(&c, cuts ? at : c.n);
    expect_choice(r, r->older, file);
    c.bytes[at] ^= (char)(cuts ? 0 : 1 << bit);
    store(&c, c.n);
    free(c.bytes);
}

static void test_resume__uses_the_older_checkpoint(void **state)
{
    (void)state;
    rig *r = calloc(1, sizeof *r);
    uint64_t seed = 1;
    open_rig(r);
    expect_choice(r, r->newest, NULL);
    for (int i = 0; i < FLIPS; i++) {
        flip_and_cut(r, &seed, false);
    }
    for (int i = 0; i < CUTS; i++) {
        flip_and_cut(r, &seed, true);
    }
    for (int i = 0; i < r->n; i++) {
        content c = load(r, r->file[i]);
        bool is_manifest = strcmp(r->file[i], FL_CHECKPOINT_MANIFEST) == 0;
        assert_int_equal(unlink(c.path), 0);
        /* Without its manifest, it is no checkpoint, as if the run had been killed before. */
        expect_choice(r, r->older, is_manifest ? NULL : r->file[i]);
        assert_int_equal(mkdir(c.path, 0700), 0);
        expect_choice(r, r->older, is_manifest ? FL_CHECKPOINT_MANIFEST : r->file[i]);
        assert_int_equal(rmdir(c.path), 0);
        store(&c, c.n);
        free(c.bytes);
    }
    expect_choice(r, r->newest, NULL);
    close_rig(r);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_resume__uses_the_older_checkpoint, make_root,
                                        remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
