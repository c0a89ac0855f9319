/* Checks of a job that has met no parser, and of one that has met its model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "launcher/job/job.h"
#include "support/formats/allowed.h"

#include <string.h>

/* A program fills in a job without the parser; what it may hold is the same. */
static void test_job_checks__a_job_from_a_program_is_checked_too(void **state)
{
    (void)state;
    fl_job job;
    fl_job_defaults(&job);
    assert_int_equal(fl_job_check(&job), FL_OK);
    job.train.lr = -1;
    assert_int_equal(fl_job_check(&job), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "train.lr: found -1, allowed: a number above 0 and up to 100");
    fl_job_defaults(&job);
    job.pipe.schedule = (fl_schedule)7;
    assert_int_equal(fl_job_check(&job), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "pipe.schedule: found 7, allowed: gpipe or 1f1b");
    fl_job_defaults(&job);
    job.train.warmup.fraction = 0.0 / 0.0;
    assert_int_equal(fl_job_check(&job), FL_EINVAL);
    fl_job_defaults(&job);
    memset(job.run.dir, 'a', sizeof job.run.dir); /* no zero at its end */
    assert_int_equal(fl_job_check(&job), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "run.dir: found '" A90 "...', " PATH);
    fl_job_defaults(&job);
    strcpy(job.name, "a/../b");
    assert_int_equal(fl_job_check(&job), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "name: found 'a/../b', " NAME);
    fl_job_defaults(&job);
    job.devices.memory_bytes = 0;
    assert_int_equal(fl_job_check(&job), FL_EINVAL);
    fl_job_defaults(&job);
    job.train.seed = UINT64_MAX;
    assert_int_equal(fl_job_check(&job), FL_EINVAL);
    fl_job_defaults(&job);
    job.elastic.n_script = 300;
    assert_int_equal(fl_job_check(&job), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "elastic.script: found 300 entries, allowed: at most 256");
    job.elastic.n_script = 1; /* of zeros: there is no step 0 */
    assert_int_equal(fl_job_check(&job), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "elastic.script: entry 1, step: found 0, allowed: an integer "
                                     "from 1 to 1000000000000");
    job.elastic.n_script = 2;
    job.elastic.script[0] = job.elastic.script[1] = (fl_script_entry){.step = 1};
    assert_int_equal(fl_job_check(&job), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "elastic.script: entry 2, step: found 1, allowed: more than "
                                     "the 1 of the entry before");
    job.elastic.n_script = 1;
    job.elastic.script[0].k = -2;
    assert_int_equal(fl_job_check(&job), FL_EINVAL);
    fl_job_defaults(&job);
    job.freeze.n_list = -1;
    assert_int_equal(fl_job_check(&job), FL_EINVAL);
    fl_job_defaults(&job);
    job.freeze.every.steps = 0;
    assert_int_equal(fl_job_check(&job), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "freeze.every: found 0 steps, " PERIOD);
    fl_job_defaults(&job);
    job.freeze.alpha = 1.0;
    assert_int_equal(fl_job_check(&job), FL_EINVAL);
}

/* Would catch: a message that names the start of the list in place of the entry. */
static void test_job_checks__an_entry_of_the_script_has_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *override, *message;
    } cases[] = {
        {"devices: {count: 2}\nelastic:\n  script:\n    - {step: 1, k: 1}\n    - {step: 2, k: 3}\n",
         NULL,
         "job.yaml:5:7: elastic.script: entry 2: found K = 3 and R = 1, that is 3 devices, "
         "allowed: at most devices.count 2"},
        {"train: {batch: 4}\nelastic: {script: [{step: 1}, {step: 2, r: 5}]}\n", NULL,
         "job.yaml:2:31: elastic.script: entry 2, r: found 5, allowed: at most train.batch 4, a "
         "sample for each replica"},
        {"train: {batch: 4}\nelastic: {script: [{step: 1}, {step: 2, r: 2, m: 3}]}\n", NULL,
         "job.yaml:2:31: elastic.script: entry 2, m: found 3, allowed: at most 2, a replica's "
         "share of train.batch 4"},
        {"elastic: {script: [{step: 1}, {step: 2, k: 3}]}\n", "devices.count=2",
         "--set devices.count=2: elastic.script: entry 2: found K = 3 and R = 1, that is 3 "
         "devices, allowed: at most devices.count 2"},
        {"devices: {count: 2}\n", "elastic.script=[{step: 2, k: 3}]",
         "--set elastic.script=[{step: 2, k: 3}]: elastic.script: entry 1: found K = 3 and R = 1, "
         "that is 3 devices, allowed: at most devices.count 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fl_job job;
        assert_int_equal(fl_job_parse("job.yaml", cases[i].text, strlen(cases[i].text),
                                      &cases[i].override, cases[i].override != NULL, &job),
                         FL_EINVAL);
        assert_string_equal(fl_errmsg(), cases[i].message);
    }
}

/* What only the model can tell. Would catch a check against model.blocks, which a plugin's model or
 * a program's has nothing to do with: this one has 4. */
static const struct {
    const char *text, *override, *message;
} for_the_model[] = {
    {"freeze:\n  policy: gradnorm\n  keep: 4\n", NULL,
     "job.yaml:3:9: freeze.keep: found 4, allowed: at most 3 of the model's 4 blocks with "
     "freeze.policy gradnorm, which otherwise could freeze none"},
    {"freeze: {keep: 99}\n", NULL, NULL}, /* for a policy that there is not */
    {"freeze: {keep: 99}\n", "freeze.policy=stability",
     "--set freeze.policy=stability: freeze.keep: found 99, allowed: at most 3 of the model's 4 "
     "blocks with freeze.policy stability, which otherwise could freeze none"},
    {"freeze: {keep: 3}\n", "freeze.policy=stability", NULL},
    {"freeze: {policy: schedule, list: [1, 2]}\n", NULL, NULL},
    {"freeze: {policy: schedule, list: [1, 3, 4]}\n", NULL,
     "job.yaml:1:34: freeze.list: entry 2: found 3, allowed: at most 2, the model's 4 blocks less "
     "freeze.keep 2"},
    {"elastic: {script: [{step: 2, f: 4}]}\n", NULL, NULL},
    {"elastic: {script: [{step: 2}, {step: 3, f: 5}]}\n", NULL,
     "job.yaml:1:31: elastic.script: entry 2, f: found 5, allowed: at most 4, the model's blocks"},
    {"elastic:\n  script:\n    - {step: 2}\n    - step: 3\n      f: 5\n", NULL,
     "job.yaml:4:7: elastic.script: entry 2, f: found 5, allowed: at most 4, the model's blocks"},
    {"{}\n", "elastic.script=[{step: 10, f: 20}]",
     "--set elastic.script=[{step: 10, f: 20}]: elastic.script: entry 1, f: found 20, allowed: at "
     "most 4, the model's blocks"},
};

static void test_job_checks__each_job_that_the_model_refuses_has_its_message(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof for_the_model / sizeof *for_the_model; i++) {
        fl_job job;
        const char *text = for_the_model[i].text, *message = for_the_model[i].message;
        assert_int_equal(fl_job_parse("job.yaml", text, strlen(text), &for_the_model[i].override,
                                      for_the_model[i].override != NULL, &job),
                         FL_OK);
        fl_status status = fl_job_locate(&job, fl_job_check_model(&job, 4));
        assert_int_equal(status, message == NULL ? FL_OK : FL_EINVAL);
        assert_string_equal(message == NULL ? "" : fl_errmsg(), message == NULL ? "" : message);
    }
    fl_job job;
    fl_job_defaults(&job);
    assert_int_equal(fl_job_check_model(&job, 1), FL_OK);
    assert_int_equal(fl_job_set(&job, "freeze.policy", "gradnorm"), FL_OK);
    assert_int_equal(fl_job_check_model(&job, 1), FL_EINVAL);
    assert_string_equal(fl_errmsg(),
                        "freeze.policy: found gradnorm, allowed: none, for a model of 1 block");
}

static void test_job_checks__no_more_stores_than_devices(void **state)
{
    (void)state;
    fl_job job;
    const char *text = "name: x\ncache: {policy: auto, stores: 3}\n";
    assert_int_equal(fl_job_parse("job.yaml", text, strlen(text), NULL, 0, &job), FL_OK);
    assert_int_equal(fl_job_check_devices(&job, 3), FL_OK);
    assert_int_equal(fl_job_locate(&job, fl_job_check_devices(&job, 2)), FL_EINVAL);
    assert_string_equal(fl_errmsg(),
                        "job.yaml:2:31: cache.stores: found 3, allowed: at most 2, one "
                        "for each device");
}

/* Tiers of a device with memory of its own. Would catch: a field that a run on CPUs ignores. */
static void test_job_checks__tiers_of_the_cache_need_a_gpu(void **state)
{
    (void)state;
    fl_job job;
    fl_job_defaults(&job);
    job.cache.pinned_bytes = 1 << 20;
    assert_int_equal(fl_job_check(&job), FL_EINVAL);
    assert_string_equal(fl_errmsg(),
                        "cache.pinned: found 1048576 bytes, with devices.kind cpu allowed: 0, "
                        "since its workers compute in host memory; cache.memory is theirs");
    job.devices.kind = FL_DEVICE_CUDA;
    assert_int_equal(fl_job_check(&job), FL_OK);
    job.cache.device_bytes = job.devices.memory_bytes;
    assert_int_equal(fl_job_check(&job), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "cache.device: found "));
    assert_non_null(strstr(fl_errmsg(), "allowed: less than devices.memory"));
    job.cache.device_bytes--;
    assert_int_equal(fl_job_check(&job), FL_OK);
    job.cache.policy = FL_CACHE_OFF;
    assert_int_equal(fl_job_check(&job), FL_EINVAL);
    assert_string_equal(fl_errmsg(),
                        "cache.pinned: found 1048576 bytes, with cache.policy off allowed: 0");
    job.cache.pinned_bytes = -1;
    assert_int_equal(fl_job_check(&job), FL_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_job_checks__a_job_from_a_program_is_checked_too),
        cmocka_unit_test(test_job_checks__an_entry_of_the_script_has_its_place),
        cmocka_unit_test(test_job_checks__each_job_that_the_model_refuses_has_its_message),
        cmocka_unit_test(test_job_checks__no_more_stores_than_devices),
        cmocka_unit_test(test_job_checks__tiers_of_the_cache_need_a_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
