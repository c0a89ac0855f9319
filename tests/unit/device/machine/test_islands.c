/* Which GPUs of a machine belong together, and what plans are told of it. Catches an island with a
 * pair that no NVLink joins, islands that are guessed, and a link class without a measured pair. */
#include "device/machine/islands.h"
#include "launcher/run/plan/islands.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* nvlink: pairs, as in "02 13"; numa: a digit for each device, '?': unknown. */
typedef struct machine {
    const char *nvlink, *numa;
    fl_island_kind kind;
    const char *islands; /* a digit for each device */
} machine;

static void survey_of(const machine *m, fl_device_survey *out)
{
    *out = (fl_device_survey){.kind = FL_DEVICE_CUDA, .n = (int)strlen(m->numa)};
    for (int i = 0; i < out->n; i++) {
        out->device[i].numa = m->numa[i] == '?' ? -1 : m->numa[i] - '0';
    }
    for (const char *at = m->nvlink; *at != '\0'; at += at[2] == ' ' ? 3 : 2) {
        int a = at[0] - '0', b = at[1] - '0';
        out->nvlink[a][b] = out->nvlink[b][a] = true;
    }
}

static void test_islands__are_found(void **state)
{
    (void)state;
    static const machine list[] = {
        {"", "?", FL_ISLAND_ALL, "0"},
        {"", "????", FL_ISLAND_ALL, "0000"},
        {"", "0000", FL_ISLAND_ALL, "0000"},
        {"", "0011", FL_ISLAND_NUMA, "0011"},
        {"", "0101", FL_ISLAND_NUMA, "0101"},
        {"", "00?1", FL_ISLAND_ALL, "0000"}, /* one is unknown: nothing is guessed */
        {"", "0123", FL_ISLAND_ALL, "0000"}, /* no two are together */
        {"01 23", "????", FL_ISLAND_NVLINK, "0011"},
        {"02 13", "0011", FL_ISLAND_NVLINK, "0101"}, /* NVLink says more than the node */
        {"01 02 12", "00?", FL_ISLAND_ALL, "000"},   /* all pairs are linked */
        {"01 02 12", "001", FL_ISLAND_ALL, "000"},
        {"01 12 23", "????", FL_ISLAND_NVLINK, "0011"}, /* a chain: 0 and 2 are not linked */
        {"01", "????", FL_ISLAND_NVLINK, "0012"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        static fl_device_survey survey;
        fl_islands found;
        survey_of(&list[i], &survey);
        fl_islands_find(&survey, &found);
        assert_int_equal(found.kind, list[i].kind);
        for (int d = 0; d < survey.n; d++) {
            assert_int_equal(found.of[d], list[i].islands[d] - '0');
        }
    }
}

static void test_islands__a_link_needs_both_directions(void **state)
{
    (void)state;
    static fl_device_survey survey;
    fl_islands found;
    survey_of(&(machine){.nvlink = "01 23", .numa = "????"}, &survey);
    survey.nvlink[3][2] = false;
    fl_islands_find(&survey, &found);
    assert_int_equal(found.n, 3);
}

static void test_islands__one_pair_of_each_class_is_measured(void **state)
{
    (void)state;
    static const fl_islands islands = {.kind = FL_ISLAND_NVLINK, .n = 3, .of = {0, 1, 2, 1}};
    static const fl_islands one = {.n = 1};
    int a, b;
    fl_islands_near_pair(&islands, 4, &a, &b);
    assert_true(a == 1 && b == 3);
    fl_islands_far_pair(&islands, 4, &a, &b);
    assert_true(a == 0 && b == 1);
    fl_islands_near_pair(&islands, 3, &a, &b); /* no child has device 3 */
    assert_true(a == -1 && b == -1);
    fl_islands_near_pair(&one, 2, &a, &b);
    assert_true(a == 0 && b == 1);
    fl_islands_far_pair(&one, 2, &a, &b);
    assert_true(a == -1 && b == -1);
    fl_islands_near_pair(&one, 1, &a, &b);
    assert_true(a == -1);
}

static void test_islands__are_shown(void **state)
{
    (void)state;
    char text[FL_ISLANDS_TEXT];
    static const fl_islands islands = {.kind = FL_ISLAND_NVLINK, .n = 2, .of = {0, 1, 0, 1}};
    static const fl_islands nodes = {.kind = FL_ISLAND_NUMA, .n = 2, .of = {0, 0, 1}};
    static const fl_islands one = {.n = 1};
    assert_string_equal(fl_islands_text(&islands, 4, text), "NVLink within 0, 2 | 1, 3");
    assert_string_equal(fl_islands_text(&nodes, 3, text), "a NUMA node each: 0, 1 | 2");
    assert_string_equal(fl_islands_text(&one, 3, text), "");
}

/* Only what was measured, and only for workers that have a GPU each. */
static void test_islands__become_sockets_of_a_host(void **state)
{
    (void)state;
    static fl_device_survey survey;
    static fl_cluster c;
    fl_profile profile = {.link_us = 5, .link_bytes_per_us = 1000, .reduce_bytes_per_us = 800};
    survey_of(&(machine){.nvlink = "02 13", .numa = "????"}, &survey);
    assert_false(fl_run_islands_cluster(&survey, &profile, 4, &c));
    profile.far_us = 20;
    profile.far_bytes_per_us = 100;
    profile.far_reduce_bytes_per_us = 90;
    assert_false(fl_run_islands_cluster(&survey, &profile, 5, &c));
    assert_true(fl_run_islands_cluster(&survey, &profile, 4, &c));
    assert_int_equal(fl_cluster_check(&c), FL_OK);
    assert_int_equal(fl_cluster_link_class(&c, 0, 2), FL_LINK_SOCKET);
    assert_int_equal(fl_cluster_link_class(&c, 0, 1), FL_LINK_HOST);
    assert_true(fl_cluster_link(&c, &profile, FL_LINK_SOCKET).bytes_per_us == 1000);
    assert_true(fl_cluster_link(&c, &profile, FL_LINK_HOST).bytes_per_us == 100);
    assert_true(fl_cluster_link(&c, &profile, FL_LINK_HOST).latency_us == 20);
    survey_of(&(machine){.nvlink = "", .numa = "0000"}, &survey);
    assert_false(fl_run_islands_cluster(&survey, &profile, 4, &c));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_islands__are_found),
        cmocka_unit_test(test_islands__a_link_needs_both_directions),
        cmocka_unit_test(test_islands__one_pair_of_each_class_is_measured),
        cmocka_unit_test(test_islands__are_shown),
        cmocka_unit_test(test_islands__become_sockets_of_a_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
