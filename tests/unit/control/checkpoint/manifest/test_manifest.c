#include "control/checkpoint/manifest/manifest.h"

#include "device/system/alloc.h"
#include "support/data/checkpoints.h"

#include <glob.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

enum { STEP = 500, STEP_OF_3 = 12, TRAILER = 31 };

static fl_checkpoint *read_back;

static int set_up(void **state)
{
    (void)state;
    return fl_alloc(sizeof *read_back, (void **)&read_back) == FL_OK ? 0 : -1;
}

static int clean(void **state)
{
    (void)state;
    destroy_checkpoint(read_back);
    return 0;
}

static fl_status parse(const char *text, size_t n)
{
    fl_checkpoint_fini(read_back);
    return fl_checkpoint_parse("m.json", text, n, read_back);
}

/* Would catch a member that is not written, and a number that does not come back to the last bit.
 */
static void test_manifest__every_value_comes_back_to_the_last_bit(void **state)
{
    (void)state;
    unsigned first = (unsigned)getpid() * 100;
    print_message("seeds from %u\n", first);
    for (unsigned seed = first; seed < first + 60; seed++) {
        char *text = NULL;
        size_t n = 0;
        fl_checkpoint *c = make_listed_checkpoint(seed % 5 == 0 ? 0 : STEP, seed);
        assert_int_equal(fl_checkpoint_format(c, &text, &n), FL_OK);
        fl_status status = parse(text, n);
        assert_string_equal(status == FL_OK ? "" : fl_errmsg(), "");
        assert_same_checkpoint(c, read_back);
        fl_free(text);
        destroy_checkpoint(c);
    }
}

/* A seed that the reader refuses keeps the fuzz target from everything behind that check, as one
 * did after the manifest had got new members. FL_WRITE_SEED=1 in the environment writes it anew. */
static void test_manifest__is_what_the_fuzz_target_starts_from(void **state)
{
    (void)state;
    static const char path[] = FL_SOURCE_DIR "/tests/fuzz/corpus/fuzz_manifest/checkpoint";
    fl_checkpoint *c = make_listed_checkpoint(STEP, 1);
    char *text = NULL;
    size_t n = 0;
    assert_int_equal(fl_checkpoint_format(c, &text, &n), FL_OK);
    n -= TRAILER;
    if (getenv("FL_WRITE_SEED") != NULL) {
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        assert_true(fputc('1', file) == '1' && fwrite(text, 1, n, file) == n);
        assert_int_equal(fclose(file), 0);
    }
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *seed = calloc(1, n + 2);
    assert_int_equal(fread(seed, 1, n + 2, file), n + 1);
    fclose(file);
    assert_int_equal(seed[0], '1');
    assert_memory_equal(seed + 1, text, n);
    free(seed);
    fl_free(text);
    destroy_checkpoint(c);
}

/* A manifest of the corpus into read_back. *text: without its last member; the caller frees it. */
static void read_seed(const char *path, char **text)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fgetc(file), '1');
    *text = calloc(1, 1 << 20);
    assert_non_null(*text);
    size_t n = fread(*text, 1, (1 << 20) - TRAILER - 1, file);
    fclose(file);
    snprintf(*text + n, TRAILER + 1, "  \"xxh64\": \"%016" PRIx64 "\"\n}\n",
             (uint64_t)XXH64(*text, n, 0));
    assert_int_equal(parse(*text, n + TRAILER), FL_OK);
}

/* Would catch: seeds that the fuzz target rejects at their version, so that it never comes further;
 * tests/fuzz/make_manifest_seeds.sh writes them anew. */
static void test_manifest__the_seeds_that_runs_wrote_have_this_version(void **state)
{
    (void)state;
    enum { SEEDS_LEAST = 10 };
    char version[32], *text = NULL;
    glob_t found;
    snprintf(version, sizeof version, "\"version\": %d,", FL_CHECKPOINT_VERSION);
    assert_int_equal(glob(FL_SOURCE_DIR "/tests/fuzz/corpus/fuzz_manifest/run-*", 0, NULL, &found),
                     0);
    assert_true(found.gl_pathc >= SEEDS_LEAST);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        read_seed(found.gl_pathv[i], &text);
        assert_non_null(strstr(text, version));
        free(text);
    }
    globfree(&found);
}

/* One that frostline wrote before version 3. Would catch: a run that cannot be resumed any more. */
static void test_manifest__version_2_is_read(void **state)
{
    (void)state;
    char *text = NULL;
    read_seed(FL_SOURCE_DIR "/tests/fuzz/corpus/fuzz_manifest/checkpoint-2", &text);
    assert_non_null(strstr(text, "\"version\": 2,"));
    assert_int_equal(read_back->step, STEP);
    assert_int_equal(read_back->controller.wanted_k, -1);
    assert_int_equal(read_back->controller.wanted_r, -1);
    assert_int_equal(read_back->controller.n_started, 0);
    assert_int_equal(read_back->controller.losses.n_losses, 0);
    free(text);
}

/* As above, before version 4. */
static void test_manifest__version_3_is_read_without_losses(void **state)
{
    (void)state;
    static const fl_recovery_sums none;
    char *text = NULL;
    read_seed(FL_SOURCE_DIR "/tests/fuzz/corpus/fuzz_manifest/checkpoint-3", &text);
    assert_non_null(strstr(text, "\"version\": 3,"));
    assert_int_equal(read_back->step, STEP_OF_3);
    assert_memory_equal(&read_back->controller.losses, &none, sizeof none);
    free(text);
}

static void test_manifest__numbers_that_json_cannot_express_come_back(void **state)
{
    (void)state;
    char *text = NULL;
    size_t n = 0;
    fl_checkpoint *c = make_listed_checkpoint(STEP, 1);
    c->controller.stats.last.loss = (double)NAN;
    c->controller.stats.last.grad_norm = (double)INFINITY;
    c->controller.stats.step_ms = -(double)INFINITY;
    c->controller.stats.eval_ms = -0.0;
    assert_int_equal(fl_checkpoint_format(c, &text, &n), FL_OK);
    assert_int_equal(parse(text, n), FL_OK);
    assert_true(isnan(read_back->controller.stats.last.loss));
    assert_true(read_back->controller.stats.last.grad_norm == (double)INFINITY);
    assert_true(read_back->controller.stats.step_ms == -(double)INFINITY);
    assert_true(signbit(read_back->controller.stats.eval_ms));
    fl_free(text);
    destroy_checkpoint(c);
}

/* Each byte is covered: the hash by itself, everything else by the hash. */
static void test_manifest__any_changed_or_missing_byte_is_found(void **state)
{
    (void)state;
    char *text = NULL;
    size_t n = 0;
    fl_checkpoint *c = make_listed_checkpoint(STEP, 2);
    assert_int_equal(fl_checkpoint_format(c, &text, &n), FL_OK);
    for (size_t i = 0; i < n; i += i + 200 < n ? 7 : 1) {
        for (int bit = 0; bit < 8; bit += 3) {
            text[i] = (char)(text[i] ^ (1 << bit));
            assert_int_equal(parse(text, n), FL_EFORMAT);
            text[i] = (char)(text[i] ^ (1 << bit));
        }
        assert_int_equal(parse(text, i), FL_EFORMAT);
    }
    assert_int_equal(parse(text, n), FL_OK);
    fl_free(text);
    destroy_checkpoint(c);
}

/* ---- contents with a right hash ---- */

/* The text with one part of it replaced, and the hash for it. */
static char *changed(const char *text, size_t n, const char *from, const char *to, size_t *n_out)
{
    char *at = strstr(text, from);
    assert_non_null(at);
    size_t before = (size_t)(at - text), n_from = strlen(from), n_to = strlen(to);
    char *out = malloc(n + n_to + 1);
    assert_non_null(out);
    size_t covered = n - TRAILER - n_from + n_to;
    memcpy(out, text, before);
    memcpy(out + before, to, n_to);
    memcpy(out + before + n_to, at + n_from, n - before - n_from);
    snprintf(out + covered, TRAILER + 1, "  \"xxh64\": \"%016" PRIx64 "\"\n}\n",
             (uint64_t)XXH64(out, covered, 0));
    *n_out = covered + TRAILER;
    return out;
}

typedef struct change {
    const char *from, *to;
    fl_status status;
    const char *message;
} change;

static const change changes[] = {
    {"\"version\": 4,", "\"version\": 1,", FL_ENOTSUP,
     "m.json: version 1 of the format; this program (frostline " FL_VERSION
     ") reads versions 2 to 4"},
    {"\"version\": 4,", "\"version\": 5,", FL_ENOTSUP,
     "m.json: version 5 of the format; this program (frostline " FL_VERSION
     ") reads versions 2 to 4"},
    {"\"version\": 4,", "\"version\": \"3\",", FL_EFORMAT, "m.json: version: found no integer"},
    {"frostline-checkpoint", "frozen-checkpoint", FL_EFORMAT,
     "m.json: format: found frozen-checkpoint, allowed: frostline-checkpoint"},
    {"\"step\": 500,", "\"step\": -1,", FL_EFORMAT,
     "m.json: step: found -1, allowed: an integer from 0 to 9223372036854775807"},
    {"\"step\": 500,", "\"step\": \"500\",", FL_EFORMAT,
     "m.json: step: found \"500\", allowed: an integer from 0 to 9223372036854775807"},
    {"\"step\": 500,", "\"step\": 501,", FL_EFORMAT,
     "m.json: controller.stats.steps: found 500, the step is 501"},
    {"\"step\": 500,", "", FL_EFORMAT,
     "m.json: step: found nothing, allowed: an integer from 0 to 9223372036854775807"},
    {"\"step\": 500,", "\"step\": 500, \"stop\": 1,", FL_EFORMAT,
     "m.json: the member \"stop\" is unknown"},
    {"\"K\": 2,", "\"K\": 129,", FL_EFORMAT,
     "m.json: plan.K: found 129, allowed: an integer from 1 to 128"},
    {"\"K\": 2,", "\"K\": 3,", FL_EFORMAT,
     "m.json: plan.first: found an array, allowed: an array of 4 items"},
    {"\"first\": [0, 1, 3]", "\"first\": [0, 3, 3]", FL_EFORMAT, "m.json: plan: "},
    {"\"rank_of\": [0, 1]", "\"rank_of\": [1, 1]", FL_EFORMAT, "m.json: plan: "},
    {"\"n_started\": 2", "\"n_started\": 3", FL_EFORMAT,
     "m.json: controller.n_started: found 3, the run has 2 workers"},
    {"\"wanted_k\": 2", "\"wanted_k\": 0", FL_EFORMAT,
     "m.json: controller: wanted_k 0, wanted_r 1: no run has these values"},
    {"\"parked\": [1, -1, -1]", "\"parked\": [2, -1, -1]", FL_EFORMAT,
     "m.json: controller.parked[0]: found 2, the run has 2 workers"},
    {"\"since\": [0, 250, 0]", "\"since\": [0, 501, 0]", FL_EFORMAT,
     "m.json: controller.since[1]: found step 501, the run has done 500"},
    {"\"since\": [0, 250, 0]", "\"since\": [0, -1, 0]", FL_EFORMAT,
     "m.json: controller.since[1]: found -1, allowed: "},
    {"\"lr_factor\": ", "\"lr_factor\": -", FL_EFORMAT,
     "m.json: worker.lr_factor: found -0.1, allowed: a number above 0"},
    {"\"end_step\": 1500", "\"end_step\": 499", FL_EFORMAT,
     "m.json: worker.end_step: found 499, the step is 500"},
    {"weights-000.safetensors", "../../etc/passwd", FL_EFORMAT,
     "m.json: file[0].name: found \"../../etc/passwd\", allowed: a file beside it"},
    {"weights-000.safetensors", "manifest.json", FL_EFORMAT,
     "m.json: file[0].name: found \"manifest.json\", allowed: a file beside it"},
    {"weights-000.safetensors", FL_CHECKPOINT_INDEX, FL_EFORMAT,
     "m.json: the file model.safetensors.index.json is listed twice"},
    {FL_CHECKPOINT_INDEX, "weights-001.safetensors", FL_EFORMAT,
     "m.json: the file model.safetensors.index.json is not listed"},
    {"0000000000000006", "000000000000000g", FL_EFORMAT,
     "m.json: file[0].xxh64: found \"000000000000000g\", allowed: 16 hexadecimal digits"},
    {"\"n_files\": 2", "\"n_files\": 1025", FL_EFORMAT, "m.json: file: found an array"},
    {"\"job\": \"name: toy\\n\"", "\"job\": 7", FL_EFORMAT,
     "m.json: job: found 7, allowed: a text"},
    {"\"n_samples\": 320", "\"n_samples\": 320.5", FL_EFORMAT,
     "m.json: data.n_samples: found 320.5, allowed: an integer"},
    {"{\n", "[\n", FL_EFORMAT, "m.json: no valid JSON"},
};

static void test_manifest__contents_that_no_run_has_are_refused_with_the_place(void **state)
{
    (void)state;
    char *text = NULL;
    size_t n = 0, n_changed;
    fl_checkpoint *c = make_listed_checkpoint(STEP, 3);
    assert_int_equal(fl_checkpoint_format(c, &text, &n), FL_OK);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char *other = changed(text, n, changes[i].from, changes[i].to, &n_changed);
        assert_int_equal(parse(other, n_changed), changes[i].status);
        print_message("%s\n", fl_errmsg());
        assert_non_null(strstr(fl_errmsg(), changes[i].message));
        free(other);
    }
    fl_free(text);
    destroy_checkpoint(c);
}

/* A command had made the current epoch the last: that holds for a resumed run, too, unless it is
 * reached or the run was made longer or shorter. */
static void test_manifest__a_shortened_run_stays_shortened_until_it_is_over(void **state)
{
    (void)state;
    fl_checkpoint *c = make_checkpoint(STEP, 9);
    c->worker.planned_steps = 1500;
    c->worker.end_step = 1500;
    assert_int_equal(fl_checkpoint_end_step(c, 1500), 1500);
    assert_int_equal(fl_checkpoint_end_step(c, 3000), 3000);
    c->worker.end_step = 520;
    assert_int_equal(fl_checkpoint_end_step(c, 1500), 520);
    assert_int_equal(fl_checkpoint_end_step(c, 510), 510);
    c->worker.end_step = STEP;
    assert_int_equal(fl_checkpoint_end_step(c, 1500), 1500);
    destroy_checkpoint(c);
}

/* Would catch: a forged count to which the run adds until it overflows. */
static void test_manifest__sums_that_would_overflow_are_refused(void **state)
{
    (void)state;
    fl_checkpoint *c = make_listed_checkpoint(STEP, 1), *forged = calloc(1, sizeof *forged);
    char *text = NULL;
    size_t n = 0;
    assert_non_null(forged);
    c->controller.stats.n_window = INT64_MAX;
    assert_int_equal(fl_checkpoint_format(c, &text, &n), FL_OK);
    assert_int_equal(fl_checkpoint_parse("m.json", text, n, forged), FL_EFORMAT);
    assert_non_null(strstr(fl_errmsg(), "m.json: controller.stats.n_window: found "
                                        "9223372036854775807, allowed: an integer from 0 to 46"));
    fl_checkpoint_fini(forged);
    free(forged);
    fl_free(text);
    destroy_checkpoint(c);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_manifest__##name, set_up, clean)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_manifest__sums_that_would_overflow_are_refused),
        TEST(every_value_comes_back_to_the_last_bit),
        TEST(is_what_the_fuzz_target_starts_from),
        TEST(the_seeds_that_runs_wrote_have_this_version),
        TEST(version_2_is_read),
        TEST(version_3_is_read_without_losses),
        TEST(numbers_that_json_cannot_express_come_back),
        TEST(any_changed_or_missing_byte_is_found),
        TEST(contents_that_no_run_has_are_refused_with_the_place),
        TEST(a_shortened_run_stays_shortened_until_it_is_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
