/* Which socket the processors of each worker are in, and what plans are told of it. Would catch:
 * sockets that are guessed, workers dealt to sockets in another order than they are pinned, a price
 * between sockets that no plan sees, and a machine with one socket whose plans change. */
#include "device/machine/sockets.h"

#include "device/machine/islands.h"
#include "launcher/run/plan/islands.h"
#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

enum { CPUS = 8 };

static const int all[CPUS] = {0, 1, 2, 3, 4, 5, 6, 7};
static const fl_profile measured = {.link_us = 5,
                                    .link_bytes_per_us = 1000,
                                    .reduce_bytes_per_us = 800,
                                    .far_us = 20,
                                    .far_bytes_per_us = 100,
                                    .far_reduce_bytes_per_us = 90};

static void make_dir(const char *root, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    (void)mkdir(path, 0700); /* it may be there */
}

/* sockets: of processor 0 and up, a digit each; '?': the kernel does not say, '-': it says -1. */
static void make_tree(const char *root, const char *sockets)
{
    static const char *const dirs[] = {"sys", "sys/devices", "sys/devices/system",
                                       "sys/devices/system/cpu"};
    char name[512];
    for (int i = 0; i < 4; i++) {
        make_dir(root, dirs[i]);
    }
    for (int cpu = 0; sockets[cpu] != '\0'; cpu++) {
        snprintf(name, sizeof name, "sys/devices/system/cpu/cpu%d", cpu);
        make_dir(root, name);
        strcat(name, "/topology");
        make_dir(root, name);
        char path[1024];
        snprintf(path, sizeof path, "%s/%s/physical_package_id", root, name);
        (void)remove(path);
        if (sockets[cpu] != '?') {
            FILE *file = fopen(path, "w");
            assert_non_null(file);
            fprintf(file, "%s%c\n", sockets[cpu] == '-' ? "-" : "",
                    sockets[cpu] == '-' ? '1' : sockets[cpu]);
            assert_int_equal(fclose(file), 0);
        }
    }
}

/* islands: of each worker, a digit each; "": the workers have no seats. */
static void test_sockets__are_those_of_the_workers(void **state)
{
    (void)state;
    static const struct {
        const char *sockets;
        int cores, n_workers;
        const char *islands, *text;
    } list[] = {
        {"00001111", 1, 8, "00001111", "a socket each: 0, 1, 2, 3 | 4, 5, 6, 7"},
        {"00001111", 2, 4, "0011", "a socket each: 0, 1 | 2, 3"},
        {"01010101", 1, 4, "0101", "a socket each: 0, 2 | 1, 3"}, /* every second processor */
        {"33331111", 2, 4, "0011", "a socket each: 0, 1 | 2, 3"}, /* in any numbers */
        {"00001111", 1, 3, "000", ""},                            /* all of them in the first one */
        {"00001111", 4, 2, "00", ""}, /* no two are together: one link */
        {"00000000", 1, 8, "00000000", ""},
        {"00011111", 2, 4, "", ""}, /* a worker in both */
        {"0000111?", 1, 8, "", ""},
        {"-------0", 1, 8, "", ""},
        {"00001111", 2, 5, "", ""}, /* fewer processors: workers are not pinned */
    };
    char root[FOLDER_SIZE], text[FL_ISLANDS_TEXT];
    make_folder(root);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        static fl_device_survey survey;
        fl_islands islands;
        make_tree(root, list[i].sockets);
        fl_sockets_seat(root, all, CPUS, list[i].cores, list[i].n_workers, &survey);
        assert_int_equal(survey.n_seats, strlen(list[i].islands));
        fl_islands_find(&survey, &islands);
        for (int w = 0; w < survey.n_seats; w++) {
            assert_int_equal(islands.of[w], list[i].islands[w] - '0');
            assert_int_equal(survey.seat_cpu[w * list[i].cores], w * list[i].cores);
        }
        assert_string_equal(fl_islands_text(&islands, survey.n_seats, text), list[i].text);
    }
    assert_int_equal(remove_folder(root), 0);
}

static void seat(const char *sockets, int n_workers, fl_device_survey *out)
{
    char root[FOLDER_SIZE];
    make_folder(root);
    make_tree(root, sockets);
    *out = (fl_device_survey){.kind = FL_DEVICE_CPU};
    fl_sockets_seat(root, all, CPUS, 1, n_workers, out);
    assert_int_equal(remove_folder(root), 0);
}

static void test_sockets__become_those_of_a_plan(void **state)
{
    (void)state;
    static fl_device_survey survey;
    static fl_cluster c;
    fl_profile unmeasured = measured;
    unmeasured.far_bytes_per_us = 0;
    seat("01010101", 4, &survey);
    assert_false(fl_run_islands_cluster(&survey, &unmeasured, 4, &c));
    assert_true(fl_run_islands_cluster(&survey, &measured, 4, &c));
    assert_int_equal(fl_cluster_check(&c), FL_OK);
    assert_int_equal(fl_cluster_link_class(&c, 0, 2), FL_LINK_SOCKET);
    assert_int_equal(fl_cluster_link_class(&c, 0, 1), FL_LINK_HOST);
    assert_true(fl_cluster_link(&c, &measured, FL_LINK_HOST).latency_us == 20);
    seat("00000000", 4, &survey);
    assert_false(fl_run_islands_cluster(&survey, &measured, 4, &c));
}

/* Two hosts of four: of this one the system tells, the other one is as it was stated. */
static void test_sockets__of_this_host_among_others(void **state)
{
    (void)state;
    static fl_device_survey survey;
    static fl_cluster c;
    fl_cluster_init(&c, 2, 4);
    seat("00110011", 4, &survey);
    assert_false(fl_run_islands_split(&survey, &measured, 3, &c));
    assert_true(fl_run_islands_split(&survey, &measured, 4, &c));
    assert_int_equal(fl_cluster_check(&c), FL_OK);
    assert_int_equal(c.n_sockets, 3);
    assert_int_equal(fl_cluster_link_class(&c, 0, 1), FL_LINK_SOCKET);
    assert_int_equal(fl_cluster_link_class(&c, 2, 3), FL_LINK_SOCKET);
    assert_int_equal(fl_cluster_link_class(&c, 1, 2), FL_LINK_HOST);
    assert_int_equal(fl_cluster_link_class(&c, 4, 7), FL_LINK_SOCKET);
    assert_int_equal(fl_cluster_link_class(&c, 2, 4), FL_LINK_HOSTS);
    seat("00000000", 4, &survey);
    assert_false(fl_run_islands_split(&survey, &measured, 4, &c));
}

/* Sockets that a user states get the price that the profile measured, unless one is stated, too. */
static void test_sockets__have_the_measured_price(void **state)
{
    (void)state;
    static fl_cluster c;
    fl_profile one = measured;
    fl_cluster_init(&c, 1, 2);
    c.socket_of[1] = 1;
    c.n_sockets = 2;
    fl_link_cost link = fl_cluster_link(&c, &measured, FL_LINK_HOST);
    assert_true(link.latency_us == 20 && link.bytes_per_us == 100);
    assert_true(link.reduce_bytes_per_us == 90);
    assert_true(fl_cluster_link(&c, &measured, FL_LINK_SOCKET).latency_us == 5);
    one.far_us = one.far_bytes_per_us = one.far_reduce_bytes_per_us = 0;
    link = fl_cluster_link(&c, &one, FL_LINK_HOST);
    assert_true(link.latency_us == 5 && link.bytes_per_us == 1000);
    c.link[FL_LINK_HOST] = (fl_link_cost){1, 2, 3};
    assert_true(fl_cluster_link(&c, &measured, FL_LINK_HOST).bytes_per_us == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sockets__are_those_of_the_workers),
        cmocka_unit_test(test_sockets__become_those_of_a_plan),
        cmocka_unit_test(test_sockets__of_this_host_among_others),
        cmocka_unit_test(test_sockets__have_the_measured_price),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
