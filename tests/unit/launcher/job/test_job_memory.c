/* Reading a job while memory runs out: every allocation is made to fail in turn, those of libyaml
 * too, which takes its memory from the functions that this program puts in the place of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "device/system/alloc.h"
#include "launcher/job/job.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { BLOCKS_MAX = 4096 };

static void *alive[BLOCKS_MAX]; /* NULL: a free place */
static long n_calls, fail_at;   /* fail_at 0: never */

static bool fails(void)
{
    return ++n_calls == fail_at;
}

static void *remember(void *memory)
{
    for (int i = 0; memory != NULL && i < BLOCKS_MAX; i++) {
        if (alive[i] == NULL) {
            alive[i] = memory;
            return memory;
        }
    }
    assert_null(memory); /* BLOCKS_MAX is too small */
    return NULL;
}

static void forget(const void *memory)
{
    for (int i = 0; i < BLOCKS_MAX; i++) {
        if (alive[i] == memory) {
            alive[i] = NULL;
            return;
        }
    }
}

/* Free what libyaml still holds; returns how many blocks that were. */
static int free_rest(void)
{
    int n = 0;
    for (int i = 0; i < BLOCKS_MAX; i++) {
        n += alive[i] != NULL;
        free(alive[i]);
        alive[i] = NULL;
    }
    return n;
}

void *yaml_malloc(size_t size);
void *yaml_realloc(void *memory, size_t size);
void yaml_free(void *memory);
yaml_char_t *yaml_strdup(const yaml_char_t *text);

void *yaml_malloc(size_t size)
{
    return fails() ? NULL : remember(malloc(size == 0 ? 1 : size));
}

void *yaml_realloc(void *memory, size_t size)
{
    void *fresh = yaml_malloc(size);
    if (fresh != NULL && memory != NULL) {
        size_t old = malloc_usable_size(memory);
        memcpy(fresh, memory, old < size ? old : size);
        yaml_free(memory);
    }
    return fresh;
}

void yaml_free(void *memory)
{
    if (memory != NULL) {
        forget(memory);
        free(memory);
    }
}

yaml_char_t *yaml_strdup(const yaml_char_t *text)
{
    if (text == NULL) {
        return NULL;
    }
    size_t size = strlen((const char *)text) + 1;
    yaml_char_t *copy = yaml_malloc(size);
    return copy == NULL ? NULL : memcpy(copy, text, size);
}

static const char text[] = "# a job\nname: small\nmodel: {blocks: 2, dim: 32}\ndata:\n"
                           "  path: \"data \\u00e9\"\n  augment: 'crop'\ntrain:\n  lr: 1e-3\n"
                           "  warmup: 5%\n  clip: none\npipe: {k: 2, m: auto}\n"
                           "elastic:\n  script: [{step: 2, f: 1}, {step: 3, k: auto}]\n";
static const char *const script[] = {"elastic.script=[{step: 4, f: 2}, {step: 5}]"};

/* Would catch a crash, a leak, a job that is half read, and a failure that goes unnoticed. libyaml
 * 0.2.5 loses one block itself when memory runs out in certain places; a parser or a document that
 * we forgot would be more. */
static void test_job_memory__each_failed_allocation_ends_in_enomem(void **state)
{
    (void)state;
    long n_failures = 0;
    for (fail_at = 1;; fail_at++) {
        fl_job before, job;
        fl_job_defaults(&before);
        job = before;
        n_calls = 0;
        fl_status status = fl_job_parse("job.yaml", text, sizeof text - 1, NULL, 0, &job);
        int n_lost = free_rest();
        assert_true(n_lost <= 1);
        if (n_calls < fail_at) {
            assert_int_equal(status, FL_OK);
            assert_int_equal(n_lost, 0);
            break;
        }
        assert_int_equal(status, FL_ENOMEM);
        assert_string_equal(fl_errmsg(), "job.yaml: out of memory");
        assert_memory_equal(&job, &before, sizeof job);
        n_failures++;
    }
    fail_at = 0;
    print_message("%ld allocations failed in turn\n", n_failures);
    assert_true(n_failures > 20);
}

/* The same for --set of a list, which is YAML of its own. */
static void test_job_memory__each_failed_allocation_of_an_override_ends_in_enomem(void **state)
{
    (void)state;
    fail_at = 0;
    n_calls = 0;
    fl_job job;
    assert_int_equal(fl_job_parse("job.yaml", "{}", 2, NULL, 0, &job), FL_OK);
    long n_without = n_calls, n_failures = 0;
    for (fail_at = n_without + 1;; fail_at++) {
        n_calls = 0;
        fl_status status = fl_job_parse("job.yaml", "{}", 2, script, 1, &job);
        int n_lost = free_rest();
        assert_true(n_lost <= 1);
        if (n_calls < fail_at) {
            assert_int_equal(status, FL_OK);
            assert_int_equal(n_lost, 0);
            break;
        }
        assert_int_equal(status, FL_ENOMEM);
        n_failures++;
    }
    fail_at = 0;
    assert_int_equal(job.elastic.n_script, 2);
    print_message("%ld allocations failed in turn\n", n_failures);
    assert_true(n_failures > 10);
}

static void test_job_memory__load_without_its_buffer_is_enomem(void **state)
{
    (void)state;
    fl_job job;
    fail_at = 0;
    fl_alloc_fail_at(1);
    assert_int_equal(fl_job_load(FL_SOURCE_DIR "/configs/reference.yaml", NULL, 0, &job),
                     FL_ENOMEM);
    fl_alloc_fail_at(0);
    assert_int_equal(fl_job_load(FL_SOURCE_DIR "/configs/reference.yaml", NULL, 0, &job), FL_OK);
    assert_int_equal(free_rest(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_job_memory__each_failed_allocation_ends_in_enomem),
        cmocka_unit_test(test_job_memory__each_failed_allocation_of_an_override_ends_in_enomem),
        cmocka_unit_test(test_job_memory__load_without_its_buffer_is_enomem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
