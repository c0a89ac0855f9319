/* Which members of a group can use NCCL with each other. Catches two ranks on one device, or of two
 * versions, in one communicator, and a refusal that does not name the pair and the reason. */
#include "autodp/nccl/nccl.h"
#include "autodp/nccl/registration.h"
#include "autodp/nccl/survey.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* 0 and 1 have a device each, 2 shares that of 0, 3 has another version, 4 has no library. */
static fl_nccl_member members[] = {
    {22809, 7, 1}, {22809, 9, 1}, {22809, 7, 1}, {22304, 11, 1}, {0, 0, 1}};

static const fl_nccl_survey survey = {
    .n = sizeof members / sizeof *members, .member = members, .reason = "no such file"};

static void test_nccl_survey__tells_pairs_that_can_use_it(void **state)
{
    (void)state;
    static const bool can[5][5] = {{false, true, false, false, false},
                                   {true, false, true, false, false},
                                   {false, true, false, false, false},
                                   {false, false, false, false, false},
                                   {false, false, false, false, false}};
    for (int a = 0; a < survey.n; a++) {
        for (int b = 0; b < survey.n; b++) {
            assert_int_equal(fl_nccl_survey_pair(&survey, a, b), can[a][b]);
        }
    }
}

/* Two hosts of two devices each. Catches data in plain between hosts that talk by TLS, and devices
 * of two hosts that count as one because both hosts number theirs alike. */
static void test_nccl_survey__crosses_hosts_where_the_job_lets_it(void **state)
{
    (void)state;
    fl_nccl_member two_hosts[] = {{22809, 7, 1}, {22809, 9, 1}, {22809, 7, 2}, {22809, 9, 2}};
    fl_nccl_survey four = {.n = 4, .member = two_hosts};
    char text[FL_GROUP_PAIRS_MAX + 1];
    for (int between = 0; between < 2; between++) {
        four.between_hosts = between == 1;
        for (int a = 0; a < 4; a++) {
            for (int b = 0; b < 4; b++) {
                bool same = a / 2 == b / 2;
                assert_int_equal(fl_nccl_survey_pair(&four, a, b), a != b && (same || between));
            }
        }
        assert_int_equal(fl_nccl_survey_check(&four, 0), between ? FL_OK : FL_ENOTSUP);
    }
    assert_true(fl_nccl_survey_all(&four, (const int[]){0, 1, 2, 3}, 4));
    four.between_hosts = false;
    assert_true(fl_nccl_survey_all(&four, (const int[]){2, 3}, 2));
    fl_nccl_survey_list(&four, 0, (const int[]){0, 1, 2, 3}, text);
    assert_non_null(strstr(text, "1 and 2: they are on different hosts (autodp.security: tls)"));
}

static void test_nccl_survey__asks_all_pairs_of_a_set(void **state)
{
    (void)state;
    assert_true(fl_nccl_survey_all(&survey, (const int[]){1}, 1));
    assert_true(fl_nccl_survey_all(&survey, (const int[]){2, 1}, 2));
    assert_false(fl_nccl_survey_all(&survey, (const int[]){0, 1, 2}, 3));
    assert_false(fl_nccl_survey_all(&survey, (const int[]){1, 0, 4}, 3));
}

static void check_refusal(int first, int n, int me, const char *reason)
{
    fl_nccl_survey part = survey;
    part.member = members + first;
    part.n = n;
    assert_int_equal(fl_nccl_survey_check(&part, me), FL_ENOTSUP);
    if (strstr(fl_errmsg(), reason) == NULL || strchr(fl_errmsg(), '\n') != NULL) {
        fail_msg("'%s'", fl_errmsg());
    }
}

static void test_nccl_survey__names_the_pair_and_the_reason(void **state)
{
    (void)state;
    fl_nccl_survey two = survey;
    two.n = 2;
    assert_int_equal(fl_nccl_survey_check(&two, 0), FL_OK);
    check_refusal(0, 3, 0,
                  "members 0 and 2 cannot use NCCL with each other: they share one device");
    check_refusal(2, 2, 0,
                  "members 0 and 1 cannot use NCCL with each other: their versions are "
                  "2.28.9 and 2.23.4");
    check_refusal(3, 2, 0, "member 1 has none");
    check_refusal(3, 2, 1, "member 1 has none: no such file");
}

/* Three members have kept a communicator of n_ranks. */
static fl_comm_way way_of(int n_ranks, int64_t rebuild_us, int64_t its_us, uint32_t last_serial,
                          bool can_shrink)
{
    fl_nccl_kept_facts kept[3];
    for (int i = 0; i < 3; i++) {
        kept[i] = (fl_nccl_kept_facts){.serial = i == 2 ? last_serial : 7,
                                       .rank = i,
                                       .n_ranks = n_ranks,
                                       .can_shrink = can_shrink || i != 1,
                                       .took_us = {0, rebuild_us, 0, 0}};
    }
    kept[1].took_us[n_ranks == 3 ? FL_COMM_SPLIT : FL_COMM_SHRINK] = its_us;
    const fl_nccl_survey three = {.n = 3, .member = members, .kept = kept};
    return fl_nccl_survey_way(&three);
}

/* Catches members that choose by their own times, and a way that is slower, impossible, or never
 * tried. */
static void test_nccl_survey__takes_the_way_that_took_less_time(void **state)
{
    (void)state;
    assert_int_equal(way_of(3, 500, 0, 7, true), FL_COMM_SPLIT); /* never tried */
    assert_int_equal(way_of(3, 500, 400, 7, true), FL_COMM_SPLIT);
    assert_int_equal(way_of(3, 500, 600, 7, true), FL_COMM_REBUILD);
    assert_int_equal(way_of(3, 0, 600, 7, true), FL_COMM_SPLIT);
    assert_int_equal(way_of(4, 500, 0, 7, true), FL_COMM_SHRINK);
    assert_int_equal(way_of(4, 500, 499, 7, true), FL_COMM_SHRINK);
    assert_int_equal(way_of(4, 500, 501, 7, true), FL_COMM_REBUILD);
    assert_int_equal(way_of(4, 500, 0, 7, false), FL_COMM_REBUILD); /* one library cannot */
    assert_int_equal(way_of(3, 500, 0, 7, false), FL_COMM_SPLIT);
    assert_int_equal(way_of(3, 500, 0, 5, true), FL_COMM_REBUILD); /* another communicator */
    assert_int_equal(way_of(4, 500, 0, 0, true), FL_COMM_REBUILD); /* one has none */
    const fl_nccl_survey none = {.n = 3, .member = members};
    assert_int_equal(fl_nccl_survey_way(&none), FL_COMM_REBUILD);
    assert_true(fl_comm_time_mixed(0, 30) == 30 && fl_comm_time_mixed(10, 30) == 20);
}

/* What registration took for so many bytes, against what it saves in a thousand steps: a
 * microsecond for a megabyte in each. */
static void test_nccl_registration__pays_if_it_earns_its_time(void **state)
{
    (void)state;
    assert_true(fl_nccl_registration_pays(0, 0, 1 << 20)); /* nobody knows: it is tried */
    assert_true(fl_nccl_registration_pays(1000, 1000000, 1000000));
    assert_false(fl_nccl_registration_pays(1001, 1000000, 1000000));
    assert_true(fl_nccl_registration_pays(5000, 10000000, 1000000));
    assert_false(fl_nccl_registration_pays(500, 100000, 64000000));
    assert_true(fl_nccl_registration_pays(1001, 1000000, 0)); /* nothing to register */
}

/* Devices that compute in host memory have no streams for a library. */
static void test_nccl_choice__follows_the_job_and_the_device(void **state)
{
    (void)state;
    fl_device *cpu = NULL;
    fl_job job = {.autodp.transport = FL_TRANSPORT_AUTO};
    assert_int_equal(fl_device_cpu_create(1, NULL, 1 << 20, &cpu), FL_OK);
    fl_group_options options = {.device = cpu};
    fl_nccl_choose(&job, NULL, &options);
    assert_null(options.backend);
    fl_device_ops apart = *cpu->ops;
    apart.host_memory = false;
    fl_device gpu = *cpu;
    gpu.ops = &apart;
    options.device = &gpu;
    fl_nccl_choose(&job, NULL, &options);
    assert_ptr_equal(options.backend, &fl_nccl_group_ops);
    assert_false(options.every_pair);
    job.autodp.transport = FL_TRANSPORT_NCCL;
    fl_nccl_choose(&job, NULL, &options);
    assert_true(options.backend == &fl_nccl_group_ops && options.every_pair);
    job.autodp.transport = FL_TRANSPORT_HOST;
    fl_nccl_choose(&job, NULL, &options);
    assert_true(options.backend == NULL && !options.every_pair);
    fl_device_destroy(&cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nccl_survey__tells_pairs_that_can_use_it),
        cmocka_unit_test(test_nccl_survey__crosses_hosts_where_the_job_lets_it),
        cmocka_unit_test(test_nccl_survey__asks_all_pairs_of_a_set),
        cmocka_unit_test(test_nccl_survey__names_the_pair_and_the_reason),
        cmocka_unit_test(test_nccl_survey__takes_the_way_that_took_less_time),
        cmocka_unit_test(test_nccl_registration__pays_if_it_earns_its_time),
        cmocka_unit_test(test_nccl_choice__follows_the_job_and_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
